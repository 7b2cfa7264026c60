"""Safetensors files: header, checks and checksum. Reading one runs no code.

PyTorch is not needed to import this module. Functions that write take arrays, or contiguous tensors on the CPU, which
NumPy reads without a copy; `read_arrays` returns arrays, and `torch_tensors.read_tensors` tensors of the same memory.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import msgspec
import numpy as np
import safetensors
import safetensors.numpy
from msgspec import Meta
from numpy.typing import DTypeLike, NDArray

from pellucid.argument_checks import check_arguments
from pellucid.errors import MAX_DIGITS, RunError, abbreviate, abbreviate_reason
from pellucid.files import newer_format_text, open_regular, parse_json

MAX_HEADER = 2**24
"""Maximum size of a header, in bytes: enough for several hundred thousand tensors."""
LENGTH_FIELD_SIZE = 8
"""Size of the length field before the header, in bytes."""
MAX_NAME_LENGTH = 500
"""Maximum length of the name of a tensor, in characters. Messages quote such names, so their length is bounded too."""
METADATA_KEY = "__metadata__"
MAX_DAMAGE_LENGTH = 300
"""Maximum length of a message about a damaged header, which may quote it."""
ITEM_SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "F64": 8, "I64": 8}
"""Bytes per number of each supported tensor type."""
TYPE_NAMES: Mapping[str, str] = {
    **{"float32": "F32", "float64": "F64", "int64": "I64", "int32": "I32"},
    **{"uint8": "U8", "bool": "BOOL"},
}
"""Type names of parameters and of the optimizer's state in a file, by their names in NumPy and PyTorch."""
Size = Annotated[int, Meta(ge=0, le=2**53)]
Shape = Annotated[tuple[Size, ...], Meta(max_length=8)]


class NetworkMismatchError(RunError):
    """A file holds the parameters of another network than that of the run's configuration and vocabulary."""

    def __init__(self, message: str) -> None:
        """Initialize the error.

        Args:
            message: The message, without advice.
        """
        super().__init__(message)
        self.reason = message
        """The message without the advice that `add_advice` adds."""


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
            whole header of at most `MAX_HEADER` bytes; the name of a tensor is longer than `MAX_NAME_LENGTH`; or a
            tensor type is not in `ITEM_SIZES`.
    """
    path = Path(path)
    with open_regular(path) as file:
        length_field = file.read(LENGTH_FIELD_SIZE) or b""  # None from a virtual file without data
        length = int.from_bytes(length_field, "little")
        if len(length_field) < LENGTH_FIELD_SIZE or length > MAX_HEADER:
            raise _damaged(path, "it does not begin with the length of a header")
        header = file.read(length) or b""
        if len(header) < length:
            raise _damaged(path, "its header is cut short")
        yield TensorFile(path, *_decode_header(path, header), length_field + header, file)


def _decode_header(path: Path, header: bytes) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """Return the tensors and the metadata of a header."""
    try:
        fields = msgspec.convert(parse_json(header), dict[str, object])
        metadata = msgspec.convert(fields.pop(METADATA_KEY, {}), dict[str, str])
        for text in (*fields, *metadata, *metadata.values()):
            text.encode()  # JSON may hold half of a surrogate pair, which is not a character
    except (ValueError, msgspec.ValidationError) as error:
        raise _damaged(path, f"its header: {abbreviate_reason(error)}") from error
    longest = max(fields, key=len, default="")
    if len(longest) > MAX_NAME_LENGTH:
        raise RunError(
            f"{path} holds a tensor whose name has {len(longest):,} characters, {abbreviate(longest)}: expected at "
            f"most {MAX_NAME_LENGTH}"
        )
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


def tensor_file(tensors: Mapping[str, Any], metadata: dict[str, str]) -> bytes:
    """Return the bytes of a safetensors file. Equal arguments give equal bytes.

    Args:
        tensors: Arrays or tensors by name, contiguous and on the CPU.
        metadata: Texts by name.

    Raises:
        RunError: Memory is not enough.
    """
    content = encode_tensors(tensors)
    start = LENGTH_FIELD_SIZE + int.from_bytes(content[:LENGTH_FIELD_SIZE], "little")
    # safetensors writes metadata in any order: the header is written here, so that equal files have equal bytes.
    header = msgspec.json.encode({METADATA_KEY: metadata, **msgspec.json.decode(content[LENGTH_FIELD_SIZE:start])})
    header += b" " * (-len(header) % LENGTH_FIELD_SIZE)
    return b"".join([len(header).to_bytes(LENGTH_FIELD_SIZE, "little"), header, memoryview(content)[start:]])


def encode_tensors(tensors: Mapping[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Return the bytes of a safetensors file, whose metadata are in any order; see `tensor_file`.

    Args:
        tensors: Arrays or tensors by name, contiguous and on the CPU.
        metadata: Texts by name; None if there is none.

    Raises:
        RunError: Memory is not enough.
    """
    try:
        return safetensors.numpy.save({name: np.asarray(value) for name, value in tensors.items()}, metadata)
    except BaseException as error:  # safetensors has no error of its own for this: it panics
        if type(error).__name__ != "PanicException" and not isinstance(error, MemoryError):
            raise
        raise RunError("not enough memory to write the parameters: a smaller network or batch needs less") from error


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


def tensor_digest(tensors: Mapping[str, Any], text: str = "") -> str:
    """Return a hash of tensors and a text, which detects changed bits.

    Args:
        tensors: Arrays or tensors by name, contiguous and on the CPU.
        text: Text, such as the progress of a checkpoint.
    """
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(np.asarray(tensors[name]).reshape(-1).data)
    return digest.hexdigest()


def check_format(stored: TensorFile, format: int) -> None:
    """Check the format version of a file.

    Args:
        stored: The file.
        format: Expected version.

    Raises:
        RunError: The file has another version.
    """
    version = stored.metadata.get("format", str(format))
    if version.isdecimal() and len(version) <= MAX_DIGITS and int(version) > format:
        raise RunError(f"{stored.path} {newer_format_text(int(version), format)}")
    if version != str(format):
        raise RunError(
            f"{stored.path} is of format {abbreviate(version)}, and this version of Pellucid reads format {format}: "
            "train the model again"
        )


def read_arrays(stored: TensorFile, expected: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file as arrays, after checking names, types, shapes and finiteness.

    The tensors are read only if the header agrees, so a file cannot take more memory than expected.

    Args:
        stored: The file.
        expected: Arrays or tensors of the expected types and shapes, by name; their values are not read.

    Raises:
        RunError: A name, type or shape differs, or a number is not finite.
    """
    check_tensors(stored, expected)
    try:
        arrays: dict[str, NDArray[Any]] = safetensors.numpy.load(stored.content())
    except safetensors.SafetensorError as error:
        raise RunError(f"{stored.path} is not a whole safetensors file: {abbreviate_reason(error)}") from error
    for name, value in sorted(arrays.items()):
        if not np.isfinite(value).all():
            raise RunError(f"{stored.path} holds numbers that are not finite, in {name}")
    return arrays


def array_of_shape(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array without memory of its own, for `expected` of `check_tensors` and `read_arrays`.

    Args:
        shape: Shape of the array.
        dtype: Type of its numbers, float32 by default.
    """
    return np.broadcast_to(np.zeros((), dtype), shape)


def check_tensors(stored: TensorFile, expected: Mapping[str, Any]) -> None:
    """Check the names, types and shapes of the tensors in a file.

    Args:
        stored: The file, of which only the header is read.
        expected: Arrays or tensors of the expected types and shapes, by name; their values are not read.

    Raises:
        RunError: A name, type or shape differs.
    """
    type_names = {name: TYPE_NAMES[str(value.dtype).removeprefix("torch.")] for name, value in expected.items()}
    described = {name: f"{type_names[name]} {list(value.shape)}" for name, value in expected.items()}
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
            "Pellucid, or of the package of its attention or task: train the model again, or read it with the version "
            "that wrote it",
        )
    if foreign or absent:
        raise _mismatch_error(
            stored, f"it holds {foreign[0]}, which the network lacks" if foreign else f"it lacks {absent[0]}"
        )


def _mismatch_error(stored: TensorFile, reason: str) -> NetworkMismatchError:
    """Return the error for a file of another network."""
    return NetworkMismatchError(f"{stored.path} does not fit the run's configuration and vocabulary: {reason}")
