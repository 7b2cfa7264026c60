"""Subcommand split: pellucid split FILE --out DIR [--test-size 0.1] [--valid-size 0.1] [--seed 1]"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from shlex import join
from typing import Annotated, Literal

import msgspec
import tyro

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.input_flags import ColumnFlag, check_delimiter_format
from pellucid.cli.messages import print_message
from pellucid.cli.sources import print_result
from pellucid.config.settings import DataConfig, Delimiter, Format, Header, Seed
from pellucid.config.task_settings import TAG_AND_CLASSIFY
from pellucid.data.examples import describe_used_columns, empty_text_error, first_cells
from pellucid.data.file_split import SplitPart, SplitSizes, split_file, write_split
from pellucid.data.readers import divide_name
from pellucid.errors import ConfigError, count_noun

SizeFlag = Annotated[float, tyro.conf.arg(metavar="SIZE")]
OptionalSizeFlag = Annotated[float | None, tyro.conf.arg(metavar="SIZE")]
COLUMN_FLAGS = ("source_column", "target_column", "features_column", "class_column")
"""Flags of columns that the commands after a split need as well."""


@dataclass(frozen=True)
class SplitArguments:
    """Divide a file of pairs at random into files for training and testing, and put the rows without a target apart.

    The files train, test, valid (with --valid-size) and unlabeled (the rows without a target) have the format of FILE,
    and the bytes of its records: header, delimiter, quotes, line ends and all columns stay as they are. All rows of a
    source are in one file. Each file has the order of FILE. A file of these names that exists with another content is
    an error.
    """

    file: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """File of pairs: TSV, CSV, JSON lines or Parquet. A gzip-compressed file gives files without compression."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the files, which is created if it does not exist."""
    test_size: SizeFlag = 0.1
    """Size of the test set: a share of the rows with a target (below 1), or a number of rows (from 1)."""
    valid_size: OptionalSizeFlag = None
    """Size of a validation set, in the same way. Default: none; train then holds out a tenth of the training file."""
    seed: Seed = 1
    """Random seed."""
    source_column: ColumnFlag = DataConfig().source_column
    """Column of the sources: its name in the header, or its number from 1."""
    target_column: ColumnFlag = DataConfig().target_column
    """Column of the targets: its name in the header, or its number from 1. Rows in which it is empty, white space
    or null are unlabeled."""
    features_column: ColumnFlag = ""
    """Column of the features, which has no effect on the split, for the commands that are printed."""
    class_column: ColumnFlag = ""
    """Column of the classes beside tags (--task tag-and-classify), which has no effect on the split, for the commands
    that are printed."""
    group_column: ColumnFlag = ""
    """Column of groups, such as documents or lemmas: all rows of a group are in one file, and so are all rows of groups
    that share a source."""
    input_format: Format = "auto"
    """Format of FILE: tsv, csv, jsonl or parquet. auto: by the file name, else tsv. FILE cannot be text, which has no
    targets."""
    delimiter: Delimiter = "auto"
    """Separator of the columns of CSV: comma, semicolon, tab or vertical bar. auto: the comma, unless the first lines
    clearly have another one. With a delimiter, FILE is read as CSV."""
    header: Header = "auto"
    """Whether the first line of a TSV or CSV file names the columns (--header, --no-header). auto: it does if a column
    is selected by name; otherwise it is an example, and one that looks like column names is an error."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """At a line that cannot be read, or without a source: stop with an error, or leave it out of all files and list it.
    """


def main(arguments: list[str]) -> int:
    """Write the files; print their names and numbers of rows, and the next commands.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument or a line is invalid, or a file exists with another content.
    """
    args = parse_arguments(SplitArguments, "split", arguments)
    for flag, size in (("--test-size", args.test_size), ("--valid-size", args.valid_size)):
        if size is not None and not (0 < size < 1 or (isfinite(size) and size >= 1 and size == int(size))):
            raise ConfigError(
                f"{flag}: expected a share of the rows above 0 and below 1, or a whole number of rows, got {size:g}"
            )
    config = _data_config(args)
    split = split_file(args.file, config, SplitSizes(args.test_size, args.valid_size), args.seed)
    paths = write_split(split, args.out)
    if used := describe_used_columns(args.file, config):
        print_message(f"{args.file}: {used}")
    for line in split.bad_lines:
        print_message(f"skipped {line}")
    for note in split.notes:
        print_message(f"note: {note}")
    if split.bad_lines or split.num_blank_lines:
        print_message(
            f"in no file: {count_noun(len(split.bad_lines), 'bad line')}, "
            f"{count_noun(split.num_blank_lines, 'blank line')}"
        )
    width = max(len(str(path)) for path in paths.values())
    for part, path in paths.items():
        ending = " without a target" if part == "unlabeled" else ""
        print_result(f"{path!s:<{width}}  {split.num_rows[part]:>9,} rows{ending}")
    print("\nNext, for example:")
    is_fillable = all(line.reason == empty_text_error("source") for line in split.bad_lines)
    for command in _next_commands(args, paths, split.spaced_sides, is_fillable):
        print_result(f"  {command}")
    return 0


def _data_config(args: SplitArguments) -> DataConfig:
    """Return the data settings of the flags."""
    names = (*COLUMN_FLAGS, "group_column", "header", "on_bad_line")
    config = msgspec.structs.replace(
        DataConfig(), input_format=args.input_format, **{name: getattr(args, name) for name in names}
    )
    if args.delimiter == "auto":
        return config
    check_delimiter_format(args.delimiter, args.file, args.input_format)
    return msgspec.structs.replace(config, delimiter=args.delimiter, input_format="csv")


def _next_commands(
    args: SplitArguments, paths: Mapping[SplitPart, Path], spaced_sides: Sequence[str], is_fillable: bool
) -> list[str]:
    """Return the commands that train, evaluate and predict with the files.

    Args:
        args: Parsed flags.
        paths: File of each part.
        spaced_sides: Sides whose texts are symbols between spaces.
        is_fillable: Whether `predict --fill` can read every row of the file that was split.
    """
    run = f"runs/{divide_name(args.file)[0] or 'model'}"
    valid = ["--valid", str(paths["valid"])] if "valid" in paths else []
    symbols = [part for side in spaced_sides for part in (f"--{side}-symbols", "words")]
    flags = [*_training_flags(args, has_valid=bool(valid)), *symbols]
    train = ["train", str(paths["train"]), *valid, "--run", run, *flags]
    commands = [train, ["evaluate", run, str(paths["test"])]]
    lines = [join(["pellucid", *command]) for command in commands]
    if "unlabeled" not in paths:
        return lines
    unlabeled, column = paths["unlabeled"], _target_name(args)
    if unlabeled.suffix in (".csv", ".tsv") and column and not args.class_column:  # --fill fills one column
        filled, table = f"filled{unlabeled.suffix}", args.file if is_fillable else unlabeled
        return [*lines, f"{join(['pellucid', 'predict', run, str(table), '--fill', column])} > {filled}"]
    format = "jsonl" if unlabeled.suffix in (".jsonl", ".ndjson") else "csv"
    predict = join(["pellucid", "predict", run, str(unlabeled), "--output-format", format])
    return [*lines, f"{predict} > outputs.{format}"]


def _target_name(args: SplitArguments) -> str:
    """Return the name of the column of the targets; "" if the first line does not name the columns."""
    column = args.target_column
    if not column.isdigit():
        return column
    names = first_cells(args.file, _data_config(args)) if args.header is True else ()
    return names[int(column) - 1] if int(column) <= len(names) else ""


def _training_flags(args: SplitArguments, has_valid: bool) -> Sequence[str]:
    """Return the flags of the columns and the format, as train needs them."""
    names = [*COLUMN_FLAGS, "input_format", "delimiter", *([] if has_valid else ["group_column"])]
    flags = ["--task", TAG_AND_CLASSIFY.name] if args.class_column else []
    for name in names:
        if getattr(args, name) != getattr(DataConfig(), name):
            flags += [f"--{name.replace('_', '-')}", getattr(args, name)]
    return [*flags, *([] if args.header == "auto" else ["--header" if args.header else "--no-header"])]
