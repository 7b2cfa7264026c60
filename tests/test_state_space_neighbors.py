"""Nearest states: compared with all cosines."""

import numpy as np
import pytest
import torch
from untrained_models import PAIRS, make_traces, make_transducer

from pellucid.inspection import state_space as module
from pellucid.inspection.state_space import StateVectors, collect_states, nearest_states
from pellucid.inspection.states import trace_states


@pytest.mark.parametrize("at_once", [1, 2, 256])
def test_the_nearest_states_have_the_largest_cosines(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRACES_PER_CHUNK", at_once)
    transducer = make_transducer()
    traces = make_traces(transducer, PAIRS)
    gathered, own = collect_states(transducer, traces), trace_states(transducer, traces)
    for side, each in ((gathered.encoder, [s.encoder for s in own]), (gathered.decoder, [s.decoder for s in own])):
        vector = each[2][1]
        pairs = [(n, at, row) for n, rows in enumerate(each) for at, row in enumerate(rows)]
        cosines = [row @ vector / np.linalg.norm(row) / np.linalg.norm(vector) for *_, row in pairs]
        order = np.argsort(cosines)[::-1][:4]
        found = nearest_states(side, vector, 4)
        assert found[0][:2] == (2, 1) and found[0][2] == pytest.approx(1)
        np.testing.assert_allclose([cosine for *_, cosine in found], [cosines[at] for at in order], atol=1e-6)
        assert [(n, at) for n, at, _ in found] == [pairs[at][:2] for at in order]


def test_collection_stops_at_the_maximum_and_neighbors_are_at_most_all_states() -> None:
    transducer = make_transducer()
    traces = make_traces(transducer, PAIRS)
    gathered = collect_states(transducer, traces, max_states=4)
    assert gathered.encoder.traces.tolist() == [0, 0, 0, 1] and gathered.decoder.traces.tolist() == [0] * 4
    assert len(nearest_states(gathered.encoder, np.ones(gathered.encoder.vectors.shape[1]), 99)) == 4
    empty = collect_states(transducer, []).encoder
    vector = np.ones(empty.vectors.shape[1])
    assert nearest_states(empty, vector, 3) == [] and nearest_states(gathered.encoder, vector, 0) == []


def test_each_side_is_collected_until_it_has_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first source has five states already, its output only two."""
    monkeypatch.setattr(module, "TRACES_PER_CHUNK", 1)
    transducer = make_transducer()
    gathered = collect_states(transducer, make_traces(transducer, [("abcab", "v")] * 4), max_states=5)
    assert gathered.encoder.traces.tolist() == [0] * 5
    assert gathered.decoder.traces.tolist() == [0, 0, 1, 1, 2, 2]


def test_equal_states_keep_their_order_and_zero_has_cosine_zero() -> None:
    vectors = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    side = StateVectors(vectors, np.arange(4), np.zeros(4, np.int64))
    assert [(trace, cosine) for trace, _, cosine in nearest_states(side, np.array([3.0, 0.0]), 4)] == [
        (1, 1),
        (2, 1),
        (0, 0),
        (3, -1),
    ]
