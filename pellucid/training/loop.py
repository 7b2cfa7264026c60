"""The training loop: a generator of events.

Progress bar, log, checkpoints and curves consume its events. After every event the training state is consistent: it can
be saved and resumed bit for bit.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import nn

from pellucid.config.settings import Config, Metric, TrainingConfig
from pellucid.data.batch_loaders import BatchLoader, LoadedBatch, PrefetchLoader, SynchronousLoader, iterate_batches
from pellucid.data.batches import Batch, EncodedExamples, collate, sample_batches
from pellucid.data.examples import Example
from pellucid.data.vocabulary import PAD
from pellucid.decoding.predictor import Predictor
from pellucid.errors import DivergenceError, NotFiniteError
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.metrics import evaluate_examples, metrics_for_log
from pellucid.model.device import rng_devices, seed_generators
from pellucid.tasks.registry import configured_task
from pellucid.training.events import (
    LOSS_WINDOW,
    Event,
    Progress,
    TrainingStarted,
    TrainingStopped,
    UpdateCompleted,
    ValidationCompleted,
)
from pellucid.training.gradients import Gradients
from pellucid.training.optimizer import Adam, Average, averaged_weights, build_average, learning_rate
from pellucid.training.scheduled_sampling import sampling_probability

__all__ = [
    "LOSS_WINDOW",
    "Event",
    "Progress",
    "TrainingStarted",
    "TrainingState",
    "TrainingStopped",
    "UpdateCompleted",
    "ValidationCompleted",
    "build_optimizer",
    "derived_batch_size",
    "derived_epochs",
    "fit",
    "rank",
]

PLATEAU_PATIENCE = 3
"""Validations without improvement after which the plateau schedule reduces the learning rate."""
PLATEAU_FACTOR = 0.5


@dataclass
class TrainingState:
    """State of a training: network, optimizer, data and progress."""

    transducer: Predictor
    optimizer: Adam
    training: EncodedExamples
    development: Sequence[Example]
    progress: Progress = field(default_factory=Progress)
    checkpoint: tuple[Path, int] | None = None
    """Checkpoint from which the state was restored, and its update; None for a new training."""
    gradients: Gradients = field(init=False)
    average: Average | None = field(init=False)
    """Weight average that is validated and saved; None without averaging."""
    prefetch: bool = field(init=False)
    """Prepare the next batch during an update (on a GPU only)."""

    def __post_init__(self) -> None:
        """Create the gradient computation, which may hold recorded graphs."""
        self.gradients = Gradients(self.transducer.network, self.config)
        self.average = build_average(self.transducer.network, self.config.training)
        self.prefetch = self.gradients.device.type == "cuda"

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return self.transducer.config

    @property
    def epochs(self) -> float:
        """Maximum number of epochs, from the settings or derived from the number of examples."""
        return self.config.training.epochs or derived_epochs(self.training.source.num_sequences)

    def plan(self, epoch: int) -> list[np.ndarray]:
        """Return the rows of each batch of an epoch.

        Args:
            epoch: Number of the epoch, from 0.
        """
        training, seed = self.config.training, self.config.seed
        size = training.batch_size or derived_batch_size(self.training.source.num_sequences)
        return sample_batches(self.training, size, training.batch_type, seed, epoch)

    def prepare(self, rows: np.ndarray) -> Batch:
        """Return the batch of these rows on the device.

        Args:
            rows: Rows of the training examples.
        """
        return self.gradients.prepare(collate(self.training, rows))

    def feed(self, plan: list[np.ndarray]) -> BatchLoader:
        """Yield all batches from the current position: the remaining ones of this epoch, then all following epochs.

        Args:
            plan: Rows of each batch of the current epoch.

        Returns:
            A loader, which must be closed.
        """
        plans = chain([plan], map(self.plan, count(self.progress.epoch + 1)))
        batches = iterate_batches(plans, self.progress.batch, self.prepare)
        return PrefetchLoader(batches) if self.prefetch else SynchronousLoader(batches)


def derived_epochs(examples: int) -> float:
    """Return the default maximum number of epochs: 30 for 3,600 examples, fewer for more.

    It grows as √(3600 / n) for fewer examples, up to 200, and falls as the eighth root for more (docs/log.md).

    Args:
        examples: n, the number of training examples.
    """
    epochs: float = 30.0 * (3600 / examples) ** (0.5 if examples < 3600 else 0.125)
    return min(200.0, epochs)


def derived_batch_size(examples: int) -> int:
    """Return the default batch size: √n / 4, rounded to a power of two from 8 to 64.

    Examples: 8 for 1,000 examples, 16 for 3,600, 32 for 10,000, 64 from 32,768. On small data, many small updates give
    better accuracy (docs/log.md).

    Args:
        examples: n, the number of training examples.
    """
    size: int = 2 ** min(6, max(3, round(math.log2(math.sqrt(examples) / 4))))
    return size


def build_optimizer(network: nn.Module, config: TrainingConfig) -> Adam:
    """Return the Adam or AdamW optimizer of the configuration.

    Args:
        network: Network to train.
        config: Training settings.
    """
    return Adam(network, config.weight_decay if config.optimizer == "adamw" else 0.0)


def fit(session: TrainingState) -> Iterator[Event]:
    """Train until the maximum number of epochs or early stopping, from the current state.

    Args:
        session: Training state, which is changed.

    Yields:
        Events: `TrainingStarted`, `UpdateCompleted`, `ValidationCompleted`, `TrainingStopped`.

    Raises:
        DivergenceError: A loss, gradient or parameter is not finite.
    """
    plan = session.plan(session.progress.epoch)
    batches = len(plan)
    yield TrainingStarted(session.progress, session.epochs, math.ceil(session.epochs * batches))
    with closing(session.feed(plan)) as feed:
        while not session.progress.finished:
            num_due = validations_due(session, session.progress, batches)
            if session.progress.validations < num_due:
                yield _validate(session, num_due, is_over(session, session.progress, batches))
                continue
            if session.progress.batch == batches:
                session.progress = msgspec.structs.replace(session.progress, epoch=session.progress.epoch + 1, batch=0)
            start_time, loaded = time.perf_counter(), feed.next()
            batches = loaded.num_batches
            yield _do_update(session, loaded, start_time)
    yield TrainingStopped(session.progress)


def rank(metrics: dict[str, float], metric: Metric) -> tuple[float, float, float]:
    """Return the rank of a validation, higher is better: the selected metric, then symbol error rate, then loss.

    Args:
        metrics: Metrics of the validation.
        metric: Metric that selects the best model.
    """
    sign = -1.0 if metric in ("symbol_error_rate", "loss") else 1.0
    return sign * metrics[metric], -metrics["symbol_error_rate"], -metrics["loss"]


def _epochs_done(progress: Progress, batches: int) -> float:
    """Return the number of passes over the training data so far."""
    return progress.epoch + progress.batch / batches


def is_over(session: TrainingState, progress: Progress, batches: int) -> bool:
    """Return whether the maximum training length is reached. There is at least one update.

    Args:
        session: Training state, for its settings.
        progress: Progress of the training.
        batches: Number of batches in the current epoch.
    """
    return progress.update > 0 and _epochs_done(progress, batches) >= session.epochs - 1e-9


def validations_due(session: TrainingState, progress: Progress, batches: int) -> int:
    """Return the number of validations due by now, including the one at the end.

    Args:
        session: Training state, for its settings.
        progress: Progress of the training.
        batches: Number of batches in the current epoch.
    """
    num_due = math.floor(_epochs_done(progress, batches) / session.config.training.eval_interval + 1e-9)
    if not is_over(session, progress, batches):
        return num_due
    total = math.ceil(session.epochs / session.config.training.eval_interval - 1e-9)
    return max(total, progress.validations + 1)


def lowers_rate(config: TrainingConfig, stale: int) -> bool:
    """Return whether the learning rate falls after this number of validations without improvement.

    Args:
        config: Training settings.
        stale: Number of validations since the best one.
    """
    return config.lr_schedule == "plateau" and stale > 0 and stale % PLATEAU_PATIENCE == 0


def stop_reason(config: TrainingConfig, stale: int, over: bool) -> str:
    """Return the reason to end the training at a validation; empty if it continues.

    Args:
        config: Training settings.
        stale: Validations since the best one.
        over: The maximum training length is reached.
    """
    if config.patience and stale >= config.patience:
        return f"{config.metric} did not get better in {stale} validations"
    return "all its passes over the data are done" if over else ""


def _do_update(session: TrainingState, loaded: LoadedBatch, start_time: float) -> UpdateCompleted:
    """Do one update: batch, forward, backward, clip, step."""
    progress, config, batches = session.progress, session.config.training, loaded.num_batches
    passed = min(1.0, (_epochs_done(progress, batches) + 0.5 / batches) / session.epochs)
    rate = learning_rate(config, passed, progress.plateau_factor)
    with torch.random.fork_rng(devices=rng_devices(session.gradients.device)):
        # The random numbers of an update depend on seed and update only, so no generator state has to be saved.
        state = np.random.SeedSequence([session.config.seed, progress.update]).generate_state(1)
        seed_generators(int(state[0]), session.gradients.device)
        loss, norm = _update_parameters(session, loaded.batch, rate, sampling_probability(config, passed))
    session.progress = msgspec.structs.replace(
        progress,
        loss_sum=loss + (progress.loss_sum if progress.update % LOSS_WINDOW else 0.0),
        batch=progress.batch + 1,
        update=progress.update + 1,
        samples=progress.samples + len(loaded.batch.source),
        seconds=progress.seconds + time.perf_counter() - start_time,
    )
    return UpdateCompleted(session.progress, passed, loss, rate, norm)


def _update_parameters(session: TrainingState, batch: Batch, rate: float, probability: float) -> tuple[float, float]:
    """Update the parameters by one batch; return the loss, and the gradient norm before clipping."""
    config, network = session.config.training, session.transducer.network
    if not network.training:  # train() visits all modules, and only a validation changes their mode
        network.train()
    loss, gradients = session.gradients(batch, probability)
    norm = session.optimizer.update(gradients, rate, config.clip_value, config.clip_norm)
    if not math.isfinite(norm):
        raise diverged(session, "the gradient is not finite")
    if not math.isfinite(loss):
        raise diverged(session, "the loss is not finite")
    if session.average is not None:
        session.average.after_update()
    return float(loss), norm


def _validate(session: TrainingState, num_due: int, over: bool) -> ValidationCompleted:
    """Decode and evaluate the validation set, and update the progress."""
    start_time, progress, config = time.perf_counter(), session.progress, session.config.training
    transducer = session.transducer
    if session.average is not None:
        session.average.record_validation()
    with averaged_weights(session.average):
        try:
            traces = transducer.trace(session.development)
        except NotFiniteError as error:
            raise diverged(session, "the outputs for the development data are not finite") from error
        loss = _development_loss(session)
    references = [(example.target,) for example in session.development]
    scored = score_traces(traces, references, transducer.tokenizers)
    task = configured_task(session.config)
    metrics = {**metrics_for_log(evaluate_examples(scored)), **task.metrics.validation_scores(scored), "loss": loss}
    if not math.isfinite(metrics["loss"]):
        raise diverged(session, "the loss on the development data is not finite")
    improved = progress.best is None or rank(metrics, config.metric) > progress.best
    stale = 0 if improved else progress.stale + 1
    session.progress = msgspec.structs.replace(
        progress,
        validations=num_due,
        best=rank(metrics, config.metric) if improved else progress.best,
        best_update=progress.update if improved else progress.best_update,
        stale=stale,
        plateau_factor=progress.plateau_factor * (PLATEAU_FACTOR if lowers_rate(config, stale) else 1.0),
        finished=stop_reason(config, stale, over),
        seconds=progress.seconds + time.perf_counter() - start_time,
    )
    return ValidationCompleted(session.progress, metrics, improved, traces, session.config.task)


def diverged(session: TrainingState, reason: str) -> DivergenceError:
    """Return the error of a training with numbers that are not finite.

    Args:
        session: Training state.
        reason: Description of the number that is not finite.
    """
    config, update = session.config.training, session.progress.update
    if session.checkpoint is not None and session.checkpoint[1] == update:
        return DivergenceError(
            f"training diverged at update {update}, the first after {session.checkpoint[0]} was read: {reason}; the "
            f"file may be damaged, or training.learning_rate (now {config.learning_rate:g}) too high"
        )
    return DivergenceError(
        f"training diverged at update {update}: {reason}; "
        f"a lower training.learning_rate (now {config.learning_rate:g}) or training.clip_norm may help"
    )


@torch.no_grad()
def _development_loss(session: TrainingState) -> float:
    """Return the cross-entropy per target symbol of the validation set, without label smoothing."""
    network, transducer, task = session.transducer.network, session.transducer, configured_task(session.config)
    network.eval()
    encoded = task.example_encoder(session.config)(session.development, transducer.tokenizers, transducer.vocabularies)
    total, num_symbols = 0.0, 0
    for start in range(0, len(session.development), session.config.search.batch_size):
        stop = min(start + session.config.search.batch_size, len(session.development))
        batch = collate(encoded, np.arange(start, stop)).to(session.gradients.device)
        count = int((batch.target != PAD).sum())
        if count:  # a batch may hold only answers that training never saw, which have no probability
            total += float(task.loss(network, network(batch), batch, 0.0)) * count
        num_symbols += count
    return total / max(num_symbols, 1)
