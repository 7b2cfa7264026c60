"""decoding/confidence.py: margins of outputs, the confidence of a model, and the searches for which it holds."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from pellucid.config.settings import SearchConfig
from pellucid.decoding.confidence import (
    MAX_MARGIN,
    ConfidenceModel,
    add_confidences,
    describe_search_difference,
    output_margins,
)
from pellucid.decoding.trace import END, Trace
from pellucid.errors import ArgumentError

SEARCH = SearchConfig()
MODEL = ConfidenceModel(intercept=-1.0, slope=2.0, num_examples=98, wrong_confidences=(0.6, 0.5), search=SEARCH)


def make_trace(steps: list[tuple[float, float, bool]], text: str = "a", **fields: object) -> Trace:
    """Return an output with the probabilities, at each step, of its symbol and of the best other symbol.

    The third number says whether the output has the more probable symbol.
    """
    target = ("x",) * len(steps)
    top = [
        ((symbol, "o") if is_first else ("o", symbol)) for symbol, (_, _, is_first) in zip(target, steps, strict=True)
    ]
    values = [sorted((math.log(p), math.log(q)), reverse=True) for p, q, _ in steps]
    trace = Trace(
        text=text,
        source=("a",),
        num_features=0,
        unknown=(),
        target=target,
        output="x" * len(steps),
        finished=True,
        log_probabilities=np.log([p for p, _, _ in steps]).astype(np.float32),
        attention=np.ones((len(steps), 1), np.float32),
        top_symbols=tuple(top),
        top_log_probabilities=np.array(values, np.float32),
    )
    return replace(trace, **fields)  # type: ignore[arg-type]


def test_the_margin_is_the_log_odds_against_the_best_alternatives() -> None:
    one, two = make_trace([(0.8, 0.1, True)]), make_trace([(0.8, 0.1, True), (0.6, 0.3, True)])
    other = make_trace([(0.2, 0.7, False)])
    expected = [-math.log(0.1 / 0.8), -math.log(0.1 / 0.8 + 0.3 / 0.6), -math.log(0.7 / 0.2)]
    assert output_margins([[one], [two], [other]]) == pytest.approx(expected, abs=1e-6)


def test_label_smoothing_of_long_outputs_does_not_lower_the_margin_as_it_lowers_the_probability() -> None:
    """All probabilities are halved: the margin stays."""
    plain, smoothed = make_trace([(0.9, 0.01, True)] * 5), make_trace([(0.45, 0.005, True)] * 5)
    assert output_margins([[plain]]) == pytest.approx(output_margins([[smoothed]]), abs=1e-5)
    assert plain.score - smoothed.score == pytest.approx(5 * math.log(2), abs=1e-5)


def test_with_a_pair_ngram_model_the_margin_is_the_difference_of_search_scores() -> None:
    best, second = (make_trace([(0.5, 0.4, True)], search_score=score) for score in (-1.0, -3.5))
    assert output_margins([[best, second], [best]], with_pair_ngram=True).tolist() == [2.5, MAX_MARGIN]
    assert output_margins([[best, replace(second, search_score=-np.inf)]], with_pair_ngram=True) == MAX_MARGIN


def test_margins_are_limited_and_that_of_an_empty_output_is_infinite() -> None:
    sure, only = make_trace([(1.0, 1e-30, True)]), make_trace([(0.5, 0.1, True)])
    only = replace(only, top_symbols=((END,),), top_log_probabilities=only.top_log_probabilities[:, :1])
    impossible = replace(sure, log_probabilities=np.array([-np.inf], np.float32), top_symbols=(("o", END),))
    both = replace(impossible, top_log_probabilities=np.full((1, 2), -np.inf, np.float32))
    empty = replace(
        sure,
        target=(),
        log_probabilities=np.zeros(0, np.float32),
        attention=np.zeros((0, 1), np.float32),
        top_symbols=(),
        top_log_probabilities=np.zeros((0, 0), np.float32),
    )
    margins = output_margins([[sure], [only], [impossible], [both], [empty]])
    assert margins.tolist() == [MAX_MARGIN, MAX_MARGIN, -MAX_MARGIN, 0.0, -math.inf]


def test_the_confidence_is_monotone_and_within_the_rule_of_succession() -> None:
    confidences = MODEL.confidences(np.array([-30.0, 0.0, 0.5, 1.0, 30.0]))
    assert (np.diff(confidences) > 0).all()
    assert confidences[[0, -1]].tolist() == [0.01, 0.99]  # 98 validation outputs: 1 / 100 and 99 / 100
    assert confidences[2] == 0.5


def test_only_the_best_outputs_of_the_model_have_a_confidence() -> None:
    best, second = make_trace([(0.8, 0.1, True)]), make_trace([(0.1, 0.8, False)], rank=2)
    known, empty = replace(best, origin="lexicon"), replace(best, source=(), attention=np.zeros((1, 0), np.float32))
    outputs = add_confidences(MODEL, [[best, second], [known], [empty]])
    assert [[trace.confidence is not None for trace in traces] for traces in outputs] == [
        [True, False],
        [False],
        [False],
    ]
    assert outputs[0][0].confidence == MODEL.confidences(output_margins([[best]]))[0]
    assert add_confidences(MODEL, []) == []


@pytest.mark.parametrize(
    ("changes", "nbest", "expected"),
    [
        ({}, 5, ""),
        ({"batch_size": 7}, 1, ""),
        ({"pair_ngram": False}, 1, ""),
        ({}, 6, "search.beam_size is 6, and was 5 when the confidence was fitted"),
        ({"beam_size": 1}, 1, "search.beam_size is 1, and was 5 when the confidence was fitted"),
        ({"length_normalization": "gnmt"}, 1, "search.length_normalization is 'gnmt', and was 'none'"),
        ({"min_length": 3}, 1, "search.min_length is 3, and was 0"),
    ],
)
def test_other_searches_are_described(changes: dict[str, object], nbest: int, expected: str) -> None:
    used = msgspec.structs.replace(SEARCH, **changes)
    assert describe_search_difference(SEARCH, used, nbest, autoregressive=True).startswith(expected)
    assert bool(expected) == bool(describe_search_difference(SEARCH, used, nbest, autoregressive=True))
    assert describe_search_difference(SEARCH, used, nbest, autoregressive=False) == ""


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("slope", -1.0, "slope: "),
        ("slope", math.nan, "slope: "),
        ("intercept", math.inf, "intercept: "),
        ("num_examples", 0, "num_examples: "),
        ("wrong_confidences", (0.5, 1.5), "wrong_confidences"),
        ("wrong_confidences", (0.5,) * 99, "wrong_confidences: expected at most 98 confidences, got 99"),
        ("pair_ngram_weight", 2.0, "pair_ngram_weight: "),
    ],
)
def test_invalid_models_are_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}"):
        replace(MODEL, **{field: value})  # type: ignore[arg-type]


def test_empty_outputs_and_outputs_for_unknown_symbols_have_the_lowest_confidence() -> None:
    good = make_trace([(0.99, 0.001, True)])
    empty = replace(good, target=(END,), output="", top_symbols=((END, "o"),))
    unknown = replace(make_trace([(0.99, 0.001, True)] * 2), unknown=(0,))
    assert output_margins([[empty], [unknown]])[0] == -math.inf
    assert np.isfinite(output_margins([[good], [unknown]])).all(), "unless the model distrusts unknown symbols"
    for with_pair_ngram in (False, True):
        margins = output_margins([[good], [empty], [unknown]], with_pair_ngram, lowest_confidence_for_unknown=True)
        assert np.isfinite(margins).tolist() == [True, False, False]
    model = replace(MODEL, lowest_confidence_for_unknown=True)
    confidences = [traces[0].confidence for traces in add_confidences(model, [[good], [empty], [unknown]])]
    assert confidences[1:] == [pytest.approx(0.01)] * 2 and confidences[0] is not None and confidences[0] > 0.9
