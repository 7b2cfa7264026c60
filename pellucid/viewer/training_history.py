"""Training history of a run, and its events while training continues."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from pellucid.config.settings import Config
from pellucid.decoding.trace_schema import encode_array, encode_json
from pellucid.errors import InputError, RunError
from pellucid.files import file_exists, wrap_os_errors
from pellucid.inspection.state_space import pca, procrustes
from pellucid.run_folder.lock import in_use
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.progress import LOSS_WINDOW
from pellucid.run_folder.run_files import LOG, MODEL, VOCABULARY, load_run_config, load_run_vocabularies
from pellucid.shapes import Float
from pellucid.tasks.registry import get_task
from pellucid.training.snapshots import MAX_SYMBOLS, TrainingSnapshot, read_snapshots
from pellucid.viewer.examples import page_trace
from pellucid.viewer.inputs import ViewedRun, model_card
from pellucid.viewer.schema import TrainingFrame, TrainingHistory

FRAME_METRICS = ("exact_match", "symbol_error_rate", "symbol_accuracy", "loss")
"""Keys of the validation metrics in the log that a frame shows."""


def training_history(model: ViewedRun) -> TrainingHistory | None:
    """Return the training history of a run for the page: its log, and a frame of each snapshot.

    Args:
        model: Run, not an ensemble.

    Returns:
        History; None for a model without a log that is not in training.

    Raises:
        RunError: The vocabularies or a snapshot is damaged.
        ConfigError: The configuration of the run is not valid.
    """
    folder, log, running = model.folder, model.log.records, model.running
    if not (log or running) and file_exists(folder / MODEL):
        return None
    config = load_run_config(folder)
    vocabularies = load_run_vocabularies(folder, config) if file_exists(folder / VOCABULARY) else None
    return TrainingHistory(
        log=log,
        frames=training_frames(read_snapshots(folder), log),
        source_symbols=list(vocabularies.source.symbols[:MAX_SYMBOLS]) if vocabularies else [],
        target_symbols=list(vocabularies.target.symbols[:MAX_SYMBOLS]) if vocabularies else [],
        finished=model.log.has_stopped,
        running=running,
        loss_unit=get_task(config.task).labels.loss_unit,
        loss_caption=_loss_caption(config),
    )


def _loss_caption(config: Config) -> str:
    """Return the definition of the two losses, and why they may differ."""
    sides, smoothing = (config.encoder, config.decoder), config.training.label_smoothing
    has_dropout = any(side.dropout or side.embedding_dropout or side.recurrent_dropout for side in sides)
    regularizers = [
        *([f"label smoothing of {smoothing:g}"] if smoothing else []),
        *(["dropout"] if has_dropout else []),
    ]
    definition = (
        f"Cross-entropy in nats {get_task(config.task).labels.loss_unit} on a logarithmic axis: training loss per "
        "batch, validation loss at each validation."
    )
    if not regularizers:
        return definition
    return f"{definition} Only the training loss includes {' and '.join(regularizers)}, so it may be higher."


def unfinished_best_update(history: TrainingHistory | None) -> int | None:
    """Return the update of the best validation so far of an unfinished training, which is that of the shown model.

    Args:
        history: Training history; None for a model without a log.

    Returns:
        Number of updates; None if there was no validation, training is finished, or there is no history.
    """
    if history is None or history.finished:
        return None
    best = [record["update"] for record in history.log if record["event"] == "validated" and record["best"]]
    return best[-1] if best else None


def training_frames(
    snapshots: Sequence[TrainingSnapshot], log: Sequence[dict[str, Any]], base_update: int | None = None
) -> list[TrainingFrame]:
    """Return a frame of each snapshot, with embeddings projected on the principal components of the last one.

    Each projection is aligned with the previous one (Procrustes), because a rotation of all embeddings has no meaning.

    Args:
        snapshots: Snapshots of a run in order.
        log: Records of its training log, for metrics and samples.
        base_update: Update up to which the last snapshot determines the principal components; None for the last of all.

    Returns:
        One frame per snapshot, in order; without projections if there are fewer than two symbols or columns.
    """
    base_index = max(
        (index for index, snapshot in enumerate(snapshots) if base_update is None or snapshot.update <= base_update),
        default=-1,
    )
    validated = {record["update"]: record for record in log if record["event"] == "validated"}
    source = _project_tables([snapshot.source for snapshot in snapshots], base_index)
    target = _project_tables([snapshot.target for snapshot in snapshots], base_index)
    training_losses = mean_training_losses(log)
    frames = []
    for index, snapshot in enumerate(snapshots):
        record = validated.get(snapshot.update, {})
        metrics = {name: float(record[name]) for name in FRAME_METRICS if name in record}
        if snapshot.update in training_losses:
            metrics["training_loss"] = training_losses[snapshot.update]
        probes = [page_trace(trace, bits) for trace, bits in zip(snapshot.traces, snapshot.entropies, strict=True)]
        frames.append(
            TrainingFrame(
                update=snapshot.update,
                samples=int(record.get("samples", 0)),
                metrics=metrics,
                probes=probes,
                source_pca=encode_array(source[index]) if source else None,
                target_pca=encode_array(target[index]) if target else None,
            )
        )
    return frames


def mean_training_losses(log: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Return the mean training loss of the updates since the previous validation, by the update of each validation.

    The log has the means of windows of `LOSS_WINDOW` updates, and at a validation that of the current window. A window
    that began before the previous validation counts with its updates after it.

    Args:
        log: Records of a training log, in order.
    """
    means, start, total, count = dict[int, float](), 0, 0.0, 0
    for record in log:
        if record["event"] == "stepped":
            updates = max(0, min(LOSS_WINDOW, record["update"] - start))
            total, count = total + updates * record["loss"], count + updates
        elif record["event"] == "validated":
            updates = min(record["update"] % LOSS_WINDOW, record["update"] - start)
            if updates and record.get("training_loss") is not None:
                total, count = total + updates * record["training_loss"], count + updates
            if count:
                means[record["update"]] = total / count
            start, total, count = record["update"], 0.0, 0
    return means


def _project_tables(tables: Sequence[Float[np.ndarray, "n E"]], base_index: int) -> list[Float[np.ndarray, "n 2"]]:
    """Return the projected embeddings of all frames; empty if there are no embeddings, or too few for a plane."""
    if not tables or min(tables[-1].shape) < 2:
        return []
    fitted = pca(tables[base_index])
    projected: list[Float[np.ndarray, "n 2"]] = []
    for table in tables:
        points = fitted.project(table)
        projected.append(procrustes(points, projected[-1]) if projected else points)
    return projected


POLL_SECONDS = 0.5
"""Interval between polls of the log."""
KEEPALIVE_POLLS = 20
"""Number of polls without events after which a comment keeps the connection alive."""


@dataclass
class LogCursor:
    """Position of a page in the log of a run in training, from which new events are read."""

    model: ViewedRun
    """Run whose log is read."""
    line: int
    """Number of records of the log that are already sent, with their frames."""
    has_stopped: bool = False
    """Whether the record of the end of the training was read; that of its confidence may follow."""
    last_stat: tuple[int, int] = (-1, -1)
    """Size and modification time of the log at the last poll."""
    base_update: int | None = None
    """Update whose principal components the frames of the page use; None until a frame is sent."""
    ended: bool = False
    """Whether the record of the end of the training was read and its process has ended: no record can follow."""
    running: bool | None = None
    """Whether a process was training at the last poll; None before the first."""

    def is_complete(self) -> bool:
        """Return whether training is finished, its process has ended, and all lines of its log are sent.

        Raises:
            RunError: The log cannot be read.
        """
        running = in_use(self.model.folder)  # read before the log, to which a process writes until its end
        log = load_run_log(self.model.folder)
        return log.has_stopped and not running and self.line >= len(log.records)

    def poll_events(self) -> list[bytes]:
        """Return the server-sent events since the last poll: frames, the model card, log lines, and a change of
        `running`.

        Raises:
            RunError: The log or a snapshot is damaged, or the run folder does not exist.
        """
        running = in_use(self.model.folder)  # read before the log, to which a process writes until its end
        events = self._lines(running)
        if running != self.running:
            events.append(format_event("running", msgspec.json.encode(running)))
        self.running = running
        self.ended = self.has_stopped and not running
        return events

    def _lines(self, running: bool) -> list[bytes]:
        """Return new log lines and frames as events."""
        path = self.model.folder / LOG
        with wrap_os_errors("read", path):
            state = path.stat() if path.exists() else None
        if state is None and not self.model.folder.is_dir():
            raise RunError(f"{self.model.folder} was removed or renamed: open the page of the new folder")
        now = (state.st_size, state.st_mtime_ns) if state else (-1, -1)
        if now == self.last_stat:
            return []
        self.last_stat = now
        run_log = load_run_log(self.model.folder)
        self.model.check_same_training(run_log)
        log = run_log.records
        events = [
            format_event("line", msgspec.json.encode(record), index)
            for index, record in enumerate(log[self.line :], self.line)
        ]
        if events:
            model = replace(self.model, log=run_log, running=running)
            events.insert(0, format_event("card", encode_json(model_card(model))))
        # A snapshot is written before the log line of its validation, so its frame is available.
        new_updates = _validation_updates(log[self.line :])
        if new_updates:
            if self.base_update is None:
                self.base_update = (_validation_updates(log[: self.line]) or new_updates[:1])[-1]
            frames = training_frames(read_snapshots(self.model.folder), log, self.base_update)
            events = [
                format_event("frame", encode_json(frame)) for frame in frames if frame.update in new_updates
            ] + events
        self.line = max(self.line, len(log))
        self.has_stopped = run_log.has_stopped
        return events


async def stream_events(cursor: LogCursor) -> AsyncIterator[bytes]:
    """Poll the log of a run every `POLL_SECONDS` seconds, and yield its new events until its process has ended.

    Args:
        cursor: Position of the page in the log, which is advanced.

    Yields:
        Server-sent events as bytes; a comment after `KEEPALIVE_POLLS` polls without an event. If the log or a snapshot
        is damaged, the last event is "failed", with the message.
    """
    num_quiet_polls = 0
    while True:
        try:
            events = await asyncio.to_thread(cursor.poll_events)
        except InputError as error:  # the response has begun, so the error is an event too
            yield format_event("failed", msgspec.json.encode(str(error)))
            return
        for event in events:
            yield event
        if cursor.ended:
            return
        num_quiet_polls = 0 if events else num_quiet_polls + 1
        if num_quiet_polls == KEEPALIVE_POLLS:
            yield b": nothing new\n\n"
            num_quiet_polls = 0
        await asyncio.sleep(POLL_SECONDS)


def _validation_updates(log: Sequence[dict[str, Any]]) -> list[int]:
    """Return the updates with a validation."""
    return [record["update"] for record in log if record["event"] == "validated"]


def format_event(name: str, data: bytes, number: int | None = None) -> bytes:
    """Format a server-sent event.

    Args:
        name: Name of the event.
        data: Its data as JSON, which contains no line break.
        number: Number of the line of the log, from which a browser continues; None for other events.
    """
    identity = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (identity, name.encode(), data)
