"""Files a user keeps: written whole or not at all, and every refusal of the system told in one sentence."""

import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EISDIR
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import msgspec

from pellucid.errors import InputError, RunError, abbreviate_reason, quote

TEMPORARY = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}\.tmp", re.DOTALL)
"""Name of a temporary file (`_make_temporary`) of the file `name`."""
MAX_SETTINGS = 2**20
"""Greatest size of a file of settings, and of the list of an ensemble, in bytes."""
MAX_CONTENT = 2**30
"""Greatest size of a vocabulary, a log and a snapshot, in bytes."""
TOO_DEEP = "it is nested too deep"
"""What is said of a file for which the stack is too small."""
Decoded = TypeVar("Decoded")
SPARE = 2**20
"""Bytes that may be appended to a file between the look at its size and its reading."""
FILE_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


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
        descriptor, temporary = _make_temporary(path)
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
            descriptor, temporary = _make_temporary(path)
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
        path.unlink(missing_ok=True)
    remove_temporaries(path.parent, path.name.__eq__)


def remove_temporaries(folder: Path, is_own: Callable[[str], object]) -> None:
    """Remove the temporary files of `replaced` that killed processes left in a folder.

    Call this only while no other process can be writing these files: a temporary file does not tell whose it is.

    Args:
        folder: The folder; one that does not exist holds no temporary files.
        is_own: Whether a file name is one whose temporary files are to be removed.

    Raises:
        RunError: The system refuses.
    """
    with refusals("remove temporary files in", folder):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            temporary = TEMPORARY.fullmatch(path.name)
            if temporary and is_own(temporary["name"]) and path.is_file():
                path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """`write_atomic` for text, in UTF-8; what has no place there (a strange file name) is spelt out."""
    write_atomic(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: object) -> None:
    """`write_atomic` for plain values and structs, as indented JSON."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def regular_file(path: Path, kind: type[InputError] = RunError, mode: str = "rb") -> IO[bytes]:
    """Open a regular file, to which symbolic links may lead where it is read, without waiting for anything.

    Every file of a run folder is opened here: a folder from a stranger may hold a named pipe that nobody writes to, or
    a link to a device that never ends.

    Args:
        path: The file.
        kind: The type of error that is raised.
        mode: "rb" or "ab".

    Returns:
        The open file.

    Raises:
        InputError: Of the given kind, where the file is missing or no regular file, and where the system refuses. The
            message names the file.
    """
    with refusals("write" if mode == "ab" else "read", path, kind):
        file: IO[bytes] = open(path, mode, opener=_open_at_once)  # noqa: SIM115 (closed by who asked for it)
        found = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
    if found != stat.S_IFREG:
        file.close()
        raise kind(f"{path} is {FILE_KINDS.get(found, 'something else')}, not a regular file")
    return file


@contextmanager
def open_regular(path: Path, kind: type[InputError] = RunError, mode: str = "rb") -> Iterator[IO[bytes]]:
    """Open a `regular_file` for a block; the system's refusals while the block reads or writes are told alike."""
    with refusals("write" if mode == "ab" else "read", path, kind), regular_file(path, kind, mode) as file:
        yield file


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; an open of a named pipe does not wait for its other end, and nothing is written through a link."""
    follow = os.O_NOFOLLOW if flags & os.O_WRONLY else 0
    return os.open(path, flags | follow | os.O_NONBLOCK | os.O_NOCTTY, 0o666)


@contextmanager
def open_named(path: Path, kind: type[InputError] = RunError) -> Iterator[IO[bytes]]:
    """Open what the user named, a pipe too, which is waited for; errors as `open_regular` has them."""
    with refusals("read", path, kind), open(path, "rb") as file:
        yield file


def read_bytes(path: Path, kind: type[InputError] = RunError, limit: int = MAX_CONTENT, regular: bool = True) -> bytes:
    """Return the content of a file of at most `limit` bytes; errors are of the given kind and name the file.

    It is a `regular` file, or whatever the user named: <(…) of a shell is a pipe.
    """
    with (open_regular if regular else open_named)(path, kind) as file:
        size = os.fstat(file.fileno()).st_size
        # What the system makes up (/proc) has no size: it is read no further than other files.
        content = b"" if size > limit else file.read(min(limit, size + SPARE) + 1)
    if max(size, len(content)) > limit:
        raise kind(f"{path} is too large: it has more than {limit:,} bytes")
    return content


def is_there(path: Path) -> bool:
    """Whether there is such a file; `RunError` where that cannot be known (a name that is too long, say)."""
    try:
        with refusals("read", path):
            path.stat()
    except RunError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return False
        raise
    return True


def plain_json(content: bytes | str) -> Any:  # noqa: ANN401 (any JSON)
    """Return the value of a JSON text.

    Raises:
        ValueError: It is no JSON, is nested too deep, has endless digits, or an object has a key twice.
    """
    try:
        return json.loads(content, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def decode_json(content: bytes, kind: type[Decoded]) -> Decoded:
    """Return a JSON text as a struct; `ValueError` for any other text. It tells the field and what was expected."""
    try:
        decoded = msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(abbreviate_reason(error)) from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    plain_json(content)  # of a key that stands twice msgspec takes the last value, and says nothing
    return decoded


def repeated_key(content: bytes) -> str | None:
    """Return the first key that stands twice in a JSON object, objects within it left aside; None for none."""
    last: list[tuple[str, Any]] = []

    def remember(pairs: list[tuple[str, Any]]) -> None:
        """The object that ends last is the one that holds all others."""
        last[:] = pairs

    json.loads(content, object_pairs_hook=remember, parse_int=str, parse_float=str, strict=False)
    return _repeated(last)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the keys and values of a JSON object; `ValueError` for a key that stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the key {quote(_repeated(pairs))} stands twice in an object")
    return found


def _repeated(pairs: Sequence[tuple[str, Any]]) -> str | None:
    """Return the first key that stands twice."""
    seen = set[str]()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None


def has_content(path: Path, content: bytes) -> bool:
    """Return whether a file has exactly this content; what is no file has not."""
    with refusals("read", path):
        return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def make_folder(path: Path) -> list[Path]:
    """Create a folder and its parents; a file in the way or a missing permission is a `RunError`.

    Returns:
        The folders that were not there, innermost first.
    """
    with refusals("create", path):
        absent = absent_folders(path)
        for each in (*reversed(absent[1:]), path):  # `parents=True` recurses, and fails for a path of many parts
            each.mkdir(exist_ok=True)
    return absent


def absent_folders(path: Path) -> list[Path]:
    """Return a folder and its parents as far as they are not there, innermost first."""
    return [each for each in (path, *path.parents) if not each.exists()]


def remove_empty_folders(folders: Sequence[Path]) -> None:
    """Remove folders as far as they are empty, up to the first that is not."""
    with suppress(OSError):
        for each in folders:
            each.rmdir()


def _make_temporary(path: Path) -> tuple[int, str]:
    """Create a temporary file beside `path`, to be renamed to it; its descriptor and its name."""
    return tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
