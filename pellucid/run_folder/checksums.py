"""Checksums of all files of a run folder: they show which files were changed, removed or added since a list was made.

The list has the format of `sha256sum`. The checksum of the folder is the SHA-256 of the list.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from pellucid.argument_checks import check_arguments
from pellucid.errors import CONTROL_CHARACTERS, DataError, RunError, quote
from pellucid.files import digest_file, file_exists, read_bytes, wrap_os_errors
from pellucid.run_folder.advice import check_folder_exists
from pellucid.run_folder.run_files import CONFIG, ENSEMBLE, LOCK

MAX_FILES = 10_000
"""Maximum number of files of a folder: an ensemble of 40 members has as many, with all snapshots."""
MAX_FOLDER_SIZE = 2**42
"""Maximum size of all files of a folder in bytes (4 TiB): a sparse file takes no space and any time to read."""
MAX_LIST_SIZE = MAX_FILES * 1024
"""Maximum size of a list of checksums, in bytes."""
MAX_DEPTH = 3
"""Maximum number of folders within each other: an ensemble, a member and its snapshots."""
LIST_LINE = re.compile(r"[ \t]*([0-9a-fA-F]{64}) [ *]([^\r]+)")


@check_arguments
def folder_checksums(folder: str | Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a run folder, in bounded memory.

    Args:
        folder: Run folder, folder of an ensemble, or shared folder.

    Returns:
        Checksum in hexadecimal by the path with slashes, sorted. The lock file is left out.

    Raises:
        RunError: It is not a run folder, or has more than `MAX_FILES` files, `MAX_FOLDER_SIZE` bytes or `MAX_DEPTH`
            levels; or a file is a link, a device or a pipe, cannot be read, or has a name with control characters or a
            backslash.
    """
    folder = Path(folder)
    check_folder_exists(folder)
    if not any(file_exists(folder / name) for name in (CONFIG, ENSEMBLE)):
        raise RunError(f"{folder} is not a run folder: it holds neither {CONFIG} nor {ENSEMBLE}")
    checksums, size = dict[str, str](), 0
    for path in _files(folder, MAX_DEPTH):
        name = path.relative_to(folder).as_posix()
        if CONTROL_CHARACTERS.search(name) or "\\" in name:
            raise RunError(
                f"{quote(path)}: expected a name without control characters and backslashes: rename the file"
            )
        if len(checksums) == MAX_FILES:
            raise RunError(f"{folder} has more than {MAX_FILES:,} files: expected the files of a run only")
        with wrap_os_errors("read", path):
            size += path.lstat().st_size
        if size > MAX_FOLDER_SIZE:
            raise RunError(f"{path}: the files of {folder} have more than {MAX_FOLDER_SIZE:,} bytes: expected a run")
        digest = None if path.is_symlink() else digest_file(path)
        if digest is None:
            raise RunError(f"{path} cannot be read, or is a link, a device or a pipe: expected a regular file")
        checksums[name] = digest.sha256
    return dict(sorted(checksums.items()))


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the paths in a folder and its subfolders that are no folders, without the lock."""
    if not depth:
        raise RunError(
            f"{folder}: expected at most {MAX_DEPTH} folders within each other, as in the folder of an ensemble"
        )
    with wrap_os_errors("read", folder), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), depth - 1)
            elif entry.name != LOCK:
                yield Path(entry.path)


def format_checksums(checksums: Mapping[str, str]) -> str:
    """Return checksums as `sha256sum` prints them, one file per line.

    Args:
        checksums: Checksum of each file, by its path.
    """
    # `sha256sum` reads standard input for the path "-".
    return "".join(f"{checksum}  {'./-' if name == '-' else name}\n" for name, checksum in checksums.items())


def checksum_of_folder(checksums: Mapping[str, str]) -> str:
    """Return the SHA-256 of a list of checksums, in hexadecimal.

    Args:
        checksums: Checksum of each file, by its path.
    """
    return hashlib.sha256(format_checksums(checksums).encode()).hexdigest()


@check_arguments
def read_checksums(path: str | Path) -> dict[str, str]:
    """Read a list of checksums, as `format_checksums` or `sha256sum` write it.

    As `sha256sum --check` does, it skips empty lines and lines that begin with #, and accepts upper-case digits and
    repeated lines. It also accepts a byte order mark and lines of white space.

    Args:
        path: The list, which may be a pipe.

    Raises:
        DataError: The file cannot be read or has more than `MAX_LIST_SIZE` bytes; a line is malformed; a path is not
            inside the folder; or two lines give different checksums for one path.
    """
    path = Path(path)
    content = read_bytes(path, DataError, MAX_LIST_SIZE, regular=False)
    checksums, lines = dict[str, str](), dict[str, int]()
    # Not splitlines: a name may contain U+2028, which does not end a line.
    for number, line in enumerate(content.decode("utf-8-sig", "replace").split("\n"), 1):
        if line.isspace() or line[:1] in ("", "#"):
            continue
        name, checksum = _parse_line(line.removesuffix("\r"), f"{path}:{number}")
        if checksums.setdefault(name, checksum) != checksum:
            raise DataError(f"{path}:{number}: the checksum of {quote(name)} differs from that in line {lines[name]:,}")
        lines.setdefault(name, number)
    if not checksums:
        state = "has no line with a checksum" if content else "is empty"
        raise DataError(f"{path} {state}: expected a list of checksums")
    return checksums


def _parse_line(line: str, location: str) -> tuple[str, str]:
    """Return the path, without ".", and the checksum of a line of a list; error messages begin with its location."""
    match = LIST_LINE.fullmatch(line)
    if match is None:
        raise DataError(f"{location}: expected a SHA-256, two spaces and the path of a file, got {quote(line)}")
    path = PurePosixPath(match[2])
    if match[2] == "-" or not path.parts or path.is_absolute() or ".." in path.parts:
        reason = ', which stands for standard input (a file of this name is "./-")' if match[2] == "-" else ""
        raise DataError(f"{location}: expected the path of a file in the run folder, got {quote(match[2])}{reason}")
    return str(path), match[1].lower()


def check_checksums(folder: Path, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Compare the files of a folder with a list.

    Args:
        folder: The folder, for the message.
        found: Checksum of each file, by its path.
        expected: The list.

    Raises:
        RunError: A file was changed, removed or added; the message has a line for each of the first ten.
    """
    differences = [
        *(f"{folder / name} was changed" for name in expected if name in found and found[name] != expected[name]),
        *(f"{folder / name} is missing" for name in expected if name not in found),
        *(f"{folder / name} is not in the list" for name in found if name not in expected),
    ]
    if differences:
        others = [f"and {len(differences) - 10:,} further differences"] if len(differences) > 10 else []
        raise RunError(
            f"{folder} differs from the list in {len(differences):,} of its files; restore them from a copy, or ask "
            "whoever gave you the folder",
            *differences[:10],
            *others,
        )
