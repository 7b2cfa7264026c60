"""How a model came to be, as the page shows it: the log, and a frame of each validation.

n symbols.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pellucid.config import Config
from pellucid.data.vocabulary import load_vocabularies
from pellucid.files import is_there
from pellucid.inspection.plane import plane, turned
from pellucid.search.trace_schema import encode_array
from pellucid.tasks.registry import task_of
from pellucid.toml import load_config
from pellucid.training.run import CONFIG, MODEL, VOCABULARY, has_stopped, in_use, read_log
from pellucid.training.snapshots import SYMBOLS, Snapshot, read_snapshots
from pellucid.viewer.contents import Frame, Training
from pellucid.viewer.traces import trace_told

METRICS = ("exact_match", "symbol_error_rate", "symbol_accuracy", "loss", "training_loss")


def training(folder: Path) -> Training | None:
    """Of a run's folder; None where there is a model without a log."""
    running = in_use(folder)  # before the log is read: what ends meanwhile has told so there
    log = read_log(folder)
    if not (log or running) and is_there(folder / MODEL):
        return None
    config = load_config(folder / CONFIG)
    known = load_vocabularies(folder / VOCABULARY, config.data) if is_there(folder / VOCABULARY) else None
    return Training(
        log=log,
        frames=frames(read_snapshots(folder), log),
        source_symbols=list(known.source.symbols[:SYMBOLS]) if known else [],
        target_symbols=list(known.target.symbols[:SYMBOLS]) if known else [],
        done=has_stopped(log),
        running=running,
        unit=task_of(config).labels.loss_unit,
        caption=_caption(config),
    )


def _caption(config: Config) -> str:
    """What the two losses are, and what stands in the way of comparing them, where something does."""
    sides, smoothing = (config.encoder, config.decoder), config.training.label_smoothing
    dropped = any(each.dropout or each.embedding_dropout or each.recurrent_dropout for each in sides)
    harder = [*([f"label smoothing of {smoothing:g}"] if smoothing else []), *(["dropout"] if dropped else [])]
    what = f"Cross-entropy in nats {task_of(config).labels.loss_unit}, on a logarithmic axis"
    taken = f" The training loss is taken with {' and '.join(harder)}, the development loss without"
    apart = f"{taken}: the training loss may stand above it."
    told = f"{what}: of each update’s batch, and of the development data at each validation."
    return told + (apart if harder else "")


def best_update(course: Training | None) -> int | None:
    """The update of the best model so far; None where there is none, or where training is over."""
    if course is None or course.done:
        return None
    best = [record["update"] for record in course.log if record["event"] == "validated" and record["best"]]
    return best[-1] if best else None


def frames(snapshots: Sequence[Snapshot], log: Sequence[dict[str, Any]], base: int | None = None) -> list[Frame]:
    """A frame of each snapshot; all vectors lie in the plane of the last ones, each frame turned onto the one before.

    Turning (Procrustes) takes out what is the same for all symbols: a turn of the whole table says nothing of it. The
    plane is that of the last snapshot up to the update `base` where that is given.
    """
    at = max((place for place, each in enumerate(snapshots) if base is None or each.update <= base), default=-1)
    validated = {record["update"]: record for record in log if record["event"] == "validated"}
    source = _film([each.source for each in snapshots], at)
    target = _film([each.target for each in snapshots], at)
    found = []
    for place, each in enumerate(snapshots):
        record = validated.get(each.update, {})
        told = [trace_told(trace, bits) for trace, bits in zip(each.traces, each.entropies, strict=True)]
        found.append(
            Frame(
                update=each.update,
                samples=int(record.get("samples", 0)),
                metrics={name: float(record[name]) for name in METRICS if name in record},
                probes=told,
                source_plane=encode_array(source[place]) if source else None,
                target_plane=encode_array(target[place]) if target else None,
            )
        )
    return found


def _film(tables: Sequence[Float[np.ndarray, "n E"]], at: int) -> list[Float[np.ndarray, "n 2"]]:
    """The tables of all frames in the plane of one of them; nothing where vectors are none, or too few for a plane."""
    if not tables or min(tables[-1].shape) < 2:
        return []
    fitted = plane(tables[at])
    film: list[Float[np.ndarray, "n 2"]] = []
    for table in tables:
        points = fitted.project(table)
        film.append(turned(points, film[-1]) if film else points)
    return film
