"""Sentences of Tatoeba, English and Spanish: as they stand, or as words; with all the translations of a sentence."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pellucid.config import DataConfig
from pellucid.data.examples import Example, read_examples
from pellucid.errors import DataError
from pellucid.files import make_folder, write_text

FOLDER, PARTS = Path("mt-tatoeba-spa-eng") / "derived-split", ("train", "dev", "test")
WORD = re.compile(r"(\s+)|(\w+(?:['’]\w+)*)|([^\w\s])")
JOINER = "▪"
"""Stands on a sign, on the side where no space parts it from what it stands beside."""


class Sentences(NamedTuple):
    """The pairs of the three sets."""

    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]


class Asked(NamedTuple):
    """Different sentences, and all that the set has as a translation of each."""

    sources: list[str]
    references: list[tuple[str, ...]]


def read_sentences(data: Path, samples: int) -> Sentences:
    """The three sets; with `samples`, so many training pairs drawn with a fixed seed, and no more of the others."""
    paths = [data / FOLDER / f"{part}.tsv.gz" for part in PARTS]
    if not all(path.exists() for path in paths):
        raise DataError(
            f"{data / FOLDER} lacks train.tsv.gz, dev.tsv.gz or test.tsv.gz: the sentences are those of "
            "manythings.org/anki (spa-eng), split so that none is in two parts; give their folder with --data"
        )
    every = [read_examples(path, DataConfig()).examples for path in paths]
    if samples:
        every = [random.Random(1).sample(part, min(samples, len(part))) for part in every]
    return Sentences(*every)


def asked_of(pairs: Sequence[Example]) -> Asked:
    """Each source once, with its targets."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(pair.source, []).append(pair.target)
    return Asked(list(found), [tuple(dict.fromkeys(targets)) for targets in found.values()])


def apart(text: str) -> str:
    """Words and signs with a space between: "¿Eh?" is "¿▪ Eh ▪?". `together` undoes it, but for the width of spaces."""
    words: list[str] = []
    close = False
    for space, word, sign in WORD.findall(text):
        if word:
            if close:
                words[-1] += JOINER
            words.append(word)
        elif sign:
            words.append(JOINER + sign if close else sign)
        close = not space
    return " ".join(words)


def together(words: str) -> str:
    """The text of words that `apart` has parted."""
    return words.replace(f" {JOINER}", "").replace(f"{JOINER} ", "").replace(JOINER, "")


def write_sets(sentences: Sentences, folder: Path, as_words: bool) -> Sentences:
    """The training and development pairs as files that training reads; all sets as it reads them."""
    make_folder(folder)
    shown = Sentences(*([_parted(pair) for pair in part] for part in sentences)) if as_words else sentences
    for name, part in zip(PARTS, shown, strict=True):
        write_text(folder / f"{name}.tsv", "".join(f"{pair.source}\t{pair.target}\n" for pair in part))
    return shown


def _parted(pair: Example) -> Example:
    """A pair as words."""
    return Example(apart(pair.source), apart(pair.target))
