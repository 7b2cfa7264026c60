"""Fingerprint of a command: checksums of all that its outputs depend on.

Finished blocks are used by the command with the same fingerprint only, and a process that computes blocks compares what
it loads with the fingerprint (`LoadedFiles`).
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pellucid.cluster.ray_connection import ClusterError
from pellucid.errors import DataError
from pellucid.files import digest_file
from pellucid.run_folder.run_files import (
    CONFIDENCE,
    CONFIG,
    ENSEMBLE,
    MODEL,
    PAIR_NGRAM,
    VOCABULARY,
    member_folders,
)
from pellucid.version import __version__

PLAIN_VARIABLE = "PELLUCID_PLAIN"
"""Environment variable that disables the compiled kernels; scores differ in the last digits."""
MODEL_FILES = (CONFIG, VOCABULARY, MODEL, PAIR_NGRAM, CONFIDENCE, ENSEMBLE)
"""Files of a run or an ensemble on which its outputs depend. The checkpoint of a training is none of them."""
MODEL_PART = "the model"
"""Name of the checksum of the run folders."""


class LoadedFiles(NamedTuple):
    """Files that each process of a command loads, with the checksums of the start of the command."""

    runs: Sequence[Path]
    """Run folders, as absolute paths."""
    lexicon: Path | None
    """File of --lexicon, as an absolute path; None without one."""
    fingerprint: Mapping[str, str]
    """Fingerprint of the command, from `command_fingerprint`."""

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check before and after the block, which loads the files, that they are those of the start of the command.

        Raises:
            ClusterError: They have changed, such as those of a run in training.
            InputError: As in the block, or a file cannot be read.
        """
        self._check()
        try:
            yield
        finally:  # a file that changes meanwhile may also look damaged
            self._check()

    def _check(self) -> None:
        """Raise `ClusterError` if a file has changed."""
        if _model_checksum(self.runs) != self.fingerprint[MODEL_PART]:
            raise ClusterError(
                f"the model in {', '.join(map(str, self.runs))} has changed since the command began: copy the run, and "
                "give the command with the copy"
            )
        if self.lexicon is not None and file_checksum(self.lexicon) != self.fingerprint[_file_part("lexicon")]:
            raise ClusterError(f"{self.lexicon} has changed since the command began: run the command again")


def command_fingerprint(args: object, options: Iterable[str], runs: Sequence[Path]) -> dict[str, str]:
    """Return checksums of all that the outputs of a command depend on, by the names that messages show.

    Args:
        args: Parsed flags.
        options: Names of the flags that change outputs; of a flag that names a file, the content counts.
        runs: Run folders.

    Raises:
        DataError: The file of a flag cannot be read.
        RunError: A run folder cannot be read.
    """
    values = {name: getattr(args, name) for name in options}
    files = {_file_part(name): file_checksum(value) for name, value in values.items() if isinstance(value, Path)}
    settings = {name: value for name, value in values.items() if not isinstance(value, Path)}
    plain = os.environ.get(PLAIN_VARIABLE, "0")
    return {
        **({} if plain in ("", "0") else {f"the variable {PLAIN_VARIABLE}": plain}),
        "the version of Pellucid": __version__,
        MODEL_PART: _model_checksum(runs),
        "the flags": checksum(settings),
        **files,
    }


def _file_part(name: str) -> str:
    """Return the name of the checksum of the file of a flag."""
    return f"the file of --{name}"


def _model_checksum(runs: Sequence[Path]) -> str:
    """Return the checksum of run folders."""
    return checksum({str(number): _model_checksums(run) for number, run in enumerate(runs)})


def _model_checksums(run: Path) -> dict[str, str]:
    """Return the checksums of the files of a run or an ensemble on which its outputs depend."""
    folders = [run, *(member_folders(run) if (run / ENSEMBLE).is_file() else [])]
    paths = [folder / name for folder in folders for name in MODEL_FILES]
    digests = {path.relative_to(run).as_posix(): digest_file(path) for path in paths}
    return {name: digest.sha256 for name, digest in digests.items() if digest is not None}


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file.

    Args:
        path: The file.

    Raises:
        DataError: It cannot be read.
    """
    digest = digest_file(path)
    if digest is None:
        raise DataError(f"cannot read {path}, or it is not a regular file")
    return digest.sha256


def checksum(value: object) -> str:
    """Return the SHA-256 of plain values.

    Args:
        value: Values that JSON has. Texts may be arguments of the command line that are not UTF-8.
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("ascii")).hexdigest()
