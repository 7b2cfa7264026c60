"""Events of a training, from its log and while it runs."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from pellucid.config.settings import Config
from pellucid.data.vocabulary import load_vocabularies
from pellucid.decoding.trace_schema import encode_array, encode_json
from pellucid.files import is_there
from pellucid.inspection.state_space import plane, turned
from pellucid.tasks.registry import task_of
from pellucid.training.run_folder import LOG, MODEL, VOCABULARY, has_stopped, in_use, load_run_config, read_log
from pellucid.training.snapshots import SYMBOLS, Snapshot, read_snapshots
from pellucid.viewer.examples import page_trace
from pellucid.viewer.inputs import ViewedRun, model_card
from pellucid.viewer.schema import TrainingFrame, TrainingHistory

METRICS = ("exact_match", "symbol_error_rate", "symbol_accuracy", "loss", "training_loss")


def training_history(folder: Path) -> TrainingHistory | None:
    """Of a run's folder; None where there is a model without a log."""
    running = in_use(folder)  # before the log is read: what ends meanwhile has told so there
    log = read_log(folder)
    if not (log or running) and is_there(folder / MODEL):
        return None
    config = load_run_config(folder)
    known = load_vocabularies(folder / VOCABULARY, config.data) if is_there(folder / VOCABULARY) else None
    return TrainingHistory(
        log=log,
        frames=training_frames(read_snapshots(folder), log),
        source_symbols=list(known.source.symbols[:SYMBOLS]) if known else [],
        target_symbols=list(known.target.symbols[:SYMBOLS]) if known else [],
        finished=has_stopped(log),
        running=running,
        loss_unit=task_of(config).labels.loss_unit,
        loss_caption=_loss_caption(config),
    )


def _loss_caption(config: Config) -> str:
    """What the two losses are, and what stands in the way of comparing them, where something does."""
    sides, smoothing = (config.encoder, config.decoder), config.training.label_smoothing
    dropped = any(each.dropout or each.embedding_dropout or each.recurrent_dropout for each in sides)
    harder = [*([f"label smoothing of {smoothing:g}"] if smoothing else []), *(["dropout"] if dropped else [])]
    what = f"Cross-entropy in nats {task_of(config).labels.loss_unit}, on a logarithmic axis"
    taken = f" The training loss is taken with {' and '.join(harder)}, the development loss without"
    apart = f"{taken}: the training loss may stand above it."
    told = f"{what}: of each update’s batch, and of the development data at each validation."
    return told + (apart if harder else "")


def best_checkpoint_update(course: TrainingHistory | None) -> int | None:
    """The update of the best model so far; None where there is none, or where training is over."""
    if course is None or course.finished:
        return None
    best = [record["update"] for record in course.log if record["event"] == "validated" and record["best"]]
    return best[-1] if best else None


def training_frames(
    snapshots: Sequence[Snapshot], log: Sequence[dict[str, Any]], base: int | None = None
) -> list[TrainingFrame]:
    """A frame of each snapshot; all vectors lie in the plane of the last ones, each frame turned onto the one before.

    Turning (Procrustes) takes out what is the same for all symbols: a turn of the whole table says nothing of it. The
    plane is that of the last snapshot up to the update `base` where that is given.
    """
    at = max((place for place, each in enumerate(snapshots) if base is None or each.update <= base), default=-1)
    validated = {record["update"]: record for record in log if record["event"] == "validated"}
    source = _project_tables([each.source for each in snapshots], at)
    target = _project_tables([each.target for each in snapshots], at)
    found = []
    for place, each in enumerate(snapshots):
        record = validated.get(each.update, {})
        told = [page_trace(trace, bits) for trace, bits in zip(each.traces, each.entropies, strict=True)]
        found.append(
            TrainingFrame(
                update=each.update,
                samples=int(record.get("samples", 0)),
                metrics={name: float(record[name]) for name in METRICS if name in record},
                probes=told,
                source_pca=encode_array(source[place]) if source else None,
                target_pca=encode_array(target[place]) if target else None,
            )
        )
    return found


def _project_tables(tables: Sequence[Float[np.ndarray, "n E"]], at: int) -> list[Float[np.ndarray, "n 2"]]:
    """The tables of all frames in the plane of one of them; nothing where vectors are none, or too few for a plane."""
    if not tables or min(tables[-1].shape) < 2:
        return []
    fitted = plane(tables[at])
    film: list[Float[np.ndarray, "n 2"]] = []
    for table in tables:
        points = fitted.project(table)
        film.append(turned(points, film[-1]) if film else points)
    return film


POLL_SECONDS = 0.5
"""Between two looks at the log."""
KEEPALIVE_POLLS = 20
"""Looks without news after which a comment shows that the line is open."""


@dataclass
class LogCursor:
    """Where a page stands in a log: what comes before line `line` it has, and the frames of these lines."""

    model: ViewedRun
    line: int
    seen: tuple[int, int] = (-1, -1)
    """Size and time of the log when it was last read."""
    base: int | None = None
    """The update whose vectors made the plane in which the page has its frames: it keeps that."""
    ended: bool = False
    """Whether all that is to come has come."""
    running: bool | None = None
    """What the page was told of whether somebody trains."""

    def over(self) -> bool:
        """Whether the page has all, and training is over."""
        log = read_log(self.model.folder)
        return has_stopped(log) and self.line >= len(log)

    def news(self) -> list[bytes]:
        """The events since the last look; whether somebody trains comes last, and not after the end."""
        running = in_use(self.model.folder)  # before the log is read: what ends meanwhile has told so there
        told = self._lines()
        if running != self.running and not self.ended:
            told.append(_format_event("running", msgspec.json.encode(running)))
        self.running = running
        return told

    def _lines(self) -> list[bytes]:
        """New lines and frames."""
        path = self.model.folder / LOG
        state = path.stat() if path.exists() else None
        now = (state.st_size, state.st_mtime_ns) if state else (-1, -1)
        if now == self.seen:
            return []
        self.seen = now
        log = read_log(self.model.folder)
        told = [_format_event("line", msgspec.json.encode(record), at) for at, record in enumerate(log)][self.line :]
        if told:
            told.insert(0, _format_event("card", encode_json(model_card(self.model))))
        # A validation's snapshot is written before its line: whoever has the line can have the frame. Frames go first,
        # for the page stops listening at the line that ends the training.
        fresh = _validation_updates(log[self.line :])
        if fresh:
            if self.base is None:
                self.base = (_validation_updates(log[: self.line]) or fresh[:1])[-1]
            film = training_frames(read_snapshots(self.model.folder), log, self.base)
            told = [_format_event("frame", encode_json(frame)) for frame in film if frame.update in fresh] + told
        self.line = max(self.line, len(log))
        self.ended = has_stopped(log)
        return told


async def stream_events(cursor: LogCursor) -> AsyncIterator[bytes]:
    """The events, as they come, until training is over."""
    quiet = 0
    while True:
        told = await asyncio.to_thread(cursor.news)
        for event in told:
            yield event
        if cursor.ended:
            return
        quiet = 0 if told else quiet + 1
        if quiet == KEEPALIVE_POLLS:
            yield b": nothing new\n\n"
            quiet = 0
        await asyncio.sleep(POLL_SECONDS)


def _validation_updates(log: Sequence[dict[str, Any]]) -> list[int]:
    """The updates after which there was a validation."""
    return [record["update"] for record in log if record["event"] == "validated"]


def _format_event(name: str, data: bytes, number: int | None = None) -> bytes:
    """One event; JSON holds no line break."""
    identity = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (identity, name.encode(), data)
