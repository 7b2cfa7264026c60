"""Networks of the Spanish post equal their equations in NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from spanish_cases import SMALL_ARCHITECTURE, TENSORS, make_small_network
from torch import Tensor, nn

from pellucid.model.network import parameter_count
from pellucid.recipes.spanish.networks import (
    SpanishArchitecture,
    SpanishNetwork,
    SpanishStepState,
    TensorFlowAttention,
    TensorFlowGRU,
    TensorFlowLSTM,
    masked_softmax,
    softmax_with_padding,
)
from pellucid.recipes.spanish.sentences import (
    GO,
)
from pellucid.recipes.spanish.studies import PaddingMode
from pellucid.recipes.spanish.training import (
    slice_rows,
)


def sigmoid(values: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-values))
    return result


def numpy_weights(layer: nn.Linear) -> tuple[np.ndarray, np.ndarray]:
    return layer.weight.detach().numpy().T, layer.bias.detach().numpy()


def numpy_gru_step(cell: TensorFlowGRU, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    gates, gate_bias = numpy_weights(cell.gates)
    candidate_weight, candidate_bias = numpy_weights(cell.candidate)
    activations = sigmoid(np.concatenate([x, h], axis=1) @ gates + gate_bias)
    reset, update = activations[:, : h.shape[1]], activations[:, h.shape[1] :]
    candidate = np.tanh(np.concatenate([x, reset * h], axis=1) @ candidate_weight + candidate_bias)
    new_state: np.ndarray = update * h + (1 - update) * candidate
    return new_state


@pytest.mark.parametrize(("plain", "parameters"), [(False, 1_820_922), (True, 1_279_722)])
def test_number_of_parameters_with_the_authors_vocabularies(plain: bool, parameters: int) -> None:
    assert (
        parameter_count(SpanishNetwork(SpanishArchitecture("plain" if plain else "attention"), 215, 222)) == parameters
    )


def test_decoder_step_equals_its_equations() -> None:
    network = make_small_network(SMALL_ARCHITECTURE._replace(heads=2))
    batch = slice_rows(TENSORS, 0, 3)
    encoded = network.encode(batch.source, batch.lengths)
    initial, features = network.init_decoder(encoded)
    assert features is not None and network.attention is not None
    before = network.step(network.target_embedding[batch.inputs[:, 0]], initial, features).new_state
    step = network.step(network.target_embedding[batch.inputs[:, 1]], before, features)

    states, contexts = encoded.outputs.detach().numpy(), before.head_outputs.contexts.detach().numpy()
    y = network.target_embedding.detach().numpy()[batch.inputs[:, 1].numpy()]
    merge, merge_bias = numpy_weights(network.merge)
    x = np.concatenate([y, contexts[:, 0], contexts[:, 1]], axis=1) @ merge + merge_bias
    assert isinstance(network.cell, TensorFlowGRU)
    h = numpy_gru_step(network.cell, x, before.state.detach().numpy())
    head_contexts = []
    for head in range(2):
        query, query_bias = numpy_weights(network.attention.queries[head])  # type: ignore[arg-type]
        key = network.attention.projections[head].detach().numpy()
        v = network.attention.vectors[head].detach().numpy()
        e = np.einsum("bsh,h->bs", np.tanh(states @ key + (h @ query + query_bias)[:, None]), v)
        alpha = np.exp(e) / np.exp(e).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(
            step.new_state.head_outputs.weights[:, head].detach().numpy(), alpha, rtol=2e-5, atol=1e-7
        )
        head_contexts.append(np.einsum("bs,bsh->bh", alpha, states))
    project, project_bias = numpy_weights(network.project)
    output = np.concatenate([h, *head_contexts], axis=1) @ project + project_bias
    np.testing.assert_allclose(step.new_state.state.detach().numpy(), h, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(step.output.detach().numpy(), output, rtol=2e-5, atol=1e-6)


def test_lstm_equals_its_equations_and_returns_cell_and_hidden_state() -> None:
    torch.manual_seed(1)
    cell, x, state = TensorFlowLSTM(3, 4), torch.randn(2, 3), torch.randn(2, 8)
    gates, bias = numpy_weights(cell.gates)
    c, h = np.split(state.numpy(), 2, axis=1)
    i, j, f, o = np.split(np.concatenate([x.numpy(), h], axis=1) @ gates + bias, 4, axis=1)
    new_cell = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
    output, new_state = cell(x, state)
    expected = np.hstack([new_cell, sigmoid(o) * np.tanh(new_cell)])
    np.testing.assert_allclose(new_state.detach().numpy(), expected, rtol=1e-5)
    assert torch.equal(output, new_state[:, 4:])


def test_1x1_convolution_is_a_product_without_padding() -> None:
    torch.manual_seed(2)
    attention, states = TensorFlowAttention(4, 4, 1, softmax_with_padding), torch.randn(2, 7, 4)
    kernel = attention.projections[0].T[:, :, None, None]
    convolved = nn.functional.conv2d(states.permute(0, 2, 1)[..., None], kernel, padding="same")
    assert convolved.shape == (2, 4, 7, 1)
    keys = attention.build_features(states, torch.tensor([7, 7])).keys[0]
    torch.testing.assert_close(convolved[..., 0].permute(0, 2, 1), keys)


@pytest.mark.parametrize(("normalize", "attends_padding"), [(softmax_with_padding, True), (masked_softmax, False)])
def test_padding_is_attended_or_masked(normalize: Callable[[Tensor, Tensor], Tensor], attends_padding: bool) -> None:
    weights = normalize(torch.tensor([[1.0, 2.0, 0.5]]), torch.tensor([2]))
    assert float(weights.sum()) == pytest.approx(1.0)
    assert bool(weights[0, 2] > 0) == attends_padding


def test_encoder_outputs_on_padding_are_zero_and_the_state_is_copied() -> None:
    network, batch = make_small_network(), slice_rows(TENSORS, 0, 4)
    encoded = network.encode(batch.source, batch.lengths)
    unpadded = network.encode(batch.source[1:2, : int(batch.lengths[1])], batch.lengths[1:2])
    torch.testing.assert_close(encoded.state[1:2], unpadded.state)
    assert (encoded.outputs[1, int(batch.lengths[1]) :] == 0).all()


@pytest.mark.parametrize(("padding", "same"), [("masked", True), ("attended", False)])
def test_outputs_are_independent_of_padding_only_with_a_mask(padding: PaddingMode, same: bool) -> None:
    network, batch = make_small_network(SMALL_ARCHITECTURE._replace(padding=padding)), slice_rows(TENSORS, 1, 2)
    wide = network(network.encode(batch.source, batch.lengths), batch.inputs).outputs
    narrow = network(network.encode(batch.source[:, : int(batch.lengths[0])], batch.lengths), batch.inputs).outputs
    assert torch.allclose(wide, narrow, atol=1e-6) == same


def test_initial_state_attention_sets_the_context_of_the_first_step() -> None:
    batch = slice_rows(TENSORS, 0, 2)
    zero_context, attending = (
        make_small_network(),
        make_small_network(SMALL_ARCHITECTURE._replace(initial_state_attention=True)),
    )
    attending.load_state_dict(zero_context.state_dict())
    for network, zero in ((zero_context, True), (attending, False)):
        encoded = network.encode(batch.source, batch.lengths)
        state, features = network.init_decoder(encoded)
        assert bool((state.head_outputs.contexts == 0).all()) == zero
        if not zero and network.attention is not None and features is not None:
            assert torch.equal(state.head_outputs.contexts, network.attention(encoded.state, features).contexts)


@pytest.mark.parametrize("updating", [False, True])
def test_predicted_words_train_the_embedding_only_if_requested(updating: bool) -> None:
    network, batch = make_small_network(), slice_rows(TENSORS, 0, 4)
    output = network.feed_previous(network.encode(batch.source, batch.lengths), 6, updating)
    torch.autograd.backward(output.outputs.square().sum())
    gradient = network.target_embedding.grad
    assert gradient is not None
    trained = set(gradient.abs().sum(dim=1).nonzero().flatten().tolist())
    inputs = set(output.inputs.flatten().tolist())
    assert len(inputs) > 1 and trained == (inputs if updating else {GO})


def test_teacher_forcing_with_the_predicted_words_equals_free_running() -> None:
    network, batch = make_small_network(), slice_rows(TENSORS, 0, 2)
    encoded = network.encode(batch.source, batch.lengths)
    free_running = network.feed_previous(encoded, 5, False)
    teacher_forcing = network(encoded, free_running.inputs)
    torch.testing.assert_close(free_running.outputs, teacher_forcing.outputs)
    most_probable = network.softmax(free_running.outputs).argmax(dim=2)
    assert torch.equal(free_running.inputs[:, 1:], most_probable[:, :-1])


def test_initial_parameters_are_those_of_tensorflow() -> None:
    network = SpanishNetwork(SpanishArchitecture(), 215, 222)
    assert network.attention is not None and isinstance(network.cell, TensorFlowGRU)
    bounds = {
        0.1181: network.source_embedding,
        0.1162: network.target_embedding,
        0.0707: network.cell.gates.weight,
        0.1000: network.attention.projections[0],
        1.7321: network.attention.vectors[0],
        1.7320: network.softmax.bias,
    }
    for bound, parameter in bounds.items():
        assert 0.97 * bound < float(parameter.detach().abs().max()) <= bound + 1e-4
    assert (network.cell.gates.bias == 1).all() and (network.cell.candidate.bias == 0).all()
    assert (network.merge.bias == 0).all() and (network.project.bias == 0).all()


def test_dropout_sets_half_of_the_outputs_to_zero_and_keeps_the_state() -> None:
    network, batch = make_small_network(), slice_rows(TENSORS, 0, 4)
    expected = network.encode(batch.source, batch.lengths)
    torch.manual_seed(0)
    dropped = network.train().encode(batch.source, batch.lengths)
    assert torch.equal(expected.state, dropped.state)
    words = torch.arange(expected.outputs.shape[1]) < batch.lengths[:, None]
    fraction = float((dropped.outputs[words] == 0).float().mean())
    assert 0.4 < fraction < 0.6
    is_kept = (dropped.outputs != 0) & words[:, :, None]
    torch.testing.assert_close(dropped.outputs[is_kept], 2 * expected.outputs[is_kept])


def test_steps_do_not_change_their_state() -> None:
    network, batch = make_small_network(), slice_rows(TENSORS, 0, 2)
    encoded = network.encode(batch.source, batch.lengths)
    state, features = network.init_decoder(encoded)
    embedded = network.target_embedding[batch.inputs[:, 0]]
    one, other = (network.step(embedded, SpanishStepState(*state), features) for _ in range(2))
    assert torch.equal(one.output, other.output)
