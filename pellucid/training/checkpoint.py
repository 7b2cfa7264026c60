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

from pellucid.error_messages import translate_expectation
from pellucid.errors import RunError, abbreviate, abbreviate_reason
from pellucid.files import open_regular, parse_json, write_atomic
from pellucid.training.loop import Progress, TrainingState, diverged
from pellucid.training.progress_check import check_progress

MAX_HEADER = 2**24
"""Maximum size of a header, in bytes: enough for several hundred thousand tensors."""
LENGTH = 8
"""Size of the length field before the header, in bytes."""
NOTES = "__metadata__"
LONGEST_REASON = 300
"""Maximum length of a message about a damaged header, which may quote it."""
ITEM_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "F64": 8, "I64": 8}
"""Bytes per number of each supported tensor type."""
Size = Annotated[int, Meta(ge=0, le=2**53)]
Shape = Annotated[tuple[Size, ...], Meta(max_length=8)]


class TensorInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name, type and shape of a tensor, from the header."""

    dtype: str
    shape: Shape
    data_offsets: tuple[Size, Size]

    def __str__(self) -> str:
        """Return the type and shape, as in messages: F32 [14, 64]."""
        return f"{self.dtype} {list(self.shape)}"


class TensorFile(NamedTuple):
    """An open safetensors file whose header has been read."""

    path: Path
    tensors: dict[str, TensorInfo]
    notes: dict[str, str]
    header: bytes
    """All bytes before the tensors."""
    file: IO[bytes]

    @property
    def total(self) -> int:
        """Return the number of scalars in all tensors."""
        return sum(prod(each.shape) for each in self.tensors.values())

    def content(self) -> bytes:
        """Return the whole file; `RunError` if its size differs from that in the header."""
        promised = len(self.header) + sum(ITEM_SIZES[each.dtype] * prod(each.shape) for each in self.tensors.values())
        size = os.fstat(self.file.fileno()).st_size
        if size != promised:
            raise _damaged(self.path, f"it has {size:,} bytes, and its header promises {promised:,}")
        self.file.seek(0)  # the header once more: to join it to the rest would copy all
        return self.file.read(promised)


@contextmanager
def open_tensors(path: Path) -> Iterator[TensorFile]:
    """Open a safetensors file and read its header.

    Raises:
        RunError: It is not a regular safetensors file, or has an unsupported tensor type. The message names the file
            and the field of the header.
    """
    with open_regular(path) as file:
        start = file.read(LENGTH)
        length = int.from_bytes(start, "little")
        if len(start) < LENGTH or length > MAX_HEADER:
            raise _damaged(path, "it does not begin with the length of a header")
        header = file.read(length)
        if len(header) < length:
            raise _damaged(path, "its header is cut short")
        yield TensorFile(path, *_decoded(path, header), start + header, file)


def _decoded(path: Path, header: bytes) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """Return the tensors and the metadata of a header."""
    try:
        fields = msgspec.convert(parse_json(header), dict[str, object])
        notes = msgspec.convert(fields.pop(NOTES, {}), dict[str, str])
    except (ValueError, msgspec.ValidationError) as error:
        raise _damaged(path, f"its header: {abbreviate_reason(error)}") from error
    return {name: _info(path, name, field) for name, field in fields.items()}, notes


def _info(path: Path, name: str, field: object) -> TensorInfo:
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
    return RunError(f"{path} is not a whole safetensors file: {abbreviate(reason, LONGEST_REASON)}")


FORMAT, SESSION_FORMAT = 2, 3
"""Format versions of model files and of checkpoints."""
MEAN_BOUND = 8.0
"""Upper bound of the first Adam moment, in square roots of the second moment.

By the Cauchy-Schwarz inequality, (1 − β₁) / √((1 − β₂) (1 − β₁² / β₂)) ≈ 7.3, plus a margin for rounding.
"""
MEAN_SLACK = 1e-18
"""Absolute slack of that bound: squares of smaller numbers underflow in float32."""
TYPE_NAMES: Mapping[torch.dtype, str] = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
"""Type names of parameters and of the optimizer's step counts in a file."""


def network_file(network: nn.Module) -> bytes:
    """Return the content of a model file. Equal parameters give equal bytes."""
    return parameter_file(_plain(network.state_dict()))


def parameter_file(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the content of a file of parameters, with their checksum.

    Args:
        tensors: The parameters by name, contiguous and on the processor.
    """
    content = _content(dict(tensors), {})
    start = LENGTH + int.from_bytes(content[:LENGTH], "little")
    # safetensors writes several notes in any order: the header is written here, for the same bytes each time.
    notes = {"format": str(FORMAT), "sha256": _digest(tensors)}
    header = msgspec.json.encode({NOTES: notes, **msgspec.json.decode(content[LENGTH:start])})
    header += b" " * (-len(header) % LENGTH)
    return b"".join([len(header).to_bytes(LENGTH, "little"), header, memoryview(content)[start:]])


def _content(tensors: dict[str, Tensor], notes: dict[str, str]) -> bytes:
    """Return the content of a file of tensors; `RunError` where there is no memory for it."""
    try:
        return safetensors.torch.save(tensors, notes)
    except BaseException as error:  # safetensors has no error of its own for this: it panics
        if type(error).__name__ != "PanicException" and not isinstance(error, MemoryError):
            raise
        raise RunError("not enough memory to write the parameters: a smaller network or batch needs less") from error


def load_network(path: Path, network: nn.Module) -> None:
    """Load parameters from a model file.

    Args:
        path: Model file.
        network: Network of the same names, types and shapes.

    Raises:
        RunError: They differ, or a number is not finite.
    """
    network.load_state_dict(_parameters(path, network))


def check_network(path: Path, network: nn.Module) -> None:
    """Raise `RunError` if a file does not hold the parameters of this network."""
    _parameters(path, network)


def check_header(path: Path, network: nn.Module) -> None:
    """Compare the header of a model file with a network.

    Args:
        path: Model file.
        network: The network, possibly on the meta device, so that no memory is used before the check.

    Raises:
        RunError: Names, types or shapes differ, or the file has another format version.
    """
    with open_tensors(path) as stored:
        _check_format(stored, FORMAT)
        _check_described(stored, network.state_dict())


def save_session(path: Path, session: TrainingState, fingerprint: str) -> None:
    """Write a checkpoint.

    Args:
        path: Checkpoint file; written atomically.
        session: Training state.
        fingerprint: Hash of the settings and the data.
    """
    tensors, progress = _plain(_tensors_of(session)), msgspec.json.encode(session.progress).decode()
    for name, value in sorted(tensors.items()):
        if not bool(value.isfinite().all()):
            raise diverged(session, f"{name} is not finite")
    notes = {
        "format": str(SESSION_FORMAT),
        "progress": progress,
        "fingerprint": fingerprint,
        "sha256": _digest(tensors, progress),
    }
    write_atomic(path, _content(tensors, notes))


def restore_session(path: Path, session: TrainingState, fingerprint: str) -> None:
    """Restore a training state from a checkpoint, bit for bit.

    Raises:
        RunError: The checkpoint belongs to other data or another model, or is damaged.
    """
    with open_tensors(path) as stored:
        _check_format(stored, SESSION_FORMAT)
        progress = _progress(path, stored.notes)
        if stored.notes.get("fingerprint") != fingerprint:
            raise RunError(
                f"{path} is of a training on other data (its fingerprint differs); name another run folder, or give "
                "the data it had"
            )
        tensors = _read(stored, _tensors_of(session))
    try:
        check_progress(session, progress)
    except ValueError as error:
        raise RunError(f"{path}: {abbreviate_reason(error)}") from error
    _check_counts(path, tensors, progress.update)
    _check_moments(path, _part(tensors, "optimizer."))
    _check_digest(stored, _digest(tensors, stored.notes["progress"]))
    session.transducer.network.load_state_dict(_part(tensors, "network."))
    session.optimizer.restore(_part(tensors, "optimizer."))
    if session.average is not None:
        session.average.restore(_part(tensors, "average."))
    session.progress, session.checkpoint = progress, (path, progress.update)


def _check_digest(stored: TensorFile, digest: str) -> None:
    """`RunError` where a file has no checksum, or another one: a bit that changed would change all that follows."""
    told = stored.notes.get("sha256")
    if told is None:
        raise RunError(
            f"{stored.path} has no checksum (sha256 in its header): another program has written it; restore the file"
        )
    if told != digest:
        raise RunError(
            f"{stored.path} is damaged: its content is not that of its checksum (sha256); restore it from a copy, or "
            "train anew"
        )


def _digest(tensors: Mapping[str, Tensor], progress: str = "") -> str:
    """Return a hash of the tensors and the progress, which detects changed bits."""
    digest = hashlib.sha256(progress.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).numpy().data)
    return digest.hexdigest()


def _tensors_of(session: TrainingState) -> dict[str, Any]:
    """Return all tensors of a training state by their names in a checkpoint."""
    tensors = {f"network.{name}": value for name, value in session.transducer.network.state_dict().items()}
    tensors |= {f"optimizer.{name}": value for name, value in session.optimizer.state().items()}
    if session.average is not None:
        tensors |= {f"average.{name}": value for name, value in session.average.state().items()}
    return tensors


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _progress(path: Path, notes: dict[str, str]) -> Progress:
    """Return the progress in a checkpoint; `RunError` if it is not valid."""
    told = notes.get("progress", "")
    try:
        return msgspec.json.decode(told, type=Progress)
    except msgspec.ValidationError as error:
        what, _, where = abbreviate_reason(error).partition(" - at `$.")
        field = f"progress.{where.rstrip('`')}" if where else "progress"
        raise RunError(
            f"{path} is not a checkpoint of this version of Pellucid: {field}: {translate_expectation(what)}"
        ) from error
    except msgspec.DecodeError as error:
        told = abbreviate_reason(error)
        raise RunError(f"{path} is not a checkpoint of this version of Pellucid: progress: {told}") from error


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
        beyond = mean.abs() > MEAN_BOUND * square.sqrt() + MEAN_SLACK
        if bool(beyond.any()):
            value = float(mean[beyond].abs().max())
            raise RunError(
                f"{path}: optimizer.{name}.mean: expected numbers within {MEAN_BOUND:g} roots of those of "
                f"optimizer.{name}.square, got {value:g}"
            )


def _parameters(path: Path, network: nn.Module) -> dict[str, Tensor]:
    """Return the parameters in a file of this network."""
    with open_tensors(path) as stored:
        _check_format(stored, FORMAT)
        tensors = _read(stored, network.state_dict())
        _check_digest(stored, _digest(tensors))
        return tensors


def check_formats(model: Path, checkpoint: Path) -> None:
    """Raise `RunError` if one of two files, where it exists, has another format version."""
    for path, format in ((model, FORMAT), (checkpoint, SESSION_FORMAT)):
        if path.exists():
            with open_tensors(path) as stored:
                _check_format(stored, format)


def _check_format(stored: TensorFile, format: int) -> None:
    """Raise `RunError` for another format version."""
    told = stored.notes.get("format", str(format))
    if told != str(format):
        raise RunError(
            f"{stored.path} is of format {abbreviate(told)}, and this version of Pellucid reads format {format}: "
            "train the model again"
        )


def _read(stored: TensorFile, own: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a file after checking names, types, shapes and finiteness.

    The tensors are read only if the header agrees, so a file cannot take more memory than the network.
    """
    _check_described(stored, own)
    try:
        tensors = safetensors.torch.load(stored.content())
    except safetensors.SafetensorError as error:
        raise RunError(f"{stored.path} is not a whole safetensors file: {abbreviate_reason(error)}") from error
    for name, value in sorted(tensors.items()):
        if not bool(value.isfinite().all()):
            raise RunError(f"{stored.path} holds numbers that are not finite, in {name}")
    return tensors


def _check_described(stored: TensorFile, own: Mapping[str, Any]) -> None:
    """Raise `RunError` if names, types or shapes differ."""
    described = {name: f"{TYPE_NAMES[value.dtype]} {list(value.shape)}" for name, value in own.items()}
    _check_names(stored, described)
    for name in sorted(described):
        if str(stored.tensors[name]) != described[name]:
            raise _unfit(stored, f"{name} is {stored.tensors[name]} there and {described[name]} here")


def _check_names(stored: TensorFile, wanted: Iterable[str]) -> None:
    """Raise `RunError` if a file has other names than expected."""
    foreign, absent = sorted(stored.tensors.keys() - set(wanted)), sorted(set(wanted) - stored.tensors.keys())
    if foreign and absent:
        raise _unfit(
            stored,
            f"it holds {foreign[0]}, which no parameter here is called, and lacks {absent[0]}; it may be of another "
            "version of Pellucid: train it anew, or read it with the version that wrote it",
        )
    if foreign or absent:
        raise _unfit(stored, f"it holds {foreign[0]}, which is not here" if foreign else f"it lacks {absent[0]}")


def _unfit(stored: TensorFile, reason: str) -> RunError:
    """Return the error for a file of another network."""
    return RunError(f"{stored.path} does not fit the run's configuration and vocabulary: {reason}")


def _plain(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Return detached, contiguous CPU tensors with separate memory, as safetensors requires."""
    held = {name: torch.as_tensor(value).detach() for name, value in tensors.items()}
    return {name: value.to("cpu", copy=True).contiguous() for name, value in held.items()}
