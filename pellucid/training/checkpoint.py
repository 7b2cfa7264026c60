"""A session to one file and back: parameters, the optimiser's moments, and where training stands.

Everything is in one safetensors file, so a checkpoint is whole or absent, and reading one runs no code.
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

from pellucid.errors import RunError, abbreviate, abbreviate_reason
from pellucid.files import open_regular, plain_json, write_atomic
from pellucid.training.loop import Progress, Session
from pellucid.training.progress_check import check_progress
from pellucid.wording import in_words

MAX_HEADER = 2**24
"""Greatest length of a header, in bytes: enough for some hundred thousand tensors."""
LENGTH = 8
"""Bytes of the number before the header."""
NOTES = "__metadata__"
LONGEST_REASON = 300
"""Characters of a message about a damaged header, which may quote the header."""
ITEM_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "F64": 8, "I64": 8}
"""Bytes of a number of each type that a tensor may have here."""
Size = Annotated[int, Meta(ge=0, le=2**53)]
Shape = Annotated[tuple[Size, ...], Meta(max_length=8)]


class TensorInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of a file, as the header describes it."""

    dtype: str
    shape: Shape
    data_offsets: tuple[Size, Size]

    def __str__(self) -> str:
        """Type and shape, as messages tell them: F32 [14, 64]."""
        return f"{self.dtype} {list(self.shape)}"


class TensorFile(NamedTuple):
    """A file whose header has been read; its tensors have not."""

    path: Path
    tensors: dict[str, TensorInfo]
    notes: dict[str, str]
    header: bytes
    """Everything before the tensors."""
    file: IO[bytes]

    @property
    def total(self) -> int:
        """How many numbers all tensors have together."""
        return sum(prod(each.shape) for each in self.tensors.values())

    def content(self) -> bytes:
        """Return the whole file, for the library to read; `RunError` where it is longer or shorter than promised."""
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
        RunError: Where it is no regular file or no safetensors file, and where a tensor has a type that Pellucid does
            not use. The message names the file, and the field of the header.
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
    """The tensors and the notes of a header."""
    try:
        fields = msgspec.convert(plain_json(header), dict[str, object])
        notes = msgspec.convert(fields.pop(NOTES, {}), dict[str, str])
    except (ValueError, msgspec.ValidationError) as error:
        raise _damaged(path, f"its header: {abbreviate_reason(error)}") from error
    return {name: _info(path, name, field) for name, field in fields.items()}, notes


def _info(path: Path, name: str, field: object) -> TensorInfo:
    """One tensor of a header."""
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
    """What a file that is not whole is told as."""
    return RunError(f"{path} is not a whole safetensors file: {abbreviate(reason, LONGEST_REASON)}")


FORMAT, SESSION_FORMAT = 2, 3
"""Of a file of parameters, and of a checkpoint."""
MEAN_BOUND = 8.0
"""What the mean of gradients is at most, in roots of the mean of their squares.

By the inequality of Cauchy and Schwarz, (1 − β₁) / √((1 − β₂) (1 − β₁² / β₂)) ≈ 7.3, with room for rounding.
"""
MEAN_SLACK = 1e-18
"""What it may be beside that: squares of smaller numbers are 0 in float32."""
TYPE_NAMES: Mapping[torch.dtype, str] = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}
"""How a file names the types of parameters and of the optimizer's counts."""


def network_file(network: nn.Module) -> bytes:
    """Return the content of a file of the parameters alone; the same parameters are the same bytes."""
    return parameter_file(_plain(network.state_dict()))


def parameter_file(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the content of a file of parameters, with their checksum.

    Args:
        tensors: The parameters by name, contiguous and on the processor.
    """
    content = safetensors.torch.save(dict(tensors))
    start = LENGTH + int.from_bytes(content[:LENGTH], "little")
    # safetensors writes several notes in any order: the header is written here, for the same bytes each time.
    notes = {"format": str(FORMAT), "sha256": _digest(tensors)}
    header = msgspec.json.encode({NOTES: notes, **msgspec.json.decode(content[LENGTH:start])})
    header += b" " * (-len(header) % LENGTH)
    return b"".join([len(header).to_bytes(LENGTH, "little"), header, memoryview(content)[start:]])


def load_network(path: Path, network: nn.Module) -> None:
    """Read parameters into a network built for them; names, types, shapes and the checksum must agree."""
    network.load_state_dict(_parameters(path, network))


def check_network(path: Path, network: nn.Module) -> None:
    """`RunError` where a file does not hold the parameters of a network like this one."""
    _parameters(path, network)


def check_header(path: Path, network: nn.Module) -> None:
    """Refuse a file of parameters whose header does not have the names, types and shapes of a network.

    Args:
        path: The file.
        network: The network, or one on the meta device, so that no memory is taken for it before this is known.

    Raises:
        RunError: They differ, or the file is of another format.
    """
    with open_tensors(path) as stored:
        _check_format(stored, FORMAT)
        _check_described(stored, network.state_dict())


def save_session(path: Path, session: Session, fingerprint: str) -> None:
    """Write all that `restore_session` needs; `fingerprint` tells which data it belongs to."""
    tensors, progress = _plain(_tensors_of(session)), msgspec.json.encode(session.progress).decode()
    notes = {
        "format": str(SESSION_FORMAT),
        "progress": progress,
        "fingerprint": fingerprint,
        "sha256": _digest(tensors, progress),
    }
    write_atomic(path, safetensors.torch.save(tensors, notes))


def restore_session(path: Path, session: Session, fingerprint: str) -> None:
    """Bring a new session to where the saved one stood, bit for bit; `RunError` for other data or another model."""
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
    """Return a hash of parameters, or of all that a training goes on from."""
    digest = hashlib.sha256(progress.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).numpy().data)
    return digest.hexdigest()


def _tensors_of(session: Session) -> dict[str, Any]:
    """All tensors of a session, by their names in a checkpoint."""
    tensors = {f"network.{name}": value for name, value in session.transducer.network.state_dict().items()}
    tensors |= {f"optimizer.{name}": value for name, value in session.optimizer.state().items()}
    if session.average is not None:
        tensors |= {f"average.{name}": value for name, value in session.average.state().items()}
    return tensors


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _progress(path: Path, notes: dict[str, str]) -> Progress:
    """Return where the training of a checkpoint stands; `RunError` for what is no progress."""
    told = notes.get("progress", "")
    try:
        return msgspec.json.decode(told, type=Progress)
    except msgspec.ValidationError as error:
        what, _, where = abbreviate_reason(error).partition(" - at `$.")
        field = f"progress.{where.rstrip('`')}" if where else "progress"
        raise RunError(f"{path} is not a checkpoint of this version of Pellucid: {field}: {in_words(what)}") from error
    except msgspec.DecodeError as error:
        told = abbreviate_reason(error)
        raise RunError(f"{path} is not a checkpoint of this version of Pellucid: progress: {told}") from error


def _check_counts(path: Path, tensors: dict[str, Tensor], updates: int) -> None:
    """Refuse numbers of updates, told of a parameter or of an average, that are not within those of the training."""
    for name, value in sorted(tensors.items()):
        counts = name.startswith(("optimizer.", "average.")) and name.endswith("count")
        if counts and (value.is_floating_point() or not 0 <= int(value) <= updates):
            raise RunError(f"{path}: {name}: expected a whole number from 0 to {updates}, got {value.item()}")


def _check_moments(path: Path, state: dict[str, Tensor]) -> None:
    """Refuse moments that Adam does not come to: with these an update would leave the finite, or nearly."""
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
    """The parameters in a file, which are those of a network like this one."""
    with open_tensors(path) as stored:
        _check_format(stored, FORMAT)
        tensors = _read(stored, network.state_dict())
        _check_digest(stored, _digest(tensors))
        return tensors


def check_formats(model: Path, checkpoint: Path) -> None:
    """Raise `RunError` if one of two files, where it exists, was written in another format."""
    for path, format in ((model, FORMAT), (checkpoint, SESSION_FORMAT)):
        if path.exists():
            with open_tensors(path) as stored:
                _check_format(stored, format)


def _check_format(stored: TensorFile, format: int) -> None:
    """`RunError` for a file of another format."""
    told = stored.notes.get("format", str(format))
    if told != str(format):
        raise RunError(
            f"{stored.path} is of format {abbreviate(told)}, and this version of Pellucid reads format {format}: "
            "train the model again"
        )


def _read(stored: TensorFile, own: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a file: those that one has oneself, by name, type and shape, and every number finite.

    Nothing is read before the header agrees, so that no more is read than what one has oneself takes.
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
    """`RunError` where the names, types and shapes of a header are not those that one has oneself."""
    described = {name: f"{TYPE_NAMES[value.dtype]} {list(value.shape)}" for name, value in own.items()}
    _check_names(stored, described)
    for name in sorted(described):
        if str(stored.tensors[name]) != described[name]:
            raise _unfit(stored, f"{name} is {stored.tensors[name]} there and {described[name]} here")


def _check_names(stored: TensorFile, wanted: Iterable[str]) -> None:
    """`RunError` where a file holds other names than those that are wanted."""
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
    """What a file of another network is told as."""
    return RunError(f"{stored.path} does not fit the run's configuration and vocabulary: {reason}")


def _plain(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Detached, contiguous tensors on the processor, each with its own memory, as safetensors asks."""
    held = {name: torch.as_tensor(value).detach() for name, value in tensors.items()}
    return {name: value.to("cpu", copy=True).contiguous() for name, value in held.items()}
