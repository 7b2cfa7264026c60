"""The training loop: a generator of events.

Progress bar, log, checkpoints and curves are consumers of what it yields; it knows none of them. After every event
the session is whole: whoever stops listening can save it and go on later, to the very same bits.
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
from pellucid.model.device import generators, seed
from pellucid.tasks.registry import configured_task
from pellucid.training.events import LOSS_WINDOW, Event, Progress, Started, Stepped, Stopped, Validated
from pellucid.training.gradients import Gradients
from pellucid.training.optimizer import Adam, Average, averaged, build_average, learning_rate
from pellucid.training.scheduled_sampling import own_share

__all__ = [
    "LOSS_WINDOW",
    "Event",
    "Progress",
    "Session",
    "Started",
    "Stepped",
    "Stopped",
    "Validated",
    "build_optimizer",
    "derived_batch_size",
    "derived_epochs",
    "fit",
    "rank",
]

PLATEAU_PATIENCE = 3
"""Validations without a better metric after which the plateau schedule lowers the rate."""
PLATEAU_FACTOR = 0.5


@dataclass
class Session:
    """A training in flight."""

    transducer: Predictor
    optimizer: Adam
    training: EncodedExamples
    development: Sequence[Example]
    progress: Progress = field(default_factory=Progress)
    checkpoint: tuple[Path, int] | None = None
    """The file that the session comes from, and the update at which it was written; None for a new one."""
    gradients: Gradients = field(init=False)
    average: Average | None = field(init=False)
    """The mean of weights that is judged and kept; None where it is the weights themselves."""
    ahead: bool = field(init=False)
    """Whether the next batch is prepared during an update: on a processor nothing would be gained."""

    def __post_init__(self) -> None:
        """What computes gradients stays with the network: it may have recorded how."""
        self.gradients = Gradients(self.transducer.network, self.config)
        self.average = build_average(self.transducer.network, self.config.training)
        self.ahead = self.gradients.device.type == "cuda"

    @property
    def config(self) -> Config:
        """The run's configuration."""
        return self.transducer.config

    @property
    def epochs(self) -> float:
        """The longest training, in passes: as set, or derived from the number of examples."""
        return self.config.training.epochs or derived_epochs(self.training.source.num_sequences)

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The rows of each batch of an epoch."""
        training, seed = self.config.training, self.config.seed
        size = training.batch_size or derived_batch_size(self.training.source.num_sequences)
        return sample_batches(self.training, size, training.batch_type, seed, epoch)

    def prepare(self, rows: np.ndarray) -> Batch:
        """The batch of these rows, where an update wants it."""
        return self.gradients.prepared(collate(self.training, rows))

    def feed(self, plan: list[np.ndarray]) -> BatchLoader:
        """All batches from where the session stands: the rest of the epoch of this plan, and every epoch after it."""
        plans = chain([plan], map(self.plan, count(self.progress.epoch + 1)))
        batches = iterate_batches(plans, self.progress.batch, self.prepare)
        return PrefetchLoader(batches) if self.ahead else SynchronousLoader(batches)


def derived_epochs(examples: int) -> float:
    """How long to train at most when nothing is said: 30 passes over 3,600 examples, and fewer over more.

    As √(3600 / n) below that number, at most 200, and as the eighth root above, for a large set is fitted in hardly
    fewer passes (docs/log.md).
    """
    passes: float = 30.0 * (3600 / examples) ** (0.5 if examples < 3600 else 0.125)
    return min(200.0, passes)


def derived_batch_size(examples: int) -> int:
    """How many examples a batch has when nothing is said: √n / 4 as the nearest power of two, within 8 and 64.

    8 for 1,000 examples, 16 for 3,600, 32 for 10,000, 64 from 32,768 on: with few examples, many small updates write
    more words right (docs/log.md).
    """
    size: int = 2 ** min(6, max(3, round(math.log2(math.sqrt(examples) / 4))))
    return size


def build_optimizer(network: nn.Module, config: TrainingConfig) -> Adam:
    """Adam, or AdamW, which is Adam with decay of the weights."""
    return Adam(network, config.weight_decay if config.optimizer == "adamw" else 0.0)


def fit(session: Session) -> Iterator[Event]:
    """Train to the end of the longest training, or until patience ends it, from wherever the session stands."""
    plan = session.plan(session.progress.epoch)
    batches = len(plan)
    yield Started(session.progress, session.epochs, math.ceil(session.epochs * batches))
    with closing(session.feed(plan)) as feed:
        while not session.progress.finished:
            due = validations_due(session, session.progress, batches)
            if session.progress.validations < due:
                yield _validate(session, due, is_over(session, session.progress, batches))
                continue
            if session.progress.batch == batches:
                session.progress = msgspec.structs.replace(session.progress, epoch=session.progress.epoch + 1, batch=0)
            began, upcoming = time.perf_counter(), feed.next()
            batches = upcoming.batches
            yield _step(session, upcoming, began)
    yield Stopped(session.progress)


def rank(metrics: dict[str, float], metric: Metric) -> tuple[float, float, float]:
    """A validation's worth, higher is better: the chosen metric; where it is equal the symbol error rate, the loss."""
    sign = -1.0 if metric in ("symbol_error_rate", "loss") else 1.0
    return sign * metrics[metric], -metrics["symbol_error_rate"], -metrics["loss"]


def _passes(progress: Progress, batches: int) -> float:
    """Passes over the training file so far."""
    return progress.epoch + progress.batch / batches


def is_over(session: Session, progress: Progress, batches: int) -> bool:
    """Return whether the longest training has passed; it has one update at least."""
    return progress.update > 0 and _passes(progress, batches) >= session.epochs - 1e-9


def validations_due(session: Session, progress: Progress, batches: int) -> int:
    """Return how many validations there should have been by now, the one at the very end included."""
    due = math.floor(_passes(progress, batches) / session.config.training.eval_interval + 1e-9)
    if not is_over(session, progress, batches):
        return due
    last = math.ceil(session.epochs / session.config.training.eval_interval - 1e-9)
    return max(last, progress.validations + 1)


def lowers_rate(config: TrainingConfig, stale: int) -> bool:
    """Return whether the learning rate falls after so many validations in a row that were not the best."""
    return config.lr_schedule == "plateau" and stale > 0 and stale % PLATEAU_PATIENCE == 0


def ending(config: TrainingConfig, stale: int, over: bool) -> str:
    """Return why training ends at a validation; empty where it goes on.

    Args:
        config: The settings of training.
        stale: Validations since the best one.
        over: Whether the longest training has passed.
    """
    if config.patience and stale >= config.patience:
        return f"{config.metric} did not get better in {stale} validations"
    return "all its passes over the data are done" if over else ""


def _step(session: Session, upcoming: LoadedBatch, began: float) -> Stepped:
    """One update, which began with asking for its batch: forward, backward, clip, step."""
    progress, config, batches = session.progress, session.config.training, upcoming.batches
    passed = min(1.0, (_passes(progress, batches) + 0.5 / batches) / session.epochs)
    rate = learning_rate(config, passed, progress.plateau_factor)
    with torch.random.fork_rng(devices=generators(session.gradients.device)):
        # The randomness of an update is a function of seed and update: nothing of it has to be saved to resume.
        state = np.random.SeedSequence([session.config.seed, progress.update]).generate_state(1)
        seed(int(state[0]), session.gradients.device)
        loss, norm = _update(session, upcoming.batch, rate, own_share(config, passed))
    session.progress = msgspec.structs.replace(
        progress,
        loss_sum=loss + (progress.loss_sum if progress.update % LOSS_WINDOW else 0.0),
        batch=progress.batch + 1,
        update=progress.update + 1,
        samples=progress.samples + len(upcoming.batch.source),
        seconds=progress.seconds + time.perf_counter() - began,
    )
    return Stepped(session.progress, passed, loss, rate, norm)


def _update(session: Session, batch: Batch, rate: float, own: float) -> tuple[float, float]:
    """Change the parameters by one batch, `own` the share of own symbols fed back; loss, and norm before clipping."""
    config, network = session.config.training, session.transducer.network
    if not network.training:  # a walk over all modules, of which only a validation changes the mode
        network.train()
    loss, gradients = session.gradients(batch, own)
    norm = session.optimizer.update(gradients, rate, config.clip_value, config.clip_norm)
    if not math.isfinite(norm):
        raise _diverged(session, "the gradient is not finite")
    if not math.isfinite(loss):
        raise _diverged(session, "the loss is not finite")
    if session.average is not None:
        session.average.updated()
    return float(loss), norm


def _validate(session: Session, due: int, over: bool) -> Validated:
    """Decode the development examples as they will be decoded in use, score them, and judge the session by it."""
    began, progress, config = time.perf_counter(), session.progress, session.config.training
    transducer = session.transducer
    if session.average is not None:
        session.average.validating()
    with averaged(session.average):
        try:
            traces = transducer.trace(session.development)
        except NotFiniteError as error:
            raise _diverged(session, "the outputs for the development data are not finite") from error
        loss = _development_loss(session)
    references = [(example.target,) for example in session.development]
    scored = score_traces(traces, references, transducer.tokenizers)
    task = configured_task(session.config)
    metrics = {**metrics_for_log(evaluate_examples(scored)), **task.metrics.validation_scores(scored), "loss": loss}
    if not math.isfinite(metrics["loss"]):
        raise _diverged(session, "the loss on the development data is not finite")
    better = progress.best is None or rank(metrics, config.metric) > progress.best
    stale = 0 if better else progress.stale + 1
    session.progress = msgspec.structs.replace(
        progress,
        validations=due,
        best=rank(metrics, config.metric) if better else progress.best,
        best_update=progress.update if better else progress.best_update,
        stale=stale,
        plateau_factor=progress.plateau_factor * (PLATEAU_FACTOR if lowers_rate(config, stale) else 1.0),
        finished=ending(config, stale, over),
        seconds=progress.seconds + time.perf_counter() - began,
    )
    return Validated(session.progress, metrics, better, traces, session.config.task)


def _diverged(session: Session, what: str) -> DivergenceError:
    """The error of a training whose numbers have left the finite."""
    config, update = session.config.training, session.progress.update
    if session.checkpoint is not None and session.checkpoint[1] == update:
        return DivergenceError(
            f"training diverged at update {update}, the first after {session.checkpoint[0]} was read: {what}; the "
            f"file may be damaged, or training.learning_rate (now {config.learning_rate:g}) too high"
        )
    return DivergenceError(
        f"training diverged at update {update}: {what}; "
        f"a lower training.learning_rate (now {config.learning_rate:g}) or training.clip_norm may help"
    )


@torch.no_grad()
def _development_loss(session: Session) -> float:
    """Cross-entropy of the development targets a symbol, without smoothing: how probable the right answers are."""
    network, transducer, task = session.transducer.network, session.transducer, configured_task(session.config)
    network.eval()
    encoded = task.example_encoder(session.config)(session.development, transducer.tokenizers, transducer.vocabularies)
    total, symbols = 0.0, 0
    for start in range(0, len(session.development), session.config.search.batch_size):
        stop = min(start + session.config.search.batch_size, len(session.development))
        batch = collate(encoded, np.arange(start, stop)).to(session.gradients.device)
        count = int((batch.target != PAD).sum())
        if count:  # of answers never seen in training, which have no probability, there may be nothing else
            total += float(task.loss(network, network(batch), batch, 0.0)) * count
        symbols += count
    return total / max(symbols, 1)
