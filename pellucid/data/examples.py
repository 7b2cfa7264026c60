"""Examples: pairs read from the user's files, exactly as they are there, and what is wrong in which line.

Every line of a file ends up in one of three places: an example, a bad line with its reason, or the count of blank
lines. Nothing is stripped, normalised, truncated or skipped in silence.
"""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from pellucid.config import DataConfig, Format
from pellucid.data.columns import BadLine, Columns, Record, Records, without_last
from pellucid.data.faults import length_fault, pair_fault
from pellucid.data.formats import csv_records, json_records, parquet_records, table_width, text_records, tsv_records
from pellucid.data.lines import checked_lines, file_lines
from pellucid.data.symbols import segmenters
from pellucid.errors import ConfigError, DataError

__all__ = [
    "BadLine",
    "Example",
    "Reading",
    "ignored_columns",
    "parse_pairs",
    "parse_sources",
    "read_examples",
    "read_grouped",
    "read_pairs",
    "read_sources",
    "resolve_format",
]

SUFFIXES: dict[str, Format] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
PAIR = ("source", "target", "features")
SKIP = 'data.on_bad_line = "skip" (--on-bad-line skip) leaves such lines out and counts them'


class Example(NamedTuple):
    """One pair, each text exactly as the file has it."""

    source: str
    target: str
    features: str = ""


class Reading(NamedTuple):
    """All that a file held: examples and the line of each, bad lines, and how many lines were blank."""

    examples: list[Example]
    lines: list[int]
    bad: list[BadLine]
    blank: int


def resolve_format(path: Path, config: DataConfig) -> Format:
    """The format of a file of pairs: the configured one, or for "auto" what its name says (other names are TSV)."""
    return _named_format(path, "tsv") if config.format == "auto" else config.format


def read_examples(path: Path, config: DataConfig, target_path: Path | None = None) -> Reading:
    """Every pair of a file, or of two parallel text files when `target_path` is given.

    Errors: `DataError` for a file that cannot be read or holds no example, for parallel files of different lengths,
    and for the first bad line unless `config.on_bad_line` is "skip"; `ConfigError` for columns that cannot be.
    """
    columns = _columns(config, PAIR)
    if target_path is not None:
        records, name = _parallel_records(path, target_path, columns), f"the pair {path} and {target_path}"
    else:
        records, name = _pair_records(path, config, columns), str(path)
    return _read(records, config, str(path), name)


def ignored_columns(path: Path, config: DataConfig) -> str:
    """Which columns of a TSV or CSV file are read and of how many, in words; "" where all are, or have names."""
    format = resolve_format(path, config)
    wanted = _columns(config, PAIR).wanted
    if format not in ("tsv", "csv") or config.header or not all(column.isdecimal() for column in wanted.values()):
        return ""
    width = table_width(file_lines(path), format, str(path))
    told = ", ".join(f"{column} as {role}" for role, column in wanted.items())
    return f"the file has {width} columns, read are {told}" if width > len(set(wanted.values())) else ""


def read_grouped(path: Path, config: DataConfig, group: str) -> tuple[Reading, list[str]]:
    """Every pair of a file, and what stands in its column `group` (a name, or a number from 1) beside each.

    Errors as of `read_examples`, for the column as "data.group_column".
    """
    columns = _columns(config, (*PAIR, "group"), group)
    groups: dict[int, str] = {}
    records = without_last(_pair_records(path, config, columns), groups)
    reading = _read(records, config, str(path), str(path))
    return reading, [groups[line] for line in reading.lines]


def read_sources(path: Path, config: DataConfig, format: Format = "auto") -> Iterator[Example | BadLine]:
    """The sources of a file to predict for, their targets empty: one item for each record, in order.

    The name decides the format where `format` does not and it can, else `config.format`. A blank line is an empty
    source; a line of TSV or CSV with one column is the source itself. Errors, at the first item: `DataError` for a
    file that cannot be read, and for a header (the first line, where `config.header` is set and it has several
    columns) without the columns.
    """
    if format == "auto":
        format = _named_format(path, "tsv" if config.format == "auto" else config.format)
    yield from _sources(_file_records(path, format, _source_columns(config)), config, str(path))


def parse_sources(lines: Iterable[bytes], name: str, config: DataConfig) -> Iterator[Example | BadLine]:
    """`read_sources` for lines from elsewhere, say standard input, in the configured format ("auto" counts as TSV).

    Lines are taken one at a time, each only when the one before was answered. Only CSV may have a header here. `name`
    stands for the path in bad lines. Errors: `DataError` for Parquet, which is no text.
    """
    yield from _sources(_parsed(lines, name, config, _source_columns(config)), config, name)


def read_pairs(path: Path, config: DataConfig, format: Format = "auto") -> Iterator[Example | BadLine]:
    """The pairs of a file to score: one item for each record, in order, as `read_sources` for sources.

    Lines are good and bad as in a training file, but for a blank one, which is a pair without texts.
    """
    if format == "auto":
        format = _named_format(path, "tsv" if config.format == "auto" else config.format)
    yield from _pairs(_file_records(path, format, _columns(config, PAIR)), config, str(path))


def parse_pairs(lines: Iterable[bytes], name: str, config: DataConfig) -> Iterator[Example | BadLine]:
    """`read_pairs` for lines from elsewhere, as `parse_sources` for sources."""
    yield from _pairs(_parsed(lines, name, config, _columns(config, PAIR)), config, name)


def _parsed(lines: Iterable[bytes], name: str, config: DataConfig, columns: Columns) -> Records:
    """The records of lines in the configured format."""
    lines = checked_lines(lines, name)
    match config.format:
        case "parquet":
            raise DataError(f"{name} cannot be read as Parquet: give a file, or another --input-format")
        case "csv":
            return csv_records(lines, columns, name)
        case "jsonl":
            return json_records(lines, columns, name)
        case "text":
            return text_records(lines, columns, name)
        case "tsv" | "auto":
            return tsv_records(lines, columns._replace(header=False), name)


def has_known_name(path: Path) -> bool:
    """Whether the name of a file says its format."""
    return _named_format(path, "auto") != "auto"


def _named_format(path: Path, otherwise: Format) -> Format:
    """The format that the name of a file says, if it says one."""
    name = path.name.lower().removesuffix(".gz")
    return next((format for suffix, format in SUFFIXES.items() if name.endswith(suffix)), otherwise)


def _columns(config: DataConfig, roles: tuple[str, ...], group: str = "") -> Columns:
    """The configured columns of these roles, and one of groups."""
    configured = {"source": config.source_column, "target": config.target_column, "features": config.features_column}
    configured["group"] = group
    for role, column in configured.items():
        if (not column and role in ("source", "target")) or (column.isdecimal() and int(column) == 0):
            raise ConfigError(f"data.{role}_column: expected a name or a number from 1, got {column!r}")
    return Columns({role: configured[role] for role in roles if configured[role]}, config.header)


def _source_columns(config: DataConfig) -> Columns:
    """The columns that prediction reads."""
    return _columns(config, ("source", "features"))._replace(alone=True)


def _pair_records(path: Path, config: DataConfig, columns: Columns) -> Records:
    """The records of a file of pairs."""
    format = resolve_format(path, config)
    if format == "text":
        raise ConfigError(f'data.format = "text" reads two parallel files: give the file of targets beside {path}')
    return _file_records(path, format, columns)


def _file_records(path: Path, format: Format, columns: Columns) -> Records:
    """The records of a file in a known format."""
    name = str(path)
    match format:
        case "csv":
            return csv_records(file_lines(path), columns, name)
        case "jsonl":
            return json_records(file_lines(path), columns, name)
        case "parquet":
            return parquet_records(path, columns)
        case "text":
            return text_records(file_lines(path), columns, name)
        case "tsv" | "auto":
            return tsv_records(file_lines(path), columns, name)


def _parallel_records(source_path: Path, target_path: Path, columns: Columns) -> Records:
    """Line i of one file with line i of the other; `DataError` where one ends before the other."""
    without_target = {role: column for role, column in columns.wanted.items() if role != "target"}
    sources = text_records(file_lines(source_path), Columns(without_target), str(source_path))
    targets = text_records(file_lines(target_path), Columns({"source": "1"}), str(target_path))
    for number, (source, target) in enumerate(zip_longest(sources, targets), 1):
        if source is None or target is None:
            count = number + sum(1 for _ in (sources if target is None else targets))
            counts = (count, number - 1) if target is None else (number - 1, count)
            raise DataError(
                f"{source_path} has {counts[0]} lines, but {target_path} has {counts[1]}: they must pair up"
            )
        if isinstance(source, BadLine) or isinstance(target, BadLine):
            yield source if isinstance(source, BadLine) else target
        elif source.fields or target.fields:
            first, *features = source.fields or [""]
            yield Record(number, [first, *(target.fields or [""]), *features])
        else:
            yield source


def _read(records: Records, config: DataConfig, name: str, whole: str) -> Reading:
    """Sort records into examples, bad lines and blank ones; stop at the first bad one unless they are skipped.

    `DataError` where `whole`, all that is read, holds no example.
    """
    sides = segmenters(config)
    reading = Reading([], [], [], 0)
    blank = 0
    for record in records:
        if isinstance(record, BadLine):
            bad = record
        elif not record.fields:
            blank += 1
            continue
        else:
            example = Example(*record.fields)
            reason = pair_fault(example.source, example.target, sides, config)
            if not reason:
                reading.examples.append(example)
                reading.lines.append(record.line)
                continue
            bad = BadLine(name, record.line, reason)
        if config.on_bad_line == "stop":
            raise DataError(f"{bad}\n{SKIP}")
        reading.bad.append(bad)
    reading = reading._replace(blank=blank)
    if not reading.examples:
        raise DataError(_why_none(reading, whole, config.header))
    return reading


def _sources(records: Records, config: DataConfig, name: str) -> Iterator[Example | BadLine]:
    """One item for each record: its source and features, or why there are none."""
    segmenter = segmenters(config).source
    for record in records:
        if isinstance(record, BadLine):
            yield record
            continue
        source, features, *_ = *record.fields, "", ""
        reason = length_fault("source", source, segmenter, config.maximum_length, least=0)
        yield BadLine(name, record.line, reason) if reason else Example(source, "", features)


def _pairs(records: Records, config: DataConfig, name: str) -> Iterator[Example | BadLine]:
    """One item for each record: its pair, or why there is none."""
    sides = segmenters(config)
    for record in records:
        if isinstance(record, BadLine) or not record.fields:
            yield record if isinstance(record, BadLine) else Example("", "")
            continue
        example = Example(*record.fields)
        reason = pair_fault(example.source, example.target, sides, config)
        yield BadLine(name, record.line, reason) if reason else example


def _why_none(reading: Reading, name: str, header: bool) -> str:
    """Why a file gave no example."""
    if reading.bad:
        blank = f", {reading.blank} blank" if reading.blank else ""
        return f"{name} holds no example: {len(reading.bad)} bad lines{blank}; the first: {reading.bad[0]}"
    if reading.blank:
        return f"{name} holds no example: all its lines are blank ({reading.blank})"
    return f"{name} holds no example: it is empty" + (" below the header" if header else "")
