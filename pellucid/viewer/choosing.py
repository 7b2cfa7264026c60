"""Which examples of a large file are shown."""

from collections.abc import Sequence

import numpy as np

from pellucid.evaluation.metrics import Scored, worst


def choose(scored: Sequence[Scored], most: int) -> tuple[list[int], str]:
    """The numbers of the examples that are shown, in the file's order, and in words which they are.

    All, where there are no more than `most`. Else the worst wrong ones, at most half as many as are shown (more where
    too few are right), and right ones drawn evenly from the whole file.
    """
    if len(scored) <= most:
        return list(range(len(scored))), f"all {len(scored):,} examples"
    wrong, right = worst(scored, len(scored)), [at for at, each in enumerate(scored) if each.exact]
    room = max(most - len(right), min(len(wrong), most // 2))
    shown_right = evenly(right, most - min(room, len(wrong)))
    chosen = sorted([*wrong[:room], *shown_right])
    if not wrong:
        return chosen, f"{most:,} of {len(scored):,} examples, drawn evenly from the file, in which none is wrong"
    few = len(wrong) <= room
    mistaken = f"all {len(wrong):,} wrong ones" if few else f"the {room:,} worst of {len(wrong):,} wrong ones"
    words = f"{len(chosen):,} of {len(scored):,} examples: {mistaken}"
    return chosen, f"{words}, and {len(shown_right):,} of {len(right):,} right ones, drawn evenly from the file"


def evenly(numbers: Sequence[int], count: int) -> list[int]:
    """So many of the numbers, at even distances; all where there are no more."""
    if count >= len(numbers):
        return list(numbers)
    return [numbers[at] for at in np.linspace(0, len(numbers) - 1, max(count, 0)).round().astype(int).tolist()]
