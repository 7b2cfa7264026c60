"""The decoder: one step compared with its definition, and unrolled steps compared with single steps.

B batch, S source positions, T target positions, H hidden units, D memory, V vocabulary.
"""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    SEEDS,
    VOCABULARY_SIZE,
    assert_tensors_close,
    batches,
    collect_attributes,
    configs,
    few_examples,
    make_config,
    make_network,
    make_padded_ids,
    output_projection,
)
from torch import Tensor, nn

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.model.decoder import Decoder
from pellucid.model.memory import AttentionOutput, DecoderCache, DecoderState, DecoderStepOutput, Memory
from pellucid.model.network import EncoderDecoder


def memory_of(network: EncoderDecoder, batch: Batch) -> Memory:
    memory: Memory = network.encoder(batch.source, batch.source_lengths)
    return memory


def same_states(actual: DecoderState, expected: DecoderState, tolerance: float = 1e-12) -> None:
    assert_tensors_close(actual.hidden, expected.hidden, tolerance)
    assert (actual.cell_state is None) == (expected.cell_state is None)
    if actual.cell_state is not None and expected.cell_state is not None:
        assert_tensors_close(actual.cell_state, expected.cell_state, tolerance)
    assert (actual.attention_state is None) == (expected.attention_state is None)
    if actual.attention_state is not None and expected.attention_state is not None:
        assert_tensors_close(actual.attention_state, expected.attention_state, tolerance)


def expected_layer_step(
    decoder: Decoder, inputs: Tensor, layer: int, state: DecoderState
) -> tuple[Tensor, Tensor | None]:
    """Compute the step of one layer with a PyTorch cell. The first layer has the input [y; c]."""
    layer_cell, context = decoder.cells[layer], decoder.context_projection
    assert context is not None
    weights: list[Tensor] = [layer_cell.input_weight, context.weight] if layer == 0 else [layer_cell.input_weight]
    kind = nn.GRUCell if decoder.config.cell == "gru" else nn.LSTMCell
    cell = kind(inputs.shape[1], layer_cell.hidden_size).double()
    cell.weight_ih.data, cell.weight_hh.data = torch.cat(weights, dim=1).data, layer_cell.hidden_weight.data
    cell.bias_ih.data, cell.bias_hh.data = layer_cell.input_bias.data, layer_cell.hidden_bias.data
    hidden = state.hidden[:, layer]
    if state.cell_state is None:
        return cell(inputs, hidden), None
    new_state: tuple[Tensor, Tensor] = cell(inputs, (hidden, state.cell_state[:, layer]))
    return new_state


def expected_step(
    decoder: Decoder, symbols: Tensor, state: DecoderState, cache: DecoderCache
) -> tuple[Tensor, DecoderState]:
    """Compute c = attention(s of the top layer), the cells in turn, and W [s; c] + b."""
    attention_output: AttentionOutput = decoder.attention(state.hidden[:, -1], cache, state.attention_state)
    inputs = torch.cat([decoder.table.weight[symbols], attention_output.context], dim=1)
    layers = []
    for layer in range(decoder.config.num_layers):
        layers.append(expected_layer_step(decoder, inputs, layer, state))
        inputs = layers[-1][0]
    parts = {
        "state": [inputs],
        "context": [attention_output.context],
        "state-and-context": [inputs, attention_output.context],
    }
    head = output_projection(decoder)
    logits = torch.cat(parts[decoder.config.output_layer_inputs], dim=1) @ head.weight.T + head.bias
    cells = [cell for _, cell in layers if cell is not None]
    hidden = torch.stack([hidden for hidden, _ in layers], 1)
    return logits, DecoderState(
        hidden, torch.stack(cells, 1) if cells else None, attention_state=attention_output.attention_state
    )


@few_examples
@given(configs(), batches(), SEEDS)
def test_each_step_equals_its_definition(config: Config, batch: Batch, seed: int) -> None:
    network = make_network(config, seed)
    decoder, memory = network.decoder, memory_of(network, batch)
    state, cache = decoder.init_state(memory), decoder.build_cache(memory)
    for symbols in batch.target.unbind(dim=1):
        expected, after = expected_step(decoder, symbols, state, cache)
        step = decoder.step(symbols, state, cache)
        assert_tensors_close(step.logits, expected)
        same_states(step.state, after)
        state = step.state


@few_examples
@given(configs(), batches(), SEEDS)
def test_initial_state_is_zero_or_a_projection(config: Config, batch: Batch, seed: int) -> None:
    network = make_network(config, seed)
    decoder, memory = network.decoder, memory_of(network, batch)
    state, L, H = decoder.init_state(memory), config.decoder.num_layers, config.decoder.hidden_size
    for b, length in enumerate(batch.source_lengths.tolist()):
        final, mean = memory.final.hidden[b, -1], memory.states[b, :length].mean(dim=0)
        parts = torch.zeros(2 * L * H, dtype=torch.float64)
        if decoder.bridge is not None:
            parts = (
                decoder.bridge.weight @ (mean if config.decoder.init_hidden == "mean" else final) + decoder.bridge.bias
            )
        assert_tensors_close(state.hidden[b], parts[: L * H].tanh().reshape(L, H))
        assert (state.cell_state is not None) == (config.decoder.cell == "lstm")
        if state.cell_state is not None:
            assert_tensors_close(state.cell_state[b], parts[L * H :].reshape(L, H))


@few_examples
@given(configs(), batches(), SEEDS, st.sampled_from([(torch.float64, 1e-12), (torch.float32, 1e-5)]))
def test_unrolled_steps_equal_single_steps(
    config: Config, batch: Batch, seed: int, precision: tuple[torch.dtype, float]
) -> None:
    dtype, tolerance = precision
    network = make_network(config, seed, dtype)
    decoder, memory = network.decoder, memory_of(network, batch)
    state, cache = decoder.init_state(memory), decoder.build_cache(memory)
    unrolled = decoder.unroll(batch.target, state, cache)
    assert unrolled.logits.shape == (*batch.target.shape, VOCABULARY_SIZE)
    for t, symbols in enumerate(batch.target.unbind(dim=1)):
        step = decoder.step(symbols, state, cache)
        assert_tensors_close(unrolled.logits[:, t], step.logits, tolerance)
        assert_tensors_close(unrolled.weights[:, t], step.attention.weights, tolerance)
        state = step.state
    same_states(unrolled.state, state, tolerance)


@few_examples
@given(configs(), batches(), SEEDS, st.data())
def test_step_of_selected_rows_equals_selected_rows_of_the_step(
    config: Config, batch: Batch, seed: int, data: st.DataObject
) -> None:
    network = make_network(config, seed)
    decoder, memory = network.decoder, memory_of(network, batch)
    state, cache, symbols = decoder.init_state(memory), decoder.build_cache(memory), batch.target[:, 0]
    B = len(symbols)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, B - 1), min_size=1, max_size=7)))
    full_step = decoder.step(symbols, state, cache)
    selected_step = decoder.step(symbols[rows], state.index_select(rows), cache.index_select(rows))
    assert_tensors_close(selected_step.logits, full_step.logits[rows])
    assert_tensors_close(selected_step.attention.weights, full_step.attention.weights[rows])
    same_states(selected_step.state, full_step.state.index_select(rows))


def run_first_step(network: EncoderDecoder, forced_weights: Tensor | None = None) -> tuple[DecoderStepOutput, Memory]:
    source = make_padded_ids([4, 2], 3)
    memory: Memory = network.encoder(source, torch.tensor([4, 2]))
    decoder = network.decoder
    return decoder.step(
        torch.tensor([1, 1]), decoder.init_state(memory), decoder.build_cache(memory), forced_weights
    ), memory


@pytest.mark.parametrize("layers", [1, 2])
def test_override_sets_the_weights_of_a_step(layers: int) -> None:
    network = make_network(make_config({"decoder": {"num_layers": layers}}), 1)
    free, memory = run_first_step(network)
    unchanged, _ = run_first_step(network, free.attention.weights)
    assert torch.equal(unchanged.logits, free.logits)
    assert torch.equal(unchanged.state.hidden, free.state.hidden)
    forced, _ = run_first_step(network, torch.eye(4, dtype=torch.float64)[[3, 0]])
    assert torch.equal(forced.attention.context, memory.states[[0, 1], [3, 0]])
    assert not torch.isclose(forced.logits, free.logits).all(dim=1).any()
    assert not torch.isclose(forced.state.hidden, free.state.hidden).flatten(1).all(dim=1).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_location_attention_uses_forced_weights_at_the_next_step(dtype: torch.dtype) -> None:
    """float32 uses a kernel and float64 uses PyTorch."""
    network = make_network(make_config({"attention": {"type": "location"}}), 1, dtype)
    forced_weights = torch.eye(4, dtype=dtype)[[3, 0]]
    (free, memory), (forced, _) = run_first_step(network), run_first_step(network, forced_weights)
    assert forced.state.attention_state is not None and torch.equal(forced.state.attention_state, forced_weights)
    decoder, cache = network.decoder, network.decoder.build_cache(memory)
    states = [
        forced.state,
        forced.state._replace(attention_state=forced_weights.clone()),
        forced.state._replace(attention_state=free.state.attention_state),
    ]
    after, copied, unforced = (decoder.step(torch.tensor([4, 5]), state, cache).attention.weights for state in states)
    assert torch.equal(after, copied)
    assert not torch.isclose(after[0], unforced[0]).all()


TINY_SETTINGS: list[dict[str, Any]] = [
    {"cell": "gru", "init_hidden": "mean", "output_layer_inputs": "state"},
    {"cell": "lstm", "init_hidden": "final", "output_layer_inputs": "state-and-context", "num_layers": 2},
    {"cell": "gru", "init_hidden": "zero", "output_layer_inputs": "context", "num_layers": 2},
]


@pytest.mark.parametrize("settings", TINY_SETTINGS)
@pytest.mark.parametrize("score", ["additive", "location", "general", "none"])
def test_gradients_through_the_unrolled_decoder_equal_finite_differences(settings: dict[str, Any], score: str) -> None:
    decoder = {"hidden_size": 2, "embedding_size": 2, **settings}
    network = make_network(make_config({"decoder": decoder, "attention": {"type": score, "size": 2}}), 1)
    module, target = network.decoder, make_padded_ids([2, 2], 1)
    _, memory = run_first_step(network)
    states, final = memory.states.detach().requires_grad_(), memory.final.hidden.detach().requires_grad_()

    def unroll(states: Tensor, final: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        inputs = Memory(states, memory.lengths, DecoderState(final))
        unrolled = module.unroll(target, module.init_state(inputs), module.build_cache(inputs))
        return unrolled.logits.sum(dim=-1).tanh(), unrolled.weights

    parameters = [
        parameter for name, parameter in module.named_parameters() if "head" not in name and "table" not in name
    ]
    assert torch.autograd.gradcheck(unroll, (states, final, *parameters), fast_mode=True)


def run_step_and_unroll(network: EncoderDecoder) -> list[tuple[Tensor, Tensor]]:
    """Return logits and states after one step, stepped and unrolled."""
    step, memory = run_first_step(network)
    decoder = network.decoder
    unrolled = decoder.unroll(torch.tensor([[1], [1]]), decoder.init_state(memory), decoder.build_cache(memory))
    return [(step.logits, step.state.hidden), (unrolled.logits[:, 0], unrolled.state.hidden)]


@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_is_applied_between_layers_and_before_the_head(layers: int) -> None:
    torch.manual_seed(1)
    network = make_network(make_config({"decoder": {"dropout": 0.5, "num_layers": layers}}), 1)
    network.decoder.table.dropout = 0.0
    evaluated = run_step_and_unroll(network)
    network.decoder.train()
    for (first_logits, first_state), (second_logits, second_state), (evaluated_logits, _) in zip(
        run_step_and_unroll(network), run_step_and_unroll(network), evaluated, strict=True
    ):
        assert not torch.equal(first_logits, evaluated_logits)
        assert not torch.equal(first_logits, second_logits)
        assert torch.equal(first_state, second_state) == (layers == 1)
    network.decoder.eval()
    for (logits, _), (evaluated_logits, _) in zip(run_step_and_unroll(network), evaluated, strict=True):
        assert torch.equal(logits, evaluated_logits)


@few_examples
@given(configs(), batches(), SEEDS)
def test_decoder_stores_nothing_on_modules(config: Config, batch: Batch, seed: int) -> None:
    network = make_network(config, seed)
    before = collect_attributes(network)
    memory = memory_of(network, batch)
    state, cache = network.decoder.init_state(memory), network.decoder.build_cache(memory)
    network.decoder.step(batch.target[:, 0], state, cache)
    network.decoder.unroll(batch.target, state, cache)
    assert collect_attributes(network) == before
