"""Pushing to and downloading from the Hugging Face Hub, by the package huggingface_hub (the extra `hub`).

Only the functions of this module use the network, and only when they are called. The variables of huggingface_hub
hold here too: HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_CACHE.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.decoding.pretrained import HubCommit, HubRequest
from pellucid.dependencies import MissingDependencyError, has_package
from pellucid.errors import ConfigError, InputError, RunError, abbreviate, abbreviate_reason, quote
from pellucid.files import MAX_SETTINGS_SIZE, FileDigest, copy_regular, file_exists, has_digest
from pellucid.sharing.manifest import (
    DOCUMENTS,
    MANIFEST,
    MAX_DOCUMENT_SIZE,
    Manifest,
    check_files,
    check_repository_names,
    read_manifest,
)
from pellucid.version import __version__

if TYPE_CHECKING:
    from huggingface_hub import HfApi

REPOSITORY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
COMMIT_HASH = re.compile(r"[0-9a-f]{40}")
INSTALL = "pip install 'pellucid[hub]'"
LOGIN = "log in by hf auth login, or set the variable HF_TOKEN"


class DownloadedModel(NamedTuple):
    """Files of a shared model in the cache of huggingface_hub, which have been checked."""

    folder: Path
    """Folder of the commit in the cache."""
    commit: str
    """Hash of the commit."""
    manifest: Manifest


class RepositoryRevision(NamedTuple):
    """A revision of a repository, and the token to read it."""

    repo_id: str
    revision: str
    """Commit, tag or branch."""
    token: str | None = None
    """Access token; None for that of the environment or of the login."""

    def __str__(self) -> str:
        """Return both as one name: "user/model@main"."""
        return f"{self.repo_id}@{self.revision}"


def require_hub(operation: str) -> None:
    """Raise `MissingDependencyError` if huggingface_hub is not installed.

    Args:
        operation: What needs it, for the message.
    """
    if not has_package("huggingface_hub"):
        raise MissingDependencyError(
            f"{operation} needs the package 'huggingface_hub', which is not installed: {INSTALL}"
        )


def check_repository_id(repo_id: str) -> None:
    """Raise `ConfigError` for a text that is no name of a repository.

    Args:
        repo_id: The text.
    """
    if not REPOSITORY_ID.fullmatch(repo_id):
        raise ConfigError(f"{quote(repo_id)} is not the name of a repository: expected USER/MODEL")


def push_folder(folder: Path, request: HubRequest) -> HubCommit:
    """Push all files of a shared folder in one commit; a repository that does not exist is created.

    Args:
        folder: Shared folder.
        request: Repository, message and token.

    Raises:
        ConfigError: The name of the repository is not valid.
        RunError: The hub refuses the access, or cannot be reached.
        MissingDependencyError: huggingface_hub is not installed.
    """
    require_hub("pushing to the hub")
    check_repository_id(request.repo_id)
    from huggingface_hub import CommitOperationAdd

    names = [*read_manifest(folder).files, MANIFEST, *(name for name in DOCUMENTS if file_exists(folder / name))]
    with _hub_errors("push to", request.repo_id):
        api = _hub_api(request.token)
        api.create_repo(request.repo_id, private=request.private or None, exist_ok=True)
        info = api.create_commit(
            request.repo_id,
            [CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(folder / name)) for name in names],
            commit_message=request.message or f"Upload model by Pellucid {__version__}",
        )
    return HubCommit(request.repo_id, info.oid, str(info.commit_url))


def newest_commit(repo_id: str, token: str | None = None) -> str:
    """Return the hash of the newest commit of a repository.

    Args:
        repo_id: The repository.
        token: Access token; None for that of the environment or of the login.

    Raises:
        RunError: The repository does not exist, or the hub cannot be reached.
    """
    with _hub_errors("read", repo_id):
        return str(_hub_api(token).model_info(repo_id).sha)


def download_model(place: RepositoryRevision) -> DownloadedModel:
    """Download the files of a shared model to the cache of huggingface_hub, after checking which there are.

    A commit whose files are in the cache is read from there, without the network.

    Args:
        place: Repository and revision.

    Raises:
        ConfigError: The name of the repository is not valid.
        RunError: The repository or the revision does not exist, cannot be reached, or holds other files than a shared
            model; or a download is incomplete.
        MissingDependencyError: huggingface_hub is not installed.
    """
    require_hub("downloading from the hub")
    check_repository_id(place.repo_id)
    is_commit = COMMIT_HASH.fullmatch(place.revision) is not None
    if is_commit and (cached := _read_cached(place)) is not None:
        return cached
    with _hub_errors("download", str(place)):
        info = _hub_api(place.token).model_info(place.repo_id, revision=place.revision, files_metadata=True)
        commit, sizes = str(info.sha), {file.rfilename: file.size for file in info.siblings or ()}
    if not COMMIT_HASH.fullmatch(commit) or (is_commit and commit != place.revision):
        raise RunError(f"{place}: the hub names the commit {abbreviate(quote(commit))}, which is not the expected one")
    return _download_commit(place._replace(revision=commit), sizes)


def _download_commit(place: RepositoryRevision, sizes: dict[str, int | None]) -> DownloadedModel:
    """Download the files of a commit after checks of their names and sizes."""
    shown = str(place)
    check_repository_names(shown, sizes)
    if MANIFEST not in sizes:
        raise RunError(f"{shown} holds no {MANIFEST}: it is no model that pellucid share or push_to_hub wrote")
    _check_size(shown, MANIFEST, sizes[MANIFEST], MAX_SETTINGS_SIZE)
    folder = _fetch(place, MANIFEST).parent
    manifest = read_manifest(folder, shown)
    for name, file in manifest.files.items():
        if sizes.get(name) != file.size:
            size = "no such file" if sizes.get(name) is None else f"{sizes[name]:,} bytes"
            raise RunError(f"{shown}: {MANIFEST} lists {name} with {file.size:,} bytes, and the repository has {size}")
    for name, file in manifest.files.items():
        if not has_digest(_fetch(place, name), FileDigest(file.size, file.sha256)):
            _fetch(place, name, force=True)  # the file in the cache is damaged, or the repository is wrong
    for name in DOCUMENTS:
        if (sizes.get(name) or MAX_DOCUMENT_SIZE + 1) <= MAX_DOCUMENT_SIZE:
            _fetch(place, name)
    check_files(folder, manifest, shown, allow_links=True)
    return DownloadedModel(folder, place.revision, manifest)


def _check_size(shown: str, name: str, size: int | None, limit: int) -> None:
    """Raise `RunError` unless the size of a file is known and allowed."""
    if size is None or size > limit:
        described = "an unknown size" if size is None else f"{size:,} bytes"
        raise RunError(f"{shown}: {name} has {described}: expected at most {limit:,} bytes")


def _read_cached(place: RepositoryRevision) -> DownloadedModel | None:
    """Return the model of a commit whose files are all in the cache; None if one is missing or damaged."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = _fetch(place, MANIFEST, only_cached=True).parent
        manifest = read_manifest(folder, str(place))
        for name in manifest.files:
            _fetch(place, name, only_cached=True)
        check_files(folder, manifest, str(place), allow_links=True)
    except (LocalEntryNotFoundError, RunError):
        return None
    return DownloadedModel(folder, place.revision, manifest)


def _fetch(place: RepositoryRevision, name: str, only_cached: bool = False, force: bool = False) -> Path:
    """Return the path of a file in the cache, after downloading it if it is not there, or in any case."""
    from huggingface_hub import hf_hub_download

    fetch = partial(
        hf_hub_download,
        place.repo_id,
        name,
        revision=place.revision,
        token=place.token,
        endpoint=_endpoint(),
        cache_dir=os.environ.get("HF_HUB_CACHE") or None,
    )
    if only_cached:
        return Path(fetch(local_files_only=True))
    with _hub_errors("download", f"{name} of {place}"):
        return Path(fetch(force_download=force))


def copy_model(downloaded: DownloadedModel, folder: Path) -> None:
    """Copy a downloaded model, its manifest and its card from the cache to a folder.

    Args:
        downloaded: The model.
        folder: Existing folder.

    Raises:
        RunError: A file cannot be read or written.
    """
    documents = [name for name in DOCUMENTS if file_exists(downloaded.folder / name)]
    for name in (*downloaded.manifest.files, MANIFEST, *documents):
        (folder / name).parent.mkdir(exist_ok=True)
        copy_regular(downloaded.folder / name, folder / name)
    check_files(folder, downloaded.manifest)


def _endpoint() -> str | None:
    """Return the address of the hub; None for that of huggingface_hub."""
    return os.environ.get("HF_ENDPOINT") or None


def _hub_api(token: str | None) -> "HfApi":
    """Return the client of the hub."""
    from huggingface_hub import HfApi

    return HfApi(endpoint=_endpoint(), token=token, library_name="pellucid", library_version=__version__)


@contextmanager
def _hub_errors(action: str, place: str) -> Iterator[None]:
    """Convert the errors of huggingface_hub inside the block to errors of ours."""
    from huggingface_hub import errors

    http_error: Any = getattr(errors, "HTTPError", OSError)  # that of the HTTP client
    try:
        yield
    except InputError:
        raise
    except (http_error, OSError, ValueError, RuntimeError) as error:
        raise RunError(f"cannot {action} {place}: {_error_text(error)}") from error


def _error_text(error: Exception) -> str:
    """Return the cause of an error of huggingface_hub, and what to do."""
    from huggingface_hub import errors

    cause = error.__cause__ if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception) else error
    status = getattr(getattr(cause, "response", None), "status_code", None)
    if isinstance(cause, errors.LocalTokenNotFoundError) or status == 401:
        return f"the hub asks for an access token, or there is no such repository: {LOGIN}"
    if isinstance(cause, errors.GatedRepoError) or status == 403:
        return "the account of the access token has no permission: ask the owner, or use another token"
    if isinstance(cause, errors.RevisionNotFoundError):
        return "there is no such revision: name a commit, a tag or a branch of the repository"
    if isinstance(cause, errors.RepositoryNotFoundError):
        return f"there is no such repository, or it is private: check the name, or {LOGIN}"
    if status is not None:
        return f"the hub answered with the status {status}: {abbreviate_reason(cause)}"
    if isinstance(cause, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError | ConnectionError) or (
        type(cause).__module__.startswith("httpx")
    ):
        return f"the hub cannot be reached, or the connection broke: {abbreviate_reason(cause)}; try again later"
    return abbreviate_reason(cause)
