"""The run folder: everything a training leaves behind, and all that is needed to use it or to go on.

config.toml           every setting, each with its meaning
vocabulary.json       symbols, as learnt from the training file
model.safetensors     the parameters of the best validation
training.safetensors  the last checkpoint: parameters, optimiser, where training stands
corpus.arrow          while training is unfinished, a large training file in ids
log.jsonl             one line an event
card.md               what the model is, what it was trained on, how good it is
snapshots/            what the model was at each validation: its outputs for four examples, its symbols' vectors
"""

import fcntl
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, overload

from pellucid.config import Config, Device
from pellucid.data.vocabulary import Vocabularies, load_vocabularies
from pellucid.errors import RunError
from pellucid.files import make_folder, read_bytes, refusals, strangers, write_atomic, write_text
from pellucid.model.device import find_device, place
from pellucid.model.network import build_network
from pellucid.search.answering import together, transducer_of
from pellucid.search.ensemble import Ensemble
from pellucid.search.transducer import Transducer
from pellucid.toml import differences, load_config, to_toml
from pellucid.training.checkpoint import load_network

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
COUNTED = ("update", "samples", "epoch", "seconds")
SCORES = ("exact_match", "symbol_error_rate", "symbol_accuracy", "loss")
NUMBERS = {
    "read": (),
    "compiling": (),
    "augmented": ("examples", "made"),
    "started": COUNTED,
    "stepped": (*COUNTED, "loss"),
    "validated": (*COUNTED, *SCORES),
    "stopped": COUNTED,
}
"""The events of a log, and the numbers each of them has."""
FILES = (CONFIG, VOCABULARY, MODEL, TRAINING, CORPUS, LOG, CARD, SNAPSHOTS)


@overload
def load(run: str | Path, device: Device = "cpu") -> Transducer:
    """Of one run."""


@overload
def load(run: list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Ensemble:
    """Of several."""


def load(run: str | Path | list[str] | list[Path] | tuple[str | Path, ...], device: Device = "cpu") -> Transducer:
    """The trained model of a run folder, on this device, whichever one it was trained on.

    Of several runs, or of the folder of an ensemble, all of them as one. `RunError` says what is missing or foreign, or
    which runs cannot write together, `ConfigError` that there is no such device.
    """
    given = [run] if isinstance(run, str | Path) else list(run)
    folders = [folder for each in given for folder in members(Path(each))]
    if isinstance(run, str | Path) and folders == [Path(run)]:
        return _load(run, device)
    return together([_load(each, device) for each in folders], [str(each) for each in folders])


def _load(run: str | Path, device: Device) -> Transducer:
    """The model of one run folder."""
    folder, found = Path(run), find_device(device)
    if not folder.is_dir():
        raise RunError(
            f"{folder} is not a run folder: {'it is a file' if folder.exists() else 'there is no such folder'}"
        )
    if not (folder / CONFIG).exists():
        raise RunError(f"{folder} is not a run folder: it holds no {CONFIG}")
    if not (folder / MODEL).exists():
        raise RunError(f"{folder} holds no model yet: its training has not reached a first validation")
    config = load_config(folder / CONFIG)
    vocabularies = load_vocabularies(folder / VOCABULARY)
    network = build_network(config, vocabularies)
    load_network(folder / MODEL, network)
    place(network, found)
    return transducer_of(config, vocabularies, network.eval())


def members(folder: Path) -> list[Path]:
    """The run folders of an ensemble's folder, in its order; any other folder stands for itself.

    `RunError` for a list that is none, or that leads out of the folder.
    """
    if not (folder / ENSEMBLE).exists():
        return [folder]
    try:
        listed = json.loads(read_bytes(folder / ENSEMBLE))["members"]
        names = [name for name in listed if isinstance(name, str) and name == Path(name).name]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / ENSEMBLE} does not list the members of an ensemble") from error
    if not names or len(names) < len(listed):
        raise RunError(f"{folder / ENSEMBLE} does not list the members of an ensemble by their folders' names")
    return [folder / name for name in names]


def has_run(folder: Path) -> bool:
    """Whether a training was begun in the folder."""
    return (folder / CONFIG).exists()


def check_own(folder: Path) -> None:
    """Refuse a folder that holds other things, or a model whose training cannot go on; nothing in it is touched."""
    if not folder.is_dir() or (folder / TRAINING).exists():
        return
    foreign = strangers(folder, FILES)
    if foreign:
        raise RunError(f"{folder} is not empty and holds no run ({', '.join(foreign[:3])}); name a new folder")
    if (folder / MODEL).exists():
        raise RunError(f"{folder} holds a model but no {TRAINING} to go on from; name a new folder")


def begin(folder: Path, config: Config, vocabularies: Vocabularies) -> None:
    """Write what is known before the first update. A run that ended before its first checkpoint is begun anew."""
    vocabularies.save(folder / VOCABULARY)
    write_text(folder / CONFIG, to_toml(config))


def check_same_config(folder: Path, config: Config) -> None:
    """Refuse to go on with a run under another configuration, and say what differs; a new folder has none."""
    if not has_run(folder):
        if (folder / TRAINING).exists():
            raise RunError(f"{folder} holds a training but no {CONFIG}: it cannot be known how it was meant to go on")
        return
    changed = differences(load_config(folder / CONFIG), config)
    if changed:
        listed = "\n  ".join(changed)
        raise RunError(f"{folder} holds a run with a different configuration:\n  {listed}\nname another run folder")


def check_same_vocabularies(folder: Path, vocabularies: Vocabularies) -> None:
    """Refuse to go on with a run whose vocabulary is not the one that the training file gives."""
    if load_vocabularies(folder / VOCABULARY) != vocabularies:
        raise RunError(f"{folder / VOCABULARY} is not the vocabulary of the training data; name another run folder")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one training at a time; the lock ends with the process, however that ends."""
    make_folder(folder)
    with refusals("write", folder / LOCK):
        file = open(folder / LOCK, "a")  # noqa: SIM115 (closed below, apart from the errors told above)
    with file:
        # Who only looks whether somebody trains holds the lock for a moment.
        if not any(_taken(file, fcntl.LOCK_EX, pause) for pause in (0.0, 0.05, 0.2)):
            raise RunError(f"{folder} is in use: another training is writing to it")
        yield


def in_use(folder: Path) -> bool:
    """Whether a training holds the folder now, on this machine."""
    try:
        with open(folder / LOCK, "rb") as file:
            return not _taken(file, fcntl.LOCK_SH)
    except OSError:
        return False


def _taken(file: IO[Any], kind: int, pause: float = 0.0) -> bool:
    """Whether a lock could be taken after so many seconds; it ends when the file is closed."""
    time.sleep(pause)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def append_log(folder: Path, record: dict[str, Any]) -> None:
    """Add one line to the log."""
    with refusals("write", folder / LOG), open(folder / LOG, "ab") as file:
        file.write(_line(record))


def cut_log(folder: Path, update: int) -> None:
    """Remove the log's lines beyond `update`, written after the checkpoint one goes on from."""
    kept = [record for record in read_log(folder) if record.get("update", 0) <= update]
    write_atomic(folder / LOG, b"".join(_line(record) for record in kept))


def has_stopped(log: Sequence[dict[str, Any]]) -> bool:
    """Whether a log tells of its training's end."""
    return any(record["event"] == "stopped" for record in log)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The records of a run's log; a line that a crash cut, or that is no record, is passed over."""
    if not (folder / LOG).exists():
        return []
    records = []
    for line in read_bytes(folder / LOG).decode("utf-8", "replace").split("\n"):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if is_record(record):
            records.append(record)
    return records


def is_record(record: object) -> bool:
    """Whether a line of a log is one that training writes: a known event, with the numbers that belong to it."""
    if not isinstance(record, dict) or record.get("event") not in NUMBERS:
        return False
    numbers = [record.get(name) for name in NUMBERS[record["event"]]]
    told = all(isinstance(number, int | float) for number in numbers)
    return told and (record["event"] != "validated" or isinstance(record.get("best"), bool))


def _line(record: dict[str, Any]) -> bytes:
    """One record as one line."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
