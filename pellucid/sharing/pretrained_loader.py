"""Loading of shared models: folders, and repositories of the Hugging Face Hub. PyTorch is not needed."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.argument_checks import convert_argument
from pellucid.config.settings import Device
from pellucid.dependencies import has_package
from pellucid.errors import ConfigError, RunError, quote
from pellucid.files import file_exists
from pellucid.sharing.hub import (
    COMMIT_HASH,
    DownloadedModel,
    RepositoryRevision,
    check_repository_id,
    copy_model,
    download_model,
    is_repository_id,
    newest_commit,
    require_hub,
)
from pellucid.sharing.manifest import MANIFEST, check_files, read_manifest
from pellucid.sharing.new_folder import new_folder

if TYPE_CHECKING:
    from pellucid.decoding.base_predictor import BasePredictor


def from_pretrained(
    source: str | Path, revision: str | None = None, device: Device = "cpu", token: str | None = None
) -> "BasePredictor":
    """Load a model from a folder, or from a repository of the Hugging Face Hub.

    The files of a shared folder are first compared with the checksums in its manifest; a run folder without a manifest
    is loaded as by `pellucid.load`. Nothing from the folder is executed: a model whose attention or task comes from
    another package is loaded only if that package is installed here, or the class was registered in this process. The
    network is used for repositories only: to download a revision, or to name the newest commit where none is given.

    Args:
        source: Folder; or a repository, "user/model", whose revision must be given.
        revision: Commit, tag or branch of the repository; None for a folder. A commit makes sure that the model cannot
            change, and is read from the cache without the network after its first download. A warning names the commit
            of a tag or branch.
        device: Device to load to, as in `pellucid.load`.
        token: Access token of the hub; None for that of the variable HF_TOKEN or of `hf auth login`.

    Returns:
        The predictor; without PyTorch that of the runtime, which gives the same outputs.

    Raises:
        ArgumentError: An argument has a wrong type.
        ConfigError: The source is not a folder, and no revision is given.
        RunError: The folder or the repository holds no valid model of this format version, or cannot be read.
        MissingDependencyError: huggingface_hub is needed and not installed.
    """
    path: Path = convert_argument("source", source, str | Path)
    for name, value in (("revision", revision), ("token", token)):
        convert_argument(name, value, str | None)
    if revision is not None:
        return _load_folder(download_and_warn(RepositoryRevision(str(source), revision, token)).folder, device)
    if not file_exists(path):
        if is_repository_id(str(source)):
            raise missing_revision_error(str(source), "revision=", token)
        raise RunError(f"{path} does not exist: expected a folder, or a repository with a revision")
    if file_exists(path / MANIFEST):
        check_files(path, read_manifest(path))
    return _load_folder(path, device)


def _load_folder(folder: Path, device: Device) -> "BasePredictor":
    """Return the predictor of a folder, in PyTorch if it is installed."""
    if has_package("torch"):
        from pellucid.run_folder.predictor_loader import load

        return load(folder, device)
    from pellucid.runtime.loader import load as load_runtime

    return load_runtime(folder, device)


def download_and_warn(repository: RepositoryRevision) -> DownloadedModel:
    """Download a model as `download_model` does; a warning names the commit if the revision is not one.

    Args:
        repository: Repository and revision.

    Raises:
        InputError: As in `download_model`.
    """
    downloaded = download_model(repository)
    if not COMMIT_HASH.fullmatch(repository.revision):
        warnings.warn(
            f"{repository} is the commit {downloaded.commit} now, and may be another later: the revision "
            f"{downloaded.commit} stays the same",
            stacklevel=3,
        )
    return downloaded


def download_to_folder(repository: RepositoryRevision, folder: Path) -> DownloadedModel:
    """Download a model to a new folder, which subcommands accept as a run folder.

    Args:
        repository: Repository and revision.
        folder: The folder, which must be missing or empty.

    Raises:
        InputError: As in `download_model`; or the folder is not empty or cannot be written.
    """
    with new_folder(folder) as staging:
        downloaded = download_and_warn(repository)
        copy_model(downloaded, staging)
    return downloaded


def missing_revision_error(repo_id: str, flag: str, token: str | None = None) -> ConfigError:
    """Return the error for a repository without a revision, with its newest commit if the hub can be reached.

    Args:
        repo_id: Repository.
        flag: Argument that gives a revision, for the message: "revision=" or a flag.
        token: Access token; None for that of the environment or of the login.
    """
    message = f"{quote(repo_id)} is not a folder here; for a repository of the hub, give {flag}"
    try:
        require_hub("downloading from the hub")
        check_repository_id(repo_id)
        return ConfigError(f"{message}{newest_commit(repo_id, token)}, its newest commit, or another revision")
    except (ConfigError, RunError):
        return ConfigError(f"{message}COMMIT")
