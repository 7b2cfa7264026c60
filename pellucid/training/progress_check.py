"""Validation of the progress in a checkpoint against the settings and the data."""

import math
from collections.abc import Iterator

import msgspec

from pellucid.config.settings import MetricName
from pellucid.config.training_types import is_custom_metric
from pellucid.errors import quote
from pellucid.run_folder.progress import Progress
from pellucid.training.schedule import (
    PLATEAU_FACTOR,
    PLATEAU_PATIENCE,
    ValidationOutcome,
    is_halfway,
    is_out_of_epochs,
    selects_from_last_part,
    stop_cause,
    validations_due,
)
from pellucid.training.training_length import EPOCH_TOLERANCE, has_equal_epochs
from pellucid.training.training_state import TrainingState

SCORE_TOLERANCE = 1e-9
"""Amount by which the first number of a score may exceed its maximum, for the rounding of rates."""


def check_progress(state: TrainingState, progress: Progress) -> None:
    """Check that a training with these settings and data can have the progress of a checkpoint.

    Args:
        state: Training state with its settings and data; its own progress is not read.
        progress: Progress in the checkpoint.

    Raises:
        ValueError: Numbers contradict each other, the settings or the data. The message names the first wrong field,
            the expected and the actual value. `seconds` and `loss_sum` are not checked.
    """
    for name, expected in _errors(state, progress):
        raise ValueError(f"progress.{name}: expected {expected}, got {quote(getattr(progress, name))}")


def _errors(state: TrainingState, progress: Progress) -> Iterator[tuple[str, str]]:
    """Yield each impossible field and what was expected, assuming that the fields before it are right."""
    if progress.expected_epochs and math.isinf(state.time_limit):
        yield "expected_epochs", "0 without a time limit"
    yield from _position_errors(state, progress)
    yield from _validation_errors(state, progress)


def _position_errors(state: TrainingState, progress: Progress) -> Iterator[tuple[str, str]]:
    """Check the fields of the position: a training that has started has at least one update."""
    started, examples = progress.update > 0, state.examples_per_epoch
    last_epoch = max(0, math.ceil(state.max_epochs - EPOCH_TOLERANCE) - 1) if started else 0
    if progress.epoch > last_epoch:
        yield "epoch", f"at most {last_epoch}"
        return
    plan = state.plan_batches(progress.epoch)
    minimum, maximum = (1, len(plan)) if started else (0, 0)
    if not minimum <= progress.batch <= maximum:
        yield "batch", f"a number from {minimum} to {maximum}"
        return
    if started and is_out_of_epochs(state, _before_last_update(progress), len(plan)):
        yield "batch", "a number within training.epochs"
    # With batches by tokens, epochs differ in their number of batches; each batch has at least one example.
    per_epoch = (len(plan), len(plan)) if has_equal_epochs(state.config.training) else (1, examples)
    minimum, maximum = (progress.epoch * count + progress.batch for count in per_epoch)
    if not minimum <= progress.update <= maximum:
        yield "update", str(minimum) if minimum == maximum else f"a number from {minimum} to {maximum}"
    samples = progress.epoch * examples + sum(map(len, plan[: progress.batch]))
    if progress.samples != samples:
        yield "samples", str(samples)


def _validation_errors(state: TrainingState, progress: Progress) -> Iterator[tuple[str, str]]:
    """Check the fields of validations; a checkpoint may be just before or after the validation that is due."""
    config, batches = state.config.training, len(state.plan_batches(progress.epoch))
    num_before = validations_due(state, _before_last_update(progress), batches) if progress.update else 0
    num_due = validations_due(state, msgspec.structs.replace(progress, validations=num_before), batches)
    # A validation at the end of the time limit may follow one at the same update, before which the time was not over.
    num_last = num_due + (not math.isinf(state.time_limit) and progress.is_finished)
    if progress.validations not in (num_before, num_due, num_last):
        yield "validations", str(num_due) if num_before == num_due else f"{num_before} or {num_due}"
    validated = num_before < progress.validations
    if (progress.best_validation_score is None) != (progress.validations == 0):
        yield (
            "best_validation_score",
            "null before the first validation"
            if progress.best_validation_score
            else "three numbers after a validation",
        )
    if progress.best_validation_score is not None and not _is_possible_score(
        progress.best_validation_score, config.metric
    ):
        yield (
            "best_validation_score",
            "a possible value of training.metric, of the negative symbol error rate and of the negative loss",
        )
    maximum = max(0, progress.validations - 1)
    if progress.validations_since_best > maximum:
        yield "validations_since_best", f"at most {maximum}"
    if validated and progress.validations_since_best == 0:
        minimum, maximum = progress.update, progress.update
    else:
        is_repeated = progress.validations > num_due
        maximum = progress.update - (not is_repeated) if progress.validations else 0
        minimum = int(progress.validations > 0 and not config.init_from)
    if not minimum <= progress.best_update <= maximum:
        yield "best_update", str(minimum) if minimum == maximum else f"a number from {minimum} to {maximum}"
    yield from _count_errors(state, progress)
    halfway = validated and is_halfway(state, progress, batches)  # no training ends between two validations
    out_of_epochs = validated and is_out_of_epochs(state, progress, batches)
    outcomes = [
        ValidationOutcome(
            progress.best_validation_score,
            progress.validations_since_best,
            state.eval_interval(progress),
            halfway,
            out_of_epochs,
        )
    ]
    # With a time limit, a training may have ended or not, and may have been before its half: time passes between a
    # validation and the checkpoint, and a faster validation than the one before it moves the limit away.
    if validated and not math.isinf(state.time_limit):
        outcomes += [
            outcomes[0]._replace(is_halfway=is_half, is_out_of_time=is_over)
            for is_half in {halfway, False}
            for is_over in (False, True)
        ]
    causes = [stop_cause(config, outcome) for outcome in outcomes]
    if progress.stop_cause not in causes:
        yield "stop_cause", " or ".join(map(quote, dict.fromkeys(causes)))


def _count_errors(state: TrainingState, progress: Progress) -> Iterator[tuple[str, str]]:
    """Check the fields that the number of validations and the settings bound."""
    if progress.in_last_part and not (progress.validations and selects_from_last_part(state)):
        yield "in_last_part", "false"
    lowerings = progress.validations // PLATEAU_PATIENCE if state.config.training.lr_schedule == "plateau" else 0
    if progress.plateau_factor not in {PLATEAU_FACTOR**power for power in range(min(lowerings, 1100) + 1)}:
        yield "plateau_factor", f"{PLATEAU_FACTOR} to a power from 0 to {lowerings}"


def _is_possible_score(score: tuple[float, float, float], metric: MetricName) -> bool:
    """Return whether a validation can have this score (`validation_score`): rates in percent, errors and loss negated.

    Metrics of other packages have any value.
    """
    if is_custom_metric(metric):
        return max(score[1:]) <= 0
    lowest, highest = (-math.inf, 0.0) if metric in ("symbol_error_rate", "loss") else (0.0, 100.0)
    return lowest <= score[0] <= highest + SCORE_TOLERANCE and max(score[1:]) <= 0


def _before_last_update(progress: Progress) -> Progress:
    """Return the progress before the last update, when the time limit was not reached."""
    return msgspec.structs.replace(
        progress, batch=progress.batch - 1, update=progress.update - 1, seconds=0.0, overhead_seconds=0.0
    )
