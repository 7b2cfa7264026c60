"""Examples: pairs read from the user's files, exactly as they are there, and what is wrong in which line.

Every line of a file ends up in one of three places: an example, a bad line with its reason, or the count of blank
lines. Nothing is stripped, normalized, truncated or skipped in silence.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pellucid.config.settings import DataConfig, Format, Header
from pellucid.data.headers import check_header_cells
from pellucid.data.lines import read_lines
from pellucid.data.readers import (
    TABLE_FORMATS,
    BadLine,
    ColumnSelection,
    Records,
    check_column,
    column_number,
    count_table_columns,
    parse_records,
    read_parallel_records,
    read_records,
    resolve_format,
    resolve_header,
    resolve_input_format,
    split_last_field,
)
from pellucid.data.tokenizers import Tokenizer, Tokenizers, build_tokenizers
from pellucid.errors import ConfigError, DataError, parse_whole_number, quote


def pair_error(source: str, target: str, sides: Tokenizers, config: DataConfig) -> str:
    """Why a pair is none; "" for one that is."""
    max_length = config.max_length
    reason = length_error("source", source, sides.source, max_length)
    reason = reason or length_error("target", target, sides.target, max_length)
    if reason:
        return reason
    if sides.target.kind == "position":
        return _position_error(target, sides.source.count(source))
    return _alignment_error(source, target, sides) if config.aligned else ""


def length_error(side: str, text: str, tokenizer: Tokenizer, max_length: int, min_length: int = 1) -> str:
    """Why a text has too few or too many symbols; "" for one that has not."""
    # No Unicode form is longer than four times the text, and no cut gives more parts than characters plus one.
    if 4 * len(text) < max_length and text.strip():
        return ""
    count = tokenizer.count(text)
    if count < min_length:
        return f"the {side} is empty"
    if count > max_length:
        lines = text.count("\n") + 1
        joined = f" (it spans {lines} lines: is a quote missing?)" if lines > 1 else ""
        return f"the {side} has {count} symbols{joined}, more than data.max_length = {max_length}"
    return ""


def _position_error(target: str, positions: int) -> str:
    """Why a target is no position of a source with so many symbols."""
    number = parse_whole_number(target)
    if number is not None and number <= positions and str(number) == target and number:
        return ""
    return f"the target is no position of the source: expected a number from 1 to {positions}, got {quote(target)}"


def _alignment_error(source: str, target: str, sides: Tokenizers) -> str:
    """Why target symbols do not stand beside source symbols, or none of them is scored."""
    read, written = len(sides.source.split(source)), sides.target.split(target)
    if read != len(written):
        return f"the source has {read} symbols, but the target has {len(written)}: they must pair up (data.aligned)"
    unscored = sides.target.ignored_tag
    if unscored and all(symbol == unscored for symbol in written):
        return f"no symbol of the target is scored: all are {quote(unscored)} (data.ignored_tag)"
    return ""


__all__ = [
    "BadLine",
    "Example",
    "ExampleFile",
    "column_note",
    "count_columns",
    "describe_used_columns",
    "has_header",
    "is_header_unknown",
    "parse_pairs",
    "parse_sources",
    "read_examples",
    "read_grouped_examples",
    "read_pairs",
    "read_sources",
    "resolve_format",
]

COLUMN_SETTINGS = ("source_column", "target_column", "features_column")
PAIR_ROLES = ("source", "target", "features")
SKIP_HINT = 'data.on_bad_line = "skip" (--on-bad-line skip) leaves such lines out and counts them'


class Example(NamedTuple):
    """One pair, each text exactly as the file has it."""

    source: str
    target: str
    features: str = ""


class ExampleFile(NamedTuple):
    """All that a file held: examples and the line of each, bad lines, and how many lines were blank."""

    examples: list[Example]
    lines: list[int]
    bad: list[BadLine]
    blank: int


def read_examples(path: Path, config: DataConfig, target_path: Path | None = None) -> ExampleFile:
    """Every pair of a file, or of two parallel text files when `target_path` is given.

    Errors: `DataError` for a file that cannot be read or holds no example, for parallel files of different lengths,
    and for the first bad line unless `config.on_bad_line` is "skip"; `ConfigError` for columns that cannot be.
    """
    columns = _selected_columns(config, PAIR_ROLES)
    if target_path is not None:
        whole = f"the pair {path} and {target_path}"
        return _collect_examples(read_parallel_records(path, target_path, columns), config, str(path), whole)
    return _read_pairs(path, config, columns)


def is_header_unknown(path: Path, config: DataConfig, target_path: Path | None = None) -> bool:
    """Return whether a file may have a header, and nobody has said whether it does."""
    format = "text" if target_path is not None else resolve_format(path, config)
    return format in TABLE_FORMATS and _selected_columns(config, PAIR_ROLES).header == "auto"


def has_header(config: DataConfig) -> bool:
    """Return whether a file that is not refused is read with a header."""
    return _selected_columns(config, PAIR_ROLES).header is True


def count_columns(path: Path, config: DataConfig) -> int:
    """Return how many columns the first line of a TSV or CSV file has; 0 for other formats, and for a pipe."""
    format = resolve_format(path, config)
    return count_table_columns(read_lines(path), format, str(path)) if format in TABLE_FORMATS and path.is_file() else 0


def describe_used_columns(path: Path, config: DataConfig) -> str:
    """Which columns of a TSV or CSV file are read and of how many, in words; "" where all are, or have names."""
    wanted = _selected_columns(config, PAIR_ROLES).selected
    if config.header is True or None in map(column_number, wanted.values()):
        return ""
    width = count_columns(path, config)
    told = ", ".join(f"{column} as {role}" for role, column in wanted.items())
    return f"the file has {width} columns, read are {told}" if width > len(set(wanted.values())) else ""


def column_note(path: Path, config: DataConfig, target_path: Path | None = None) -> str:
    """Return `describe_used_columns` of a file of pairs where no setting chooses the columns; "" for parallel files."""
    chosen = any(getattr(config, name) != getattr(DataConfig(), name) for name in COLUMN_SETTINGS)
    return "" if chosen or target_path is not None else describe_used_columns(path, config)


def read_grouped_examples(path: Path, config: DataConfig, group: str) -> tuple[ExampleFile, list[str]]:
    """Every pair of a file, and what stands in its column `group` (a name, or a number from 1) beside each.

    Errors as of `read_examples`, for the column as "data.group_column".
    """
    columns = _selected_columns(config, (*PAIR_ROLES, "group"), group)
    groups: dict[int, str] = {}
    reading = _read_pairs(path, config, columns, groups)
    return reading, [groups[line] for line in reading.lines]


class InputFormat(NamedTuple):
    """What is known of a file, or of standard input, beside the settings of the run that reads it."""

    format: Format = "auto"
    """Its format; "auto" goes by its name, then by the training file's."""
    header: Header = "auto"
    """Whether its first line names the columns; "auto": as in the training file."""
    columns: int = 0
    """How many columns the training file has, of which no line of the input has more; 0 sets no limit."""


FILE_FORMAT, STREAM_FORMAT = InputFormat(), InputFormat(header=False)
"""What is known where nobody says more, of a file and of lines from elsewhere."""


def read_sources(path: Path, config: DataConfig, known: InputFormat = FILE_FORMAT) -> Iterator[Example | BadLine]:
    """The sources of a file to predict for, their targets empty: one item for each record, in order.

    The name decides the format where `known` does not and it can, else `config.format`. A blank line is an empty
    source; a line of TSV or CSV with one column is the source itself. Errors, at the first item: `DataError` for a
    file that cannot be read, and for a header (the first line, where there is one and it has several columns) without
    the columns.
    """
    yield from _checked_sources(_file_records(path, config, known, _source_columns(config)), config, str(path))


def parse_sources(
    lines: Iterable[bytes], name: str, config: DataConfig, known: InputFormat = STREAM_FORMAT
) -> Iterator[Example | BadLine]:
    """`read_sources` for lines from elsewhere, say standard input, in the configured format ("auto" counts as TSV).

    Lines are taken one at a time, each only when the one before was answered. What the configuration says of a header
    holds for CSV; `known` says it of lines of TSV, of which a person may type the first. `name` stands for the path in
    bad lines. Errors: `DataError` for Parquet, which is no text.
    """
    yield from _checked_sources(_parse_lines(lines, name, config, known, _source_columns(config)), config, name)


def read_pairs(path: Path, config: DataConfig, known: InputFormat = FILE_FORMAT) -> Iterator[Example | BadLine]:
    """The pairs of a file to score: one item for each record, in order, as `read_sources` for sources.

    Lines are good and bad as in a training file, but for a blank one, which is a pair without texts.
    """
    yield from _checked_pairs(
        _file_records(path, config, known, _selected_columns(config, PAIR_ROLES)), config, str(path)
    )


def parse_pairs(
    lines: Iterable[bytes], name: str, config: DataConfig, known: InputFormat = STREAM_FORMAT
) -> Iterator[Example | BadLine]:
    """`read_pairs` for lines from elsewhere, as `parse_sources` for sources."""
    yield from _checked_pairs(
        _parse_lines(lines, name, config, known, _selected_columns(config, PAIR_ROLES)), config, name
    )


def _file_records(path: Path, config: DataConfig, known: InputFormat, columns: ColumnSelection) -> Records:
    """The records of a file."""
    format = resolve_input_format(path, config) if known.format == "auto" else known.format
    return read_records(path, format, columns._replace(max_columns=known.columns))


def _parse_lines(
    lines: Iterable[bytes], name: str, config: DataConfig, known: InputFormat, columns: ColumnSelection
) -> Records:
    """The records of lines."""
    format = config.format if known.format == "auto" else known.format
    header = columns.header if format == "csv" else known.header
    return parse_records(lines, name, format, columns._replace(header=header, max_columns=known.columns))


def _selected_columns(config: DataConfig, roles: tuple[str, ...], group: str = "") -> ColumnSelection:
    """The configured columns of these roles, and one of groups."""
    configured = {"source": config.source_column, "target": config.target_column, "features": config.features_column}
    configured["group"] = group
    for role, column in configured.items():
        if not column and role in ("source", "target"):
            raise ConfigError(f"data.{role}_column: expected a name or a number from 1, got ''")
        check_column(role, column)
    return resolve_header(
        ColumnSelection({role: configured[role] for role in roles if configured[role]}, config.header)
    )


def _source_columns(config: DataConfig) -> ColumnSelection:
    """The columns that prediction reads."""
    return _selected_columns(config, ("source", "features"))._replace(single_column=True)


def _read_pairs(
    path: Path, config: DataConfig, columns: ColumnSelection, last: dict[int, str] | None = None
) -> ExampleFile:
    """All pairs of a file; the last column of each is kept in `last`, by the line, where that is given."""
    format = resolve_format(path, config)
    if format == "text":
        raise ConfigError(f'data.format = "text" reads two parallel files: give the file of targets beside {path}')
    records = read_records(path, format, columns)
    records = records if last is None else split_last_field(records, last)
    below = " below the header" if format in TABLE_FORMATS and columns.header is True else ""
    reading = _collect_examples(records, config, str(path), str(path), below)
    if format in TABLE_FORMATS and columns.header == "auto":
        check_header_cells(reading.examples, f"{path}:{reading.lines[0]}")
    return reading


def _collect_examples(records: Records, config: DataConfig, name: str, whole: str, below: str = "") -> ExampleFile:
    """Sort records into examples, bad lines and blank ones; stop at the first bad one unless they are skipped.

    `DataError` where `whole`, all that is read, holds no example; `below` says where that is.
    """
    sides = build_tokenizers(config)
    reading = ExampleFile([], [], [], 0)
    blank = 0
    for record in records:
        if isinstance(record, BadLine):
            bad = record
        elif not record.fields:
            blank += 1
            continue
        else:
            example = Example(*record.fields)
            reason = pair_error(example.source, example.target, sides, config)
            if not reason:
                reading.examples.append(example)
                reading.lines.append(record.line)
                continue
            bad = BadLine(name, record.line, reason)
        if config.on_bad_line == "stop":
            raise DataError(str(bad), SKIP_HINT)
        reading.bad.append(bad)
    reading = reading._replace(blank=blank)
    if not reading.examples:
        raise DataError(_no_example_message(reading, whole, below))
    return reading


def _checked_sources(records: Records, config: DataConfig, name: str) -> Iterator[Example | BadLine]:
    """One item for each record: its source and features, or why there are none."""
    tokenizer = build_tokenizers(config).source
    for record in records:
        if isinstance(record, BadLine):
            yield record
            continue
        source, features, *_ = *record.fields, "", ""
        reason = length_error("source", source, tokenizer, config.max_length, min_length=0)
        yield BadLine(name, record.line, reason) if reason else Example(source, "", features)


def _checked_pairs(records: Records, config: DataConfig, name: str) -> Iterator[Example | BadLine]:
    """One item for each record: its pair, or why there is none."""
    sides = build_tokenizers(config)
    for record in records:
        if isinstance(record, BadLine) or not record.fields:
            yield record if isinstance(record, BadLine) else Example("", "")
            continue
        example = Example(*record.fields)
        reason = pair_error(example.source, example.target, sides, config)
        yield BadLine(name, record.line, reason) if reason else example


def _no_example_message(reading: ExampleFile, name: str, below: str) -> str:
    """Why a file gave no example."""
    if reading.bad:
        blank = f", {reading.blank} blank" if reading.blank else ""
        return f"{name} holds no example: {len(reading.bad)} bad lines{blank}; the first: {reading.bad[0]}"
    if reading.blank:
        return f"{name} holds no example: all its lines are blank ({reading.blank})"
    return f"{name} holds no example: it is empty{below}"
