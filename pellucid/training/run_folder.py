"""The run folder: everything that a training writes, and everything needed to use or resume it.

config.toml             every setting, with its meaning
vocabulary.json         symbols of the training file
model.safetensors       parameters of the best validation
pair_ngram.safetensors  the pair n-gram model and, when the training has finished, its weight in predictions
training.safetensors    the last checkpoint: parameters, optimizer, progress
corpus.arrow            a large training file in ids, until the training has finished
log.jsonl               one line per event
card.md                 the model card
snapshots/              at each validation, the outputs of four examples and the embeddings
"""

import json
import os
import time
import warnings
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from errno import EACCES, ELOOP, ENOENT, ENOTDIR, EPERM, ESTALE
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple, overload

import msgspec
import torch
from msgspec import Meta

from pellucid.argument_checks import check_arguments, convert_argument
from pellucid.config.settings import Config, DataConfig, Device
from pellucid.config.task_settings import uses_pair_ngram
from pellucid.config.toml import config_differences, load_saved_config, missing_settings, to_toml
from pellucid.data.vocabulary import Vocabularies, load_vocabularies
from pellucid.decoding.pair_ngram_member import PairNgramMember
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import max_output_length
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, ConfigError, RunError, abbreviate_reason, quote
from pellucid.file_lock import try_lock
from pellucid.files import (
    MAX_SETTINGS_SIZE,
    decode_json,
    file_exists,
    make_folder,
    open_regular,
    open_regular_file,
    read_bytes,
    remove_empty_folders,
    remove_file,
    remove_temporaries,
    unexpected_files,
    wrap_os_errors,
    write_atomic,
    write_text,
)
from pellucid.model.device import check_torch_defaults, find_device, move_to_device, prepare_for_forks
from pellucid.model.footprint import check_memory
from pellucid.tasks.registry import (
    build_ensemble,
    build_meta_network,
    build_network,
    get_task,
)
from pellucid.training.checkpoint import check_formats, check_header, load_network, read_progress
from pellucid.training.events import Progress
from pellucid.training.log_records import parse_record
from pellucid.training.pair_ngram_file import load_pair_ngram

CONFIG = "config.toml"
VOCABULARY = "vocabulary.json"
MODEL = "model.safetensors"
TRAINING = "training.safetensors"
CORPUS = "corpus.arrow"
PAIR_NGRAM = "pair_ngram.safetensors"
LOG = "log.jsonl"
MAX_LOG_SIZE = 2**27
"""Maximum bytes of a log: about a million lines, and a training logs one line for 50 updates."""
MAX_RECORD_SIZE = 2**20
"""Bytes of a line of the log; a longer line is damaged."""
CARD = "card.md"
SNAPSHOTS = "snapshots"
LOCK = ".lock"
ENSEMBLE = "ensemble.json"
"""File in the folder of an ensemble: the names of its members' run folders."""
MAX_MEMBERS = 1000
MAX_NAME = 255
"""Maximum size of a folder name, in bytes, as on most systems."""
MOVED_ERRORS = (ENOENT, ENOTDIR, EACCES, EPERM, ELOOP, ESTALE)
"""Error codes of a path that no longer leads to the locked folder: a parent was removed, or replaced by a file, by a
folder of another user or by a link to itself, or is on a network drive that was unmounted."""
FILES = (CONFIG, VOCABULARY, MODEL, TRAINING, CORPUS, PAIR_NGRAM, LOG, CARD, SNAPSHOTS)


class _EnsembleList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `ENSEMBLE`."""

    members: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_MEMBERS)]

    def __post_init__(self) -> None:
        """Check that every member is the name of a subfolder."""
        for name in self.members:
            if name in ("", ".", "..") or "\0" in name or Path(name).name != name:
                raise ValueError(f"{quote(name)} is not the name of a folder")
            if len(os.fsencode(name)) > MAX_NAME:
                raise ValueError(f"{quote(name)} is not the name of a folder: it has more than {MAX_NAME} bytes")
            if self.members.count(name) > 1:
                raise ValueError(f"{quote(name)} is listed twice")


@overload
def load(run: str | Path, device: Device = "cpu") -> Predictor:
    """Load a run folder, or the folder of an ensemble.

    Returns:
        The predictor of the task.
    """


@overload
def load(run: list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Predictor:
    """Load several run folders as one ensemble.

    Returns:
        The ensemble.
    """


def load(run: str | Path | list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Predictor:
    """Load the model of a run folder, with the parameters of its best validation so far.

    Args:
        run: Run folder; or several, or the folder of an ensemble, which are loaded as one ensemble.
        device: Device to load to ("auto" is a GPU if there is one); independent of the device of the training.

    Returns:
        The predictor of the task, with its network in evaluation mode. A list of one run folder is an ensemble of one.

    Raises:
        ArgumentError: `run` is an empty list, or an argument has another type.
        RunError: The run folder is missing, incomplete, damaged or of an older format, or has no model yet; or several
            runs have different tasks or target symbols; or torch's default type is not float32, or its default device
            is "meta".
        ConfigError: The device is not available, the saved configuration is not valid, or memory does not suffice.
    """
    prepare_for_forks()
    paths: Path | list[Path] = convert_argument("run", run, str | Path | Sequence[str | Path])
    if not paths:
        raise ArgumentError("run: expected a path or a list of one path at least, got []")
    torch_device = find_device(convert_argument("device", device, Device))
    folders = [folder for path in (paths if isinstance(paths, list) else [paths]) for folder in member_folders(path)]
    check_torch_defaults()
    with torch.inference_mode(False):  # tensors that are created in inference mode have no gradients, for attribution
        if [paths] == folders:
            return _load(folders[0], torch_device)
        return build_ensemble([_load(folder, torch_device) for folder in folders], [str(folder) for folder in folders])


def _load(folder: Path, device: torch.device) -> Predictor:
    """Load one run folder."""
    if not file_exists(folder):
        raise RunError(f"{folder} is not a run folder: there is no such folder")
    if not folder.is_dir():
        raise RunError(f"{folder} is not a run folder: it is a file")
    if not file_exists(folder / CONFIG):
        raise RunError(f"{folder} is not a run folder: it holds no {CONFIG}")
    if not file_exists(folder / MODEL):
        raise missing_model_error(folder)
    config = load_run_config(folder)
    vocabularies = load_run_vocabularies(folder, config)
    try:
        max_output_length(config.search, vocabularies)
    except ConfigError as error:
        raise ConfigError(f"{folder / CONFIG}: {error}") from error
    meta_network = build_meta_network(config, vocabularies)
    check_header(folder / MODEL, meta_network)
    check_memory(config, meta_network, "load", device)
    network = build_network(config, vocabularies)
    load_network(folder / MODEL, network)
    move_to_device(network, device)
    predictor = get_task(config.task).build_predictor(config, vocabularies, network.eval(), str(folder))
    return _with_pair_ngram(predictor, folder)


def _with_pair_ngram(predictor: Predictor, folder: Path) -> Predictor:
    """Return the predictor with the pair n-gram model of its run; without one until its weight has been chosen."""
    path, config = folder / PAIR_NGRAM, predictor.config
    if not (isinstance(predictor, Transducer) and uses_pair_ngram(config)):
        return predictor
    if not file_exists(path):
        # A folder without a log is a copy for prediction: a training writes the log before the first model.
        if config.search.pair_ngram and not file_exists(folder / LOG):
            warnings.warn(
                f"{path} is missing: outputs are ranked by the network alone; copy it too if the training wrote it",
                stacklevel=2,
            )
        if any(record["event"] == "interpolated" for record in read_log(folder)):
            raise RunError(f"{path} is missing: restore the file, or give the training command again, which writes it")
        return predictor
    saved = load_pair_ngram(path, predictor.vocabularies)
    member = PairNgramMember(saved.model, saved.weight) if saved.weight else None
    return replace(predictor, pair_ngram=member)


def missing_model_error(folder: Path) -> RunError:
    """Return the error for a run folder without a model: no validation yet, or a model that is lost.

    A training killed between the checkpoint and the model of a best validation leaves no model. The training command
    then writes it from the checkpoint.

    Args:
        folder: Run folder.
    """
    progress = None
    if file_exists(folder / TRAINING):
        with suppress(RunError):  # a damaged checkpoint: the log tells whether there was a model
            progress = read_progress(folder / TRAINING)
    if progress is not None and progress.best is not None and progress.best_update == progress.update:
        return RunError(
            f"{folder / MODEL} is missing: give the training command again; it writes the model from the checkpoint"
        )
    never_validated = progress is not None and progress.best is None  # the log may be ahead of the checkpoint
    if never_validated or not any(record["event"] == "validated" for record in read_log(folder)):
        return RunError(f"{folder} holds no model yet: its training has not reached a first validation")
    advice = "restore the file"
    if not file_exists(folder / TRAINING):
        advice += ", or give the training command again; it trains from the start"
    return RunError(f"{folder / MODEL} is missing, but the log records a validation: {advice}")


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
    content = read_bytes(path, limit=MAX_SETTINGS_SIZE)
    try:
        return [folder / name for name in decode_json(content, _EnsembleList).members]
    except ValueError as error:
        reason = abbreviate_reason(error)
        raise RunError(f"{path} does not list the members of an ensemble by their folders' names: {reason}") from error


@check_arguments
def load_run_config(folder: str | Path, base: Config | None = None) -> Config:
    """Return the configuration in the `config.toml` of a run folder.

    Args:
        folder: Run folder.
        base: Configuration with the values of missing settings; without it, a missing setting is an error.

    Raises:
        RunError: The file is not valid, and the model or checkpoint beside it is of another format version, in which
            settings had other names, or damaged.
        ConfigError: The file is missing, not valid in any other case, or lacks a setting.
    """
    folder = Path(folder)
    try:
        return load_saved_config(folder / CONFIG, base)
    except ConfigError:
        check_formats(folder / MODEL, folder / TRAINING)
        raise


def repair_config(folder: Path, config: Config) -> list[str]:
    """Write the configuration of a run anew if settings are missing in its file, and return a sentence that says so.

    Args:
        folder: Run folder.
        config: Configuration of the run.
    """
    if not missing_settings(folder / CONFIG, config):
        return []
    write_text(folder / CONFIG, to_toml(config))
    return [f"{folder / CONFIG} lacked settings: it is written anew"]


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
    try:
        vocabularies = load_vocabularies(folder / VOCABULARY, config.data)
    except ConfigError as error:
        raise ConfigError(f"{folder / CONFIG}: {error}") from error
    if error_text := get_task(config.task).vocabulary_error(config, vocabularies):
        raise RunError(f"{folder / VOCABULARY}: {error_text}; restore the run's {CONFIG} and {VOCABULARY}")
    return vocabularies


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


def check_training_folder(folder: Path) -> None:
    """Check that a training may write its files to a folder; nothing is changed.

    Args:
        folder: Run folder, which need not exist. It may hold a run that can be resumed, or be empty.

    Raises:
        RunError: The lock, the log or the folder of snapshots is a symbolic link; or there is no checkpoint, but a
            model or a file that no training writes (hidden files are allowed).
    """
    refuse_links([folder / name for name in (LOCK, LOG, SNAPSHOTS)])
    if not folder.is_dir() or file_exists(folder / TRAINING):
        return
    foreign = unexpected_files(folder, FILES)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no run ({', '.join(foreign[:3])}); name a new folder")
    if file_exists(folder / MODEL):
        raise RunError(f"{folder} holds a model but no {TRAINING} to resume from; name a new folder")


def refuse_links(paths: Iterable[Path]) -> None:
    """Raise an error for a file or folder of a training that is a symbolic link; nothing is changed.

    Args:
        paths: Files and folders that are written or removed; they need not exist.

    Raises:
        RunError: One is a symbolic link.
    """
    for path in paths:
        if path.is_symlink():
            raise RunError(
                f"{path} is a symbolic link, and a training writes only into its own folder: replace it by "
                "its target, or name another run folder"
            )


def initialize_run_folder(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Write the settings and vocabularies of a new run, and remove other files of an earlier attempt.

    Args:
        folder: Run folder, which exists.
        config: Configuration of the run.
        vocabularies: Vocabularies of the run.

    Raises:
        RunError: A file cannot be written or removed.
    """
    for name in (LOG, CARD, PAIR_NGRAM):
        remove_file(folder / name)
    vocabularies.save(folder / VOCABULARY)
    write_text(folder / CONFIG, to_toml(config))


def check_same_config(folder: Path, config: Config) -> None:
    """Check that the run in a folder, if any, has the same settings. Missing ones are ignored: see `repair_config`.

    Args:
        folder: Run folder, which need not exist.
        config: Configuration of the training.

    Raises:
        RunError: Settings differ (the message lists them), the folder holds a checkpoint without settings, or the run
            is of another format version.
        ConfigError: The saved configuration is not valid.
    """
    if not has_run(folder):
        if file_exists(folder / TRAINING):
            raise RunError(f"{folder} holds a training but no {CONFIG}: restore the file, or name another run folder")
        return
    differences = config_differences(load_run_config(folder, config), config)
    if differences:
        listed = (f"  {difference}" for difference in differences)
        raise RunError(f"{folder} holds a run with a different configuration:", *listed, "name another run folder")


def check_same_vocabularies(folder: Path, vocabularies: Vocabularies, config: DataConfig) -> None:
    """Check that the saved vocabularies of a run equal those learned from its training file, before it is resumed.

    Args:
        folder: Run folder.
        vocabularies: Vocabularies of the training file.
        config: Data settings of the run.

    Raises:
        RunError: They differ, or the saved file is missing or not valid.
    """
    if load_vocabularies(folder / VOCABULARY, config) != vocabularies:
        raise RunError(f"{folder / VOCABULARY} is not the vocabulary of the training data; name another run folder")


class FolderLock(NamedTuple):
    """Lock of a run folder during a training; released when its file is closed."""

    folder: Path
    file: IO[bytes]
    """The open lock file."""

    def check(self) -> None:
        """Check that the path still leads to the locked folder; to be called before each write.

        Raises:
            RunError: The folder or a parent was removed, moved or replaced, or cannot be read.
        """
        if not _is_at(self.file, self.folder / LOCK):
            raise RunError(
                f"{self.folder} was removed, moved or replaced during training; nothing more is written to it"
            )


@contextmanager
def lock_run_folder(folder: Path, file_names: Container[str] = FILES) -> Iterator[FolderLock]:
    """Lock a folder for one training within the block. The lock ends with the process, also with a killed one.

    The folder is created if it is missing, and temporary files of a killed process are removed. If the folder holds no
    other file at the end of the block, the lock file and the folders created for it are removed.

    Args:
        folder: Run folder, or folder of an ensemble.
        file_names: Names of the files that the training writes, whose temporary files are removed.

    Yields:
        The lock.

    Raises:
        RunError: Another training holds the lock, or the folder cannot be created or written to.
    """
    new_folders = make_folder(folder)
    with open_regular_file(folder / LOCK, mode="ab") as file:
        # `in_use` holds the lock for a moment, so the lock is tried three times.
        if not any(_try_lock_after(pause, file) for pause in (0.0, 0.05, 0.2)):
            raise RunError(f"{folder} is in use: another training is writing to it")
        if not _is_at(file, folder / LOCK):
            raise RunError(f"{folder} was in use: another training has just ended there without a file; try again")
        try:
            remove_temporaries(folder, file_names.__contains__)
            yield FolderLock(folder, file)
        finally:
            _remove_lock(file, folder, new_folders)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file is still at this path; False also if a parent of the path is no accessible folder.

    Raises:
        RunError: This cannot be determined because of another system error.
    """
    try:
        with wrap_os_errors("read", path):
            return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except RunError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in MOVED_ERRORS:
            return False
        raise


def _remove_lock(file: IO[bytes], folder: Path, new_folders: Sequence[Path]) -> None:
    """Remove the lock from an otherwise empty folder, and then the empty folders among `new_folders`."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [LOCK] and not (folder / LOCK).stat().st_size:
            try:
                (folder / LOCK).unlink()
            except PermissionError:  # Windows removes no open file
                file.close()
                (folder / LOCK).unlink()
            remove_empty_folders(new_folders)


@check_arguments
def in_use(folder: str | Path) -> bool:
    """Return whether a training on this machine holds the lock of a folder.

    Args:
        folder: Run folder. False if it has no lock file, or one that cannot be opened.
    """
    folder = Path(folder)
    try:
        with open_regular(folder / LOCK) as file:
            return not try_lock(file, shared=True)
    except RunError:
        return False


def _try_lock_after(pause: float, file: IO[bytes]) -> bool:
    """Return whether the lock can be taken after a pause in seconds."""
    time.sleep(pause)
    return try_lock(file)


def append_log(folder: Path, *records: dict[str, Any]) -> None:
    """Append records to the log of a run, one JSON object per line; the log is created if it is missing.

    Args:
        folder: Run folder, which exists.
        *records: Log records.

    Raises:
        RunError: The log is not a regular file, or cannot be written.
    """
    with open_regular(folder / LOG, mode="ab") as file:
        file.write(b"".join(map(_log_line, records)))


def cut_log(folder: Path, progress: Progress) -> None:
    """Remove the log lines of later updates and validations than those of a checkpoint, and damaged lines.

    A log without such lines is not rewritten; a missing log is passed over.

    Args:
        folder: Run folder.
        progress: Progress in the checkpoint.

    Raises:
        RunError: The log cannot be read or written, or is larger than `MAX_LOG_SIZE`.
    """
    if not file_exists(folder / LOG):
        return
    valid_records = [
        record
        for record in read_log(folder)
        if record.get("update", 0) <= progress.update and record.get("validation", 0) <= progress.validations
    ]
    content = b"".join(map(_log_line, valid_records))
    if content != read_bytes(folder / LOG):
        write_atomic(folder / LOG, content)


def has_stopped(log: Sequence[dict[str, Any]]) -> bool:
    """Return whether a log records that its training reached its end (event "stopped"), rather than an interruption.

    Args:
        log: Records of the log.
    """
    return any(record["event"] == "stopped" for record in log)


@check_arguments
def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """Return the records of the log of a run in order; damaged lines are left out (see `parse_record`, `log_damage`).

    Args:
        folder: Run folder; without a log there are no records.

    Raises:
        RunError: The log cannot be read, is not a regular file, or is larger than `MAX_LOG_SIZE`.
    """
    folder = Path(folder)
    return [record for record in _log_lines(folder) if record is not None]


@check_arguments
def log_damage(folder: str | Path) -> list[str]:
    """Return a list of one sentence with the number of damaged lines in the log, or an empty list.

    Args:
        folder: Run folder.

    Raises:
        RunError: The log cannot be read, is not a regular file, or is larger than `MAX_LOG_SIZE`.
    """
    folder = Path(folder)
    count = sum(record is None for record in _log_lines(folder))
    return [f"{folder / LOG}: {count:,} damaged line{'' if count == 1 else 's'} passed over"] if count else []


def best_validation(log: Sequence[dict[str, Any]], progress: Progress) -> dict[str, Any] | None:
    """Return the log record of the best validation, or None if the log lacks it.

    Args:
        log: Records of the log.
        progress: Progress in the checkpoint.
    """
    best_records = (record for record in log if record["event"] == "validated" and record["best"])
    return next((record for record in best_records if record["update"] == progress.best_update), None)


def missing_validation(folder: Path, progress: Progress) -> list[str]:
    """Return a list of one sentence if the log lacks the best validation of a checkpoint, or an empty list.

    Args:
        folder: Run folder.
        progress: Progress in the checkpoint.

    Raises:
        RunError: The log cannot be read, is not a regular file, or is larger than `MAX_LOG_SIZE`.
    """
    if progress.best is None:
        return []
    if best_validation(read_log(folder), progress) is not None:
        return []
    return [f"{folder / LOG} lacks the best validation, at update {progress.best_update:,}: lines were removed"]


def _log_lines(folder: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the record of each non-empty line; None for a damaged one, or for one that is too long."""
    if not file_exists(folder / LOG):
        return
    with open_regular(folder / LOG, RunError) as file:
        if os.fstat(file.fileno()).st_size > MAX_LOG_SIZE:
            raise RunError(f"{folder / LOG} is too large: it has more than {MAX_LOG_SIZE:,} bytes")
        while line := file.readline(MAX_RECORD_SIZE):
            is_long = len(line) == MAX_RECORD_SIZE and not line.endswith(b"\n")
            while is_long and not line.endswith(b"\n") and line:
                line = file.readline(MAX_RECORD_SIZE)
            if is_long:
                yield None
            elif text := line.decode("utf-8", "replace").removesuffix("\n"):
                yield parse_record(text)


def _log_line(record: dict[str, Any]) -> bytes:
    """Return a record as one line."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
