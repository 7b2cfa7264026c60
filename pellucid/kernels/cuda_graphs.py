"""CUDA graphs: a computation recorded once for each shape of its inputs, and replayed without the host's work.

A small model's update is hundreds of short kernels, and a GPU waits for the host to launch each. This module has not
yet run on a GPU; the tests cover only the code around the recording.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import PAD

MAX_SHAPES = 64
"""Largest number of recorded shapes, each of which keeps its outputs. Later shapes run unrecorded."""
WARM_UP_RUNS = 3
"""Runs before the recording, in which libraries allocate memory, select algorithms and compile kernels."""

RecordedFunction = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""Function from tensors to tensors, such as loss and gradients of a batch."""


class Graph(Protocol):
    """A graph that can be replayed."""

    def replay(self) -> None:
        """Compute the outputs again from the present values of the inputs."""


class RecordedGraph(NamedTuple):
    """A graph, the tensors it reads, and the tensors it writes."""

    graph: Graph
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


class CUDAGraphRunner:
    """Run a computation on a GPU: record it for each new shape of its inputs, then replay the recording.

    The next call overwrites the returned tensors. The computation must be a function of its inputs, of tensors at fixed
    addresses, and of the GPU's random numbers; it must not read a value on the host.
    """

    def __init__(self, computation: RecordedFunction, device: torch.device) -> None:
        """Store the computation; the first call with a shape records it.

        Args:
            computation: Function from tensors to tensors, called with tensors on the GPU.
            device: The GPU.
        """
        self.computation = computation
        self.device = device
        self.recordings: dict[tuple[torch.Size, ...], RecordedGraph] = {}
        self.pool: Any = None

    def __call__(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the computation's results, on the GPU. After `MAX_SHAPES` shapes, new ones run without a recording.

        Args:
            inputs: Arguments of the computation, on the GPU or on the host; they are copied.
        """
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes not in self.recordings:
            device_inputs = [tensor.to(self.device) for tensor in inputs]
            if len(self.recordings) >= MAX_SHAPES:
                return self.computation(device_inputs)
            self.recordings[shapes] = self.record(device_inputs)
        recording = self.recordings[shapes]
        for static_input, tensor in zip(recording.inputs, inputs, strict=True):
            static_input.copy_(tensor)
        recording.graph.replay()
        return recording.outputs

    def record(self, inputs: Sequence[Tensor]) -> RecordedGraph:
        """Record the computation for the shapes of the inputs, into memory that all recordings share.

        Sharing is safe: results of one recording are not read after another one is replayed. The state of the random
        number generator is restored, so results do not depend on when a shape was first seen.

        Args:
            inputs: Arguments of the computation, on the GPU.
        """
        static_inputs = [tensor.clone() for tensor in inputs]
        state = torch.cuda.get_rng_state(self.device)
        stream: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_RUNS):
                self.computation(static_inputs)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            outputs = self.computation(static_inputs)
        torch.cuda.set_rng_state(state, self.device)
        return RecordedGraph(graph, static_inputs, outputs)


def pad_to_bucket(batch: Batch) -> Batch:
    """Return the batch with source and target padded to the lengths of `bucket`, which many batches share.

    Padding changes only which random numbers are drawn. The lengths stay as they are.

    Args:
        batch: A batch of ids.
    """
    source, target = (_padded(ids) for ids in (batch.source, batch.target))
    return batch._replace(source=source, target=target)


def bucket(length: int) -> int:
    """Return the first of the lengths 4, 8, …, 32, 40, …, 64, 80, … that is at least this one; 0 for 0.

    It is at most a quarter larger, from 16 on.

    Args:
        length: Number of columns of a batch.
    """
    step = max(4, 1 << max(0, length.bit_length() - 3))
    return -(-length // step) * step


def _padded(ids: Tensor) -> Tensor:
    """Return the ids with columns of PAD up to the bucket's size."""
    return torch.nn.functional.pad(ids, (0, bucket(ids.shape[1]) - ids.shape[1]), value=PAD)
