"""Decomposition of attention scores: components by hand, and models with known components."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from inspected import made, traces_of

from pellucid.decoding.ensemble import ensemble
from pellucid.errors import InputError
from pellucid.inspection.replay import Replay, start_replay
from pellucid.inspection.score_decomposition import _TraceAttention, decompose_scores, mean_components
from pellucid.inspection.states import trace_states
from pellucid.model.network import require_seq2seq

SOURCES = ["abc", "cab", "ab", "bbca", "c", "acacb"]
PAIRS = [(source, target) for source, target in zip(SOURCES, ["vw", "x", "zzy", "v", "w", "xyz"], strict=True)]


def centered(scores: np.ndarray) -> np.ndarray:
    return np.asarray(scores - scores.mean(axis=1, keepdims=True))


def components_by_definition(
    values: list[np.ndarray], symbols: Sequence[Sequence[str]]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """μ and μ + χ, by loops."""
    found = []
    for own, names in zip(values, symbols, strict=True):
        temporal, both = np.zeros_like(own), np.zeros_like(own)
        for at, name in enumerate(names):
            temporal[at] = np.mean([each[at] for each in values if len(each) > at], axis=0)
            deviations = [
                other[place] - np.mean([each[place] for each in values if len(each) > place], axis=0)
                for other, others in zip(values, symbols, strict=True)
                for place, symbol in enumerate(others)
                if symbol == name
            ]
            both[at] = temporal[at] + np.mean(deviations, axis=0)
        found.append((temporal, both))
    return found


def test_components_are_the_defined_means() -> None:
    values = [torch.tensor([[1.0], [5.0]]), torch.tensor([[3.0], [1.0], [7.0]])]
    symbols = [["a", "b"], ["b", "a", "a"]]
    (first, first_both), (second, second_both) = mean_components(values, symbols)
    assert first[:, 0].tolist() == [2, 3] and second[:, 0].tolist() == [2, 3, 7]
    a, b = (-1 + -2 + 0) / 3, (2 + 1) / 2
    assert first_both[:, 0].tolist() == pytest.approx([2 + a, 3 + b])
    assert second_both[:, 0].tolist() == pytest.approx([2 + b, 3 + a, 7 + a])


def test_fractions_equal_those_of_the_component_products() -> None:
    """General attention, e = qᵀ W h, whose queries are the decoder's states before: in NumPy."""
    transducer = made("general")
    traces = traces_of(transducer, PAIRS)
    own = trace_states(transducer, traces)
    weight = transducer.network.state_dict()["decoder.attention.key_projection.weight"].numpy()
    starts = []
    for trace in traces:
        ids = torch.tensor([transducer.vocabularies.source.encode(trace.source)])
        with torch.inference_mode():
            memory = transducer.network.encoder(ids, torch.tensor([ids.shape[1]]))
            starts.append(require_seq2seq(transducer.network).decoder.init_state(memory).hidden[0, -1].numpy())
    queries = [np.concatenate([start[None], each.decoder[:-1]]) for start, each in zip(starts, own, strict=True)]
    memories = [each.encoder for each in own]
    fed = [("begin", *trace.target[:-1]) for trace in traces]
    parts = [
        components_by_definition(queries, fed),
        components_by_definition(memories, [trace.source for trace in traces]),
    ]
    sums, total = np.zeros(3), 0.0
    for n in range(len(traces)):
        scores = [
            centered(query @ weight @ memory.T)
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
    transducer = made(kind)
    found = decompose_scores(transducer, traces_of(transducer, PAIRS))
    assert sum(found) == pytest.approx(1) and np.isfinite(found).all()


def test_a_repeated_source_is_fully_temporal() -> None:
    """Every state is the mean of its place."""
    transducer = made()
    found = decompose_scores(transducer, traces_of(transducer, [("abc", "vwx")] * 3))
    np.testing.assert_allclose(found, [1, 0, 0], atol=1e-6)


def test_states_that_depend_on_their_symbol_only_are_input_driven() -> None:
    """An encoder that forgets all before, and a query that never changes: e depends on the symbol alone."""
    transducer = made("general")
    parameters = dict(transducer.network.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            if "encoder" in name and "hidden_weight" in name:
                parameter.zero_()
            if "encoder" in name and "input" in name:
                parameter[16:32] = -50.0 if parameter.dim() == 1 else 0.0  # update gates shut: h' = n
            if "decoder.bridge" in name or ("decoder.cells" in name):
                parameter.zero_()
        parameters["decoder.bridge.bias"].fill_(0.5)
        parameters["decoder.context_projection.weight"].zero_()
    # Each symbol stands equally often at each of two places, so that no place has a mean of its own.
    traces = traces_of(transducer, [("ab", ""), ("ba", ""), ("bc", ""), ("cb", ""), ("ca", ""), ("ac", "")])
    found = decompose_scores(transducer, traces)
    np.testing.assert_allclose(found, [0, 1, 0], atol=1e-6)


def test_a_linear_network_with_known_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """e = q₀ h₀ by hand: of two positions, ±a by the place, ±b by the symbol there, ±d by neither, in all signs.

    Each row is ±(a + σ b + γ d), σ and γ ±1 as often with each other, so the products between the parts sum to zero
    and the parts of the variance are a² : b² : d².
    """
    transducer, place, symbol, rest = made("general"), 1.0, 2.0, 3.0
    with torch.no_grad():
        weight = dict(transducer.network.named_parameters())["decoder.attention.key_projection.weight"]
        weight.zero_()[0, 0] = 1.0
    rows = [("ab", 1), ("ab", -1), ("ba", 1), ("ba", -1)]

    def trace_attention(_: object, replay: Replay) -> list[Any]:
        """Queries (1, 0, …) at both steps; memories whose first unit is the sum of the parts, the others noise."""
        inference, result = start_replay(transducer, replay)[0], []
        for source, sign in rows:
            memory = torch.zeros(2, weight.shape[1], dtype=torch.float64)
            value = place + (symbol if source == "ab" else -symbol) + rest * sign
            memory[:, 0] = torch.tensor([value, -value]) + 7  # a constant of all positions has no effect
            queries = torch.zeros(2, weight.shape[0], dtype=torch.float64)
            queries[:, 0] = 1
            result.append(_TraceAttention(inference, memory, [*source], queries, ["begin", "v"], [None, None]))
        return result

    monkeypatch.setattr("pellucid.inspection.score_decomposition._trace_attention", trace_attention)
    found = decompose_scores(transducer, traces_of(transducer, [(source, "v") for source, _ in rows]))
    total = place**2 + symbol**2 + rest**2
    np.testing.assert_allclose(found, [place**2 / total, symbol**2 / total, rest**2 / total], atol=1e-9)


def test_models_without_softmax_scores_are_refused() -> None:
    for kind in ("monotonic", "none"):
        model = made(kind)
        with pytest.raises(InputError, match="by a softmax"):
            decompose_scores(model, traces_of(model, PAIRS))
    model = made()
    with pytest.raises(InputError, match=r"^traces: expected attention that varies"):
        decompose_scores(model, traces_of(model, [("a", "v")]))
    both = ensemble([model, made(seed=4)], ["a", "b"])
    with pytest.raises(InputError, match="ensemble"):
        decompose_scores(both, both.predict(["abc"]))
