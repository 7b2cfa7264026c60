"""Snapshots: outputs of a few validation examples and the embeddings at each validation, in the run folder.

Each snapshot is one safetensors file, named by the validation and the update: snapshots/000012-00001234.safetensors.
N symbols, E embedding, T target positions, S source positions, C candidates per step.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
import safetensors.numpy
from msgspec import Meta

from pellucid.argument_checks import check_arguments
from pellucid.config.settings import TargetEmbedding
from pellucid.data.vocabulary import NUM_SPECIAL, Vocabulary
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import DECIMALS, encode_json
from pellucid.errors import RunError, abbreviate_reason, quote
from pellucid.files import (
    check_folder,
    decode_json,
    file_exists,
    remove_files,
    remove_temporaries,
    sync_folder,
    wrap_os_errors,
    write_atomic,
)
from pellucid.inspection.distributions import entropy, step_distributions
from pellucid.model.embedding import Embedding
from pellucid.model.network import EncoderDecoder
from pellucid.run_folder.advice import REMOVE_SNAPSHOT, add_advice
from pellucid.run_folder.identity import read_identity
from pellucid.run_folder.run_files import FILES, SNAPSHOTS, load_run_config
from pellucid.run_folder.tensor_file import TensorFile, open_tensors
from pellucid.shapes import Float

SNAPSHOT_FORMAT: Literal[2] = 2
NAME_PATTERN = re.compile(r"[0-9]+-[0-9]+\.safetensors")
"""Name of a snapshot: the number of the validation, and the update."""
NUM_PROBES = 4
"""Number of validation examples whose outputs are saved: the first ones, except empty outputs."""
MAX_SYMBOLS = 200
"""Maximum number of embeddings saved for each of source and target, of the most frequent symbols."""
SIDES = ("source", "target")
MAX_FLOAT16 = float(np.finfo(np.float16).max)
MAX_SNAPSHOTS = 200
"""Approximate number of snapshots kept; beyond it every second one is removed."""
MAX_TOTAL_SIZE = 2**27
"""Maximum bytes of the snapshots that are read together."""


class SnapshotMetadata(msgspec.Struct, frozen=True):
    """JSON metadata of a snapshot file: format, checksum, and the traces of the probe examples."""

    format: Literal[2]
    sha256: str
    """Checksum of the tensors and the traces."""
    traces: msgspec.Raw
    """`Traces`, as they are written: the checksum is of these bytes."""
    fingerprint: str = ""
    """Hash of the settings and the data of the training; empty in files of earlier versions."""


Traces = Annotated[tuple[msgspec.Raw, ...], Meta(max_length=NUM_PROBES)]
"""Traces in JSON."""


class TrainingSnapshot(NamedTuple):
    """Outputs of a few validation examples and embeddings of the model at one validation."""

    update: int
    """Number of updates at the validation."""
    traces: list[Trace]
    """Traces of at most `NUM_PROBES` validation examples."""
    entropies: list[Float[np.ndarray, " T"]]
    """Entropy of the next-symbol distribution at each step of each trace, in bits; EOS is a step."""
    source: Float[np.ndarray, "N E"]
    """Embeddings of the most frequent source symbols, most frequent first; no columns (E = 0) for one-hot symbols."""
    target: Float[np.ndarray, "N E"]
    """Embeddings of target symbols in the same way; no columns either where outputs are not fed back."""


class SnapshotNumber(NamedTuple):
    """Number of a validation, and its update, which name a snapshot file."""

    validation: int
    update: int


def save_snapshot(
    folder: Path, predictor: Predictor, traces: Sequence[Trace], number: SnapshotNumber, fingerprint: str = ""
) -> None:
    """Write a snapshot into the folder of snapshots, which is created if it is missing.

    Args:
        folder: Run folder.
        predictor: The current model.
        traces: Traces of the validation examples in order; the first `NUM_PROBES` are saved, except those without
            output.
        number: Number of the validation, and the update.
        fingerprint: Hash of the settings and the data of the training; empty if there is none.

    Raises:
        RunError: The file cannot be written.
    """
    probes = [trace for trace in traces[:NUM_PROBES] if trace.target]
    entropies = [entropy(distributions) for distributions in step_distributions(predictor, probes)]
    network, vocabularies, config = predictor.network, predictor.vocabularies, predictor.config
    source = _embeddings(network.encoder.table, config.encoder.embedding, vocabularies.source)
    if isinstance(network, EncoderDecoder):
        target = _embeddings(network.decoder.table, config.decoder.embedding, vocabularies.target)
    else:  # labels that are not fed back have no embeddings
        target = np.zeros((min(len(vocabularies.target.symbols), MAX_SYMBOLS), 0), np.float16)
    tensors = {"source": source, "target": target}
    for row, bits in enumerate(entropies):
        tensors[f"entropy {row}"] = np.ascontiguousarray(bits, np.float32)
    # One metadata field, since safetensors writes several in any order: equal snapshots have equal bytes.
    encoded_traces = encode_json([_rounded(trace).to_record(compact=True) for trace in probes])
    notes = SnapshotMetadata(
        SNAPSHOT_FORMAT, _digest(tensors, encoded_traces), msgspec.Raw(encoded_traces), fingerprint
    )
    _make_snapshots_folder(folder)
    path = folder / SNAPSHOTS / f"{number.validation:06}-{number.update:08}.safetensors"
    write_atomic(path, safetensors.numpy.save(tensors, {"snapshot": encode_json(notes).decode("utf-8")}))


def _make_snapshots_folder(folder: Path) -> None:
    """Create the folder of the snapshots, but not the run folder, which must not come back if it was removed."""
    path = folder / SNAPSHOTS
    with wrap_os_errors("create", path):
        if not path.is_dir():
            check_folder(path)
            path.mkdir()
            sync_folder(folder)


def remove_run_temporaries(folder: Path) -> None:
    """Remove the temporary files that a killed training left in a run folder and its snapshots.

    Args:
        folder: Run folder, to which no training writes; it need not exist.

    Raises:
        RunError: A file cannot be removed.
    """
    remove_temporaries(folder, FILES.__contains__)
    remove_temporaries(folder / SNAPSHOTS, NAME_PATTERN.fullmatch)


def remove_later_snapshots(folder: Path, last: SnapshotNumber) -> None:
    """Remove the snapshots of later validations or updates, and temporary files of a killed process.

    Args:
        folder: Run folder.
        last: Last validation and last update whose snapshots are kept.

    Raises:
        RunError: A file cannot be removed, or the folder of snapshots is a file.
    """
    remove_temporaries(folder / SNAPSHOTS, NAME_PATTERN.fullmatch)
    numbered = [(path.name, _snapshot_number(path)) for path in _paths(folder)]
    later = [name for name, number in numbered if number.update > last.update or number.validation > last.validation]
    remove_files(folder / SNAPSHOTS, later)


def thin_snapshots(folder: Path, validation: int) -> None:
    """Remove snapshots until at most `MAX_SNAPSHOTS` evenly spaced ones remain, and the last one.

    The remaining ones are of validations divisible by the smallest sufficient power of two. They depend only on the
    number of the last validation, so an interrupted training keeps the same snapshots.

    Args:
        folder: Run folder.
        validation: Number of the last validation, from 1.

    Raises:
        RunError: A file cannot be removed, or the folder of snapshots is a file.
    """
    step = 1
    while validation // step >= MAX_SNAPSHOTS:
        step *= 2
    numbered = [(path.name, _snapshot_number(path).validation) for path in _paths(folder)]
    remove_files(folder / SNAPSHOTS, [name for name, number in numbered if number % step and number != validation])


class TableSizes(NamedTuple):
    """Maximum sizes of the tables of embeddings in the snapshots of a run, which bound memory and time."""

    source: tuple[int, int]
    """Number of symbols, and columns."""
    target: tuple[int, int]

    def check(self, stored: TensorFile, num_steps: Sequence[int]) -> None:
        """Check the tensors in the header of a snapshot, before one is read.

        Args:
            stored: Snapshot.
            num_steps: Length of the output of each of its traces.

        Raises:
            RunError: A tensor has another type than a training writes, or a larger shape.
        """
        path, traces = stored.path, {f"entropy {row}": (length,) for row, length in enumerate(num_steps)}
        for name, info in stored.tensors.items():
            if info.dtype not in ("F16", "F32"):
                raise RunError(f"{path} is not a snapshot: it holds {name} as {info.dtype}; expected F16 or F32")
            largest = self._asdict().get(name) or traces.get(name)
            if largest is None:
                raise RunError(f"{path} is not a snapshot: it holds a tensor {quote(name)}")
            if len(info.shape) != len(largest) or any(
                size > limit for size, limit in zip(info.shape, largest, strict=True)
            ):
                raise RunError(
                    f"{path} is not a snapshot of this run: {name} has the shape {list(info.shape)}; expected at most "
                    f"{list(largest)}"
                )


def _table_sizes(folder: Path) -> TableSizes:
    """Return the maximum sizes of the tables of a run, by its settings."""
    config = load_run_config(folder)
    source, target = (
        (MAX_SYMBOLS, 0 if side.embedding == "one-hot" else side.embedding_size)
        for side in (config.encoder, config.decoder)
    )
    return TableSizes(source=source, target=target)


@check_arguments
def check_snapshots(folder: str | Path, fingerprint: str = "") -> None:
    """Read all snapshots of a run, before it is resumed, to find damaged ones.

    Args:
        folder: Run folder.
        fingerprint: Hash of the settings and the data of the training; empty for no comparison.

    Raises:
        RunError: A snapshot is damaged or of another training (the message asks to remove it), or the folder of
            snapshots is a file.
    """
    folder = Path(folder)
    paths = _paths(folder)
    if not paths:
        return
    sizes = _table_sizes(folder)
    for path in paths:
        try:
            _read(path, fingerprint, sizes)
        except RunError as error:
            raise RunError(f"{error}; remove this file to resume without it") from error


@check_arguments
def read_snapshots(folder: str | Path, after_update: int = -1) -> list[TrainingSnapshot]:
    """Return the snapshots of a run in order of their validations; a snapshot removed meanwhile is left out.

    If there are more than twice as many files as a training keeps, or they have more than `MAX_TOTAL_SIZE` bytes
    together, evenly spaced ones and the last one are read (see `describe_omitted_snapshots`).

    Args:
        folder: Run folder, also of a running training; without snapshots the list is empty.
        after_update: Only snapshots later than this update are read; -1 for all.

    Raises:
        RunError: A snapshot is damaged or of another training than the model, or its embeddings have other shapes than
            those of the first one read; or the folder of snapshots is a file.
        ConfigError: The saved configuration is not valid.
    """
    folder = Path(folder)
    result, fingerprint, paths = [], read_identity(folder).fingerprint, _paths_to_read(folder)
    if not paths:
        return []
    sizes = _table_sizes(folder)
    for path in paths:
        if _snapshot_number(path).update > after_update:
            try:
                with add_advice(REMOVE_SNAPSHOT):
                    result.append(_read(path, fingerprint, sizes))
            except RunError:
                if file_exists(path):
                    raise
                continue
            if (result[-1].source.shape, result[-1].target.shape) != (result[0].source.shape, result[0].target.shape):
                reason = "is not a snapshot of the same run as those before it: it has other sizes"
                raise RunError(f"{path} {reason}; {REMOVE_SNAPSHOT}")
    return result


def describe_omitted_snapshots(folder: Path) -> list[str]:
    """Return a list of one sentence with the number of snapshots that `read_snapshots` leaves out, or an empty list.

    Args:
        folder: Run folder.

    Raises:
        RunError: The folder of snapshots is a file.
    """
    num_files, num_read = len(_paths(folder)), len(_paths_to_read(folder))
    if num_read == num_files:
        return []
    return [f"{folder / SNAPSHOTS}: {num_files - num_read:,} of {num_files:,} snapshots left out: they are too many"]


def _paths_to_read(folder: Path) -> list[Path]:
    """Return the snapshot files: at most twice as many as a training keeps, with at most `MAX_TOTAL_SIZE` bytes."""
    paths, step = _paths(folder), 1
    sizes = [_file_size(path) for path in paths]
    # A training keeps one file more, and has not yet removed the others at the moment of a validation.
    while len(paths[::step]) > 2 * MAX_SNAPSHOTS or (step < len(paths) and sum(sizes[::step]) > MAX_TOTAL_SIZE):
        step *= 2
    kept = paths[::step]
    return kept if kept[-1:] == paths[-1:] else [*kept, paths[-1]]


def _file_size(path: Path) -> int:
    """Return the size of a file, or of the file to which a link leads; 0 if it is missing, which reading reports."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _read(path: Path, fingerprint: str, sizes: TableSizes) -> TrainingSnapshot:
    """Read one snapshot file; `fingerprint` is that of the training, or empty for no comparison."""
    with open_tensors(path) as stored:
        with _refuse_invalid(path):
            notes = decode_json(stored.metadata["snapshot"].encode(), SnapshotMetadata)
            traces = [Trace.from_json(bytes(text)) for text in msgspec.json.decode(notes.traces, type=Traces)]
        sizes.check(stored, [len(trace.target) for trace in traces])
        content = stored.content()
    with _refuse_invalid(path):
        arrays = safetensors.numpy.load(content)
        tensors = {name: _finite(name, values) for name, values in arrays.items()}
        shapes = [(f"entropy {row}", (len(trace.target),)) for row, trace in enumerate(traces)]
        entropies = [_tensor_of_shape(tensors, name, shape) for name, shape in shapes]
        source, target = (_tensor_of_shape(tensors, name, (-1, -1)) for name in SIDES)
        if _digest(arrays, bytes(notes.traces)) != notes.sha256:
            raise ValueError("its content does not match its checksum (sha256)")
    if fingerprint and notes.fingerprint not in ("", fingerprint):
        raise RunError(f"{path} is of a training with other data or settings (fingerprint)")
    return TrainingSnapshot(_snapshot_number(path).update, traces, entropies, source, target)


@contextmanager
def _refuse_invalid(path: Path) -> Iterator[None]:
    """Convert an error of decoding inside the block to a `RunError`."""
    try:
        yield
    except (safetensors.SafetensorError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        raise RunError(f"{path} is not a snapshot of this version of Pellucid: {abbreviate_reason(error)}") from error


def _digest(tensors: Mapping[str, np.ndarray], traces: bytes) -> str:
    """Return the checksum of a snapshot."""
    digest = hashlib.sha256(traces)
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].shape}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()


def _finite(name: str, values: np.ndarray) -> Float[np.ndarray, "..."]:
    """Return the values, with overflows of float16 replaced by its largest number."""
    if np.isnan(values).any():
        raise ValueError(f"{name} holds NaN")
    return np.clip(values.astype(np.float32), -MAX_FLOAT16, MAX_FLOAT16)


def _tensor_of_shape(tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a tensor of a shape, where -1 is any size; `ValueError` for another shape."""
    values = tensors[name]
    sizes = zip(shape, values.shape, strict=False)
    if values.ndim != len(shape) or any(expected not in (-1, size) for expected, size in sizes):
        raise ValueError(f"{name} has the shape {list(values.shape)}")
    return values


def _paths(folder: Path) -> list[Path]:
    """Return the snapshot files in the order of their updates; `RunError` if their folder is another file."""
    if file_exists(folder / SNAPSHOTS) and not (folder / SNAPSHOTS).is_dir():
        raise RunError(f"{folder / SNAPSHOTS} is not a folder, but snapshots of the training belong there: remove it")
    paths = (folder / SNAPSHOTS).glob("*.safetensors")
    return sorted((path for path in paths if NAME_PATTERN.fullmatch(path.name)), key=_snapshot_number)


def _snapshot_number(path: Path) -> SnapshotNumber:
    """Return the validation and the update in a file name."""
    validation, update = path.stem.split("-")
    return SnapshotNumber(int(validation), int(update))


def _embeddings(table: Embedding, kind: TargetEmbedding, vocabulary: Vocabulary) -> Float[np.ndarray, "N E"]:
    """Return the embeddings of the most frequent symbols; no columns for one-hot symbols."""
    stop = NUM_SPECIAL + min(len(vocabulary.symbols), MAX_SYMBOLS)
    weights = table.weight.detach()[NUM_SPECIAL:stop].float().cpu().numpy()
    if kind == "one-hot":
        weights = weights[:, :0]
    return np.ascontiguousarray(weights.clip(-MAX_FLOAT16, MAX_FLOAT16), np.float16)


def _rounded(trace: Trace) -> Trace:
    """Return a trace with rounded numbers, and without head and hop weights.

    Different processes decode the same outputs, but may differ in the last digits; snapshots are equal bytes.
    """
    score = trace.search_score
    return replace(
        trace,
        log_probabilities=np.round(trace.log_probabilities, DECIMALS),
        attention=trace.attention.astype(np.float16).astype(np.float32),
        search_score=None if score is None else round(score, DECIMALS),
        heads=None,
        hop_weights=None,
    )
