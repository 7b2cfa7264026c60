"""Prepared data: a folder that holds encoded training examples, a validation set, and the settings of both.

`training/preparation.py` writes it; a training reads it in place of a file of pairs, and maps its ids into memory.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard, cast

import msgspec
from msgspec import Meta

from pellucid.config.settings import DEFAULT_TASK, Config, DataConfig, TaskName, has_characters
from pellucid.config.toml import overlay_settings
from pellucid.data.corpus import CorpusError, EncodedCorpus, map_corpus
from pellucid.data.examples import Example, read_examples
from pellucid.data.validation_split import validation_file_config
from pellucid.errors import ConfigError, DataError, abbreviate_reason, quote
from pellucid.files import FileDigest, check_json_format, decode_json, file_exists, read_bytes

DESCRIPTION = "prepared.json"
EXAMPLES = "examples.arrow"
VALIDATION = "validation.jsonl"
BAD_LINES = "bad-lines.txt"
PARTS = "parts"
"""Folder of the files of an unfinished preparation."""
FILES = (DESCRIPTION, EXAMPLES, VALIDATION, BAD_LINES, PARTS)
MAX_DESCRIPTION_SIZE = 1 << 20
"""Maximum size of the description, in bytes."""
NumExamples = Annotated[int, Meta(ge=0, le=2**53)]


class PreparedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data file that was prepared."""

    path: str
    size: NumExamples = 0
    """Size in bytes; 0 if the content has no checksum."""
    sha256: str = ""
    """Checksum in hexadecimal; empty for a file of validation examples that was held out."""

    @property
    def digest(self) -> FileDigest | None:
        """Size and checksum; None without a checksum."""
        return FileDigest(self.size, self.sha256) if self.sha256 else None


class PreparedDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `DESCRIPTION`, which is written last: a folder without it is not complete."""

    key: str
    """Hash of everything that determines the examples: files and settings."""
    data: DataConfig
    """Data settings, with the format and the header of the training file."""
    train: PreparedFile
    num_examples: Annotated[int, Meta(ge=1, le=2**53)]
    """Number of training examples."""
    num_validation_examples: Annotated[int, Meta(ge=1, le=2**53)]
    num_bad_lines: NumExamples
    num_blank_lines: NumExamples
    num_shared: NumExamples
    """Number of validation examples that are training examples, too."""
    valid: PreparedFile | None = None
    """Validation file; None if sources are held out of the training file."""
    train_target: PreparedFile | None = None
    """Separate file of the training targets."""
    valid_target: PreparedFile | None = None
    """Separate file of the validation targets."""
    task: TaskName = DEFAULT_TASK
    version: str = ""
    """Version of Pellucid."""
    format: Literal[1] = 1


class PreparedData(NamedTuple):
    """Content of a folder of prepared data."""

    description: PreparedDescription
    corpus: EncodedCorpus
    """Training examples in ids, mapped into memory."""
    validation_examples: list[Example]


def is_prepared(path: object) -> TypeGuard[Path]:
    """Return whether a path is a folder of prepared data.

    Args:
        path: The path, or a table in memory, which is none.
    """
    if not issubclass(type(path), Path):  # isinstance would read __class__, which may raise anything
        return False
    folder = cast(Path, path)
    return os.path.isdir(folder) and file_exists(folder / DESCRIPTION)  # Path.is_dir raises for a long name


def read_description(folder: Path) -> PreparedDescription:
    """Read the description of prepared data.

    Args:
        folder: Folder of the data.

    Raises:
        DataError: The file is missing, damaged, or of a newer version of Pellucid.
    """
    path = folder / DESCRIPTION
    content = read_bytes(path, DataError, MAX_DESCRIPTION_SIZE)
    check_json_format(str(path), content, newest=1)
    try:
        return decode_json(content, PreparedDescription)
    except ValueError as error:
        raise DataError(f"{path} does not describe prepared data: {abbreviate_reason(error)}") from error


def settings_over_prepared(settings: Mapping[str, Any], train: object) -> dict[str, Any]:
    """Return settings over those of prepared data; the settings themselves for files of pairs and tables.

    Args:
        settings: Settings, nested like a configuration.
        train: Training set.

    Raises:
        DataError: As in `read_description`.
        ConfigError: The settings are no sections of settings.
    """
    if not is_prepared(train):
        return dict(settings)
    description = read_description(train)
    defaults = msgspec.structs.asdict(DataConfig())
    data = {name: value for name, value in msgspec.structs.asdict(description.data).items() if value != defaults[name]}
    return overlay_settings({"task": description.task, "data": data}, settings)


def resolve_prepared_settings(description: PreparedDescription, config: DataConfig) -> DataConfig:
    """Return data settings with the format, header and delimiter of prepared data in place of "auto".

    Args:
        description: Description of the data.
        config: Data settings.
    """
    names = ("input_format", "header", "delimiter")
    found = {name: getattr(description.data, name) for name in names if getattr(config, name) == "auto"}
    return msgspec.structs.replace(config, **found)


def read_prepared(folder: Path, config: Config) -> PreparedData:
    """Read prepared data for a training.

    Args:
        folder: Folder of the data.
        config: Configuration of the training, whose data settings and task must be those of the data.

    Raises:
        DataError: A file is missing or damaged.
        ConfigError: A setting differs from that of the data, or needs the texts of the examples.
    """
    description = read_description(folder)
    check_prepared_settings(folder, description, config)
    try:
        corpus = map_corpus(folder / EXAMPLES, description.key, bool(description.data.features_column))
    except CorpusError as error:
        raise DataError(f"{folder / EXAMPLES} is not used, for {error}: prepare the data again") from error
    num_examples = corpus.encoded.source.num_sequences
    if num_examples != description.num_examples:
        raise DataError(
            f"{folder / EXAMPLES} has {num_examples:,} examples, {folder / DESCRIPTION} says "
            f"{description.num_examples:,}: prepare the data again"
        )
    reading = read_examples(folder / VALIDATION, validation_file_config(description.data))
    return PreparedData(description, corpus, reading.examples)


def check_prepared_settings(folder: Path, description: PreparedDescription, config: Config) -> None:
    """Check that a training can use prepared data.

    Args:
        folder: Folder of the data.
        description: Its description.
        config: Configuration of the training.

    Raises:
        ConfigError: As in `read_prepared`.
    """
    prepared = {"task": description.task, **msgspec.structs.asdict(description.data)}
    current = {"task": config.task, **msgspec.structs.asdict(config.data)}
    for name, value in prepared.items():
        if current[name] != value:
            key = name if name == "task" else f"data.{name}"
            raise ConfigError(
                f"{folder} was prepared with {key} = {quote(value)}, got {quote(current[name])}: leave the setting "
                "out, or prepare the data with it"
            )
    for is_set, setting in (
        (config.training.augmentation != "none", "training.augmentation"),
        (bool(config.training.mix_in), "training.mix_in (--mix-in)"),
        (bool(config.training.initial_run), "training.initial_run (--from)"),
        (config.decoder.pointer_generator, "decoder.pointer_generator"),
        (has_characters(config), "encoder.characters"),
    ):
        if is_set:
            raise ConfigError(
                f"{setting} needs the texts of the pairs, and {folder} has their ids: give the file of pairs"
            )
