"""Validation of the progress in a checkpoint against the settings and the data."""

import math
from collections.abc import Iterator

import msgspec

from pellucid.errors import quote
from pellucid.training.loop import (
    PLATEAU_FACTOR,
    PLATEAU_PATIENCE,
    Progress,
    TrainingState,
    ending,
    is_over,
    validations_due,
)


def check_progress(session: TrainingState, progress: Progress) -> None:
    """Check that the progress of a checkpoint is consistent.

    Args:
        session: Training state with its settings and data.
        progress: Progress in the checkpoint.

    Raises:
        ValueError: Numbers contradict each other, the settings or the data. The message names the first wrong field,
            the expected and the actual value.
    """
    for name, expected in _faults(session, progress):
        raise ValueError(f"progress.{name}: expected {expected}, got {quote(getattr(progress, name))}")


def _faults(session: TrainingState, progress: Progress) -> Iterator[tuple[str, str]]:
    """Yield each impossible field and what was expected, assuming that the fields before it are right."""
    yield from _faulty_position(session, progress)
    yield from _faulty_validations(session, progress)


def _faulty_position(session: TrainingState, progress: Progress) -> Iterator[tuple[str, str]]:
    """Check the fields of the position: a training that has started has at least one update."""
    begun, examples = progress.update > 0, session.training.source.num_sequences
    last = max(0, math.ceil(session.epochs - 1e-9) - 1) if begun else 0
    if progress.epoch > last:
        yield "epoch", f"at most {last}"
        return
    plan = session.plan(progress.epoch)
    fewest, most = (1, len(plan)) if begun else (0, 0)
    if not fewest <= progress.batch <= most:
        yield "batch", f"a number from {fewest} to {most}"
        return
    if begun and is_over(session, _before(progress), len(plan)):
        yield "batch", "a number within training.epochs"
    # By tokens each epoch may have another number of batches, with one example at least in each.
    each = (len(plan), len(plan)) if session.config.training.batch_type == "examples" else (1, examples)
    fewest, most = (progress.epoch * count + progress.batch for count in each)
    if not fewest <= progress.update <= most:
        yield "update", str(fewest) if fewest == most else f"a number from {fewest} to {most}"
    samples = progress.epoch * examples + sum(map(len, plan[: progress.batch]))
    if progress.samples != samples:
        yield "samples", str(samples)


def _faulty_validations(session: TrainingState, progress: Progress) -> Iterator[tuple[str, str]]:
    """Check the fields of validations; a checkpoint may be just before or after the validation that is due."""
    config, batches = session.config.training, len(session.plan(progress.epoch))
    before = validations_due(session, _before(progress), batches) if progress.update else 0
    due = validations_due(session, msgspec.structs.replace(progress, validations=before), batches)
    if progress.validations not in (before, due):
        yield "validations", str(due) if before == due else f"{before} or {due}"
    validated = before < due == progress.validations
    if (progress.best is None) != (progress.validations == 0):
        yield "best", "null before the first validation" if progress.best else "three numbers after a validation"
    most = max(0, progress.validations - 1)
    if progress.stale > most:
        yield "stale", f"at most {most}"
    if validated and progress.stale == 0:
        least, most = progress.update, progress.update
    else:
        least, most = int(progress.validations > 0), progress.update - 1 if progress.validations else 0
    if not least <= progress.best_update <= most:
        yield "best_update", str(least) if least == most else f"a number from {least} to {most}"
    lowerings = progress.validations // PLATEAU_PATIENCE if config.lr_schedule == "plateau" else 0
    if progress.plateau_factor not in {PLATEAU_FACTOR**power for power in range(min(lowerings, 1100) + 1)}:
        yield "plateau_factor", f"{PLATEAU_FACTOR} to a power from 0 to {lowerings}"
    reason = ending(config, progress.stale, validated and is_over(session, progress, batches))
    if progress.finished != reason:
        yield "finished", quote(reason)


def _before(progress: Progress) -> Progress:
    """Return the progress before the last update."""
    return msgspec.structs.replace(progress, batch=progress.batch - 1, update=progress.update - 1)
