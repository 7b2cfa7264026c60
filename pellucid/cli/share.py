"""Subcommand share: pellucid share RUN --to DIR, or share RUN --hub USER/MODEL"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.messages import print_message
from pellucid.cli.sources import print_result
from pellucid.decoding.model_sharing import CardOptions, HubRequest
from pellucid.errors import ArgumentError, ConfigError, count_noun
from pellucid.files import read_bytes, wrap_os_errors
from pellucid.run_folder.identity import required_packages
from pellucid.run_folder.run_files import load_run_config, member_folders
from pellucid.run_folder.run_parts import read_run_settings, run_folders
from pellucid.run_folder.unfinished_training import find_unfinished

TextFlag = Annotated[str, arg(metavar="TEXT")]
ListFlag = Annotated[str, arg(metavar="ID[,ID...]")]
MAX_TEXT_SIZE = 2**16
"""Maximum size in bytes of the file of --intended-use."""


@dataclass(frozen=True)
class ShareArguments:
    """Write a folder with everything that prediction needs and a model card, or push it to the Hugging Face Hub.

    The folder holds settings, symbols, parameters, pair n-gram model and confidence, of one run or of an ensemble; no
    training data, no log, no checkpoint and no path of this machine. Every subcommand accepts it as a run. The card
    states data statistics, scores with intervals, calibration, license, intended use and limits.

    Only --hub connects to the internet. It needs the extra hub, and an access token with the permission to write: log
    in by hf auth login, or set the variable HF_TOKEN.
    """

    run: Annotated[Path, Positional, arg(metavar="RUN")]
    """Folder of a trained run, or of an ensemble."""
    to: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder to write, which must be missing or empty, and not in RUN."""
    hub: Annotated[str, arg(metavar="USER/MODEL")] = ""
    """Repository of the hub to push to, which is created if it does not exist."""
    private: bool = False
    """With --hub, make a new repository private. An existing one stays as it is."""
    message: TextFlag = ""
    """With --hub, message of the commit."""
    license: Annotated[str, arg(metavar="ID")] = ""
    """License of the model, as the hub names it, such as apache-2.0 or cc-by-4.0."""
    language: ListFlag = ""
    """Codes of the languages, separated by commas, such as en or de,gsw."""
    dataset: ListFlag = ""
    """Data sets on the hub that the model was trained on, separated by commas, such as user/data."""
    title: TextFlag = ""
    """Title of the card. Default: the name of the folder or repository."""
    intended_use: Annotated[Path | None, arg(metavar="FILE")] = None
    """Text file in Markdown for the section on the intended use."""
    example: TextFlag = ""
    """Source that the card shows with its output and a picture of its attention weights. Without it, the card has no
    picture: no text of the training or validation data is shared unless it is given here."""
    example_features: TextFlag = ""
    """Features of the example, for a model with features, such as V;PST."""


def main(arguments: list[str]) -> int:
    """Write or push a shared folder, and print what was written.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument or the run is invalid, a file cannot be written, or the hub cannot be used.
    """
    args = parse_arguments(ShareArguments, "share", arguments)
    if (args.to is None) == (not args.hub):
        raise ConfigError("share needs one destination: --to DIR or --hub USER/MODEL")
    if not args.hub and (args.private or args.message):
        raise ConfigError("--private and --message need --hub USER/MODEL")
    card = _card_options(args)
    _check_run_and_folder(args)
    if not args.example:
        print_message("the card has no picture of attention weights: --example TEXT gives it a source")
    if not args.license:
        print_message("the card names no license: --license ID, such as --license apache-2.0")
    if args.intended_use is None:
        print_message("the card does not say what the model is for: --intended-use FILE gives it the text")
    for unfinished in find_unfinished(args.run):
        print_message(str(unfinished))
    first = member_folders(args.run)[0]
    for text in required_packages(load_run_config(first)):
        print_message(f"users of the model need {text}, and PyTorch; the model card says so")
    if args.to is not None:
        _write(args.run, args.to, card)
    else:
        _push(args.run, HubRequest(args.hub, args.private, args.message, None), card)
    return 0


def _check_run_and_folder(args: ShareArguments) -> None:
    """Raise `InputError` if the run cannot be shared, or the folder exists, before any advice on the card."""
    from pellucid.sharing.new_folder import check_new_folder

    for folder in run_folders(args.run):
        read_run_settings(folder)
    if args.to is not None:
        with wrap_os_errors("write", args.to):
            check_new_folder(args.to, args.run)


def _card_options(args: ShareArguments) -> CardOptions:
    """Return the options of the card; errors name the flags."""
    use = ""
    if args.intended_use is not None:
        content = read_bytes(args.intended_use, ConfigError, limit=MAX_TEXT_SIZE, regular=False)
        use = content.decode("utf-8", "replace")
    try:
        return CardOptions(
            title=args.title,
            license=args.license,
            languages=_split(args.language),
            datasets=_split(args.dataset),
            intended_use=use,
            example=args.example,
            example_features=args.example_features,
        )
    except ArgumentError as error:
        message = str(error).replace("languages:", "language:", 1).replace("datasets:", "dataset:", 1)
        raise ConfigError(f"--{message.replace('_', '-', 1)}") from None


def _split(text: str) -> tuple[str, ...]:
    """Return the parts of a text between commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _write(run: Path, folder: Path, card: CardOptions) -> None:
    """Write a shared folder and print its files."""
    from pellucid.sharing.manifest import MANIFEST
    from pellucid.sharing.shared_folder import ShareRequest, write_shared_folder

    manifest = write_shared_folder(ShareRequest(run, folder.resolve().name, card), folder)
    size = sum(file.size for file in manifest.files.values())
    files = count_noun(len(manifest.files), "file")
    print_result(f"{folder}: {files} of the model, {size / 1e6:.2f} MB, with README.md and {MANIFEST}")


def _push(run: Path, request: HubRequest, card: CardOptions) -> None:
    """Push a run, and print the commit and how it is downloaded."""
    from pellucid.sharing.hub import check_repository_id, require_hub

    require_hub("--hub")
    check_repository_id(request.repo_id)
    from pellucid.sharing.shared_folder import push_run

    commit = push_run(run, request, card)
    print(f"{commit.url}\npellucid download {commit.repo_id} --revision {commit.commit} --out DIR")
