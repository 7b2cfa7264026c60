"""The attention decoder of the lessons against weights that were trained with the original layer in 2016.

What stands around the layer (convolutions, a bidirectional LSTM, two dense layers) is written out here in float64.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pellucid.model.memory import Memory, State
from pellucid.model.peephole import Cell, Peepholes, late_peephole_step, peephole_step
from pellucid.recipes.digits.networks import ContextDecoder

FOLDER = Path(os.environ.get("PELLUCID_DATA", "../shared/data")) / "protein-golden"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"{FOLDER} is not there: the weights of 2016 are not at hand"
)


@pytest.fixture(scope="module")
def weights() -> list[Tensor]:
    with np.load(FOLDER / "CNN-LSTM-Attention_params.npz") as stored:
        return [torch.from_numpy(stored[f"arr_{at}"]).double() for at in range(64)]


@pytest.fixture(scope="module")
def proteins() -> tuple[Tensor, Tensor, Tensor]:
    """Profiles, their places, and their lengths."""
    with np.load(FOLDER / "reduced_val.npz") as stored:
        lengths = torch.from_numpy(stored["mask_val"]).sum(dim=1).long()
        return torch.from_numpy(stored["X_val"]).double(), torch.from_numpy(stored["y_val"]).long(), lengths


def convolved(inputs: Tensor, filters: Tensor, bias: Tensor) -> Tensor:
    """ReLU of a true convolution (filters flipped) that keeps the length."""
    return torch.relu(nn.functional.conv1d(inputs, filters.flip(2), bias, padding="same"))


def lstm(inputs: Tensor, lengths: Tensor, weights: list[Tensor], backwards: bool) -> Tensor:
    """An LSTM with peepholes over the positions of each row; over padding its state stands still."""
    given, recurrent = torch.cat(weights[0:12:3], dim=1), torch.cat(weights[1:12:3], dim=1)
    bias, peepholes = torch.cat(weights[2:12:3]), Peepholes(*weights[12:15])
    state = Cell(weights[16].expand(len(inputs), -1), weights[15].expand(len(inputs), -1))
    states = torch.zeros(*inputs.shape[:2], recurrent.shape[0], dtype=torch.float64)
    order = range(inputs.shape[1] - 1, -1, -1) if backwards else range(inputs.shape[1])
    for place in order:
        after = peephole_step(inputs[:, place] @ given + state.hidden @ recurrent + bias, state, peepholes)
        inside = (place < lengths)[:, None]
        state = Cell(*(torch.where(inside, new, old) for new, old in zip(after, state, strict=True)))
        states[:, place] = state.hidden
    return states


@pytest.fixture(scope="module")
def encoded(weights: list[Tensor], proteins: tuple[Tensor, Tensor, Tensor]) -> Memory:
    """What the layer looks at."""
    profiles, _, lengths = proteins
    inputs = profiles.transpose(1, 2)
    both = torch.cat([convolved(inputs, *weights[0:2]), convolved(inputs, *weights[2:4])], dim=1)
    features = convolved(both, *weights[4:6]).transpose(1, 2)
    states = [
        lstm(features, lengths, weights[first : first + 17], backwards) for first, backwards in ((6, False), (23, True))
    ]
    return Memory(torch.cat(states, dim=2), lengths, State(torch.zeros(len(lengths), 1, 30, dtype=torch.float64)))


def decoder_of(weights: list[Tensor], late: bool) -> ContextDecoder:
    """The layer with the weights of 2016."""
    decoder = ContextDecoder(30, 30, 15, late_peephole_step if late else peephole_step).double()
    own = weights[40:58]
    with torch.no_grad():
        decoder.hidden_weight.copy_(torch.cat(own[0:8:2], dim=1).T)
        decoder.bias.copy_(torch.cat(own[1:8:2]))
        decoder.context_weight.copy_(torch.cat(own[8:12], dim=1).T)
        for peephole, stored in zip(
            (decoder.enter_peephole, decoder.forget_peephole, decoder.leave_peephole), own[12:15], strict=True
        ):
            peephole.copy_(stored)
        decoder.attention.query_projection.weight.copy_(own[15].T)
        decoder.attention.key_projection.weight.copy_(own[16].T)
        decoder.attention.energy.copy_(own[17][:, 0])
    return decoder


def judged(decoder: ContextDecoder, encoded: Memory, weights: list[Tensor], places: Tensor) -> tuple[float, int]:
    """Loss, and how many places are right."""
    with torch.no_grad():
        contexts, _ = decoder(encoded, 2)
        hidden = torch.relu(contexts[:, -1] @ weights[60] + weights[61])
        logits = hidden @ weights[62] + weights[63]
    return float(nn.functional.cross_entropy(logits, places)), int((logits.argmax(dim=1) == places).sum())


def test_the_layer_repeats_what_was_published(
    encoded: Memory, weights: list[Tensor], proteins: tuple[Tensor, Tensor, Tensor]
) -> None:
    loss, right = judged(decoder_of(weights, late=True), encoded, weights, proteins[1])
    assert loss == pytest.approx(0.624966, abs=1e-6) and right == 527


def test_the_peephole_in_its_right_place_gives_another_loss(
    encoded: Memory, weights: list[Tensor], proteins: tuple[Tensor, Tensor, Tensor]
) -> None:
    loss, right = judged(decoder_of(weights, late=False), encoded, weights, proteins[1])
    assert loss == pytest.approx(0.6252, abs=5e-5) and right == 527
