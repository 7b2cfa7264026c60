"""The training loop: a generator of events.

Progress bar, log, checkpoints and snapshots consume its events. After every event the training state is consistent: it
can be saved and resumed bit for bit.

M training examples of an epoch.
"""

import math
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch

from pellucid.config.durations import parse_duration
from pellucid.config.extension_errors import not_finite_note
from pellucid.config.settings import Config, MetricName, TrainingConfig
from pellucid.config.task_settings import uses_pair_ngram
from pellucid.config.training_types import best_rank, is_custom_metric, metric_sign
from pellucid.data.batch_loaders import LoadedBatch, iterate_batches, prefetch
from pellucid.data.batches import Batch, bucket_by_length, collate
from pellucid.data.encoding import EncodedExamples
from pellucid.data.examples import Example
from pellucid.data.vocabulary import PAD
from pellucid.decoding.predictor import Predictor
from pellucid.errors import ConfigError, DivergenceError, NotFiniteError, count_noun, quote
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.custom_metrics import compute_metric, evaluated_examples
from pellucid.evaluation.metrics import evaluate_examples, metrics_for_log
from pellucid.run_folder.progress import LOSS_WINDOW, TIME_LIMIT_REASON, Progress
from pellucid.shapes import Int
from pellucid.tasks.registry import encode_for_task, get_task
from pellucid.training.events import Event, TrainingStarted, TrainingStopped, UpdateCompleted, ValidationCompleted
from pellucid.training.gradients import GradientComputer
from pellucid.training.optimizer import Average, Optimizer, averaged_weights, build_average, scheduled_learning_rate
from pellucid.training.parameter_updates import ParameterUpdater, compare_parameters, update_random_numbers
from pellucid.training.scheduled_sampling import scheduled_sampling_probability
from pellucid.training.validation_sample import MAX_CONFIDENCE_PAIRS, MAX_WEIGHTING_SOURCES
from pellucid.training.worker_group import UpdateRequest, WorkerGroup

MIX_IN_STREAM = 0x6D697800
"""Random stream of the earlier pairs that are drawn for an epoch."""
ACCURACY_METRICS = ("exact_match", "symbol_error_rate", "symbol_accuracy")
"""Metrics that count correct outputs or symbols."""
LAST_PART = 0.8
"""Share of the training length after which the last part of a training begins."""
SMALL_VALIDATION_SET = 400
"""Number of validation examples from which the best of all validations decides."""
MIN_EVAL_INTERVAL = 1e-6
"""Minimum number of epochs between validations, which bounds their number; it is less than an update."""
EPOCH_TOLERANCE = 1e-9
"""Number of epochs by which a training may be shorter than its maximum, for the rounding of fractions of an epoch."""
MIN_VALIDATIONS = 8
"""Minimum number of validations of a training of at least as many epochs, if their interval is derived."""
EXAMPLES_PER_VALIDATION = 20
"""Minimum number of training examples for each validation of one example, if the interval is derived."""
PLATEAU_PATIENCE = 3
"""Validations without improvement after which the plateau schedule reduces the learning rate."""
PLATEAU_FACTOR = 0.5
UNKNOWN_RESERVE = 0.1
"""Part of a time limit that is kept for the end of the training before the first validation."""
MAX_RESERVE = 0.5
"""Maximum part of a time limit that is kept for the end of the training."""
RESERVED_VALIDATIONS = 1.5
"""Time that is kept for the last validation, as a multiple of the time of the validation before it."""
RESERVED_WEIGHTING = 3.0
"""Time that is kept to weight the pair n-gram model, as a multiple of the time of a greedy validation of the same
sources."""
RESERVED_CONFIDENCE = 3.0
"""Time that is kept to fit the confidence, as a multiple of the time of a greedy validation of the same sources."""


@dataclass
class TrainingState:
    """State of a training: network, optimizer, data and progress."""

    predictor: Predictor
    """Network with its configuration and vocabularies; `greedy_predictor` decodes the validation set."""
    optimizer: Optimizer
    encoded_training_examples: EncodedExamples
    """Training examples in ids."""
    validation_examples: Sequence[Example]
    """Validation examples as texts."""
    progress: Progress = field(default_factory=Progress)
    num_mixed_in: int = 0
    """Number of the last training examples that are earlier pairs (`training.mix_in`), of which each epoch draws some.
    """
    checkpoint: tuple[Path, int] | None = None
    """Checkpoint from which the state was restored, and its update; None for a new training."""
    gradient_computer: GradientComputer = field(init=False)
    greedy_predictor: Predictor = field(init=False)
    """The predictor with beam size 1, for validation."""
    average: Average | None = field(init=False)
    """Weight average that is validated and saved; None without averaging."""
    updater: ParameterUpdater = field(init=False)
    """Updates of the parameters, by this process alone or with other workers."""
    prefetch: bool = field(init=False)
    """Prepare the next batch during an update (on a GPU only)."""
    time_limit: float = field(init=False)
    """Maximum number of seconds of the training; infinite without a limit."""
    has_pair_ngram: bool = field(init=False)
    """Whether the training has a pair n-gram model, whose weight takes time at its end; until the model is fitted,
    whether the settings ask for one."""

    def __post_init__(self) -> None:
        """Create the gradient computer, the greedy predictor and the weight average."""
        self.gradient_computer = GradientComputer(self.predictor.network, self.config)
        search = msgspec.structs.replace(self.config.search, beam_size=1)
        self.greedy_predictor = replace(self.predictor, config=msgspec.structs.replace(self.config, search=search))
        self.average = build_average(self.predictor.network, self.config.training)
        self.updater = ParameterUpdater(self.gradient_computer, self.optimizer, self.config)
        self.prefetch = self.gradient_computer.device.type == "cuda"
        self.time_limit = parse_duration("training.time_limit", self.config.training.time_limit) or math.inf
        self.has_pair_ngram = uses_pair_ngram(self.config)

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.predictor.config

    @property
    def workers(self) -> WorkerGroup | None:
        """Workers of a data-parallel training, of which this process is worker 0; None for a single process."""
        return self.updater.workers

    @cached_property
    def encoded_validation_examples(self) -> EncodedExamples:
        """Validation examples in ids."""
        predictor = self.predictor
        return encode_for_task(self.validation_examples, predictor.tokenizers, predictor.vocabularies, self.config)

    @property
    def epochs(self) -> float:
        """Maximum number of epochs, which may be a fraction: from the settings, or else from `derived_epochs`."""
        return self.config.training.epochs or derived_epochs(self.examples_per_epoch)

    @property
    def batch_size(self) -> int:
        """Batch size in units of `training.batch_type`: from the settings, or else from `derived_batch_size`."""
        return self.config.training.batch_size or derived_batch_size(self.examples_per_epoch)

    @property
    def eval_interval(self) -> float:
        """Number of epochs between validations: from the settings, or else from `derived_eval_interval`."""
        training = self.config.training
        if training.eval_interval:
            return max(training.eval_interval, MIN_EVAL_INTERVAL)
        if training.patience or training.lr_schedule == "plateau" or training.weight_averaging == "last":
            return 1.0  # these count validations
        return derived_eval_interval(self.examples_per_epoch, len(self.validation_examples), self.epochs)

    @property
    def num_new_examples(self) -> int:
        """Number of training examples that each epoch has once: all but the earlier pairs."""
        return self.encoded_training_examples.source.num_sequences - self.num_mixed_in

    @property
    def examples_per_epoch(self) -> int:
        """Number of training examples of an epoch, those drawn from the earlier pairs included."""
        return examples_per_epoch(self.num_new_examples, self.config.training)

    def rows_of_epoch(self, epoch: int) -> Int[np.ndarray, " M"] | None:
        """Return the indices of the training examples of an epoch; None if it has all.

        The earlier pairs of an epoch are drawn without replacement, by the seed and the epoch; if more are needed than
        there are, each is taken as often as that, and the rest is drawn.

        Args:
            epoch: Index of the epoch, from 0.
        """
        if not self.num_mixed_in:
            return None
        num_new, generator = self.num_new_examples, np.random.default_rng([self.config.seed, epoch, MIX_IN_STREAM])
        rounds, rest = divmod(self.examples_per_epoch - num_new, self.num_mixed_in)
        old = np.arange(num_new, num_new + self.num_mixed_in)
        return np.concatenate([np.arange(num_new), *[old] * rounds, generator.permutation(old)[:rest]])

    def plan_batches(self, epoch: int) -> list[np.ndarray]:
        """Return the indices of the training examples of each batch of an epoch.

        They depend on the examples, the settings and the epoch only, so they are equal in a resumed training.

        Args:
            epoch: Index of the epoch, from 0.
        """
        batch_type, seed, rows = self.config.training.batch_type, self.config.seed, self.rows_of_epoch(epoch)
        return bucket_by_length(self.encoded_training_examples, self.batch_size, batch_type, seed, epoch, rows)

    def load_batch(self, rows: np.ndarray) -> Batch:
        """Return a batch of training examples, prepared for `gradient_computer` (see `GradientComputer.prepare_batch`);
        with several workers, on the host.

        Args:
            rows: Indices of the training examples.
        """
        batch = collate(self.encoded_training_examples, rows)
        return batch if self.workers is not None else self.gradient_computer.prepare_batch(batch)

    def batch_loader(self, plan: list[np.ndarray]) -> Generator[LoadedBatch]:
        """Return a generator of all batches from the current position, without end: the rest of this epoch, then all
        later epochs.

        Args:
            plan: Rows of each batch of the current epoch.

        Returns:
            A generator, which must be closed; it prepares the next batch in a thread if `prefetch` is True.
        """
        plans = chain([plan], map(self.plan_batches, count(self.progress.epoch + 1)))
        batches = iterate_batches(plans, self.progress.batch, self.load_batch)
        return prefetch(batches) if self.prefetch else batches


def num_drawn(num_new: int, share: float) -> int:
    """Return the number of earlier pairs that are drawn for an epoch, so that they are a share of its pairs.

    Args:
        num_new: Number of other training examples.
        share: Share of the earlier pairs among all, from 0 to below 1.
    """
    return round(num_new * share / (1 - share))


def examples_per_epoch(num_new: int, config: TrainingConfig) -> int:
    """Return the number of training examples of an epoch, those drawn from the earlier pairs included.

    Args:
        num_new: Number of other training examples.
        config: Training settings, which may name a file of earlier pairs (`mix_in`).
    """
    return num_new + (num_drawn(num_new, config.mix_in_share) if config.mix_in else 0)


def derived_epochs(examples: int) -> float:
    """Return the default maximum number of epochs for n examples.

    It is 30 √(3600 / n), at most 200, below 3,600 examples, and 30 (3600 / n)^⅛ from there on (docs/log.md).

    Args:
        examples: n, the number of training examples, at least 1.
    """
    epochs: float = 30.0 * (3600 / examples) ** (0.5 if examples < 3600 else 0.125)
    return min(200.0, epochs)


def derived_batch_size(examples: int) -> int:
    """Return the default batch size: the power of two from 8 to 64 that is nearest to √n / 4 on a logarithmic scale.

    It is 8 for 1,000 examples, 16 for 3,600, 32 for 10,000, and 64 from 32,768. On small data, many small updates give
    better accuracy (docs/log.md).

    Args:
        examples: n, the number of training examples, at least 1.
    """
    size: int = 2 ** min(6, max(3, round(math.log2(math.sqrt(examples) / 4))))
    return size


def derived_eval_interval(examples: int, validation_examples: int, epochs: float) -> float:
    """Return the default number of epochs between validations.

    For n training and m validation examples it is ⌈20 m / n⌉, at least 1 and at most an eighth of all epochs. To decode
    an example and compute its loss takes about two thirds of the time of training on it. So the validations take less
    than 3 % of the time, except with a large validation set for a short training (docs/guides/training.md).

    Args:
        examples: n, the number of training examples of an epoch, at least 1.
        validation_examples: m, the number of validation examples.
        epochs: Maximum number of epochs.
    """
    interval = math.ceil(EXAMPLES_PER_VALIDATION * validation_examples / examples)
    return float(max(1, min(interval, math.floor(epochs / MIN_VALIDATIONS))))


def max_updates(epochs: float, updates_per_epoch: float) -> int:
    """Return the number of updates after which a training has made its maximum number of epochs (`is_out_of_epochs`).

    Args:
        epochs: Maximum number of epochs, which may be a fraction.
        updates_per_epoch: Number of updates of an epoch, which may be an estimate.
    """
    return max(1, math.ceil((epochs - EPOCH_TOLERANCE) * updates_per_epoch))


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
    seconds_left = state.time_limit - state.progress.other_seconds - state.progress.seconds
    yield TrainingStarted(
        state.progress,
        state.epochs,
        max_updates(state.epochs, float(num_batches)),
        None if math.isinf(seconds_left) else max(0.0, seconds_left),
    )
    with closing(state.batch_loader(plan)) as loader:
        while not state.progress.finished:
            num_due = validations_due(state, state.progress, num_batches)
            if state.progress.validations < num_due:
                yield _validate(state, num_due, num_batches)
                continue
            if state.progress.batch == num_batches:
                state.progress = msgspec.structs.replace(state.progress, epoch=state.progress.epoch + 1, batch=0)
            start_time, loaded = time.perf_counter(), next(loader)
            num_batches = loaded.num_batches
            yield _do_update(state, loaded, start_time)
    yield TrainingStopped(state.progress)


def validation_rank(metrics: dict[str, float], metric: MetricName) -> tuple[float, float, float]:
    """Return a tuple by which validations are compared; the greater one is better.

    It holds the selected metric, the symbol error rate and the loss; error rates and losses are negated. The second and
    third number decide ties.

    Args:
        metrics: Metrics of the validation, by their keys in the log.
        metric: Metric that selects the best model.
    """
    return metric_sign(metric) * metrics[metric], -metrics["symbol_error_rate"], -metrics["loss"]


def _epochs_done(progress: Progress, num_batches: int) -> float:
    """Return the number of passes over the training data so far."""
    return progress.epoch + progress.batch / num_batches


def time_passed(state: TrainingState, progress: Progress) -> float:
    """Return the fraction of the time limit that has passed; 0 without a limit, 1 or more when the training must end.

    After t seconds of a limit of L it is t / (L - r). The reserve r is the estimated time of the last validation, the
    weight of the pair n-gram model and the confidence (`_seconds_for_training`).

    Args:
        state: Training state, for its settings.
        progress: Progress of the training, which may differ from that of the state.
    """
    return (progress.seconds + progress.other_seconds) / _seconds_for_training(state, progress)


def schedule_time_passed(state: TrainingState, progress: Progress) -> float:
    """Return the fraction that has passed of the time from the first update to the time limit; 0 without a limit.

    If the first update began after p seconds, it is (t - p) / (L - r - p), with the symbols of `time_passed`. The
    learning rate follows it, so that the time before the first update does not shorten the warmup.

    Args:
        state: Training state, for its settings.
        progress: Progress of the training, which may differ from that of the state.
    """
    seconds = _seconds_for_training(state, progress) - progress.preparation_seconds
    passed = progress.seconds + progress.other_seconds - progress.preparation_seconds
    return passed / seconds if seconds > 0 else 1.0


def _seconds_for_training(state: TrainingState, progress: Progress) -> float:
    """Return L - r, the time limit without the reserve for what follows the updates; infinite without a limit.

    The reserve is a multiple of the time of the last validation, and at most `MAX_RESERVE` of the limit.
    """
    limit = state.time_limit
    if math.isinf(limit):
        return limit
    num_sources = max(1, len(state.validation_examples))
    num_reserved = RESERVED_VALIDATIONS + RESERVED_CONFIDENCE * min(1.0, MAX_CONFIDENCE_PAIRS / num_sources)
    if state.has_pair_ngram:
        num_reserved += RESERVED_WEIGHTING * min(1.0, MAX_WEIGHTING_SOURCES / num_sources)
    reserve = num_reserved * progress.validation_seconds if progress.validations else UNKNOWN_RESERVE * limit
    return limit - min(reserve, MAX_RESERVE * limit)


def is_out_of_epochs(state: TrainingState, progress: Progress, num_batches: int) -> bool:
    """Return whether the maximum number of epochs is reached; never before the first update.

    Args:
        state: Training state, for its maximum number of epochs.
        progress: Progress of the training, which may differ from that of the state.
        num_batches: Number of batches in the current epoch.
    """
    return progress.update > 0 and _epochs_done(progress, num_batches) >= state.epochs - EPOCH_TOLERANCE


def is_out_of_time(state: TrainingState, progress: Progress) -> bool:
    """Return whether the time limit is reached; never before the first update.

    Args:
        state: Training state, for its time limit.
        progress: Progress of the training, which may differ from that of the state.
    """
    return progress.update > 0 and time_passed(state, progress) >= 1


def validations_due(state: TrainingState, progress: Progress, num_batches: int) -> int:
    """Return the number of validations due so far, those done included. At the end of the training one more is due.

    A fine-tuning validates its initial parameters too, before the first update, so that the best model is never worse
    than the initial run on the validation set.

    Args:
        state: Training state, for its settings.
        progress: Progress of the training, which may differ from that of the state.
        num_batches: Number of batches in the current epoch.
    """
    first = int(bool(state.config.training.initial_run))
    num_due = first + math.floor(_epochs_done(progress, num_batches) / state.eval_interval + 1e-9)
    if is_out_of_epochs(state, progress, num_batches):
        total = first + math.ceil(state.epochs / state.eval_interval - 1e-9)
        return max(total, progress.validations + 1)
    return max(num_due, progress.validations + 1) if is_out_of_time(state, progress) else num_due


def selects_from_last_part(state: TrainingState) -> bool:
    """Return whether a training saves the best parameters of its last part, and not of all validations.

    On a small validation set, the best of all validations is often an early one that is best by chance
    (docs/ablations.md). So this holds with fewer than `SMALL_VALIDATION_SET` validation examples, unless another
    schedule than the cosine, patience, an initial run, or another metric than correct outputs or symbols is given.

    Args:
        state: Training state, for its settings and its validation set.
    """
    training = state.config.training
    return (
        len(state.validation_examples) < SMALL_VALIDATION_SET
        and training.lr_schedule == "cosine"
        and not training.patience
        and not training.initial_run
        and training.metric in ACCURACY_METRICS
    )


def starts_last_part(state: TrainingState, progress: Progress, num_batches: int) -> bool:
    """Return whether a validation is the first one of the last part, from which on earlier validations do not count.

    The last part begins after `LAST_PART` of the training length, in epochs or in time, where the learning rate is near
    zero. If all outputs were correct before, no part begins: earlier validations count.

    Args:
        state: Training state, for its settings, its maximum number of epochs and its time limit.
        progress: Progress of the training before the validation.
        num_batches: Number of batches in the current epoch.
    """
    if progress.is_best_of_last_part or progress.best is None or not selects_from_last_part(state):
        return False
    epochs_passed = _epochs_done(progress, num_batches) / state.epochs
    is_last_part = max(epochs_passed, schedule_time_passed(state, progress)) >= LAST_PART - 1e-9
    return is_last_part and not _is_perfect(progress.best, state.config.training.metric)


def lowers_rate(config: TrainingConfig, stale: int) -> bool:
    """Return whether the plateau schedule reduces the learning rate at this validation: at every `PLATEAU_PATIENCE`-th
    validation without improvement; never in other schedules.

    Args:
        config: Training settings.
        stale: Number of validations since the best one, this one included; 0 if this is the best.
    """
    return config.lr_schedule == "plateau" and stale > 0 and stale % PLATEAU_PATIENCE == 0


def is_halfway(state: TrainingState, progress: Progress, num_batches: int) -> bool:
    """Return whether half of the maximum training length, in epochs or in time, is reached.

    Args:
        state: Training state, for its maximum number of epochs and its time limit.
        progress: Progress of the training, which may differ from that of the state.
        num_batches: Number of batches in the current epoch.
    """
    return (
        _epochs_done(progress, num_batches) >= state.epochs / 2 - 1e-9 or schedule_time_passed(state, progress) >= 0.5
    )


class ValidationOutcome(NamedTuple):
    """Facts at a validation that decide whether the training ends."""

    best: tuple[float, float, float] | None
    """Rank of the best validation so far (`validation_rank`); None before the first one."""
    stale: int
    """Number of validations since the best one."""
    eval_interval: float
    """Number of epochs between validations."""
    halfway: bool
    """Whether half of the maximum training length is reached."""
    out_of_epochs: bool
    """Whether the maximum number of epochs is reached."""
    out_of_time: bool = False
    """Whether the time limit is reached."""


def stop_reason(config: TrainingConfig, outcome: ValidationOutcome) -> str:
    """Return the reason to end the training at a validation; empty if it continues.

    Args:
        config: Training settings; patience 0 and perfect_patience 0 turn early stopping off.
        outcome: Best validation, validations since then and their interval, and the training length.
    """
    stale, patience = outcome.stale, config.perfect_patience
    if config.patience and stale >= config.patience:
        return f"{config.metric} did not improve in {count_noun(stale, 'validation')}"
    if outcome.out_of_epochs:
        return "all its passes over the data are done"
    if outcome.out_of_time:
        return f"{TIME_LIMIT_REASON}{config.time_limit} is reached"
    # A small validation set may be all correct by chance while the learning rate is high: hence the minimum length.
    is_stale = patience > 0 and min(stale, stale * outcome.eval_interval + 1e-9) >= patience and outcome.halfway
    if is_stale and outcome.best is not None and _is_perfect(outcome.best, config.metric):
        return f"{config.metric} is perfect, and the loss did not improve in {count_noun(stale, 'validation')}"
    return ""


def _is_perfect(rank: tuple[float, float, float], metric: MetricName) -> bool:
    """Return whether a validation has the best possible value of the metric; the loss has none."""
    return rank[0] >= best_rank(metric)


def _do_update(state: TrainingState, loaded: LoadedBatch, start_time: float) -> UpdateCompleted:
    """Do one update (forward, backward, clip, step), and return its event."""
    progress, config, num_batches = state.progress, state.config.training, loaded.num_batches
    epochs_passed = (_epochs_done(progress, num_batches) + 0.5 / num_batches) / state.epochs
    progress_fraction = min(1.0, max(epochs_passed, schedule_time_passed(state, progress)))
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
    start_time, progress, config = time.perf_counter(), state.progress, state.config.training
    predictor = state.predictor
    if state.workers is not None:
        compare_parameters(predictor.network, state.workers)
    if state.average is not None:
        state.average.record_validation()
    with averaged_weights(state.average):
        try:
            traces = state.greedy_predictor.predict_examples(state.validation_examples)
        except NotFiniteError as error:
            raise divergence_error(state, "the outputs for the validation set are not finite") from error
        loss = _validation_loss(state)
    references = [(example.target,) for example in state.validation_examples]
    scored = score_traces(traces, references, predictor.tokenizers)
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
    starts_part = starts_last_part(state, progress, num_batches)
    rank, previous_best = validation_rank(metrics, config.metric), None if starts_part else progress.best
    improved = previous_best is None or rank > previous_best
    stale, best = (0, rank) if improved else (progress.stale + 1, previous_best)
    seconds = time.perf_counter() - start_time
    was_out_of_time = is_out_of_time(state, progress)
    progress = msgspec.structs.replace(
        progress,
        validations=num_due,
        seconds=progress.seconds + seconds,
        validation_seconds=0.0 if math.isinf(state.time_limit) else seconds,
    )
    outcome = ValidationOutcome(
        best,
        stale,
        state.eval_interval,
        is_halfway(state, progress, num_batches),
        is_out_of_epochs(state, progress, num_batches),
        was_out_of_time or is_out_of_time(state, progress),
    )
    state.progress = msgspec.structs.replace(
        progress,
        best=best,
        best_update=progress.update if improved else progress.best_update,
        stale=stale,
        is_best_of_last_part=progress.is_best_of_last_part or starts_part,
        plateau_factor=progress.plateau_factor * (PLATEAU_FACTOR if lowers_rate(config, stale) else 1.0),
        finished=stop_reason(config, outcome),
    )
    epochs = _epochs_done(progress, num_batches)
    return ValidationCompleted(state.progress, metrics, improved, traces, state.config.task, epochs)


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
