"""The file `manifest.json` of a shared folder: the files of the model with their checksums, and facts for its card.

Everything that a shared folder may hold follows from fixed names: those of a run folder that prediction reads, in the
folder itself or, for an ensemble, in one subfolder per member. No other file is downloaded or loaded, and none of them
is code.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pellucid.errors import RunError, abbreviate, abbreviate_reason, quote
from pellucid.files import (
    MAX_FILE_SIZE,
    MAX_SETTINGS_SIZE,
    FileDigest,
    check_json_format,
    decode_json,
    file_exists,
    has_digest,
    read_bytes,
    wrap_os_errors,
)
from pellucid.run_folder.run_files import CONFIDENCE, CONFIG, ENSEMBLE, MAX_MEMBERS, MODEL, PAIR_NGRAM, VOCABULARY

MANIFEST = "manifest.json"
README = "README.md"
"""The model card, which the hub shows. It is not in the manifest, so that it can be edited."""
PICTURE = "attention.png"
FORMAT = 1
"""Newest format version of the manifest and of the folder that is read, which `Manifest.format` has."""
MAX_PARAMETERS_SIZE = 2**32
"""Maximum size in bytes of a file of parameters."""
MAX_SIZES: Mapping[str, int] = {
    **dict.fromkeys((CONFIG, CONFIDENCE, ENSEMBLE), MAX_SETTINGS_SIZE),
    VOCABULARY: MAX_FILE_SIZE,
    **dict.fromkeys((MODEL, PAIR_NGRAM), MAX_PARAMETERS_SIZE),
}
"""Maximum size in bytes of each file of a shared model, by its name without the folder of a member."""
MEMBER_FILES = (CONFIG, VOCABULARY, MODEL, PAIR_NGRAM, CONFIDENCE)
"""Files of one run that prediction reads."""
REQUIRED_FILES = (CONFIG, VOCABULARY, MODEL)
DOCUMENTS = (README, PICTURE)
"""Files that are downloaded for the reader; nothing is loaded from them."""
MAX_DOCUMENT_SIZE = 2**24
MEMBER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""Pattern of the names of members' folders, which are valid on every system."""
REFUSED_SUFFIXES = frozenset(
    (
        *(".pkl", ".pickle", ".bin", ".pt", ".pth", ".ckpt", ".joblib", ".dill", ".npy", ".npz", ".h5", ".keras"),
        *(".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".exe", ".sh", ".bat", ".cmd", ".ps1", ".whl"),
    )
)
"""Endings of files that hold code, or that other programs load as pickles."""
FOREIGN_ADVICE = "load only repositories that you trust; pellucid share writes no such file"


class SharedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size and checksum of a file."""

    size: Annotated[int, Meta(ge=1, le=2**53)]
    """Size in bytes."""
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """SHA-256 in hexadecimal."""


class ScoreFact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A score on the validation set, in percent, with its 95 % confidence interval if there is one."""

    key: Annotated[str, Meta(max_length=100)]
    """Key in the log: "exact_match"."""
    name: Annotated[str, Meta(max_length=100)]
    """Display name."""
    value: float
    low: float | None = None
    high: float | None = None


class TrainingFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Facts of the training for the card, from the log of the run; a shared folder has no log."""

    training_examples: int | None = None
    synthetic_examples: int = 0
    """Number of synthetic training examples beside these."""
    validation_examples: int | None = None
    shared_examples: int = 0
    """Number of validation examples that are training examples, too."""
    updates: int | None = None
    """Number of updates until the best validation, whose parameters the model has."""
    date: Annotated[str, Meta(max_length=100)] = ""
    """Day on which the training started."""
    versions: Annotated[str, Meta(max_length=500)] = ""
    """Versions of Pellucid and of the packages of its extensions."""
    finished: bool = True
    """False if the training was shared before its end."""
    scores: Annotated[tuple[ScoreFact, ...], Meta(max_length=20)] = ()
    """Scores of the network in its best validation."""
    probability_error: float | None = None
    """Expected calibration error of the probabilities of the validation outputs, in percent."""
    confidence_error: float | None = None
    """Expected calibration error of their confidences, in percent."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of `MANIFEST`."""

    format: Literal[1]
    """Format version."""
    pellucid: Annotated[str, Meta(max_length=100)]
    """Version of Pellucid that wrote the folder."""
    task: Annotated[str, Meta(max_length=100)]
    extensions: dict[str, Annotated[str, Meta(max_length=200)]]
    """Version of each installed package whose attention or task the model needs, by the name of the package."""
    files: Annotated[dict[str, SharedFile], Meta(min_length=1, max_length=5 * MAX_MEMBERS + 2)]
    """Files of the model by their paths with slashes."""
    facts: TrainingFacts = TrainingFacts()


def read_manifest(folder: Path, display_name: str = "") -> Manifest:
    """Read the manifest of a shared folder, and check its format version and the names and sizes in it.

    Args:
        folder: Shared folder.
        display_name: Name of the folder or repository in messages; "" for its path.

    Raises:
        RunError: The file is missing or damaged, of a newer format, or lists a file that no shared model has.
    """
    path, name = folder / MANIFEST, display_name or str(folder)
    if not file_exists(path):
        raise RunError(f"{name} holds no {MANIFEST}: expected a folder that pellucid share or save_pretrained wrote")
    manifest = _decode_manifest(f"{name}: {MANIFEST}", read_bytes(path, limit=MAX_SETTINGS_SIZE))
    _check_listed(name, manifest)
    return manifest


def _decode_manifest(display_name: str, content: bytes) -> Manifest:
    """Return a manifest; a newer one is recognized by its version, whatever else is in it."""
    check_json_format(display_name, content, FORMAT)
    try:
        return decode_json(content, Manifest)
    except ValueError as error:
        raise RunError(f"{display_name} is damaged: {abbreviate_reason(error)}") from error


def _check_listed(display_name: str, manifest: Manifest) -> None:
    """Raise `RunError` unless the manifest lists the files of one run or of an ensemble, with possible sizes."""
    for name, file in manifest.files.items():
        if not is_model_file(name):
            raise RunError(f"{display_name}: {MANIFEST} lists {abbreviate(quote(name))}, which no shared model has")
        limit = MAX_SIZES[PurePosixPath(name).name]
        if file.size > limit:
            raise RunError(
                f"{display_name}: {name} is too large: it has {file.size:,} bytes, and {limit:,} are allowed"
            )
    folders = {name.rpartition("/")[0] for name in manifest.files}
    members = folders - {""} if ENSEMBLE in manifest.files else folders
    for member in sorted(members):
        for required in REQUIRED_FILES:
            if (path := f"{member}/{required}".lstrip("/")) not in manifest.files:
                raise RunError(f"{display_name}: {MANIFEST} does not list {path}, which every model needs")


def is_model_file(name: str) -> bool:
    """Return whether a path is that of a file of a shared model: a known name, alone or in the folder of a member.

    Args:
        name: Path with slashes.
    """
    folder, slash, file = name.rpartition("/")
    if not slash:
        return file in (*MEMBER_FILES, ENSEMBLE)
    return file in MEMBER_FILES and MEMBER_NAME.fullmatch(folder) is not None


def check_files(folder: Path, manifest: Manifest, display_name: str = "", allow_links: bool = False) -> None:
    """Check that the files of a shared folder are those of its manifest, before any is loaded.

    Args:
        folder: Shared folder.
        manifest: Its manifest.
        display_name: Name of the folder or repository in messages; "" for its path.
        allow_links: Accept symbolic links, of which the cache of the hub consists. False by default.

    Raises:
        RunError: A file is missing, a symbolic link, not in the manifest, or has another size or checksum.
    """
    name = display_name or str(folder)
    for path in sorted(_find_model_files(folder, manifest) - manifest.files.keys()):
        raise RunError(
            f"{name}: {MANIFEST} does not list {path}, which prediction would read: remove the file, or copy or "
            "download the folder again"
        )
    for path, file in manifest.files.items():
        file_path = folder / path
        is_in_member = file_path.parent != folder  # the folder itself may be reached by a link
        if not allow_links and (file_path.is_symlink() or (is_in_member and file_path.parent.is_symlink())):
            raise RunError(f"{name}: {path} is a symbolic link: expected a regular file; copy the files themselves")
        if not has_digest(file_path, FileDigest(file.size, file.sha256)):
            state = "has another size or SHA-256 than" if file_exists(file_path) else "is missing, but is listed in"
            raise RunError(
                f"{name}: {path} {state} {MANIFEST}: the copy is incomplete, or the file was changed after it was "
                "shared; copy or download the folder again"
            )


def _find_model_files(folder: Path, manifest: Manifest) -> set[str]:
    """Return the paths of all files of a shared folder that a run may have, in the folder and in those of members."""
    members = {path.rpartition("/")[0] for path in manifest.files} - {""}
    if members:
        with wrap_os_errors("read", folder):
            members |= {path.name for path in folder.iterdir() if MEMBER_NAME.fullmatch(path.name)}
    names = [*MEMBER_FILES, ENSEMBLE, *(f"{member}/{file}" for member in members for file in MEMBER_FILES)]
    return {name for name in names if file_exists(folder / name)}


def check_repository_names(display_name: str, names: Iterable[str]) -> None:
    """Check the paths of all files of a repository, of which only some are downloaded.

    Args:
        display_name: Name of the repository in messages.
        names: Paths with slashes.

    Raises:
        RunError: A path leaves the folder, or a file may hold code.
    """
    for name in names:
        parts = name.split("/")
        if not name.isprintable() or "\\" in name or ":" in name or not {"", ".", ".."}.isdisjoint(parts):
            raise RunError(
                f"{display_name} holds a file with the invalid path {abbreviate(quote(name))}: {FOREIGN_ADVICE}"
            )
        if PurePosixPath(name).suffix.lower() in REFUSED_SUFFIXES:
            raise RunError(f"{display_name} holds {abbreviate(quote(name))}, which may contain code: {FOREIGN_ADVICE}")
