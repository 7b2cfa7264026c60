"""Download of published data sets, by the package pooch (the extra `data`).

Pooch keeps the downloaded files in a hidden folder of the data folder, and checks their SHA-256. `ResumableDownloader`
takes the place of its own downloader, which begins every file anew. The files are copied to the folder of the data set
when all of them are there. Only this module uses the network, and only for addresses of the registry.
"""

import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pellucid.errors import DataError, abbreviate_reason
from pellucid.file_lock import try_lock, wait_for_lock
from pellucid.files import (
    FileDigest,
    copy_regular,
    digest_bytes,
    digest_file,
    has_digest,
    make_folder,
    wrap_os_errors,
    write_atomic,
)
from pellucid.recipes.published_data import PublishedDataSet, PublishedFile, examine_data_set
from pellucid.version import __version__

if TYPE_CHECKING:
    from requests import Response, Session

DOWNLOADS = ".downloads"
"""Folder of unfinished downloads, in the data folder."""
TIMEOUT_SECONDS = 30.0
"""Maximum time in which a server must answer, and send the next part of a file."""
MAX_REDIRECTS = 5
BLOCK_SIZE = 2**16
"""Number of bytes that are read from the network at once."""
CONTINUE = "the same command continues the download"


class DownloadEvents(NamedTuple):
    """Functions that are called during a download."""

    advance: Callable[[int], object] = lambda size: None
    """Receives the number of bytes that were added; it is negative where a file begins anew."""
    wait: Callable[[], object] = lambda: None
    """Called before waiting for another process that downloads this data set."""


class RemoteFile(NamedTuple):
    """A file on a server."""

    url: str
    size: int
    sha256: str


def fetch_data_set(name: str, data_set: PublishedDataSet, data: Path, events: DownloadEvents) -> int:
    """Download the missing files of a data set; they appear in its folder when all of them are downloaded.

    Args:
        name: Name of the data set, which is that of its folder.
        data_set: The data set, which must be one without instructions.
        data: Folder of the data sets; created if it is missing.
        events: Functions for the progress.

    Returns:
        Number of new files.

    Raises:
        DataError: A file cannot be downloaded, or has another content than the published one.
        RunError: A file cannot be written.
        ModuleNotFoundError: pooch is not installed.
    """
    if not missing_files(data_set, data / name):
        return 0
    import pooch

    pooch.get_logger().setLevel("WARNING")
    staging = data / DOWNLOADS / name
    with wrap_os_errors("write", staging):
        make_folder(staging.parent)
        with _locked(staging.with_name(f"{name}.lock"), events), _open_session(data_set) as session:
            make_folder(staging)
            missing = missing_files(data_set, data / name)  # another process may have downloaded them
            remotes = dict.fromkeys(remote_file(data_set, file) for file in missing)
            paths = {remote: _fetch(remote, staging, session, events) for remote in remotes}
            for file in missing:
                _install(file, paths[remote_file(data_set, file)], data / name / file.path)
            shutil.rmtree(staging)
    return len(missing)


def missing_files(data_set: PublishedDataSet, folder: Path) -> tuple[PublishedFile, ...]:
    """Return the files of a data set that are not in its folder.

    Args:
        data_set: The data set.
        folder: Its folder.

    Raises:
        DataError: A file in the folder has another content than the published one. It may be the user's own, and is
            never replaced.
    """
    status = examine_data_set(data_set, folder)
    if status.changed:
        is_dangling = not os.path.exists(status.changed[0])
        reason = (
            "is a link to a file that does not exist"
            if is_dangling
            else "exists, and is not the published file (its SHA-256 differs)"
        )
        raise DataError(f"{status.changed[0]} {reason}: rename or remove it, then repeat the command")
    return status.missing


def remote_file(data_set: PublishedDataSet, file: PublishedFile) -> RemoteFile:
    """Return what is downloaded for a file: the file, or the archive that holds it.

    Args:
        data_set: The data set.
        file: One of its files.
    """
    content = data_set.archive if file.member and data_set.archive is not None else file
    return RemoteFile(data_set.file_url(file), content.size, content.sha256)


@contextmanager
def _locked(path: Path, events: DownloadEvents) -> Iterator[None]:
    """Hold the lock of a file in the block; wait for it while another process has it."""
    with open(path, "ab") as file:
        if not try_lock(file):
            events.wait()
            wait_for_lock(file)
        yield


@contextmanager
def _open_session(data_set: PublishedDataSet) -> Iterator["Session"]:
    """Yield a session that connects to https addresses, and without encryption only to those of the registry."""
    import requests
    from requests.adapters import HTTPAdapter

    with requests.Session() as session:
        session.adapters.pop("http://")  # also redirects must lead to https
        for scheme, host, *_ in {urlsplit(data_set.file_url(file)) for file in data_set.files}:
            if scheme == "http":
                session.mount(f"http://{host}/", HTTPAdapter())
        session.max_redirects = MAX_REDIRECTS
        session.headers.update({"User-Agent": f"pellucid/{__version__}", "Accept-Encoding": "identity"})
        yield session


def _fetch(remote: RemoteFile, staging: Path, session: "Session", events: DownloadEvents) -> Path:
    """Return the path of a downloaded file with the right checksum; pooch downloads it if it is not there."""
    from pooch import Pooch

    name = remote.sha256
    if has_digest(staging / name, FileDigest(remote.size, remote.sha256)):  # of an earlier download
        events.advance(remote.size)
    files = Pooch(staging, base_url="", registry={name: f"sha256:{remote.sha256}"}, urls={name: remote.url})
    return Path(files.fetch(name, downloader=ResumableDownloader(remote, session, events)))


def _install(file: PublishedFile, staged: Path, target: Path) -> None:
    """Copy a downloaded file, or the member of an archive, to its place."""
    make_folder(target.parent)
    if file.member:
        write_atomic(target, read_member(staged, file))
    else:
        copy_regular(staged, target)  # and keep it: another file may have the same content


def read_member(archive: Path, file: PublishedFile) -> bytes:
    """Return the content of the member of a ZIP file that is a file of a data set; no other member is read.

    Args:
        archive: The ZIP file.
        file: The file, whose size limits how much is decompressed.

    Raises:
        DataError: The archive is not a ZIP file, lacks the member, or the member has another content.
    """
    try:
        with zipfile.ZipFile(archive) as members, members.open(file.member) as member:
            content = member.read(file.size + 1)
    except (zipfile.BadZipFile, KeyError, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(f"cannot read {file.member} of the archive: {abbreviate_reason(error)}") from error
    if digest_bytes(content) != FileDigest(file.size, file.sha256):
        raise DataError(f"{file.member} of the archive is not the published file (its SHA-256 differs)")
    return content


class ResumableDownloader:
    """Downloader for pooch that continues an unfinished file, if the server supports ranges.

    The beginning of a file is kept as NAME.part. It needs no validator of the server (If-Range): the checksum shows
    whether both parts belong together, and if they do not, the file is downloaded once more from its beginning.
    """

    def __init__(self, remote: RemoteFile, session: "Session", events: DownloadEvents) -> None:
        """Store what to download, and how.

        Args:
            remote: The file on the server.
            session: Session that refuses addresses without encryption, except those of the registry.
            events: Functions for the progress.
        """
        self.remote, self.session, self.events = remote, session, events

    def __call__(self, url: str, output: str, pooch: object) -> None:
        """Download the file.

        Args:
            url: Its address, which pooch passes.
            output: File to write, in the folder that also holds the unfinished file.
            pooch: Unused; pooch passes itself.

        Raises:
            DataError: The server does not send the file, or sends another one.
        """
        partial = Path(output).with_name(f"{self.remote.sha256}.part")
        had_beginning = partial.exists()
        digest = self._complete(partial)
        if had_beginning and digest.sha256 != self.remote.sha256:
            digest = self._complete(partial)
        if digest.sha256 != self.remote.sha256:
            raise DataError(
                f"{url} is not the published file: expected the SHA-256 {self.remote.sha256}, got {digest.sha256}"
            )
        os.replace(partial, output)

    def _complete(self, partial: Path) -> FileDigest:
        """Download the rest of a file, and return its digest; a wrong file is removed, an unfinished one is kept."""
        offset = partial.stat().st_size if partial.exists() else 0
        if offset > self.remote.size:
            partial.unlink()
            offset = 0
        self.events.advance(offset)
        if offset < self.remote.size:
            with self._request(offset) as response:
                self._append(response, partial, offset)
        digest = digest_file(partial) or FileDigest(0, "")
        if 0 < digest.size < self.remote.size:
            num_bytes = f"{digest.size:,} of {self.remote.size:,} bytes"
            raise DataError(f"the download of {self.remote.url} ended after {num_bytes}; {CONTINUE}")
        if digest != FileDigest(self.remote.size, self.remote.sha256):
            partial.unlink(missing_ok=True)
            self.events.advance(-digest.size)
        return digest

    @contextmanager
    def _request(self, offset: int) -> Iterator["Response"]:
        """Yield the response of the server; its errors in the block become `DataError`."""
        import requests
        from urllib3.exceptions import HTTPError

        headers = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            with self._open(headers) as response:
                yield response
        except (requests.RequestException, HTTPError) as error:
            raise DataError(f"cannot download {self.remote.url}: {_error_text(error)}") from error

    def _open(self, headers: dict[str, str]) -> "Response":
        """Return the response of the server, also after redirects, before its content is read."""
        import requests

        try:
            return self.session.get(self.remote.url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS)
        except requests.RequestException:
            raise
        except ValueError as error:  # requests does not catch that of urllib.parse
            reason = f"the server redirects to an address that is not valid: {abbreviate_reason(error)}"
            raise DataError(f"cannot download {self.remote.url}: {reason}") from error

    def _append(self, response: "Response", partial: Path, offset: int) -> None:
        """Write the content of a response after the first bytes of a file, or from its beginning if it is whole."""
        begins_here = response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
        if response.status_code == 416 or (response.status_code == 206 and not begins_here):
            partial.unlink(missing_ok=True)  # the file is shorter than its beginning here, or another part came
            self.events.advance(-offset)
            return
        response.raise_for_status()
        is_rest = response.status_code == 206
        if not is_rest:
            self.events.advance(-offset)
        size = offset if is_rest else 0
        self._check_headers(response, self.remote.size - size)
        with open(partial, "ab" if is_rest else "wb") as file:
            for block in response.raw.stream(BLOCK_SIZE, decode_content=False):
                size += len(block)
                if size > self.remote.size:
                    raise self._length_error(f"more than {self.remote.size:,} bytes")
                file.write(block)
                self.events.advance(len(block))
            file.flush()
            os.fsync(file.fileno())

    def _check_headers(self, response: "Response", expected: int) -> None:
        """Raise `DataError` if a response announces another content than the expected bytes."""
        length = response.headers.get("Content-Length", str(expected))
        kind = response.headers.get("Content-Type", "")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise self._length_error("a compressed file")
        if length != str(expected):
            raise self._length_error(f"{length} bytes" + (", a web page" if kind.startswith("text/html") else ""))

    def _length_error(self, got: str) -> DataError:
        """Return the error for a content of another length."""
        return DataError(f"{self.remote.url} is not the published file: expected {self.remote.size:,} bytes, got {got}")


def _error_text(error: Exception) -> str:
    """Return the cause of an error of requests or urllib3, and what to do."""
    import requests
    from urllib3.exceptions import IncompleteRead, ProtocolError, ReadTimeoutError

    match error:
        case requests.HTTPError(response=response) if response is not None:
            status = f"the server answered {response.status_code} {response.reason}"
            return f"{status}; the file has moved or was removed" if response.status_code in (404, 410) else status
        case requests.TooManyRedirects():
            return f"the server redirects more than {MAX_REDIRECTS} times"
        case requests.exceptions.InvalidSchema():
            return "the server redirects to an address that is not https"
        case requests.Timeout() | ReadTimeoutError():
            return f"the server did not answer within {TIMEOUT_SECONDS:g} seconds; {CONTINUE}"
        case requests.exceptions.SSLError():
            return f"the certificate of the server is not valid: {abbreviate_reason(error)}"
        case IncompleteRead() | ProtocolError():
            return f"the connection broke; {CONTINUE}"
        case requests.ConnectionError(args=(ProtocolError(), *_)):
            return f"the server ended the connection, or sent no HTTP response; {CONTINUE}"
        case requests.ConnectionError():
            return f"there is no network, or the server cannot be reached; {CONTINUE}"
    return abbreviate_reason(error)
