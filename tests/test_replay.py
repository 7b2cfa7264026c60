"""Replaying a trace repeats the decoder steps of its output."""

import numpy as np
import pytest
import torch
from untrained_models import MODEL_SETTINGS, PAIRS, make_traces, make_transducer

from pellucid.decoding.ensemble import combine_transducers
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError
from pellucid.inspection import replay as replaying
from pellucid.inspection.distributions import step_distributions
from pellucid.inspection.replay import build_replays, evaluation_context, replay_steps, start_replay, target_ids


@pytest.mark.parametrize("kind", [*MODEL_SETTINGS])
def test_replayed_steps_have_the_attention_of_the_trace(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "MAX_REPLAY_POSITIONS", 6)
    transducer = make_transducer(kind)
    traces = [*transducer.predict(["abc", "", "cab?", "b"]), *make_traces(transducer, PAIRS)]
    replayed: list[int] = []
    with torch.inference_mode(), evaluation_context(transducer, 9):
        for replay in build_replays(transducer, traces):
            inference, forced_attention = start_replay(transducer, replay)
            step_weights = [
                each.step.attention.weights for each in replay_steps(inference, forced_attention, replay.target)
            ]
            for row, (number, positions, steps) in enumerate(replay.sizes):
                attention = torch.stack([weights[row, :positions] for weights in step_weights[:steps]])
                np.testing.assert_allclose(attention.numpy(), traces[number].attention, atol=1e-5)
                replayed.append(number)
    assert sorted(replayed) == [0, 2, 3, 4, 5, 6, 7, 8]


def test_a_copied_symbol_has_the_id_of_its_source_position() -> None:
    transducer = make_transducer("copying")
    trace = make_traces(transducer, [("ab?!", "v!q")])[0]
    assert target_ids(transducer, trace) == [4, 9 + 3, 3, 2]
    result = step_distributions(transducer, [trace])[0]
    assert result.shape == (4, 10) and np.isfinite(trace.log_probabilities).all()


def test_unfinished_outputs_have_no_eos() -> None:
    transducer = make_transducer()
    unfinished = next(each for each in transducer.predict(["abc", "cab", "ccc", "bab"]) if not each.finished)
    assert len(target_ids(transducer, unfinished)) == len(unfinished.target) == 6


def test_forced_attention_stays_forced() -> None:
    transducer = make_transducer().with_options(
        DecodingOptions(forced_attention=(ForcedAttention(1, (0.0, 0.0, 1.0)),))
    )
    trace = make_traces(transducer, [("abc", "vw")])[0]
    with torch.inference_mode():
        (replay,) = build_replays(transducer, [trace])
        inference, forced_attention = start_replay(transducer, replay)
        weights = [
            each.step.attention.weights[0].tolist() for each in replay_steps(inference, forced_attention, replay.target)
        ]
    assert weights[1] == [0, 0, 1] and 0 < weights[0][2] < 1


def test_an_ensemble_has_no_states() -> None:
    combined = combine_transducers([make_transducer(), make_transducer(seed=4)], ["a", "b"])
    traces: list[Trace] = combined.predict(["abc"])
    (replay,) = build_replays(combined, traces)
    with pytest.raises(ArgumentError, match=r"^predictor: expected a single model, got an ensemble"):
        start_replay(combined, replay)
