"""Safetensors files, read so that nothing in them is taken on trust: first the header, then what it promises.

A file is the length of its header (8 bytes, little-endian), the header (JSON: name, type, shape and place of each
tensor, and notes) and the tensors, one after the other.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Annotated, NamedTuple

import msgspec
from msgspec import Meta

from pellucid.errors import RunError, abbreviate
from pellucid.files import open_regular, plain_json

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
        return self.header + self.file.read(promised - len(self.header))


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
        raise _damaged(path, f"its header: {error}") from error
    return {name: _info(path, name, field) for name, field in fields.items()}, notes


def _info(path: Path, name: str, field: object) -> TensorInfo:
    """One tensor of a header."""
    try:
        info = msgspec.convert(field, TensorInfo)
    except (ValueError, msgspec.ValidationError) as error:
        raise _damaged(path, f"{abbreviate(name)} in its header: {error}") from error
    if info.dtype not in ITEM_SIZES:
        raise RunError(
            f"{path} holds {abbreviate(name)} as {abbreviate(info.dtype)}: expected one of {', '.join(ITEM_SIZES)}"
        )
    return info


def _damaged(path: Path, reason: str) -> RunError:
    """What a file that is not whole is told as."""
    return RunError(f"{path} is not a whole safetensors file: {abbreviate(reason, LONGEST_REASON)}")
