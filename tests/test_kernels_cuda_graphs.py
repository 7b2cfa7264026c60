"""CUDA graphs: padding to buckets, recordings by shape, and replay. Without a GPU, a replay reruns its function."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import SEEDS, assert_tensors_close, batches, configs, few_examples, make_config, make_network
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import PAD
from pellucid.kernels import cuda_graphs as graphs
from pellucid.kernels.cuda_graphs import CUDAGraphRunner, RecordedFunction, RecordedGraph, bucket, pad_to_bucket
from pellucid.model.network import Network
from pellucid.training.gradients import GradientComputer, LossAndGradients

CPU = torch.device("cpu")


class RerunGraph(NamedTuple):
    """Graph whose replay reruns the computation on the recorded tensors and writes into the recorded outputs."""

    computation: RecordedFunction
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]

    def replay(self) -> None:
        for output, tensor in zip(self.outputs, self.computation(self.inputs), strict=True):
            output.copy_(tensor)


def record_without_gpu(runner: CUDAGraphRunner, inputs: Sequence[Tensor]) -> RecordedGraph:
    """Replace `CUDAGraphRunner.record` on a machine without a GPU."""
    recorded_inputs = [tensor.clone() for tensor in inputs]
    outputs = [tensor.clone() for tensor in runner.computation(recorded_inputs)]
    return RecordedGraph(RerunGraph(runner.computation, recorded_inputs, outputs), recorded_inputs, outputs)


@given(st.integers(0, 2**20))
def test_a_bucket_is_at_most_a_quarter_larger(length: int) -> None:
    size = bucket(length)
    assert length <= size <= max(4, length + 3, length * 1.25) and bucket(size) == size
    assert bucket(length + 1) >= size


def test_there_are_few_buckets() -> None:
    assert sorted({bucket(length) for length in range(1, 129)}) == [
        *(4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
    ]


def compute_gradients(config: Config, seed: int, batch: Batch) -> dict[str, Tensor]:
    """Return the loss of a batch and all gradients in double precision."""
    network = make_network(config, seed)
    return name_gradients(network, GradientComputer(network, config).compute(batch))


def name_gradients(network: Network, result: LossAndGradients) -> dict[str, Tensor]:
    """Return loss and gradients by parameter name, with zeros in place of None."""
    trainable = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    pairs = zip(trainable, result.gradients, strict=True)
    return {"loss": result.loss, **{name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs}}


@few_examples
@given(configs(), SEEDS, batches())
def test_a_bucketed_batch_has_the_same_loss_and_gradients(config: Config, seed: int, batch: Batch) -> None:
    padded = pad_to_bucket(batch)
    assert padded.source.shape[1] % 4 == padded.target.shape[1] % 4 == 0
    assert (padded.source[:, batch.source.shape[1] :] == PAD).all()
    expected, actual = compute_gradients(config, seed, batch), compute_gradients(config, seed, padded)
    assert actual.keys() == expected.keys() and len(actual) > 5
    for name, tensor in expected.items():
        assert_tensors_close(actual[name], tensor)


def test_a_computation_is_recorded_once_per_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CUDAGraphRunner, "record", record_without_gpu)
    monkeypatch.setattr(graphs, "MAX_SHAPES", 2)
    runner = CUDAGraphRunner(lambda inputs: [inputs[0] * 2, inputs[0].sum()], CPU)
    for size in (3, 4, 3, 5, 4, 5):
        vector = torch.randn(size)
        doubled, total = runner([vector])
        assert_tensors_close(doubled, vector * 2)
        assert_tensors_close(total, vector.sum())
    assert [shapes[0].numel() for shapes in runner.recordings] == [3, 4]


@pytest.mark.slow
@few_examples
@given(st.lists(batches(), min_size=1, max_size=3), SEEDS)
def test_gradients_by_replay_equal_direct_gradients(drawn_batches: list[Batch], seed: int) -> None:
    """One network serves all batches, so that a replay overwrites old gradients."""
    config = make_config({"device": "cuda", "cuda_graphs": True})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CUDAGraphRunner, "record", record_without_gpu)
        network = make_network(config, seed)
        replaying = GradientComputer(network, config)
        for batch in [*drawn_batches, *drawn_batches]:
            actual, expected = (
                name_gradients(network, replaying.compute(batch)),
                compute_gradients(make_config({}), seed, batch),
            )
            assert actual.keys() == expected.keys()
            for name, tensor in expected.items():
                assert_tensors_close(actual[name], tensor)
    shapes = {tuple(ids.shape for ids in pad_to_bucket(batch).tensors()) for batch in drawn_batches}
    assert replaying.graph_runner is not None and replaying.graph_runner.recordings.keys() == shapes
