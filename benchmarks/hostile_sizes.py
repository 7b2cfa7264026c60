"""Hostile inputs of real size: each is read in a process of its own, whose peak memory and CPU time are measured.

    python benchmarks/hostile_sizes.py [--folder DIR] [--cases NAME ...] [--list]

Each case writes a file or a run folder, and calls a reader in a new process. The outcome must be an error of Pellucid,
or a reading; anything else (a traceback, a killed process, more memory or CPU time than the limit of the case) is
printed as a fault, and the exit code is 1. For each case a row of a table is printed: outcome, memory and CPU seconds.
The memory is the largest resident memory of the process beyond that of the same process without the case's
file, in MiB.
"""

import argparse
import gzip
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

SECONDS = 600
"""Time of the clock after which a reader is stopped."""
MARKER = Path(tempfile.gettempdir()) / "pellucid-executed"
"""File that a pickle of this program would create if it were loaded."""


class HostileInput(NamedTuple):
    """Hostile input of real size, with limits for its reading."""

    write: Callable[[Path], Path]
    """Function that writes the input into a folder, and returns its path."""
    read: str
    """Name of the function of this program that reads it."""
    max_memory: int
    """Largest memory in MiB that is not a fault."""
    max_seconds: float = 60.0
    """Longest CPU time in seconds that is not a fault."""


class Measurement(NamedTuple):
    """Outcome of a case."""

    outcome: str
    memory: float
    """Growth of the resident memory, in MiB."""
    seconds: float
    """CPU seconds of the process."""
    is_fault: bool


# --- readers, in the process of a case


def read_pairs(path: Path) -> str:
    """Read a file of pairs by its name.

    Args:
        path: The file.
    """
    from pellucid.config.settings import DataConfig
    from pellucid.data.examples import read_examples

    config = DataConfig(on_bad_line="skip", header=False)
    if path.suffix in (".parquet", ".jsonl") or path.name.endswith(".parquet.gz"):
        config = DataConfig(on_bad_line="skip", source_column="source", target_column="target")
    reading = read_examples(path, config)
    return f"{len(reading.examples):,} used, {len(reading.bad_lines):,} reported, {reading.num_blank_lines:,} blank"


def read_symbols(path: Path) -> str:
    """Read a file of pairs whose name is the kind of their target symbols; "parts" are those between semicolons.

    Args:
        path: The file.
    """
    from pellucid.config.settings import DataConfig
    from pellucid.data.examples import read_examples

    kind = ";" if path.stem == "parts" else path.stem
    reading = read_examples(path, DataConfig(on_bad_line="skip", header=False, target_symbols=kind))
    return f"{len(reading.examples):,} used, {len(reading.bad_lines):,} reported"


def read_dotted_pairs(path: Path) -> str:
    """Read a file of pairs whose sources are the column "a.b".

    Args:
        path: The file.
    """
    from pellucid.config.settings import DataConfig
    from pellucid.data.examples import read_examples

    reading = read_examples(path, DataConfig(on_bad_line="skip", source_column="a.b", target_column="target"))
    return f"{len(reading.examples):,} used, {len(reading.bad_lines):,} reported"


def read_sources(path: Path) -> str:
    """Read the sources of a file, one at a time, as `predict` does.

    Args:
        path: The file.
    """
    from pellucid.config.settings import DataConfig
    from pellucid.data.examples import read_sources as read
    from pellucid.data.readers import BadLine

    used = bad = 0
    for item in read(path, DataConfig(header=False)):
        bad, used = bad + isinstance(item, BadLine), used + (not isinstance(item, BadLine))
    return f"{used:,} used, {bad:,} reported"


def read_settings(path: Path) -> str:
    """Read a configuration.

    Args:
        path: The file.
    """
    from pellucid.config.toml import load_config

    return f"size {load_config(path).size}"


def read_vocabulary(path: Path) -> str:
    """Read a vocabulary.

    Args:
        path: The file.
    """
    from pellucid.config.settings import DataConfig
    from pellucid.data.vocabulary import load_vocabularies

    return f"{len(load_vocabularies(path, DataConfig(source_symbols='words')).source):,} ids"


def read_trace(path: Path) -> str:
    """Read a Trace.

    Args:
        path: The file.
    """
    from pellucid.decoding.trace import Trace

    return Trace.from_json(path.read_bytes()).text


def read_log(path: Path) -> str:
    """Read a log.

    Args:
        path: The log in a run folder.
    """
    from pellucid.run_folder.log import load_run_log

    log = load_run_log(path.parent)
    return f"{log.counts.total():,} records, {log.num_damaged:,} damaged"


def read_vectors(path: Path) -> str:
    """Read pretrained vectors.

    Args:
        path: The file.
    """
    from pellucid.data.vectors import read_vectors as read
    from pellucid.data.vocabulary import Vocabulary

    return f"{len(read(path, Vocabulary(('a',), (1,)), 2, 'encoder.embedding_size').ids)} found"


def load_run(path: Path) -> str:
    """Load a run folder, and predict.

    Args:
        path: The folder.
    """
    import pellucid

    return f"output of {len(pellucid.load(path).predict(['ab'])[0].output)} characters"


def read_checkpoint(path: Path) -> str:
    """Read the progress of a checkpoint.

    Args:
        path: The file.
    """
    from pellucid.run_folder.progress import read_progress

    return f"update {read_progress(path).update}"


def split_pairs(path: Path) -> str:
    """Divide a file of pairs.

    Args:
        path: The file.
    """
    from pellucid.config.settings import DataConfig
    from pellucid.data.file_split import SplitSizes, split_file

    config = DataConfig(source_column="source", target_column="target", on_bad_line="skip")
    return f"{split_file(path, config, SplitSizes(0.1), 1).num_rows}"


def split_first(path: Path) -> str:
    """Divide a file without header.

    Args:
        path: The file.
    """
    from pellucid.config.settings import DataConfig
    from pellucid.data.file_split import SplitSizes, split_file

    return f"{split_file(path, DataConfig(header=False), SplitSizes(0.1), 1).num_rows}"


def audit_rules(path: Path) -> str:
    """Apply the rules of an audit to a file of pairs.

    Args:
        path: The file.
    """
    from pellucid.auditing.rules import apply_rules
    from pellucid.auditing.types import AuditEntry
    from pellucid.config.settings import DataConfig
    from pellucid.data.examples import read_examples as read
    from pellucid.data.tokenizers import build_tokenizers

    config = DataConfig(header=False)
    reading = read(path, config)
    entries = [*map(AuditEntry, reading.line_numbers, reading.examples)]
    findings = apply_rules(entries, build_tokenizers(config))
    return f"{sum(map(len, findings.reasons)):,} reasons of {len(entries):,} rows"


def read_journal(path: Path) -> str:
    """Read the journal of a search.

    Args:
        path: The file.
    """
    from pellucid.tuning.journal import read_journal as read

    return f"{len(read(path))} entries"


def read_prepared(path: Path) -> str:
    """Read prepared data.

    Args:
        path: The folder.
    """
    import msgspec

    from pellucid.config.toml import build_config
    from pellucid.data.prepared_data import read_description
    from pellucid.data.prepared_data import read_prepared as read

    config = msgspec.structs.replace(build_config({"size": "tiny"}, "a test"), data=read_description(path).data)
    return f"{read(path, config).description.num_examples} examples"


def check_run(path: Path) -> str:
    """Compute the checksums of a run folder.

    Args:
        path: The folder.
    """
    from pellucid.run_folder.checksums import folder_checksums

    return f"{len(folder_checksums(path))} files"


def decode_request(path: Path) -> str:
    """Decode the rows of a request with the small run beside it.

    Args:
        path: The body of the request.
    """
    from pellucid.run_folder.predictor_loader import load_without_warnings
    from pellucid.serving.decoding_worker import BatchJob, ModelRunner
    from pellucid.serving.schema import PredictRequest, SourceRow

    rows = [SourceRow(source=path.read_text("utf-8"))]
    runner: Any = ModelRunner(load_without_warnings(path.parent / "run"), 1000)
    [result] = runner(BatchJob("predict", PredictRequest(rows=[]), rows, [0]), None)
    return str(result)[:150]


# --- inputs


def dotted_keys() -> bytes:
    """Return 1 MiB of TOML: keys of a thousand parts below a header of a thousand parts."""
    header = b"[" + b".".join([b"a"] * 1001) + b"]\n"
    return header + b"".join(b"b%03d" % number + b".a" * 1000 + b"=1\n" for number in range(520)) + b"[z]\n"


def split_rows() -> bytes:
    """Return pairs of which one has a target of 255 MB of short words."""
    return b"".join(b"a%d\tb c\n" % number for number in range(20)) + b"a\t" + b"ab " * 89_000_000 + b"\n"


def repeated_merges() -> bytes:
    """Return a vocabulary with one merge eight million times."""
    record = json.loads(vocabulary_text(1))
    text = json.dumps({**record, "pieces": {"source": {"alphabet": ["a", "b"], "merges": [["a", "b"]]}}})
    return text.replace('["a", "b"]]', ",".join(['["a","b"]'] * 8_000_000) + "]").encode()


def write_column_bomb(folder: Path) -> Path:
    """Write Parquet whose third column has a value of 100 MB in each row.

    Args:
        folder: The folder.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    note = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), pa.array(["x" * 10**8]))
    columns = {"source": [f"a{number}" for number in range(10_000)], "target": ["b"] * 10_000, "note": note}
    pq.write_table(pa.table(columns), folder / "bomb.parquet", compression="zstd")
    return folder / "bomb.parquet"


def write_path_bomb(folder: Path) -> Path:
    """Write Parquet with a value of 100 MB in each row of a column, whose path is also that of a small field.

    Args:
        folder: The folder.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = pa.array([0] * 10_000, pa.int32())
    source, small = pa.DictionaryArray.from_arrays(numbers, pa.array(["x" * 10**8])), pa.array(["x"] * 10_000)
    columns = {"a.b": source, "target": ["b"] * 10_000, "a": pa.StructArray.from_arrays([small], names=["b"])}
    pq.write_table(pa.table(columns), folder / "bomb.parquet", compression="zstd")
    return folder / "bomb.parquet"


def write_prepared_pipe(folder: Path) -> Path:
    """Write prepared data whose validation set is a named pipe.

    Args:
        folder: The folder.
    """
    from pellucid.config.toml import build_config
    from pellucid.training.preparation import prepare_data
    from pellucid.training.training_data import TrainingFiles

    (folder / "train.tsv").write_text("".join(f"a{number}\tb\n" for number in range(40)))
    path = folder / "prepared"
    list(prepare_data(TrainingFiles(folder / "train.tsv", None), path, build_config({"size": "tiny"}, "a test")))
    (path / "validation.jsonl").unlink()
    os.mkfifo(path / "validation.jsonl")
    return path


def write_marks(folder: Path) -> Path:
    """Write a text of 0.95 MB of combining marks beside the small run.

    Args:
        folder: The folder.
    """
    from benchmarks.fuzz_seeds import train_seed_run

    train_seed_run(folder)
    (folder / "body.txt").write_text("a" + "\u0301\u0323" * 240_000, "utf-8")
    return folder / "body.txt"


def extend_model(run: Path) -> None:
    """Make the model of a run a sparse file of 8 EiB.

    Args:
        run: The run folder.
    """
    size = 2**63 - 2**12
    while size:
        try:
            return os.truncate(run / "model.safetensors", size)
        except OSError:  # the file system has a lower limit
            size //= 2


def gzip_bomb(name: str, content: bytes, count: int) -> Callable[[Path], Path]:
    """Return a function that writes a gzip file of a repeated content.

    Args:
        name: Name of the file.
        content: The content.
        count: Number of repetitions.
    """

    def write(folder: Path) -> Path:
        member = gzip.compress(content * max(1, 2**26 // len(content)))  # a file may have many members
        (folder / name).write_bytes(member * (count * len(content) // 2**26))
        return folder / name

    return write


def parquet_bomb(options: dict[str, Any], length: int, rows: int, name: str = "bomb.parquet") -> Callable[[Path], Path]:
    """Return a function that writes Parquet with one long value in many rows.

    Args:
        options: Options of `write_table`.
        length: Length of the value, in bytes.
        rows: Number of rows.
        name: Name of the file.
    """

    def write(folder: Path) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        values = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["a" * length]))
        table = pa.table({"source": values, "target": pa.array(["b"] * rows)})
        if not options.get("use_dictionary", True):
            table = table.set_column(0, "source", values.cast(pa.large_string()))
        pq.write_table(table, folder / "plain.parquet", **options)
        if name.endswith(".gz"):
            with gzip.open(folder / name, "wb", compresslevel=1) as file:
                file.write((folder / "plain.parquet").read_bytes())
            return folder / name
        return (folder / "plain.parquet").rename(folder / name)

    return write


def long_line(name: str, size: int, start: bytes = b"", end: bytes = b"\n") -> Callable[[Path], Path]:
    """Return a function that writes a file with one line.

    Args:
        name: Name of the file.
        size: Size of the line, in bytes.
        start: Beginning of the line.
        end: End of the line.
    """

    def write(folder: Path) -> Path:
        with (folder / name).open("wb") as file:
            file.write(start)
            for _ in range(size // 2**20):
                file.write(b"a" * 2**20)
            file.write(end)
        return folder / name

    return write


def plain_file(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    """Return a function that writes a file.

    Args:
        name: Name of the file.
        content: Function that returns the content.
    """

    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content())
        return folder / name

    return write


def vocabulary_text(count: int, symbol: Callable[[int], str] = str) -> bytes:
    """Return a vocabulary of many symbols as JSON.

    Args:
        count: Number of source symbols.
        symbol: Function that returns the text of a symbol.
    """
    empty: dict[str, Any] = {"symbols": [], "counts": []}
    source = {"symbols": [symbol(number) for number in range(count)], "counts": [1] * count}
    record = {"source": source, "target": empty, "features": empty, "longest_source": 1, "longest_target": 1}
    return json.dumps(record).encode()


def tensor_header(fields: dict[str, Any], length: int | None = None, data: bytes = b"") -> bytes:
    """Return a safetensors file with any header.

    Args:
        fields: Content of the header.
        length: Length in the first eight bytes; None for the right one.
        data: Bytes after the header.
    """
    header = json.dumps(fields).encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


TENSOR = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
PROGRESS = {"__metadata__": {"format": "3", "progress": "{}"}}


def in_run(change: Callable[[Path], None]) -> Callable[[Path], Path]:
    """Return a function that copies the small run and changes it.

    Args:
        change: Function that changes the run folder.
    """

    def write(folder: Path) -> Path:
        from benchmarks.fuzz_seeds import train_seed_run

        run = train_seed_run(folder)
        change(run)
        return run

    return write


def replace_file(name: str, content: bytes) -> Callable[[Path], Path]:
    """Return a function that replaces a file of the small run.

    Args:
        name: Name of the file.
        content: New content.
    """

    def change(run: Path) -> None:
        (run / name).write_bytes(content)

    return in_run(change)


def replace_by_link(name: str, target: str) -> Callable[[Path], Path]:
    """Return a function that replaces a file of the small run by a symbolic link.

    Args:
        name: Name of the file.
        target: Target of the link.
    """

    def change(run: Path) -> None:
        (run / name).unlink()
        (run / name).symlink_to(target)

    return in_run(change)


def replace_by_pipe(run: Path) -> None:
    """Replace the vocabulary of a run by a named pipe.

    Args:
        run: The run folder.
    """
    (run / "vocabulary.json").unlink()
    os.mkfifo(run / "vocabulary.json")


class _Executed:
    """Object whose unpickling would create a file."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        """Return the call that unpickling would make."""
        return os.system, (f"touch {MARKER}",)


def zip_model(run: Path) -> None:
    """Replace the model by a zip file with a pickle, as PyTorch writes it.

    Args:
        run: The run folder.
    """
    with zipfile.ZipFile(run / "model.safetensors", "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(_Executed()))


def torn_log() -> bytes:
    """Return a log of 120 MiB whose lines are records, halves of records, and bytes."""
    record = b'{"event": "stepped", "update": 1, "samples": 1, "seconds": 1.0, "loss": 1.0}\n'
    return (record + record[:40] + b"\n" + b"\xff\0" * 20 + b"\n") * (120 * 2**20 // (len(record) + 83))


LINE_MIB, BOMB_MIB = 1600, 2200
CASES: dict[str, HostileInput] = {
    "empty file (baseline of readers)": HostileInput(plain_file("empty.tsv", bytes), "read_pairs", 64),
    "gzip, 10 GB of one line": HostileInput(gzip_bomb("bomb.tsv.gz", b"a", 10**10), "read_pairs", LINE_MIB),
    "gzip, 2 GB of blank lines, predict": HostileInput(
        gzip_bomb("bomb.tsv.gz", b" " * 4095 + b"\n", 2 * 10**9 // 4096), "read_sources", 64
    ),
    "gzip of gzip": HostileInput(
        plain_file("bomb.tsv.gz", lambda: gzip.compress(gzip.compress(b"a" * 10**8))), "read_pairs", 128
    ),
    "1 GB line, TSV": HostileInput(long_line("line.tsv", 10**9, b"ab\t"), "read_pairs", LINE_MIB),
    "1 GB line, JSON": HostileInput(
        long_line("line.jsonl", 10**9, b'{"source": "a", "target": "', b'"}\n'), "read_pairs", LINE_MIB
    ),
    "1 GB in an open quote, CSV": HostileInput(long_line("line.csv", 10**9, b'ab,"'), "read_pairs", LINE_MIB),
    "255 MB line, TSV": HostileInput(long_line("line.tsv", 255 * 2**20, b"ab\t"), "read_pairs", BOMB_MIB),
    "255 MB line, JSON": HostileInput(
        long_line("line.jsonl", 255 * 2**20, b'{"source": "a", "target": "', b'"}\n'), "read_pairs", BOMB_MIB
    ),
    "255 MB field, CSV": HostileInput(long_line("line.csv", 255 * 2**20, b'ab,"', b'"\n'), "read_pairs", BOMB_MIB),
    "Parquet, 100 MB value 10,000 times": HostileInput(
        parquet_bomb({"compression": "zstd"}, 10**8, 10_000), "read_pairs", BOMB_MIB
    ),
    "Parquet, 1 MB value 1,000 times, plain": HostileInput(
        parquet_bomb({"compression": "zstd", "use_dictionary": False}, 10**6, 1000), "read_pairs", BOMB_MIB
    ),
    "Parquet in gzip, 1 GB": HostileInput(
        parquet_bomb({"compression": "none", "use_dictionary": False}, 10**6, 1000, "bomb.parquet.gz"),
        "read_pairs",
        700,
    ),
    "JSON lines, nested 100,000 deep": HostileInput(
        plain_file(
            "deep.jsonl", lambda: b'{"source": "a", "target": "b", "x": ' + b"[" * 10**5 + b"]" * 10**5 + b"}\n"
        ),
        "read_pairs",
        64,
    ),
    "TOML, lists 100,000 deep": HostileInput(
        plain_file("deep.toml", lambda: b"a = " + b"[" * 10**5), "read_settings", 64
    ),
    "TOML, tables 1,000 deep": HostileInput(
        plain_file("deep.toml", lambda: b"\n".join(b"[" + b".".join([b"a%d" % n] * 1000) + b"]" for n in range(20))),
        "read_settings",
        512,
    ),
    "TOML, a number of a million digits": HostileInput(
        plain_file("digits.toml", lambda: b"seed = " + b"9" * 10**6), "read_settings", 256
    ),
    "vocabulary of 10,000,000 words": HostileInput(
        plain_file("vocabulary.json", lambda: vocabulary_text(10**7)), "read_vocabulary", 5000, 120.0
    ),
    "vocabulary, nested 100,000 deep": HostileInput(
        plain_file("vocabulary.json", lambda: b'{"source": ' + b"[" * 10**5), "read_vocabulary", 64
    ),
    "vocabulary, a symbol of 900 MB": HostileInput(
        long_line("vocabulary.json", 900 * 2**20, b'{"source": {"symbols": ["', b'"], "counts": [1]}}'),
        "read_vocabulary",
        4000,
    ),
    "Trace, nested 100,000 deep": HostileInput(
        plain_file("trace.json", lambda: b'{"x": ' + b"[" * 10**5 + b"]" * 10**5), "read_trace", 64
    ),
    "vectors, 255 MB line": HostileInput(long_line("vectors.txt", 255 * 2**20, b"a 1 "), "read_vectors", BOMB_MIB),
    "vectors, 13 million fields in a line": HostileInput(
        plain_file("vectors.txt", lambda: b"a" + b" 1" * 13_000_000), "read_vectors", BOMB_MIB
    ),
    "combining marks, a line of 4 MB": HostileInput(
        plain_file("marks.tsv", lambda: ("a" + "\u0301\u0323" * 10**6).encode() + b"\tb\n"), "read_pairs", 128
    ),
    "marks that decompose (U+0F73), a line of 3 MB": HostileInput(
        plain_file("marks.tsv", lambda: ("a" + "\u0f73" * 10**6).encode() + b"\tb\n"), "read_pairs", 128
    ),
    "run, a request with 0.95 MB of combining marks": HostileInput(write_marks, "decode_request", 128, 30.0),
    "255 MB of short cells, TSV": HostileInput(
        plain_file("cells.tsv", lambda: b"ab\t" * 89_000_000 + b"ab\n"), "read_pairs", BOMB_MIB
    ),
    "255 MB of short cells, CSV": HostileInput(
        plain_file("cells.csv", lambda: b"ab," * 89_000_000 + b"ab\n"), "read_pairs", BOMB_MIB
    ),
    "255 MB of semicolons between short cells, CSV": HostileInput(
        plain_file("cells.csv", lambda: b"ab;" * 89_000_000 + b"ab\n"), "read_pairs", BOMB_MIB, 120.0
    ),
    "255 MB of short symbols, words": HostileInput(
        plain_file("words.tsv", lambda: b"a\t" + b"ab " * 89_000_000 + b"\n"), "read_symbols", BOMB_MIB
    ),
    "255 MB of short symbols, a separator": HostileInput(
        plain_file("parts.tsv", lambda: b"a\t" + b"ab;" * 89_000_000 + b"\n"), "read_symbols", BOMB_MIB
    ),
    "64 MB of short symbols, IPA": HostileInput(
        plain_file("ipa.tsv", lambda: b"a\t" + b"ab " * 22_000_000 + b"\n"), "read_symbols", 600, 120.0
    ),
    "255 MB of short symbols, split": HostileInput(plain_file("words.tsv", split_rows), "split_first", BOMB_MIB),
    "one key 44 million times, JSON": HostileInput(
        plain_file("keys.jsonl", lambda: b"{" + b'"a":0,' * 44_000_000 + b'"a":0}\n'), "read_pairs", BOMB_MIB
    ),
    "similar keys, 100 MB, JSON": HostileInput(
        plain_file("keys.jsonl", lambda: b"{" + b",".join(b'"sourc%d":0' % n for n in range(7_000_000)) + b"}\n"),
        "read_pairs",
        BOMB_MIB,
    ),
    "gzip, 33 million short bad lines": HostileInput(
        plain_file("bad.tsv.gz", lambda: gzip.compress(b"a\n" * 33_000_000)), "read_pairs", 512
    ),
    "gzip, 16 million short pairs": HostileInput(
        plain_file("pairs.tsv.gz", lambda: gzip.compress(b"a\tb\n" * 16_000_000)), "read_pairs", 4500, 180.0
    ),
    "Parquet, pages of 2 GB": HostileInput(
        parquet_bomb({"compression": "zstd", "use_dictionary": False, "data_page_size": 2**31 - 1}, 10**6, 1900),
        "read_pairs",
        2 * BOMB_MIB,
    ),
    "Parquet, a bomb with the path of a field": HostileInput(write_path_bomb, "read_dotted_pairs", BOMB_MIB),
    "Parquet, a bomb in another column, split": HostileInput(write_column_bomb, "split_pairs", BOMB_MIB),
    "TOML, keys of 1,000 parts below such a header": HostileInput(
        plain_file("dots.toml", dotted_keys), "read_settings", 128
    ),
    "vocabulary, 100 MB of empty lists": HostileInput(
        plain_file("vocabulary.json", lambda: b'{"x": [' + b"[]," * 33_000_000 + b"[]]}"), "read_vocabulary", 256
    ),
    "vocabulary, one merge 8 million times": HostileInput(
        plain_file("vocabulary.json", repeated_merges), "read_vocabulary", 2500
    ),
    "journal, 100 MB of empty lists": HostileInput(
        plain_file("study.journal", lambda: b'{"op_code": 0, "x": [' + b"[]," * 33_000_000 + b"[]]}\n"),
        "read_journal",
        256,
    ),
    "vectors, 255 MB of short fields": HostileInput(
        plain_file("vectors.txt", lambda: b"w" + b" 12" * 89_000_000), "read_vectors", BOMB_MIB
    ),
    "audit, 50,000 equal rows": HostileInput(
        plain_file("equal.tsv", lambda: b"a\tb\n" * 50_000 + b"c\td\n"), "audit_rules", 256
    ),
    "prepared data, the validation set is a named pipe": HostileInput(write_prepared_pipe, "read_prepared", 256),
    "log of torn lines, 120 MB": HostileInput(plain_file("log.jsonl", torn_log), "read_log", 128),
    "log, one line of 100 MB": HostileInput(long_line("log.jsonl", 100 * 2**20), "read_log", 64),
    "log of 200 MB": HostileInput(long_line("log.jsonl", 200 * 2**20), "read_log", 64),
    "checkpoint, header of 2^63 bytes": HostileInput(
        plain_file("training.safetensors", lambda: tensor_header(PROGRESS, 2**63)), "read_checkpoint", 64
    ),
    "checkpoint, header of 16 MiB of tensors": HostileInput(
        plain_file(
            "training.safetensors", lambda: tensor_header({**PROGRESS, **{f"t{n}": TENSOR for n in range(200_000)}})
        ),
        "read_checkpoint",
        512,
    ),
    "checkpoint, header nested 100,000 deep": HostileInput(
        plain_file(
            "training.safetensors",
            lambda: (200_006).to_bytes(8, "little") + b'{"a": ' + b"[" * 10**5 + b"]" * 10**5,
        ),
        "read_checkpoint",
        64,
    ),
    "checkpoint, progress nested 100,000 deep": HostileInput(
        plain_file(
            "training.safetensors",
            lambda: tensor_header({"__metadata__": {"format": "3", "progress": "[" * 10**5}}),
        ),
        "read_checkpoint",
        64,
    ),
    "run (baseline of run folders)": HostileInput(in_run(lambda run: None), "load_run", 64),
    "run, model with negative offsets": HostileInput(
        replace_file("model.safetensors", tensor_header({"a": {**TENSOR, "data_offsets": [-16, 0]}})), "load_run", 64
    ),
    "run, model with a shape of 2^60 numbers": HostileInput(
        replace_file("model.safetensors", tensor_header({"a": {**TENSOR, "shape": [2**30, 2**30]}})), "load_run", 64
    ),
    "run, model with overlapping tensors": HostileInput(
        replace_file("model.safetensors", tensor_header({"a": TENSOR, "b": TENSOR}, data=bytes(16))), "load_run", 64
    ),
    "run, model is a link to /dev/zero": HostileInput(
        replace_by_link("model.safetensors", "/dev/zero"), "load_run", 64
    ),
    "run, vocabulary is a link to /dev/urandom": HostileInput(
        replace_by_link("vocabulary.json", "/dev/urandom"), "load_run", 64
    ),
    "run, a sparse model of 8 EiB, check": HostileInput(in_run(extend_model), "check_run", 64),
    "run, config is a link to itself": HostileInput(replace_by_link("config.toml", "config.toml"), "load_run", 64),
    "run, vocabulary is a named pipe": HostileInput(in_run(replace_by_pipe), "load_run", 64),
    "run, model is a zip with a pickle": HostileInput(in_run(zip_model), "load_run", 64),
    "run, model is a pickle": HostileInput(
        replace_file("model.safetensors", pickle.dumps(_Executed())), "load_run", 64
    ),
}


def run_case(name: str, folder: Path, baseline: float) -> Measurement:
    """Write a case, read it in a new process, and return the outcome.

    Args:
        name: Name of the case.
        folder: Empty folder.
        baseline: Memory of the process without a file, in MiB.
    """
    case = CASES[name]
    path = case.write(folder)
    MARKER.unlink(missing_ok=True)
    started = _cpu_seconds_of_children()
    command = [sys.executable, __file__, "--read", case.read, str(path)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        outcome = result.stderr.strip()[-600:] or f"exit code {result.returncode}" if result.returncode else ""
    except subprocess.TimeoutExpired:
        result, outcome = None, f"more than {SECONDS} seconds"
    seconds = _cpu_seconds_of_children() - started
    if result is None or outcome:
        return Measurement(outcome, 0.0, seconds, is_fault=True)
    text, _, memory = result.stdout.strip().rpartition("\n")
    growth = float(memory) - baseline
    is_fault = MARKER.exists() or growth > case.max_memory or seconds > case.max_seconds
    return Measurement(text, growth, seconds, is_fault)


def _cpu_seconds_of_children() -> float:
    """Return the CPU time of all ended child processes; other programs change the time of the clock, and not this."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def read_in_process(reader: str, path: Path) -> None:
    """Call a reader; print the outcome, and the largest memory of this process in MiB.

    Args:
        reader: Name of the function.
        path: The file or folder.
    """
    from pellucid.errors import InputError

    try:
        outcome = f"read: {globals()[reader](path)}"
    except InputError as error:
        text = str(error).replace(str(path.parent), "…")
        outcome = f"refused: {text[:160]}"
    # `getrusage` would give the memory of the process that started this one, if that is larger.
    peak = Path("/proc/self/status").read_text("ascii").partition("VmHWM:")[2].split()[0]
    print(f"{outcome}\n{int(peak) / 1024}")


def main() -> None:
    """Measure the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="parent of the temporary folders")
    parser.add_argument("--cases", nargs="+", default=[*CASES], help="beginnings of names")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--read", nargs=2, metavar=("READER", "PATH"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        return read_in_process(args.read[0], Path(args.read[1]))
    names = [name for name in CASES if name.startswith(tuple(args.cases))]
    if unknown := [case for case in args.cases if not any(name.startswith(case) for name in CASES)]:
        parser.error(f"no case begins with {unknown[0]!r}: --list prints their names")
    if args.list:
        return print("\n".join(names))
    baselines, faults = dict[bool, float](), 0
    for name in names:
        is_run = name.startswith("run")
        if is_run not in baselines:
            baseline = next(each for each in CASES if each.startswith("run (" if is_run else "empty"))
            with tempfile.TemporaryDirectory(dir=args.folder) as folder:
                baselines[is_run] = run_case(baseline, Path(folder), 0).memory
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            result = run_case(name, Path(folder), baselines[is_run])
        faults += result.is_fault
        mark = "**fault** " if result.is_fault else ""
        print(
            f"| {name} | {mark}{result.outcome} | {max(0, round(result.memory)):,} | {result.seconds:.1f} |", flush=True
        )
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
