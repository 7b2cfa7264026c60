"""Fingerprint of a command: checksums of all that its outputs depend on.

Finished blocks are used by the command with the same fingerprint only.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from pellucid.errors import DataError
from pellucid.files import digest_file
from pellucid.run_folder.run_files import (
    CHECKPOINT,
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
MODEL_FILES = (CONFIG, VOCABULARY, MODEL, CHECKPOINT, PAIR_NGRAM, CONFIDENCE, ENSEMBLE)
"""Files of a run or an ensemble that prediction reads."""


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
    settings = {name: file_checksum(value) if isinstance(value, Path) else value for name, value in values.items()}
    plain = os.environ.get(PLAIN_VARIABLE, "0")
    return {
        **({} if plain in ("", "0") else {f"the variable {PLAIN_VARIABLE}": plain}),
        "the version of Pellucid": __version__,
        "the model": checksum({str(number): _model_checksums(run) for number, run in enumerate(runs)}),
        "the flags": checksum(settings),
    }


def _model_checksums(run: Path) -> dict[str, str]:
    """Return the checksums of the files of a run or an ensemble that prediction reads."""
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
        raise DataError(f"cannot read {path}, or it is no regular file")
    return digest.sha256


def checksum(value: object) -> str:
    """Return the SHA-256 of plain values.

    Args:
        value: Values that JSON has.
    """
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
