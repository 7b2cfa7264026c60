"""Check that the data files of several trainings stay the same, from the start of the command to its end."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pellucid.config.settings import Config
from pellucid.data.prepared_data import DESCRIPTION_FILE
from pellucid.errors import RunError
from pellucid.files import FileDigest, digest_file
from pellucid.training.events import FileRead, PairsMixedIn, RunEvent
from pellucid.training.training_data import TrainingInputs, prepared_folder

FileDigests = tuple[tuple[str, FileDigest], ...]
"""Path, size and checksum of each data file, for the worker processes of the trainings."""


class FileStatus(NamedTuple):
    """Size and time of a file; while both are the same, its content is not read again."""

    size: int
    """Size in bytes."""
    modified_ns: int
    """Time of the last change, in nanoseconds."""


class DataFileCheck:
    """Sizes and checksums of the data files of several trainings at the start of a command."""

    def __init__(self, files: TrainingInputs, config: Config) -> None:
        """Read the files and store their checksums; tables in memory and pipes have none.

        Args:
            files: Training and validation data.
            config: Configuration, for the file of earlier pairs that are mixed in.
        """
        prepared = prepared_folder(files)
        inputs = files if prepared is None else (prepared / DESCRIPTION_FILE,)
        paths = [path for path in inputs if isinstance(path, Path)]
        if config.training.mix_in:
            paths.append(Path(config.training.mix_in))
        # The status is read before the content: a change meanwhile leads to another status later.
        self._statuses = {path: _file_status(path) for path in paths}
        digests = {path: digest_file(path) for path in paths}
        self._digests = {path: digest for path, digest in digests.items() if digest is not None}

    @property
    def digests(self) -> FileDigests:
        """Path, size and checksum of each file."""
        return tuple((str(path), digest) for path, digest in self._digests.items())

    def check(self) -> None:
        """Check that the files have the same contents as at the start; one of the same size and time is not read again.

        Raises:
            RunError: A file was changed or removed, or cannot be read.
        """
        for path, known in self._digests.items():
            status = _file_status(path)
            if status is not None and status == self._statuses[path]:
                continue
            digest = digest_file(path)
            if digest != known:
                raise _changed_file_error(path, known, digest)
            self._statuses[path] = status


def check_read_files(event: RunEvent, digests: FileDigests) -> None:
    """Check that the files that a training has read have the contents that they had at the start of the command.

    Args:
        event: Event of the training.
        digests: Path, size and checksum of each file at the start.

    Raises:
        RunError: A file was changed.
    """
    match event:
        case FileRead():
            reads = [(event.path, event.digest), (event.target, event.target_digest)]
        case PairsMixedIn():
            reads = [(event.path, event.digest)]
        case _:
            return
    known_digests = dict(digests)
    for path, digest in reads:
        known = known_digests.get(str(path))
        if known is not None and digest is not None and digest != known:
            raise _changed_file_error(Path(str(path)), known, digest)


def _file_status(path: Path) -> FileStatus | None:
    """Return the size and time of a file; None if it is missing."""
    with suppress(OSError):
        status = os.stat(path)
        return FileStatus(status.st_size, status.st_mtime_ns)
    return None


def _changed_file_error(path: Path, known: FileDigest, digest: FileDigest | None) -> RunError:
    """Return the error for a file that was changed during a command."""
    if digest is None:
        difference = "it is missing or cannot be read"
    elif digest.size == known.size:
        difference = f"another content of {known.size:,} bytes, too"
    else:
        difference = f"{known.size:,} bytes before, {digest.size:,} now"
    return RunError(
        f"{path} has changed since this command began ({difference}). All trainings of a command read the same data: "
        "restore the file, and run the same command again, which continues; or name a new folder for the new data"
    )
