"""Subcommand data: pellucid data list [--data DIR]
pellucid data get NAME ... [--data DIR]
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.messages import print_message
from pellucid.cli.sources import print_result
from pellucid.errors import DataError, InputError, count_noun
from pellucid.recipes.published_data import (
    PublishedDataSet,
    data_folder,
    examine_data_set,
    find_data_set,
    load_registry,
)
from pellucid.reporting.terminal_width import environment_with_width

MAX_SILENCE = 10.0
"""Number of seconds between two lines about a download, if standard error is not a terminal."""


@dataclass(frozen=True)
class DataArguments:
    """List the published data sets of the recipes, or download them.

    `data get` prints license and source of a data set, downloads the files that are missing, and checks their SHA-256.
    An interrupted download is continued. A file that exists is never replaced. A data set that cannot be downloaded is
    explained. `data list` uses no network. Requires the extra data: pip install 'pellucid[data]'.
    """

    action: Annotated[Literal["list", "get"], Positional, arg(metavar="list|get")]
    """list prints the data sets; get downloads those that are named."""
    names: Annotated[tuple[str, ...], Positional, arg(metavar="NAME")] = ()
    """Names of the data sets to download."""
    data: Annotated[Path | None, arg(metavar="DIR")] = None
    """Folder of the data sets. Default: the environment variable PELLUCID_DATA, else ../shared/data if it exists, else
    ~/.cache/pellucid/data; pellucid recipe looks for them there, too."""
    registry: Annotated[Path | None, arg(metavar="FILE")] = None
    """TOML file of data sets that replaces the list of the package, such as that of a mirror. Addresses are https; of
    this machine also http."""


def main(arguments: list[str]) -> int:
    """Print the data sets, or download some.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument is invalid, or a data set cannot be downloaded.
    """
    args = parse_arguments(DataArguments, "data", arguments)
    registry, folder = load_registry(args.registry), args.data or data_folder()
    if args.action == "list":
        if args.names:
            raise InputError("data list takes no names: pellucid data list")
        _print_list(registry, folder)
        return 0
    if not args.names:
        raise InputError("data get needs the name of a data set, such as scan (pellucid data list)")
    _get(args.names, registry, folder)
    return 0


def _print_list(registry: Mapping[str, PublishedDataSet], folder: Path) -> None:
    """Print each data set with its size, status, license and source."""
    print_result(f"folder: {folder}")
    for name, data_set in registry.items():
        status = str(examine_data_set(data_set, folder / name))
        how = " (by hand)" if data_set.instructions and status == "missing" else ""
        print(f"\n{name:<27}{_megabytes(data_set.size):>8}  {status}{how}")
        for line in (data_set.title, f"license: {data_set.license}", f"source: {data_set.source}"):
            print(f"  {line}")


def _get(names: Sequence[str], registry: Mapping[str, PublishedDataSet], folder: Path) -> None:
    """Download data sets; unknown ones, and those without a download, are refused before the first one."""
    data_sets = {name: find_data_set(registry, name) for name in names}
    for name, data_set in data_sets.items():
        if data_set.instructions and examine_data_set(data_set, folder / name).missing:
            raise DataError(
                f"{name} cannot be downloaded. License: {data_set.license}. Source: {data_set.source}. "
                f"To get it by hand into {folder / name}: {data_set.instructions}"
            )
    for name, data_set in data_sets.items():
        if data_set.instructions:
            print_result(f"{name}: already in {folder / name}")
        else:
            _download(name, data_set, folder)


def _download(name: str, data_set: PublishedDataSet, folder: Path) -> None:
    """Print license and source of a data set, and download what is missing."""
    from pellucid.recipes.data_download import DownloadEvents, fetch_data_set, missing_files, remote_file

    missing = missing_files(data_set, folder / name)
    if not missing:
        print_result(f"{name}: already complete in {folder / name}")
        return
    print(f"{name}: {data_set.title}\n  license: {data_set.license}\n  source: {data_set.source}")
    print(f"  cite: {data_set.citation}", flush=True)
    total = sum(remote.size for remote in {remote_file(data_set, file) for file in missing})
    with _progress(name, total) as advance:
        wait = f"{name}: another process downloads this data set; waiting for it"
        count = fetch_data_set(name, data_set, folder, DownloadEvents(advance, lambda: print_message(wait)))
    print_result(f"{name}: {count_noun(count, 'file')} downloaded and checked, in {folder / name}")


@contextmanager
def _progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows the progress of a download of `total` bytes on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(file=sys.stderr, _environ=environment_with_width())
    done, last = 0, time.monotonic()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(name, total=total)

        def advance(size: int) -> None:
            """Add some bytes; without a terminal, print a line now and then."""
            nonlocal done, last
            done += size
            bars.update(task, completed=done)
            if not console.is_terminal and time.monotonic() - last > MAX_SILENCE:
                last = time.monotonic()
                print_message(f"{name}: {_megabytes(done)} of {_megabytes(total)}")

        yield advance


def _megabytes(size: int) -> str:
    """Return a size in megabytes, with one digit after the point."""
    return f"{size / 1e6:.1f} MB"
