"""From files to a training session, new or resumed, and from its events to a run folder."""

import hashlib
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pellucid.config.settings import Config
from pellucid.config.toml import validate_config
from pellucid.data.batches import EncodedExamples
from pellucid.data.corpus import EncodedCorpus
from pellucid.data.examples import Example
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.preprocessing import greatest_length
from pellucid.files import file_exists, has_content, remove_file, write_atomic, write_text
from pellucid.kernels.dispatch import will_compile
from pellucid.kernels.numba_backend import is_numba_available
from pellucid.model.device import find_device, place, use_determinism, use_threads
from pellucid.model.network import check_memory, parameter_count
from pellucid.tasks.registry import build_meta_network, build_network, build_predictor
from pellucid.training import run_folder as run
from pellucid.training import snapshots
from pellucid.training.checkpoint import check_network, network_file, restore_session, save_session
from pellucid.training.loop import (
    LOSS_WINDOW,
    Event,
    Progress,
    Session,
    Started,
    Stepped,
    Stopped,
    Validated,
    build_optimizer,
    fit,
)
from pellucid.training.model_card import card
from pellucid.training.optimizer import averaged
from pellucid.training.training_data import (
    Augmented,
    Covered,
    Files,
    Read,
    adopt_vectors,
    augmented,
    encoded,
    foreseen,
    keep,
    read_files,
    resolve_data,
)

__all__ = ["Built", "Files", "Keeper", "Read", "RunEvent", "Saved", "train_run"]

SAVE_SECONDS = 120.0
"""A checkpoint is written at every validation, and between two of them at least this often."""
BLOCK = 1 << 20
"""Ids that are hashed at once."""


class Built(NamedTuple):
    """The network is ready, new or brought back to where it stood."""

    folder: Path
    parameters: int
    vocabularies: Vocabularies
    resumed: bool
    compiles: bool = False
    """Whether kernels are about to be compiled for the first time on this machine."""
    covered: tuple[Covered, ...] = ()
    """What files of vectors had of the symbols; nothing is read of them when a training goes on."""
    foreseen: tuple[str, ...] = ()
    """What a person should know before it begins."""


class Saved(NamedTuple):
    """A file of the run folder was written."""

    path: Path
    best: bool


RunEvent = Event | Read | Augmented | Built | Saved


def train_run(files: Files, folder: Path, config: Config) -> Generator[RunEvent]:
    """Train from files into a run folder, or go on where its training stopped; a generator of events.

    Whoever closes the generator between two events stops the training: what it has reached is saved first. Errors:
    `DataError` for what cannot be read, `RunError` for a folder that is foreign, in use, or of another configuration.
    """
    data = config.data
    config = msgspec.structs.replace(config, data=resolve_data(files, data))
    # As for the format: the run folder tells what was found. A run goes on only where there is such a device.
    config = validate_config(msgspec.structs.replace(config, device=find_device(config.device).type))
    run.check_own(folder)
    run.check_same_config(folder, config)
    use_threads(config.threads)
    use_determinism(config)
    read = read_files(files, data, folder / run.CORPUS)
    reads, development, mapped = read.reads, read.development, read.corpus is not None
    yield from reads
    made = None
    with run.locked(folder) as lock:
        run.check_same_config(folder, config)
        if config.training.augmentation != "none":
            read, made = augmented(read, config)
            yield made
        corpus = encoded(read, config)
        del read  # the texts of a large file, of which training needs only the ids
        session, fingerprint, built = _open(folder, config, corpus, development)
        if not (mapped or session.progress.finished or config.decoder.pointer_generator or made):
            session.training = keep(folder / run.CORPUS, corpus, files, data).encoded
        del corpus
        yield built
        if built.compiles:
            run.append_log(folder, {"event": "compiling"})
            is_numba_available()  # before the first update: an interruption has nothing to wait for here
        if session.progress.finished:
            _conclude(session, folder)
            yield Stopped(session.progress)
        else:
            yield from _recorded(session, lock, fingerprint, [*reads, *([made] if made else [])])


def _open(
    folder: Path, config: Config, corpus: EncodedCorpus, development: Sequence[Example]
) -> tuple[Session, str, Built]:
    """The session of a run: a new one, or the saved one of the same configuration and data."""
    vocabularies = corpus.vocabularies
    greatest_length(config.search, vocabularies)  # refuses what no output can be, before anything is trained
    fingerprint = _fingerprint((config, vocabularies, development), corpus.encoded)
    resumed = file_exists(folder / run.TRAINING)
    check_memory(config, build_meta_network(config, vocabularies), "train", find_device(config.device))
    network = build_network(config, vocabularies)
    covered = () if resumed else adopt_vectors(network, config, vocabularies)
    if not resumed:
        run.begin(folder, config, vocabularies)
    place(network, find_device(config.device))
    transducer = build_predictor(config, vocabularies, network, str(folder))
    session = Session(transducer, build_optimizer(network, config.training), corpus.encoded, development)
    if resumed:
        restore_session(folder / run.TRAINING, session, fingerprint)
        run.check_same_vocabularies(folder, vocabularies, config.data)
    damaged = run.damage_told(folder)
    _mend(session, folder)
    damaged += run.loss_told(folder, session.progress)
    compiles = not session.progress.finished and config.device == "cpu" and will_compile()
    known = (*foreseen(transducer, development), *damaged)
    built = Built(folder, parameter_count(network), vocabularies, resumed, compiles, covered, known)
    return session, fingerprint, built


def _mend(session: Session, folder: Path) -> None:
    """Bring the run folder to where its checkpoint stands, whatever was written after it and whatever was not.

    The checkpoint is written after the log and the snapshots, which may be ahead of it, and before the best model,
    which may be behind it: a best model that the process was killed before writing is that of the checkpoint.
    """
    progress = session.progress
    if progress.best is not None and progress.best_update == progress.update:
        model = _best_model(session)
        if not has_content(folder / run.MODEL, model):
            write_atomic(folder / run.MODEL, model)
    elif progress.best is not None:
        check_network(folder / run.MODEL, session.transducer.network)
    run.cut_log(folder, progress)
    snapshots.cut(folder, progress.update)


def _best_model(session: Session) -> bytes:
    """The model file of a session that stands at its best validation."""
    with averaged(session.average):
        return network_file(session.transducer.network)


def _recorded(
    session: Session, lock: run.FolderLock, fingerprint: str, reads: Sequence[Read | Augmented]
) -> Iterator[RunEvent]:
    """The loop's events, with the run folder kept in step with them."""
    keeper = Keeper(session, lock, fingerprint)
    if not any(record["event"] == "read" for record in run.read_log(lock.folder)):
        run.append_log(lock.folder, *map(_read_record, reads))
    try:
        for event in fit(session):
            # Everything is on the disk before anybody hears of it: who stops listening now loses nothing.
            saved = keeper.keep(event)
            yield event
            yield from saved
    except GeneratorExit:
        # Nobody listens any more, between two events: the session is whole, and what it has reached is kept.
        keeper.save()
        raise


class Keeper:
    """Keeps a run folder in step with the events of its training."""

    def __init__(self, session: Session, lock: run.FolderLock, fingerprint: str) -> None:
        """Nothing is written yet."""
        self.session = session
        self.lock = lock
        self.folder = lock.folder
        self.fingerprint = fingerprint
        self.saved_at = time.monotonic()

    def keep(self, event: Event) -> list[Saved]:
        """Write what an event calls for: snapshot and log, the checkpoint, and the best model.

        The order is what makes a killed training resumable (`_mend`): what stands before the checkpoint is cut back to
        it, and what stands behind it can be written from it.
        """
        saved: list[Saved] = []
        record = _record(event)
        if record or isinstance(event, Stopped):
            self.lock.check()
        if isinstance(event, Validated) and self.session.config.training.snapshots:
            self._remember(event)
        if record:
            run.append_log(self.folder, record)
        if isinstance(event, Validated) or time.monotonic() - self.saved_at > SAVE_SECONDS:
            saved.append(self.save())
        if isinstance(event, Validated) and event.best:
            write_atomic(self.folder / run.MODEL, _best_model(self.session))
            saved.append(Saved(self.folder / run.MODEL, best=True))
        if isinstance(event, Stopped):
            _conclude(self.session, self.folder)
        return saved

    def _remember(self, event: Validated) -> None:
        """Write a snapshot, and thin out those before."""
        progress = event.progress
        with averaged(self.session.average):
            at = (progress.validations, progress.update)
            snapshots.take(self.folder, self.session.transducer, event.traces, at)
        snapshots.thin(self.folder, progress.validations)

    def save(self) -> Saved:
        """Write the checkpoint."""
        self.lock.check()
        save_session(self.folder / run.TRAINING, self.session, self.fingerprint)
        self.saved_at = time.monotonic()
        return Saved(self.folder / run.TRAINING, best=False)


def _conclude(session: Session, folder: Path) -> None:
    """Write what stands at the end of a run, if it does not stand there yet."""
    ended = run.has_stopped(run.read_log(folder))
    if not ended:
        run.append_log(folder, {"event": "stopped", **_counted(session.progress), "reason": session.progress.finished})
    if not file_exists(folder / run.CARD):
        write_text(folder / run.CARD, card(session, run.read_log(folder)))
    remove_file(folder / run.CORPUS)  # only going on needs it, and it may be larger than all the rest


def _record(event: Event) -> dict[str, Any] | None:
    """The log line of an event: none for most updates, whose losses are averaged instead, nor for the end."""
    counted = _counted(event.progress)
    match event:
        case Started():
            begun = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            return {"event": "started", **counted, "epochs": event.epochs, "updates": event.updates, "time": begun}
        case Stepped():
            if event.progress.update % LOSS_WINDOW:
                return None
            rates = {"learning_rate": event.learning_rate, "gradient_norm": event.gradient_norm}
            return {"event": "stepped", **counted, "loss": event.progress.training_loss, **rates}
        case Validated():
            loss = {"training_loss": event.progress.training_loss}
            number = {"validation": event.progress.validations}
            return {"event": "validated", **counted, **number, **event.metrics, **loss, "best": event.best}
        case Stopped():
            return None


def _counted(progress: Progress) -> dict[str, Any]:
    """Where training stands, as every log line tells it."""
    counted = {"update": progress.update, "samples": progress.samples, "epoch": progress.epoch}
    return {**counted, "seconds": round(progress.seconds, 3)}


def _read_record(read: Read | Augmented) -> dict[str, Any]:
    """The log line of a file that was read: every bad line stands in it. Or of pairs that were made up."""
    if isinstance(read, Augmented):
        return {"event": "augmented", "kind": read.kind, "examples": read.examples, "made": read.made}
    counted = {"examples": read.examples, "blank_lines": read.blank, "bad_lines": [str(line) for line in read.bad]}
    beside = {"target": str(read.target)} if read.target else {}
    return {"event": "read", "path": str(read.path), **beside, **counted}


def _fingerprint(told: tuple[Config, Vocabularies, Sequence[Example]], encoded: EncodedExamples) -> str:
    """A hash of the settings and of all that training and validation see: a resumed run must have the same."""
    digest = hashlib.sha256()
    for column in encoded:
        for start in range(0, len(column.values), BLOCK):
            digest.update(column.values[start : start + BLOCK].astype(np.int32).data)
        digest.update(column.offsets.data)
    digest.update(msgspec.json.encode(told))
    return digest.hexdigest()
