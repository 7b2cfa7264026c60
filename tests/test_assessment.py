"""Assessments: groups, joining, comparing, and their JSON form."""

import json
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from sample_predictions import make_prediction_trace
from sample_traces import make_diagonal_trace

from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers
from pellucid.decoding.trace import END
from pellucid.errors import InputError
from pellucid.evaluation.assessment import Assessment, DecodedExamples, assess_outputs, compare_runs, join_assessments
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS
from pellucid.reporting.tables import score_rows
from pellucid.tasks.registry import get_task


def tokenizers(target: str = "characters") -> Tokenizers:
    letters = Tokenizer("characters", "none")
    return Tokenizers(letters, Tokenizer(target, "none"), letters)


def build_assessment(
    rows: Sequence[tuple[str, ...]], name: str = "run", groups: Sequence[str] | None = None
) -> Assessment:
    """An assessment of rows of (wanted, output, further outputs)."""
    outputs = [[make_diagonal_trace(tuple(wanted or "x"), (*each, END)) for each in own] for wanted, *own in rows]
    examples = [Example(wanted, wanted) for wanted, *_ in rows]
    own = list(groups) if groups is not None else [""] * len(rows)
    answered = DecodedExamples(examples, [(wanted,) for wanted, *_ in rows], own, outputs)
    return assess_outputs(name, answered, tokenizers(), tokenizers(), ERROR_RATE_METRICS, texts=True)


ROWS = [("abc", "abc"), ("abd", "abc"), ("x", "x"), ("yz", "y")]


def test_all_metrics_are_plain_json() -> None:
    found = json.loads(msgspec.json.encode(build_assessment(ROWS, groups=["p", "p", "q", "q"]).to_dict()))
    assert found["exact_match"] == 50 and found["errors"] == 2 and found["symbols"] == 9
    assert found["confusions"]["kinds"] == {"substitution": 1, "insertion": 0, "deletion": 1}
    assert found["calibration"]["share_right"] == 0.5 and len(found["calibration"]["bins"]) == 10
    assert found["texts"]["word_edit_rate"] == 50 and found["texts"]["bleu"]["signature"].startswith("nrefs:1|")
    assert [row["group"] for row in found["groups"]] == ["p", "q"] and found["groups"][0]["wer"] == 50
    assert found["macro"]["symbol_error_rate"] == pytest.approx((100 / 6 + 100 / 3) / 2)
    assert found["oracle"] == [] and found["mean_reciprocal_rank"] is None


def test_one_group_has_no_table_and_no_mean() -> None:
    found = build_assessment(ROWS)
    assert found.groups == [] and found.mean is None and found.to_dict()["macro"] is None


@pytest.mark.parametrize("rows", [[("abc", "abc")], [("abc", "xyz")], [("abc", "")], [("", "")], [("", "a")]])
def test_one_example_right_wrong_or_empty(rows: list[tuple[str, ...]]) -> None:
    found = build_assessment(rows).to_dict()
    json.loads(msgspec.json.encode(found))
    assert found["exact_match"] == 100 * (rows[0][0] == rows[0][1])
    same = compare_runs(build_assessment(rows), build_assessment(rows))
    assert same.exact_match.p == same.symbol_error_rate.p == 1 and same.exact_match.difference == 0


def test_candidates_count() -> None:
    found = build_assessment([("ab", "a", "ab"), ("c", "c"), ("d", "x", "y", "z")])
    assert [round(each.accuracy, 2) for each in found.oracle] == [33.33, 66.67, 66.67]
    assert found.mean_reciprocal_rank == pytest.approx((1 / 2 + 1 + 0) / 3)


def test_joined_assessments_equal_one_assessment() -> None:
    parts = [build_assessment(ROWS[:2], groups=["p", "p"]), build_assessment(ROWS[2:], groups=["q", "q"])]
    assert join_assessments(parts).to_dict() == build_assessment(ROWS, groups=["p", "p", "q", "q"]).to_dict()


def test_runs_with_another_tokenizer_are_split_like_the_first() -> None:
    words = build_assessment(ROWS)
    answered = words.decoded
    found = assess_outputs("run", answered, tokenizers("words"), tokenizers(), ERROR_RATE_METRICS)
    assert [each.output for each in found.scored] == [tuple("abc"), tuple("abc"), ("x",), ("y",)]
    assert found.evaluation == words.evaluation


def test_runs_on_different_examples_are_not_compared() -> None:
    with pytest.raises(InputError, match="same examples"):
        compare_runs(build_assessment(ROWS), build_assessment(ROWS[:3]))


def test_a_comparison_of_groups_is_of_their_means() -> None:
    a, b = (
        build_assessment(ROWS, groups=["p", "p", "p", "q"]),
        build_assessment([(wanted, wanted) for wanted, _ in ROWS], "b", ["p"] * 3 + ["q"]),
    )
    found = compare_runs(a, b)
    assert found.exact_match.a == pytest.approx((200 / 3 + 0) / 2) and found.exact_match.b == 100
    assert (found.only_a, found.only_b) == (0, 2)
    assert replace(a, name="c").name == "c"


def test_tags_are_calibrated_individually_without_ignored_ones() -> None:
    traces = [
        replace(
            make_prediction_trace("tag", "abc", "HEC"), log_probabilities=np.log(np.array([0.9, 0.6, 0.8], np.float32))
        ),
        replace(make_prediction_trace("tag", "ab", "HH"), log_probabilities=np.log(np.array([0.5, 0.7], np.float32))),
    ]
    wanted = [Example("abc", "H-E"), Example("ab", "HE")]
    rows = DecodedExamples(wanted, [(each.target,) for each in wanted], ["", ""], [[trace] for trace in traces])
    cut = Tokenizers(*(each._replace(ignored_tag="-") for each in tokenizers()))
    found = assess_outputs("run", rows, cut, cut, get_task("tag").metrics)
    assert found.unit == "tags" and found.to_dict()["calibration"]["of"] == "tags"
    assert found.calibration.confidence == pytest.approx((0.9 + 0.8 + 0.5 + 0.7) / 4)
    assert found.calibration.accuracy == 0.5 and sum(each.total for each in found.calibration.bins) == 4
    assert ("calibration error of a tag", "mean probability of a tag 72.5 %, accuracy 50.0 %") in [
        (name, told) for name, _, told in score_rows(found)
    ]
    assert build_assessment(ROWS).to_dict()["calibration"]["of"] == "outputs"
