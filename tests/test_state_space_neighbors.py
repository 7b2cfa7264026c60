"""The nearest states equal a search over all cosines."""

import numpy as np
import pytest
import torch
from untrained_models import PAIRS, make_traces, make_transducer

from pellucid.inspection import state_space as module
from pellucid.inspection.state_space import StateVectors, collect_states, nearest_states
from pellucid.inspection.states import trace_states


@pytest.mark.parametrize("traces_per_chunk", [1, 2, 256])
def test_the_nearest_states_have_the_largest_cosines(traces_per_chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRACES_PER_CHUNK", traces_per_chunk)
    transducer = make_transducer()
    traces = make_traces(transducer, PAIRS)
    corpus_states, states = collect_states(transducer, traces), trace_states(transducer, traces)
    for side, each in (
        (corpus_states.encoder, [s.encoder for s in states]),
        (corpus_states.decoder, [s.decoder for s in states]),
    ):
        vector = each[2][1]
        pairs = [(n, index, row) for n, rows in enumerate(each) for index, row in enumerate(rows)]
        cosines = [row @ vector / np.linalg.norm(row) / np.linalg.norm(vector) for *_, row in pairs]
        order = np.argsort(cosines)[::-1][:4]
        result = nearest_states(side, vector, 4)
        assert result[0][:2] == (2, 1) and result[0][2] == pytest.approx(1)
        np.testing.assert_allclose([cosine for *_, cosine in result], [cosines[index] for index in order], atol=1e-6)
        assert [(n, index) for n, index, _ in result] == [pairs[index][:2] for index in order]


def test_collection_stops_at_the_maximum_and_neighbors_are_at_most_all_states() -> None:
    transducer = make_transducer()
    traces = make_traces(transducer, PAIRS)
    corpus_states = collect_states(transducer, traces, max_states=4)
    assert corpus_states.encoder.traces.tolist() == [0, 0, 0, 1] and corpus_states.decoder.traces.tolist() == [0] * 4
    assert len(nearest_states(corpus_states.encoder, np.ones(corpus_states.encoder.vectors.shape[1]), 99)) == 4
    empty = collect_states(transducer, []).encoder
    vector = np.ones(empty.vectors.shape[1])
    assert nearest_states(empty, vector, 3) == [] and nearest_states(corpus_states.encoder, vector, 0) == []


def test_encoder_and_decoder_states_are_collected_separately_up_to_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first source has five encoder states, but its output has only two decoder states."""
    monkeypatch.setattr(module, "TRACES_PER_CHUNK", 1)
    transducer = make_transducer()
    corpus_states = collect_states(transducer, make_traces(transducer, [("abcab", "v")] * 4), max_states=5)
    assert corpus_states.encoder.traces.tolist() == [0] * 5
    assert corpus_states.decoder.traces.tolist() == [0, 0, 1, 1, 2, 2]


def test_equal_states_keep_their_order_and_zero_has_cosine_zero() -> None:
    vectors = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    side = StateVectors(vectors, np.arange(4), np.zeros(4, np.int64))
    assert [(trace, cosine) for trace, _, cosine in nearest_states(side, np.array([3.0, 0.0]), 4)] == [
        (1, 1),
        (2, 1),
        (0, 0),
        (3, -1),
    ]
