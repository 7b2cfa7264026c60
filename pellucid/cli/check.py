"""Subcommand check: pellucid check RUN, and check RUN --list FILE or --expect SHA256"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.messages import print_message
from pellucid.cli.sources import print_result
from pellucid.errors import ConfigError, RunError, quote


@dataclass(frozen=True)
class CheckArguments:
    """Print the checksum of each file of a run folder, or compare them with an earlier list.

    The list shows which files were changed, removed or added. Keep it outside of the folder, or take it from whoever
    gave you the folder: somebody who changes a file can also change a list beside it. No model is loaded.
    """

    run: Annotated[Path, Positional, arg(metavar="RUN")]
    """Run folder, folder of an ensemble, or shared folder."""
    list: Annotated[Path | None, arg(metavar="FILE")] = None
    """Earlier output of this command, with which the files are compared."""
    expect: Annotated[str, arg(metavar="SHA256")] = ""
    """Expected checksum of the whole folder, as this command prints it on standard error."""


def main(arguments: list[str]) -> int:
    """Print or compare the checksums of a run folder.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument is invalid, a file cannot be read, or the files differ from the list.
    """
    args = parse_arguments(CheckArguments, "check", arguments)
    from pellucid.run_folder.checksums import (
        check_checksums,
        checksum_of_folder,
        folder_checksums,
        format_checksums,
        read_checksums,
    )

    expect = args.expect.strip().lower()
    if args.expect and (len(expect) != 64 or set(expect) - set("0123456789abcdef")):
        raise ConfigError(f"--expect: expected a SHA-256 of 64 hexadecimal digits, got {quote(args.expect)}")
    expected = None if args.list is None else read_checksums(args.list)
    found = folder_checksums(args.run)
    total = checksum_of_folder(found)
    if expected is not None:
        check_checksums(args.run, found, expected)
    if expect and total != expect:
        raise RunError(
            f"{args.run} has the checksum {total}, expected {expect}: a file was changed, removed or added; "
            "--list FILE, with a list of the files, says which"
        )
    if expected is None and not expect:
        print(format_checksums(found), end="")
        print_message(f"checksum of the folder, for --expect: {total}")
    else:
        print_result(f"{args.run}: all {len(found):,} files agree")
    return 0
