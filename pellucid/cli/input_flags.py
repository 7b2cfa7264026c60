"""Flags of the subcommands that read a file with a trained run: how FILE is read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from tyro.conf import arg

from pellucid.config.settings import DataConfig, Delimiter, Format, Header, reads_features
from pellucid.data.delimiters import has_effect
from pellucid.data.headers import with_header
from pellucid.data.readers import has_known_suffix, resolve_format
from pellucid.errors import ConfigError, InputError
from pellucid.run_folder.run_files import pair_file_config

if TYPE_CHECKING:
    from pathlib import Path

ColumnFlag = Annotated[str, arg(metavar="COLUMN")]


@dataclass(frozen=True, kw_only=True)
class FileFlags:
    """Flags of reading sources: of predict, and with `PairFileFlags` of score, evaluate and look."""

    source_column: ColumnFlag = ""
    """Column of the sources in FILE: its name in the header, or its number from 1. Default: that of the training file.
    """
    features_column: ColumnFlag = ""
    """Column of the features in FILE: its name in the header, or its number from 1. Default: that of the training file.
    Only for a model that was trained with features. For one that was trained with --context-words, the column holds the
    words around each source, in place of the neighboring lines."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """At a line that cannot be read: stop with an error, or skip it and report it (predict and score write an empty
    output)."""
    delimiter: Delimiter = "auto"
    """Separator of the columns of CSV: "," or ";" or "|" or the word tab. auto: that of the training, if it was given
    there; else the comma, unless the first lines clearly have another one. With a delimiter, FILE is read as CSV."""
    header: Header = "auto"
    """Whether the first line of a TSV or CSV file names the columns (--header, --no-header). auto: it does if that of
    the training file does (never on standard input in TSV, except in evaluate); otherwise it is read as an example, and
    one that looks like column names is an error."""


@dataclass(frozen=True, kw_only=True)
class PairFileFlags(FileFlags):
    """Flags of reading pairs: of score, evaluate and look."""

    target_column: ColumnFlag = ""
    """Column of the targets in FILE: its name in the header, or its number from 1. Default: that of the training file.
    """
    class_column: ColumnFlag = ""
    """Column of the classes in FILE: its name in the header, or its number from 1. Default: that of the training file.
    Only for a model of a class and tags."""


def file_data_config(
    trained: DataConfig, flags: FileFlags, file: "Path | None", input_format: Format = "auto"
) -> DataConfig:
    """Return the data settings with which FILE is read: those of the training, changed by the flags.

    The validation file of a run folder has its own columns.

    Args:
        trained: Data settings of the run; see `pair_config` for a run that is trained on two parallel files.
        flags: Parsed flags.
        file: FILE; None if there is none.
        input_format: Format that --input-format selects; "auto", the default, for none.

    Raises:
        InputError: A delimiter is given, but the format of FILE is not CSV.
        ConfigError: A column of features is selected, but the model was trained without features; or one of classes,
            but its targets do not begin with a class.
    """
    if flags.delimiter != "auto":
        check_delimiter_format(flags.delimiter, file, input_format)
        trained = msgspec.structs.replace(trained, delimiter=flags.delimiter, input_format="csv")
    if flags.features_column and not reads_features(trained):
        raise ConfigError(
            "--features-column selects the features of the sources, but the model was trained without features "
            "(data.features_column)"
        )
    columns = {"source_column": flags.source_column, "features_column": flags.features_column}
    if isinstance(flags, PairFileFlags):
        columns |= {"target_column": flags.target_column, "class_column": flags.class_column}
        if flags.class_column and not trained.class_first:
            raise ConfigError(
                "--class-column selects the classes beside the tags, but the targets of the model do not begin with a "
                "class (data.class_first)"
            )
    trained = pair_file_config(file, trained)
    given = {name: column for name, column in columns.items() if column}
    return msgspec.structs.replace(with_header(trained, flags.header), on_bad_line=flags.on_bad_line, **given)


def check_delimiter_format(delimiter: Delimiter, file: "Path | None", input_format: Format) -> None:
    """Check that FILE may be CSV, so that a delimiter has an effect.

    Args:
        delimiter: Delimiter that is given.
        file: FILE; None if there is none.
        input_format: Format that --input-format selects; "auto" for none.

    Raises:
        InputError: FILE is no CSV, by --input-format or by its name.
    """
    if input_format != "auto":
        if input_format != "csv":
            raise InputError(f"--delimiter applies to CSV: it excludes --input-format {input_format}")
    elif file is not None and has_known_suffix(file):
        format = resolve_format(file, DataConfig())
        if not has_effect(delimiter, format):
            raise InputError(
                f"--delimiter applies to CSV, but the name of {file} means {format}: give --input-format csv, or leave "
                "--delimiter out"
            )


def given_columns(flags: FileFlags) -> list[str]:
    """Return the flags of columns that are given: "--source-column", "--target-column", "--features-column", ….

    Args:
        flags: Parsed flags.
    """
    return [
        f"--{role}-column" for role in ("source", "target", "features", "class") if getattr(flags, f"{role}_column", "")
    ]


def check_columns_of_pairs(flags: PairFileFlags, target: "Path | None") -> None:
    """Raise `InputError` if a column or delimiter is selected although FILE holds sources only, one per line.

    Args:
        flags: Parsed flags.
        target: File of targets; None if FILE holds pairs.
    """
    if target is not None and flags.delimiter != "auto":
        raise InputError("--delimiter applies to a file of pairs; with --target, FILE has one source per line")
    given = given_columns(flags)
    if target is not None and given:
        raise InputError(f"{given[0]} selects a column of a file of pairs; with --target, FILE has one source per line")
