"""Evaluation refuses what it cannot use by one error that names the argument, and gives nothing that is no number."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sample_answers import answered
from sample_traces import made
from test_assessment import ROWS, segmenters
from test_assessment import made as assessment
from wrong_calls import arguments, faults, name_of

from pellucid.data.examples import Example
from pellucid.decoding.trace import END, Trace
from pellucid.errors import ArgumentError, InputError
from pellucid.evaluation import alignment
from pellucid.evaluation.assessment import (
    Answered,
    Assessment,
    assess,
    compare_runs,
    join,
    merge_references,
    oracle,
    reciprocal_rank,
    score,
)
from pellucid.evaluation.calibration import calibration
from pellucid.evaluation.confusion import aligned, confusions, paired
from pellucid.evaluation.label_metrics import (
    chunks,
    correlation,
    is_chunked,
    macro_f1,
    score_labels,
    score_positions,
    spans,
    spans_for_log,
)
from pellucid.evaluation.metrics import (
    Scored,
    bleu,
    bootstrap_ratio,
    chrf,
    differing,
    edit_distance,
    evaluate,
    metrics_for_log,
    text_scores,
    wilson,
    worst,
)
from pellucid.evaluation.outcomes import mean_of_groups, outcomes
from pellucid.evaluation.scoring import ERROR_RATES
from pellucid.evaluation.significance import compare

ATTENTION = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]
TRACE = made("abc", ["x", END], ATTENTION)
SCORED = [Scored(("a", "b"), (("a", "b"),), 3), Scored(("a",), (("b",), ("a", "c")), 2)]
TABLE = outcomes(SCORED)
TAGS = [Scored(("B-x", "O"), (("B-x", "I-x"),), 2, True, (-0.1, -0.2))]
TAGGED = [answered("tag", "ab", ["B-x", "O"])]
POINTED = [answered("point", "ab", ["1"])]
SPANS = alignment.Spans(np.array([[0, 1]]), np.array([[1, 2]]), np.array([[True, True]]))
RUN = assessment(ROWS)
GIVEN = RUN.answered

FUNCTIONS: dict[Callable[..., Any], dict[str, Any]] = {
    alignment.agreement: {"weights": [ATTENTION], "spans": SPANS},
    alignment.looking: {"weights": ATTENTION},
    alignment.row_entropy: {"weights": ATTENTION},
    alignment.coverage_deviation: {"weights": ATTENTION},
    alignment.absentmindedness_out: {"weights": ATTENTION},
    alignment.absentmindedness_in: {"weights": ATTENTION},
    alignment.confidence: {"weights": ATTENTION},
    alignment.diagonality: {"weights": ATTENTION},
    alignment.jumps: {"trace": TRACE},
    alignment.distortion: {"traces": [TRACE]},
    alignment.mean_map: {"traces": [TRACE]},
    alignment.counted: {"trace": TRACE, "gold": [(0, 1), (0, 0)]},
    alignment.summary: {"traces": [TRACE], "gold": [[(0, 1), (0, 0)]]},
    calibration: {"log_probabilities": [-0.1, -0.5], "right": [True, False]},
    aligned: {"output": ["a"], "reference": ["a", "b"]},
    paired: {"example": SCORED[0]},
    confusions: {"scored": SCORED},
    is_chunked: {"tags": ["B-x"]},
    chunks: {"tags": ["B-x"]},
    spans: {"scored": TAGS},
    spans_for_log: {"scored": TAGS},
    score_labels: {"scored": TAGS, "traces": TAGGED},
    score_positions: {"scored": SCORED[:1], "traces": POINTED},
    correlation: {"confusion": np.eye(3, dtype=np.int64)},
    macro_f1: {"confusion": np.eye(3, dtype=np.int64)},
    wilson: {"right": 1, "total": 2},
    bootstrap_ratio: {"numerators": [1, 0], "denominators": [2, 2]},
    edit_distance: {"output": ["a"], "reference": ["b"]},
    differing: {"output": ["a"], "reference": ["b"]},
    evaluate: {"scored": SCORED},
    metrics_for_log: {"evaluation": evaluate(SCORED)},
    worst: {"scored": SCORED, "count": 1},
    text_scores: {"outputs": ["a b"], "references": [["a b", "b"]]},
    bleu: {"outputs": ["a b"], "references": [["a b", "b"]]},
    chrf: {"outputs": ["a b"], "references": [["a b", "b"]]},
    outcomes: {"scored": SCORED},
    mean_of_groups: {"tables": [TABLE, TABLE]},
    compare: {"a": [TABLE], "b": [TABLE]},
    merge_references: {"examples": [Example("a", "b")]},
    score: {"traces": [TRACE], "references": [["x"]], "segmenters": segmenters()},
    oracle: {"candidates": [SCORED], "count": 2},
    reciprocal_rank: {"candidates": [SCORED]},
    assess: {"name": "run", "answered": GIVEN, "own": segmenters(), "shared": segmenters(), "metrics": ERROR_RATES},
    join: {"parts": [RUN]},
    compare_runs: {"a": RUN, "b": RUN},
}


@pytest.mark.parametrize(("function", "name"), arguments(FUNCTIONS), ids=name_of)
def test_what_an_argument_cannot_be_is_one_error_that_names_it(function: Callable[..., Any], name: str) -> None:
    assert faults(function, FUNCTIONS[function], name) == []


def test_methods_refuse_what_their_arguments_cannot_be() -> None:
    assert faults(lambda count: RUN.worst(count), {}, "count") == []
    found = confusions(SCORED)
    assert faults(lambda most: found.matrix(most), {}, "most") == []


NOWHERE = np.zeros((2, 3))
STATISTICS = ["coverage_deviation", "absentmindedness_out", "absentmindedness_in", "confidence", "diagonality"]


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("weights", [NOWHERE, np.zeros((0, 3)), np.zeros((3, 0))])
def test_statistics_of_attention_that_looks_nowhere_are_refused(name: str, weights: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match=r"^weights: expected at least one row that looks somewhere, got "):
        getattr(alignment, name)(weights)


def test_corpora_without_attention_have_no_statistics() -> None:
    nowhere, empty = made("abc", ["x", END], NOWHERE.tolist()), made("", [], [])
    for traces in ([], [nowhere], [empty], [nowhere, empty]):
        assert alignment.summary(traces) == [] and alignment.mean_map(traces) is None
        assert alignment.distortion(traces) == {}


def bad(weights: np.ndarray) -> Trace:
    """A trace with attention that is none."""
    return replace(TRACE, attention=weights)


def assessed(answered: Answered) -> Assessment:
    """Outputs, scored."""
    return assess("run", answered, segmenters(), segmenters(), ERROR_RATES)


SHORT, UNKNOWN = SPANS._replace(known=SPANS.known[:, :1]), SPANS._replace(known=~SPANS.known)
NEGATIVE, WRONG = SCORED[0]._replace(source_length=-1), bad(np.full((2, 3), np.nan))


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (alignment.row_entropy, ([[0.5, -0.5]],), "weights[0, 1]: expected a number from 0 to 1.001, got -0.5"),
        (alignment.row_entropy, ([0.5],), "weights: expected an array of numbers of shape (T, S), got [0.5]"),
        (
            alignment.agreement,
            (
                [ATTENTION],
                SPANS._replace(known=SPANS.known[:, :1]),
            ),
            "spans.known: expected an array of shape (1, 2)",
        ),
        (
            alignment.agreement,
            (
                [ATTENTION],
                SPANS._replace(known=~SPANS.known),
            ),
            "spans: expected at least one symbol whose span",
        ),
        (
            alignment.agreement,
            (
                np.zeros((1, 2, 0)),
                SPANS,
            ),
            "weights: expected at least one source position",
        ),
        (alignment.summary, (TRACE,), "traces: expected a list of Trace objects, got Trace("),
        (
            alignment.summary,
            (
                [TRACE],
                [],
            ),
            "gold: expected as many as traces has (1), got 0",
        ),
        (
            alignment.summary,
            (
                [TRACE],
                [[(0, 9)]],
            ),
            "gold[0][0]: expected source positions",
        ),
        (
            alignment.summary,
            (
                [TRACE],
                [[(2, 1)]],
            ),
            "gold[0][0]: expected source positions",
        ),
        (
            alignment.summary,
            (
                [TRACE],
                [[(0, 1.5)]],
            ),
            "gold[0][0][1]: expected a whole number, got 1.5",
        ),
        (
            alignment.summary,
            (
                [TRACE],
                None,
                -1,
            ),
            "seed: expected a whole number of at least 0, got -1",
        ),
        (
            alignment.summary,
            ([TRACE, bad(np.full((2, 3), np.nan))],),
            "traces[1]: expected a trace whose attention",
        ),
        (alignment.mean_map, ([bad(np.zeros((2, 2)))],), "traces[0]: expected a trace whose attention"),
        (alignment.jumps, (bad(np.zeros((2, 2))),), "trace: expected a trace whose attention"),
        (
            calibration,
            (
                [],
                [],
            ),
            "log_probabilities: expected at least one output, got []",
        ),
        (
            calibration,
            (
                [-1.0],
                [],
            ),
            "right: expected as many as log_probabilities has (1), got 0",
        ),
        (
            calibration,
            (
                [math.nan],
                [True],
            ),
            "log_probabilities[0]: expected a number of at most 0.001, got nan",
        ),
        (
            calibration,
            (
                [0.5],
                [True],
            ),
            "log_probabilities[0]: expected a number of at most 0.001, got 0.5",
        ),
        (
            calibration,
            (
                [-1.0],
                [1],
            ),
            "right[0]: expected true or false, got 1",
        ),
        (
            wilson,
            (
                3,
                2,
            ),
            "right: expected at most total (2), got 3",
        ),
        (
            wilson,
            (
                -1,
                2,
            ),
            "right: expected a whole number of at least 0, got -1",
        ),
        (
            wilson,
            (
                1,
                2**80,
            ),
            "total: expected a whole number of at most",
        ),
        (
            bootstrap_ratio,
            (
                [],
                [],
            ),
            "numerators: expected at least one example, got []",
        ),
        (
            bootstrap_ratio,
            (
                [1],
                [1, 2],
            ),
            "denominators: expected as many as numerators has (1), got 2",
        ),
        (
            edit_distance,
            (
                "ab",
                ["a"],
            ),
            "output: expected a list of texts, got 'ab'",
        ),
        (evaluate, (SCORED[0],), "scored: expected a list of Scored objects, got Scored("),
        (
            evaluate,
            ([SCORED[0]._replace(source_length=-1)],),
            "scored[0].source_length: expected a whole number of at least 0",
        ),
        (
            worst,
            (
                SCORED,
                -1,
            ),
            "count: expected a whole number of at least 0, got -1",
        ),
        (
            text_scores,
            (
                ["a"],
                [],
            ),
            "references: expected as many as outputs has (1), got 0",
        ),
        (
            bleu,
            (
                ["a"],
                ["a"],
            ),
            "references[0]: expected a list of texts, got 'a'",
        ),
        (correlation, (np.zeros((2, 3), int),), "confusion: expected an array of shape (2, 2), got"),
        (correlation, ([[-1]],), "confusion[0, 0]: expected a number from 0 to 9.0072e+15, got -1"),
        (macro_f1, (np.zeros((0, 0), int),), "confusion: expected at least one label"),
        (
            score_labels,
            (
                [],
                [],
            ),
            "scored: expected at least one example, got []",
        ),
        (
            score_labels,
            (
                TAGS,
                [],
            ),
            "traces: expected as many as scored has (1), got 0",
        ),
        (
            score_labels,
            (
                [Scored((), ((),), 0)],
                TAGGED,
            ),
            "scored: expected at least one label",
        ),
        (
            score_positions,
            (
                [],
                [],
            ),
            "scored: expected at least one example, got []",
        ),
        (spans, ([],), "scored: expected at least one example, got []"),
        (
            compare,
            (
                [],
                [],
            ),
            "a: expected at least one group, got []",
        ),
        (
            compare,
            (
                [TABLE[:0]],
                [TABLE[:0]],
            ),
            "a[0]: expected at least one example",
        ),
        (
            compare,
            (
                [TABLE],
                [TABLE * 9],
            ),
            "b[0]: expected a first column of 0 and 1",
        ),
        (
            compare,
            (
                [TABLE[:, :2]],
                [TABLE],
            ),
            "a[0]: expected an array of whole numbers of shape (…, 3)",
        ),
        (mean_of_groups, ([],), "tables: expected at least one group, got []"),
        (
            oracle,
            (
                [],
                1,
            ),
            "candidates: expected at least one example, got []",
        ),
        (reciprocal_rank, ([],), "candidates: expected at least one example, got []"),
        (
            score,
            (
                [TRACE],
                [],
                segmenters(),
            ),
            "references: expected as many as traces has (1), got 0",
        ),
        (
            score,
            (
                [TRACE],
                ["x"],
                segmenters(),
            ),
            "references[0]: expected a list of texts, got 'x'",
        ),
        (join, ([],), "parts: expected at least one assessment, got []"),
        (
            assessed,
            (GIVEN._replace(groups=[]),),
            "answered.groups: expected as many as",
        ),
        (
            assess,
            (
                "",
                Answered([Example("a", "b")], [("b",)], [""], [[]]),
                segmenters(),
                segmenters(),
                ERROR_RATES,
            ),
            "answered.outputs[0]: expected at least one output",
        ),
    ],
)
def test_messages_say_what_was_expected(function: Callable[..., Any], given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        function(*given)
    assert str(caught.value).startswith(message)


def test_runs_of_other_groups_are_not_compared() -> None:
    with pytest.raises(InputError, match="same examples"):
        compare_runs(RUN, assessment(ROWS, groups=["p", "p", "q", "q"]))


def test_what_is_impossible_has_a_calibration() -> None:
    assert calibration([-math.inf, 0.0], [False, True]).brier == 0
