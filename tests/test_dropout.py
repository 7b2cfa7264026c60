"""Dropout masks: rate, kind, and constancy along a sequence.

B sequences, S positions, E embedding, H hidden units, V vocabulary.
"""

from typing import Any

import pytest
import torch
from small_networks import VOCABULARY_SIZE, assert_tensors_close, gru_step, make_config
from torch import Tensor

from pellucid.model.cells import LayerState, RecurrentCell
from pellucid.model.embedding import Embedding
from pellucid.model.encoder import Encoder
from pellucid.model.recurrence import InputVectors, draw_mask, draw_recurrent_masks, run_rnn


def test_a_mask_has_its_rate_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    mask = draw_mask(torch.zeros(1), (200, 500), 0.3)
    assert_tensors_close(torch.tensor(sorted(set(mask.flatten().tolist()))), torch.tensor([0.0, 1 / 0.7]), 1e-6)
    assert abs(float((mask == 0).float().mean()) - 0.3) < 0.01
    assert abs(float(mask.mean()) - 1) < 0.01


def draw_masks(settings: dict[str, Any], cell: RecurrentCell) -> tuple[Tensor | None, Tensor | None]:
    torch.manual_seed(1)
    [masks] = draw_recurrent_masks([cell.hidden_weight], 3, make_config({"encoder": settings}).encoder)
    return masks.weight, masks.state


def test_recurrent_dropout_masks_weights_or_states() -> None:
    cell = RecurrentCell("gru", 2, 4)
    assert draw_masks({}, cell) == (None, None)
    weight, state = draw_masks({"recurrent_dropout": 0.5}, cell)
    assert state is None and weight is not None
    nonzero = weight != 0
    assert_tensors_close(weight[nonzero], 2 * cell.hidden_weight[nonzero], 1e-6)
    assert 0.2 < float(nonzero.float().mean()) < 0.8
    weight, state = draw_masks({"recurrent_dropout": 0.5, "recurrent_dropout_on": "states"}, cell)
    assert weight is None and state is not None and state.shape == (3, 4)


def test_a_state_mask_is_constant_and_applies_to_u_h_only() -> None:
    torch.manual_seed(0)
    cell, inputs, lengths = RecurrentCell("gru", 2, 4).double(), torch.randn(3, 5, 2).double(), torch.full((3,), 5)
    config = make_config({"encoder": {"recurrent_dropout": 0.5, "recurrent_dropout_on": "states"}}).encoder
    masks = draw_recurrent_masks([cell.hidden_weight], 3, config)
    mask = masks[0].state
    assert mask is not None
    hidden = torch.zeros(3, 4, dtype=torch.float64)
    for step in range(5):
        recurrent = (hidden * mask) @ cell.hidden_weight.T + cell.hidden_bias
        hidden = gru_step(inputs[:, step] @ cell.input_weight.T + cell.input_bias, recurrent, hidden)
    assert_tensors_close(run_rnn([cell], InputVectors(inputs), lengths, masks).final[:, 0], hidden)


def test_masked_weights_equal_a_cell_with_those_weights() -> None:
    torch.manual_seed(0)
    cell, inputs, lengths = RecurrentCell("lstm", 2, 4).double(), torch.randn(3, 5, 2).double(), torch.tensor([5, 1, 3])
    masks = draw_recurrent_masks([cell.hidden_weight], 3, make_config({"encoder": {"recurrent_dropout": 0.5}}).encoder)
    actual = run_rnn([cell], InputVectors(inputs), lengths, masks)
    state = LayerState(*(torch.randn(3, 4, dtype=torch.float64) for _ in range(2)))
    stepped = cell.step(cell.project(inputs[:, 0]), state, masks[0])
    assert masks[0].weight is not None
    cell.hidden_weight.data = masks[0].weight.detach()
    assert_tensors_close(actual.states, run_rnn([cell], InputVectors(inputs), lengths).states)
    assert_tensors_close(stepped.hidden, cell.step(cell.project(inputs[:, 0]), state).hidden)


def test_output_masks_are_drawn_per_step_or_per_sequence() -> None:
    source, lengths = torch.full((4, 30), 5), torch.full((4,), 30)
    for mask, varies in (("step", True), ("sequence", False)):
        torch.manual_seed(0)
        settings = {"dropout": 0.5, "dropout_mask": mask, "hidden_size": 20}
        encoder = Encoder(make_config({"encoder": settings}).encoder, VOCABULARY_SIZE).train()
        dropped = encoder(source, lengths).states == 0
        assert (dropped != dropped[:, :1]).any() == varies
        assert (dropped[0] != dropped[1]).any()


def test_dropped_symbols_are_zero_at_all_positions_and_others_are_rescaled() -> None:
    torch.manual_seed(0)
    table = Embedding("learned", 6, 3, 0.0, 0.25)
    ids, dropped = torch.tensor([[1, 2, 1], [2, 2, 5]]), torch.zeros(2, 6, dtype=torch.bool)
    dropped[0, 1] = dropped[1, 5] = True
    vectors = table.embed(ids, dropped).to_dense()
    dropped_positions = torch.tensor([[True, False, True], [False, False, True]])
    assert not vectors[dropped_positions].any()
    assert_tensors_close(vectors[~dropped_positions], table.weight[ids[~dropped_positions]] / 0.75, 1e-6)
    assert_tensors_close(table.embed(ids[:, 0], dropped).to_dense(), vectors[:, 0], 0)


@pytest.mark.parametrize("training", [False, True])
def test_symbols_are_dropped_at_their_rate_in_training_only(training: bool) -> None:
    torch.manual_seed(0)
    dropped = Embedding("learned", 500, 3, 0.0, 0.25).train(training).draw_dropped_symbols(100)
    assert (dropped is not None) == training
    assert dropped is None or abs(float(dropped.float().mean()) - 0.25) < 0.01
    assert Embedding("learned", 500, 3, 0.0).draw_dropped_symbols(100) is None
