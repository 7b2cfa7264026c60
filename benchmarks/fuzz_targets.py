"""Targets for fuzzing: each gives the bytes of an input to a public reader, and checks the properties of its answer.

The first byte of an input selects a variant of the settings; the rest is the content of the file. All targets share
these properties: the only exceptions are errors of Pellucid, whose message names the file, is bounded, and contains no
control characters; warnings of NumPy count as faults. The property of each target is its docstring.
"""

import asyncio
import csv
import gzip
import io
import json
import logging
import math
import os
import re
import socket
import threading
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from benchmarks.fuzz_mutation import Structure
from pellucid.auditing.decisions import Decision, apply_decisions, read_audited_table, read_decisions
from pellucid.config.settings import Config, DataConfig
from pellucid.config.toml import build_config, load_config, load_saved_config, to_toml
from pellucid.data.corpus import CorpusError, map_corpus
from pellucid.data.delimiters import DELIMITERS
from pellucid.data.encoding import count_ids
from pellucid.data.examples import (
    FILE_FORMAT,
    Example,
    ExampleFile,
    InputFormat,
    file_delimiter,
    has_header,
    parse_sources,
    read_examples,
    read_lexicon_examples,
    read_sources,
)
from pellucid.data.file_split import SplitSizes, split_file
from pellucid.data.headers import is_column_name
from pellucid.data.lines import BYTE_ORDER_MARK, LineStream, is_blank
from pellucid.data.readers import BadLine
from pellucid.data.tokenizers import SubwordModels, build_tokenizers
from pellucid.data.vectors import read_vectors
from pellucid.data.vocabulary import NUM_SPECIAL, UNK, Vocabulary, load_vocabularies
from pellucid.decoding.trace import Trace
from pellucid.errors import CONTROL_CHARACTERS, BadLineError, ConfigError, DataError, InputError
from pellucid.run_folder.checksums import format_checksums, read_checksums
from pellucid.run_folder.confidence_file import load_confidence
from pellucid.run_folder.log import load_run_log, read_log
from pellucid.run_folder.model_file import read_parameters
from pellucid.run_folder.pair_ngram_file import load_pair_ngram
from pellucid.run_folder.progress import read_progress
from pellucid.run_folder.run_files import load_run_config, member_folders, read_run_vocabularies
from pellucid.run_folder.tensor_file import open_tensors, tensor_digest, tensor_file
from pellucid.sharing.manifest import check_files, read_manifest
from pellucid.tuning.journal import read_journal
from pellucid.tuning.space import SearchSpace, apply_values, describe_space, initial_values, load_space

MAX_MESSAGE = 20_000
"""Maximum length of a message, in characters."""
MEMORY_FAULT = re.compile(r"malloc|realloc|alloc of size|not enough memory|out of memory|MemoryError", re.IGNORECASE)
"""Text of a failed allocation, which a library reports like a damaged file."""
MAX_REASON = 2_000
"""Maximum length of the reason why a line is bad, in characters."""
SEPARATOR = b"\n%%\n"
"""Separates the two files of parallel text."""


class PropertyError(AssertionError):
    """A property of a target that does not hold."""


class Target(NamedTuple):
    """Reader that is fuzzed."""

    name: str
    modules: tuple[str, ...]
    """Modules of the reader, whose lines are counted for the coverage."""
    structure: Structure
    check: Callable[[bytes, Path], str]
    """Function of the content of an input and a folder for it. It returns the kind of the outcome, and raises any
    exception for a fault."""
    seeds: Callable[[Path], list[bytes]]
    """First inputs, from a folder with a small trained run."""
    reserved_memory: int = 0
    """Address space in MiB that a library may reserve and not use, beyond the memory limit."""


def expect(condition: object, text: str) -> None:
    """Raise `PropertyError` unless a condition holds.

    Args:
        condition: The condition.
        text: Message.
    """
    if not condition:
        raise PropertyError(text)


def describe_refusal(error: InputError, *names: str) -> str:
    """Return the kind of a refusal, after checking its message.

    Args:
        error: The error.
        *names: Texts of which the message must contain one, such as the name of the file; none for no check.

    Raises:
        PropertyError: The message is too long, has control characters, names none of the texts, or says that the memory
            ran out, which is a fault, no refusal.
    """
    text = str(error)
    expect(not MEMORY_FAULT.search(text), f"the memory ran out: {text[:300]!r}")
    expect(len(text) <= MAX_MESSAGE, f"a message of {len(text)} characters")
    expect(not CONTROL_CHARACTERS.search(text.replace("\n", "")), f"control characters in {text[:200]!r}")
    expect(not names or any(name in text for name in names), f"the file is not named in {text[:300]!r}")
    kind = re.sub(r"'[^']*'|\"[^\"]*\"|[\d,.]+|/\S+", "_", text)
    return f"{type(error).__name__} {kind[:120]}"


def write_input(content: bytes, path: Path) -> Path:
    """Write the content of a file, and return its path.

    Args:
        content: The content.
        path: The file.
    """
    path.write_bytes(content)
    return path


def split_lines(content: bytes) -> list[bytes]:
    """Return the lines of a content with their newlines, by a plain split.

    Args:
        content: The content, of which a byte order mark is removed.
    """
    lines = content.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


# --- files of pairs


TABLE_VARIANTS: tuple[DataConfig, ...] = tuple(
    msgspec.convert({"on_bad_line": "skip", **settings}, DataConfig)
    for settings in (
        {"header": False},
        {"header": True},
        {"header": "auto"},
        {"header": False, "features_column": "3"},
        {"source_column": "source", "target_column": "target"},
        {"header": False, "source_column": "2", "target_column": "1", "source_symbols": "words"},
        {"header": False, "target_symbols": "position"},
        {"header": False, "source_symbols": "words", "target_symbols": "words", "equal_length": True},
        {"header": False, "max_sequence_length": 5, "source_normalization": "nfd"},
    )
)


def choose_two(first: Sequence[Any], second: Sequence[Any], content: bytes) -> tuple[Any, Any, bytes]:
    """Return the two variants that the first byte of an input selects, and the rest of the input.

    Args:
        first: Variants that the byte selects by its remainder when divided by their number.
        second: Variants that the byte selects by the quotient.
        content: The input.
    """
    quotient, remainder = divmod(content[0] if content else 0, len(first))
    return first[remainder], second[quotient % len(second)], content[1:]


def unpack(data: bytes) -> bytes | None:
    """Return the content of a file that may be compressed; None for damaged gzip.

    Args:
        data: The file.
    """
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return None


def choose(variants: Sequence[Any], content: bytes) -> tuple[Any, bytes]:
    """Return the variant that the first byte of an input selects, and the rest of the input.

    Args:
        variants: The variants.
        content: The input.
    """
    return variants[(content[0] if content else 0) % len(variants)], content[1:]


def check_reading(reading: ExampleFile, rows: int) -> str:
    """Check that rows in = rows used + rows reported, each line once; return the kind of the outcome.

    Args:
        reading: Content of the file as it was read.
        rows: Independent number of rows of the file, blank ones included.
    """
    used, bad, blank = len(reading.examples), len(reading.bad_lines), reading.num_blank_lines
    expect(used + bad + blank == rows, f"{rows} rows in; {used} used, {bad} reported, {blank} blank")
    numbers = [*reading.line_numbers, *(line.line for line in reading.bad_lines)]
    expect(len(set(numbers)) == len(numbers), "a line is used or reported twice")
    expect(reading.line_numbers == sorted(reading.line_numbers), "the lines are not in order")
    for line in reading.bad_lines:
        expect(not CONTROL_CHARACTERS.search(line.reason), f"control characters in {line.reason[:200]!r}")
        expect(len(line.reason) <= MAX_REASON, f"a reason of {len(line.reason)} characters")
    kinds = {re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "_", line.reason)[:60] for line in reading.bad_lines}
    return f"used {min(used, 3)}, blank {min(blank, 1)}, reported {sorted(kinds)[:4]}"


def check_pairs(path: Path, config: DataConfig, rows: int | None) -> str:
    """Read a file of pairs with bad lines skipped and with a stop at the first, and check both.

    Args:
        path: The file.
        config: The data settings, which skip bad lines.
        rows: Independent number of rows; None if it is unknown.
    """
    try:
        reading = read_examples(path, config)
    except InputError as error:
        return describe_refusal(error, path.name)
    total = len(reading.examples) + len(reading.bad_lines) + reading.num_blank_lines
    kind = check_reading(reading, total if rows is None else rows)
    try:
        strict = read_examples(path, msgspec.structs.replace(config, on_bad_line="stop"))
    except BadLineError as error:
        expect(reading.bad_lines, f"a line is bad only with a stop: {error}")
        describe_refusal(error, f"{path.name}:{reading.bad_lines[0].line}")
    else:
        expect(strict == reading and not reading.bad_lines, "a bad line does not stop the reading")
    return kind


def check_prediction(path: Path, config: DataConfig, rows: int | None, input_format: InputFormat = FILE_FORMAT) -> None:
    """Read the sources of a file for prediction, and check that each row gives one item.

    Args:
        path: The file.
        config: The data settings.
        rows: Independent number of rows; None if it is unknown.
        input_format: Format of the file.
    """
    items = list[Example | BadLine]()
    try:
        items.extend(read_sources(path, config, input_format))
    except InputError as error:
        describe_refusal(error, path.name)
    else:
        expect(rows is None or len(items) == rows, f"{rows} rows in, {len(items)} items out of prediction")


def check_tsv(content: bytes, folder: Path) -> str:
    """Each line of TSV is used, reported or blank, with the fields of a plain split; prediction gives one item a line.

    Reading the lines as a stream gives the items of the file.
    """
    config, data = choose(TABLE_VARIANTS, content)
    path, plain = write_input(data, folder / "input.tsv"), unpack(data)
    lines = split_lines(plain or b"")
    header = 1 if has_header(config) else 0
    filled = sum(not is_blank(line) for line in lines)
    rows = None if plain is None else len(lines) - min(header, filled)
    kind = check_pairs(path, config, rows)
    if config.header is False:
        check_prediction(path, config, rows)
        if plain is not None and kind.startswith("used"):
            reading = read_examples(path, config)
            _check_fields(reading, config, lines)
            if config is TABLE_VARIANTS[0]:
                expect(reading.line_numbers == valid_lines(lines), "a valid line is reported, or a bad one is used")
        _check_stream(path, config, data)
    return kind


def valid_lines(lines: Sequence[bytes]) -> list[int]:
    """Return the numbers of the lines of TSV that are pairs of the first variant, computed without Pellucid.

    Args:
        lines: The lines, with their newlines.
    """
    width, valid = 0, list[int]()
    for number, line in enumerate(lines, 1):
        if not line.strip(b" \t\r\n") or b"\0" in line:
            continue
        try:
            text = line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            continue
        fields = text.split("\t")
        if "\r" in text or len(fields) < 2:
            continue
        width = width or len(fields)
        lengths = len(unicodedata.normalize("NFC", fields[0])), len(fields[1])
        if len(fields) == width and all(0 < length <= 1000 for length in lengths):
            valid.append(number)
    return valid


def _check_fields(reading: ExampleFile, config: DataConfig, lines: Sequence[bytes]) -> None:
    """Check that the examples of TSV have the fields of a plain split."""
    columns = [int(config.source_column) - 1, int(config.target_column) - 1]
    for number, example in zip(reading.line_numbers, reading.examples, strict=True):
        fields = lines[number - 1].decode().removesuffix("\n").removesuffix("\r").split("\t")
        expect([fields[column] for column in columns] == [*example[:2]], f"line {number} has other fields")


def _check_stream(path: Path, config: DataConfig, data: bytes) -> None:
    """Check that lines from a stream give the same sources as the file."""

    def items(read: Callable[[], Any]) -> tuple[list[Any], bool]:
        collected = list[Any]()
        try:
            for item in read():
                collected.append((item.line, item.reason) if isinstance(item, BadLine) else item)
        except InputError as error:
            describe_refusal(error, path.name)
            return collected, True
        return collected, False

    file = items(lambda: read_sources(path, config))
    stream = items(lambda: parse_sources(LineStream(io.BufferedReader(io.BytesIO(data)), path.name), path.name, config))
    expect(file == stream, "a stream gives other sources than the file")


def check_csv(content: bytes, folder: Path) -> str:
    """Each record of CSV is used, reported or blank: as many as the csv module reads, a fault counted as one."""
    config, data = choose(TABLE_VARIANTS, content)
    path, plain = write_input(data, folder / "input.csv"), unpack(data)
    rows = None if plain is None else count_csv_rows(path, plain, config)
    kind = check_pairs(path, config, rows)
    if config.header is False:
        check_prediction(path, config, None if config.delimiter == "auto" else rows)
    return kind


def count_csv_rows(path: Path, data: bytes, config: DataConfig) -> int | None:
    """Return the number of records that the csv module reads, without a header, each fault counted as a record.

    Args:
        path: The file.
        data: Its content, decompressed.
        config: The data settings.

    Returns:
        The number; None if the delimiter is unknown.
    """
    try:
        delimiter = DELIMITERS[file_delimiter(path, config)]
    except InputError:
        return None
    lines = (line.decode(errors="replace") for line in split_lines(data))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    rows, filled, limit = 0, 0, csv.field_size_limit(2**31 - 1)
    try:
        while True:
            try:
                record = next(reader)
            except csv.Error:
                record = ["a fault", ""]
            rows += 1
            filled += len(record) > 1 or bool("".join(record).strip(" \t"))
    except StopIteration:  # a header that is a fault is refused by the reader, before anything is counted
        return rows - min(filled, 1 if has_header(config) else 0)
    finally:
        csv.field_size_limit(limit)


JSON_VARIANTS = (
    DataConfig(source_column="source", target_column="target", on_bad_line="skip"),
    DataConfig(on_bad_line="skip"),
    DataConfig(source_column="source", target_column="target", features_column="tags", on_bad_line="skip"),
)


def check_json_lines(content: bytes, folder: Path) -> str:
    """Each line is used, reported or blank; a used line is JSON for the json module, with the same texts."""
    config, data = choose(JSON_VARIANTS, content)
    path, plain = write_input(data, folder / "input.jsonl"), unpack(data)
    lines = split_lines(plain or b"")
    rows = None if plain is None else len(lines)
    kind = check_pairs(path, config, rows)
    check_prediction(path, config, rows)
    if kind.startswith("used") and rows is not None and config.source_column == "source":
        reading = read_examples(path, config)
        for number, example in zip(reading.line_numbers, reading.examples, strict=True):
            with suppress(RecursionError):
                value = json.loads(lines[number - 1], parse_int=str, strict=False)
                expect((value["source"], value["target"]) == example[:2], f"line {number} has other texts")
    return kind


def check_parquet(content: bytes, folder: Path) -> str:
    """Each row that the file declares is used or reported."""
    from pyarrow.parquet import read_metadata

    config, data = choose(JSON_VARIANTS, content)
    path, rows = write_input(data, folder / "input.parquet"), None
    kind = check_pairs(path, config, None)
    if kind.startswith("used") and not data.startswith(b"\x1f\x8b"):
        reading = read_examples(path, config)
        rows = read_metadata(path).num_rows
        check_reading(reading, rows)
    check_prediction(path, config, rows)
    return kind


def check_gzip(content: bytes, folder: Path) -> str:
    """A file that the gzip module decompresses has the rows of its content; any other is refused."""
    config, data = choose(TABLE_VARIANTS[:1], content)
    path = write_input(data, folder / "input.gz")
    try:
        plain: bytes | None = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        plain = None
    rows = len(split_lines(plain)) if plain is not None and plain[:2] != b"\x1f\x8b" else None
    if not data.startswith(b"\x1f\x8b"):
        rows = None
    kind = check_pairs(path, config, rows)
    if data.startswith(b"\x1f\x8b"):  # other files must not be named .gz
        expect(plain is not None or not kind.startswith("used"), "a damaged gzip file is read")
        if not exceeds(data, 2**18):  # the time of a longer content is that of its lines
            _check_stream(path, config, data)
    return kind


def exceeds(data: bytes, size: int) -> bool:
    """Return whether the readable beginning of gzip data has more than `size` bytes.

    Args:
        data: The gzip data.
        size: Number of bytes.
    """
    count, stream = 0, io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(data)))  # type: ignore[arg-type]
    with suppress(OSError, EOFError, zlib.error):
        while count <= size and (block := stream.read1(size)):
            count += len(block)
    return count > size


def check_parallel(content: bytes, folder: Path) -> str:
    """Line i of one file belongs to line i of the other; files of different lengths are refused."""
    config, data = choose(TABLE_VARIANTS[:4], content)
    first, _, second = data.partition(SEPARATOR)
    source, target = write_input(first, folder / "source.txt"), write_input(second, folder / "target.txt")
    counts = [len(split_lines(part)) for part in (first, second)]
    is_plain = not any(part.startswith(b"\x1f\x8b") for part in (first, second))
    try:
        reading = read_examples(source, config, target)
    except InputError as error:
        return describe_refusal(error, source.name, target.name)
    expect(not is_plain or counts[0] == counts[1], f"files of {counts} lines are read")
    if is_plain and not config.features_column:
        texts = [[line_of(part, number) for number in reading.line_numbers] for part in (first, second)]
        pairs = [(example.source, example.target) for example in reading.examples]
        expect(pairs == list(zip(*texts, strict=True)), "a line belongs to another line")
    return check_reading(reading, counts[0]) if is_plain else "compressed"


def line_of(content: bytes, number: int) -> str:
    """Return a line of a content as text, without its end.

    Args:
        content: The content.
        number: Number of the line, from 1.
    """
    return split_lines(content)[number - 1].decode().removesuffix("\n").removesuffix("\r")


def check_lexicon(content: bytes, folder: Path) -> str:
    """Each line of a lexicon is used, reported, blank, or its header."""
    name, config, rest = choose_two(("lexicon.tsv", "lexicon.csv", "lexicon.jsonl"), TABLE_VARIANTS, content)
    path = write_input(rest, folder / name)
    try:
        reading, num_without_target = read_lexicon_examples(path, config)
    except InputError as error:
        return describe_refusal(error, path.name)
    num_read = len(reading.examples) + len(reading.bad_lines) + reading.num_blank_lines
    total = num_read + num_without_target
    lines = len(split_lines(rest))
    is_exact = name != "lexicon.csv" and not rest.startswith(b"\x1f\x8b")
    header = name == "lexicon.tsv" and _may_be_header(split_lines(rest), config)
    expected = (lines, lines - 1) if header else (lines,)
    expect(not is_exact or total in expected, f"{lines} lines in, {total} used or reported")
    return check_reading(reading, num_read)


def _may_be_header(lines: Sequence[bytes], config: DataConfig) -> bool:
    """Return whether the first line of two cells has names of columns: the configured ones, or a usual one."""
    rows = (line.decode(errors="replace").strip("\r\n").split("\t") for line in lines)
    first = next((cells for cells in rows if len(cells) > 1), [])
    return {config.source_column, config.target_column} <= {*first} or any(map(is_column_name, first))


def check_split(content: bytes, folder: Path) -> str:
    """Each row is in one part or reported, with its bytes."""
    name, config, rest = choose_two(("input.tsv", "input.csv", "input.jsonl"), TABLE_VARIANTS, content)
    if name == "input.jsonl":
        config = JSON_VARIANTS[TABLE_VARIANTS.index(config) % len(JSON_VARIANTS)]
    path = write_input(rest, folder / name)
    try:
        split = split_file(path, config, SplitSizes(0.2, 0.2), seed=1)
    except InputError as error:
        return describe_refusal(error, path.name)
    if rest.startswith(b"\x1f\x8b"):
        return "compressed"
    lines, used = split_lines(rest), list[bytes]()
    header = 0 if not has_header(config) or name == "input.jsonl" else 1
    for part in split.contents.values():
        used += split_lines(part)[header:]
    if name != "input.csv" or not header:  # the first record of CSV may have several lines
        surplus = Counter(used) - Counter(lines)
        expect(not surplus, f"a line is in the parts more often than in the file: {surplus}")
    if name != "input.csv":
        total = len(used) + len(split.bad_lines) + split.num_blank_lines
        expect(total + header == len(lines), f"{len(lines)} lines in, {total} in parts or reported, {header} header")
        expect(sum(split.num_rows.values()) == len(used), "the number of rows differs from the lines of the parts")
    return f"parts {sorted(split.contents)}, {bool(split.bad_lines)}, {bool(split.num_blank_lines)}, {len(split.notes)}"


def check_decisions(content: bytes, folder: Path) -> str:
    """Decisions have a line from 1, and at most one is on each line."""
    path = write_input(content[1:], folder / "decisions.csv")
    try:
        decisions = read_decisions(path)
    except InputError as error:
        return describe_refusal(error, path.name)
    lines = [decision.line for decision in decisions]
    expect(len(set(lines)) == len(lines) and all(line > 0 for line in lines), "decisions on a wrong line")
    return f"{sorted({decision.action for decision in decisions})}"


def check_applied_decisions(content: bytes, folder: Path) -> str:
    """Decisions change the targets and sources of their rows and remove rows, and no other byte changes."""
    name, config, rest = choose_two(("input.tsv", "input.csv"), TABLE_VARIANTS, content)
    path, output = write_input(rest, folder / name), folder / f"output-{name}"
    try:
        table = read_audited_table(path, config)
    except InputError as error:
        return describe_refusal(error, path.name)
    rows = list(table.rows.values())
    apply_decisions(path, config, [Decision(row.line, row.source, row.target, "keep") for row in rows], output)
    expect(output.read_bytes() == rest, "rows that were kept have other bytes")
    start = len(rest) % 2  # the first row is removed, or replaced
    removed, replaced = rows[start::4], rows[1 - start :: 2]
    has_two = table.source_position != table.target_position
    sources = {row.line: "\ufeffnew source" for row in replaced[::2] if has_two}
    decisions = [
        Decision(row.line, row.source, row.target, "replace", "new target", sources.get(row.line, ""))
        for row in replaced
    ]
    decisions += [Decision(row.line, row.source, row.target, "remove") for row in removed]
    try:
        apply_decisions(path, config, decisions, output)
    except InputError as error:
        return describe_refusal(error, path.name)
    if hasattr(os, "mkfifo"):
        _check_pipe(path, config, decisions, output)
    changed = {line for row in [*replaced, *removed] for line in range(row.line, row.stop)}
    lines = io.BytesIO(rest.removeprefix(BYTE_ORDER_MARK)).readlines()
    unchanged = [line for number, line in enumerate(lines, 1) if number not in changed]
    written = iter(io.BytesIO(output.read_bytes().removeprefix(BYTE_ORDER_MARK)).readlines())
    expect(all(line in written for line in unchanged), "a line without a decision has other bytes, or is missing")
    targets = {row.line: "new target" for row in replaced}
    expected = [
        (sources.get(row.line, row.source), targets.get(row.line, row.target)) for row in rows if row not in removed
    ]
    # The first rows, which may have changed, give the delimiter of CSV, and the first one the number of columns.
    if name == "input.tsv" and not (table.bad_lines and rows[:1] == removed[:1]):
        found = [(row.source, row.target) for row in read_audited_table(output, config).rows.values()]
        expect(found == expected, f"{expected[:5]} expected, {found[:5]} found")
    return f"{len(replaced) > 0}, {len(removed) > 0}"


def _check_pipe(path: Path, config: DataConfig, decisions: Sequence[Decision], output: Path) -> None:
    """Check that decisions on a pipe with the same content give the same output: it has no second reading."""
    expected, pipe = output.read_bytes(), path.with_name(f"pipe{path.suffix}")
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)

    def write() -> None:
        with suppress(BrokenPipeError):
            pipe.write_bytes(path.read_bytes())

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        apply_decisions(pipe, config, decisions, output)
    finally:
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))  # ends the wait of a writer without a reader
        writer.join()
        pipe.unlink()
    expect(output.read_bytes() == expected, "decisions on a pipe have another output")


# --- vectors, vocabularies, settings


@cache
def small_vocabulary() -> Vocabulary:
    """Return the vocabulary for vectors."""
    return Vocabulary(("a", "b", "é", "x y", "0", ""), (5, 4, 3, 2, 1, 1))


def check_vectors(content: bytes, folder: Path) -> str:
    """Vectors have the finite numbers of the first line of their symbol, which is in the vocabulary."""
    size, data = choose((1, 2, 3), content)
    path = write_input(data, folder / "vectors.txt")
    try:
        vectors = read_vectors(path, small_vocabulary(), size, "encoder.embedding_size")
    except InputError as error:
        return describe_refusal(error, path.name)
    expect(vectors.values.shape == (len(vectors.ids), size), "vectors of another shape")
    expect(bool(np.isfinite(vectors.values).all()), "vectors that are not finite")
    expect(len(set(vectors.ids)) == len(vectors.ids) and set(vectors.ids) <= {*range(4, 10)}, "wrong ids")
    plain = unpack(data)
    if plain is not None:
        numbers = dict[str, list[str]]()
        for number, line in enumerate(split_lines(plain)):
            text = line.decode().removesuffix("\n").removesuffix("\r")
            expect("\r" not in text, "a carriage return inside a line is read")
            fields = text.rstrip(" ").split(" ")
            header = not number and len(fields) == 2 and all(re.fullmatch("[0-9]+", field) for field in fields)
            if not text.strip() or header:  # no symbol, also where the vocabulary has an empty one
                continue
            numbers.setdefault(" ".join(fields[:-size]), fields[-size:])
        for vector, symbol_id in zip(vectors.values, vectors.ids, strict=True):
            fields = numbers[small_vocabulary().symbols[symbol_id - NUM_SPECIAL]]
            expect([*map(np.float32, fields)] == [*vector], f"{fields} are read as {vector}")
    return f"{sorted(vectors.ids)}"


VOCABULARY_VARIANTS = (
    DataConfig(),
    DataConfig(source_symbols="words", target_symbols="+"),
    DataConfig(source_symbols="subwords", target_symbols="subwords"),
    DataConfig(target_symbols="position", features_symbols="words"),
)


def check_vocabulary(content: bytes, folder: Path) -> str:
    """A vocabulary that is read encodes its symbols to distinct ids, and is the same after it is saved."""
    config, data = choose(VOCABULARY_VARIANTS, content)
    path = write_input(data, folder / "vocabulary.json")
    try:
        vocabularies = load_vocabularies(path, config)
    except InputError as error:
        return describe_refusal(error, path.name)
    for vocabulary in (vocabularies.source, vocabularies.target, vocabularies.features):
        ids = vocabulary.encode(vocabulary.symbols)
        expect(ids == [*range(4, 4 + len(vocabulary.symbols))], "a symbol has another id")
    pieces: SubwordModels = vocabularies.pieces
    for model in (pieces.source, pieces.target):
        expect(model is None or "".join(model.split("ab é\n")) == "ab é\n", "subwords do not join to the text")
    vocabularies.save(path)
    expect(load_vocabularies(path, config) == vocabularies, "a saved vocabulary differs")
    return f"{len(vocabularies.source)} {len(vocabularies.target)} {len(vocabularies.features)} {pieces.source is None}"


def check_config(content: bytes, folder: Path) -> str:
    """Settings that are read are the same after they are written as TOML; the message of a refusal names the file."""
    kind, data = choose(("new", "saved", "space"), content)
    path = write_input(data, folder / "config.toml")
    try:
        if kind == "space":
            return _use_space(load_space(path, base_config()))
        config = load_config(path) if kind == "new" else load_saved_config(path)
    except InputError as error:
        return describe_refusal(error, path.name)
    path.write_text(to_toml(config), "utf-8")
    expect(load_saved_config(path) == config, "saved settings differ")
    return f"{kind} {config.task} {config.size}"


def _use_space(space: SearchSpace) -> str:
    """Use a search space as `tune` does before its first trial."""
    from pellucid.tuning.study import _distribution

    values = initial_values(base_config(), space)
    expect(len(describe_space(space)) == len(space.searched) + len(space.linked), "a setting is not described")
    for dimension in space.searched:
        _distribution(dimension)
    with suppress(ConfigError):  # values of several settings may contradict each other
        apply_values(base_config(), space, values, "a trial")
    return f"space of {min(len(space.searched), 4)}, {min(len(values), 4)} initial values"


@cache
def base_config() -> Config:
    """Return the settings to which a search space refers."""
    return build_config({"size": "tiny"}, origin="base")


# --- run folders


class SeedRun:
    """The small trained run, whose files are replaced by inputs; set once per process."""

    folder = Path()


def repair_digest(
    content: bytes, signed: Callable[[dict[str, str], dict[str, Any]], str], key: str = "sha256"
) -> bytes:
    """Return a safetensors file with the right checksum, as an attacker would write it; unchanged if it has no header.

    Args:
        content: The file.
        signed: Function that returns the checksum of metadata and arrays.
        key: Key of the checksum.
    """
    import safetensors.numpy

    with suppress(Exception):
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        arrays = safetensors.numpy.load(content)
        metadata[key] = signed(metadata, arrays)
        return tensor_file(arrays, metadata)
    return content


def check_weights(content: bytes, folder: Path) -> str:
    """Parameters that are read are finite, and have the names, types and shapes of the network."""
    from pellucid.run_folder.identity import read_identity
    from pellucid.run_folder.model_file import _signed

    repair, data = choose((False, True), content)
    if repair:
        data = repair_digest(data, lambda metadata, arrays: tensor_digest(arrays, _signed(metadata)))
    path = write_input(data, folder / "model.safetensors")
    try:
        arrays = read_parameters(path, expected_parameters())
        read_identity(folder)
    except InputError as error:
        return describe_refusal(error, path.name)
    for name, value in expected_parameters().items():
        expect(arrays[name].shape == value.shape and np.isfinite(arrays[name]).all(), f"{name} is wrong")
    return "read"


@cache
def expected_parameters() -> dict[str, Any]:
    """Return the arrays of the model file of the small run."""
    import safetensors.numpy

    arrays: dict[str, Any] = safetensors.numpy.load((SeedRun.folder / "model.safetensors").read_bytes())
    return arrays


def check_training_state(content: bytes, folder: Path) -> str:
    """A checkpoint that is restored has a possible progress and finite numbers; a refused one changes nothing."""
    from pellucid.training.checkpoint import restore_training_state

    repair, data = choose((False, True), content)
    if repair:
        data = repair_digest(data, lambda metadata, arrays: tensor_digest(arrays, metadata.get("progress", "")))
    path, state = write_input(data, folder / "training.safetensors"), training_state()
    before = state.progress
    with suppress(InputError):
        read_progress(path)
    try:
        restore_training_state(path, state, stored_fingerprint())
    except InputError as error:
        expect(state.progress is before, "a refused checkpoint changes the state")
        return describe_refusal(error, path.name)
    expect(all(bool(value.isfinite().all()) for value in state.predictor.network.state_dict().values()), "not finite")
    progress, state.progress = state.progress, before
    return f"read {progress.update == 0} {progress.best_validation_score is None} {progress.stop_cause}"


@cache
def stored_fingerprint() -> str:
    """Return the fingerprint in the checkpoint of the small run."""
    with open_tensors(SeedRun.folder / "training.safetensors") as stored:
        return stored.metadata["fingerprint"]


@cache
def training_state() -> Any:  # noqa: ANN401 (PyTorch is imported by few targets)
    """Return a training state of the small run."""
    from pellucid.data.encoding import encode_examples
    from pellucid.data.tokenizers import build_tokenizers
    from pellucid.decoding.transducer import Transducer
    from pellucid.tasks.registry import build_network
    from pellucid.training.optimizer import build_optimizer
    from pellucid.training.training_state import TrainingState

    config = load_run_config(SeedRun.folder)
    vocabularies = read_run_vocabularies(SeedRun.folder, config)
    examples = read_examples(SeedRun.folder.parent / "train.tsv", config.data).examples
    network = build_network(config, vocabularies)
    encoded = encode_examples(examples, build_tokenizers(config.data), vocabularies)
    optimizer = build_optimizer(network, config.training)
    return TrainingState(Transducer(config, vocabularies, network), optimizer, encoded, examples[:10])


def check_snapshot(content: bytes, folder: Path) -> str:
    """Snapshots that are read have embeddings of the run's sizes and traces that can be written again."""
    from pellucid.training.snapshots import read_snapshots

    repair, data = choose((False, True), content)
    if repair:
        data = _repair_snapshot(data)
    for name in ("config.toml", "model.safetensors"):
        if not (folder / name).exists():
            (folder / name).write_bytes((SeedRun.folder / name).read_bytes())
    (folder / "snapshots").mkdir(exist_ok=True)
    name = next(iter(sorted((SeedRun.folder / "snapshots").iterdir()))).name
    write_input(data, folder / "snapshots" / name)
    try:
        snapshots = read_snapshots(folder)
    except InputError as error:
        return describe_refusal(error, name)
    for trace in snapshots[0].traces:
        Trace.from_json(trace.to_json())
    return f"read {len(snapshots[0].traces)}"


def _repair_snapshot(content: bytes) -> bytes:
    """Return a snapshot with the right checksum in its metadata."""
    import safetensors.numpy

    from pellucid.training.snapshots import _digest

    with suppress(Exception):
        length = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + length])["__metadata__"]
        notes = msgspec.json.decode(metadata["snapshot"], type=dict[str, msgspec.Raw])
        arrays = safetensors.numpy.load(content)
        notes["sha256"] = msgspec.Raw(msgspec.json.encode(_digest(arrays, bytes(notes["traces"]))))
        return tensor_file(arrays, {**metadata, "snapshot": msgspec.json.encode(notes).decode()})
    return content


def check_pair_ngram(content: bytes, folder: Path) -> str:
    """The outputs of a pair n-gram model that is read have finite scores and known symbols."""
    from pellucid.pair_ngram.model import PairNgram
    from pellucid.run_folder.pair_ngram_file import _signed

    repair, data = choose((False, True), content)
    if repair:
        data = repair_digest(
            data,
            lambda metadata, arrays: tensor_digest(
                arrays, _signed({key: value for key, value in metadata.items() if key != "sha256"})
            ),
        )
    path = write_input(data, folder / "pair_ngram.safetensors")
    config = load_run_config(SeedRun.folder)
    vocabularies = read_run_vocabularies(SeedRun.folder, config)
    try:
        saved = load_pair_ngram(path, vocabularies)
    except InputError as error:
        return describe_refusal(error, path.name)
    expect(isinstance(saved.model, PairNgram), "no model")
    expect(saved.weight is None or 0 <= saved.weight <= 1, "a wrong weight")
    for source in ([NUM_SPECIAL], [NUM_SPECIAL, NUM_SPECIAL + 1] * 4, [UNK]):
        for output in saved.model.search(source, 3):
            expect(math.isfinite(output.score), f"a score of {output.score}")
            expect(all(0 <= symbol < len(vocabularies.target) for symbol in output.target), f"ids {output.target}")
    return f"read {saved.weight is None}"


def check_log(content: bytes, folder: Path) -> str:
    """Each line of the log that is not empty is a record or counted as damaged."""
    path = write_input(content[1:], folder / "log.jsonl")
    try:
        records, log = read_log(folder), load_run_log(folder)
    except InputError as error:
        return describe_refusal(error, path.name)
    lines = sum(line != b"" for line in content[1:].split(b"\n"))
    expect(len(records) + log.num_damaged == lines, f"{lines} lines, {len(records)} records, {log.num_damaged} damaged")
    expect(log.counts.total() == len(records), "the log read once has another number of records")
    expect(all(isinstance(record["event"], str) for record in records), "a record without event")
    return f"{sorted({record['event'] for record in records})} {min(log.num_damaged, 2)}"


def check_trace(content: bytes, folder: Path) -> str:
    """A Trace that is read is the same after it is written and read again; all its numbers are possible."""
    try:
        trace = Trace.from_json(content[1:])
    except DataError as error:
        return describe_refusal(error)
    text = trace.to_json()
    expect(Trace.from_json(text).to_json() == text, "a written Trace differs")
    Trace.from_json(trace.to_json(compact=True))
    expect(len(str(trace)) < 10_000_000 and not math.isnan(trace.score), "a Trace that cannot be shown")
    return f"{trace.task} {trace.finished} {trace.search_tree is None}"


RECORD_NAMES = ("confidence.json", "ensemble.json", "manifest.json", "study.jsonl")


def check_records(content: bytes, folder: Path) -> str:
    """Small files of a run folder (confidence, members, manifest, journal of a search) are read or refused by name."""
    name, data = choose(RECORD_NAMES, content)
    path = write_input(data, folder / name)
    readers: dict[str, Callable[[], object]] = {
        "confidence.json": lambda: load_confidence(path),
        "ensemble.json": lambda: _check_members(folder),
        "manifest.json": lambda: check_files(folder, read_manifest(folder)),
        "study.jsonl": lambda: read_journal(path),
    }
    try:
        readers[name]()
    except InputError as error:
        return f"{name} {describe_refusal(error, name, str(folder))}"
    finally:
        path.unlink()
    return f"{name} read"


def _check_members(folder: Path) -> None:
    """Check that all members of an ensemble are in its folder."""
    expect(all(member.parent == folder for member in member_folders(folder)), "a member is in another folder")


def check_checksums(content: bytes, folder: Path) -> str:
    """A list of checksums that is read is the same after it is written and read again."""
    path = write_input(content[1:], folder / "list.sha256")
    try:
        checksums = read_checksums(path)
    except InputError as error:
        return describe_refusal(error, path.name)
    path.write_text(format_checksums(checksums), "utf-8", newline="\n")
    expect(read_checksums(path) == checksums, "a written list differs")
    return f"{min(len(checksums), 3)}"


def check_corpus(content: bytes, folder: Path) -> str:
    """A corpus that is mapped has whole offsets, and ids within its vocabularies."""
    repair, data = choose((False, True), content)
    path = write_input(_repair_corpus(data) if repair else data, folder / "corpus.arrow")
    try:
        corpus = map_corpus(path, "key", has_features=False)
    except CorpusError as error:
        return f"refused: {error}"
    counts = count_ids(corpus.vocabularies, False)
    for column, count in zip(corpus.encoded.columns().values(), counts, strict=False):
        offsets = column.offsets
        expect(offsets[0] == 0 and offsets[-1] == len(column.values), "offsets that are not those of the ids")
        expect(bool((np.diff(offsets) > 0).all()) and int(column.values.max()) < count, "an id beyond its vocabulary")
    return f"read {corpus.encoded.source.num_sequences}"


def _repair_corpus(content: bytes) -> bytes:
    """Return a corpus with the right checksum, as an attacker would write it; unchanged if it is not an Arrow file."""
    import pyarrow

    from pellucid.data.corpus import DIGEST, METADATA, _column, _digest
    from pellucid.data.encoding import EncodedExamples

    with suppress(Exception):
        batch = pyarrow.ipc.open_file(pyarrow.py_buffer(content)).get_batch(0)
        batch.validate(full=True)  # as `map_corpus` does: offsets beyond the file would end the process
        metadata = dict(batch.schema.metadata)
        columns = EncodedExamples(**{name: _column(batch.column(name)) for name in batch.schema.names})
        metadata[DIGEST] = _digest(columns, metadata[METADATA])
        schema = batch.schema.with_metadata(metadata)
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema))
        return bytes(sink.getvalue())
    return content


FOLDER_FILES = ("config.toml", "vocabulary.json", "model.safetensors", "confidence.json", "log.jsonl", "card.md")


def check_folder(content: bytes, folder: Path) -> str:
    """A run folder with one changed file is loaded, and predicts finite scores, or is refused by the name of a file."""
    import warnings

    from pellucid.run_folder.predictor_loader import load

    name, data = choose(FOLDER_FILES, content)
    run = folder / "run"
    if not run.exists():
        run.mkdir()
        for file in FOLDER_FILES:
            (run / file).write_bytes((SeedRun.folder / file).read_bytes())
    write_input(data, run / name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            trace = load(run).predict(["ab"])[0]
    except InputError as error:
        return f"{name} {describe_refusal(error, str(run))}"
    finally:
        (run / name).write_bytes((SeedRun.folder / name).read_bytes())
    expect(math.isfinite(trace.score), "a score that is not finite")
    return f"{name} read"


# --- predictions


@cache
def seed_model() -> Any:  # noqa: ANN401 (PyTorch is imported by few targets)
    """Return the model of the small run."""
    from pellucid.run_folder.predictor_loader import load_without_warnings

    return load_without_warnings(SeedRun.folder)


@cache
def model_runner() -> tuple[Any, Any]:
    """Return the runner of the service with the small run, and a connection that it does not use."""
    from multiprocessing import Pipe

    from pellucid.serving.decoding_worker import ModelRunner
    from pellucid.worker_pool import WorkerChannel

    return ModelRunner(seed_model(), 1000), WorkerChannel(Pipe()[0], 0, None)


OPERATION_NAMES = ("predict", "nbest", "score", "attention", "align", "tag", "classify")


def check_service_rows(content: bytes, folder: Path) -> str:
    """Each row of a request has a result in JSON, or an error that names it."""
    from pellucid.http_requests import decode_request
    from pellucid.serving.batch_queue import options_without_rows
    from pellucid.serving.decoding_worker import BatchJob, OptionsError
    from pellucid.serving.schema import OPERATIONS

    name, data = choose(OPERATION_NAMES, content)
    try:
        request: Any = decode_request(data, OPERATIONS[name].request)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "no request"
    rows = request.rows[:8]
    try:
        runner, channel = model_runner()
        results = runner(BatchJob(name, options_without_rows(request), rows, range(len(rows))), channel)
    except OptionsError as error:
        return describe_refusal(error)
    expect(len(results) == len(rows), f"{len(rows)} rows in, {len(results)} results out")
    values = [json.loads(result) for result in results]
    messages = [value["error"]["message"] if "error" in value else "" for value in values]
    for number, message in enumerate(messages):
        expect(not message or message.startswith(f"rows[{number}]: "), f"row {number} is not named in {message!r}")
        expect(not MEMORY_FAULT.search(message), f"the memory ran out: {message[:300]!r}")
    kinds = {re.sub(r"'[^']*'|\"[^\"]*\"|[\d,.]+", "_", message)[:80] for message in messages}
    return f"{name} {sorted(kinds)[:4]}"


def check_prefixes(content: bytes, folder: Path) -> str:
    """A file of prefixes that is read has one prefix a line, and each is the start of an output."""
    from pellucid.cli.prefix_file import PrefixFile

    path, plain = write_input(content[1:], folder / "prefixes.txt"), unpack(content[1:])
    try:
        prefixes = PrefixFile(path, seed_model())
    except InputError as error:
        return describe_refusal(error, path.name)
    lines = split_lines(plain or b"")
    expect(len(prefixes.texts) == len(lines), f"{len(lines)} lines in, {len(prefixes.texts)} prefixes out")
    texts = prefixes.next_prefixes(len(lines))
    prefixes.check_exhausted()
    for text in [*dict.fromkeys(texts)][:3]:
        [trace] = seed_model().predict_examples([Example("ab", "")], [text])
        expect(trace.output.startswith(text), f"an output {trace.output!r} without the prefix {text!r}")
    return f"{min(len(texts), 3)}"


MAX_DECODED_ROWS = 500
"""Maximum number of rows of a table that are decoded."""
WORD_PATTERNS = (None, r"\w+", r"[^ ]+")


def check_text(content: bytes, folder: Path) -> str:
    """Text keeps all characters between its words, and each line is decoded or refused."""
    from pellucid.data.text_words import WordRule
    from pellucid.decoding.text_decoder import TextDecoder

    pattern, data = choose(WORD_PATTERNS, content)
    decoder, refused, num_words = TextDecoder(seed_model(), WordRule(pattern)), 0, 0
    for line in data.decode(errors="replace").split("\n")[:8]:
        if decoder.line_error(line):
            refused += 1
            continue
        [decoded] = decoder.decode([line])
        end, rebuilt = 0, ""
        for word in decoded.words:
            expect(line[word.span.start : word.span.end] == word.text, "a word is not at its place")
            rebuilt += line[end : word.span.start] + word.output.output
            end = word.span.end
        rebuilt += line[end:]
        expect(decoded.output == rebuilt, f"{line!r} became {decoded.output!r}, not {rebuilt!r}")
        num_words += len(decoded.words)
    return f"{min(refused, 2)} refused, {min(num_words, 3)} words"


def check_fill(content: bytes, folder: Path) -> str:
    """A filled table has the rows and cells of the table, except the empty cells of one column."""
    from pellucid.cli.predict_fill import FilledTable, FillOptions
    from pellucid.data.readers import TableCells

    name, data = choose(("input.csv", "input.tsv"), content)
    path, cells = write_input(data, folder / name), TableCells()
    config = DataConfig(source_column="source", target_column="target", header=True)
    format: Any = name[-3:]
    try:
        items = list(read_sources(path, config, FILE_FORMAT._replace(cells=cells)))
        if any(isinstance(item, BadLine) for item in items):
            return "bad rows"
        table = FilledTable(cells, FillOptions("target"), path, format)
        rows = table.pop_rows(len(items))
    except InputError as error:
        return describe_refusal(error)
    if len(items) > MAX_DECODED_ROWS:  # the time of more rows is that of decoding them
        return "many rows"
    traces = seed_model().predict_examples(items)
    text = table.header_row()
    for row, trace in zip(rows, traces, strict=True):
        text += table.format_row(table.fill_row(row, trace if table.is_empty(row) else None))
    delimiter = "\t" if format == "tsv" else DELIMITERS[cells.delimiter]
    lines = text.removeprefix("\ufeff").split("\n")
    written = (
        [line.removesuffix("\r").split("\t") for line in lines[:-1]]
        if format == "tsv"
        else [*csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), delimiter=delimiter, strict=True)]
    )
    for row, new in zip([list(cells.names), *rows], written, strict=True):
        if not row:
            expect(new in ([], [""]), f"a blank line became {new}")
            continue
        expect(len(new) == len(row) + 1, f"the row {row} became {new}")
        same = [new[index] == cell for index, cell in enumerate(row) if index != table.position or cell.strip()]
        expect(all(same), f"the row {row} became {new}")
    return f"{min(table.num_filled, 2)} filled, {min(table.num_kept, 2)} kept"


# --- audits and prepared data


def check_audit_rules(content: bytes, folder: Path) -> str:
    """The findings of an audit name rows and places that exist, in a text of bounded length."""
    from pellucid.auditing.rules import apply_rules, other_file_reasons
    from pellucid.auditing.types import AuditEntry
    from pellucid.errors import MAX_LISTED_LINES

    config, data = choose(TABLE_VARIANTS, content)
    path = write_input(data, folder / "input.tsv")
    try:
        reading = read_examples(path, config)
    except InputError as error:
        return describe_refusal(error, path.name)
    numbered = zip(reading.line_numbers, reading.examples, strict=True)
    entries = [AuditEntry(line, example) for line, example in numbered]
    reasons, notes = apply_rules(entries, build_tokenizers(config))
    others = other_file_reasons(entries, {"other.tsv": entries[::2]})
    line_numbers = frozenset(reading.line_numbers)
    for entry, found in zip(entries, map(list.__add__, reasons, others), strict=True):
        for reason in found:
            expect(len(reason.text) < MAX_REASON and len(reason.lines) <= MAX_LISTED_LINES, f"long: {reason.text[:99]}")
            expect(line_numbers.issuperset(reason.lines), f"lines that do not exist: {reason}")
            expect(reason.kind == "other_file" or entry.line not in reason.lines, f"a row refers to itself: {reason}")
            expect(reason.position <= max(map(len, entry.example[:2])), f"a place that does not exist: {reason}")
    return f"{sorted({reason.kind for found in reasons for reason in found})} {len(notes)}"


PREPARED_NAMES = ("prepared.json", "examples.arrow", "validation.jsonl")


def check_prepared(content: bytes, folder: Path) -> str:
    """Prepared data with one changed file has the examples of its description, or is refused by the name of a file.

    Variants of the file are a link to itself, a link to a device, a named pipe and a folder.
    """
    import shutil

    from pellucid.data.prepared_data import read_description, read_prepared
    from pellucid.training.preparation import prepare_data
    from pellucid.training.training_data import TrainingFiles

    name, kind, data = choose_two(PREPARED_NAMES, ("content", "loop", "device", "pipe", "folder"), content)
    original, data_folder = folder / "original", folder / "prepared"
    if not original.exists():
        train = folder / "train.tsv"
        train.write_text("".join(f"a{number}\tb{number}\n" for number in range(40)))
        list(prepare_data(TrainingFiles(train, None), original, base_config()))
    if not data_folder.exists():
        shutil.copytree(original, data_folder)
    path = data_folder / name
    path.unlink()
    match kind:
        case "content":
            path.write_bytes(data)
        case "loop":
            path.symlink_to(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    try:
        description = read_description(data_folder)
        prepared = read_prepared(data_folder, msgspec.structs.replace(base_config(), data=description.data))
    except InputError as error:
        return f"{name} {kind} {describe_refusal(error, str(data_folder))}"
    finally:
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copy(original / name, path)
    expect(len(prepared.validation_examples) == description.num_validation_examples, "other validation examples")
    expect(prepared.corpus.encoded.source.num_sequences == description.num_examples, "other examples")
    return f"{name} {kind} read"


# --- HTTP


class _LogCollector(logging.Handler):
    """Handler that stores messages with a traceback, or of the level error."""

    def __init__(self) -> None:
        """Initialize without messages."""
        super().__init__()
        self.faults = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Store a message.

        Args:
            record: Record of the log.
        """
        if record.levelno >= logging.ERROR or record.exc_info:
            self.faults.append(logging.Formatter().format(record))


class HttpService:
    """The service in this process, with a model that answers at once."""

    def __init__(self) -> None:
        """Create the application."""
        import uvicorn
        from uvicorn.server import ServerState

        from pellucid.serving.access import AccessRules
        from pellucid.serving.application import PredictionService, create_app
        from pellucid.serving.batch_queue import BatchQueue, PendingRequest
        from pellucid.serving.metrics import ServiceMetrics
        from pellucid.serving.model_service import ModelService
        from pellucid.serving.options import ServiceOptions
        from pellucid.serving.server import TimedProtocol

        class AnsweringQueue(BatchQueue):
            """Queue that answers each request at once."""

            def put(self, request: PendingRequest) -> None:
                """Answer a request.

                Args:
                    request: The request.
                """
                request.results.set_result([b"{}"] * len(request.rows))

        class Answering(ModelService):
            """Model that answers each row at once."""

            task = "transduce"

            def __post_init__(self) -> None:
                """Create a queue that answers."""
                self.queue = AnsweringQueue(self.options.max_queued_rows, self.options.max_rows)

        model = Answering("m", Path("run"), ServiceOptions(), ServiceMetrics())
        service = PredictionService({"m": model}, ServiceOptions())
        service.state = "ok"
        app = create_app(service, AccessRules(frozenset({"localhost"})))
        self.loop = asyncio.new_event_loop()
        self.collector = _LogCollector()
        logging.getLogger().addHandler(self.collector)
        logging.getLogger("pellucid").setLevel(logging.WARNING)
        self.loop.set_exception_handler(lambda _, context: self.collector.faults.append(str(context)))
        config = uvicorn.Config(
            app, log_config=None, log_level="warning", lifespan="off", ws="none", server_header=False
        )
        config.load()
        self.make_protocol = lambda: TimedProtocol(config, ServerState(), {}, _loop=self.loop)
        self.thread = ThreadPoolExecutor(1)  # a test may run where the loop of another program runs

    def answer(self, content: bytes) -> bytes:
        """Return the answer to bytes of a client, which a thread computes.

        Args:
            content: The bytes.
        """
        return self.thread.submit(lambda: self.loop.run_until_complete(self.exchange(content))).result()

    async def exchange(self, content: bytes) -> bytes:
        """Return the answer to bytes of a client.

        Args:
            content: The bytes.
        """
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            transport, _ = await self.loop.connect_accepted_socket(self.make_protocol, theirs)
            received = b""
            with suppress(ConnectionError, BlockingIOError):
                for start in range(0, max(1, len(content)), 16384):
                    ours.send(content[start : start + 16384])
                    for _ in range(8):
                        await asyncio.sleep(0)
            for _ in range(25):
                await asyncio.sleep(0)
                with suppress(BlockingIOError, ConnectionError):
                    received += ours.recv(1 << 20)
            transport.abort()
            for _ in range(4):
                await asyncio.sleep(0)
        return received


@cache
def http_service() -> HttpService:
    """Return the service of this process."""
    return HttpService()


STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def check_http(content: bytes, folder: Path) -> str:
    """No request has the status 500, a traceback in the log, or an answer that is not HTTP."""
    service = http_service()
    received = service.answer(content[1:])
    faults, service.collector.faults = service.collector.faults, []
    expect(not faults, f"the service logged {' '.join(faults)[-1500:]}")
    expect(not received or received.startswith(b"HTTP/1.1 "), f"the answer is {received[:100]!r}")
    statuses = [int(status) for status in STATUS.findall(received)]
    expect(500 not in statuses, "status 500")
    error = re.search(rb'"message":"([^"]*)', received)
    kind = re.sub(rb"[\d,.]+|`[^`]*`|'[^']*'", b"_", error[1])[:100] if error else b""
    return f"{statuses[:3]} {kind.decode(errors='replace')}"
