"""Subcommand prepare: pellucid prepare TRAIN [--valid VALID] --out DIR [flags of the data]"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated

import msgspec
import tyro

from pellucid.cli.arguments import default_settings, given_settings, parse_arguments
from pellucid.cli.messages import describe_stop, print_message, stop_signal
from pellucid.cli.output_files import check_output_folder
from pellucid.cli.sources import print_result
from pellucid.config.settings import DEFAULT_TASK, Config, DataConfig, TaskName
from pellucid.config.toml import build_config
from pellucid.data.prepared_data import BAD_LINES_FILE, PREPARED_FILES
from pellucid.errors import count_noun

if TYPE_CHECKING:
    from pellucid.training.preparation import DataPrepared, PreparationProgress

REPORT_SECONDS = 10.0
"""Time between two lines of progress."""


@dataclass(frozen=True, kw_only=True)
class PrepareArguments:
    """Encode a training set of any size into a folder, from which trainings read it without loading it into memory.

    TRAIN is read twice, in blocks: to count its symbols and choose the validation set, and to encode its examples.
    Memory does not grow with the number of pairs; without --valid, it holds the pairs of 2,000 sources. An interrupted
    preparation continues with the same command. Then "pellucid train DIR --run RUN" trains on the folder, with its
    settings of the data.
    """

    train: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRAIN")]
    """Training set: TSV, CSV, JSON lines or Parquet (also .gz), or the sources of two parallel files."""
    valid: Path | None = None
    """Validation set, in the form of TRAIN. Default: a tenth of the sources of TRAIN, at most 2,000, chosen at random,
    which are not trained on."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the prepared data; created, or continued."""
    train_target: Path | None = None
    """Targets of TRAIN, one per line, if TRAIN holds sources only."""
    valid_target: Path | None = None
    """Targets of the validation set, one per line, if --valid holds sources only."""
    task: TaskName = DEFAULT_TASK
    """Task of the trainings: transduce (a sequence), tag (a tag per source symbol) or classify (a class); not point or
    tag-and-classify."""
    data: Annotated[DataConfig, tyro.conf.arg(name="")] = field(default_factory=DataConfig)
    config: Path | None = None
    """TOML file of settings, of which those of the data and the task matter; flags override it."""

    def build_config(self) -> Config:
        """Return the configuration, with default settings of the network."""
        return build_config({"task": self.task, "data": msgspec.structs.asdict(self.data)}, "flags")


def main(arguments: list[str]) -> int:
    """Prepare the data, with progress on standard error.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code: 0, 130 after Ctrl-C, 143 after SIGTERM, or 129 after SIGHUP.

    Raises:
        InputError: An argument or a file is invalid, or the folder holds something else.
    """
    args = _parse(arguments)
    config = args.build_config()
    check_output_folder(args, "out", PREPARED_FILES)
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.training.preparation import DataPrepared, prepare_data
    from pellucid.training.training_data import TrainingFiles

    files = TrainingFiles(args.train, args.valid, args.train_target, args.valid_target)
    reported_at = time.monotonic()
    try:
        for event in prepare_data(files, args.out, config):
            if isinstance(event, DataPrepared):
                _report(args.out, event)
            elif time.monotonic() - reported_at > REPORT_SECONDS:
                _report_progress(event)
                reported_at = time.monotonic()
    except KeyboardInterrupt as error:
        continues = args.out.is_dir()  # nothing is stored before there is one
        print_message(
            f"{describe_stop(stop_signal(error))}{f'; the same command continues in {args.out}' if continues else ''}"
        )
        return 128 + stop_signal(error)
    return 0


def _parse(arguments: list[str]) -> PrepareArguments:
    """Return the arguments, with the settings of --config and the presets of the task as defaults."""
    settings, origin = given_settings(arguments)
    defaults = default_settings(settings, origin)
    required = tyro.MISSING
    return parse_arguments(
        PrepareArguments,
        "prepare",
        arguments,
        PrepareArguments(train=required, out=required, task=defaults["task"], data=defaults["data"]),
    )


def _report_progress(event: "PreparationProgress") -> None:
    """Print the number of examples so far."""
    print_message(f"{event.stage} {count_noun(event.num_examples, 'pair')}")


def _report(folder: Path, event: "DataPrepared") -> None:
    """Print the numbers of the prepared data, the bad lines and the next command."""
    description, vocabularies = event.description, event.vocabularies
    for line in event.bad_lines:
        print_message(f"skipped {line}")
    if description.num_bad_lines:
        print_message(f"{folder / BAD_LINES_FILE}: all {count_noun(description.num_bad_lines, 'bad line')}")
    if description.num_blank_lines:
        print_message(f"{description.train.path}: {count_noun(description.num_blank_lines, 'blank line')}, skipped")
    if event.note:
        print_message(f"{description.train.path}: {event.note}")
    if vocabularies is None:
        print_message(f"{folder} is already complete: it was prepared from the same files and settings")
    else:
        source, target = len(vocabularies.source.symbols), len(vocabularies.target.symbols)
        print_message(f"{count_noun(source, 'source symbol')}, {count_noun(target, 'target symbol')}")
    held_out = "held out" if description.valid is None else description.valid.path
    print_result(
        f"{folder}: {count_noun(description.num_examples, 'training pair')}, "
        f"{count_noun(description.num_validation_examples, 'validation pair')} ({held_out})",
        "",
        "Next, for example:",
        f"  {_next_command(folder)}",
    )


def _next_command(folder: Path) -> str:
    """Return the command that trains on prepared data, quoted for a shell."""
    run = Path("runs", os.path.basename(os.path.abspath(folder)))
    return join(["pellucid", "train", str(folder), "--run", str(run)])
