import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_predictions import make_prediction_trace

from pellucid.evaluation.label_metrics import (
    class_and_tag_metrics_for_log,
    macro_f1,
    matthews_correlation,
    score_class_and_tags,
    score_labels,
    score_positions,
)
from pellucid.evaluation.metrics import ScoredExample, evaluate_examples

TABLES = st.integers(2, 4).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, 9), min_size=size, max_size=size), min_size=size, max_size=size)
)


def test_two_classes_have_matthews_coefficient() -> None:
    (tp, fn), (fp, tn) = (6, 2), (1, 3)
    expected = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert matthews_correlation(np.array([[tp, fn], [fp, tn]])) == pytest.approx(expected)


def test_sums_of_large_counts_are_exact() -> None:
    large = np.full((40, 40), 2**53)
    assert matthews_correlation(large) == 0.0 and macro_f1(large) == pytest.approx(2.5)
    assert matthews_correlation(np.eye(40, dtype=np.int64) * 2**53) == 1.0


@given(TABLES)
def test_correlation_equals_that_of_indicator_vectors(rows: list[list[int]]) -> None:
    """Gorodkin defines R_K as cov(X, Y) / √(cov(X, X) cov(Y, Y)), with the classes as indicator vectors."""
    table = np.array(rows)
    pairs = [(i, j) for i in range(len(table)) for j in range(len(table)) for _ in range(table[i, j])]
    actual = matthews_correlation(table)
    assert -1 - 1e-9 <= actual <= 1 + 1e-9 and actual == pytest.approx(matthews_correlation(table.T))
    if pairs:
        x, y = (np.eye(len(table))[list(side)] for side in zip(*pairs, strict=True))
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        spread = math.sqrt((x * x).sum() * (y * y).sum())
        assert actual == pytest.approx((x * y).sum() / spread if spread > 1e-9 else 0.0, abs=1e-9)


def test_macro_f1_gives_labels_equal_weights() -> None:
    """One label has an F1 of 2·8/(8 + 10) = 8/9; a label that is never predicted has an F1 of 0."""
    assert macro_f1(np.array([[8, 0], [2, 0]])) == pytest.approx(100 * (2 * 8 / 18) / 2)


def test_a_class_never_seen_counts_as_wrong() -> None:
    traces = [make_prediction_trace("classify", "abc", ["yes"]), make_prediction_trace("classify", "abc", ["no"])]
    scored = [ScoredExample(("yes",), (("yes",),), 3, True), ScoredExample(("no",), (("perhaps",),), 3, True)]
    scores = score_labels(scored, traces)
    assert scores.accuracy == 50.0 and scores.labels == ["no", "perhaps", "yes"]
    assert scores.confusion == [[0, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert scores.to_dict()["confusion"] == {"labels": scores.labels, "counts": scores.confusion}
    assert evaluate_examples(scored).symbol_accuracy == 50.0


def test_secondary_structure_tags_have_q3() -> None:
    tags = [("HHEC", "HHEE"), ("CC", "CC")]
    traces = [make_prediction_trace("tag", output, list(output)) for output, _ in tags]
    scores = score_labels([ScoredExample(tuple(a), (tuple(b),), len(a), True) for a, b in tags], traces)
    assert scores.accuracy == scores.q3 == pytest.approx(100 * 5 / 6) and scores.spans is None
    scores_of_other_tags = score_labels(
        [ScoredExample(("X",), (("X",),), 1, True)], [make_prediction_trace("tag", "a", ["X"])]
    )
    assert scores_of_other_tags.q3 is None and "q3" not in scores_of_other_tags.to_dict()


def test_slots_have_span_f1_with_an_intent_tag_in_front() -> None:
    scored = [ScoredExample(("Play", "B-a", "I-a"), (("Book", "B-a", "I-a"),), 3, True)]
    scores = score_labels(scored, [make_prediction_trace("tag", "abc", ["Play", "B-a", "I-a"])])
    assert scores.spans is not None and scores.spans.f1 == 100.0 and scores.accuracy == pytest.approx(200 / 3)


def test_classes_and_tags_have_metrics_of_their_own() -> None:
    rows = [("Play", "B-a", "I-a", "O"), ("Book", "O", "Book")]
    references = [("Book", "B-a", "I-a", "O"), ("Book", "B-a", "O")]
    scored = [ScoredExample(*row, 3, True) for row in zip(rows, ((each,) for each in references), strict=True)]
    traces = [make_prediction_trace("tag-and-classify", "abc"[: len(row) - 1], list(row)) for row in rows]
    scores = score_class_and_tags(scored, traces)
    assert scores.accuracy == pytest.approx(100 * 4 / 7)
    assert scores.parts["class_"].accuracy == 50 and scores.parts["tag_"].accuracy == pytest.approx(60)
    assert scores.parts["class_"].labels == ["Book", "Play"] and "Play" not in scores.parts["tag_"].labels
    assert scores.spans is not None and scores.spans.f1 == pytest.approx(100 * 2 / 3)  # of two chunks one is found
    values = scores.to_dict()
    assert values["class_accuracy"] == 50 and values["tag_accuracy"] == pytest.approx(60) and "mcc" not in values
    assert values["span_f1"] == pytest.approx(100 * 2 / 3) and "tag_span_f1" not in values
    logged = class_and_tag_metrics_for_log(scored)
    assert logged == pytest.approx({"class_accuracy": 50, "tag_accuracy": 60, "span_f1": 100 * 2 / 3})


def test_positions_have_top_3_accuracy() -> None:
    candidates = (["1", "2", "3", "4"], ["1", "5", "2"], ["1", "2", "3", "4"])
    traces = [make_prediction_trace("point", "abcde", ["1"], top_symbols) for top_symbols in candidates]
    scored = [ScoredExample(("1",), ((reference,),), 5, True) for reference in ("1", "2", "4")]
    scores = score_positions(scored, traces)
    assert scores.accuracy == pytest.approx(100 / 3) and scores.top_k_accuracy == pytest.approx(200 / 3)
    assert (
        scores.mcc is None
        and "confusion" not in scores.to_dict()
        and scores.to_dict()["top_3"] == scores.top_k_accuracy
    )
