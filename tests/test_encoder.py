"""The encoder: agreement with PyTorch's packed modules, and independence of padding.

B batch, S source positions, D memory, H hidden units per direction.
"""

from contextlib import nullcontext
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    ENCODER_SETTINGS,
    LENGTHS,
    SEEDS,
    VOCABULARY_SIZE,
    assert_tensors_close,
    collect_attributes,
    few_examples,
    make_config,
    make_padded_ids,
    randomize_padding,
    randomize_parameters,
)
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pellucid.config.settings import Cell, CellName
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.cells import RecurrentCell
from pellucid.model.encoder import Encoder
from pellucid.model.memory import Memory

DROPOUT_SETTINGS = {"hidden_size": 3, "embedding_size": 2, "num_layers": 2, "dropout": 0.5}


def build_encoder(settings: dict[str, Any], seed: int = 1) -> Encoder:
    encoder = Encoder(make_config({"encoder": settings}).encoder, VOCABULARY_SIZE).double().eval()
    randomize_parameters(encoder, seed)
    return encoder


def encode(encoder: Encoder, source: Tensor, lengths: list[int]) -> Memory:
    memory: Memory = encoder(source, torch.tensor(lengths))
    return memory


def run_packed_layer(
    kind: CellName, cells: list[RecurrentCell], inputs: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the results of PyTorch's layer over packed rows: states "B S directions H", finals "B directions H"."""
    module = (nn.GRU if kind == "gru" else nn.LSTM)(
        inputs.shape[2], cells[0].hidden_size, batch_first=True, bidirectional=len(cells) == 2
    ).double()
    for cell, suffix in zip(cells, ["_l0", "_l0_reverse"], strict=False):
        for name, ours in cell.named_parameters():
            parameter, operand = ("weight", "bias")["bias" in name], ("ih", "hh")["hidden" in name]
            getattr(module, f"{parameter}_{operand}{suffix}").data.copy_(ours.data)
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    output, last = module(packed)
    states, _ = pad_packed_sequence(output, batch_first=True, total_length=inputs.shape[1])
    final = last if kind == "gru" else last[0]
    return states.reshape(*states.shape[:2], len(cells), -1), final.transpose(0, 1)


def merge_directions(parts: Tensor, merge: str) -> Tensor:
    """Return the merged directions, the last dimension but one."""
    match merge:
        case "sum":
            return parts.sum(dim=-2)
        case "product":
            return parts.prod(dim=-2)
    return parts.flatten(-2)


@few_examples
@given(ENCODER_SETTINGS, LENGTHS, SEEDS)
def test_states_equal_those_of_pytorchs_packed_layers(settings: dict[str, Any], lengths: list[int], seed: int) -> None:
    encoder, source = build_encoder(settings, seed), make_padded_ids(lengths, seed)
    memory = encode(encoder, source, lengths)
    states: Tensor = encoder.table(source)
    for layer in range(encoder.config.num_layers):
        cells = [[*stack][layer] for stack in (encoder.forward_cells, encoder.backward_cells) if [*stack]]
        parts, finals = run_packed_layer(encoder.config.cell, cells, states, memory.lengths)
        merge = encoder.config.merge if len(cells) == 2 else "concatenate"
        states = merge_directions(parts, merge)
        assert_tensors_close(memory.final.hidden[:, layer], merge_directions(finals, merge))
    assert_tensors_close(memory.states, states)
    assert memory.final.cell_state is None
    assert memory.lengths.tolist() == lengths


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_stack_equals_one_deep_module(kind: Cell, bidirectional: bool) -> None:
    encoder = build_encoder(
        {"cell": kind, "num_layers": 3, "hidden_size": 3, "embedding_size": 2, "bidirectional": bidirectional}
    )
    module = (nn.GRU if kind == "gru" else nn.LSTM)(2, 3, 3, batch_first=True, bidirectional=bidirectional).double()
    stacks = [stack for stack in (encoder.forward_cells, encoder.backward_cells) if [*stack]]
    # PyTorch's order for each layer and direction is weight_ih, weight_hh, bias_ih, bias_hh, as in `RecurrentCell`.
    ours = [parameter for cells in zip(*stacks, strict=True) for cell in cells for parameter in cell.parameters()]
    for theirs, parameter in zip(module.parameters(), ours, strict=True):
        theirs.data.copy_(parameter.data)
    lengths = [4, 1, 6]
    source = make_padded_ids(lengths, 7)
    packed = pack_padded_sequence(encoder.table(source), torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(module(packed)[0], batch_first=True)
    assert_tensors_close(encode(encoder, source, lengths).states, states)


@few_examples
@given(ENCODER_SETTINGS, LENGTHS, SEEDS, st.integers(0, 3))
def test_padding_does_not_change_results(settings: dict[str, Any], lengths: list[int], seed: int, columns: int) -> None:
    encoder, source = build_encoder(settings, seed), make_padded_ids(lengths, seed)
    memory = encode(encoder, source, lengths)
    noisy_source = randomize_padding(source, torch.tensor(lengths), seed, columns)
    noisy = encode(encoder, noisy_source, lengths)
    width = source.shape[1]
    assert_tensors_close(noisy.states[:, :width], memory.states)
    assert_tensors_close(noisy.final.hidden, memory.final.hidden)
    for row, length in enumerate(lengths):
        assert not noisy.states[row, length:].any()
    for parameter in encoder.parameters():
        one, two = (
            torch.autograd.grad(m.states.square().sum() + m.final.hidden.sum(), parameter, retain_graph=True)[0]
            for m in (memory, noisy)
        )
        assert_tensors_close(one, two)


@few_examples
@given(ENCODER_SETTINGS, LENGTHS, SEEDS, st.randoms(use_true_random=False))
def test_batch_composition_does_not_change_results(
    settings: dict[str, Any], lengths: list[int], seed: int, random: Random
) -> None:
    encoder, source = build_encoder(settings, seed), make_padded_ids(lengths, seed)
    memory = encode(encoder, source, lengths)
    order = list(range(len(lengths)))
    random.shuffle(order)
    shuffled = encode(encoder, source[order], [lengths[row] for row in order])
    assert_tensors_close(shuffled.states, memory.states[order])
    for row, length in enumerate(lengths):
        single = encode(encoder, source[row : row + 1, :length], [length])
        assert_tensors_close(single.states[0], memory.states[row, :length])
        assert_tensors_close(single.final.hidden[0], memory.final.hidden[row])


def test_a_symbol_in_padding_only_has_no_gradient() -> None:
    encoder = build_encoder({"hidden_size": 3, "num_layers": 2})
    states = encode(encoder, torch.tensor([[4, 5, 4], [5, 6, 7]]), [3, 1]).states
    gradient = torch.autograd.grad(states.sum(), encoder.table.weight)[0]
    assert [bool(row.any()) for row in gradient] == [False] * 4 + [True, True] + [False] * 3


def test_the_final_state_is_last_forward_and_first_backward() -> None:
    encoder = build_encoder({"hidden_size": 3})
    memory = encode(encoder, make_padded_ids([4, 2, 1], 3), [4, 2, 1])
    for row, length in enumerate([4, 2, 1]):
        expected = torch.cat([memory.states[row, length - 1, :3], memory.states[row, 0, 3:]])
        assert torch.equal(memory.final.hidden[row, 0], expected)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_float32_results_agree_alone_and_in_a_batch(kind: Cell) -> None:
    encoder = build_encoder({"cell": kind, "num_layers": 2, "hidden_size": 16, "embedding_size": 16}).float()
    lengths = [9, 1, 5, 9, 3]
    source = make_padded_ids(lengths, 4)
    memory = encode(encoder, source, lengths)
    for row, length in enumerate(lengths):
        assert_tensors_close(
            encode(encoder, source[row : row + 1, :length], [length]).states[0], memory.states[row, :length], 1e-5
        )


def test_dropout_is_active_in_training_only() -> None:
    torch.manual_seed(1)
    encoder, lengths = build_encoder(DROPOUT_SETTINGS), [4, 2]
    source = make_padded_ids(lengths, 5)
    expected = encode(encoder, source, lengths)
    assert torch.equal(encode(encoder, source, lengths).states, expected.states)
    one, two = (encode(encoder.train(), source, lengths) for _ in range(2))
    assert not torch.equal(one.states, two.states)
    assert (one.states[0] == 0).any()
    assert torch.equal(encode(encoder.eval(), source, lengths).states, expected.states)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_encoder_stores_nothing_on_modules(bidirectional: bool) -> None:
    encoder = build_encoder({"bidirectional": bidirectional, "num_layers": 2})
    before = collect_attributes(encoder)
    encode(encoder, make_padded_ids([3, 1], 1), [3, 1])
    assert collect_attributes(encoder) == before


SOURCES_WITH_FEATURES = torch.tensor([[5, 6, 2, 3, 4], [6, 1, 4, 0, 0], [2, 3, 4, 2, 0]])
"""Ids below 5 are symbols; 5 and 6 are features. The rows begin with two features, one and none."""


def build_summing_encoder(layers: int = 1) -> Encoder:
    """Return an encoder of 5 symbols and 2 features that sums the vectors of the features."""
    settings = {"hidden_size": 3, "embedding_size": 2, "feature_merge": "sum", "num_layers": layers}
    encoder = Encoder(make_config({"encoder": settings}).encoder, 7, 5).double().eval()
    randomize_parameters(encoder, 1)
    return encoder


@pytest.mark.parametrize("layers", [1, 2])
def test_summed_features_have_no_positions(layers: int) -> None:
    """The result equals that of an encoder without features over the summed vectors."""
    encoder = build_summing_encoder(layers)
    memory = encode(encoder, SOURCES_WITH_FEATURES, [5, 3, 4])
    assert memory.lengths.tolist() == [3, 2, 4]
    without = Encoder(encoder.config, 12).double().eval()
    table = encoder.table.weight.detach()
    rows = [table[each] + table[[5, 6]].sum(dim=0) for each in (2, 3, 4)] + [table[each] + table[6] for each in (1, 4)]
    state = {**encoder.state_dict(), "table.weight": torch.cat([table, torch.stack(rows)])}
    without.load_state_dict(state)
    for row, ids in enumerate([[7, 8, 9], [10, 11], [2, 3, 4, 2]]):
        expected = encode(without, torch.tensor([ids]), [len(ids)])
        assert_tensors_close(memory.states[row, : len(ids)], expected.states[0])
        assert_tensors_close(memory.final.hidden[row], expected.final.hidden[0])
        assert not memory.states[row, len(ids) :].any()
        assert memory.source is not None
        assert (
            memory.source[row, : len(ids)].tolist() == SOURCES_WITH_FEATURES[row, [2, 1, 0][row] :][: len(ids)].tolist()
        )


@pytest.mark.parametrize("training", [False, True])
def test_kernels_sum_features_like_pytorch(training: bool) -> None:
    """States and gradients agree; the gradients of the features' vectors are not zero."""
    encoder = build_summing_encoder().float().train(training)
    results = []
    for context in (nullcontext, disable_kernels):
        with context():
            torch.manual_seed(1)
            encoder.zero_grad()
            memory = encode(encoder, SOURCES_WITH_FEATURES, [5, 3, 4])
            torch.autograd.backward(memory.states.pow(2).sum())
            assert isinstance(encoder.table.weight.grad, Tensor)
            results.append((memory.states.detach(), encoder.table.weight.grad.clone()))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    assert (results[0][1][[5, 6]].abs().sum(dim=1) > 0).all()
