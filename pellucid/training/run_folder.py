"""The run folder: everything a training leaves behind, and all that is needed to use it or to go on.

config.toml           every setting, each with its meaning
vocabulary.json       symbols, as learned from the training file
model.safetensors     the parameters of the best validation
training.safetensors  the last checkpoint: parameters, optimiser, where training stands
corpus.arrow          while training is unfinished, a large training file in ids
log.jsonl             one line an event
card.md               what the model is, what it was trained on, how good it is
snapshots/            what the model was at each validation: its outputs for four examples, its symbols' vectors
"""

import fcntl
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
from pellucid.config.toml import differences, load_config, to_toml
from pellucid.data.vocabulary import Vocabularies, load_vocabularies
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import greatest_length
from pellucid.errors import ArgumentError, ConfigError, RunError, abbreviate_reason, quote
from pellucid.files import (
    MAX_SETTINGS,
    decode_json,
    is_there,
    make_folder,
    open_regular,
    read_bytes,
    regular_file,
    remove,
    remove_empty_folders,
    remove_temporaries,
    strangers,
    write_atomic,
    write_text,
)
from pellucid.model.device import find_device, place, prepare_for_forks
from pellucid.model.network import check_memory
from pellucid.tasks.registry import build_meta_network, build_network, ensemble_of, predictor_of
from pellucid.training.checkpoint import check_formats, check_header, load_network
from pellucid.training.events import Progress
from pellucid.training.log_records import parse_record

CONFIG = "config.toml"
VOCABULARY = "vocabulary.json"
MODEL = "model.safetensors"
TRAINING = "training.safetensors"
CORPUS = "corpus.arrow"
LOG = "log.jsonl"
CARD = "card.md"
SNAPSHOTS = "snapshots"
LOCK = ".lock"
ENSEMBLE = "ensemble.json"
"""In a folder that holds the run folders of an ensemble: the names of these."""
MAX_MEMBERS = 1000
MAX_NAME = 255
"""Bytes of the name of a folder, at most, as on most systems."""
FILES = (CONFIG, VOCABULARY, MODEL, TRAINING, CORPUS, LOG, CARD, SNAPSHOTS)


class _EnsembleList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the list of an ensemble holds."""

    members: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_MEMBERS)]

    def __post_init__(self) -> None:
        """Refuse what is no name of a folder in a folder."""
        for name in self.members:
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise ValueError(f"{quote(name)} is not the name of a folder")
            if len(os.fsencode(name)) > MAX_NAME:
                raise ValueError(f"{quote(name)} is not the name of a folder: it has more than {MAX_NAME} bytes")
            if self.members.count(name) > 1:
                raise ValueError(f"{quote(name)} is listed twice")


@overload
def load(run: str | Path, device: Device = "cpu") -> Predictor:
    """Of one run."""


@overload
def load(run: list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Predictor:
    """Of several."""


def load(run: str | Path | list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Predictor:
    """The trained model of a run folder, on this device, whichever one it was trained on.

    Of several runs, or of the folder of an ensemble, all of them as one. `RunError` says what is missing or foreign, or
    which runs cannot write together, `ConfigError` that there is no such device.
    """
    prepare_for_forks()
    given: Path | list[Path] = convert_argument("run", run, str | Path | Sequence[str | Path])
    if not given:
        raise ArgumentError("run: expected a path or a list of one path at least, got []")
    found = find_device(convert_argument("device", device, Device))
    folders = [folder for each in (given if isinstance(given, list) else [given]) for folder in members(each)]
    if [given] == folders:
        return _load(folders[0], found)
    return ensemble_of([_load(each, found) for each in folders], [str(each) for each in folders])


def _load(folder: Path, device: torch.device) -> Predictor:
    """The model of one run folder."""
    if not is_there(folder):
        raise RunError(f"{folder} is not a run folder: there is no such folder")
    if not folder.is_dir():
        raise RunError(f"{folder} is not a run folder: it is a file")
    if not is_there(folder / CONFIG):
        raise RunError(f"{folder} is not a run folder: it holds no {CONFIG}")
    if not is_there(folder / MODEL):
        if any(record["event"] == "validated" for record in read_log(folder)):
            raise RunError(f"{folder / MODEL} is missing, but the log tells of a validation: restore the file")
        raise RunError(f"{folder} holds no model yet: its training has not reached a first validation")
    config = load_run_config(folder)
    vocabularies = load_vocabularies(folder / VOCABULARY, config.data)
    try:
        greatest_length(config.search, vocabularies)
    except ConfigError as error:
        raise ConfigError(f"{folder / CONFIG}: {error}") from error
    outline = build_meta_network(config, vocabularies)
    check_header(folder / MODEL, outline)
    check_memory(config, outline, "load", device)
    network = build_network(config, vocabularies)
    load_network(folder / MODEL, network)
    place(network, device)
    return predictor_of(config, vocabularies, network.eval(), str(folder))


def members(folder: Path) -> list[Path]:
    """The run folders of an ensemble's folder, in its order; any other folder stands for itself.

    A member is a folder right in this one, and a single run: no ensemble has ensembles as members. It may be a symbolic
    link, which whoever made the folder has set, and so may any file of a run. `RunError` for a list that is none.
    """
    path = folder / ENSEMBLE
    if not is_there(path):
        return [folder]
    content = read_bytes(path, limit=MAX_SETTINGS)
    try:
        return [folder / name for name in decode_json(content, _EnsembleList).members]
    except ValueError as error:
        told = abbreviate_reason(error)
        raise RunError(f"{path} does not list the members of an ensemble by their folders' names: {told}") from error


def load_run_config(folder: Path) -> Config:
    """Return the configuration of a run folder.

    Raises:
        RunError: The run was written in an older format, whose settings have other names.
        ConfigError: The file is not valid.
    """
    try:
        return load_config(folder / CONFIG)
    except ConfigError:
        check_formats(folder / MODEL, folder / TRAINING)
        raise


def has_run(folder: Path) -> bool:
    """Whether a training was begun in the folder."""
    return is_there(folder / CONFIG)


def check_own(folder: Path) -> None:
    """Refuse a folder that holds other things, or a model whose training cannot go on; nothing in it is touched.

    What a training writes to must be in the folder itself: through a link it would change what is elsewhere.
    """
    for name in (LOCK, LOG, SNAPSHOTS):
        if (folder / name).is_symlink():
            raise RunError(
                f"{folder / name} is a symbolic link, and a training writes only into its own folder: replace it by "
                "what it leads to, or name another run folder"
            )
    if not folder.is_dir() or is_there(folder / TRAINING):
        return
    foreign = strangers(folder, FILES)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no run ({', '.join(foreign[:3])}); name a new folder")
    if is_there(folder / MODEL):
        raise RunError(f"{folder} holds a model but no {TRAINING} to go on from; name a new folder")


def begin(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Write what is known before the first update. A run that ended before its first checkpoint is begun anew."""
    for name in (LOG, CARD):
        remove(folder / name)
    vocabularies.save(folder / VOCABULARY)
    write_text(folder / CONFIG, to_toml(config))


def check_same_config(folder: Path, config: Config) -> None:
    """Refuse to go on with a run under another configuration, and say what differs; a new folder has none."""
    if not has_run(folder):
        if is_there(folder / TRAINING):
            raise RunError(f"{folder} holds a training but no {CONFIG}: it cannot be known how it was meant to go on")
        return
    changed = differences(load_run_config(folder), config)
    if changed:
        listed = (f"  {each}" for each in changed)
        raise RunError(f"{folder} holds a run with a different configuration:", *listed, "name another run folder")


def check_same_vocabularies(folder: Path, vocabularies: Vocabularies, config: DataConfig) -> None:
    """Refuse to go on with a run whose vocabulary is not the one that the training file gives."""
    if load_vocabularies(folder / VOCABULARY, config) != vocabularies:
        raise RunError(f"{folder / VOCABULARY} is not the vocabulary of the training data; name another run folder")


class FolderLock(NamedTuple):
    """The lock of a run folder, while a training holds it."""

    folder: Path
    file: IO[bytes]

    def check(self) -> None:
        """Check that the path still leads to the folder that was locked: call this before each write.

        Raises:
            RunError: The folder was removed, moved or replaced, so that a write would go into another one.
        """
        if not _is_at(self.file, self.folder / LOCK):
            raise RunError(
                f"{self.folder} was removed, moved or replaced during training; nothing more is written to it"
            )


@contextmanager
def locked(folder: Path, own: Container[str] = FILES) -> Iterator[FolderLock]:
    """Hold the folder for one training at a time; the lock ends with the process, however that ends.

    Temporary files that a killed process left of writing the files `own` are removed: only the holder writes these.
    Where nothing was written, a training was refused, say, the lock's file goes, and the folders that were made for it.
    """
    made = make_folder(folder)
    with regular_file(folder / LOCK, mode="ab") as file:
        # Who only looks whether somebody trains holds the lock for a moment.
        if not any(_taken(file, fcntl.LOCK_EX, pause) for pause in (0.0, 0.05, 0.2)):
            raise RunError(f"{folder} is in use: another training is writing to it")
        if not _is_at(file, folder / LOCK):
            raise RunError(f"{folder} was in use: another training has just ended there, and written nothing")
        try:
            remove_temporaries(folder, own.__contains__)
            yield FolderLock(folder, file)
        finally:
            _leave(folder, made)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _leave(folder: Path, made: Sequence[Path]) -> None:
    """Remove the lock from a folder that holds nothing else, and those of the folders `made` that are empty then."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [LOCK] and not (folder / LOCK).stat().st_size:
            (folder / LOCK).unlink()
            remove_empty_folders(made)


def in_use(folder: Path) -> bool:
    """Whether a training holds the folder now, on this machine."""
    try:
        with open_regular(folder / LOCK) as file:
            return not _taken(file, fcntl.LOCK_SH)
    except RunError:
        return False


def _taken(file: IO[Any], kind: int, pause: float = 0.0) -> bool:
    """Whether a lock could be taken after so many seconds; it ends when the file is closed."""
    time.sleep(pause)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def append_log(folder: Path, *records: dict[str, Any]) -> None:
    """Add a line for each record to the log."""
    with open_regular(folder / LOG, mode="ab") as file:
        file.write(b"".join(map(_line, records)))


def cut_log(folder: Path, progress: Progress) -> None:
    """Remove the log's lines written after the checkpoint of this progress, and lines that are no records.

    A log that holds no such line is not written.
    """
    if not is_there(folder / LOG):
        return
    kept = [
        record
        for record in read_log(folder)
        if record.get("update", 0) <= progress.update and record.get("validation", 0) <= progress.validations
    ]
    content = b"".join(map(_line, kept))
    if content != read_bytes(folder / LOG):
        write_atomic(folder / LOG, content)


def has_stopped(log: Sequence[dict[str, Any]]) -> bool:
    """Whether a log tells of its training's end."""
    return any(record["event"] == "stopped" for record in log)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The records of a run's log; a line that a crash cut, or that is no record, is passed over."""
    return [record for record in _log_lines(folder) if record is not None]


def damage_told(folder: Path) -> list[str]:
    """A sentence about the lines of a run's log that `read_log` passes over, if there are any."""
    count = sum(record is None for record in _log_lines(folder))
    return [f"{folder / LOG}: {count:,} damaged line{'' if count == 1 else 's'} passed over"] if count else []


def loss_told(folder: Path, progress: Progress) -> list[str]:
    """A sentence about the best validation, where it was made and a run's log does not tell of it."""
    if progress.best is None:
        return []
    told = (record for record in read_log(folder) if record["event"] == "validated" and record["best"])
    if any(record["update"] == progress.best_update for record in told):
        return []
    return [f"{folder / LOG} lacks the best validation, at update {progress.best_update:,}: lines were removed"]


def _log_lines(folder: Path) -> Iterator[dict[str, Any] | None]:
    """The record of each line that is not empty; None of a damaged one."""
    if is_there(folder / LOG):
        lines = read_bytes(folder / LOG).decode("utf-8", "replace").split("\n")
        yield from (parse_record(line) for line in lines if line)


def _line(record: dict[str, Any]) -> bytes:
    """One record as one line."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
