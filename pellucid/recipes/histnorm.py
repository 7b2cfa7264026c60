"""Historical spellings to modern ones, German and Slovene, by the number of tokens to train on."""

import re
import unicodedata
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pellucid.data.examples import Example
from pellucid.data.lines import decode_utf8, read_lines, strip_newline
from pellucid.recipes.experiment_report import run_reference
from pellucid.recipes.experiments import Experiment, Pairs, Reference
from pellucid.recipes.recipe import Request

FILES = {"ridges": "german-ridges", "bohoric": "slovene-goo300k-bohoric"}
SIZES = {"1k": 1_000, "5k": 5_000, "10k": 10_000, "25k": 25_000, "all": 0}
"""Tokens to train on; 0 is all."""
SYSTEMS = ("Marian", "XNMT", "cSMTiser")
PUBLISHED = {
    "ridges": {
        "1k": (65.27, 60.61, 75.04),
        "5k": (75.78, 74.27, 80.25),
        "10k": (79.28, 78.77, 82.67),
        "25k": (84.24, 83.75, 85.86),
    },
    "bohoric": {
        "1k": (78.14, 73.83, 82.90),
        "5k": (84.32, 83.78, 88.09),
        "10k": (87.03, 86.41, 89.59),
        "25k": (89.77, 89.45, 91.05),
    },
}
"""Word accuracy by size, in the order of `SYSTEMS`."""
VALIDATED: dict[str, dict[str, Any]] = {
    "1k": {"training": {"eval_interval": 4.0}},
    "5k": {"training": {"eval_interval": 2.0}},
}
"""Small training sets are passed often, and the development set is large: it is judged every few passes only."""
INTRODUCTION = """Tokens of German herbals (RIDGES, 1482 to 1652) and of Slovene books in the Bohorič alphabet
(goo300k), each with its modern spelling. The first 1,000, 5,000, 10,000 and 25,000 tokens of the training file are
trained on, and all of them; the development set and the test set are always whole, and each token counts as often
as it stands there.

Tokens are prepared as for the published numbers: without sentence boundaries, empty sides and tokens of punctuation
alone, in lower case and in Unicode's form NFC, and with 0 for each digit of a number that is the same on both
sides.

Published: word accuracy by size, from appendix_tab6.pdf beside Bollmann (2019), "A Large-Scale Comparison of
Historical Text Normalization Systems". Marian is a deep GRU, XNMT an LSTM that reads both ways, both with
attention; cSMTiser translates phrases of characters. The appendix says neither which tokens were taken nor whether
they were judged on the development or the test set: a difference of one point is none."""


def run(request: Request) -> Iterator[str]:
    """Train and judge both languages at every size."""
    return run_reference(reference(), request)


def reference() -> Reference:
    """The recipe."""
    return Reference(
        name="histnorm",
        title="Historical spellings to modern ones",
        introduction=INTRODUCTION,
        origin="that of Bollmann 2019 (github.com/coastalcph/histnorm, the files german-ridges.* and "
        "slovene-goo300k-bohoric.* of datasets)",
        measure="exact_match",
        experiments=[_experiment(corpus, size) for corpus in FILES for size in SIZES],
    )


def prepared(source: str, target: str) -> Example | None:
    """A pair as the published systems saw it, or None where they did not: what scripts/preprocess.py --all does there.

    But for spaces, which it replaces by a sign that stands for them.
    """
    if not source or not target or _punctuation(source) or _punctuation(target):
        return None
    source, target = (unicodedata.normalize("NFC", text).lower() for text in (source, target))
    if source == target:
        source = target = re.sub("[0-9]", "0", source)
    return Example(source, target)


def _experiment(corpus: str, size: str) -> Experiment:
    """A language at a size."""
    published = dict(zip(SYSTEMS, PUBLISHED[corpus].get(size, ()), strict=False))
    return Experiment(f"{corpus}-{size}", partial(_pairs, corpus, size), published, VALIDATED.get(size, {}))


def _pairs(corpus: str, size: str, folder: Path) -> Pairs:
    """The files of a language, the training file cut."""
    train, dev, test = (_read(folder / f"{FILES[corpus]}.{part}.txt") for part in ("train", "dev", "test"))
    return Pairs(train[: SIZES[size] or len(train)], dev, test)


def _read(path: Path) -> list[Example]:
    """The tokens of a file; a line without two columns (a sentence boundary, a stray tab) is none."""
    rows = [strip_newline(decode_utf8(line)).rstrip().split("\t") for line in read_lines(path)]
    pairs = [prepared(*row) for row in rows if len(row) == 2]
    return [pair for pair in pairs if pair is not None]


def _punctuation(text: str) -> bool:
    """Whether there is nothing but punctuation (Unicode's categories P)."""
    return all(unicodedata.category(character).startswith("P") for character in text)
