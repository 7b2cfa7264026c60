"""Spelled digits in the format of every system: the same pairs in the same order."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.cases import DIGITS
from pellucid.data.examples import Example
from pellucid.data.synthetic import spelled_digits

TRAINING, DEVELOPMENT = 10_000, 2
SPACE = "▁"
"""Stands for a space where symbols are separated by spaces."""


class Pairs(NamedTuple):
    """The files of the same pairs."""

    tsv: Path
    """Source, tab, target."""
    plain: Path
    """Sources as they are, in PLAIN.src; targets in PLAIN.trg."""
    cut: Path
    """Sources as symbols separated by spaces, in CUT.src; targets in CUT.trg."""


class Data(NamedTuple):
    """Everything the systems train with, and the folder of what they decode."""

    train: Pairs
    dev: Pairs
    folder: Path


def cut(text: str) -> str:
    """A text as symbols separated by spaces: "one two" is "o n e ▁ t w o"."""
    return " ".join(text.replace(" ", SPACE))


def beside(path: Path, ending: str) -> Path:
    """The path with one more ending."""
    return path.with_name(f"{path.name}.{ending}")


def write_data(folder: Path) -> Data:
    """Write the training and the development pairs, once."""
    folder.mkdir(parents=True, exist_ok=True)
    train = write_pairs(folder / "train", spelled_digits(TRAINING, DIGITS, DIGITS, seed=1))
    dev = write_pairs(folder / "dev", spelled_digits(DEVELOPMENT, DIGITS, DIGITS, seed=2))
    return Data(train, dev, folder)


def sources(data: Data, count: int) -> Pairs:
    """The first `count` of an endless list of sources, as files (that of targets is left out)."""
    path = data.folder / f"sources-{count}"
    return write_pairs(path, spelled_digits(count, DIGITS, DIGITS, seed=3), targets=False)


def write_pairs(path: Path, examples: Sequence[Example], targets: bool = True) -> Pairs:
    """Write pairs in every format, unless the last of the files is there already."""
    pairs = Pairs(beside(path, "tsv"), path, beside(path, "cut"))
    if beside(pairs.cut, "src").exists():
        return pairs
    told = [(example.source, example.target) for example in examples]
    _write(pairs.tsv, [f"{source}\t{target}" if targets else source for source, target in told])
    if targets:
        _write(beside(pairs.plain, "trg"), [target for _, target in told])
        _write(beside(pairs.cut, "trg"), [cut(target) for _, target in told])
    _write(beside(pairs.plain, "src"), [source for source, _ in told])
    _write(beside(pairs.cut, "src"), [cut(source) for source, _ in told])
    return pairs


def _write(path: Path, lines: Sequence[str]) -> None:
    """Write lines whole: a file that is there is complete."""
    # Two lanes may write the same file at the same time: each its own, then one rename.
    part = path.with_name(f".{path.name}.{id(lines):x}")
    part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    part.replace(path)
