"""Schedule of a training: when it validates, when its last part begins, and when it ends.

The functions take the progress beside the training state, because callers also pass a progress other than the state's:
the one after a validation, or the one in a checkpoint that is not restored yet (`progress_check`).
"""

import math
from typing import NamedTuple

from pellucid.config.settings import MetricName, TrainingConfig
from pellucid.config.training_types import best_signed_value
from pellucid.errors import count_noun
from pellucid.run_folder.progress import Progress, StopCause
from pellucid.training.training_length import EPOCH_TOLERANCE
from pellucid.training.training_state import TrainingState
from pellucid.training.validation_sample import MAX_CONFIDENCE_PAIRS, MAX_WEIGHTING_SOURCES

ACCURACY_METRICS = ("exact_match", "symbol_error_rate", "symbol_accuracy")
"""Metrics that count correct outputs or symbols."""
LAST_PART_START = 0.8
"""Fraction of the training length at which the last part of a training begins."""
MIN_SELECTION_EXAMPLES = 400
"""Number of validation examples from which the best of all validations decides."""
VALIDATION_TOLERANCE = 1e-9
"""Number of intervals by which a validation may be early, for the rounding of the number of epochs."""
FRACTION_TOLERANCE = 1e-9
"""Fraction of the training length by which its last part may begin early, for the rounding of fractions."""
PLATEAU_PATIENCE = 3
"""Validations without improvement after which the plateau schedule reduces the learning rate."""
PLATEAU_FACTOR = 0.5
INITIAL_RESERVE = 0.1
"""Fraction of a time limit that is reserved for the end of the training before a validation has been timed."""
MAX_RESERVE = 0.5
"""Maximum fraction of a time limit that is reserved for the end of the training."""
RESERVED_VALIDATIONS = 1.5
"""Time that is kept for the last validation, as a multiple of the time of the validation before it."""
RESERVED_WEIGHTING = 3.0
"""Time that is kept to weight the pair n-gram model, as a multiple of the time of a greedy validation of the same
sources."""
RESERVED_CONFIDENCE = 3.0
"""Time that is kept to fit the confidence, as a multiple of the time of a greedy validation of the same sources."""


def epochs_done(progress: Progress, num_batches: int) -> float:
    """Return the number of passes over the training data so far, which may be a fraction.

    Args:
        progress: Progress of the training.
        num_batches: Number of batches in the current epoch.
    """
    return progress.epoch + progress.batch / num_batches


def time_fraction(state: TrainingState, progress: Progress) -> float:
    """Return the fraction of the time limit that has passed; 0 without a limit, 1 or more when the training must end.

    After t seconds of a limit of L it is t / (L - r). The reserve r is the estimated time of the last validation, the
    weight of the pair n-gram model and the confidence (`_seconds_for_training`).

    Args:
        state: Training state, for its settings.
        progress: Progress of the training, which may differ from that of the state.
    """
    return (progress.seconds + progress.overhead_seconds) / _seconds_for_training(state, progress)


def schedule_time_fraction(state: TrainingState, progress: Progress) -> float:
    """Return the fraction that has passed of the time from the first update to the time limit; 0 without a limit.

    If the first update began after p seconds, it is (t - p) / (L - r - p), with the symbols of `time_fraction`. The
    learning rate follows it, so that the time before the first update does not shorten the warmup.

    Args:
        state: Training state, for its settings.
        progress: Progress of the training, which may differ from that of the state.
    """
    seconds = _seconds_for_training(state, progress) - progress.preparation_seconds
    passed = progress.seconds + progress.overhead_seconds - progress.preparation_seconds
    return passed / seconds if seconds > 0 else 1.0


def _seconds_for_training(state: TrainingState, progress: Progress) -> float:
    """Return L - r, the time limit without the reserve for what follows the updates; infinite without a limit.

    The reserve is a multiple of the time of the last validation, and at most `MAX_RESERVE` of the limit.
    """
    limit = state.time_limit
    if math.isinf(limit):
        return limit
    num_sources = max(1, len(state.validation_examples))
    reserve_factor = RESERVED_VALIDATIONS + RESERVED_CONFIDENCE * min(1.0, MAX_CONFIDENCE_PAIRS / num_sources)
    if state.has_pair_ngram:
        reserve_factor += RESERVED_WEIGHTING * min(1.0, MAX_WEIGHTING_SOURCES / num_sources)
    reserve = reserve_factor * progress.validation_seconds if progress.validations else INITIAL_RESERVE * limit
    return limit - min(reserve, MAX_RESERVE * limit)


def is_out_of_epochs(state: TrainingState, progress: Progress, num_batches: int) -> bool:
    """Return whether the maximum number of epochs is reached; never before the first update.

    Args:
        state: Training state, for its maximum number of epochs.
        progress: Progress of the training, which may differ from that of the state.
        num_batches: Number of batches in the current epoch.
    """
    return progress.update > 0 and epochs_done(progress, num_batches) >= state.max_epochs - EPOCH_TOLERANCE


def is_out_of_time(state: TrainingState, progress: Progress) -> bool:
    """Return whether the time limit is reached; never before the first update.

    Args:
        state: Training state, for its time limit.
        progress: Progress of the training, which may differ from that of the state.
    """
    return progress.update > 0 and time_fraction(state, progress) >= 1


def validations_due(state: TrainingState, progress: Progress, num_batches: int) -> int:
    """Return the number of validations due so far, those done included. At the end of the training one more is due.

    A fine-tuning validates its initial parameters too, before the first update, so that the best model is never worse
    than the initial run on the validation set.

    Args:
        state: Training state, for its settings.
        progress: Progress of the training, which may differ from that of the state.
        num_batches: Number of batches in the current epoch.
    """
    first, interval = int(bool(state.config.training.init_from)), state.eval_interval(progress)
    num_due = first + math.floor(epochs_done(progress, num_batches) / interval + VALIDATION_TOLERANCE)
    if is_out_of_epochs(state, progress, num_batches):
        total = first + math.ceil(state.max_epochs / interval - VALIDATION_TOLERANCE)
        return max(total, progress.validations + 1)
    return max(num_due, progress.validations + 1) if is_out_of_time(state, progress) else num_due


def selects_from_last_part(state: TrainingState) -> bool:
    """Return whether a training saves the best parameters of its last part, and not of all validations.

    On a small validation set, the best of all validations is often an early one that is best by chance
    (docs/ablations.md). So this holds with fewer than `MIN_SELECTION_EXAMPLES` validation examples, unless another
    schedule than the cosine, patience, an initial run, or another metric than correct outputs or symbols is given.

    Args:
        state: Training state, for its settings and its validation set.
    """
    training = state.config.training
    return (
        len(state.validation_examples) < MIN_SELECTION_EXAMPLES
        and training.lr_schedule == "cosine"
        and not training.patience
        and not training.init_from
        and training.metric in ACCURACY_METRICS
    )


def starts_last_part(state: TrainingState, progress: Progress, num_batches: int) -> bool:
    """Return whether a validation is the first one of the last part, from which on earlier validations do not count.

    The last part begins after `LAST_PART_START` of the training length, in epochs or in time, where the learning rate
    is near zero. If all outputs were correct before, no part begins: earlier validations count.

    Args:
        state: Training state, for its settings, its maximum number of epochs and its time limit.
        progress: Progress of the training before the validation.
        num_batches: Number of batches in the current epoch.
    """
    if progress.in_last_part or progress.best_validation_score is None or not selects_from_last_part(state):
        return False
    epoch_fraction = epochs_done(progress, num_batches) / state.max_epochs
    is_last_part = max(epoch_fraction, schedule_time_fraction(state, progress)) >= LAST_PART_START - FRACTION_TOLERANCE
    return is_last_part and not _is_perfect(progress.best_validation_score, state.config.training.metric)


def reduces_learning_rate(config: TrainingConfig, validations_since_best: int) -> bool:
    """Return whether the plateau schedule reduces the learning rate at this validation: at every `PLATEAU_PATIENCE`-th
    validation without improvement; never in other schedules.

    Args:
        config: Training settings.
        validations_since_best: Number of validations since the best one, this one included; 0 if this is the best.
    """
    return (
        config.lr_schedule == "plateau"
        and validations_since_best > 0
        and validations_since_best % PLATEAU_PATIENCE == 0
    )


def is_halfway(state: TrainingState, progress: Progress, num_batches: int) -> bool:
    """Return whether half of the maximum training length, in epochs or in time, is reached.

    Args:
        state: Training state, for its maximum number of epochs and its time limit.
        progress: Progress of the training, which may differ from that of the state.
        num_batches: Number of batches in the current epoch.
    """
    return (
        epochs_done(progress, num_batches) >= state.max_epochs / 2 - EPOCH_TOLERANCE
        or schedule_time_fraction(state, progress) >= 0.5
    )


class ValidationOutcome(NamedTuple):
    """Facts at a validation that decide whether the training ends."""

    best_validation_score: tuple[float, float, float] | None
    """Score of the best validation so far (`validation_score`); None before the first one."""
    validations_since_best: int
    """Number of validations since the best one."""
    eval_interval: float
    """Number of epochs between validations."""
    is_halfway: bool
    """Whether half of the maximum training length is reached."""
    is_out_of_epochs: bool
    """Whether the maximum number of epochs is reached."""
    is_out_of_time: bool = False
    """Whether the time limit is reached."""


def stop_cause(config: TrainingConfig, outcome: ValidationOutcome) -> StopCause:
    """Return the cause that ends the training at a validation; empty if it continues.

    Args:
        config: Training settings; patience 0 and perfect_patience 0 turn early stopping off.
        outcome: Best validation, validations since then and their interval, and the training length.
    """
    num_validations = outcome.validations_since_best
    if config.patience and num_validations >= config.patience:
        return "patience"
    if outcome.is_out_of_epochs:
        return "epochs"
    if outcome.is_out_of_time:
        return "time_limit"
    # `perfect_patience` counts validations, and at least as many epochs.
    num_epochs = num_validations * outcome.eval_interval + EPOCH_TOLERANCE
    is_patience_over = config.perfect_patience > 0 and min(num_validations, num_epochs) >= config.perfect_patience
    # A small validation set may be all correct by chance while the learning rate is high: hence the minimum length.
    if (
        is_patience_over
        and outcome.is_halfway
        and outcome.best_validation_score is not None
        and _is_perfect(outcome.best_validation_score, config.metric)
    ):
        return "perfect"
    return ""


def stop_reason(progress: Progress, config: TrainingConfig) -> str:
    """Return the reason of the end of a training, as a clause for messages; empty if it has not ended.

    Args:
        progress: Progress of the training.
        config: Training settings.
    """
    validations = count_noun(progress.validations_since_best, "validation")
    reasons: dict[StopCause, str] = {
        "": "",
        "epochs": "the maximum number of epochs is reached",
        "patience": f"{config.metric} did not improve in {validations}",
        "perfect": f"{config.metric} is perfect, and the loss did not improve in {validations}",
        "time_limit": f"its time limit of {config.time_limit} is reached",
    }
    return reasons[progress.stop_cause]


def _is_perfect(score: tuple[float, float, float], metric: MetricName) -> bool:
    """Return whether a validation has the best possible value of the metric; the loss has none."""
    return score[0] >= best_signed_value(metric)
