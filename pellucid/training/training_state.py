"""State of a training: network, optimizer, data and progress. M training examples of an epoch."""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from pathlib import Path

import msgspec
import numpy as np

from pellucid.config.durations import parse_duration
from pellucid.config.settings import Config
from pellucid.config.task_settings import uses_pair_ngram
from pellucid.data.batch_loaders import LoadedBatch, iterate_batches, prefetch
from pellucid.data.batches import Batch, bucket_by_length, collate
from pellucid.data.encoding import EncodedExamples
from pellucid.data.examples import Example
from pellucid.decoding.predictor import Predictor
from pellucid.run_folder.progress import Progress
from pellucid.shapes import Int
from pellucid.tasks.registry import encode_for_task
from pellucid.training.gradients import GradientComputer
from pellucid.training.optimizer import Average, Optimizer, build_average
from pellucid.training.parameter_updates import ParameterUpdater
from pellucid.training.training_length import (
    MIN_EVAL_INTERVAL,
    derived_batch_size,
    derived_epochs,
    derived_eval_interval,
    examples_per_epoch,
)
from pellucid.training.worker_group import WorkerGroup

MIX_IN_STREAM = 0x6D697800
"""Random stream of the earlier pairs that are drawn for an epoch."""


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
        """Derive the other fields from the configuration and the predictor."""
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
    def max_epochs(self) -> float:
        """Maximum number of epochs, which may be a fraction: from the settings, or else from `derived_epochs`."""
        return self.config.training.epochs or derived_epochs(self.examples_per_epoch)

    @property
    def batch_size(self) -> int:
        """Batch size in units of `training.batch_type`: from the settings, or else from `derived_batch_size`."""
        return self.config.training.batch_size or derived_batch_size(self.examples_per_epoch)

    def eval_interval(self, progress: Progress) -> float:
        """Return the number of epochs between validations: from the settings, or else from `derived_eval_interval`.

        Args:
            progress: Progress of the training, which may differ from that of the state.
        """
        training = self.config.training
        if training.eval_interval:
            return max(training.eval_interval, MIN_EVAL_INTERVAL)
        if training.patience or training.lr_schedule == "plateau" or training.weight_averaging == "last":
            return 1.0  # these count validations
        num_valid, expected_epochs = len(self.validation_examples), progress.expected_epochs or math.inf
        return derived_eval_interval(self.examples_per_epoch, num_valid, self.max_epochs, expected_epochs)

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
