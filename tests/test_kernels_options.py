"""Options that the kernels support: results equal PyTorch, and kernels compute them."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from kernel_cases import CELLS, SEEDS, assert_equal, run_with_and_without_kernels
from small import batches, config_of, network_of
from torch import Tensor

from pellucid.data.batches import Batch
from pellucid.decoding.beam_search import beam
from pellucid.decoding.outputs import LengthLimits
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.cells import LayerState
from pellucid.model.decoder import Decoder
from pellucid.model.network import Network
from pellucid.model.recurrence import DropoutMasks

SUPPORTED: dict[str, Any] = {
    "dropout_mask": "sequence",
    "embedding_dropout": 0.3,
    "recurrent_dropout": 0.3,
    "layer_normalization": "outputs",
    "residual": True,
}
"""Settings of encoder and decoder with which kernels still train."""


@pytest.fixture
def pytorch_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the calls of PyTorch's steps; there are none if kernels compute everything."""
    steps: list[str] = []
    step_layers = Decoder.step_layers

    def watched(self: Decoder, gates: Tensor, layers: list[LayerState], noise: DropoutMasks | None) -> object:
        steps.append("step_layers")
        return step_layers(self, gates, layers, noise)

    monkeypatch.setattr(Decoder, "step_layers", watched)
    return steps


def build_network(cell: str, more: dict[str, Any], seed: int) -> Network:
    sides = {
        "encoder": {"cell": cell, "num_layers": 2, **more},
        "decoder": {"cell": cell, "tie_embeddings": True, **more},
    }
    return network_of(config_of(sides), seed, torch.float32)


@given(batches(), CELLS, SEEDS)
@settings(max_examples=15, deadline=None)
def test_a_training_update_equals_pytorch(batch: Batch, cell: str, seed: int) -> None:
    network = build_network(cell, {"dropout": 0.4, **SUPPORTED}, seed).train()

    def outputs() -> list[torch.Tensor]:
        unrolled = network(batch)
        return [unrolled.logits, unrolled.weights, unrolled.state.hidden]

    # Layer normalization divides by the deviation of a state's units and so enlarges rounding errors.
    assert_equal(*run_with_and_without_kernels(network, outputs, {}, seed), tolerance=1e-3)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_an_update_takes_no_step_in_pytorch(
    cell: str, pytorch_steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a plain recurrence")

    network = build_network(cell, {"dropout": 0.4, **SUPPORTED}, 1).train()
    monkeypatch.setattr("pellucid.model.recurrence.run_torch", refuse)
    network(Batch(torch.tensor([[4, 5]]), torch.tensor([2]), torch.tensor([[4, 2]]), torch.tensor([2])))
    assert pytorch_steps == []


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_tied_embeddings_decode_by_kernels(cell: str, pytorch_steps: list[str]) -> None:
    network = build_network(cell, {"recurrent_dropout": 0.3, "embedding_dropout": 0.3}, 1)
    source, lengths = torch.tensor([[4, 5, 6], [7, 4, 0]]), torch.tensor([3, 2])
    found = beam(network, source, lengths, LengthLimits(0, 5), 3, 3)
    assert pytorch_steps == []
    with disable_kernels():
        expected = beam(network, source, lengths, LengthLimits(0, 5), 3, 3)
    assert [[each.ids.tolist() for each in row] for row in found] == [
        [each.ids.tolist() for each in row] for row in expected
    ]


@pytest.mark.parametrize("kind", ["outputs", "cells"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_unsupported_layer_normalization_decodes_in_pytorch(kind: str, cell: str, pytorch_steps: list[str]) -> None:
    network = build_network(cell, {"layer_normalization": kind}, 1)
    source, lengths = torch.tensor([[4, 5, 6], [7, 4, 0]]), torch.tensor([3, 2])
    found = beam(network, source, lengths, LengthLimits(0, 4), 2, 1)
    assert pytorch_steps and len(found) == 2
    network.double()
    for row, exact in zip(found, beam(network, source, lengths, LengthLimits(0, 4), 2, 1), strict=True):
        assert row[0].ids.tolist() == exact[0].ids.tolist()
