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

import msgspec

from pellucid.decoding.model_sharing import HubCommit, HubRequest
from pellucid.dependencies import has_package, require_package
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

REPOSITORY_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}/[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
"""Form of the name of a repository; huggingface_hub has more rules (`is_repository_id`)."""
COMMIT_HASH = re.compile(r"[0-9a-f]{40}")
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
        operation: Operation that needs it, for the message.
    """
    require_package("huggingface_hub", "hub", operation)


def is_repository_id(text: str) -> bool:
    """Return whether a text is the name of a repository, by the rules of huggingface_hub if it is installed.

    Args:
        text: The text: "user/model".
    """
    if not REPOSITORY_ID.fullmatch(text):
        return False
    if not has_package("huggingface_hub"):
        return True
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True


def check_repository_id(repo_id: str) -> None:
    """Raise `ConfigError` for a text that is not a valid repository name.

    Args:
        repo_id: The text.
    """
    if not is_repository_id(repo_id):
        raise ConfigError(
            f"{quote(repo_id)} is not the name of a repository: expected USER/MODEL, each of at most 96 ASCII letters, "
            "digits, '-', '_' and '.', without '--' and '..', and not with '-', '.' or '.git' at the end"
        )


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


def download_model(repository: RepositoryRevision) -> DownloadedModel:
    """Download the files of a shared model to the cache of huggingface_hub, after checking which there are.

    A commit whose files are in the cache is read from there, without the network.

    Args:
        repository: Repository and revision.

    Raises:
        ConfigError: The name of the repository is not valid.
        RunError: The repository or the revision does not exist, cannot be reached, or holds other files than a shared
            model; or a download is incomplete.
        MissingDependencyError: huggingface_hub is not installed.
    """
    require_hub("downloading from the hub")
    check_repository_id(repository.repo_id)
    is_commit = COMMIT_HASH.fullmatch(repository.revision) is not None
    if is_commit and (cached := _read_cached(repository)) is not None:
        return cached
    with _hub_errors("download", str(repository)):
        info = _hub_api(repository.token).model_info(
            repository.repo_id, revision=repository.revision, files_metadata=True
        )
        commit, sizes = str(info.sha), {file.rfilename: file.size for file in info.siblings or ()}
        sizes = msgspec.convert(sizes, dict[str, int | None])
    if not COMMIT_HASH.fullmatch(commit) or (is_commit and commit != repository.revision):
        raise RunError(
            f"{repository}: the hub names the commit {abbreviate(quote(commit))}, which is not the expected one"
        )
    return _download_commit(repository._replace(revision=commit), sizes)


def _download_commit(repository: RepositoryRevision, sizes: dict[str, int | None]) -> DownloadedModel:
    """Download the files of a commit after checks of their names and sizes."""
    display_name = str(repository)
    check_repository_names(display_name, sizes)
    if MANIFEST not in sizes:
        raise RunError(
            f"{display_name} holds no {MANIFEST}: it is not a model that pellucid share or push_to_hub wrote"
        )
    _check_size(display_name, MANIFEST, sizes[MANIFEST], MAX_SETTINGS_SIZE)
    folder = _fetch(repository, MANIFEST).parent
    manifest = read_manifest(folder, display_name)
    for name, file in manifest.files.items():
        if sizes.get(name) != file.size:
            size = "no such file" if sizes.get(name) is None else f"{sizes[name]:,} bytes"
            raise RunError(
                f"{display_name}: {MANIFEST} lists {name} with {file.size:,} bytes, and the repository has {size}"
            )
    for name, file in manifest.files.items():
        if not has_digest(_fetch(repository, name), FileDigest(file.size, file.sha256)):
            _fetch(repository, name, force=True)  # the file in the cache is damaged, or the repository is wrong
    for name in DOCUMENTS:
        if (sizes.get(name) or MAX_DOCUMENT_SIZE + 1) <= MAX_DOCUMENT_SIZE:
            _fetch(repository, name)
    check_files(folder, manifest, display_name, allow_links=True)
    return DownloadedModel(folder, repository.revision, manifest)


def _check_size(display_name: str, name: str, size: int | None, limit: int) -> None:
    """Raise `RunError` unless the size of a file is known and allowed."""
    if size is None or size > limit:
        described = "an unknown size" if size is None else f"{size:,} bytes"
        raise RunError(f"{display_name}: {name} has {described}: expected at most {limit:,} bytes")


def _read_cached(repository: RepositoryRevision) -> DownloadedModel | None:
    """Return the model of a commit whose files are all in the cache; None if one is missing or damaged."""
    try:
        folder = _fetch(repository, MANIFEST, only_cached=True).parent
        manifest = read_manifest(folder, str(repository))
        for name in manifest.files:
            _fetch(repository, name, only_cached=True)
        check_files(folder, manifest, str(repository), allow_links=True)
    except RunError:
        return None
    return DownloadedModel(folder, repository.revision, manifest)


def _fetch(repository: RepositoryRevision, name: str, only_cached: bool = False, force: bool = False) -> Path:
    """Return the path of a file in the cache, after downloading it if it is not there, or in any case."""
    from huggingface_hub import hf_hub_download

    fetch = partial(
        hf_hub_download,
        repository.repo_id,
        name,
        revision=repository.revision,
        token=repository.token,
        endpoint=_endpoint(),
        cache_dir=os.environ.get("HF_HUB_CACHE") or None,
    )
    with _hub_errors("download", f"{name} of {repository}"):
        return Path(fetch(local_files_only=only_cached, force_download=force))


def copy_model(downloaded: DownloadedModel, folder: Path) -> None:
    """Copy a downloaded model, its manifest and its card from the cache to a folder.

    Args:
        downloaded: The model.
        folder: Existing folder.

    Raises:
        RunError: A file cannot be read or written.
    """
    paths = {name: downloaded.folder / name for name in DOCUMENTS}
    # The hub may send more than the size that it names.
    documents = [name for name, path in paths.items() if path.exists() and path.stat().st_size <= MAX_DOCUMENT_SIZE]
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
def _hub_errors(action: str, repository: str) -> Iterator[None]:
    """Convert the errors of huggingface_hub inside the block to errors of ours."""
    from huggingface_hub import errors

    http_error: Any = getattr(errors, "HTTPError", OSError)  # that of the HTTP client
    try:
        yield
    except InputError:
        raise
    except (AttributeError, LookupError, TypeError) as error:  # huggingface_hub does not check the JSON of the hub
        raise RunError(
            f"cannot {action} {repository}: the answer of the hub is not valid: {abbreviate_reason(error)}"
        ) from error
    except (http_error, OSError, ValueError, RuntimeError) as error:
        raise RunError(f"cannot {action} {repository}: {_error_text(error)}") from error


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
