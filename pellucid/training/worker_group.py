"""Workers of a data-parallel training: processes that are connected by torch.distributed, and their messages.

Worker 0 runs the training. The others wait for its messages (`pellucid.training.data_parallel`). Messages are
safetensors with a request in JSON; nothing is pickled.
"""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import numpy as np
import safetensors.torch
import torch
from torch import Tensor, distributed

from pellucid.errors import ConfigError, RunError, WorkerLostError, abbreviate_reason, is_out_of_memory
from pellucid.launched_workers import LOCAL_RANK, MASTER_ADDRESS, launched_workers, read_launch_variable, worker_rank
from pellucid.run_folder.tensor_file import encode_tensors, tensor_digest
from pellucid.shapes import Float

CONNECTION_TIME = timedelta(minutes=10)
"""Time within which all workers must connect."""
MESSAGE_TIME = timedelta(hours=12)
"""Time for which a worker waits for a message; worker 0 reads data and validates meanwhile. The end of a process is
noticed at once.
"""
RESTART_ADVICE = "start all workers again: the training resumes from its last checkpoint"
MAX_RESTARTS, OWN_STORE = "TORCHELASTIC_MAX_RESTARTS", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Environment variables of torchrun: number of restarts, and whether each start has a store of addresses of its own."""
REQUEST = "request"
"""Name of the tensor that holds the request of a message."""


class StartRequest(msgspec.Struct, frozen=True, tag=True):
    """Configuration and vocabularies of a training; the tensors are those of network and optimizer."""

    version: str
    """Version of Pellucid."""
    config: msgspec.Raw
    vocabularies: msgspec.Raw


class UpdateRequest(msgspec.Struct, frozen=True, tag=True):
    """One update of the parameters; the tensors are those of the batch."""

    update: int
    """Number of updates before this one."""
    learning_rate: float
    sampling_probability: float
    """Probability of feeding back a predicted symbol (scheduled sampling)."""


class ComparisonRequest(msgspec.Struct, frozen=True, tag=True):
    """Comparison of the parameters of all workers."""


class StopRequest(msgspec.Struct, frozen=True, tag=True):
    """End of the training."""


Request = StartRequest | UpdateRequest | ComparisonRequest | StopRequest


class Message(NamedTuple):
    """Message of worker 0 to the others."""

    request: Request
    tensors: Mapping[str, Tensor] = {}


class WeightedGradients(NamedTuple):
    """Mean loss of some target positions, with its gradients."""

    loss: Float[Tensor, ""]
    gradients: Sequence[Tensor | None]
    """Gradient of each parameter; None where the loss does not depend on it."""
    num_positions: int
    """Number of target positions, without padding."""


class WorkerGroup:
    """Process group of a data-parallel training, with the messages and sums of one of its processes."""

    def __init__(self, process_group: distributed.ProcessGroup) -> None:
        """Use a group of connected processes.

        Args:
            process_group: All processes; its backend sends tensors on the CPU, and on the GPU if training uses one.
        """
        self.process_group = process_group
        self.rank = distributed.get_rank(process_group)
        self.size = distributed.get_world_size(process_group)
        self.is_updating = False
        """True during an update, when the other workers wait for gradients and not for a message."""

    def send(self, message: Message) -> None:
        """Send a message from worker 0 to all others.

        Args:
            message: The message. Its tensors are on the CPU.

        Raises:
            WorkerLostError: A worker has ended.
        """
        request = np.frombuffer(msgspec.json.encode(message.request), np.uint8)
        tensors = {name: value.contiguous() for name, value in message.tensors.items()}
        content = encode_tensors({REQUEST: request, **tensors})
        with _name_lost_workers():
            distributed.broadcast(torch.tensor([len(content)]), 0, self.process_group)
            distributed.broadcast(torch.frombuffer(bytearray(content), dtype=torch.uint8), 0, self.process_group)

    def receive(self) -> Message:
        """Wait for the next message of worker 0 and return it.

        Raises:
            WorkerLostError: Worker 0 has ended.
        """
        length = torch.zeros(1, dtype=torch.int64)
        with _name_lost_workers():
            distributed.broadcast(length, 0, self.process_group)
            content = torch.empty(int(length), dtype=torch.uint8)
            distributed.broadcast(content, 0, self.process_group)
        tensors = safetensors.torch.load(content.numpy().tobytes())
        request: Request = msgspec.json.decode(tensors.pop(REQUEST).numpy().tobytes(), type=Request)
        return Message(request, tensors)

    def sum_gradients(self, part: WeightedGradients | None, parameters: Sequence[Tensor]) -> WeightedGradients:
        """Return loss and gradients of a batch from those of the parts of all workers.

        With n_r target positions, loss L_r and gradients g_r of worker r, and n = Σ_r n_r:

            L = Σ_r n_r L_r / n        g = Σ_r n_r g_r / n

        Args:
            part: Loss and gradients of the part of this worker; None if it has no target position.
            parameters: Parameters of the gradients.

        Raises:
            WorkerLostError: A worker has ended.
        """
        sizes = [parameter.numel() for parameter in parameters]
        total = parameters[0].new_zeros(sum(sizes) + len(sizes) + 2)
        *sums, has_gradient, numbers = torch.split(total, [*sizes, len(sizes), 2])
        if part is not None:
            for index, (gradient, summed) in enumerate(zip(part.gradients, sums, strict=True)):
                if gradient is not None:
                    torch.mul(gradient.flatten(), part.num_positions, out=summed)
                    has_gradient[index] = 1
            numbers[0], numbers[1] = part.num_positions * part.loss, part.num_positions
        with _name_lost_workers():
            distributed.all_reduce(total, group=self.process_group)
        total[: sum(sizes)] /= numbers[1]
        gradients = [
            summed.view_as(parameter) if present else None
            for summed, parameter, present in zip(sums, parameters, has_gradient.tolist(), strict=True)
        ]
        return WeightedGradients(numbers[0] / numbers[1], gradients, int(numbers[1]))

    def check_equal(self, tensors: Mapping[str, Any]) -> None:
        """Check that all workers have equal tensors, bit for bit; every worker calls this.

        Args:
            tensors: Tensors on the CPU, by name.

        Raises:
            RunError: Those of two workers differ.
        """
        own = np.frombuffer(bytes.fromhex(tensor_digest(tensors)), np.int64)
        digests = [torch.empty(len(own), dtype=torch.int64) for _ in range(self.size)]
        with _name_lost_workers():
            distributed.all_gather(digests, torch.from_numpy(own.copy()), self.process_group)
        others = [str(rank) for rank, digest in enumerate(digests) if not torch.equal(digest, digests[0])]
        if others:
            those = f"worker {others[0]} has" if len(others) == 1 else f"workers {', '.join(others)} have"
            raise RunError(
                f"{those} other parameters than worker 0 after the same updates: the processors round differently; use "
                f"machines of one kind, with the same versions of all packages, and {RESTART_ADVICE}"
            )


@contextmanager
def connected_workers() -> Iterator[WorkerGroup | None]:
    """Connect the workers of torchrun, or use a process group that exists, such as that of Ray Train, for a block.

    At the end of the block worker 0 tells the others to stop. The connection of torchrun is closed then.

    Yields:
        The workers; None for a single process.

    Raises:
        ConfigError: PyTorch has no support of several processes here, or a variable of torchrun is not a whole number.
        WorkerLostError: The workers do not connect within `CONNECTION_TIME`.
    """
    exists = distributed.is_available() and distributed.is_initialized()
    if exists and distributed.get_world_size() > 1:
        yield from _used_group(_new_group())
    elif exists or launched_workers() == 1:
        yield None
    else:
        _connect()
        try:
            yield from _used_group(_new_group())
        finally:
            distributed.destroy_process_group()


def _new_group() -> WorkerGroup:
    """Return a group of all connected processes, each of which calls this."""
    with _name_lost_workers():
        return WorkerGroup(distributed.new_group(timeout=MESSAGE_TIME))


def _used_group(workers: WorkerGroup) -> Iterator[WorkerGroup]:
    """Yield the workers; then tell the others that the training has ended, and free the group.

    After Ctrl-C within an update they wait for gradients: then the end of the process ends them.
    """
    try:
        yield workers
    finally:
        if workers.rank == 0 and not workers.is_updating:
            with suppress(WorkerLostError, RuntimeError):  # the training has ended, or the error is raised already
                workers.send(Message(StopRequest()))
        distributed.destroy_process_group(workers.process_group)


def _connect() -> None:
    """Connect the processes of torchrun."""
    if not distributed.is_available():
        raise ConfigError("this build of PyTorch cannot connect processes (torch.distributed): start without torchrun")
    if os.environ.get(MAX_RESTARTS, "0") != "0" and os.environ.get(OWN_STORE) != "1" and worker_rank() == 0:
        warnings.warn(
            f"torchrun restarts the workers of a training only with the variable {OWN_STORE}=1: without it, "
            "new workers find the addresses of dead ones",
            stacklevel=2,
        )
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(read_launch_variable(LOCAL_RANK) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    try:
        distributed.init_process_group(backend, timeout=CONNECTION_TIME)
    except (RuntimeError, ValueError) as error:
        raise WorkerLostError(
            f"the {launched_workers()} workers did not connect ({abbreviate_reason(error)}); check that all were "
            f"started and reach {os.environ[MASTER_ADDRESS]}"
        ) from error


@contextmanager
def _name_lost_workers() -> Iterator[None]:
    """Convert an error of the connection in the block to `WorkerLostError`; a failed allocation remains one."""
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise WorkerLostError(
            f"another worker of this training has ended or cannot be reached ({abbreviate_reason(error)}); "
            f"{RESTART_ADVICE}"
        ) from error
