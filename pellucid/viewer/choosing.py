"""Which examples of a large file are shown."""

from collections.abc import Sequence

import numpy as np

from pellucid.evaluation.metrics import Scored, worst


def choose(scored: Sequence[Scored], most: int, rivals: Sequence[Sequence[Scored]] = ()) -> tuple[list[int], str]:
    """The numbers of the examples that are shown, in the file's order, and in words which they are.

    All, where there are no more than `most`. Else those on which the runs differ, one having right what another has
    wrong, up to four fifths of `most` (more where the others are fewer): those that the first has right and those that
    it has wrong alike, each drawn evenly where they are too many. Of the others the worst wrong ones, at most half as
    many as there is room for (more where too few are right), and right ones drawn evenly from the whole file.
    """
    if len(scored) <= most:
        return list(range(len(scored))), f"all {len(scored):,} examples"
    parted = [at for at, own in enumerate(scored) if any(rival[at].exact != own.exact for rival in rivals)]
    others = min(most // 5, len(scored) - len(parted))
    differing, left = _both(scored, parted, most - others), set(parted)
    room = most - len(differing)
    wrong = [at for at in worst(scored, len(scored)) if at not in left]
    right = [at for at, each in enumerate(scored) if each.exact and at not in left]
    shown_wrong = wrong[: max(room - len(right), min(len(wrong), room // 2))]
    shown_right = evenly(right, room - len(shown_wrong))
    chosen = sorted([*differing, *shown_wrong, *shown_right])
    ones = ("that all runs have wrong", "that all have right") if rivals else ("wrong ones", "right ones")
    if not rivals and not wrong:
        return chosen, f"{most:,} of {len(scored):,} examples, drawn evenly from the file, in which none is wrong"
    mistaken = _many(len(shown_wrong), len(wrong), f"the {len(shown_wrong):,} worst of {len(wrong):,}")
    words = f"{_differ(len(differing), len(parted)) if rivals else ''}{mistaken} {ones[0]}"
    drawn = f"{len(shown_right):,} of {len(right):,}"
    good = f"{_many(len(shown_right), len(right), drawn)} {ones[1]}"
    even = ", drawn evenly from the file" if 0 < len(shown_right) < len(right) else ""
    return chosen, f"{len(chosen):,} of {len(scored):,} examples: {words}, and {good}{even}"


def _both(scored: Sequence[Scored], parted: Sequence[int], most: int) -> list[int]:
    """Of the examples on which runs differ so many; of those that the first has right and of the others alike many."""
    first, other = ([at for at in parted if scored[at].exact is right] for right in (True, False))
    share = max(min(len(first), most // 2), most - len(other))
    return [*evenly(first, share), *evenly(other, most - min(share, len(first)))]


def _many(shown: int, there: int, some: str) -> str:
    """How many are shown: all, none, or `some`."""
    return f"all {there:,}" if shown == there else some if shown else f"none of {there:,}"


def _differ(shown: int, parted: int) -> str:
    """How many of the examples that a run has right and another wrong are shown."""
    those = "that one run has right and another wrong"
    many = f"{shown:,} of {parted:,} {those}, drawn evenly"
    return f"{many if shown < parted else f'all {parted:,} {those}'}; "


def evenly(numbers: Sequence[int], count: int) -> list[int]:
    """So many of the numbers, at even distances; all where there are no more."""
    if count >= len(numbers):
        return list(numbers)
    return [numbers[at] for at in np.linspace(0, len(numbers) - 1, max(count, 0)).round().astype(int).tolist()]
