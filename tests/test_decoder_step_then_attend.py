"""The step-then-attend decoder: one step compared with its definition, by PyTorch cells.

B batch, S source positions, H hidden units.
"""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import CELLS, SEEDS, assert_tensors_close, batches, few_examples, make_config, make_network
from test_decoder import memory_of
from torch import Tensor, nn

from pellucid.data.batches import Batch
from pellucid.errors import ConfigError
from pellucid.model.decoder import StepThenAttend
from pellucid.model.memory import DecoderCache, DecoderState


def expected_layer_step(
    decoder: StepThenAttend, inputs: Tensor, layer: int, state: DecoderState
) -> tuple[Tensor, Tensor | None]:
    """Compute the step of one layer with a PyTorch cell. With input feeding, the first layer has the input [y; a]."""
    layer_cell = decoder.cells[layer]
    weights: list[Tensor] = [layer_cell.input_weight]
    if layer == 0 and decoder.context_projection is not None:
        weights.append(decoder.context_projection.weight)
    cell = (nn.GRUCell if layer_cell.cell_type == "gru" else nn.LSTMCell)(
        inputs.shape[1], layer_cell.hidden_size
    ).double()
    cell.weight_ih.data, cell.weight_hh.data = torch.cat(weights, dim=1).data, layer_cell.hidden_weight.data
    cell.bias_ih.data, cell.bias_hh.data = layer_cell.input_bias.data, layer_cell.hidden_bias.data
    hidden = state.hidden[:, layer]
    if state.cell_state is None:
        return cell(inputs, hidden), None
    new_state: tuple[Tensor, Tensor] = cell(inputs, (hidden, state.cell_state[:, layer]))
    return new_state


def expected_step(
    decoder: StepThenAttend, symbols: Tensor, state: DecoderState, cache: DecoderCache
) -> tuple[Tensor, Tensor]:
    """Return logits W' a + b and attentional vector a = tanh(W [s; c]), with c from the top (residual) cell."""
    inputs = decoder.table.weight[symbols]
    if state.input_feed is not None:
        inputs = torch.cat([inputs, state.input_feed], dim=1)
    for layer in range(decoder.config.num_layers):
        hidden, _ = expected_layer_step(decoder, inputs, layer, state)
        inputs = hidden + inputs if layer and decoder.config.residual else hidden
    context = decoder.attention(inputs, cache, state.attention_state).context
    parts = {"state": [inputs], "context": [context], "state-and-context": [inputs, context]}[
        decoder.config.output_layer_inputs
    ]
    vector = torch.tanh(torch.cat(parts, dim=1) @ decoder.combination.weight.T)
    if decoder.config.tie_embeddings:
        head: Any = decoder.head
        adapted = vector if head.adapter is None else vector @ head.adapter.weight.T
        return adapted @ decoder.table.weight.T + head.bias, vector
    projection: Any = decoder.head.projection
    return vector @ projection.weight.T + projection.bias, vector


SETTINGS = st.fixed_dictionaries(
    {
        "cell": CELLS,
        "num_layers": st.integers(1, 3),
        "input_feeding": st.booleans(),
        "residual": st.booleans(),
        "tie_embeddings": st.booleans(),
        "output_layer_inputs": st.sampled_from(["state", "context", "state-and-context"]),
        "hidden_size": st.sampled_from([3, 4]),
        "embedding_size": st.sampled_from([3, 4]),
    }
)


@few_examples
@given(SETTINGS, st.sampled_from(["additive", "location", "general"]), batches(), SEEDS)
def test_each_step_equals_its_definition(settings: dict[str, Any], score: str, batch: Batch, seed: int) -> None:
    config = make_config({"decoder": {"order": "step-then-attend", **settings}, "attention": {"type": score}})
    network = make_network(config, seed)
    decoder, memory = network.decoder, memory_of(network, batch)
    assert isinstance(decoder, StepThenAttend)
    state, cache = decoder.init_state(memory), decoder.build_cache(memory)
    assert (state.input_feed is not None) == settings["input_feeding"]
    for symbols in batch.target.unbind(dim=1):
        logits, vector = expected_step(decoder, symbols, state, cache)
        step = decoder.step(symbols, state, cache)
        assert_tensors_close(step.logits, logits)
        assert (step.state.input_feed is not None) == settings["input_feeding"]
        if step.state.input_feed is not None:
            assert_tensors_close(step.state.input_feed, vector)
        state = step.state


def first_two_logits(forced_weights: Tensor | None, input_feeding: bool) -> tuple[Tensor, Tensor]:
    """Return the logits of the forced step and of the next one."""
    network = make_network(make_config({"decoder": {"order": "step-then-attend", "input_feeding": input_feeding}}), 1)
    memory = network.encoder(torch.tensor([[4, 5, 6]]), torch.tensor([3]))
    state, cache = network.decoder.init_state(memory), network.decoder.build_cache(memory)
    first_step = network.decoder.step(torch.tensor([1]), state, cache, forced_weights)
    return first_step.logits, network.decoder.step(torch.tensor([4]), first_step.state, cache).logits


@pytest.mark.parametrize("input_feeding", [False, True])
def test_only_input_feeding_passes_the_attention_to_the_next_step(input_feeding: bool) -> None:
    first, second = first_two_logits(None, input_feeding)
    forced_first, forced_second = first_two_logits(torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64), input_feeding)
    assert not torch.isclose(first, forced_first).any()
    assert torch.equal(second, forced_second) != input_feeding


def test_input_feeding_requires_step_then_attend() -> None:
    with pytest.raises(ConfigError, match=r"decoder\.input_feeding = true needs decoder\.order = 'step-then-attend'"):
        make_config({"decoder": {"input_feeding": True}})
    with pytest.raises(
        ConfigError,
        match=r"decoder\.tie_embeddings = true needs an embedding to share: decoder\.embedding = 'learned' or 'frozen'",
    ):
        make_config({"decoder": {"tie_embeddings": True, "embedding": "one-hot"}})
