"""Checkpoints: parameters, optimizer moments and training progress in one safetensors file.

One file is either complete or absent, and reading it runs no code.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import msgspec
import safetensors
import safetensors.torch
import torch
from msgspec import Meta
from torch import Tensor, nn

from pellucid.argument_checks import check_arguments
from pellucid.error_messages import translate_expectation
from pellucid.errors import RunError, abbreviate, abbreviate_reason
from pellucid.files import open_regular, parse_json, write_atomic
from pellucid.training.events import Progress
from pellucid.training.loop import TrainingState, divergence_error
from pellucid.training.progress_check import check_progress

MAX_HEADER = 2**24
"""Maximum size of a header, in bytes: enough for several hundred thousand tensors."""
LENGTH_FIELD_SIZE = 8
"""Size of the length field before the header, in bytes."""
METADATA_KEY = "__metadata__"
MAX_DAMAGE_LENGTH = 300
"""Maximum length of a message about a damaged header, which may quote it."""
ITEM_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "F64": 8, "I64": 8}
"""Bytes per number of each supported tensor type."""
Size = Annotated[int, Meta(ge=0, le=2**53)]
Shape = Annotated[tuple[Size, ...], Meta(max_length=8)]


class TensorInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Type, shape and place of one tensor, from the header of a safetensors file."""

    dtype: str
    """Type name, a key of `ITEM_SIZES`."""
    shape: Shape
    data_offsets: tuple[Size, Size]
    """First byte and end of the tensor, counted from the end of the header."""

    def __str__(self) -> str:
        """Return the type and shape for a message: F32 [14, 64]."""
        return f"{self.dtype} {list(self.shape)}"


class TensorFile(NamedTuple):
    """An open safetensors file whose header has been read."""

    path: Path
    """Path of the file, for messages."""
    tensors: dict[str, TensorInfo]
    """Tensors by name; their values are not read yet."""
    metadata: dict[str, str]
    header: bytes
    """All bytes before the tensors."""
    file: IO[bytes]

    @property
    def num_scalars(self) -> int:
        """Number of scalars in all tensors, according to the header."""
        return sum(prod(info.shape) for info in self.tensors.values())

    def content(self) -> bytes:
        """Return all bytes of the file, including the header.

        Raises:
            RunError: The size of the file differs from that in the header.
        """
        promised = len(self.header) + sum(ITEM_SIZES[info.dtype] * prod(info.shape) for info in self.tensors.values())
        size = os.fstat(self.file.fileno()).st_size
        if size != promised:
            raise _damaged(self.path, f"it has {size:,} bytes, and its header promises {promised:,}")
        self.file.seek(0)  # reads the header again; to join it to the remaining bytes would copy the file
        return self.file.read(promised)


@check_arguments
@contextmanager
def open_tensors(path: str | Path) -> Iterator[TensorFile]:
    """Open a safetensors file for a block and read its header, but no tensor.

    Args:
        path: Safetensors file.

    Yields:
        The open file with its header.

    Raises:
        RunError: The file is missing, not regular, or unreadable (also inside the block); it does not begin with a
            whole header of at most `MAX_HEADER` bytes; or a tensor type is not in `ITEM_SIZES`.
    """
    path = Path(path)
    with open_regular(path) as file:
        length_field = file.read(LENGTH_FIELD_SIZE)
        length = int.from_bytes(length_field, "little")
        if len(length_field) < LENGTH_FIELD_SIZE or length > MAX_HEADER:
            raise _damaged(path, "it does not begin with the length of a header")
        header = file.read(length)
        if len(header) < length:
            raise _damaged(path, "its header is cut short")
        yield TensorFile(path, *_decode_header(path, header), length_field + header, file)


def _decode_header(path: Path, header: bytes) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """Return the tensors and the metadata of a header."""
    try:
        fields = msgspec.convert(parse_json(header), dict[str, object])
        metadata = msgspec.convert(fields.pop(METADATA_KEY, {}), dict[str, str])
    except (ValueError, msgspec.ValidationError) as error:
        raise _damaged(path, f"its header: {abbreviate_reason(error)}") from error
    return {name: _tensor_info(path, name, field) for name, field in fields.items()}, metadata


def _tensor_info(path: Path, name: str, field: object) -> TensorInfo:
    """Return one tensor entry of a header."""
    try:
        info = msgspec.convert(field, TensorInfo)
    except (ValueError, msgspec.ValidationError) as error:
        raise _damaged(path, f"{abbreviate(name)} in its header: {abbreviate_reason(error)}") from error
    if info.dtype not in ITEM_SIZES:
        raise RunError(
            f"{path} holds {abbreviate(name)} as {abbreviate(info.dtype)}: expected one of {', '.join(ITEM_SIZES)}"
        )
    return info


def _damaged(path: Path, reason: str) -> RunError:
    """Return the error for an incomplete file."""
    return RunError(f"{path} is not a whole safetensors file: {abbreviate(reason, MAX_DAMAGE_LENGTH)}")


FORMAT, CHECKPOINT_FORMAT = 2, 3
"""Format versions of model files and of checkpoints."""
MEAN_BOUND = 8.0
"""Upper bound of the first Adam moment, in square roots of the second moment.

By the Cauchy-Schwarz inequality, (1 − β₁) / √((1 − β₂) (1 − β₁² / β₂)) ≈ 7.3, plus a margin for rounding.
"""
MEAN_SLACK = 1e-18
"""Absolute slack of that bound: squares of smaller numbers underflow in float32."""
TYPE_NAMES: Mapping[torch.dtype, str] = {
    **{torch.float32: "F32", torch.float64: "F64"},
    **{torch.int64: "I64", torch.int32: "I32"},
}
"""Type names of parameters and of the optimizer's step counts in a file."""


def network_file(network: nn.Module) -> bytes:
    """Return the bytes of a model file, without writing it. Equal parameters give equal bytes.

    Args:
        network: Network whose parameters and buffers are saved; it may be on any device.

    Raises:
        RunError: Memory does not suffice.
    """
    return parameter_file(_cpu_tensors(network.state_dict()))


def parameter_file(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of a safetensors file of parameters, with a format version and a checksum in its metadata.

    Args:
        tensors: Parameters by name, contiguous and on the CPU.

    Raises:
        RunError: Memory does not suffice.
    """
    return tensor_file(tensors, {"format": str(FORMAT), "sha256": tensor_digest(tensors)})


def tensor_file(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    """Return the bytes of a safetensors file. Equal arguments give equal bytes.

    Args:
        tensors: Tensors by name, contiguous and on the CPU.
        metadata: Texts by name.

    Raises:
        RunError: Memory does not suffice.
    """
    content = _content(dict(tensors))
    start = LENGTH_FIELD_SIZE + int.from_bytes(content[:LENGTH_FIELD_SIZE], "little")
    # safetensors writes metadata in any order: the header is written here, so that equal files have equal bytes.
    header = msgspec.json.encode({METADATA_KEY: metadata, **msgspec.json.decode(content[LENGTH_FIELD_SIZE:start])})
    header += b" " * (-len(header) % LENGTH_FIELD_SIZE)
    return b"".join([len(header).to_bytes(LENGTH_FIELD_SIZE, "little"), header, memoryview(content)[start:]])


def _content(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Return the content of a file of tensors; `RunError` if memory does not suffice."""
    try:
        return safetensors.torch.save(tensors, metadata)
    except BaseException as error:  # safetensors has no error of its own for this: it panics
        if type(error).__name__ != "PanicException" and not isinstance(error, MemoryError):
            raise
        raise RunError("not enough memory to write the parameters: a smaller network or batch needs less") from error


def load_network(path: Path, network: nn.Module) -> None:
    """Load the parameters of a model file into a network.

    Args:
        path: Model file.
        network: Network that is changed; its parameters have the names, types and shapes of the file.

    Raises:
        RunError: The file is missing or damaged (its checksum is missing or wrong), has another format version or
            parameters of other names, types or shapes, or a number is not finite. The network is then unchanged.
    """
    network.load_state_dict(_parameters(path, network))


def check_network(path: Path, network: nn.Module) -> None:
    """Check everything that `load_network` checks, without changing the network.

    Args:
        path: Model file.
        network: Network of the expected names, types and shapes; its values are not compared.

    Raises:
        RunError: `load_network` would raise it.
    """
    _parameters(path, network)


def check_header(path: Path, network: nn.Module) -> None:
    """Check the header of a model file against a network, without reading the parameters.

    Args:
        path: Model file.
        network: The network, possibly on the meta device, so that no memory is used before the check.

    Raises:
        RunError: The file is missing or has no valid header; names, types or shapes differ; or the file has another
            format version.
    """
    with open_tensors(path) as stored:
        check_format(stored, FORMAT)
        _check_tensors(stored, network.state_dict())


def save_training_state(path: Path, state: TrainingState, fingerprint: str) -> None:
    """Write a checkpoint: parameters, optimizer moments, weight average and progress.

    Args:
        path: Checkpoint file; written atomically.
        state: Training state.
        fingerprint: Hash of the settings and the data, which `restore_training_state` compares.

    Raises:
        DivergenceError: A parameter, moment or average is not finite; nothing is written.
        RunError: The file cannot be written, or memory does not suffice.
    """
    tensors, progress = _cpu_tensors(_tensors_of(state)), msgspec.json.encode(state.progress).decode()
    for name, value in sorted(tensors.items()):
        if not bool(value.isfinite().all()):
            raise divergence_error(state, f"{name} is not finite")
    metadata = {
        "format": str(CHECKPOINT_FORMAT),
        "progress": progress,
        "fingerprint": fingerprint,
        "sha256": tensor_digest(tensors, progress),
    }
    write_atomic(path, _content(tensors, metadata))


def read_progress(path: Path) -> Progress:
    """Return the progress in the header of a checkpoint.

    Args:
        path: Checkpoint file.

    Raises:
        RunError: It is not a checkpoint of this version.
    """
    with open_tensors(path) as stored:
        check_format(stored, CHECKPOINT_FORMAT)
        return _progress(path, stored.metadata)


def restore_training_state(path: Path, state: TrainingState, fingerprint: str) -> None:
    """Restore a training state from a checkpoint, bit for bit.

    Args:
        path: Checkpoint file.
        state: New training state with the same settings and data, which is changed.
        fingerprint: Hash of the settings and the data.

    Raises:
        RunError: The file is missing or damaged, has another format version, or belongs to other data or another
            model; or its progress, step counts or moments are impossible. The training state is then unchanged.
    """
    with open_tensors(path) as stored:
        check_format(stored, CHECKPOINT_FORMAT)
        progress = _progress(path, stored.metadata)
        if stored.metadata.get("fingerprint") != fingerprint:
            raise RunError(
                f"{path} is of a training on other data (its fingerprint differs); name another run folder, or give "
                "the same data"
            )
        tensors = read_tensors(stored, _tensors_of(state))
    try:
        check_progress(state, progress)
    except ValueError as error:
        raise RunError(f"{path}: {abbreviate_reason(error)}") from error
    _check_counts(path, tensors, progress.update)
    _check_moments(path, _with_prefix(tensors, "optimizer."))
    check_digest(stored, tensor_digest(tensors, stored.metadata["progress"]))
    state.predictor.network.load_state_dict(_with_prefix(tensors, "network."))
    state.optimizer.restore(_with_prefix(tensors, "optimizer."))
    if state.average is not None:
        state.average.restore(_with_prefix(tensors, "average."))
    state.progress, state.checkpoint = progress, (path, progress.update)


def check_digest(stored: TensorFile, digest: str) -> None:
    """Check that a file has the checksum of its content.

    Args:
        stored: The file.
        digest: Checksum of the content that was read (`tensor_digest`).

    Raises:
        RunError: The checksum is missing or differs.
    """
    checksum = stored.metadata.get("sha256")
    if checksum is None:
        raise RunError(
            f"{stored.path} has no checksum (sha256 in its header): another program has written it; restore the file"
        )
    if checksum != digest:
        raise RunError(
            f"{stored.path} is damaged: its content does not match its checksum (sha256); restore it from a copy, or "
            "train the model again"
        )


def tensor_digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Return a hash of tensors and a text, which detects changed bits.

    Args:
        tensors: Tensors by name, contiguous and on the CPU.
        text: Text, such as the progress of a checkpoint.
    """
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).numpy().data)
    return digest.hexdigest()


def _tensors_of(state: TrainingState) -> dict[str, Any]:
    """Return all tensors of a training state by their names in a checkpoint."""
    tensors = {f"network.{name}": value for name, value in state.predictor.network.state_dict().items()}
    tensors |= {f"optimizer.{name}": value for name, value in state.optimizer.state().items()}
    if state.average is not None:
        tensors |= {f"average.{name}": value for name, value in state.average.state().items()}
    return tensors


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _progress(path: Path, metadata: dict[str, str]) -> Progress:
    """Return the progress in a checkpoint; `RunError` if it is not valid."""
    content = metadata.get("progress", "")
    try:
        return msgspec.json.decode(content, type=Progress)
    except msgspec.ValidationError as error:
        expectation, _, field_path = abbreviate_reason(error).partition(" - at `$.")
        field = f"progress.{field_path.rstrip('`')}" if field_path else "progress"
        raise RunError(
            f"{path} is not a checkpoint of this version of Pellucid: {field}: {translate_expectation(expectation)}"
        ) from error
    except msgspec.DecodeError as error:
        content = abbreviate_reason(error)
        raise RunError(f"{path} is not a checkpoint of this version of Pellucid: progress: {content}") from error


def _check_counts(path: Path, tensors: dict[str, Tensor], updates: int) -> None:
    """Check that the step counts of parameters and averages do not exceed the number of updates."""
    for name, value in sorted(tensors.items()):
        counts = name.startswith(("optimizer.", "average.")) and name.endswith("count")
        if counts and (value.is_floating_point() or not 0 <= int(value) <= updates):
            raise RunError(f"{path}: {name}: expected a whole number from 0 to {updates}, got {value.item()}")


def _check_moments(path: Path, state: dict[str, Tensor]) -> None:
    """Check that the moments are possible for Adam; others would make an update overflow."""
    for name in sorted(name.removesuffix(".square") for name in state if name.endswith(".square")):
        mean, square = state[f"{name}.mean"], state[f"{name}.square"]
        if bool((square < 0).any()):
            raise RunError(f"{path}: optimizer.{name}.square: expected no number below 0, got {float(square.min()):g}")
        impossible = mean.abs() > MEAN_BOUND * square.sqrt() + MEAN_SLACK
        if bool(impossible.any()):
            value = float(mean[impossible].abs().max())
            raise RunError(
                f"{path}: optimizer.{name}.mean: expected numbers within {MEAN_BOUND:g} roots of those of "
                f"optimizer.{name}.square, got {value:g}"
            )


def _parameters(path: Path, network: nn.Module) -> dict[str, Tensor]:
    """Return the parameters in a file of this network."""
    with open_tensors(path) as stored:
        check_format(stored, FORMAT)
        tensors = read_tensors(stored, network.state_dict())
        check_digest(stored, tensor_digest(tensors))
        return tensors


def check_formats(model: Path, checkpoint: Path) -> None:
    """Check the format versions of a run's files; a missing file is passed over.

    Args:
        model: Model file.
        checkpoint: Checkpoint file.

    Raises:
        RunError: A file has another format version, or is not a safetensors file.
    """
    for path, format in ((model, FORMAT), (checkpoint, CHECKPOINT_FORMAT)):
        if path.exists():
            with open_tensors(path) as stored:
                check_format(stored, format)


def check_format(stored: TensorFile, format: int) -> None:
    """Check the format version of a file.

    Args:
        stored: The file.
        format: Expected version.

    Raises:
        RunError: The file has another version.
    """
    version = stored.metadata.get("format", str(format))
    if version != str(format):
        raise RunError(
            f"{stored.path} is of format {abbreviate(version)}, and this version of Pellucid reads format {format}: "
            "train the model again"
        )


def read_tensors(stored: TensorFile, expected: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a file after checking names, types, shapes and finiteness.

    The tensors are read only if the header agrees, so a file cannot take more memory than expected.

    Args:
        stored: The file.
        expected: Tensors of the expected types and shapes, by name; their values are not read.

    Raises:
        RunError: A name, type or shape differs, or a number is not finite.
    """
    _check_tensors(stored, expected)
    try:
        tensors = safetensors.torch.load(stored.content())
    except safetensors.SafetensorError as error:
        raise RunError(f"{stored.path} is not a whole safetensors file: {abbreviate_reason(error)}") from error
    for name, value in sorted(tensors.items()):
        if not bool(value.isfinite().all()):
            raise RunError(f"{stored.path} holds numbers that are not finite, in {name}")
    return tensors


def _check_tensors(stored: TensorFile, expected: Mapping[str, Any]) -> None:
    """Raise `RunError` if names, types or shapes differ."""
    described = {name: f"{TYPE_NAMES[value.dtype]} {list(value.shape)}" for name, value in expected.items()}
    _check_names(stored, described)
    for name in sorted(described):
        if str(stored.tensors[name]) != described[name]:
            raise _mismatch_error(stored, f"{name} is {stored.tensors[name]} there and {described[name]} here")


def _check_names(stored: TensorFile, expected: Iterable[str]) -> None:
    """Raise `RunError` if a file has other names than expected."""
    foreign, absent = sorted(stored.tensors.keys() - set(expected)), sorted(set(expected) - stored.tensors.keys())
    if foreign and absent:
        raise _mismatch_error(
            stored,
            f"it holds {foreign[0]}, which the network lacks, and lacks {absent[0]}; it may be of another version of "
            "Pellucid: train the model again, or read it with the version that wrote it",
        )
    if foreign or absent:
        raise _mismatch_error(
            stored, f"it holds {foreign[0]}, which the network lacks" if foreign else f"it lacks {absent[0]}"
        )


def _mismatch_error(stored: TensorFile, reason: str) -> RunError:
    """Return the error for a file of another network."""
    return RunError(f"{stored.path} does not fit the run's configuration and vocabulary: {reason}")


def _cpu_tensors(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Return detached, contiguous CPU tensors with separate memory, as safetensors requires."""
    detached = {name: torch.as_tensor(value).detach() for name, value in tensors.items()}
    return {name: value.to("cpu", copy=True).contiguous() for name, value in detached.items()}
