"""Attention scores are decomposed into components that are known by definition or by construction of the model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import make_config, make_vocabularies, randomize_parameters
from torch import Tensor, nn
from untrained_models import make_traces, make_transducer

from pellucid.config.attention_types import ATTENTION_TYPES
from pellucid.config.settings import AttentionConfig
from pellucid.decoding.ensemble import combine_transducers
from pellucid.decoding.transducer import Transducer
from pellucid.errors import InputError
from pellucid.inspection.replay import Replay, build_replays, start_replay
from pellucid.inspection.score_decomposition import (
    _scores,
    _trace_attention,
    _TraceAttention,
    decompose_scores,
    mean_components,
)
from pellucid.inspection.states import trace_states
from pellucid.model.attention import Attention, attend, group_by_source
from pellucid.model.memory import AttentionOutput, DecoderCache, Memory
from pellucid.model.network import require_encoder_decoder
from pellucid.tasks.registry import build_network

SOURCES = ["abc", "cab", "ab", "bbca", "c", "acacb"]
PAIRS = [(source, target) for source, target in zip(SOURCES, ["vw", "x", "zzy", "v", "w", "xyz"], strict=True)]


def center_rows(scores: np.ndarray) -> np.ndarray:
    return np.asarray(scores - scores.mean(axis=1, keepdims=True))


def compute_components(
    values: list[np.ndarray], symbols: Sequence[Sequence[str]]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return μ and μ + χ of each sequence, computed by loops."""
    result = []
    for value, names in zip(values, symbols, strict=True):
        temporal, temporal_and_input = np.zeros_like(value), np.zeros_like(value)
        for t, name in enumerate(names):
            temporal[t] = np.mean([each[t] for each in values if len(each) > t], axis=0)
            deviations = [
                other[position] - np.mean([each[position] for each in values if len(each) > position], axis=0)
                for other, other_names in zip(values, symbols, strict=True)
                for position, symbol in enumerate(other_names)
                if symbol == name
            ]
            temporal_and_input[t] = temporal[t] + np.mean(deviations, axis=0)
        result.append((temporal, temporal_and_input))
    return result


def test_components_are_the_defined_means() -> None:
    values = [torch.tensor([[1.0], [5.0]]), torch.tensor([[3.0], [1.0], [7.0]])]
    symbols = [["a", "b"], ["b", "a", "a"]]
    (first, first_both), (second, second_both) = mean_components(values, symbols)
    assert first[:, 0].tolist() == [2, 3] and second[:, 0].tolist() == [2, 3, 7]
    a, b = (-1 + -2 + 0) / 3, (2 + 1) / 2
    assert first_both[:, 0].tolist() == pytest.approx([2 + a, 3 + b])
    assert second_both[:, 0].tolist() == pytest.approx([2 + b, 3 + a, 7 + a])


def test_fractions_equal_those_of_the_component_products() -> None:
    """NumPy computes general attention, e = qᵀ W h, where q is the previous decoder state."""
    transducer = make_transducer("general")
    traces = make_traces(transducer, PAIRS)
    states = trace_states(transducer, traces)
    weight = transducer.network.state_dict()["decoder.attention.key_projection.weight"].numpy()
    starts = []
    for trace in traces:
        ids = torch.tensor([transducer.vocabularies.source.encode(trace.source)])
        with torch.inference_mode():
            memory = transducer.network.encoder(ids, torch.tensor([ids.shape[1]]))
            starts.append(require_encoder_decoder(transducer.network).decoder.init_state(memory).hidden[0, -1].numpy())
    queries = [np.concatenate([start[None], each.decoder[:-1]]) for start, each in zip(starts, states, strict=True)]
    memories = [each.encoder for each in states]
    decoder_inputs = [("begin", *trace.target[:-1]) for trace in traces]
    parts = [
        compute_components(queries, decoder_inputs),
        compute_components(memories, [trace.source for trace in traces]),
    ]
    sums, total = np.zeros(3), 0.0
    for n in range(len(traces)):
        scores = [
            center_rows(query @ weight @ memory.T)
            for query, memory in (
                (parts[0][n][0], parts[1][n][0]),
                (parts[0][n][1], parts[1][n][1]),
                (queries[n], memories[n]),
            )
        ]
        steps = (scores[0], scores[1] - scores[0], scores[2] - scores[1])
        sums += [(part * scores[2]).sum() for part in steps]
        total += (scores[2] ** 2).sum()
    np.testing.assert_allclose(decompose_scores(transducer, traces), sums / total, atol=1e-4)


@pytest.mark.parametrize("kind", ["gru", "lstm", "stacked", "luong", "location", "heads", "copying", "general"])
def test_fractions_sum_to_one_for_every_softmax_attention(kind: str) -> None:
    transducer = make_transducer(kind)
    result = decompose_scores(transducer, make_traces(transducer, PAIRS))
    assert sum(result) == pytest.approx(1) and np.isfinite(result).all()


def test_a_repeated_source_is_fully_temporal() -> None:
    """Every state equals the mean of its position."""
    transducer = make_transducer()
    result = decompose_scores(transducer, make_traces(transducer, [("abc", "vwx")] * 3))
    np.testing.assert_allclose(result, [1, 0, 0], atol=1e-6)


def test_states_that_depend_on_their_symbol_only_are_input_driven() -> None:
    """The encoder ignores earlier symbols and the query is constant, so e depends only on the symbol."""
    transducer = make_transducer("general")
    parameters = dict(transducer.network.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            if "encoder" in name and "hidden_weight" in name:
                parameter.zero_()
            if "encoder" in name and "input" in name:
                parameter[16:32] = -50.0 if parameter.dim() == 1 else 0.0  # update gates are 0: h' = n
            if "decoder.bridge" in name or ("decoder.cells" in name):
                parameter.zero_()
        parameters["decoder.bridge.bias"].fill_(0.5)
        parameters["decoder.context_projection.weight"].zero_()
    # Each symbol is equally often at each of two positions, so all positions have equal means.
    traces = make_traces(transducer, [("ab", ""), ("ba", ""), ("bc", ""), ("cb", ""), ("ca", ""), ("ac", "")])
    result = decompose_scores(transducer, traces)
    np.testing.assert_allclose(result, [0, 1, 0], atol=1e-6)


def test_a_linear_network_with_known_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """The score e = q₀ h₀ is the sum of ±a by position, ±b by symbol and ±d by neither, in all combinations.

    Each row is ±(a + σ b + γ d), σ and γ ±1 as often with each other, so the products between the parts sum to zero
    and the parts of the variance are a² : b² : d².
    """
    transducer, position, symbol, rest = make_transducer("general"), 1.0, 2.0, 3.0
    with torch.no_grad():
        weight = dict(transducer.network.named_parameters())["decoder.attention.key_projection.weight"]
        weight.zero_()[0, 0] = 1.0
    rows = [("ab", 1), ("ab", -1), ("ba", 1), ("ba", -1)]

    def trace_attention(_: object, replay: Replay) -> list[Any]:
        """Return queries (1, 0, …) at both steps, and memories whose first unit is the sum of the parts."""
        inference, result = start_replay(transducer, replay)[0], []
        for source, sign in rows:
            memory = torch.zeros(2, weight.shape[1], dtype=torch.float64)
            value = position + (symbol if source == "ab" else -symbol) + rest * sign
            memory[:, 0] = torch.tensor([value, -value]) + 7  # adding a constant to all positions has no effect
            queries = torch.zeros(2, weight.shape[0], dtype=torch.float64)
            queries[:, 0] = 1
            result.append(_TraceAttention(inference, memory, [*source], queries, ["begin", "v"], [None, None]))
        return result

    monkeypatch.setattr("pellucid.inspection.score_decomposition._trace_attention", trace_attention)
    actual = decompose_scores(transducer, make_traces(transducer, [(source, "v") for source, _ in rows]))
    total = position**2 + symbol**2 + rest**2
    np.testing.assert_allclose(actual, [position**2 / total, symbol**2 / total, rest**2 / total], atol=1e-9)


class StatefulAttention(Attention):
    """Bilinear scores plus a term of two parts of the state: one per position, and one number of the source.

    The state has the shape (R, 2, S): the sum of the previous weights, and the number of steps.
    """

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(memory_size, query_size, bias=False)

    def keys(self, memory: Memory) -> Tensor:
        keys: Tensor = self.projection(memory.states)
        return keys

    def initial_attention_state(self, memory: Memory) -> Tensor:
        return memory.states.new_zeros(len(memory.states), 2, memory.states.shape[1])

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        assert attention_state is not None
        sums, steps = attention_state.unbind(1)
        scores = self.query_scores(query, cache) - sums + torch.sin(steps)
        output = attend(scores, cache.memory, forced_weights)
        return output._replace(attention_state=torch.stack([sums + output.weights, steps + 1], 1))

    def query_scores(self, query: Tensor, cache: DecoderCache) -> Tensor:
        assert query.shape[0] % len(cache.memory.final.hidden) == 0  # K queries of each source
        return torch.bmm(group_by_source(query, cache.memory), cache.keys.transpose(1, 2)).flatten(0, 1)


class NumbersAttention(StatefulAttention):
    """Its state has nine numbers per row, of which the last is that of the steps: it turns the scores around."""

    def initial_attention_state(self, memory: Memory) -> Tensor:
        return memory.states.new_zeros(len(memory.states), 9)

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        assert attention_state is not None and attention_state.shape[1] == 9
        scores = self.query_scores(query, cache) * torch.cos(attention_state[:, -1:])
        output = attend(scores, cache.memory, forced_weights)
        return output._replace(attention_state=torch.cat([attention_state[:, 1:], attention_state[:, -1:] + 1], 1))


@pytest.mark.parametrize("attention", [StatefulAttention, NumbersAttention])
def test_a_state_of_any_shape_gives_the_scores_of_the_prediction(
    attention: type[Attention], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ATTENTION_TYPES.registered, "stateful", attention)
    config, vocabularies = make_config({"attention": {"type": "stateful"}}), make_vocabularies("abc")
    network = build_network(config, vocabularies).double().eval()
    randomize_parameters(network, 3)
    transducer = Transducer(config, vocabularies, network)
    traces = make_traces(transducer, PAIRS)
    found = list[int]()
    for replay in build_replays(transducer, traces, padded=False):
        with torch.inference_mode():
            rows = _trace_attention(transducer, replay)
            for size, row in zip(replay.sizes, rows, strict=True):
                expected = center_rows(np.log(traces[size.row].attention))
                np.testing.assert_allclose(_scores(row, row.memory, row.queries)[:, 0], expected, atol=1e-4)
        found += [size.row for size in replay.sizes]
    assert sorted(found) == list(range(len(traces)))
    assert sum(decompose_scores(transducer, traces)) == pytest.approx(1)


def test_models_without_softmax_scores_are_refused() -> None:
    for kind in ("monotonic", "none"):
        model = make_transducer(kind)
        with pytest.raises(InputError, match="by a softmax"):
            decompose_scores(model, make_traces(model, PAIRS))
    model = make_transducer()
    with pytest.raises(InputError, match=r"^traces: expected attention that varies"):
        decompose_scores(model, make_traces(model, [("a", "v")]))
    combined = combine_transducers([model, make_transducer(seed=4)], ["a", "b"])
    with pytest.raises(InputError, match="ensemble"):
        decompose_scores(combined, combined.predict(["abc"]))
