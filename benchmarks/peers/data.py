"""Spelled digits in the format of every system: the same pairs in the same order."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.cases import NUM_DIGITS
from pellucid.data.examples import Example
from pellucid.data.synthetic import spelled_digits

TRAIN_PAIRS, DEV_PAIRS = 10_000, 2
SPACE = "▁"
"""Symbol for a space in files with symbols separated by spaces."""


class PairFiles(NamedTuple):
    """Paths of the same pairs in several formats."""

    tsv: Path
    """File with source, tab and target."""
    plain: Path
    """Prefix of plain texts: sources in PLAIN.src, targets in PLAIN.trg."""
    symbols: Path
    """Prefix of symbols separated by spaces: sources in SYMBOLS.src, targets in SYMBOLS.trg."""


class BenchmarkData(NamedTuple):
    """Training and validation pairs, and the folder of the sources to decode."""

    train: PairFiles
    dev: PairFiles
    folder: Path


def split_symbols(text: str) -> str:
    """Return a text as symbols separated by spaces: "one two" becomes "o n e ▁ t w o".

    Args:
        text: The text.
    """
    return " ".join(text.replace(" ", SPACE))


def append_suffix(path: Path, suffix: str) -> Path:
    """Return the path with another suffix.

    Args:
        path: The path.
        suffix: Suffix without its dot.
    """
    return path.with_name(f"{path.name}.{suffix}")


def write_data(folder: Path) -> BenchmarkData:
    """Write the training and validation pairs unless the files exist.

    Args:
        folder: Folder of the files.

    Returns:
        The files of the pairs and their folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train = write_pairs(folder / "train", spelled_digits(TRAIN_PAIRS, NUM_DIGITS, NUM_DIGITS, seed=1))
    dev = write_pairs(folder / "dev", spelled_digits(DEV_PAIRS, NUM_DIGITS, NUM_DIGITS, seed=2))
    return BenchmarkData(train, dev, folder)


def write_sources(data: BenchmarkData, count: int) -> PairFiles:
    """Write the first sources of an endless list, without targets, unless the files exist.

    Args:
        data: Data of the benchmark.
        count: Number of sources.

    Returns:
        Paths of the files.
    """
    path = data.folder / f"sources-{count}"
    return write_pairs(path, spelled_digits(count, NUM_DIGITS, NUM_DIGITS, seed=3), targets=False)


def write_pairs(path: Path, examples: Sequence[Example], targets: bool = True) -> PairFiles:
    """Write pairs in every format unless the files exist.

    Args:
        path: Prefix of the files.
        examples: Source and target of each pair.
        targets: Write targets, too.

    Returns:
        Paths of the files.
    """
    files = PairFiles(append_suffix(path, "tsv"), path, append_suffix(path, "symbols"))
    if append_suffix(files.symbols, "src").exists():  # the last file to be written
        return files
    texts = [(example.source, example.target) for example in examples]
    write_lines(files.tsv, [f"{source}\t{target}" if targets else source for source, target in texts])
    if targets:
        write_lines(append_suffix(files.plain, "trg"), [target for _, target in texts])
        write_lines(append_suffix(files.symbols, "trg"), [split_symbols(target) for _, target in texts])
    write_lines(append_suffix(files.plain, "src"), [source for source, _ in texts])
    write_lines(append_suffix(files.symbols, "src"), [split_symbols(source) for source, _ in texts])
    return files


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a file atomically, so that an existing file is complete.

    Args:
        path: The file.
        lines: Lines without line ends.
    """
    # Two queues may write the same file at the same time: each writes its own temporary file and renames it.
    temporary = path.with_name(f".{path.name}.{id(lines):x}")
    temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    temporary.replace(path)
