"""CUDA graphs: a computation recorded once for each shape of its inputs, and replayed without the host's part in it.

A small model's update is hundreds of short kernels, and a GPU waits for the host to launch each. This module has not
yet run on a GPU; only what surrounds the recording is tested.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import PAD

SHAPES = 64
"""Shapes recorded at most: each keeps its outputs. Those that come later run unrecorded."""
WARM_UP = 3
"""Runs before the recording, in which libraries allocate, choose and compile what they will use."""

Computation = Callable[[Sequence[Tensor]], Sequence[Tensor]]


class Graph(Protocol):
    """A graph that can be replayed."""

    def replay(self) -> None:
        """Compute the outputs again from the present values of the inputs."""


class RecordedGraph(NamedTuple):
    """A graph, the tensors it reads, and those it writes."""

    graph: Graph
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]


class CUDAGraphRunner:
    """A computation by replay. What it returns is overwritten by the next call.

    The computation must be a function of its inputs, of tensors that stay where they are, and of the GPU's random
    numbers; it must not look at a number on the host.
    """

    def __init__(self, computation: Computation, device: torch.device) -> None:
        """Keep the computation; nothing is recorded yet."""
        self.computation = computation
        self.device = device
        self.recordings: dict[tuple[torch.Size, ...], RecordedGraph] = {}
        self.pool: Any = None

    def __call__(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the computation's results for these inputs, which may be on the host."""
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes not in self.recordings:
            given = [tensor.to(self.device) for tensor in inputs]
            if len(self.recordings) >= SHAPES:
                return self.computation(given)
            self.recordings[shapes] = self.record(given)
        recording = self.recordings[shapes]
        for held, tensor in zip(recording.inputs, inputs, strict=True):
            held.copy_(tensor)
        recording.graph.replay()
        return recording.outputs

    def record(self, inputs: Sequence[Tensor]) -> RecordedGraph:
        """Record the computation for inputs such as these, into memory that all recordings share.

        They may: nothing of one is wanted any more when another is replayed. Random numbers are drawn afterwards as
        though nothing had been: when a shape was first seen is not to be told from what is computed.
        """
        held = [tensor.clone() for tensor in inputs]
        state = torch.cuda.get_rng_state(self.device)
        stream: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.computation(held)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            outputs = self.computation(held)
        torch.cuda.set_rng_state(state, self.device)
        return RecordedGraph(graph, held, outputs)


def pad_to_bucket(batch: Batch) -> Batch:
    """The batch padded to sizes that many batches share. Padding changes nothing but which random numbers are drawn."""
    source, target = (_padded(ids) for ids in (batch.source, batch.target))
    return batch._replace(source=source, target=target)


def bucket(length: int) -> int:
    """The next size of the ladder 4, 8, …, 32, 40, …, 64, 80, …: at most a quarter above, from 16 on."""
    step = max(4, 1 << max(0, length.bit_length() - 3))
    return -(-length // step) * step


def _padded(ids: Tensor) -> Tensor:
    """Columns of PAD up to the bucket's size."""
    return torch.nn.functional.pad(ids, (0, bucket(ids.shape[1]) - ids.shape[1]), value=PAD)
