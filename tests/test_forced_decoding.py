"""Forced decoding: a given output has the same scores and trace as in a search."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import SEEDS, assert_arrays_close, batches, few_examples
from small_searches import NETWORK_KINDS, beam_outputs, make_small_network, score_outputs
from test_transducer import transducer_of

from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.data.vocabulary import EOS
from pellucid.decoding.outputs import LengthLimits
from pellucid.decoding.trace import END
from pellucid.errors import DataError

TRANSDUCER = transducer_of({"search": {"max_length": 6, "beam_size": 3}})


@pytest.mark.slow
@few_examples
@given(st.sampled_from(NETWORK_KINDS), batches(), SEEDS)
def test_scores_equal_those_of_the_search(kind: tuple[str, str], batch: Batch, seed: int) -> None:
    network = make_small_network(kind, seed)
    for row, outputs in enumerate(beam_outputs(network, batch.source, batch.source_lengths, LengthLimits(0, 5), 3, 3)):
        for one, two in zip(
            outputs, score_outputs(network, batch, row, [each.ids.tolist() for each in outputs]), strict=True
        ):
            for first, second in zip(one, two, strict=True):
                assert_arrays_close(first, second, rtol=1e-4, atol=1e-5)


def test_predicted_outputs_have_equal_scores_in_any_batch() -> None:
    sources = ["abc", "a", "cab", "bb", "abcabc"]
    predicted = [trace for trace in TRANSDUCER.predict(sources) if trace.finished]
    forced = TRANSDUCER.score_examples([Example(trace.text, trace.output) for trace in predicted])
    for one, two in zip(predicted, forced, strict=True):
        assert (one.target, one.output, two.origin) == (two.target, two.output, "given")
        assert one.score == pytest.approx(two.score, abs=1e-5)
        np.testing.assert_allclose(one.attention, two.attention, atol=1e-5)
        assert TRANSDUCER.score_examples([Example(one.text, one.output)])[0].score == pytest.approx(two.score, abs=1e-5)


def test_an_unknown_target_symbol_is_listed_and_keeps_its_spelling() -> None:
    trace = TRANSDUCER.score_examples([Example("ab", "vqé")])[0]
    assert trace.target == ("v", "q", "é", END) and trace.output == "vqé" and trace.finished
    assert trace.unknown_target == (1, 2) and json.loads(trace.to_json())["unknown_target"] == [1, 2]
    assert np.isfinite(trace.log_probabilities).all() and len(trace.top_symbols) == 4
    assert TRANSDUCER.score_examples([Example("ab", "v")])[0].unknown_target == ()


def test_features_before_a_source_are_not_copied() -> None:
    """A target symbol outside the vocabulary that equals a feature is unknown; a source symbol can be copied."""
    settings = {"data": {"features_column": "3"}, "decoder": {"pointer_generator": True}, "search": {"max_length": 6}}
    copying = transducer_of(settings, features="VN")
    assert copying.config.encoder.feature_merge == "prefix"
    assert [
        copying.score_examples([Example("ab", target, "N")])[0].unknown_target for target in ("vN", "vQ", "va")
    ] == [
        (1,),
        (1,),
        (),
    ]


def test_an_empty_target_is_eos_alone_and_an_empty_source_is_refused() -> None:
    assert TRANSDUCER.score_examples([Example("ab", "")])[0].target == (END,)
    with pytest.raises(DataError, match="source 2 is empty"):
        TRANSDUCER.score_examples([Example("ab", "v"), Example("", "v")])
    assert TRANSDUCER.score_examples([]) == [] and EOS == 2
