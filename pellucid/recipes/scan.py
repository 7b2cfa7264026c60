"""Commands to actions (SCAN): what such networks learn of a grammar, and what they do not."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pellucid.data.examples import Example
from pellucid.data.lines import decode_utf8, read_lines, strip_newline
from pellucid.errors import DataError
from pellucid.recipes.experiment_report import run_reference
from pellucid.recipes.experiments import Experiment, Pairs, Reference
from pellucid.recipes.recipe import Request

PUBLISHED = {
    "simple": {"Lake and Baroni 2018": 99.8, "Bastings et al. 2018": 100.0},
    "length": {"Lake and Baroni 2018": 20.8, "Bastings et al. 2018": 14.4},
}
"""Exact match. Lake and Baroni: the best of their networks for each split; Bastings et al.: GRU with attention."""
HELD_OUT = 500
"""Training pairs that are kept to develop on."""
INTRODUCTION = """Commands of a small grammar ("jump left twice") and the actions they ask for, word by word. In the
split "simple" commands are drawn at random; in "length" all that ask for more than 22 actions are tested. There is
no development set: 500 pairs of the training file, drawn with a fixed seed, are kept for that and not trained on.
So the development set of "length" is no longer than its training set, and says nothing of longer ones.

Published: exact match of Lake and Baroni (2018), "Generalization without Systematicity", for each split the best of
their networks (simple: an LSTM without attention; length: a GRU with attention), trained on all pairs; and of the
GRU with attention of Bastings et al. (2018), "Jump to better conclusions". Both are told from memory of the papers,
not read again for this recipe."""


def run(request: Request) -> Iterator[str]:
    """Train and judge both splits."""
    return run_reference(reference(), request)


def reference() -> Reference:
    """The recipe."""
    return Reference(
        name="scan",
        title="Commands to actions",
        introduction=INTRODUCTION,
        origin="SCAN (github.com/brendenlake/SCAN, the files of simple_split and length_split, each also as .gz)",
        measure="exact_match",
        experiments=[Experiment(split, partial(_pairs, split), told) for split, told in PUBLISHED.items()],
    )


def _pairs(split: str, folder: Path) -> Pairs:
    """The files of a split, some of the training pairs kept to develop on."""
    given, test = (_read(folder / f"tasks_{part}_{split}.txt") for part in ("train", "test"))
    kept = set(random.Random(1).sample(range(len(given)), min(HELD_OUT, len(given) // 4)))
    train = [pair for place, pair in enumerate(given) if place not in kept]
    return Pairs(train, [given[place] for place in sorted(kept)], test)


def _read(path: Path) -> list[Example]:
    """The pairs of a file, compressed or not: "IN: run left OUT: I_TURN_LEFT I_RUN" on a line."""
    packed = path.with_name(f"{path.name}.gz")
    found = packed if packed.exists() else path
    pairs = []
    for number, line in enumerate(read_lines(found), start=1):
        source, out, target = strip_newline(decode_utf8(line)).removeprefix("IN: ").partition(" OUT: ")
        if not out:
            raise DataError(f"{found}, line {number}: expected 'IN: command OUT: actions'")
        pairs.append(Example(source, target))
    return pairs
