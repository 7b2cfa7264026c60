"""The decoder: one step against its definition, and unrolled steps against single steps.

B batch, S source positions, T target positions, H hidden units, D memory, V vocabulary.
"""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import SEEDS, WIDTH, batches, config_of, configs, contents, few, head_of, near, network_of, padded
from torch import Tensor, nn

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.model.decoder import Decoder
from pellucid.model.memory import AttentionCache, AttentionOutput, Memory, State, Step
from pellucid.model.network import EncoderDecoder


def memory_of(network: EncoderDecoder, batch: Batch) -> Memory:
    memory: Memory = network.encoder(batch.source, batch.source_lengths)
    return memory


def same_states(one: State, two: State, tolerance: float = 1e-12) -> None:
    near(one.hidden, two.hidden, tolerance)
    assert (one.cell is None) == (two.cell is None)
    if one.cell is not None and two.cell is not None:
        near(one.cell, two.cell, tolerance)
    assert (one.attention_state is None) == (two.attention_state is None)
    if one.attention_state is not None and two.attention_state is not None:
        near(one.attention_state, two.attention_state, tolerance)


def advance_by_definition(decoder: Decoder, inputs: Tensor, layer: int, state: State) -> tuple[Tensor, Tensor | None]:
    """Return one cell's step by PyTorch's cell; the first reads [y; c], whose weights are separate in the decoder."""
    own, context = decoder.cells[layer], decoder.context_projection
    assert context is not None
    weights: list[Tensor] = [own.input_weight, context.weight] if layer == 0 else [own.input_weight]
    kind = nn.GRUCell if decoder.config.cell == "gru" else nn.LSTMCell
    cell = kind(inputs.shape[1], own.hidden_size).double()
    cell.weight_ih.data, cell.weight_hh.data = torch.cat(weights, dim=1).data, own.hidden_weight.data
    cell.bias_ih.data, cell.bias_hh.data = own.input_bias.data, own.hidden_bias.data
    hidden = state.hidden[:, layer]
    if state.cell is None:
        return cell(inputs, hidden), None
    new: tuple[Tensor, Tensor] = cell(inputs, (hidden, state.cell[:, layer]))
    return new


def step_by_definition(decoder: Decoder, symbols: Tensor, state: State, cache: AttentionCache) -> tuple[Tensor, State]:
    """Compute c = attention(s of the top layer), the cells in turn, and W [s; c] + b."""
    attended: AttentionOutput = decoder.attention(state.hidden[:, -1], cache, state.attention_state)
    inputs = torch.cat([decoder.table.weight[symbols], attended.context], dim=1)
    layers = []
    for layer in range(decoder.config.num_layers):
        layers.append(advance_by_definition(decoder, inputs, layer, state))
        inputs = layers[-1][0]
    parts = {"state": [inputs], "context": [attended.context], "state-and-context": [inputs, attended.context]}
    head = head_of(decoder)
    logits = torch.cat(parts[decoder.config.output], dim=1) @ head.weight.T + head.bias
    cells = [cell for _, cell in layers if cell is not None]
    hidden = torch.stack([hidden for hidden, _ in layers], 1)
    return logits, State(hidden, torch.stack(cells, 1) if cells else None, attention_state=attended.attention_state)


@few
@given(configs(), batches(), SEEDS)
def test_each_step_equals_its_definition(config: Config, batch: Batch, seed: int) -> None:
    network = network_of(config, seed)
    decoder, memory = network.decoder, memory_of(network, batch)
    state, cache = decoder.init_state(memory), decoder.prepare(memory)
    for symbols in batch.target.unbind(dim=1):
        expected, after = step_by_definition(decoder, symbols, state, cache)
        step = decoder.step(symbols, state, cache)
        near(step.logits, expected)
        same_states(step.state, after)
        state = step.state


@few
@given(configs(), batches(), SEEDS)
def test_the_initial_state_is_zero_or_a_projection(config: Config, batch: Batch, seed: int) -> None:
    network = network_of(config, seed)
    decoder, memory = network.decoder, memory_of(network, batch)
    state, L, H = decoder.init_state(memory), config.decoder.num_layers, config.decoder.hidden_size
    for b, length in enumerate(batch.source_lengths.tolist()):
        final, mean = memory.final.hidden[b, -1], memory.states[b, :length].mean(dim=0)
        parts = torch.zeros(2 * L * H, dtype=torch.float64)
        if decoder.bridge is not None:
            parts = (
                decoder.bridge.weight @ (mean if config.decoder.init_hidden == "mean" else final) + decoder.bridge.bias
            )
        near(state.hidden[b], parts[: L * H].tanh().reshape(L, H))
        assert (state.cell is not None) == (config.decoder.cell == "lstm")
        if state.cell is not None:
            near(state.cell[b], parts[L * H :].reshape(L, H))


@few
@given(configs(), batches(), SEEDS, st.sampled_from([(torch.float64, 1e-12), (torch.float32, 1e-5)]))
def test_unrolled_steps_equal_single_steps(
    config: Config, batch: Batch, seed: int, precision: tuple[torch.dtype, float]
) -> None:
    dtype, tolerance = precision
    network = network_of(config, seed, dtype)
    decoder, memory = network.decoder, memory_of(network, batch)
    state, cache = decoder.init_state(memory), decoder.prepare(memory)
    unrolled = decoder.unroll(batch.target, state, cache)
    assert unrolled.logits.shape == (*batch.target.shape, WIDTH)
    for t, symbols in enumerate(batch.target.unbind(dim=1)):
        step = decoder.step(symbols, state, cache)
        near(unrolled.logits[:, t], step.logits, tolerance)
        near(unrolled.weights[:, t], step.attention.weights, tolerance)
        state = step.state
    same_states(unrolled.state, state, tolerance)


@few
@given(configs(), batches(), SEEDS, st.data())
def test_a_step_of_selected_rows_equals_selected_rows_of_the_step(
    config: Config, batch: Batch, seed: int, data: st.DataObject
) -> None:
    network = network_of(config, seed)
    decoder, memory = network.decoder, memory_of(network, batch)
    state, cache, symbols = decoder.init_state(memory), decoder.prepare(memory), batch.target[:, 0]
    B = len(symbols)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, B - 1), min_size=1, max_size=7)))
    whole = decoder.step(symbols, state, cache)
    taken = decoder.step(symbols[rows], state.index_select(rows), cache.index_select(rows))
    near(taken.logits, whole.logits[rows])
    near(taken.attention.weights, whole.attention.weights[rows])
    same_states(taken.state, whole.state.index_select(rows))


def first_step(network: EncoderDecoder, override: Tensor | None = None) -> tuple[Step, Memory]:
    source = padded([4, 2], 3)
    memory: Memory = network.encoder(source, torch.tensor([4, 2]))
    decoder = network.decoder
    return decoder.step(torch.tensor([1, 1]), decoder.init_state(memory), decoder.prepare(memory), override), memory


@pytest.mark.parametrize("layers", [1, 2])
def test_an_override_forces_the_weights_of_a_step(layers: int) -> None:
    network = network_of(config_of({"decoder": {"num_layers": layers}}), 1)
    own, memory = first_step(network)
    same, _ = first_step(network, own.attention.weights)
    assert torch.equal(same.logits, own.logits)
    assert torch.equal(same.state.hidden, own.state.hidden)
    forced, _ = first_step(network, torch.eye(4, dtype=torch.float64)[[3, 0]])
    assert torch.equal(forced.attention.context, memory.states[[0, 1], [3, 0]])
    assert not torch.isclose(forced.logits, own.logits).all(dim=1).any()
    assert not torch.isclose(forced.state.hidden, own.state.hidden).flatten(1).all(dim=1).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_location_attention_reads_forced_weights_at_the_next_step(dtype: torch.dtype) -> None:
    """A kernel computes in single precision, PyTorch in double; forced weights change the next step."""
    network = network_of(config_of({"attention": {"type": "location"}}), 1, dtype)
    override = torch.eye(4, dtype=dtype)[[3, 0]]
    (free, memory), (forced, _) = first_step(network), first_step(network, override)
    assert forced.state.attention_state is not None and torch.equal(forced.state.attention_state, override)
    decoder, cache = network.decoder, network.decoder.prepare(memory)
    states = [
        forced.state,
        forced.state._replace(attention_state=override.clone()),
        forced.state._replace(attention_state=free.state.attention_state),
    ]
    after, same, other = (decoder.step(torch.tensor([4, 5]), state, cache).attention.weights for state in states)
    assert torch.equal(after, same)
    assert not torch.isclose(after[0], other[0]).all()


TINY: list[dict[str, Any]] = [
    {"cell": "gru", "init_hidden": "mean", "output": "state"},
    {"cell": "lstm", "init_hidden": "final", "output": "state-and-context", "num_layers": 2},
    {"cell": "gru", "init_hidden": "zero", "output": "context", "num_layers": 2},
]


@pytest.mark.parametrize("settings", TINY)
@pytest.mark.parametrize("score", ["additive", "location", "general", "none"])
def test_gradients_through_the_unrolled_decoder_equal_finite_differences(settings: dict[str, Any], score: str) -> None:
    decoder = {"hidden_size": 2, "embedding_size": 2, **settings}
    network = network_of(config_of({"decoder": decoder, "attention": {"type": score, "size": 2}}), 1)
    unrolling, target = network.decoder, padded([2, 2], 1)
    _, memory = first_step(network)
    states, final = memory.states.detach().requires_grad_(), memory.final.hidden.detach().requires_grad_()

    def unroll(states: Tensor, final: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        held = Memory(states, memory.lengths, State(final))
        unrolled = unrolling.unroll(target, unrolling.init_state(held), unrolling.prepare(held))
        return unrolled.logits.sum(dim=-1).tanh(), unrolled.weights

    small = [
        parameter for name, parameter in unrolling.named_parameters() if "head" not in name and "table" not in name
    ]
    assert torch.autograd.gradcheck(unroll, (states, final, *small), fast_mode=True)


def unrolled_and_stepped(network: EncoderDecoder) -> list[tuple[Tensor, Tensor]]:
    """Return logits and states after one step, stepped and unrolled."""
    step, memory = first_step(network)
    decoder = network.decoder
    unrolled = decoder.unroll(torch.tensor([[1], [1]]), decoder.init_state(memory), decoder.prepare(memory))
    return [(step.logits, step.state.hidden), (unrolled.logits[:, 0], unrolled.state.hidden)]


@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_is_applied_between_layers_and_before_the_head(layers: int) -> None:
    torch.manual_seed(1)
    network = network_of(config_of({"decoder": {"dropout": 0.5, "num_layers": layers}}), 1)
    network.decoder.table.dropout = 0.0
    evaluated = unrolled_and_stepped(network)
    network.decoder.train()
    for (one, state), (two, other), (kept, _) in zip(
        unrolled_and_stepped(network), unrolled_and_stepped(network), evaluated, strict=True
    ):
        assert not torch.equal(one, kept)
        assert not torch.equal(one, two)
        assert torch.equal(state, other) == (layers == 1)
    network.decoder.eval()
    for (again, _), (kept, _) in zip(unrolled_and_stepped(network), evaluated, strict=True):
        assert torch.equal(again, kept)


@few
@given(configs(), batches(), SEEDS)
def test_the_decoder_stores_nothing_on_modules(config: Config, batch: Batch, seed: int) -> None:
    network = network_of(config, seed)
    before = contents(network)
    memory = memory_of(network, batch)
    state, cache = network.decoder.init_state(memory), network.decoder.prepare(memory)
    network.decoder.step(batch.target[:, 0], state, cache)
    network.decoder.unroll(batch.target, state, cache)
    assert contents(network) == before
