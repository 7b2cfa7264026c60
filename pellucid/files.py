"""File access: atomic writes, reads with a maximum size, and system errors as messages of one sentence."""

import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EISDIR, ELOOP
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

import msgspec

from pellucid.errors import InputError, RunError, abbreviate_reason, quote

TEMPORARY_NAME = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}\.tmp", re.DOTALL)
"""Pattern of the names of temporary files (see `_make_temporary`) for a file `name`."""
MAX_SETTINGS_SIZE = 2**20
"""Maximum size in bytes of a settings file, and of the list of members of an ensemble."""
MAX_FILE_SIZE = 2**30
"""Maximum size in bytes of a vocabulary, a log and a snapshot."""
NESTING_ERROR = "it is nested too deeply"
"""Message for a file whose nesting exceeds the stack."""
Decoded = TypeVar("Decoded")
MAX_GROWTH = 2**20
"""Maximum number of bytes by which a file may grow between the checks of its size and its content."""
BUSY_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between the attempts to replace or remove a file, 1.88 in all. Windows refuses both while another process has
the file open, which a viewer, a virus scanner or an indexer does for a moment."""
FILE_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def os_error_text(error: OSError) -> str:
    """Return the system's description of an error in lower case: "no space left on device".

    Args:
        error: Error of the operating system.
    """
    return (error.strerror or str(error)).lower()


@contextmanager
def wrap_os_errors(action: str, path: Path, kind: type[InputError] = RunError) -> Iterator[None]:
    """Raise an `OSError` inside the block as one message: "cannot write runs/a: permission denied".

    Args:
        action: Verb of the message.
        path: The file.
        kind: Type of the error to raise.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"cannot {action} {path}: {os_error_text(error)}") from error


def unexpected_files(folder: Path, expected: Container[str]) -> list[str]:
    """Return the sorted names in a folder that are neither expected nor hidden; none if it is not a folder.

    Args:
        folder: The folder.
        expected: Expected names.
    """
    if not folder.is_dir():
        return []
    with wrap_os_errors("read", folder):
        names = sorted(path.name for path in folder.iterdir())
    return [name for name in names if name not in expected and not name.startswith(".")]


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file atomically, as `open_atomic` does.

    Args:
        path: The file.
        content: The new content.

    Raises:
        RunError: The file cannot be written.
    """
    with open_atomic(path) as file:
        file.write(content)


def check_writable(path: Path) -> None:
    """Check that a file can be written; to be called before long computations.

    Args:
        path: The file.

    Raises:
        RunError: The file cannot be written.
    """
    with wrap_os_errors("write", path):
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        descriptor, temporary = _make_temporary(path)
        os.close(descriptor)
        os.unlink(temporary)


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing; it replaces `path` at the end of the block. Readers see the old file or the new one.

    The content is written to a temporary file in the same folder, flushed to disk, and renamed. If a step fails (no
    space, no permission), the old file is unchanged and the temporary file is removed.

    Args:
        path: The file.

    Yields:
        The temporary file, open for writing.

    Raises:
        RunError: The file cannot be written.
    """
    temporary = ""
    with wrap_os_errors("write", path):
        try:
            descriptor, temporary = _make_temporary(path)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            _retry_while_busy(lambda: os.replace(temporary, path))
        except BaseException:
            if temporary and os.path.exists(temporary):
                os.unlink(temporary)
            raise


def remove_file(path: Path) -> None:
    """Remove a file, if it exists, and the temporary files that killed processes left.

    Args:
        path: The file.

    Raises:
        RunError: A file cannot be removed.
    """
    with wrap_os_errors("remove", path):
        _retry_while_busy(lambda: path.unlink(missing_ok=True))
    remove_temporaries(path.parent, path.name.__eq__)


def remove_temporaries(folder: Path, is_own: Callable[[str], object]) -> None:
    """Remove temporary files that killed processes left in a folder.

    No other process may be writing the files: a temporary file does not show which process it belongs to.

    Args:
        folder: The folder; it need not exist.
        is_own: Function that returns whether a file name is one whose temporary files are removed.

    Raises:
        RunError: A file cannot be removed.
    """
    with wrap_os_errors("remove temporary files in", folder):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            temporary = TEMPORARY_NAME.fullmatch(path.name)
            if temporary and is_own(temporary["name"]) and path.is_file():
                path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text atomically in UTF-8; characters that cannot be encoded are escaped.

    Args:
        path: The file.
        text: The new content.

    Raises:
        RunError: The file cannot be written.
    """
    write_atomic(path, text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, value: object) -> None:
    """Write plain values and structs atomically as indented JSON.

    Args:
        path: The file.
        value: The new content.

    Raises:
        RunError: The file cannot be written.
    """
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def open_regular_file(path: Path, kind: type[InputError] = RunError, mode: str = "rb") -> IO[bytes]:
    """Open a regular file without blocking; a link to one is accepted for reading.

    All files of run folders are opened with this function: the folder of another user may contain a named pipe that
    nobody writes to, or a link to an endless device.

    Args:
        path: The file.
        kind: Type of the error to raise.
        mode: "rb" or "ab".

    Returns:
        The open file.

    Raises:
        InputError: Of type `kind`; the file is missing, not a regular file, or inaccessible.
    """
    with wrap_os_errors("write" if mode == "ab" else "read", path, kind):
        file: IO[bytes] = open(path, mode, opener=_open_nonblocking)  # noqa: SIM115 (the caller closes it)
        file_type = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
    if file_type != stat.S_IFREG:
        file.close()
        raise kind(f"{path} is {FILE_KINDS.get(file_type, 'a special file')}, not a regular file")
    return file


@contextmanager
def open_regular(path: Path, kind: type[InputError] = RunError, mode: str = "rb") -> Iterator[IO[bytes]]:
    """Open a regular file for a block, as `open_regular_file` does; system errors in the block are wrapped as well.

    Args:
        path: The file.
        kind: Type of the error to raise.
        mode: "rb" or "ab".
    """
    with wrap_os_errors("write" if mode == "ab" else "read", path, kind), open_regular_file(path, kind, mode) as file:
        yield file


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a named pipe, and without writing through a link."""
    writing = bool(flags & os.O_WRONLY)
    if writing and not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):  # Windows
        raise OSError(ELOOP, os.strerror(ELOOP))
    for name in (*(["O_NOFOLLOW"] if writing else []), "O_NONBLOCK", "O_NOCTTY"):
        flags |= getattr(os, name, 0)
    return os.open(path, flags, 0o666)


@contextmanager
def open_user_file(path: Path, kind: type[InputError] = RunError) -> Iterator[IO[bytes]]:
    """Open a file that the user named, which may be a pipe.

    Args:
        path: The file.
        kind: Type of the error to raise.
    """
    with wrap_os_errors("read", path, kind), open(path, "rb") as file:
        yield file


def read_bytes(
    path: Path, kind: type[InputError] = RunError, limit: int = MAX_FILE_SIZE, regular: bool = True
) -> bytes:
    """Return the content of a file.

    Args:
        path: The file.
        kind: Type of the error to raise.
        limit: Maximum size in bytes.
        regular: Whether it must be a regular file; a user may also name a pipe, such as <(…) of a shell.

    Raises:
        InputError: Of type `kind`; the file is missing, inaccessible or too large.
    """
    with (open_regular if regular else open_user_file)(path, kind) as file:
        size = os.fstat(file.fileno()).st_size
        # Virtual files (/proc) have size 0; the limit holds for them as well.
        content = b"" if size > limit else file.read(min(limit, size + MAX_GROWTH) + 1)
    if max(size, len(content)) > limit:
        raise kind(f"{path} is too large: it has more than {limit:,} bytes")
    return content


def file_exists(path: Path) -> bool:
    """Return whether a file exists.

    Args:
        path: The file.

    Raises:
        RunError: This cannot be determined, for example because the name is too long.
    """
    try:
        with wrap_os_errors("read", path):
            path.stat()
    except RunError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return False
        raise
    return True


def parse_json(content: bytes | str) -> Any:  # noqa: ANN401 (any JSON)
    """Return the value of a JSON text.

    Args:
        content: The text.

    Raises:
        ValueError: The text is malformed or too deeply nested, has a number with thousands of digits, or an object has
            a key twice.
    """
    try:
        return json.loads(content, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError(NESTING_ERROR) from None


def decode_json(content: bytes, kind: type[Decoded]) -> Decoded:
    """Return a JSON text as a struct.

    Args:
        content: The text.
        kind: Type of the struct.

    Raises:
        ValueError: The text is malformed or does not match the struct; the message names the field.
    """
    try:
        decoded = msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(abbreviate_reason(error)) from None
    except RecursionError:
        raise ValueError(NESTING_ERROR) from None
    parse_json(content)  # msgspec silently takes the last value of a repeated key
    return decoded


def repeated_key(content: bytes) -> str | None:
    """Return the first key that occurs twice in a JSON object, not in nested objects; None if there is none.

    Args:
        content: JSON of an object.
    """
    last: list[tuple[str, Any]] = []

    def remember(pairs: list[tuple[str, Any]]) -> None:
        """Store the keys and values of an object. The outermost object is parsed last.

        Args:
            pairs: Keys and values.
        """
        last[:] = pairs

    json.loads(content, object_pairs_hook=remember, parse_int=str, parse_float=str, strict=False)
    return _repeated(last)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the keys and values of a JSON object; `ValueError` for a key that occurs twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"the key {quote(_repeated(pairs))} occurs twice in an object")
    return values


def _repeated(pairs: Sequence[tuple[str, Any]]) -> str | None:
    """Return the first key that occurs twice."""
    seen = set[str]()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None


def has_content(path: Path, content: bytes) -> bool:
    """Return whether a file exists with exactly this content.

    Args:
        path: The file.
        content: The expected content.
    """
    with wrap_os_errors("read", path):
        return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def make_folder(path: Path) -> list[Path]:
    """Create a folder and its parents.

    Args:
        path: The folder.

    Returns:
        The folders that did not exist, innermost first.

    Raises:
        RunError: A file is in the way, or permission is denied.
    """
    with wrap_os_errors("create", path):
        absent = missing_folders(path)
        for folder in (*reversed(absent[1:]), path):  # `parents=True` recurses, and fails for a path of many parts
            folder.mkdir(exist_ok=True)
    return absent


def missing_folders(path: Path) -> list[Path]:
    """Return the folders that do not exist among a folder and its parents, innermost first.

    Args:
        path: The folder.
    """
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def remove_empty_folders(folders: Sequence[Path]) -> None:
    """Remove folders in order, up to the first that is not empty.

    Args:
        folders: The folders, innermost first.
    """
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _retry_while_busy(action: Callable[[], None]) -> None:
    """Replace or remove a file; repeat this for `BUSY_PAUSES` while it fails with `PermissionError`."""
    for pause in BUSY_PAUSES:
        with suppress(PermissionError):
            return action()
        time.sleep(pause)
    return action()


def _make_temporary(path: Path) -> tuple[int, str]:
    """Create a temporary file in the folder of `path`; return its descriptor and its name."""
    return tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")


def _umask() -> int:
    """Return the file mode mask of the process, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
