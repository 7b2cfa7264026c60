"""File access: atomic writes, reads with a maximum size, and system errors as messages of one sentence."""

import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import EINVAL, EISDIR, ELOOP, ENOTSUP, ENXIO
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, BinaryIO, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from pellucid.errors import InputError, RunError, abbreviate_reason, quote
from pellucid.version import __version__

TEMPORARY_NAME = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}\.tmp", re.DOTALL)
"""Pattern of the names of temporary files (see `temporary_path`) for a file `name`."""
MAX_SETTINGS_SIZE = 2**20
"""Maximum size in bytes of a settings file, and of the list of members of an ensemble."""
MAX_FILE_SIZE = 2**30
"""Maximum size in bytes of a vocabulary, a log and a snapshot."""
NESTING_ERROR = "it is nested too deeply"
"""Message for a file whose nesting exceeds the stack."""
Decoded = TypeVar("Decoded")
BLOCK_SIZE = 2**20
"""Number of bytes that are copied at once."""
MAX_GROWTH = 2**20
"""Maximum number of bytes by which a file may grow between the checks of its size and its content."""
HASH_BLOCK = 2**18
"""Number of bytes that are hashed at once."""
NEW_FILE_MODE = 0o666
"""Mode of a new file, without the bits of the umask."""
PRIVATE_MODE = 0o600
"""Mode of a temporary file before it gets that of the file that it replaces."""
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


CHANGES = ("write", "create", "remove")
"""Verbs of messages about changes of the file system."""


@contextmanager
def wrap_os_errors(action: str, path: Path, kind: type[InputError] = RunError) -> Iterator[None]:
    """Convert an `OSError` inside the block to an error of ours: "cannot write runs/a: permission denied".

    Where something of another kind is in the way of what is written or removed, or where "-" is given to an option that
    does not read standard input by this name, the message says what to do.

    Args:
        action: Verb of the message, such as "write".
        path: The file or folder, for the message.
        kind: Type of the error to raise; `RunError` by default.

    Raises:
        InputError: Of type `kind`; the block raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        if folder := inaccessible_folder(error, path):
            raise kind(f"cannot enter the folder {folder}: {os_error_text(error)}") from error
        is_in_the_way = isinstance(error, IsADirectoryError | NotADirectoryError | FileExistsError)
        advice = "; rename or remove what is there" if is_in_the_way and action in CHANGES else ""
        if action == "read" and isinstance(error, FileNotFoundError):
            advice = standard_input_advice(path)
        raise kind(f"cannot {action} {path}: {os_error_text(error)}{advice}") from error


def standard_input_advice(path: Path) -> str:
    """Return the advice, as the end of an error, for a file "-" that does not exist: "; give /dev/stdin for ...".

    Args:
        path: File that cannot be read.

    Returns:
        The advice; "" for another file, and on a system without /dev/stdin.
    """
    is_dash = str(path) == "-" and os.path.exists("/dev/stdin")
    return "; give /dev/stdin for the standard input" if is_dash else ""


def inaccessible_folder(error: OSError, path: Path) -> Path | None:
    """Return the outermost folder above a path that this process may not enter, so that the path may not exist.

    Args:
        error: Error of an access to the path.
        path: The path.

    Returns:
        The folder; None if there is none, or if the error has another cause.
    """
    if not isinstance(error, PermissionError):
        return None
    folders = (folder for folder in reversed(path.parents) if os.path.isdir(folder))
    return next((folder for folder in folders if not _has_right(folder, os.X_OK)), None)


def is_writable(folder: Path) -> bool:
    """Return whether this process, with its effective user, may create files in a folder that exists.

    Args:
        folder: The folder.
    """
    return _has_right(folder, os.W_OK | os.X_OK)


def _has_right(path: Path, mode: int) -> bool:
    """Return whether this process, with its effective user, has a right to a path."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def unexpected_files(folder: Path, expected: Container[str]) -> list[str]:
    """Return the sorted names in a folder that are neither expected nor hidden; none if it is not a folder.

    Args:
        folder: The folder.
        expected: Expected names.

    Raises:
        RunError: The folder cannot be read.
    """
    if not folder.is_dir():
        return []
    with wrap_os_errors("read", folder):
        names = sorted(path.name for path in folder.iterdir())
    return [name for name in names if name not in expected and not name.startswith(".")]


_FOLDER_CHECKS = dict[Path, Callable[[], None]]()
"""Check of each folder that this process has locked, by the folder."""


@contextmanager
def guard_folder(folder: Path, check: Callable[[], None]) -> Iterator[None]:
    """Run a check directly before each file below a folder is written, replaced or removed within the block.

    A temporary file is in the folder that the check sees, or else the renaming fails: so a check between the two is
    never too early, however long the content was computed.

    Args:
        folder: The folder, as the paths of its files name it.
        check: Function that raises an error if the path no longer leads to this folder.
    """
    former = _FOLDER_CHECKS.get(folder)
    _FOLDER_CHECKS[folder] = check
    try:
        yield
    finally:
        if former is None:
            del _FOLDER_CHECKS[folder]
        else:
            _FOLDER_CHECKS[folder] = former


def check_folder(path: Path) -> None:
    """Run the check of the innermost guarded folder that a path is in, if there is one (see `guard_folder`).

    Args:
        path: A file or folder that is created, replaced or removed next.

    Raises:
        RunError: The folder was removed, moved or replaced.
    """
    check = next((_FOLDER_CHECKS[parent] for parent in path.parents if parent in _FOLDER_CHECKS), None)
    if check is not None:
        check()


def write_atomic(path: Path, content: bytes, durable: bool = True) -> None:
    """Write a file atomically, as `open_atomic` does.

    Args:
        path: The file.
        content: The new content.
        durable: As for `open_atomic`; True by default.

    Raises:
        RunError: The file cannot be written.
    """
    with open_atomic(path, durable) as file:
        file.write(content)


def write_together(contents: Mapping[Path, bytes], mark: Path | None = None) -> None:
    """Write files of which none is of use without the others: all are on disk before the first one gets its name.

    Args:
        contents: The new content of each file.
        mark: One of the files, without which the others are not used. The old one is removed before the first file gets
            its name, and the new one gets it last, so that a killed process leaves no mixture of old and new files.

    Raises:
        RunError: A file cannot be written. Unless a name cannot be given, the old files are unchanged.
    """
    with ExitStack() as stack:  # the file that is opened first gets its name last
        for path in sorted(contents, key=lambda path: path != mark):
            file = stack.enter_context(open_atomic(path))
            file.write(contents[path])
            file.flush()
            os.fsync(file.fileno())
        if mark is not None:
            unlink_file(mark)


def check_writable(path: Path) -> None:
    """Check that a file can be written, before a long computation: create a temporary file beside it and remove it.

    Args:
        path: The file, which is not changed and need not exist.

    Raises:
        RunError: The file cannot be written.
    """
    with wrap_os_errors("write", path):
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        temporary = temporary_path(path)
        try:
            _create_file(temporary, PRIVATE_MODE).close()
        finally:
            temporary.unlink(missing_ok=True)


def check_folder_writable(folder: Path) -> None:
    """Check that files can be created in a folder, before a long computation; nothing is changed.

    Args:
        folder: The folder. If it is missing, the innermost folder above it is checked, in which it would be created.

    Raises:
        RunError: No file can be created there, or the folder or one above it is a file.
    """
    place = next((each for each in (folder, *folder.parents) if os.path.exists(each)), None)
    if place is not None and not place.is_dir():
        raise RunError(f"cannot write {folder}: {place} is a file, not a folder; name another folder")
    if place is not None and not is_writable(place):
        reason = f"no file can be created in {place}: permission denied, or its file system is read-only"
        raise RunError(f"cannot write {folder}: {reason}")


@contextmanager
def open_atomic(path: Path, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing; it replaces `path` at the end of the block. Readers see the old file or the new one.

    The content is written to a temporary file in the same folder, flushed to disk, and renamed; then the folder is
    flushed to disk, so that the new file survives a loss of power. If the block or a step before the renaming fails (no
    space, no permission), the old file is unchanged and the temporary file is removed. The new file has the mode of the
    old one. A symbolic link is replaced, so that a folder of another person cannot lead elsewhere; for a file that the
    user names, see `follow_links`.

    Args:
        path: The file.
        durable: Whether the file is flushed to disk; True by default. False for a file that is written again after a
            loss of power.

    Yields:
        The temporary file, open for writing.

    Raises:
        RunError: The file cannot be written.
    """
    with wrap_os_errors("write", path):
        temporary = temporary_path(path)  # known before the file exists: an interrupted creation is undone as well
        try:
            mode = _file_mode(path)
            # The system applies the umask to a new file. To read the umask, one sets it, and threads would disturb it.
            with _create_file(temporary, NEW_FILE_MODE if mode is None else PRIVATE_MODE) as file:
                yield file
                file.flush()
                if mode is not None:
                    os.chmod(temporary, _file_mode(path) or mode)
                if durable:
                    os.fsync(file.fileno())
            check_folder(path)
            _retry_while_busy(lambda: os.replace(temporary, path))
            if durable:
                sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def follow_links(path: Path) -> Path:
    """Return the file to which a path leads, so that writing it changes that file and not a symbolic link to it.

    Args:
        path: Path that the user names.
    """
    return Path(os.path.realpath(path)) if os.path.islink(path) else path


def follow_all_links(path: Path) -> Path:
    """Return the absolute path to which a path leads, without symbolic links; links that lead to themselves stay.

    Args:
        path: The path; one that holds U+0000 is returned as it is, and cannot be opened.
    """
    with suppress(ValueError):
        return Path(os.path.realpath(path))
    return path


def is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths lead to one file or folder that exists; symbolic links are followed.

    Args:
        path: A path.
        other: Another path.
    """
    with suppress(OSError, ValueError):  # no path holds U+0000
        return path.samefile(other)
    return False


def copy_regular(path: Path, copy: Path) -> None:
    """Copy a regular file atomically.

    Args:
        path: The file.
        copy: The new file.

    Raises:
        RunError: The file is not a regular file, cannot be read, or the copy cannot be written.
    """
    with open_regular(path) as file, open_atomic(copy) as written:
        while block := _read_block(file, path):
            written.write(block)


def _read_block(file: IO[bytes], path: Path) -> bytes:
    """Return the next bytes of a file; `RunError` that names it if it cannot be read."""
    with wrap_os_errors("read", path):
        return file.read(BLOCK_SIZE)


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk: without this, a new name may be lost when the power is.

    Windows cannot open a folder, and some network file systems cannot flush one. A folder in which the user may write,
    but not read, is not flushed.

    Args:
        folder: The folder.
    """
    if os.name == "nt":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (EINVAL, ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove_file(path: Path) -> None:
    """Remove a file, if it exists, and the temporary files that killed processes left of its writing.

    Args:
        path: The file.

    Raises:
        RunError: A file cannot be removed.
    """
    remove_files(path.parent, [path.name])


def remove_files(folder: Path, names: Collection[str]) -> None:
    """Remove files of a folder, if they exist, and the temporary files that killed processes left of their writing.

    Args:
        folder: The folder, which is listed once.
        names: Names of the files.

    Raises:
        RunError: A file cannot be removed.
    """
    for name in names:
        unlink_file(folder / name)
    remove_temporaries(folder, frozenset(names).__contains__)


def unlink_file(path: Path) -> None:
    """Remove a file, if it exists. Temporary files of its writing stay.

    Args:
        path: The file.

    Raises:
        RunError: The file cannot be removed.
    """
    check_folder(path)
    with wrap_os_errors("remove", path):
        _retry_while_busy(partial(path.unlink, missing_ok=True))


def remove_temporaries(folder: Path, is_own: Callable[[str], object]) -> None:
    """Remove temporary files that killed processes left in a folder.

    No other process may be writing the files: a temporary file does not show which process it belongs to.

    Args:
        folder: The folder; it need not exist.
        is_own: Function that returns whether a file name is one whose temporary files are removed.

    Raises:
        RunError: The folder cannot be read, or a file cannot be removed.
    """
    with wrap_os_errors("remove temporary files in", folder):
        for path in list(folder.iterdir()) if folder.is_dir() else ():
            temporary = TEMPORARY_NAME.fullmatch(path.name)
            if temporary and is_own(temporary["name"]) and path.is_file():
                check_folder(path)
                path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    r"""Write text atomically in UTF-8; unpaired surrogates, which it cannot encode, are escaped as \udc80.

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
        value: The new content, which msgspec can encode.

    Raises:
        RunError: The file cannot be written.
    """
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def open_regular_file(path: Path, kind: type[InputError] = RunError, mode: str = "rb") -> IO[bytes]:
    """Open a regular file without blocking; a link to one is accepted for reading only.

    All files of run folders are opened with this function: the folder of another user may contain a named pipe that
    nobody writes to, or a link to an endless device.

    Args:
        path: The file.
        kind: Type of the error to raise; `RunError` by default.
        mode: "rb" to read (the default), "ab" to append, which creates a missing file, or "ab+" to read as well.

    Returns:
        The open file, which the caller closes.

    Raises:
        InputError: Of type `kind`; the file is not a regular file, is inaccessible, or is missing for reading.
    """
    if mode != "rb":
        check_folder(path)
    with wrap_os_errors("read" if mode == "rb" else "write", path, kind):
        try:
            file: IO[bytes] = open(path, mode, opener=_open_nonblocking)  # noqa: SIM115 (the caller closes it)
        except OSError as error:
            if error.errno != ENXIO:
                raise
            raise kind(f"{path} is a named pipe, a socket or a missing device, not a regular file") from None
        file_type = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
    if file_type != stat.S_IFREG:
        file.close()
        raise kind(f"{path} is {FILE_KINDS.get(file_type, 'a special file')}, not a regular file")
    if mode != "rb":
        try:
            check_folder(path)  # again: the open file is in the folder that this sees
        except BaseException:
            file.close()
            raise
    return file


@contextmanager
def open_regular(path: Path, kind: type[InputError] = RunError, mode: str = "rb") -> Iterator[IO[bytes]]:
    """Open a regular file for a block, as `open_regular_file` does, and close it at the end.

    Args:
        path: The file.
        kind: Type of the error to raise; `RunError` by default.
        mode: "rb" to read (the default), or "ab" to append.

    Yields:
        The open file.

    Raises:
        InputError: Of type `kind`; as in `open_regular_file`, or a system error in the block.
    """
    with wrap_os_errors("write" if mode == "ab" else "read", path, kind), open_regular_file(path, kind, mode) as file:
        yield file


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a named pipe, and without writing through a link."""
    writing = bool(flags & (os.O_WRONLY | os.O_RDWR))
    if writing and not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):  # Windows
        raise OSError(ELOOP, os.strerror(ELOOP))
    for name in (*(["O_NOFOLLOW"] if writing else []), "O_NONBLOCK", "O_NOCTTY"):
        flags |= getattr(os, name, 0)
    return os.open(path, flags, 0o666)


@contextmanager
def open_user_file(path: Path, kind: type[InputError] = RunError) -> Iterator[IO[bytes]]:
    """Open a file that the user named, which may be a pipe, for reading in a block.

    Args:
        path: The file.
        kind: Type of the error to raise; `RunError` by default.

    Yields:
        The open file.

    Raises:
        InputError: Of type `kind`; the file cannot be opened, or a system error occurs in the block.
    """
    with wrap_os_errors("read", path, kind), open(path, "rb") as file:
        yield file


def read_bytes(
    path: Path, kind: type[InputError] = RunError, limit: int = MAX_FILE_SIZE, regular: bool = True
) -> bytes:
    """Return the content of a file.

    Args:
        path: The file.
        kind: Type of the error to raise; `RunError` by default.
        limit: Maximum size in bytes; `MAX_FILE_SIZE` by default.
        regular: Whether it must be a regular file, as in a run folder. False also accepts a pipe that a user names,
            such as <(…) of a shell. True by default.

    Raises:
        InputError: Of type `kind`; the file is missing, inaccessible, too large, or not regular but must be.
    """
    with (open_regular if regular else open_user_file)(path, kind) as file:
        size = os.fstat(file.fileno()).st_size
        # Pipes and virtual files (/proc) have size 0; the limit holds for them as well.
        expected = min(limit, size + MAX_GROWTH) if size else limit
        content = b"" if size > limit else file.read(expected + 1) if size else _read_up_to(file.read, limit + 1)
        if content is None:  # a virtual file without data, such as a log of the kernel
            raise kind(f"{path} has no data to read now: it is not an ordinary file")
        if expected < len(content) <= limit:
            raise kind(f"{path} has grown while it was read: read it again when nothing writes to it")
    if max(size, len(content)) > limit:
        raise kind(f"{path} is too large: it has more than {limit:,} bytes")
    return content


def _read_up_to(read: Callable[[int], bytes | None], size: int) -> bytes | None:
    """Return the content of an open file, at most `size` bytes; None for a virtual file without data.

    It is read in blocks: Python reserves memory for all bytes that are asked for at once, also those that never come.
    """
    content = bytearray()
    while len(content) < size:
        block = read(min(size - len(content), MAX_GROWTH))
        if block is None:
            return None
        if not block:
            break
        content += block
    return bytes(content)


class FileDigest(NamedTuple):
    """Size and checksum of the content of a file."""

    size: int
    """Size in bytes."""
    sha256: str
    """SHA-256 in hexadecimal."""


def digest_file(path: Path) -> FileDigest | None:
    """Return the size and the checksum of a regular file, read in bounded memory.

    Args:
        path: The file; None for a file of another kind, such as a pipe, and for one that cannot be read.
    """
    if not os.path.isfile(path):  # a pipe that is opened and closed is lost for its reader
        return None
    with suppress(RunError), open_regular(path) as file:
        return _digest(file)
    return None


def digest_bytes(content: bytes) -> FileDigest:
    """Return the size and the checksum of the content of a file.

    Args:
        content: The content.
    """
    return FileDigest(len(content), hashlib.sha256(content).hexdigest())


def has_digest(path: Path, digest: FileDigest) -> bool:
    """Return whether a regular file has this content, read in bounded memory; a file of another size is not read.

    Any path is accepted. Empty files are not: virtual files have size 0, and their content might make a reader wait.

    Args:
        path: The file, which need not exist.
        digest: Size and checksum of the expected content.
    """
    if not os.path.isfile(path):
        return False
    with suppress(RunError), open_regular(path) as file:
        return 0 < os.fstat(file.fileno()).st_size == digest.size and _digest(file) == digest
    return False


def _digest(file: IO[bytes]) -> FileDigest:
    """Return the size and the checksum of an open file, which is read to its end."""
    checksum, size = hashlib.sha256(), 0
    while block := file.read(HASH_BLOCK):
        checksum.update(block)
        size += len(block)
    return FileDigest(size, checksum.hexdigest())


def newer_format_text(version: int, newest: int) -> str:
    """Return the message about a file of a newer format: "is of format 3, ...: install a newer version of Pellucid".

    Args:
        version: Format version of the file.
        newest: Newest format version that this version of Pellucid reads.
    """
    return (
        f"is of format {version}, and this version of Pellucid, {__version__}, reads formats up to {newest}: install a "
        "newer version of Pellucid"
    )


class StatedFormat(msgspec.Struct, frozen=True):
    """The format version of a JSON file whose other fields need not be known."""

    format: Annotated[int, Meta(ge=0, le=2**31)] = 0
    version: Annotated[int, Meta(ge=0, le=2**31)] = 0


def check_json_format(path_text: str, content: bytes, newest: int) -> None:
    """Check that a JSON file is of no newer format, which it states in its field `format` or `version`.

    Args:
        path_text: Path of the file, for the message.
        content: Content of the file; one that is not a JSON object passes, and is reported when it is decoded.
        newest: Newest format version that this version of Pellucid reads.

    Raises:
        RunError: The format is newer.
    """
    version = 0
    # msgspec skips the other fields, without memory for their values: they may be those of a damaged or hostile file.
    with suppress(msgspec.MsgspecError, RecursionError):
        stated = msgspec.json.decode(content, type=StatedFormat)
        version = max(stated.format, stated.version)
    if version > newest:
        raise RunError(f"{path_text} {newer_format_text(version, newest)}")


def file_exists(path: Path) -> bool:
    """Return whether a file or folder exists.

    Args:
        path: The file; False if one of its parents is a file.

    Raises:
        RunError: This cannot be determined, for example because of permissions or because the name is too long.
    """
    try:
        with wrap_os_errors("read", path):
            path.stat()
    except RunError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return False
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == ELOOP:
            raise RunError(f"{error}; restore the file, or remove the link") from error.__cause__
        raise
    return True


def parse_json(content: bytes | str) -> Any:  # noqa: ANN401 (any JSON)
    """Return the value of a JSON text, as `json.loads` does.

    Args:
        content: The text.

    Raises:
        ValueError: The text is malformed or too deeply nested, contains a whole number of more than 4,300 digits, or an
            object has a key twice.
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
        ValueError: The text is malformed or does not match the struct (the message names the field), or as in
            `parse_json`.
    """
    # `parse_json` takes 24 times the size of the text: only for one that matches the struct, and not beside the struct.
    _decode_struct(content, kind)
    strict_error = _json_error(content)
    if strict_error is not None:  # msgspec accepts repeated keys, and long whole numbers
        raise strict_error
    return _decode_struct(content, kind)


def _decode_struct(content: bytes, kind: type[Decoded]) -> Decoded:
    """Return a JSON text as a struct; raise `ValueError` as in `decode_json`, but not for repeated keys."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(abbreviate_reason(error)) from None
    except RecursionError:
        raise ValueError(NESTING_ERROR) from None


def _json_error(content: bytes) -> ValueError | None:
    """Return the error of `parse_json` for a text; None without one."""
    failure = None
    try:
        parse_json(content)
    except ValueError as error:
        failure = error
    return failure


def repeated_key(content: bytes) -> str | None:
    """Return the first key that occurs twice in a JSON object, not in nested objects; None if there is none.

    Args:
        content: JSON of an object, which is valid.
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
    """Return whether a file exists and holds exactly this content.

    Args:
        path: The file.
        content: The expected content.

    Raises:
        RunError: The file cannot be read.
    """
    with wrap_os_errors("read", path):
        return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def make_folder(path: Path) -> list[Path]:
    """Create a folder and its missing parents, and flush their names to disk; an existing folder stays as it is.

    Args:
        path: The folder.

    Returns:
        The folders that did not exist, innermost first, for `remove_empty_folders`.

    Raises:
        RunError: A folder cannot be created: a file is in the way, or permission is denied.
    """
    with wrap_os_errors("create", path):
        absent = missing_folders(path)
        for folder in (*reversed(absent[1:]), path):  # `parents=True` recurses, and fails for a path of many parts
            check_folder(folder)
            folder.mkdir(exist_ok=True)
        for folder in absent:
            sync_folder(folder.parent)
    return absent


def missing_folders(path: Path) -> list[Path]:
    """Return those of a folder and its parents that do not exist, innermost first.

    Args:
        path: The folder.
    """
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def remove_empty_folders(folders: Sequence[Path]) -> None:
    """Remove folders in order, up to the first that is not empty or cannot be removed.

    Args:
        folders: The folders, innermost first.
    """
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _retry_while_busy(action: Callable[[], None]) -> None:
    """Replace or remove a file; on Windows, repeat this for `BUSY_PAUSES` while another process has the file open."""
    for pause in BUSY_PAUSES:
        try:
            return action()
        except PermissionError as error:
            if getattr(error, "winerror", None) is None:  # an error of POSIX does not go away by waiting
                raise
        time.sleep(pause)
    return action()


def temporary_path(path: Path) -> Path:
    """Return a path in the folder of `path` for a temporary file or folder; nothing has this name yet.

    Args:
        path: Path that gets the content later.
    """
    while True:
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
        if not os.path.lexists(temporary):
            return temporary


def _create_file(path: Path, mode: int) -> BinaryIO:
    """Create a file with a mode, to which the system applies the umask of the process, and open it for writing."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def _file_mode(path: Path) -> int | None:
    """Return the mode of a regular file; None if there is none."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            return stat.S_IMODE(status.st_mode)
    return None
