"""Published data sets of the recipes: origin, license and files of each, and whether they are in a folder."""

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from pellucid.config.toml import read_toml
from pellucid.error_messages import translate_expectation
from pellucid.errors import ConfigError, InputError, abbreviate_reason, quote, suggest
from pellucid.files import FileDigest, digest_bytes, has_digest

SHARED_FOLDER = Path("../shared/data")
"""Folder of the data sets beside the current one; it takes precedence over the cache if it exists."""
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
"""Hosts from which a registry of the user may take files without encryption."""
DataSetName = Annotated[str, Meta(pattern=r"^(?!\.)[\w.-]+\Z", max_length=100)]
"""Name of a data set, which is also that of its folder."""
SafePath = Annotated[str, Meta(pattern=r"^(?!\.)[\w.-]+(/(?!\.)[\w.-]+)*\Z", max_length=200)]
"""Relative path that stays in its folder, without hidden names."""
Checksum = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""SHA-256 in hexadecimal."""
FileSize = Annotated[int, Meta(ge=1, le=2**30)]
"""Size in bytes."""


PLAIN_NAMES = "letters, digits, '_', '-' and '.', not '.' first, with '/' between the parts of a path"
"""Description of `DataSetName` and `SafePath`."""


class DataArchive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ZIP file that holds files of a data set, such as a Python package."""

    url: str
    size: FileSize
    sha256: Checksum


class PublishedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a data set; size and checksum are those of its content without gzip."""

    path: SafePath
    """Path below the folder of the data set; the file may also be compressed, with ".gz" after its name."""
    size: FileSize
    sha256: Checksum
    url: str = ""
    """End of the address, after `base_url` of the data set; the path by default."""
    member: str = ""
    """Name in the archive of the data set; empty for a file with an address of its own."""


class PublishedDataSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published data set."""

    title: str
    license: str
    source: str
    """Page of the source."""
    citation: str
    files: Annotated[tuple[PublishedFile, ...], Meta(min_length=1)]
    base_url: str = ""
    """Beginning of the addresses of the files."""
    archive: DataArchive | None = None
    instructions: str = ""
    """Instructions to get the files by hand; empty if they can be downloaded."""

    @property
    def size(self) -> int:
        """Return the size of all files in bytes."""
        return sum(file.size for file in self.files)

    def file_url(self, file: PublishedFile) -> str:
        """Return the address from which a file is downloaded.

        Args:
            file: A file of this set.
        """
        if file.member and self.archive is not None:
            return self.archive.url
        return self.base_url + (file.url or file.path)


class DataSetStatus(NamedTuple):
    """Files of a data set in a folder, compared with their checksums."""

    complete: tuple[PublishedFile, ...]
    """Files with the published content."""
    changed: tuple[Path, ...]
    """Paths of files with another content."""
    missing: tuple[PublishedFile, ...]

    def __str__(self) -> str:
        """Return a short description: "complete", "missing", "3 of 38 files", "changed"."""
        if self.changed:
            return "changed"
        if not self.complete:
            return "missing"
        total = len(self.complete) + len(self.missing)
        return f"{len(self.complete)} of {total} files" if self.missing else "complete"


def data_folder() -> Path:
    """Return the folder of the data sets: the environment variable PELLUCID_DATA, else ../shared/data if it exists,
    else pellucid/data in the folder of caches, which is XDG_CACHE_HOME or ~/.cache.
    """
    if "PELLUCID_DATA" in os.environ:
        return Path(os.environ["PELLUCID_DATA"])
    if SHARED_FOLDER.is_dir():
        return SHARED_FOLDER
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "pellucid" / "data"


def load_registry(path: Path | None = None) -> Mapping[str, PublishedDataSet]:
    """Return the published data sets by their names.

    Args:
        path: TOML file of a registry; None for that of the package. A registry of the user may name http addresses of
            this machine.

    Raises:
        ConfigError: The file is missing, a key is unknown or a value is invalid, or an address is not https.
    """
    if path is not None:
        return _check_registry(path, is_own=False)
    with resources.as_file(resources.files("pellucid.recipes").joinpath("published_data.toml")) as own:
        return _check_registry(own, is_own=True)


def _check_registry(path: Path, is_own: bool) -> Mapping[str, PublishedDataSet]:
    """Return the data sets of a registry; `ConfigError` if it is invalid."""
    registry = dict[str, PublishedDataSet]()
    for name, table in read_toml(path).items():
        try:
            registry[msgspec.convert(name, DataSetName)] = msgspec.convert(table, PublishedDataSet)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{path}: {quote(name)}: {_describe_mismatch(abbreviate_reason(error))}") from error
    for name, data_set in registry.items():
        for fault in _find_faults(data_set, is_own):
            raise ConfigError(f"{path}: {name}: {fault}")
    return registry


def _describe_mismatch(reason: str) -> str:
    """Return a message of msgspec in plain words, after the key: "files[0].size: expected a whole number, got ..."."""
    message, _, place = reason.partition(" - at `$")
    expected, _, given = message.partition(", got ")
    key = place.rstrip("`").removeprefix(".")
    if "matching regex" in expected:
        expected = "Expected " + ("64 hexadecimal digits" if key.endswith("sha256") else PLAIN_NAMES)
    given = f", got {translate_expectation(given)}" if given else ""
    return f"{key}: {translate_expectation(expected)}{given}".removeprefix(": ")


def _find_faults(data_set: PublishedDataSet, is_own: bool) -> Iterator[str]:
    """Yield descriptions of the faults of a data set."""
    for path, count in Counter(file.path for file in data_set.files).items():
        if count > 1:
            yield f"the file {quote(path)} occurs {count} times"
    if data_set.instructions:
        return
    for file in data_set.files:
        if file.member and data_set.archive is None:
            yield f"{quote(file.path)} is a member of an archive, and there is no archive"
        if not _is_allowed(url := data_set.file_url(file), is_own):
            yield f"expected an address that begins with https://, got {quote(url)}"


def _is_allowed(url: str, is_own: bool) -> bool:
    """Return whether files may be downloaded from an address."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_loopback = parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS
    return (parts.scheme == "https" and bool(parts.hostname)) or (is_loopback and not is_own)


def find_data_set(registry: Mapping[str, PublishedDataSet], name: str) -> PublishedDataSet:
    """Return the data set of a name.

    Args:
        registry: The data sets.
        name: The name.

    Raises:
        InputError: The name is unknown; the message suggests the most similar one.
    """
    if name not in registry:
        raise InputError(f"there is no data set {quote(name)}{suggest(name, registry)} (pellucid data list)")
    return registry[name]


def examine_data_set(data_set: PublishedDataSet, folder: Path) -> DataSetStatus:
    """Return which files of a data set are in a folder; their contents are read.

    Args:
        data_set: The data set.
        folder: Folder of this data set, which need not exist.
    """
    complete, changed, missing = list[PublishedFile](), list[Path](), list[PublishedFile]()
    for file in data_set.files:
        plain = folder / file.path
        paths = [path for path in (plain, plain.with_name(f"{plain.name}.gz")) if os.path.lexists(path)]
        if any(_has_content(path, file) for path in paths):
            complete.append(file)
        elif paths:
            changed.append(paths[0])
        else:
            missing.append(file)
    return DataSetStatus(tuple(complete), tuple(changed), tuple(missing))


def _has_content(path: Path, file: PublishedFile) -> bool:
    """Return whether a file, plain or with gzip, has the published content."""
    digest = FileDigest(file.size, file.sha256)
    if path.name == Path(file.path).name:
        return has_digest(path, digest)
    try:
        with gzip.open(path) as stream:
            return digest_bytes(stream.read(file.size + 1)) == digest
    except (OSError, EOFError, zlib.error):
        return False


def describe_download(name: str) -> str:
    """Return the part of a message about missing data that names the command: "pellucid data get scan".

    Args:
        name: Name of the data set.
    """
    return f"get it with pellucid data get {name}, or give the folder that holds {name} with --data or in PELLUCID_DATA"
