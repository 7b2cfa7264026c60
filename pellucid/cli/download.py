"""Subcommand download: pellucid download USER/MODEL --revision REV --out DIR

The subcommands that take a run accept folders only, and none of them uses the network: what is downloaded, and when, is
a command of its own, whose folder can be checked, copied and used offline.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.messages import print_message
from pellucid.cli.sources import print_result
from pellucid.errors import ConfigError


@dataclass(frozen=True)
class DownloadArguments:
    """Download a shared model from the Hugging Face Hub to a folder, which every subcommand accepts as a run.

    Only the files of a Pellucid model are downloaded, after a check of their names and sizes, and the folder appears
    when all checksums are right. A repository with files that may contain code, such as pickles, is refused. Private
    repositories need an access token: log in by hf auth login, or set the variable HF_TOKEN. Requires the extra hub.
    """

    repository: Annotated[str, Positional, arg(metavar="USER/MODEL")]
    """Repository of the hub."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder to write, which must be missing or empty."""
    revision: Annotated[str, arg(metavar="REV")] = ""
    """Commit, tag or branch. A commit always gives the same model; of a tag or branch, the commit is printed."""


def main(arguments: list[str]) -> int:
    """Download a model, and print its commit, folder and size.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument is invalid, the hub cannot be used, or the repository holds no valid model.
    """
    args = parse_arguments(DownloadArguments, "download", arguments)
    if args.out is None:
        raise ConfigError("download needs --out DIR, the folder to write")
    from pellucid.sharing.hub import RepositoryRevision, check_repository_id, require_hub
    from pellucid.sharing.pretrained_loader import download_to_folder, missing_revision_error

    require_hub("download")
    check_repository_id(args.repository)
    if not args.revision:
        raise missing_revision_error(args.repository, "--revision ")
    downloaded = download_to_folder(RepositoryRevision(args.repository, args.revision), args.out)
    size = sum(file.size for file in downloaded.manifest.files.values())
    print_result(f"{args.out}: {args.repository} at commit {downloaded.commit}, {size / 1e6:.2f} MB")
    for name, version in downloaded.manifest.extensions.items():
        print_message(f"this model needs the package {name} (trained with {version}), which has to be installed here")
    return 0
