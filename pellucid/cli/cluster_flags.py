"""Flags of predict, score and evaluate that decode on the machines of a Ray cluster, and write to a file."""

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, fields, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TypeVar

from tyro.conf import arg

from pellucid.cli.cluster_jobs import OnFlag
from pellucid.dependencies import require_package
from pellucid.errors import ConfigError
from pellucid.files import follow_links, open_atomic

OUTPUT_INDEPENDENT = ("run", "more", "on", "output")
"""Flags of predict and score that change no output, or name runs and files that are compared by themselves."""
OutputFlag = Annotated[Path | None, arg(metavar="FILE")]
FolderFlag = Annotated[Path | None, arg(metavar="DIR")]
FlagsT = TypeVar("FlagsT", bound="ClusterFlags")
"""Type of the flags whose paths are made absolute."""


@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """Flag that decodes on several machines."""

    on: OnFlag = None
    """Decode on the machines of a Ray cluster: that of the variable RAY_ADDRESS, else the last one that ray start
    has started on this machine, else this machine alone. All machines need the same versions, and share the folders of
    the runs, the output and the lexicon. After a crash, repeat the command: finished blocks are kept."""


@dataclass(frozen=True, kw_only=True)
class OutputFlags(ClusterFlags):
    """Flags of predict and score: where outputs are computed, and where they are written."""

    output: OutputFlag = None
    """Write the outputs to this file when all are computed, in place of standard output. --on ray requires it, and
    keeps finished blocks of lines in the folder FILE.blocks until then."""


def check_output_flags(args: OutputFlags, file: Path) -> None:
    """Check that the input and the output of a command fit --on ray.

    Args:
        args: Parsed flags.
        file: Input file, or "-" for standard input.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: --on ray is given without --output, or the input is standard input, which cannot be read again.
    """
    if args.on is None:
        return
    if args.output is None:
        raise ConfigError(
            "--on ray requires --output FILE: finished blocks of lines are kept in the folder FILE.blocks"
        )
    check_ray_input(file)


def check_blocks_flag(args: ClusterFlags, blocks: Path | None, file: Path | None) -> None:
    """Check that the input and the folder of blocks of evaluate fit --on ray.

    Args:
        args: Parsed flags.
        blocks: Folder of --blocks; None if it is not given.
        file: Input file; None if it is missing.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: One of the flags --on and --blocks is given without the other, or the input cannot be read again.
    """
    if args.on is None and blocks is not None:
        raise ConfigError("--blocks requires --on ray")
    if args.on is not None and blocks is None:
        raise ConfigError("--on ray requires --blocks DIR: finished blocks of outputs are kept there")
    if args.on is not None and file is not None:
        check_ray_input(file)


def check_ray_input(file: Path) -> None:
    """Check that Ray is installed, and that the input of --on ray is a file.

    Args:
        file: Input file, or "-" for standard input.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: The input is standard input or a pipe.
    """
    require_package("ray", "ray", "--on ray")
    if str(file) == "-" or (file.exists() and not file.is_file()):
        raise ConfigError(
            "--on ray reads a file, so that it can continue after an interruption: give one in place of - or a pipe"
        )


def absolute_paths(args: FlagsT) -> FlagsT:
    """Return flags whose paths are absolute, for processes with another current folder.

    Args:
        args: Parsed flags.
    """
    values = {field.name: getattr(args, field.name) for field in fields(args)}
    changed: dict[str, Any] = {name: value.absolute() for name, value in values.items() if isinstance(value, Path)}
    return replace(args, **changed)


@contextmanager
def output_to_file(path: Path | None) -> Iterator[None]:
    """Write standard output of the block to a file, which replaces an existing one at the end of the block.

    Args:
        path: The file; None leaves standard output as it is.

    Raises:
        RunError: The file cannot be written.
    """
    if path is None:
        yield
        return
    with open_atomic(follow_links(path)) as file:
        text = TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True)
        with redirect_stdout(text):
            yield
        text.detach()
