"""Prepared data: a folder that holds encoded training examples, a validation set, and the settings of both.

`training/preparation.py` writes it; a training reads it in place of a file of pairs, and maps its ids into memory.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeGuard, cast

import msgspec
from msgspec import Meta

from pellucid.config.renamed_settings import with_current_names
from pellucid.config.settings import DEFAULT_TASK, Config, DataConfig, TaskName, has_characters, reads_features
from pellucid.config.toml import overlay_settings
from pellucid.data.corpus import CorpusError, EncodedCorpus, map_corpus
from pellucid.data.examples import Example, read_examples
from pellucid.data.validation_split import validation_file_config
from pellucid.errors import ConfigError, DataError, abbreviate_reason, count_noun, quote
from pellucid.files import (
    FileDigest,
    check_json_format,
    decode_json,
    digest_file,
    file_exists,
    open_regular_file,
    parse_json,
    read_bytes,
)

DESCRIPTION_FILE = "prepared.json"
EXAMPLES_FILE = "examples.arrow"
VALIDATION_FILE = "validation.jsonl"
BAD_LINES_FILE = "bad-lines.txt"
PARTS_FOLDER = "parts"
"""Folder of the files of an unfinished preparation."""
PREPARED_FILES = (DESCRIPTION_FILE, EXAMPLES_FILE, VALIDATION_FILE, BAD_LINES_FILE, PARTS_FOLDER)
PREPARED_FORMAT = 1
"""Format of prepared data. Raise it when the files of the folder change, or when the same pairs and settings give other
ids, vocabularies or validation pairs.
"""
MAX_DESCRIPTION_SIZE = 1 << 20
"""Maximum size of the description, in bytes."""
NumItems = Annotated[int, Meta(ge=0, le=2**53)]
"""Number of examples, lines or bytes."""


class PreparedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data file that was prepared."""

    path: str
    size: NumItems
    """Size in bytes."""
    sha256: str
    """Checksum in hexadecimal."""

    @property
    def digest(self) -> FileDigest:
        """Size and checksum."""
        return FileDigest(self.size, self.sha256)


class PreparedDescription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `DESCRIPTION_FILE`, which is written last: a folder without it is not complete."""

    key: str
    """Hash of everything that determines the examples: files and settings."""
    data: DataConfig
    """Data settings, with the format and the header of the training file."""
    train: PreparedFile
    num_examples: Annotated[int, Meta(ge=1, le=2**53)]
    """Number of training examples."""
    num_validation_examples: Annotated[int, Meta(ge=1, le=2**53)]
    num_bad_lines: NumItems
    num_blank_lines: NumItems
    num_shared: NumItems
    """Number of validation examples that are training examples, too."""
    validation_sha256: str
    """Checksum of `VALIDATION_FILE` in hexadecimal."""
    valid: PreparedFile | None = None
    """Validation file; None if sources are held out of the training file."""
    train_target: PreparedFile | None = None
    """Separate file of the training targets."""
    valid_target: PreparedFile | None = None
    """Separate file of the validation targets."""
    task: TaskName = DEFAULT_TASK
    version: str = ""
    """Version of Pellucid that has prepared the data; another one with the same format reads it."""
    format: int = PREPARED_FORMAT

    @property
    def num_held_out(self) -> int:
        """Number of examples that are held out of the training file for validation."""
        return self.num_validation_examples if self.valid is None else 0

    @property
    def num_pairs(self) -> int:
        """Number of examples of the training file, those that are held out for validation included."""
        return self.num_examples + self.num_held_out


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
    return os.path.isdir(folder) and file_exists(folder / DESCRIPTION_FILE)  # Path.is_dir raises for a long name


def read_description(folder: Path) -> PreparedDescription:
    """Read the description of prepared data.

    Args:
        folder: Folder of the data.

    Raises:
        DataError: The file is missing, damaged, or of another format.
        RunError: The file is of a newer format.
    """
    path = folder / DESCRIPTION_FILE
    content = read_bytes(path, DataError, MAX_DESCRIPTION_SIZE)
    check_json_format(str(path), content, newest=PREPARED_FORMAT)
    try:
        description = decode_json(_with_current_names(content), PreparedDescription)
    except (ValueError, ConfigError) as error:
        raise DataError(
            f"{path} does not describe prepared data ({abbreviate_reason(error)}): {_renewal_advice(folder)}"
        ) from error
    if description.format != PREPARED_FORMAT:
        raise DataError(
            f"{path} is of format {description.format}, that of an earlier version of Pellucid: "
            f"{_renewal_advice(folder)}"
        )
    return description


def _with_current_names(content: bytes) -> bytes:
    """Return the JSON of a description with the current names of the settings; raise `ValueError` if it is none."""
    stored = parse_json(content)
    return json.dumps(with_current_names(stored)).encode() if isinstance(stored, dict) else content


def _renewal_advice(folder: Path) -> str:
    """Return the advice of a message about a folder that cannot be used; `prepare` replaces no complete folder."""
    return f"remove {folder}, and prepare the data again"


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
    detected = {name: getattr(description.data, name) for name in names if getattr(config, name) == "auto"}
    return msgspec.structs.replace(config, **detected)


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
    return read_described(folder, description)


def read_described(folder: Path, description: PreparedDescription) -> PreparedData:
    """Read the examples of prepared data, and check that they are those of its description.

    Args:
        folder: Folder of the data.
        description: Its description.

    Raises:
        DataError: A file is missing, damaged or changed.
    """
    try:
        corpus = map_corpus(folder / EXAMPLES_FILE, description.key, reads_features(description.data))
    except CorpusError as error:
        raise DataError(f"{folder / EXAMPLES_FILE} is not used, for {error}: {_renewal_advice(folder)}") from error
    num_examples = corpus.encoded.source.num_sequences
    if num_examples != description.num_examples:
        raise DataError(
            f"{folder / EXAMPLES_FILE} has {count_noun(num_examples, 'example')}, {folder / DESCRIPTION_FILE} says "
            f"{description.num_examples:,}: {_renewal_advice(folder)}"
        )
    return PreparedData(description, corpus, read_prepared_validation(folder, description))


def read_prepared_validation(folder: Path, description: PreparedDescription) -> list[Example]:
    """Return the validation examples of prepared data.

    Args:
        folder: Folder of the data.
        description: Its description.

    Raises:
        DataError: The file is missing or damaged, or changed since the preparation.
    """
    path = folder / VALIDATION_FILE
    open_regular_file(path, DataError).close()  # a pipe in the folder of another user would be waited for
    digest = digest_file(path)
    is_changed = digest is not None and digest.sha256 != description.validation_sha256
    examples = [] if is_changed else read_examples(path, validation_file_config(description.data)).examples
    if is_changed or len(examples) != description.num_validation_examples:
        raise DataError(
            f"{path} changed since the data was prepared: restore it, or {_renewal_advice(folder)} (prepare --valid "
            "for other validation examples)"
        )
    return examples


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
        (bool(config.training.init_from), "training.init_from (--init-from)"),
        (config.decoder.pointer_generator, "decoder.pointer_generator"),
        (has_characters(config), "encoder.characters"),
    ):
        if is_set:
            raise ConfigError(
                f"{setting} needs the texts of the pairs, and {folder} has their ids: give the file of pairs"
            )
