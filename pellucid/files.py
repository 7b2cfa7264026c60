"""Files a user keeps: written whole or not at all, and every refusal of the system told in one sentence."""

import os
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager
from errno import EISDIR
from pathlib import Path
from typing import BinaryIO

import msgspec

from pellucid.errors import InputError, RunError


def reason(error: OSError) -> str:
    """The system's own words for an error, in lower case: "no space left on device"."""
    return (error.strerror or str(error)).lower()


@contextmanager
def refusals(action: str, path: Path, kind: type[InputError] = RunError) -> Iterator[None]:
    """Turn the system's refusals inside the block into one message: "cannot write runs/a: permission denied"."""
    try:
        yield
    except OSError as error:
        raise kind(f"cannot {action} {path}: {reason(error)}") from error


def strangers(folder: Path, own: Container[str]) -> list[str]:
    """The names in a folder, if it is one, that are neither `own` nor hidden, in their order."""
    if not folder.is_dir():
        return []
    with refusals("read", folder):
        names = sorted(path.name for path in folder.iterdir())
    return [name for name in names if name not in own and not name.startswith(".")]


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to `path` as `replaced` does."""
    with replaced(path) as file:
        file.write(content)


def check_writable(path: Path) -> None:
    """`RunError` where a file could not be written, in the words of `replaced`: to know it before long work."""
    with refusals("write", path):
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(descriptor)
        os.unlink(temporary)


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the name `path` at the end: a reader sees the old file or the new, never a part.

    The bytes go to a temporary file in the same folder, reach the disk, and take the name in one step. Where that
    fails (no space, no permission) the old file is untouched, the temporary one is gone, and `RunError` says why.
    """
    temporary = ""
    with refusals("write", path):
        try:
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)
            raise


def remove(path: Path) -> None:
    """Remove a file, and what a process that was killed left of writing it; what is not there is no error."""
    with refusals("remove", path):
        for each in (path, *path.parent.glob(f".{path.name}.*")):
            each.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """`write_atomic` for text, in UTF-8; what has no place there (a strange file name) is spelt out."""
    write_atomic(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: object) -> None:
    """`write_atomic` for plain values and structs, as indented JSON."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def read_bytes(path: Path, kind: type[InputError] = RunError) -> bytes:
    """The content of a file; a missing or unreadable one is an error of the given kind that names it."""
    with refusals("read", path, kind):
        return path.read_bytes()


def make_folder(path: Path) -> None:
    """Create a folder and its parents; a file in the way or a missing permission is a `RunError`."""
    with refusals("create", path):
        path.mkdir(parents=True, exist_ok=True)


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
