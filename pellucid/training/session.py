"""From files to a training session, new or resumed, and from its events to a run folder."""

import hashlib
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pellucid.config import Config
from pellucid.data.batches import Encoded, encode
from pellucid.data.examples import BadLine, Example, Reading, read_examples
from pellucid.data.symbols import segmenters
from pellucid.data.vocabulary import Vocabularies, learn_vocabularies
from pellucid.errors import DataError
from pellucid.files import write_text
from pellucid.model.network import build_network, parameter_count
from pellucid.model.threads import use_threads
from pellucid.search.transducer import Transducer
from pellucid.training import run
from pellucid.training.card import card
from pellucid.training.checkpoint import restore_session, save_network, save_session
from pellucid.training.loop import Event, Session, Started, Stepped, Stopped, Validated, build_optimizer, fit

LOG_EVERY = 50
"""Updates a log record of the training loss covers."""
SAVE_SECONDS = 120.0
"""A checkpoint is written at every validation, and between two of them at least this often."""


class Files(NamedTuple):
    """Where the pairs are; the targets apart where source and target are two parallel files."""

    train: Path
    dev: Path
    train_target: Path | None = None
    dev_target: Path | None = None


class Read(NamedTuple):
    """A file was read."""

    path: Path
    examples: int
    bad: Sequence[BadLine]
    blank: int
    note: str
    """What a person should know of it; empty if nothing."""


class Built(NamedTuple):
    """The network is ready, new or brought back to where it stood."""

    folder: Path
    parameters: int
    vocabularies: Vocabularies
    resumed: bool


class Saved(NamedTuple):
    """A file of the run folder was written."""

    path: Path
    best: bool


RunEvent = Event | Read | Built | Saved


def train_run(files: Files, folder: Path, config: Config) -> Generator[RunEvent]:
    """Train from files into a run folder, or go on where its training stopped; a generator of events.

    Whoever closes the generator between two events stops the training: what it has reached is saved first. Errors:
    `DataError` for what cannot be read, `RunError` for a folder that is foreign, in use, or of another configuration.
    """
    if files.train_target and config.data.format == "auto":
        # Lines read at prediction are then whole sources, whatever stands in them.
        config = msgspec.structs.replace(config, data=msgspec.structs.replace(config.data, format="text"))
    use_threads(config.threads)
    with run.locked(folder):
        if run.has_run(folder):
            run.check_same_config(folder, config)
        training = read_examples(files.train, config.data, files.train_target)
        development = read_examples(files.dev, config.data, files.dev_target)
        note = _overlap(training.examples, development.examples, files)
        reads = [_read_event(files.train, training, ""), _read_event(files.dev, development, note)]
        yield from reads
        session, fingerprint, built = _open(folder, config, training.examples, development.examples)
        yield built
        if session.progress.finished:
            yield Stopped(session.progress)
        else:
            yield from _recorded(session, folder, fingerprint, reads)


def _open(
    folder: Path, config: Config, training: Sequence[Example], development: Sequence[Example]
) -> tuple[Session, str, Built]:
    """The session of a run: a new one, or the saved one of the same configuration and data."""
    cut = segmenters(config.data)
    vocabularies = learn_vocabularies(training, cut, config.data.minimum_count)
    encoded = encode(training, cut, vocabularies)
    fingerprint = _fingerprint(encoded, development)
    resumed = (folder / run.TRAINING).exists()
    if not resumed:
        run.begin(folder, config, vocabularies)
    network = build_network(config, vocabularies)
    transducer = Transducer(config, vocabularies, network)
    session = Session(transducer, build_optimizer(network, config.training), encoded, development)
    if resumed:
        restore_session(folder / run.TRAINING, session, fingerprint)
    return session, fingerprint, Built(folder, parameter_count(network), vocabularies, resumed)


def _recorded(session: Session, folder: Path, fingerprint: str, reads: Sequence[Read]) -> Iterator[RunEvent]:
    """The loop's events, with the run folder kept in step with them."""
    log = run.Log(folder, session.progress.update)
    if not session.progress.update:
        for read in reads:
            log.append(_read_record(read))
    losses: list[float] = []
    saved_at = time.monotonic()
    try:
        for event in fit(session):
            record = _record(event, losses)
            if record:
                log.append(record)
            yield event
            if isinstance(event, Validated) and event.best:
                save_network(folder / run.MODEL, session.transducer.network)
                yield Saved(folder / run.MODEL, best=True)
            if isinstance(event, Validated | Stopped) or time.monotonic() - saved_at > SAVE_SECONDS:
                save_session(folder / run.TRAINING, session, fingerprint)
                saved_at = time.monotonic()
                yield Saved(folder / run.TRAINING, best=False)
            if isinstance(event, Stopped):
                write_text(folder / run.CARD, card(session, run.read_log(folder)))
    except GeneratorExit:
        # Nobody listens any more, between two events: the session is whole, and what it has reached is worth keeping.
        save_session(folder / run.TRAINING, session, fingerprint)
        raise


def _record(event: Event, losses: list[float]) -> dict[str, Any] | None:
    """The log line of an event: none for most updates, whose losses are averaged instead."""
    progress = event.progress
    base = {
        "update": progress.update,
        "samples": progress.samples,
        "epoch": progress.epoch,
        "seconds": progress.seconds,
    }
    match event:
        case Started():
            return {"event": "started", **base, "epochs": event.epochs, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
        case Stepped():
            losses.append(event.loss)
            if len(losses) < LOG_EVERY:
                return None
            mean = sum(losses) / len(losses)
            losses.clear()
            rate, norm = event.learning_rate, event.gradient_norm
            return {"event": "stepped", **base, "loss": mean, "learning_rate": rate, "gradient_norm": norm}
        case Validated():
            return {"event": "validated", **base, **event.metrics, "best": event.best}
        case Stopped():
            return {"event": "stopped", **base, "reason": progress.finished}


def _read_event(path: Path, reading: Reading, note: str) -> Read:
    """What was read from a file."""
    return Read(path, len(reading.examples), reading.bad, reading.blank, note)


def _read_record(read: Read) -> dict[str, Any]:
    """The log line of a file that was read: every bad line stands in it."""
    counted = {"examples": read.examples, "blank_lines": read.blank, "bad_lines": [str(line) for line in read.bad]}
    return {"event": "read", "path": str(read.path), **counted}


def _overlap(training: Sequence[Example], development: Sequence[Example], files: Files) -> str:
    """Refuse development data that is the training data; say how much of it stands in both."""
    known = set(training)
    shared = sum(example in known for example in development)
    if shared == len(development) and len(set(development)) == len(known):
        raise DataError(
            f"{files.dev} holds the same examples as {files.train}: a model judged by what it was trained on "
            f"says nothing; give examples that are not in the training file"
        )
    return f"{shared:,} of {len(development):,} examples are also in {files.train}" if shared else ""


def _fingerprint(encoded: Encoded, development: Sequence[Example]) -> str:
    """A hash of all that training and validation see, so that a resumed run is known to see the same."""
    digest = hashlib.sha256()
    for column in encoded:
        digest.update(column.values.tobytes())
        digest.update(column.offsets.tobytes())
    digest.update(msgspec.json.encode(development))
    return digest.hexdigest()
