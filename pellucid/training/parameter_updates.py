"""Update of the parameters by one batch, by a single process or by one of several workers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import PAD
from pellucid.errors import WorkerLostError
from pellucid.model.device import rng_devices, seed_generators
from pellucid.model.network import Network
from pellucid.run_folder.torch_tensors import cpu_tensors
from pellucid.training.gradients import GradientComputer
from pellucid.training.optimizer import Optimizer
from pellucid.training.worker_group import ComparisonRequest, Message, UpdateRequest, WeightedGradients, WorkerGroup


class UpdateResult(NamedTuple):
    """Numbers of one update of the parameters."""

    loss: float
    """Loss of the batch before the update."""
    norm: float
    """Norm of its gradient before clipping by norm. If it is not finite, the parameters are unchanged."""


class ParameterUpdater:
    """Updates of the parameters of a network, each by one batch: loss, gradients, clipping, optimizer.

    Several workers compute the gradients of a batch together. Each then makes the same update of its own parameters.
    """

    def __init__(
        self,
        gradient_computer: GradientComputer,
        optimizer: Optimizer,
        config: Config,
        workers: WorkerGroup | None = None,
    ) -> None:
        """Prepare the updates.

        Args:
            gradient_computer: Computation of the gradients of the network.
            optimizer: Optimizer of the network.
            config: Configuration.
            workers: Workers of a data-parallel training; None for a single process.
        """
        self.gradient_computer = gradient_computer
        self.optimizer = optimizer
        self.config = config
        self.workers = workers

    def update(self, batch: Batch, request: UpdateRequest) -> UpdateResult:
        """Update the parameters by a batch; worker 0 sends it to the other workers, which call `update_with_others`.

        Args:
            batch: Batch, as `GradientComputer.compute` accepts it; with several workers, on the host.
            request: Number of the update, learning rate and scheduled sampling.

        Raises:
            WorkerLostError: A worker has ended.
        """
        if self.workers is None:
            loss, gradients = self.gradient_computer.compute(batch, request.sampling_probability)
            return self._apply(loss, gradients, request)
        self.workers.is_updating = True
        self.workers.send(Message(request, batch.named_tensors()))
        return self.update_with_others(batch, request)

    def update_with_others(self, batch: Batch, request: UpdateRequest) -> UpdateResult:
        """Update the parameters by a batch, of which this worker computes a part; every worker calls this.

        Args:
            batch: The whole batch, on the host.
            request: Number of the update, learning rate and scheduled sampling.

        Raises:
            WorkerLostError: A worker has ended.
        """
        assert self.workers is not None, "expected several workers"
        try:
            own = self._compute_part(batch, request, self.workers)
        except Exception:
            if self.workers.rank == 0:  # the others wait for the sum, and then for a message: that of the end
                with suppress(WorkerLostError, RuntimeError):
                    self.workers.sum_gradients(None, self.gradient_computer.parameters)
                    self.workers.is_updating = False
            raise
        summed = self.workers.sum_gradients(own, self.gradient_computer.parameters)
        self.workers.is_updating = False
        # An optimizer that draws random numbers, such as for stochastic rounding, draws the same ones in each process.
        _seed_update(self.config.seed, request.update, 0, self.gradient_computer.device)
        return self._apply(summed.loss, summed.gradients, request)

    def _compute_part(self, batch: Batch, request: UpdateRequest, workers: WorkerGroup) -> WeightedGradients | None:
        """Return loss and gradients of the part of this worker; None if it has no target position."""
        part = batch.shard(workers.rank, workers.size)
        if part is None:
            return None
        loss, gradients = self.gradient_computer.compute(part, request.sampling_probability)
        return WeightedGradients(loss, gradients, int((part.target != PAD).sum()))

    def _apply(self, loss: Tensor, gradients: Sequence[Tensor | None], request: UpdateRequest) -> UpdateResult:
        """Update the parameters by the gradients of a batch."""
        training = self.config.training
        norm = self.optimizer.update(gradients, request.learning_rate, training.clip_value, training.clip_norm)
        return UpdateResult(float(loss), norm)


def compare_parameters(network: Network, workers: WorkerGroup) -> None:
    """Check that all workers have equal parameters; worker 0 asks the others to compare theirs.

    Args:
        network: Network of this worker.
        workers: Workers of the training.

    Raises:
        RunError: They differ.
        WorkerLostError: A worker has ended.
    """
    if workers.rank == 0:
        workers.send(Message(ComparisonRequest()))
    workers.check_equal(cpu_tensors(network.state_dict()))


@contextmanager
def update_random_numbers(seed: int, update: int, rank: int, device: torch.device) -> Iterator[None]:
    """Seed the random numbers of one update for a block; afterwards the generators are as before.

    They depend on seed, update and worker only, so no generator state has to be saved.

    Args:
        seed: Seed of the run.
        update: Number of updates before this one.
        rank: Number of the worker, from 0; workers draw different random numbers, such as masks of dropout.
        device: Device of the network.
    """
    with torch.random.fork_rng(devices=rng_devices(device)):
        _seed_update(seed, update, rank, device)
        yield


def _seed_update(seed: int, update: int, rank: int, device: torch.device) -> None:
    """Seed the generators with a number that depends on seed, update and worker."""
    entropy = [seed, update, rank] if rank else [seed, update]
    seed_generators(int(np.random.SeedSequence(entropy).generate_state(1)[0]), device)
