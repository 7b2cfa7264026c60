"""The training loop: a generator of events.

Progress bar, log, checkpoints and snapshots consume its events. After every event the training state is consistent: it
can be saved and resumed bit for bit.
"""

import math
import time
from collections.abc import Generator
from contextlib import closing

import msgspec
import numpy as np
import torch

from pellucid.config.extension_errors import not_finite_note
from pellucid.config.settings import MetricName
from pellucid.config.training_types import is_custom_metric, metric_sign
from pellucid.data.batch_loaders import LoadedBatch
from pellucid.data.batches import Batch, collate
from pellucid.data.vocabulary import PAD
from pellucid.decoding.trace import Trace
from pellucid.errors import ConfigError, DivergenceError, NotFiniteError, quote
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.custom_metrics import compute_metric, evaluated_examples
from pellucid.evaluation.metrics import evaluate_examples, metrics_for_log
from pellucid.run_folder.progress import LOSS_WINDOW, Progress
from pellucid.tasks.registry import get_task
from pellucid.training.events import Event, TrainingStarted, TrainingStopped, UpdateCompleted, ValidationCompleted
from pellucid.training.optimizer import averaged_weights, scheduled_learning_rate
from pellucid.training.parameter_updates import compare_parameters, update_random_numbers
from pellucid.training.schedule import (
    PLATEAU_FACTOR,
    ValidationOutcome,
    epochs_done,
    is_halfway,
    is_out_of_epochs,
    is_out_of_time,
    reduces_learning_rate,
    schedule_time_fraction,
    starts_last_part,
    stop_cause,
    stop_reason,
    validations_due,
)
from pellucid.training.scheduled_sampling import scheduled_sampling_probability
from pellucid.training.training_length import has_equal_epochs, max_updates
from pellucid.training.training_state import TrainingState
from pellucid.training.worker_group import UpdateRequest


def fit(state: TrainingState) -> Generator[Event]:
    """Train from the current state until the maximum number of epochs, the time limit or early stopping.

    No file is written.

    At every event the state is consistent and may be saved. Closing the generator stops the training.

    Args:
        state: Training state, which is changed.

    Yields:
        `TrainingStarted`, then `UpdateCompleted` and `ValidationCompleted`, and last `TrainingStopped`.

    Raises:
        DivergenceError: The training loss, a gradient, the validation loss or an output for the validation set is not
            finite.
    """
    plan = state.plan_batches(state.progress.epoch)
    num_batches = len(plan)
    seconds_left = state.time_limit - state.progress.overhead_seconds - state.progress.seconds
    yield TrainingStarted(
        state.progress,
        state.max_epochs,
        max_updates(state.max_epochs, float(num_batches)),
        None if math.isinf(seconds_left) else max(0.0, seconds_left),
        has_equal_epochs=has_equal_epochs(state.config.training),
    )
    with closing(state.batch_loader(plan)) as loader:
        while not state.progress.is_finished:
            num_due = validations_due(state, state.progress, num_batches)
            if state.progress.validations < num_due:
                yield _validate(state, num_due, num_batches)
                continue
            if state.progress.batch == num_batches:
                state.progress = msgspec.structs.replace(state.progress, epoch=state.progress.epoch + 1, batch=0)
            start_time, loaded = time.perf_counter(), next(loader)
            num_batches = loaded.num_batches
            yield _train_step(state, loaded, start_time)
    yield TrainingStopped(state.progress, stop_reason(state.progress, state.config.training))


def validation_score(metrics: dict[str, float], metric: MetricName) -> tuple[float, float, float]:
    """Return a tuple by which validations are compared; the greater one is better.

    It holds the selected metric, the symbol error rate and the loss; error rates and losses are negated. The second and
    third number decide ties.

    Args:
        metrics: Metrics of the validation, by their keys in the log.
        metric: Metric that selects the best model.
    """
    return metric_sign(metric) * metrics[metric], -metrics["symbol_error_rate"], -metrics["loss"]


def _train_step(state: TrainingState, loaded: LoadedBatch, start_time: float) -> UpdateCompleted:
    """Do one update (forward, backward, clip, step), and return its event."""
    progress, config, num_batches = state.progress, state.config.training, loaded.num_batches
    epoch_fraction = (epochs_done(progress, num_batches) + 0.5 / num_batches) / state.max_epochs
    progress_fraction = min(1.0, max(epoch_fraction, schedule_time_fraction(state, progress)))
    rate = scheduled_learning_rate(config, progress_fraction, progress.plateau_factor)
    with update_random_numbers(state.config.seed, progress.update, 0, state.gradient_computer.device):
        loss, norm = _update_parameters(
            state, loaded.batch, rate, scheduled_sampling_probability(config, progress_fraction)
        )
    state.progress = msgspec.structs.replace(
        progress,
        loss_sum=loss + (progress.loss_sum if progress.update % LOSS_WINDOW else 0.0),
        batch=progress.batch + 1,
        update=progress.update + 1,
        samples=progress.samples + len(loaded.batch.source),
        seconds=progress.seconds + time.perf_counter() - start_time,
    )
    return UpdateCompleted(state.progress, progress_fraction, loss, rate, norm)


def _update_parameters(
    state: TrainingState, batch: Batch, learning_rate: float, sampling_probability: float
) -> tuple[float, float]:
    """Update the parameters by one batch; return the loss, and the gradient norm before clipping."""
    network = state.predictor.network
    if not network.training:  # train() visits all modules, and only a validation changes their mode
        network.train()
    request = UpdateRequest(state.progress.update, learning_rate, sampling_probability)
    loss, norm = state.updater.update(batch, request)
    if not math.isfinite(norm):
        raise divergence_error(state, "the gradient is not finite")
    if not math.isfinite(loss):
        raise divergence_error(state, "the loss is not finite")
    if state.average is not None:
        state.average.after_update()
    return loss, norm


def _validate(state: TrainingState, num_due: int, num_batches: int) -> ValidationCompleted:
    """Decode the validation set greedily, evaluate it, update the progress, and return the event."""
    start_time = time.perf_counter()
    if state.workers is not None:
        compare_parameters(state.predictor.network, state.workers)
    if state.average is not None:
        state.average.record_validation()
    metrics, traces = _validation_metrics(state)
    seconds = time.perf_counter() - start_time
    state.progress = _progress_after_validation(state, metrics, seconds, num_due, num_batches)
    is_best = state.progress.validations_since_best == 0
    epochs = epochs_done(state.progress, num_batches)
    return ValidationCompleted(state.progress, metrics, is_best, traces, state.config.task, epochs)


def _validation_metrics(state: TrainingState) -> tuple[dict[str, float], list[Trace]]:
    """Return the metrics of the validation set by their keys in the log, with the loss, and the greedy outputs."""
    config = state.config.training
    with averaged_weights(state.average):
        try:
            traces = state.greedy_predictor.predict_examples(state.validation_examples)
        except NotFiniteError as error:
            raise divergence_error(state, "the outputs for the validation set are not finite") from error
        loss = _validation_loss(state)
    references = [(example.target,) for example in state.validation_examples]
    scored = score_traces(traces, references, state.predictor.tokenizers)
    task = get_task(state.config.task)
    metrics = {**metrics_for_log(evaluate_examples(scored)), **task.metrics.validation_scores(scored), "loss": loss}
    if is_custom_metric(config.metric):
        if config.metric in metrics:
            raise ConfigError(
                f"training.metric = {quote(config.metric)}: the task {quote(state.config.task)} has a metric of this "
                "name: register yours under another name"
            )
        metrics[config.metric] = compute_metric(config.metric, evaluated_examples(traces, references, scored))
    if not math.isfinite(metrics["loss"]):
        raise divergence_error(state, "the loss on the validation set is not finite")
    return metrics, traces


def _progress_after_validation(
    state: TrainingState, metrics: dict[str, float], seconds: float, num_due: int, num_batches: int
) -> Progress:
    """Return the progress after a validation that took some seconds."""
    before = state.progress
    config = state.config.training
    starts_part = starts_last_part(state, before, num_batches)
    score = validation_score(metrics, config.metric)
    previous_best = None if starts_part else before.best_validation_score
    is_best = previous_best is None or score > previous_best
    best_validation_score = score if is_best else previous_best
    validations_since_best = 0 if is_best else before.validations_since_best + 1
    progress = msgspec.structs.replace(
        before,
        validations=num_due,
        seconds=before.seconds + seconds,
        validation_seconds=0.0 if math.isinf(state.time_limit) else seconds,
    )
    outcome = ValidationOutcome(
        best_validation_score,
        validations_since_best,
        state.eval_interval(before),
        is_halfway(state, progress, num_batches),
        is_out_of_epochs(state, progress, num_batches),
        is_out_of_time(state, before) or is_out_of_time(state, progress),
    )
    lowers = reduces_learning_rate(config, validations_since_best)
    return msgspec.structs.replace(
        progress,
        best_validation_score=best_validation_score,
        best_update=before.update if is_best else before.best_update,
        validations_since_best=validations_since_best,
        in_last_part=before.in_last_part or starts_part,
        plateau_factor=before.plateau_factor * (PLATEAU_FACTOR if lowers else 1.0),
        stop_cause=stop_cause(config, outcome),
    )


def divergence_error(state: TrainingState, reason: str) -> DivergenceError:
    """Return (not raise) the error of a training with numbers that are not finite, with advice.

    Args:
        state: Training state. Directly after a checkpoint was read, the message says that the file may be damaged.
        reason: Description of the number that is not finite.
    """
    config, update = state.config.training, state.progress.update
    if state.checkpoint is not None and state.checkpoint[1] == update:
        return DivergenceError(
            f"training diverged at update {update}, the first after {state.checkpoint[0]} was read: {reason}; the "
            f"file may be damaged, or training.learning_rate (now {config.learning_rate:g}) too high"
        )
    return DivergenceError(
        f"training diverged at update {update}: {reason}; "
        f"a lower training.learning_rate (now {config.learning_rate:g}) or training.clip_norm may help"
        f"{not_finite_note(state.config)}"
    )


@torch.no_grad()
def _validation_loss(state: TrainingState) -> float:
    """Return the cross-entropy per target symbol of the validation set, without label smoothing."""
    network, task = state.predictor.network, get_task(state.config.task)
    network.eval()
    encoded, batch_size = state.encoded_validation_examples, state.config.search.batch_size
    rows = np.lexsort((encoded.target.lengths, encoded.source.lengths))  # similar lengths need little padding
    total, num_symbols = 0.0, 0
    for start in range(0, len(rows), batch_size):
        batch = collate(encoded, rows[start : start + batch_size]).to(state.gradient_computer.device)
        count = int((batch.target != PAD).sum())
        if count:  # a batch may hold only labels that training never saw, which have no probability
            total += float(task.loss(network, network(batch), batch, 0.0)) * count
        num_symbols += count
    return total / max(num_symbols, 1)
