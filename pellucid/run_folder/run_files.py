"""The files of a run folder, and its settings, vocabularies and members.

A run folder holds everything that a training writes, and everything needed to use or resume it.

config.toml             every setting, with its meaning
vocabulary.json         symbols of the training file
model.safetensors       parameters of the best validation; before the first one, of the untrained network
pair_ngram.safetensors  the pair n-gram model and, when the training has finished, its weight in predictions
confidence.json         the confidence of outputs, fitted when the training has finished
training.safetensors    the last checkpoint: parameters, optimizer, progress
validation.jsonl        the validation set, if it was held out of the training file
corpus.arrow            a large training file in ids, until the training has finished
log.jsonl               one line per event
card.md                 the model card
snapshots/              at each validation, the outputs of four examples and the embeddings
tensorboard/            curves for TensorBoard, with training.callbacks = ["tensorboard"]
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pellucid.argument_checks import check_arguments
from pellucid.config.settings import Config, DataConfig, Size
from pellucid.config.toml import RESTORE_ADVICE, load_saved_config
from pellucid.data.prepared_data import is_prepared
from pellucid.data.validation_split import validation_file_config
from pellucid.data.vocabulary import Vocabularies, load_vocabularies
from pellucid.errors import ConfigError, InputError, MissingExtensionError, RunError, abbreviate_reason, quote
from pellucid.files import MAX_SETTINGS_SIZE, check_json_format, decode_json, file_exists, read_bytes
from pellucid.run_folder.advice import RESTORE_OR_REPEAT, RESTORE_OR_TRAIN, add_advice
from pellucid.run_folder.model_file import VERSIONS, check_formats
from pellucid.run_folder.tensor_file import open_tensors

CONFIG = "config.toml"
VOCABULARY = "vocabulary.json"
MODEL = "model.safetensors"
CHECKPOINT = "training.safetensors"
CORPUS = "corpus.arrow"
VALIDATION = "validation.jsonl"
PAIR_NGRAM = "pair_ngram.safetensors"
CONFIDENCE = "confidence.json"
LOG = "log.jsonl"
CARD = "card.md"
SNAPSHOTS = "snapshots"
TENSORBOARD = "tensorboard"
"""Folder of the event files of the callback of this name."""
LOCK = ".lock"
ENSEMBLE = "ensemble.json"
"""File in the folder of an ensemble: the names of its members' run folders, and the weight of its pair n-gram model."""
MEMBER_PREFIX = "seed-"
"""Beginning of the name of a member's run folder; its seed follows."""
MAX_MEMBERS = 1000
MAX_NAME = 255
"""Maximum size of a folder name, in bytes, as on most systems."""
FILES = (CONFIG, VOCABULARY, MODEL, CHECKPOINT, CORPUS, VALIDATION, PAIR_NGRAM, CONFIDENCE, LOG, CARD, SNAPSHOTS)


def pair_file_config(path: Path | None, data: DataConfig) -> DataConfig:
    """Return the data settings with which a file of pairs is read.

    They are those of the training file, except for the validation file of a run folder or of prepared data, which has
    its own columns.

    Args:
        path: The file; None if there is none.
        data: Data settings of the training.
    """
    if path is None or path.name != VALIDATION:
        return data
    is_written = (path.parent / CONFIG).is_file() or is_prepared(path.parent)
    return validation_file_config(data) if is_written else data


class EnsembleRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Content of `ENSEMBLE`."""

    members: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_MEMBERS)]
    """Names of the members' run folders."""
    pair_ngram_weight: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Weight of the pair n-gram model in predictions of the ensemble."""
    fingerprint: str = ""
    """Hash of the models for which the weight was chosen (`combine_fingerprints`); empty before."""
    format: Literal[1] = 1
    """Format version, which is written from version 2 on."""

    def __post_init__(self) -> None:
        """Check that every member is the name of a subfolder."""
        for name in self.members:
            if name in ("", ".", "..") or "\0" in name or Path(name).name != name:
                raise ValueError(f"{quote(name)} is not the name of a folder")
            if len(os.fsencode(name)) > MAX_NAME:
                raise ValueError(f"{quote(name)} is not the name of a folder: it has more than {MAX_NAME} bytes")
            if self.members.count(name) > 1:
                raise ValueError(f"{quote(name)} is listed twice")


@check_arguments
def member_folders(folder: str | Path) -> list[Path]:
    """Return the run folders that the `ensemble.json` of a folder lists, in its order; [folder] if it has no such file.

    The members are direct subfolders, which need not exist. A member may be a symbolic link, and so may any file of a
    run.

    Args:
        folder: Run folder, or folder of an ensemble.

    Raises:
        RunError: `ensemble.json` cannot be read, lists no member or more than `MAX_MEMBERS`, or a name twice or that is
            no name of a subfolder.
    """
    folder = Path(folder)
    path = folder / ENSEMBLE
    if not file_exists(path):
        return [folder]
    return [folder / name for name in read_ensemble_record(path).members]


def read_ensemble_record(path: Path) -> EnsembleRecord:
    """Read the `ensemble.json` of an ensemble.

    Args:
        path: File.

    Raises:
        RunError: As in `member_folders`; or the file is missing.
    """
    with add_advice(RESTORE_OR_REPEAT):
        content = read_bytes(path, limit=MAX_SETTINGS_SIZE)
        check_json_format(str(path), content, newest=1)
        try:
            return decode_json(content, EnsembleRecord)
        except ValueError as error:
            reason = abbreviate_reason(error)
            raise RunError(
                f"{path} does not list the members of an ensemble by their folders' names: {reason}"
            ) from error


@check_arguments
def load_run_config(folder: str | Path, base: Config | None = None) -> Config:
    """Return the configuration in the `config.toml` of a run folder.

    Args:
        folder: Run folder.
        base: Configuration with the values of missing settings; without it, a missing setting is an error.

    Raises:
        RunError: The file is not valid, and the model or checkpoint beside it is of another format version, in which
            settings had other names, or damaged.
        ConfigError: The file is missing, not valid in any other case, or lacks a setting; or
            (`MissingExtensionError`) an extension is not installed: the message names the packages that trained it.
    """
    folder = Path(folder)
    try:
        return load_saved_config(folder / CONFIG, base)
    except MissingExtensionError as error:
        check_formats(folder / MODEL, folder / CHECKPOINT)
        raise MissingExtensionError(f"{error}{_trained_packages(folder)}") from error
    except ConfigError:
        check_formats(folder / MODEL, folder / CHECKPOINT)
        raise


def _trained_packages(folder: Path) -> str:
    """Return the packages of extensions that a model records, as the end of a message; "" if there are none."""
    with suppress(RunError, msgspec.MsgspecError, RecursionError), open_tensors(folder / MODEL) as stored:
        versions = msgspec.json.decode(stored.metadata.get(VERSIONS, "{}"), type=dict[str, str])
        packages = [quote(f"{name} {version}") for name, version in versions.items() if name != "pellucid"]
        return f"; the model was trained with {' and '.join(packages)}" if packages else ""
    return ""


@check_arguments
def load_run_vocabularies(folder: str | Path, config: Config) -> Vocabularies:
    """Return the vocabularies in the `vocabulary.json` of a run folder.

    Args:
        folder: Run folder.
        config: Configuration of the run.

    Raises:
        RunError: The file is missing or not valid, or does not fit the configuration: its tokenizers, its maximum
            lengths or its task.
        ConfigError: A setting of the configuration defines no tokenizer; the message names the run's `config.toml`.
    """
    folder = Path(folder)
    vocabularies = read_run_vocabularies(folder, config)
    check_task_vocabularies(folder, config, vocabularies)
    return vocabularies


def check_task_vocabularies(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Check that the vocabularies fit the task of a run.

    Args:
        folder: Run folder.
        config: Configuration of the run.
        vocabularies: Vocabularies of the run.

    Raises:
        RunError: They do not.
    """
    from pellucid.tasks.registry import get_task  # PyTorch takes a second to import

    if error_text := get_task(config.task).vocabulary_error(config, vocabularies):
        raise RunError(f"{folder / VOCABULARY}: {error_text}; restore the run's {CONFIG} and {VOCABULARY}")


def read_run_vocabularies(folder: Path, config: Config) -> Vocabularies:
    """Return the vocabularies of a run folder as `load_run_vocabularies` does, without the check of the run's task.

    Args:
        folder: Run folder.
        config: Configuration of the run.

    Raises:
        RunError: The file is missing or not valid, or does not fit the settings of the data.
        ConfigError: As in `load_run_vocabularies`.
    """
    try:
        with add_advice(RESTORE_OR_TRAIN):
            return load_vocabularies(folder / VOCABULARY, config.data)
    except ConfigError as error:
        raise ConfigError(f"{folder / CONFIG}: {error}; {RESTORE_ADVICE}") from error


@check_arguments
def has_run(folder: str | Path) -> bool:
    """Return whether a folder holds a run, with or without a model: whether it has a `config.toml`.

    Args:
        folder: Any folder, which need not exist.

    Raises:
        RunError: This cannot be determined, for example without permission.
    """
    folder = Path(folder)
    return file_exists(folder / CONFIG)


@check_arguments
def saved_size(folder: str | Path) -> Size | None:
    """Return the size of a started run, or of the first member of an ensemble.

    Args:
        folder: Run folder, or folder of an ensemble, which need not exist.

    Returns:
        The size; None if the folder holds neither, or the size cannot be read.
    """
    folder = Path(folder)
    try:
        # The members are listed when the network of the first one is built, which is after its settings are written.
        run = next(filter(has_run, [folder, *member_folders(folder), *sorted(folder.glob(f"{MEMBER_PREFIX}*"))]), None)
        return None if run is None else load_run_config(run).size
    except InputError:  # opening the run reports it
        return None
