"""Assessments: groups, joining, comparing, and their JSON form."""

import json
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import scipy.stats
from sample_predictions import make_prediction_trace
from sample_traces import make_diagonal_trace

from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers
from pellucid.decoding.trace import END
from pellucid.errors import ArgumentError, InputError
from pellucid.evaluation.assessment import (
    Assessment,
    DecodedExamples,
    RateStatistics,
    assess_outputs,
    compare_runs,
    join_assessments,
    rates_over_seeds,
)
from pellucid.evaluation.metrics import OutcomeCounts
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS
from pellucid.reporting.tables import score_rows
from pellucid.tasks.registry import get_task


def tokenizers(target: str = "characters") -> Tokenizers:
    letters = Tokenizer("characters", "none")
    return Tokenizers(letters, Tokenizer(target, "none"), letters)


def decoded_examples(rows: Sequence[tuple[str, ...]], groups: Sequence[str] | None = None) -> DecodedExamples:
    """Return examples of rows with the reference, the output and any further outputs."""
    traces = [
        [make_diagonal_trace(tuple(reference or "x"), (*each, END)) for each in outputs] for reference, *outputs in rows
    ]
    examples = [Example(reference, reference) for reference, *_ in rows]
    row_groups = list(groups) if groups is not None else [""] * len(rows)
    return DecodedExamples(examples, [(reference,) for reference, *_ in rows], row_groups, traces)


def build_assessment(
    rows: Sequence[tuple[str, ...]], name: str = "run", groups: Sequence[str] | None = None
) -> Assessment:
    """Build an assessment of rows with the reference, the output and any further outputs."""
    decoded = decoded_examples(rows, groups)
    return assess_outputs(name, decoded, tokenizers(), tokenizers(), ERROR_RATE_METRICS, texts=True)


ROWS = [("abc", "abc"), ("abd", "abc"), ("x", "x"), ("yz", "y")]


def test_all_metrics_are_plain_json() -> None:
    result = json.loads(msgspec.json.encode(build_assessment(ROWS, groups=["p", "p", "q", "q"]).to_dict()))
    assert result["exact_match"] == 50 and result["errors"] == 2 and result["symbols"] == 9
    assert result["confusions"]["kinds"] == {"substitution": 1, "insertion": 0, "deletion": 1}
    assert result["calibration"]["accuracy"] == 0.5 and len(result["calibration"]["bins"]) == 10
    assert result["texts"]["word_error_rate"] == 50 and result["texts"]["bleu"]["signature"].startswith("nrefs:1|")
    assert [row["group"] for row in result["groups"]] == ["p", "q"] and result["groups"][0]["sequence_error_rate"] == 50
    assert result["macro"]["symbol_error_rate"] == pytest.approx((100 / 6 + 100 / 3) / 2)
    assert result["oracle"] == [] and result["mean_reciprocal_rank"] is None


def test_rates_over_seeds_are_means_and_standard_deviations_of_the_runs() -> None:
    runs = [build_assessment(ROWS), build_assessment([("abc", "abc"), ("abd", "abd"), ("x", "x"), ("yz", "y")])]
    group = rates_over_seeds(runs)
    exact_match, wrong, error_rate = group.rates
    assert group.runs == ["run", "run"]
    assert exact_match.values == [50, 75] and exact_match.mean == 62.5
    assert exact_match.standard_deviation == pytest.approx(np.std([50, 75], ddof=1))
    assert wrong.key == "sequence_error_rate" and wrong.values == [50, 25]
    three = RateStatistics("key", "name", [60.0, 62.0, 67.0])
    assert list(three.interval) == pytest.approx(scipy.stats.t.interval(0.95, 2, 63.0, scipy.stats.sem(three.values)))
    assert list(exact_match.interval) == [0, 100], "two seeds: wider than all rates"
    assert three.to_dict()["ci95"] == list(three.interval)
    assert error_rate.values == pytest.approx([100 * 2 / 9, 100 / 9])
    grouped = [build_assessment([("a", "a"), ("b", "c"), ("d", "d")], groups=["p", "p", "q"])] * 2
    assert rates_over_seeds(grouped).rates[0].values == [75, 75]  # means over groups
    with pytest.raises(ArgumentError, match="two assessments or more, got 1"):
        rates_over_seeds(runs[:1])


def test_single_group_has_no_table_and_no_mean() -> None:
    result = build_assessment(ROWS)
    assert result.groups == [] and result.mean is None and result.to_dict()["macro"] is None


@pytest.mark.parametrize("rows", [[("abc", "abc")], [("abc", "xyz")], [("abc", "")], [("", "")], [("", "a")]])
def test_single_example_may_be_correct_wrong_or_empty(rows: list[tuple[str, ...]]) -> None:
    result = build_assessment(rows).to_dict()
    json.loads(msgspec.json.encode(result))
    assert result["exact_match"] == 100 * (rows[0][0] == rows[0][1])
    comparison = compare_runs(build_assessment(rows), build_assessment(rows))
    assert comparison.exact_match.p == comparison.symbol_error_rate.p == 1 and comparison.exact_match.difference == 0


def test_oracle_accuracy_and_reciprocal_rank_use_all_candidates() -> None:
    result = build_assessment([("ab", "a", "ab"), ("c", "c"), ("d", "x", "y", "z")])
    assert [round(each.accuracy, 2) for each in result.oracle] == [33.33, 66.67, 66.67]
    assert result.mean_reciprocal_rank == pytest.approx((1 / 2 + 1 + 0) / 3)


def test_joined_assessments_equal_one_assessment() -> None:
    parts = [build_assessment(ROWS[:2], groups=["p", "p"]), build_assessment(ROWS[2:], groups=["q", "q"])]
    assert join_assessments(parts).to_dict() == build_assessment(ROWS, groups=["p", "p", "q", "q"]).to_dict()


def with_baseline(assessment: Assessment, *outputs: str) -> Assessment:
    """Return an assessment with outputs of a pair n-gram model alone."""
    baseline = OutcomeCounts()
    baseline.add(each._replace(output=tuple(text)) for each, text in zip(assessment.scored, outputs, strict=True))
    return replace(assessment, baseline=baseline)


def test_the_baseline_has_rates_means_over_groups_and_rows() -> None:
    run = build_assessment(ROWS, groups=["p", "p", "q", "q"])
    assert run.to_dict()["pair_ngram"] is None and run.pair_ngram_mean is None
    baseline = with_baseline(run, "abc", "abd", "x", "x")
    assert {**baseline.to_dict(), "pair_ngram": None} == run.to_dict()
    scores = json.loads(msgspec.json.encode(baseline.to_dict()))["pair_ngram"]
    assert (scores["exact_match"], scores["sequence_error_rate"]) == (75, 25)
    assert scores["symbol_error_rate"] == pytest.approx(100 * 2 / 9)
    assert scores["macro"]["exact_match"] == 75 and scores["macro"]["symbol_error_rate"] == pytest.approx(100 / 3)
    rows = {name: (value, note) for name, value, note in score_rows(baseline) if "pair n-gram" in name}
    assert [value for value, _ in rows.values()] == ["75.00 %", "22.22 %"]
    assert rows["exact match, pair n-gram alone"][1].endswith("; mean over groups 75.00 %")
    assert [row for row in score_rows(baseline) if row[0] not in rows] == score_rows(run)


def test_joined_baselines_equal_one_baseline() -> None:
    parts = [build_assessment(ROWS[:2], groups=["p", "p"]), build_assessment(ROWS[2:], groups=["q", "q"])]
    joined = join_assessments([with_baseline(parts[0], "abc", "abd"), with_baseline(parts[1], "x", "x")])
    whole = with_baseline(build_assessment(ROWS, groups=["p", "p", "q", "q"]), "abc", "abd", "x", "x")
    assert joined.to_dict() == whole.to_dict()
    without_one = join_assessments([with_baseline(parts[0], "abc", "abd"), parts[1]])
    assert without_one.pair_ngram_evaluation is None


def test_runs_with_another_tokenizer_are_split_like_the_first() -> None:
    assessment = build_assessment(ROWS)
    decoded = decoded_examples(ROWS)
    result = assess_outputs("run", decoded, tokenizers("words"), tokenizers(), ERROR_RATE_METRICS)
    assert [each.output for each in result.scored] == [tuple("abc"), tuple("abc"), ("x",), ("y",)]
    assert result.evaluation == assessment.evaluation


def test_runs_on_different_examples_are_not_compared() -> None:
    with pytest.raises(InputError, match="same examples"):
        compare_runs(build_assessment(ROWS), build_assessment(ROWS[:3]))


def test_comparison_of_groups_compares_their_means() -> None:
    a, b = (
        build_assessment(ROWS, groups=["p", "p", "p", "q"]),
        build_assessment([(reference, reference) for reference, _ in ROWS], "b", ["p"] * 3 + ["q"]),
    )
    result = compare_runs(a, b)
    assert result.exact_match.a == pytest.approx((200 / 3 + 0) / 2) and result.exact_match.b == 100
    assert (result.only_a, result.only_b) == (0, 2)
    assert replace(a, name="c").name == "c"


def test_tags_are_calibrated_individually_without_ignored_ones() -> None:
    traces = [
        replace(
            make_prediction_trace("tag", "abc", "HEC"), log_probabilities=np.log(np.array([0.9, 0.6, 0.8], np.float32))
        ),
        replace(make_prediction_trace("tag", "ab", "HH"), log_probabilities=np.log(np.array([0.5, 0.7], np.float32))),
    ]
    examples = [Example("abc", "H-E"), Example("ab", "HE")]
    decoded = DecodedExamples(examples, [(each.target,) for each in examples], ["", ""], [[trace] for trace in traces])
    without_ignored = Tokenizers(*(replace(each, ignored_tag="-") for each in tokenizers()))
    result = assess_outputs("run", decoded, without_ignored, without_ignored, get_task("tag").metrics)
    assert result.unit == "tags" and result.to_dict()["calibration"]["of"] == "tags"
    assert result.calibration is not None
    assert result.calibration.mean_probability == pytest.approx((0.9 + 0.8 + 0.5 + 0.7) / 4)
    assert result.calibration.accuracy == 0.5 and sum(each.total for each in result.calibration.bins) == 4
    assert ("calibration error of a tag", "mean probability of a tag 72.5 %, accuracy 50.0 %") in [
        (name, text) for name, _, text in score_rows(result)
    ]
    assert build_assessment(ROWS).to_dict()["calibration"]["of"] == "outputs"
