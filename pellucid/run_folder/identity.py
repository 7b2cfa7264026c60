"""Identity of a run, which its model file holds: files of two runs that were mixed by hand are refused.

The model file records the settings that determine what its parameters compute, a checksum of the vocabularies, the
update of its validation, and the fingerprint of the training, which the checkpoint and the pair n-gram model hold too.
Files of earlier versions record
nothing, and are not compared.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from pellucid.config.settings import Config
from pellucid.config.toml import flatten_config
from pellucid.data.vocabulary import Vocabularies
from pellucid.errors import RunError, abbreviate, abbreviate_reason, quote
from pellucid.files import file_exists
from pellucid.run_folder.advice import RESTORE_OR_TRAIN, add_advice
from pellucid.run_folder.log import RunLog, other_log_error
from pellucid.run_folder.model_file import FINGERPRINT, SETTINGS, UPDATE, VOCABULARY_DIGEST
from pellucid.run_folder.run_files import CHECKPOINT, CONFIG, MODEL, VOCABULARY
from pellucid.run_folder.tensor_file import open_tensors

TOKEN_SETTINGS = (
    *("task", "data.source_symbols", "data.target_symbols", "data.features_symbols"),
    *("data.source_normalization", "data.target_normalization"),
)
"""Settings outside the sections of the network that determine the meaning of its inputs and outputs."""
NETWORK_SECTIONS = ("encoder.", "attention.", "decoder.")
TRAINING_ONLY = ("dropout", "pretrained")
"""Parts of the names of settings of these sections that have no effect after the training."""
MIXED_ADVICE = "copy all files of the run folder from one run, or train the model again"


def describe_run(config: Config, vocabularies: Vocabularies, fingerprint: str, update: int) -> dict[str, str]:
    """Return the metadata by which a model file is recognized as part of a run.

    Args:
        config: Configuration of the run.
        vocabularies: Vocabularies of the run.
        fingerprint: Hash of the settings and data of its training.
        update: Number of updates at the validation that the parameters are of.
    """
    return {
        FINGERPRINT: fingerprint,
        SETTINGS: msgspec.json.encode(_network_settings(config)).decode(),
        VOCABULARY_DIGEST: _digest_vocabularies(vocabularies),
        UPDATE: str(update),
    }


def check_config_of_model(folder: Path, config: Config) -> None:
    """Check that the configuration and the model of a run folder are of the same run.

    Settings without effect on the outputs of the network may differ.

    Args:
        folder: Run folder with a model.
        config: Configuration in the folder.

    Raises:
        RunError: A setting of the network or of its symbols differs from that of the training of the model; or the
            model file is missing or damaged.
    """
    text = _read_metadata(folder / MODEL).get(SETTINGS)
    if text is None:
        return
    try:
        trained = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        reason = abbreviate_reason(error)
        raise RunError(f"{folder / MODEL} is damaged: settings in its header: {reason}; {RESTORE_OR_TRAIN}") from error
    current = _network_settings(config)
    for key, value in trained.items():
        if key in current and current[key] != value:
            raise _mixed_error(
                folder / CONFIG, folder / MODEL, f"{key} is {quote(current[key])}, and {quote(value)} in the model"
            )


def check_vocabularies_of_model(folder: Path, vocabularies: Vocabularies) -> None:
    """Check that the vocabularies and the model of a run folder are of the same run.

    Args:
        folder: Run folder with a model.
        vocabularies: Vocabularies in the folder.

    Raises:
        RunError: They are not those of the training of the model; or the model file is missing or damaged.
    """
    digest = _read_metadata(folder / MODEL).get(VOCABULARY_DIGEST)
    if digest is not None and digest != _digest_vocabularies(vocabularies):
        raise _mixed_error(folder / VOCABULARY, folder / MODEL, "its symbols are not those of the model")


def check_training_of_model(folder: Path, other: Path, fingerprint: str) -> None:
    """Check that the model of a run folder and another file are of the same training.

    Args:
        folder: Run folder with a model.
        other: The other file: the checkpoint or the pair n-gram model.
        fingerprint: Fingerprint in the other file; empty if it has none.

    Raises:
        RunError: The fingerprints differ, or the model file is missing or damaged.
    """
    recorded = _read_metadata(folder / MODEL).get(FINGERPRINT, "")
    if recorded and fingerprint and recorded != fingerprint:
        raise _mixed_error(other, folder / MODEL, "their trainings had other data or settings (fingerprint)")


def check_log_of_model(folder: Path, log: RunLog) -> None:
    """Check that the log and the model of a run folder are of the same training.

    Args:
        folder: Run folder with a model.
        log: Log in the folder.

    Raises:
        RunError: The fingerprints differ, or the model file is missing or damaged.
    """
    if log.fingerprint and model_fingerprint(folder) not in ("", log.fingerprint):
        raise other_log_error(log.path)


def model_fingerprint(folder: Path) -> str:
    """Return the fingerprint of the training of a model; empty without a model, or for one of an earlier version.

    Args:
        folder: Run folder.

    Raises:
        RunError: The model file is damaged.
    """
    return _read_metadata(folder / MODEL).get(FINGERPRINT, "") if file_exists(folder / MODEL) else ""


def check_update_of_model(folder: Path, best_update: int) -> None:
    """Check that the model of a run folder is the best one according to its checkpoint.

    Args:
        folder: Run folder with a model and a checkpoint.
        best_update: Number of updates at the best validation, in the checkpoint.

    Raises:
        RunError: The model is of another validation, or the model file is missing or damaged.
    """
    update = _read_metadata(folder / MODEL).get(UPDATE, str(best_update))
    if update != str(best_update):
        raise RunError(
            f"{folder / MODEL} is of update {abbreviate(update)}, but the best validation in {folder / CHECKPOINT} is "
            f"of update {best_update}; restore both files from one copy of the run, or name another run folder to "
            "train again"
        )


def _read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata in the header of a model file."""
    with add_advice(RESTORE_OR_TRAIN), open_tensors(path) as stored:
        return stored.metadata


def _mixed_error(path: Path, model: Path, reason: str) -> RunError:
    """Return the error for two files of different runs."""
    return RunError(f"{path} and {model} are not of the same run: {reason}; {MIXED_ADVICE}")


def _network_settings(config: Config) -> dict[str, Any]:
    """Return the settings that determine what the parameters compute, by key, as JSON represents them."""
    settings = {
        key: value
        for key, value in flatten_config(config).items()
        if key in TOKEN_SETTINGS
        or (key.startswith(NETWORK_SECTIONS) and not any(part in key for part in TRAINING_ONLY))
    }
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    return decoded


def _digest_vocabularies(vocabularies: Vocabularies) -> str:
    """Return a hash of everything in the vocabularies on which outputs depend, whatever the layout of their file."""
    columns = [vocabularies.source, vocabularies.target, vocabularies.features]
    lengths = [vocabularies.longest_source, vocabularies.longest_target]
    content = [[column.symbols for column in columns], [column.counts for column in columns], lengths]
    return hashlib.sha256(msgspec.json.encode([*content, vocabularies.pieces])).hexdigest()
