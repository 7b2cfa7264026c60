import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_predictions import make_prediction_trace

from pellucid.evaluation.label_metrics import macro_f1, matthews_correlation, score_labels, score_positions
from pellucid.evaluation.metrics import ScoredExample, evaluate_examples

TABLES = st.integers(2, 4).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, 9), min_size=size, max_size=size), min_size=size, max_size=size)
)


def test_two_classes_have_matthews_coefficient() -> None:
    (tp, fn), (fp, tn) = (6, 2), (1, 3)
    wanted = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert matthews_correlation(np.array([[tp, fn], [fp, tn]])) == pytest.approx(wanted)


@given(TABLES)
def test_correlation_is_that_of_the_indicators(rows: list[list[int]]) -> None:
    """R_K as Gorodkin defines it, cov(X, Y) / √(cov(X, X) cov(Y, Y)) with the classes as indicator vectors."""
    table = np.array(rows)
    pairs = [(i, j) for i in range(len(table)) for j in range(len(table)) for _ in range(table[i, j])]
    found = matthews_correlation(table)
    assert -1 - 1e-9 <= found <= 1 + 1e-9 and found == pytest.approx(matthews_correlation(table.T))
    if pairs:
        x, y = (np.eye(len(table))[list(side)] for side in zip(*pairs, strict=True))
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        spread = math.sqrt((x * x).sum() * (y * y).sum())
        assert found == pytest.approx((x * y).sum() / spread if spread > 1e-9 else 0.0, abs=1e-9)


def test_macro_f1_gives_labels_equal_weights() -> None:
    """By hand: F1 of 2·8/(8 + 10) = 8/9, and of a label never answered 0."""
    assert macro_f1(np.array([[8, 0], [2, 0]])) == pytest.approx(100 * (2 * 8 / 18) / 2)


def test_a_class_never_seen_counts_as_wrong() -> None:
    traces = [make_prediction_trace("classify", "abc", ["yes"]), make_prediction_trace("classify", "abc", ["no"])]
    scored = [ScoredExample(("yes",), (("yes",),), 3, True), ScoredExample(("no",), (("perhaps",),), 3, True)]
    found = score_labels(scored, traces)
    assert found.accuracy == 50.0 and found.labels == ["no", "perhaps", "yes"]
    assert found.confusion == [[0, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert found.to_dict()["confusion"] == {"labels": found.labels, "counts": found.confusion}
    assert evaluate_examples(scored).symbol_accuracy == 50.0


def test_secondary_structure_tags_have_q3() -> None:
    tags = [("HHEC", "HHEE"), ("CC", "CC")]
    traces = [make_prediction_trace("tag", output, list(output)) for output, _ in tags]
    found = score_labels([ScoredExample(tuple(a), (tuple(b),), len(a), True) for a, b in tags], traces)
    assert found.accuracy == found.q3 == pytest.approx(100 * 5 / 6) and found.spans is None
    others = score_labels([ScoredExample(("X",), (("X",),), 1, True)], [make_prediction_trace("tag", "a", ["X"])])
    assert others.q3 is None and "q3" not in others.to_dict()


def test_slots_have_span_f1_with_an_intent_tag_in_front() -> None:
    scored = [ScoredExample(("Play", "B-a", "I-a"), (("Book", "B-a", "I-a"),), 3, True)]
    found = score_labels(scored, [make_prediction_trace("tag", "abc", ["Play", "B-a", "I-a"])])
    assert found.spans is not None and found.spans.f1 == 100.0 and found.accuracy == pytest.approx(200 / 3)


def test_positions_have_top_3_accuracy() -> None:
    tops = (["1", "2", "3", "4"], ["1", "5", "2"], ["1", "2", "3", "4"])
    traces = [make_prediction_trace("point", "abcde", ["1"], top) for top in tops]
    scored = [ScoredExample(("1",), ((wanted,),), 5, True) for wanted in ("1", "2", "4")]
    found = score_positions(scored, traces)
    assert found.accuracy == pytest.approx(100 / 3) and found.top_k_accuracy == pytest.approx(200 / 3)
    assert found.mcc is None and "confusion" not in found.to_dict() and found.to_dict()["top_3"] == found.top_k_accuracy
