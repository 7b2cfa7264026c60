"""Split of a file of pairs into training, validation and test files in its own format, with the bytes of its records.

All rows of a source are in one part, and all rows of a group if groups are given. Rows without a target are apart.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from pellucid.config.settings import DataConfig, Format, Header
from pellucid.data.examples import empty_text_error, training_columns
from pellucid.data.headers import check_header_cells, header_note
from pellucid.data.lines import BYTE_ORDER_MARK, check_lines, protect_mark, read_raw_lines
from pellucid.data.readers import (
    TABLE_FORMATS,
    BadLine,
    Records,
    divide_name,
    divide_parquet_rows,
    line_records,
    parquet_records,
    resolve_format,
)
from pellucid.data.tokenizers import build_tokenizers, find_spaced_symbols
from pellucid.data.validation_split import choose_groups
from pellucid.errors import BadLineError, ConfigError, DataError, count_noun
from pellucid.files import file_exists, has_content, make_folder, write_together
from pellucid.folder_lock import lock_during

SplitPart = Literal["train", "valid", "test", "unlabeled"]
SIDES: tuple[Literal["source", "target"], ...] = ("source", "target")
SPLIT_PARTS: tuple[SplitPart, ...] = ("train", "valid", "test", "unlabeled")
"""Parts of a split; "unlabeled" are the rows without a target."""
SPLIT_LOCK = ".split.lock"
"""Name of the lock file of a folder while the files of a split are written."""


class SplitSizes(NamedTuple):
    """Sizes of the held-out parts, each a share of the pairs (below 1) or a number of rows (from 1)."""

    test: float
    valid: float | None = None
    """Size of the validation set; None for no such part."""


class FileSplit(NamedTuple):
    """A file in parts."""

    contents: dict[SplitPart, bytes]
    """Content of the file of each part that has rows."""
    num_rows: dict[SplitPart, int]
    """Number of rows of each of these parts."""
    bad_lines: list[BadLine]
    """Bad lines, which are in no part."""
    num_blank_lines: int
    """Number of blank lines, which are in no part."""
    suffix: str
    """Suffix of the files: that of the file, without .gz."""
    notes: tuple[str, ...] = ()
    """Notes about a first line that may be a header, and about parts of another size than requested."""
    spaced_sides: tuple[Literal["source", "target"], ...] = ()
    """Sides whose texts are short symbols between spaces, such as phones."""


class _Row(NamedTuple):
    """Record of the file. A bad or blank line is in no part."""

    line: int
    """Number of its first line, or of the row of a Parquet file, from 1."""
    kind: Literal["pair", "unlabeled", "bad", "blank"]
    source: str = ""
    target: str = ""
    group: str = ""


class _Content(NamedTuple):
    """Content of the file."""

    format: Format
    header: Header
    """Whether the first line names the columns; "auto" if this is not configured."""
    lines: list[bytes]
    """Lines without a byte order mark; none of Parquet."""
    has_bom: bool
    """Whether the file begins with a byte order mark."""
    rows: list[_Row]
    bad_lines: list[BadLine]


def split_file(path: Path, config: DataConfig, sizes: SplitSizes, seed: int) -> FileSplit:
    """Divide a file of pairs at random into parts, each in the order of the file.

    The rows of a source are in one part. So are those of a group, and thus those of groups that share a source.

    Args:
        path: The file. It is read into memory.
        config: The data settings: format, columns, group column, and treatment of bad lines. Sources are equal if they
            are after normalization. A target of white space only is empty; a source is if it has no symbols.
        sizes: Sizes of the held-out parts.
        seed: Random seed. The test set does not depend on the size of the validation set.

    Raises:
        DataError: The file cannot be read, contains no pair, or has too few sources or groups for these sizes.
        BadLineError: A line is bad, and `config.on_bad_line` is "stop".
        HeaderError: `config.header` is "auto", and the first line looks like a header.
        ConfigError: A configured column is invalid, or the format is text, whose files have no targets.
    """
    content = _read_content(path, config)
    pairs = [row for row in content.rows if row.kind == "pair"]
    if not pairs:
        reason = f": {content.bad_lines[0]}" if content.bad_lines else ""
        raise DataError(f"{path} has no row with a source and a target{reason}")
    notes = _check_first_line(pairs, content, path)
    units = connected_components([(row.source, row.group) for row in pairs])
    wanted = _wanted_rows(sizes, len(pairs))
    held_out = _choose_parts(Counter(units), wanted, random.Random(seed), path)
    pair_parts = iter([held_out.get(unit, "train") for unit in units])
    parts = [next(pair_parts) if row.kind == "pair" else _part_without_pair(row) for row in content.rows]
    counts = Counter(parts)
    divided = divide_parquet_rows(path, parts) if content.format == "parquet" else _divide_lines(content, parts)
    names = [part for part in SPLIT_PARTS if counts[part]]
    return FileSplit(
        {part: divided[part] for part in names},
        {part: counts[part] for part in names},
        content.bad_lines,
        sum(row.kind == "blank" for row in content.rows),
        divide_name(path)[1],
        (*notes, *_size_notes(wanted, counts)),
        tuple(side for side in SIDES if find_spaced_symbols([getattr(row, side) for row in pairs])),
    )


def _read_content(path: Path, config: DataConfig) -> _Content:
    """Read a file and sort its records."""
    format = resolve_format(path, config)
    name = str(path)
    bad_lines = list[BadLine]()
    if format == "text":
        raise ConfigError(
            f"{name} has sources only, one per line: join it with the file of their targets into one of two columns "
            "(paste SOURCES TARGETS > pairs.tsv), and split that file"
        )
    if format == "parquet" and path.is_fifo():
        raise DataError(f"{name} is a pipe, and Parquet is read twice to be divided: write it to a file first")
    columns = training_columns(config)._replace(nullable=frozenset({"target", "class"}))
    lines, has_bom = ([], False) if format == "parquet" else _read_checked_lines(path)
    records = parquet_records(path, columns) if format == "parquet" else line_records(lines, format, columns, name)
    rows = list(_read_rows(records, config, name, bad_lines))
    return _Content(format, columns.header if format in TABLE_FORMATS else False, lines, has_bom, rows, bad_lines)


def _read_checked_lines(path: Path) -> tuple[list[bytes], bool]:
    """Return the lines of a file, and whether it begins with a byte order mark; `DataError` for an empty file."""
    lines = read_raw_lines(path)
    first = next(lines, b"")
    if not first:
        raise DataError(f"{path} is empty")
    return list(check_lines(chain([first], lines), str(path))), first.startswith(BYTE_ORDER_MARK)


def _read_rows(records: Records, config: DataConfig, name: str, bad_lines: list[BadLine]) -> Iterator[_Row]:
    """Yield the rows of records, and append the bad lines to a list; a bad line is an error unless they are skipped."""
    tokenizer = build_tokenizers(config).source
    for record in records:
        if isinstance(record, BadLine):
            bad = record
        elif not record.fields:
            yield _Row(record.line, "blank")
            continue
        else:
            source, target, *others = record.fields
            if source.strip() or tokenizer.count(source):  # white space may be symbols
                kind: Literal["pair", "unlabeled"] = "pair" if target.strip() else "unlabeled"
                group = others[-1] if config.group_column else ""
                yield _Row(record.line, kind, tokenizer.normalize(source), target, group)
                continue
            bad = BadLine(name, record.line, empty_text_error("source"))
        if config.on_bad_line == "stop":
            raise BadLineError(f"{bad}; --on-bad-line skip leaves such lines out and lists them")
        bad_lines.append(bad)
        yield _Row(bad.line, "bad")


def _check_first_line(pairs: Sequence[_Row], content: _Content, path: Path) -> list[str]:
    """Return a note if the first line of a table may be a header; `HeaderError` if it looks like one."""
    if content.header != "auto":
        return []
    cells = [(row.source, row.target) for row in pairs]
    location = f"{path}:{pairs[0].line}"
    check_header_cells(cells, location)
    note = header_note(cells)
    return [f"{location}: {note}"] if note else []


def connected_components(keys: Sequence[tuple[str, str]]) -> list[int]:
    """Return a number for each row, equal for rows that must not be separated.

    Rows with the same source, or with the same group, are connected, and so are rows that are connected with the same
    row.

    Args:
        keys: Source and group of each row; an empty group connects nothing.

    Returns:
        Index of the first row of the same component, for each row.
    """
    parents = list(range(len(keys)))
    first_rows = dict[tuple[int, str], int]()
    for row, key in enumerate(keys):
        for side, text in enumerate(key):
            if text:
                one, other = _find_root(parents, first_rows.setdefault((side, text), row)), _find_root(parents, row)
                parents[max(one, other)] = min(one, other)
    return [_find_root(parents, row) for row in range(len(keys))]


def _find_root(parents: list[int], row: int) -> int:
    """Return the first row of the component of a row, and shorten the path to it."""
    while parents[row] != row:
        parents[row] = parents[parents[row]]
        row = parents[row]
    return row


def _wanted_rows(sizes: SplitSizes, total: int) -> dict[SplitPart, int]:
    """Return the number of rows of each held-out part, in the order in which they are chosen."""
    wanted: dict[SplitPart, float] = {"test": sizes.test, **({} if sizes.valid is None else {"valid": sizes.valid})}
    return {part: max(1, round(size * total)) if size < 1 else int(size) for part, size in wanted.items()}


def _choose_parts(
    unit_sizes: Counter[int], wanted: Mapping[SplitPart, int], generator: random.Random, path: Path
) -> dict[int, SplitPart]:
    """Return the part of each held-out unit; `DataError` if no unit would be left for training."""
    remaining, leaves_rows = dict(unit_sizes), sum(wanted.values()) < unit_sizes.total()
    parts = dict[int, SplitPart]()
    for index, (part, num_rows) in enumerate(wanted.items()):
        # A unit is left for each later part, and for training, unless all rows are asked for.
        max_units = max(1, len(remaining) - (len(wanted) - index)) if leaves_rows else None
        chosen = choose_groups(remaining, num_rows, generator, max_units) if remaining else set[int]()
        parts |= dict.fromkeys(chosen, part)
        remaining = {unit: count for unit, count in remaining.items() if unit not in chosen}
    if not remaining:
        raise DataError(
            f"{path}: nothing would be left for training: it has {count_noun(unit_sizes.total(), 'row')} with a "
            f"target. All rows of a source, or of a group, stay together: {count_noun(len(unit_sizes), 'such unit')}, "
            f"the largest with {count_noun(max(unit_sizes.values()), 'row')}. Hold out fewer rows (--test-size, "
            "--valid-size), or leave out --group-column if it is given"
        )
    return parts


def _size_notes(wanted: Mapping[SplitPart, int], counts: Mapping[SplitPart | Literal[""], int]) -> list[str]:
    """Return a note for each held-out part that differs from its size by a tenth or more."""
    return [
        f"{part}: {counts[part]:,} rows, not {num_rows:,}, because the rows of a source, or of a group, stay together"
        for part, num_rows in wanted.items()
        if abs(counts[part] - num_rows) >= max(1, num_rows / 10)
    ]


def _part_without_pair(row: _Row) -> SplitPart | Literal[""]:
    """Return the part of a row that is not a pair; "" if there is none."""
    return "unlabeled" if row.kind == "unlabeled" else ""


def _divide_lines(content: _Content, parts: Sequence[str]) -> dict[str, bytes]:
    """Return the file of each part: byte order mark and header of the file, then the lines of its records.

    Args:
        content: Content of the file.
        parts: Name of the part of each record; "" if there is none.
    """
    starts = [row.line for row in content.rows]
    lines = content.lines
    beginning = BYTE_ORDER_MARK if content.has_bom else b""
    if content.header is True:  # the first record that is missing; before it are blank ones only, of one line each
        num_blank = next((index for index, start in enumerate(starts) if start != index + 1), len(starts))
        beginning += b"".join(lines[num_blank : starts[num_blank] - 1])
    contents = {part: [beginning] for part in parts if part}
    for start, stop, part in zip(starts, [*starts[1:], len(lines) + 1], parts, strict=True):
        if part:
            contents[part] += lines[start - 1 : stop - 1]
    return {part: protect_mark(b"".join(pieces), content.has_bom) for part, pieces in contents.items()}


def write_split(split: FileSplit, folder: Path) -> dict[SplitPart, Path]:
    """Write the files of a split. All of them are on disk before the first one gets its name.

    Args:
        split: The split.
        folder: Folder of the files train, valid, test and unlabeled, with the suffix of the file that was split.

    Returns:
        File of each part.

    Raises:
        FolderInUseError: Another split is writing to the folder.
        RunError: A file cannot be written, or the file system has no locks.
        DataError: A file of one of these names exists with another content.
    """
    paths = {part: folder / f"{part}{split.suffix}" for part in SPLIT_PARTS}
    _check_existing(split, paths)  # also here: a split that is refused writes nothing
    make_folder(folder)
    with lock_during(folder, SPLIT_LOCK, "another split"):
        _check_existing(split, paths)
        write_together({paths[part]: content for part, content in split.contents.items()})
    return {part: paths[part] for part in split.contents}


def _check_existing(split: FileSplit, paths: Mapping[SplitPart, Path]) -> None:
    """Raise `DataError` if a file of a split exists with another content."""
    for part, path in paths.items():
        if file_exists(path) and not (part in split.contents and has_content(path, split.contents[part])):
            raise DataError(
                f"{path} exists and would not be the same after this split: give another folder (--out), or remove the "
                "files of the earlier split"
            )
