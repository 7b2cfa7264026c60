"""The file that a page shows: pairs, or sources alone."""

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from pellucid.config import DataConfig
from pellucid.data.examples import (
    BadLine,
    Example,
    ignored_columns,
    is_undecided,
    read_examples,
    read_pairs,
    read_sources,
)
from pellucid.data.headers import header_note
from pellucid.errors import DataError
from pellucid.viewer.items import Known
from pellucid.viewer.truth import spelled

MEND = "look shows files whose lines are all good: mend such lines or leave them out"


class Sources(NamedTuple):
    """Examples and what is known of each; whether they have targets."""

    name: str
    examples: list[Example]
    known: list[Known]
    paired: bool
    spelled: bool = False
    """Whether every source is its target's digits in words, so that where each symbol comes from is known."""
    left_out: str = ""
    """What the file holds beside, in words: columns that are not read, bad lines that are skipped, blank ones."""


def read_file(path: Path, data: DataConfig, target: Path | None = None) -> Sources:
    """Pairs where the first line is one, or where a file of targets stands beside it; else sources.

    `DataError` names what cannot be read, and its line.
    """
    for each in (path, target):
        if each is not None and each.is_fifo():
            raise DataError(f"{each} is a pipe, and look reads a file more than once: write it to a file first")
    if target is None and _alone(path, data):
        return sources_alone(path.name, read_sources(path, data), data)
    reading = read_examples(path, msgspec.structs.replace(data, on_bad_line="skip"), target)
    if reading.bad and data.on_bad_line == "stop":
        raise DataError(str(reading.bad[0]), MEND)
    pairs = zip(reading.examples, reading.lines, strict=True)
    truth = spelled(reading.examples)
    known = [Known((each.target,), line, truth) for each, line in pairs]
    columns = ignored_columns(path, data) if target is None else ""
    header = header_note(reading.examples) if is_undecided(path, data, target) else ""
    left_out = "; ".join(each for each in (header, columns, skipped(reading.bad), blank(reading.blank)) if each)
    return Sources(path.name, reading.examples, known, paired=True, spelled=truth, left_out=left_out)


def sources_alone(name: str, lines: Iterable[Example | BadLine], data: DataConfig) -> Sources:
    """Sources without targets, blank ones left out.

    `DataError` where there is none, and for a bad line unless such are skipped.
    """
    listed, known, bad, empty = list[Example](), list[Known](), list[BadLine](), 0
    for number, each in enumerate(lines, start=1):
        if isinstance(each, BadLine):
            if data.on_bad_line == "stop":
                raise DataError(str(each))
            bad.append(each)
        elif each.source:
            listed.append(each)
            known.append(Known(line=number))
        else:
            empty += 1
    if not listed:
        raise DataError(f"{name} holds no source" + (f": {skipped(bad)}" if bad else ""))
    left_out = "; ".join(each for each in (skipped(bad), blank(empty)) if each)
    return Sources(name, listed, known, paired=False, left_out=left_out)


def skipped(bad: Sequence[BadLine]) -> str:
    """How many bad lines were left out, and the first of them; "" where none was."""
    lines = "bad line" if len(bad) == 1 else "bad lines"
    return f"{len(bad):,} {lines} skipped, the first: line {bad[0].line}: {bad[0].reason}" if bad else ""


def blank(lines: int) -> str:
    """How many blank lines were left out; "" where none was."""
    return f"{lines:,} blank {'line' if lines == 1 else 'lines'} left out" if lines else ""


def _alone(path: Path, data: DataConfig) -> bool:
    """Whether the first line is a source and no pair."""
    if data.format == "text":
        return True
    first = next(iter(read_pairs(path, data)), None)
    if not isinstance(first, BadLine):
        return False
    return all(isinstance(each, Example) for each in islice(read_sources(path, data), 1))
