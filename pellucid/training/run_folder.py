"""The run folder: everything that a training writes, and everything needed to use or resume it.

config.toml           every setting, with its meaning
vocabulary.json       symbols of the training file
model.safetensors     parameters of the best validation
training.safetensors  the last checkpoint: parameters, optimizer, progress
corpus.arrow          a large training file in ids, until the training has finished
log.jsonl             one line per event
card.md               the model card
snapshots/            at each validation, the outputs of four examples and the embeddings
"""

import json
import os
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple, overload

import msgspec
import torch
from msgspec import Meta

from pellucid.arguments import convert_argument
from pellucid.config.settings import Config, DataConfig, Device
from pellucid.config.toml import config_differences, load_config, to_toml
from pellucid.data.vocabulary import Vocabularies, load_vocabularies
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import max_output_length
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
    write_atomic,
    write_text,
)
from pellucid.model.device import find_device, move_to_device, prepare_for_forks
from pellucid.model.network import check_memory
from pellucid.tasks.registry import (
    build_ensemble,
    build_meta_network,
    build_network,
    build_predictor,
    vocabulary_error,
)
from pellucid.training.checkpoint import check_formats, check_header, load_network
from pellucid.training.events import Progress
from pellucid.training.log_records import parse_record

CONFIG = "config.toml"
VOCABULARY = "vocabulary.json"
MODEL = "model.safetensors"
TRAINING = "training.safetensors"
CORPUS = "corpus.arrow"
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
FILES = (CONFIG, VOCABULARY, MODEL, TRAINING, CORPUS, LOG, CARD, SNAPSHOTS)


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
    """Load one run.

    Returns:
        The predictor of the task.
    """


@overload
def load(run: list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Predictor:
    """Load several runs.

    Returns:
        The ensemble.
    """


def load(run: str | Path | list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Predictor:
    """Load the trained model of a run folder.

    Args:
        run: Run folder; or several, or the folder of an ensemble, which are loaded as one ensemble.
        device: Device to load to; independent of the device of the training.

    Returns:
        The predictor of the task.

    Raises:
        RunError: The run folder is missing, incomplete or damaged, or several runs do not fit together.
        ConfigError: The device is not available.
    """
    prepare_for_forks()
    paths: Path | list[Path] = convert_argument("run", run, str | Path | Sequence[str | Path])
    if not paths:
        raise ArgumentError("run: expected a path or a list of one path at least, got []")
    torch_device = find_device(convert_argument("device", device, Device))
    folders = [folder for path in (paths if isinstance(paths, list) else [paths]) for folder in members(path)]
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
        if any(record["event"] == "validated" for record in read_log(folder)):
            raise RunError(f"{folder / MODEL} is missing, but the log records a validation: restore the file")
        raise RunError(f"{folder} holds no model yet: its training has not reached a first validation")
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
    return build_predictor(config, vocabularies, network.eval(), str(folder))


def members(folder: Path) -> list[Path]:
    """Return the run folders of an ensemble folder in order; any other folder is returned itself.

    A member is a direct subfolder with a single run. It may be a symbolic link, and so may any file of a run.

    Args:
        folder: Run folder, or folder of an ensemble.

    Raises:
        RunError: The list of members is not valid.
    """
    path = folder / ENSEMBLE
    if not file_exists(path):
        return [folder]
    content = read_bytes(path, limit=MAX_SETTINGS_SIZE)
    try:
        return [folder / name for name in decode_json(content, _EnsembleList).members]
    except ValueError as error:
        reason = abbreviate_reason(error)
        raise RunError(f"{path} does not list the members of an ensemble by their folders' names: {reason}") from error


def load_run_config(folder: Path) -> Config:
    """Return the configuration of a run folder.

    Args:
        folder: Run folder.

    Raises:
        RunError: The run was written in an older format, whose settings have other names.
        ConfigError: The file is not valid.
    """
    try:
        return load_config(folder / CONFIG)
    except ConfigError:
        check_formats(folder / MODEL, folder / TRAINING)
        raise


def load_run_vocabularies(folder: Path, config: Config) -> Vocabularies:
    """Return the vocabularies of a run folder.

    Args:
        folder: Run folder.
        config: Configuration of the run.

    Raises:
        RunError: The file is not valid, or does not fit the task of the configuration.
        ConfigError: A setting of the configuration defines no tokenizer; the message names the run's file.
    """
    try:
        vocabularies = load_vocabularies(folder / VOCABULARY, config.data)
    except ConfigError as error:
        raise ConfigError(f"{folder / CONFIG}: {error}") from error
    if error_text := vocabulary_error(config, vocabularies):
        raise RunError(f"{folder / VOCABULARY}: {error_text}; restore the run's {CONFIG} and {VOCABULARY}")
    return vocabularies


def has_run(folder: Path) -> bool:
    """Return whether the folder holds a run.

    Args:
        folder: Any folder.
    """
    return file_exists(folder / CONFIG)


def check_own(folder: Path) -> None:
    """Check that a training may write to the folder, without changing it.

    All files that a training writes must be in the folder itself, not behind links.

    Args:
        folder: Run folder, which need not exist.

    Raises:
        RunError: The folder holds other files, a link, or a model without a checkpoint.
    """
    for name in (LOCK, LOG, SNAPSHOTS):
        if (folder / name).is_symlink():
            raise RunError(
                f"{folder / name} is a symbolic link, and a training writes only into its own folder: replace it by "
                "its target, or name another run folder"
            )
    if not folder.is_dir() or file_exists(folder / TRAINING):
        return
    foreign = unexpected_files(folder, FILES)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no run ({', '.join(foreign[:3])}); name a new folder")
    if file_exists(folder / MODEL):
        raise RunError(f"{folder} holds a model but no {TRAINING} to resume from; name a new folder")


def initialize_run_folder(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Write the settings and vocabularies. A run without a checkpoint starts again.

    Args:
        folder: Run folder.
        config: Configuration of the run.
        vocabularies: Vocabularies of the run.
    """
    for name in (LOG, CARD):
        remove_file(folder / name)
    vocabularies.save(folder / VOCABULARY)
    write_text(folder / CONFIG, to_toml(config))


def check_same_config(folder: Path, config: Config) -> None:
    """Check that the run in a folder, if any, has the same settings.

    Args:
        folder: Run folder.
        config: Configuration of the training.

    Raises:
        RunError: Settings differ; the message lists them.
    """
    if not has_run(folder):
        if file_exists(folder / TRAINING):
            raise RunError(f"{folder} holds a training but no {CONFIG}: restore the file, or name another run folder")
        return
    differences = config_differences(load_run_config(folder), config)
    if differences:
        listed = (f"  {difference}" for difference in differences)
        raise RunError(f"{folder} holds a run with a different configuration:", *listed, "name another run folder")


def check_same_vocabularies(folder: Path, vocabularies: Vocabularies, config: DataConfig) -> None:
    """Check that the vocabulary of a run equals that of the training file.

    Args:
        folder: Run folder.
        vocabularies: Vocabularies of the training file.
        config: Data settings.

    Raises:
        RunError: They differ.
    """
    if load_vocabularies(folder / VOCABULARY, config) != vocabularies:
        raise RunError(f"{folder / VOCABULARY} is not the vocabulary of the training data; name another run folder")


class FolderLock(NamedTuple):
    """Lock of a run folder during a training."""

    folder: Path
    file: IO[bytes]

    def check(self) -> None:
        """Check before each write that the path still leads to the locked folder.

        Raises:
            RunError: The folder was removed, moved or replaced.
        """
        if not _is_at(self.file, self.folder / LOCK):
            raise RunError(
                f"{self.folder} was removed, moved or replaced during training; nothing more is written to it"
            )


@contextmanager
def lock_run_folder(folder: Path, file_names: Container[str] = FILES) -> Iterator[FolderLock]:
    """Lock the folder for one training. The lock ends with the process, also with a killed one.

    Temporary files of a killed process are removed. If nothing was written, the lock file and the folders created for
    it are removed.

    Args:
        folder: Run folder, or folder of an ensemble.
        file_names: Names of the files that the training writes, whose temporary files are removed.

    Raises:
        RunError: Another training holds the lock.
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
    """Return whether an open file is still at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


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


def in_use(folder: Path) -> bool:
    """Return whether a training on this machine holds the lock of the folder.

    Args:
        folder: Run folder.
    """
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
    """Append records to the log.

    Args:
        folder: Run folder.
        *records: Log records, one per line.
    """
    with open_regular(folder / LOG, mode="ab") as file:
        file.write(b"".join(map(_log_line, records)))


def cut_log(folder: Path, progress: Progress) -> None:
    """Remove log lines written after a checkpoint, and damaged lines.

    A log without such lines is not rewritten.

    Args:
        folder: Run folder.
        progress: Progress in the checkpoint.
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
    """Return whether a log contains the end of its training.

    Args:
        log: Records of the log.
    """
    return any(record["event"] == "stopped" for record in log)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a log; damaged lines are skipped (see `log_damage`).

    Args:
        folder: Run folder.
    """
    return [record for record in _log_lines(folder) if record is not None]


def log_damage(folder: Path) -> list[str]:
    """Return a sentence about damaged lines in the log, if there are any.

    Args:
        folder: Run folder.
    """
    count = sum(record is None for record in _log_lines(folder))
    return [f"{folder / LOG}: {count:,} damaged line{'' if count == 1 else 's'} passed over"] if count else []


def missing_validation(folder: Path, progress: Progress) -> list[str]:
    """Return a sentence if the best validation is missing from the log.

    Args:
        folder: Run folder.
        progress: Progress in the checkpoint.
    """
    if progress.best is None:
        return []
    best_records = (record for record in read_log(folder) if record["event"] == "validated" and record["best"])
    if any(record["update"] == progress.best_update for record in best_records):
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
