"""Records of a file, of two parallel ones, or of lines from elsewhere: whose format is known, and read by its name."""

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from pellucid.config import DataConfig, Format
from pellucid.data.columns import BadLine, Columns, Record, Records
from pellucid.data.formats import csv_records, json_records, parquet_records, text_records, tsv_records
from pellucid.data.lines import checked_lines, file_lines
from pellucid.errors import DataError

TABLES = ("tsv", "csv")
"""Formats whose first line may be a header."""
SUFFIXES: dict[str, Format] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


def resolve_format(path: Path, config: DataConfig) -> Format:
    """The format of a file of pairs: the configured one, or for "auto" what its name says (other names are TSV)."""
    return _named_format(path, "tsv") if config.format == "auto" else config.format


def format_to_predict(path: Path, config: DataConfig) -> Format:
    """The format of a file that is not the training file: what its name says, else the configured one, else TSV."""
    return _named_format(path, "tsv" if config.format == "auto" else config.format)


def has_known_name(path: Path) -> bool:
    """Whether the name of a file says its format."""
    return _named_format(path, "auto") != "auto"


def file_records(path: Path, format: Format, columns: Columns) -> Records:
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


def parse_records(lines: Iterable[bytes], name: str, format: Format, columns: Columns) -> Records:
    """The records of lines in a known format."""
    lines = checked_lines(lines, name)
    match format:
        case "parquet":
            raise DataError(f"{name} cannot be read as Parquet: give a file, or another --input-format")
        case "csv":
            return csv_records(lines, columns, name)
        case "jsonl":
            return json_records(lines, columns, name)
        case "text":
            return text_records(lines, columns, name)
        case "tsv" | "auto":
            return tsv_records(lines, columns, name)


def parallel_records(source_path: Path, target_path: Path, columns: Columns) -> Records:
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


def _named_format(path: Path, otherwise: Format) -> Format:
    """The format that the name of a file says, if it says one."""
    name = path.name.lower().removesuffix(".gz")
    return next((format for suffix, format in SUFFIXES.items() if name.endswith(suffix)), otherwise)
