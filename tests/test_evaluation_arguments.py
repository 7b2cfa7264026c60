"""Evaluation refuses an invalid argument with one error that names it, and returns finite numbers only."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from invalid_calls import find_faults, function_name, list_arguments
from sample_predictions import make_prediction_trace
from sample_traces import make_trace
from test_assessment import ROWS, decoded_examples, tokenizers
from test_assessment import build_assessment as assessment

from pellucid.data.examples import Example
from pellucid.decoding.trace import END, Trace
from pellucid.errors import ArgumentError, InputError
from pellucid.evaluation import alignment
from pellucid.evaluation.assessment import (
    Assessment,
    DecodedExamples,
    assess_outputs,
    compare_runs,
    join_assessments,
    mean_reciprocal_rank,
    oracle_accuracy,
    score_traces,
)
from pellucid.evaluation.calibration import measure_calibration
from pellucid.evaluation.confusion import align_symbols, count_confusions, pair_symbols
from pellucid.evaluation.label_metrics import (
    chunk_metrics_for_log,
    class_and_tag_metrics_for_log,
    extract_chunks,
    has_chunks,
    macro_f1,
    matthews_correlation,
    score_chunks,
    score_class_and_tags,
    score_labels,
    score_positions,
)
from pellucid.evaluation.metrics import (
    ConfidenceInterval,
    ScoredExample,
    bleu,
    bootstrap_ratio,
    bootstrap_sums,
    chrf,
    edit_distance,
    evaluate_examples,
    hamming_distance,
    metrics_for_log,
    number_symbols,
    score_texts,
    wilson_interval,
    worst_examples,
)
from pellucid.evaluation.outcomes import MeanRates, check_tables, macro_average, outcome_table, rates_from_sums
from pellucid.evaluation.significance import compare_outcomes
from pellucid.evaluation.task_metrics import (
    ERROR_RATE_METRICS,
    GroupScores,
    accuracy_rates,
    class_and_tag_rates,
    error_rates,
    tag_rates,
)

ATTENTION = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]
TRACE = make_trace("abc", ["x", END], ATTENTION)
SCORED = [ScoredExample(("a", "b"), (("a", "b"),), 3), ScoredExample(("a",), (("b",), ("a", "c")), 2)]
TABLE = outcome_table(SCORED)
SCORED_TAGS = [ScoredExample(("B-x", "O"), (("B-x", "I-x"),), 2, True, (-0.1, -0.2))]
TAG_TRACES = [make_prediction_trace("tag", "ab", ["B-x", "O"])]
SCORED_CLASS_AND_TAGS = [ScoredExample(("c", "B-x", "O"), (("c", "B-x", "I-x"),), 2, True)]
CLASS_AND_TAG_TRACES = [make_prediction_trace("tag-and-classify", "ab", ["c", "B-x", "O"])]
POINTER_TRACES = [make_prediction_trace("point", "ab", ["1"])]
SPANS = alignment.AlignmentSpans(np.array([[0, 1]]), np.array([[1, 2]]), np.array([[True, True]]))
ASSESSMENT = assessment(ROWS)
DECODED = decoded_examples(ROWS)
GROUP = GroupScores("a", 2, 50.0, ConfidenceInterval(9.0, 91.0), 25.0, ConfidenceInterval(0.0, 50.0))

VALID_ARGUMENTS: dict[Callable[..., Any], dict[str, Any]] = {
    alignment.alignment_agreement: {"weights": [ATTENTION], "spans": SPANS},
    alignment.attending_rows: {"weights": ATTENTION},
    alignment.row_entropy: {"weights": ATTENTION},
    alignment.coverage_deviation: {"weights": ATTENTION},
    alignment.absentmindedness_out: {"weights": ATTENTION},
    alignment.absentmindedness_in: {"weights": ATTENTION},
    alignment.attention_confidence: {"weights": ATTENTION},
    alignment.diagonality: {"weights": ATTENTION},
    alignment.attention_jumps: {"trace": TRACE},
    alignment.count_jumps: {"traces": [TRACE]},
    alignment.mean_attention_map: {"traces": [TRACE]},
    alignment.trace_statistics: {"trace": TRACE, "gold": [(0, 1), (0, 0)]},
    alignment.summarize_attention: {"traces": [TRACE], "gold": [[(0, 1), (0, 0)]]},
    measure_calibration: {"log_probabilities": [-0.1, -0.5], "right": [True, False]},
    align_symbols: {"output": ["a"], "reference": ["a", "b"]},
    pair_symbols: {"example": SCORED[0]},
    count_confusions: {"scored": SCORED},
    has_chunks: {"tags": ["B-x"]},
    extract_chunks: {"tags": ["B-x"]},
    score_chunks: {"scored": SCORED_TAGS},
    chunk_metrics_for_log: {"scored": SCORED_TAGS},
    score_labels: {"scored": SCORED_TAGS, "traces": TAG_TRACES},
    class_and_tag_metrics_for_log: {"scored": SCORED_CLASS_AND_TAGS},
    score_class_and_tags: {"scored": SCORED_CLASS_AND_TAGS, "traces": CLASS_AND_TAG_TRACES},
    score_positions: {"scored": SCORED[:1], "traces": POINTER_TRACES},
    matthews_correlation: {"confusion": np.eye(3, dtype=np.int64)},
    macro_f1: {"confusion": np.eye(3, dtype=np.int64)},
    wilson_interval: {"right": 1, "total": 2},
    bootstrap_ratio: {"numerators": [1, 0], "denominators": [2, 2]},
    edit_distance: {"output": ["a"], "reference": ["b"]},
    hamming_distance: {"output": ["a"], "reference": ["b"]},
    evaluate_examples: {"scored": SCORED},
    metrics_for_log: {"evaluation": evaluate_examples(SCORED)},
    worst_examples: {"scored": SCORED, "count": 1},
    score_texts: {"outputs": ["a b"], "references": [["a b", "b"]]},
    bleu: {"outputs": ["a b"], "references": [["a b", "b"]]},
    chrf: {"outputs": ["a b"], "references": [["a b", "b"]]},
    outcome_table: {"scored": SCORED},
    macro_average: {"tables": [TABLE, TABLE]},
    compare_outcomes: {"a": [TABLE], "b": [TABLE]},
    score_traces: {"traces": [TRACE], "references": [["x"]], "tokenizers": tokenizers()},
    oracle_accuracy: {"candidates": [SCORED], "count": 2},
    bootstrap_sums: {"table": [[0.5, 1.0]], "seed": 1},
    number_symbols: {"one": ["a"], "other": ["a", "b"]},
    rates_from_sums: {"sums": TABLE.sum(axis=0), "total": 2},
    check_tables: {"name": "tables", "tables": [TABLE]},
    mean_reciprocal_rank: {"candidates": [SCORED]},
    assess_outputs: {
        "name": "run",
        "decoded": DECODED,
        "tokenizers": tokenizers(),
        "shared": tokenizers(),
        "metrics": ERROR_RATE_METRICS,
    },
    join_assessments: {"parts": [ASSESSMENT]},
    compare_runs: {"a": ASSESSMENT, "b": ASSESSMENT},
    error_rates: {"row": GROUP},
    tag_rates: {"row": GROUP},
    class_and_tag_rates: {"row": GROUP},
    accuracy_rates: {"row": GROUP},
}


@pytest.mark.parametrize(("function", "name"), list_arguments(VALID_ARGUMENTS), ids=function_name)
def test_an_invalid_argument_is_one_error_that_names_it(function: Callable[..., Any], name: str) -> None:
    assert find_faults(function, VALID_ARGUMENTS[function], name) == []


@pytest.mark.parametrize("rates", [error_rates, tag_rates, accuracy_rates])
def test_rates_refuse_a_row_that_is_no_group_and_no_macro_average(rates: Callable[[Any], Any]) -> None:
    """Regression test: None raised an `AttributeError`."""
    interval = GROUP.exact_match_ci95
    assert len(rates(MeanRates(50.0, interval, 25.0, interval))) == len(rates(GROUP))
    wrong: list[Any] = [None, b"x", 3, "row", [GROUP], GROUP._replace(exact_match_ci95=None), MeanRates(*[None] * 4)]  # type: ignore[arg-type]
    for row in wrong:
        with pytest.raises(ArgumentError, match=r"^row(\.exact_match(_ci95)?)?: expected "):
            rates(row)


def test_methods_refuse_invalid_arguments() -> None:
    assert find_faults(lambda count: ASSESSMENT.worst_examples(count), {}, "count") == []
    confusions = count_confusions(SCORED)
    assert find_faults(lambda max_symbols: confusions.matrix(max_symbols), {}, "max_symbols") == []


ZERO_WEIGHTS = np.zeros((2, 3))
ATTENTION_STATISTICS = [
    "coverage_deviation",
    "absentmindedness_out",
    "absentmindedness_in",
    "attention_confidence",
    "diagonality",
]


@pytest.mark.parametrize("name", ATTENTION_STATISTICS)
@pytest.mark.parametrize("weights", [ZERO_WEIGHTS, np.zeros((0, 3)), np.zeros((3, 0))])
def test_statistics_of_zero_weights_are_refused(name: str, weights: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match=r"^weights: expected at least one row with a weight above 0, got "):
        getattr(alignment, name)(weights)


def test_corpora_without_attention_have_no_statistics() -> None:
    without_attention, empty = make_trace("abc", ["x", END], ZERO_WEIGHTS.tolist()), make_trace("", [], [])
    for traces in ([], [without_attention], [empty], [without_attention, empty]):
        assert alignment.summarize_attention(traces) == [] and alignment.mean_attention_map(traces) is None
        assert alignment.count_jumps(traces) == {}


def trace_with_weights(weights: np.ndarray) -> Trace:
    """Return `TRACE` with other attention weights."""
    return replace(TRACE, attention=weights)


WRONG_FIELDS = {
    "text": None,
    "target": None,
    "num_features": "x",
    "finished": np.zeros(2),
    "log_probabilities": np.full(2, np.nan),
    "top_log_probabilities": None,
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_a_trace_with_a_wrong_field_is_refused_by_its_name(name: str) -> None:
    trace = replace(TRACE)
    object.__setattr__(trace, name, WRONG_FIELDS[name])
    trace_functions: list[Callable[..., Any]] = [alignment.attention_jumps, alignment.trace_statistics]
    for function in trace_functions:
        with pytest.raises(ArgumentError, match=rf"^trace\.{name}: expected "):
            function(trace)
    corpus_functions: list[Callable[..., Any]] = [
        alignment.count_jumps,
        alignment.mean_attention_map,
        alignment.summarize_attention,
    ]
    for function in corpus_functions:
        with pytest.raises(ArgumentError, match=rf"^traces\[1\]\.{name}: expected "):
            function([TRACE, trace])


WRONG_OUTPUT_FIELDS = {
    "text": None,
    "source": 5,
    "target": None,
    "num_features": torch.tensor(math.nan),
    "finished": np.zeros(2),
    "task": None,
    "top_symbols": None,
    "log_probabilities": [-0.5, -0.5],
}


@pytest.mark.parametrize("name", WRONG_OUTPUT_FIELDS)
def test_scoring_refuses_traces_with_wrong_output_fields(name: str) -> None:
    """Regression test: a wrong field raised a bare `TypeError`, or gave a length that was a tensor of NaN."""
    trace, tagged = replace(TRACE), replace(TAG_TRACES[0])
    for invalid in (trace, tagged):
        object.__setattr__(invalid, name, WRONG_OUTPUT_FIELDS[name])
    calls: list[Callable[[], object]] = [
        lambda: score_traces([TRACE, trace], [["a"], ["a"]], tokenizers()),
        lambda: score_labels([*SCORED_TAGS, *SCORED_TAGS], [*TAG_TRACES, tagged]),
        lambda: score_positions(SCORED[:2], [*POINTER_TRACES, tagged]),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match=rf"^traces\[1\]\.{name}: expected "):
            call()


def test_other_fields_of_a_scored_trace_are_not_read() -> None:
    trace = replace(TRACE)
    object.__setattr__(trace, "attention", None)
    assert score_traces([trace], [["a"]], tokenizers()) == score_traces([TRACE], [["a"]], tokenizers())


def test_a_list_of_log_probabilities_has_no_score() -> None:
    """Regression test: a list raised an `AttributeError`."""
    trace = replace(TRACE)
    object.__setattr__(trace, "log_probabilities", [-0.5, -0.5])
    with pytest.raises(ArgumentError, match=r"^log_probabilities: expected an array of floating-point numbers, got \["):
        _ = trace.score


def assess_decoded(decoded: DecodedExamples) -> Assessment:
    """Return the assessment of decoded examples."""
    return assess_outputs("run", decoded, tokenizers(), tokenizers(), ERROR_RATE_METRICS)


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (alignment.row_entropy, ([[0.5, -0.5]],), "weights[0, 1]: expected a number from 0 to 1.001, got -0.5"),
        (alignment.row_entropy, ([0.5],), "weights: expected an array of numbers of shape (T, S), got [0.5]"),
        (
            alignment.alignment_agreement,
            (
                [ATTENTION],
                SPANS._replace(known=SPANS.known[:, :1]),
            ),
            "spans.known: expected an array of shape (1, 2)",
        ),
        (
            alignment.alignment_agreement,
            (
                [ATTENTION],
                SPANS._replace(known=~SPANS.known),
            ),
            "spans: expected at least one symbol whose span",
        ),
        (
            alignment.alignment_agreement,
            (
                np.zeros((1, 2, 0)),
                SPANS,
            ),
            "weights: expected at least one source position",
        ),
        (alignment.summarize_attention, (TRACE,), "traces: expected a list of Trace objects, got Trace("),
        (
            alignment.summarize_attention,
            (
                [TRACE],
                [],
            ),
            "gold: expected as many as traces has (1), got 0",
        ),
        (
            alignment.summarize_attention,
            (
                [TRACE],
                [[(0, 9)]],
            ),
            "gold[0][0]: expected source positions",
        ),
        (
            alignment.summarize_attention,
            (
                [TRACE],
                [[(2, 1)]],
            ),
            "gold[0][0]: expected source positions",
        ),
        (
            alignment.summarize_attention,
            (
                [TRACE],
                [[(0, 1.5)]],
            ),
            "gold[0][0][1]: expected a whole number, got 1.5",
        ),
        (
            alignment.summarize_attention,
            (
                [TRACE],
                None,
                -1,
            ),
            "seed: expected a whole number of at least 0, got -1",
        ),
        (
            alignment.summarize_attention,
            ([TRACE, trace_with_weights(np.full((2, 3), np.nan))],),
            "traces[1].attention: expected weights from 0 to 1, got nan at [0, 0]",
        ),
        (
            alignment.mean_attention_map,
            ([trace_with_weights(np.zeros((2, 2)))],),
            "traces[0].attention: expected 2 × 3 numbers, got 2 × 2",
        ),
        (
            alignment.attention_jumps,
            (trace_with_weights(np.zeros((2, 2))),),
            "trace.attention: expected 2 × 3 numbers, got 2 × 2",
        ),
        (
            measure_calibration,
            (
                [],
                [],
            ),
            "log_probabilities: expected at least one output, got []",
        ),
        (
            measure_calibration,
            (
                [-1.0],
                [],
            ),
            "right: expected as many as log_probabilities has (1), got 0",
        ),
        (
            measure_calibration,
            (
                [math.nan],
                [True],
            ),
            "log_probabilities[0]: expected a number of at most 0.001, got nan",
        ),
        (
            measure_calibration,
            (
                [0.5],
                [True],
            ),
            "log_probabilities[0]: expected a number of at most 0.001, got 0.5",
        ),
        (
            measure_calibration,
            (
                [-1.0],
                [1],
            ),
            "right[0]: expected true or false, got 1",
        ),
        (
            wilson_interval,
            (
                3,
                2,
            ),
            "right: expected at most total (2), got 3",
        ),
        (
            wilson_interval,
            (
                -1,
                2,
            ),
            "right: expected a whole number of at least 0, got -1",
        ),
        (
            wilson_interval,
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
            "output: expected a list of strings, got 'ab'",
        ),
        (evaluate_examples, (SCORED[0],), "scored: expected a list of ScoredExample objects, got ScoredExample("),
        (
            evaluate_examples,
            ([SCORED[0]._replace(source_length=-1)],),
            "scored[0].source_length: expected a whole number of at least 0",
        ),
        (
            worst_examples,
            (
                SCORED,
                -1,
            ),
            "count: expected a whole number of at least 0, got -1",
        ),
        (
            score_texts,
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
            "references[0]: expected a list of strings, got 'a'",
        ),
        (matthews_correlation, (np.zeros((2, 3), int),), "confusion: expected an array of shape (2, 2), got"),
        (matthews_correlation, ([[-1]],), "confusion[0, 0]: expected a number from 0 to 9.0072e+15, got -1"),
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
                SCORED_TAGS,
                [],
            ),
            "traces: expected as many as scored has (1), got 0",
        ),
        (
            score_labels,
            (
                [ScoredExample((), ((),), 0)],
                TAG_TRACES,
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
        (score_chunks, ([],), "scored: expected at least one example, got []"),
        (
            compare_outcomes,
            (
                [],
                [],
            ),
            "a: expected at least one group, got []",
        ),
        (
            compare_outcomes,
            (
                [TABLE[:0]],
                [TABLE[:0]],
            ),
            "a[0]: expected at least one example",
        ),
        (
            compare_outcomes,
            (
                [TABLE],
                [TABLE * 9],
            ),
            "b[0]: expected a first column of 0 and 1",
        ),
        (
            compare_outcomes,
            (
                [TABLE[:, :2]],
                [TABLE],
            ),
            "a[0]: expected an array of whole numbers of shape (…, 3)",
        ),
        (macro_average, ([],), "tables: expected at least one group, got []"),
        (
            oracle_accuracy,
            (
                [],
                1,
            ),
            "candidates: expected at least one example, got []",
        ),
        (oracle_accuracy, ([SCORED], 2**31), "count: expected a whole number of at most 1024, got 2147483648"),
        (bootstrap_sums, ([[1.0]], [[[1]]]), "seed: expected a whole number"),
        (bootstrap_sums, (np.zeros((0, 2)),), "table: expected at least one row"),
        (rates_from_sums, (TABLE.sum(axis=0), 0), "total: expected a whole number of at least 1, got 0"),
        (mean_reciprocal_rank, ([],), "candidates: expected at least one example, got []"),
        (
            score_traces,
            (
                [TRACE],
                [],
                tokenizers(),
            ),
            "references: expected as many as traces has (1), got 0",
        ),
        (
            score_traces,
            (
                [TRACE],
                ["x"],
                tokenizers(),
            ),
            "references[0]: expected a list of strings, got 'x'",
        ),
        (join_assessments, ([],), "parts: expected at least one assessment, got []"),
        (
            assess_decoded,
            (DECODED._replace(groups=[]),),
            "decoded.groups: expected as many as",
        ),
        (
            assess_outputs,
            (
                "",
                DecodedExamples([Example("a", "b")], [("b",)], [""], [[]]),
                tokenizers(),
                tokenizers(),
                ERROR_RATE_METRICS,
            ),
            "decoded.outputs[0]: expected at least one output",
        ),
    ],
)
def test_messages_say_what_was_expected(function: Callable[..., Any], args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        function(*args)
    assert str(caught.value).startswith(message)


def test_runs_with_different_groups_are_not_compared() -> None:
    with pytest.raises(InputError, match="same examples"):
        compare_runs(ASSESSMENT, assessment(ROWS, groups=["p", "p", "q", "q"]))


def test_outputs_of_probability_zero_have_a_calibration() -> None:
    assert measure_calibration([-math.inf, 0.0], [False, True]).brier == 0


def test_calls_from_the_iterator_of_an_argument_are_checked() -> None:
    def tags() -> Iterator[str]:
        yield "O"
        with pytest.raises(ArgumentError, match=r"^output: expected "):
            edit_distance("abc", ["a"])
        yield "B-x"

    assert has_chunks(tags())
