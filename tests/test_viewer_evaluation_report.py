"""Reports of evaluations and comparisons have the schema of the page."""

from pathlib import Path

import pytest
from report_documents import read_report, section_titles, select_parts
from sample_traces import HOSTILE_SYMBOLS, make_diagonal_trace
from test_assessment import ROWS, build_assessment, tokenizers

from pellucid.data.examples import Example
from pellucid.decoding.trace import END
from pellucid.evaluation.assessment import Assessment, ComparedAssessment, DecodedExamples, assess_outputs, compare_runs
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS
from pellucid.viewer.report_schema import (
    ReportCharts,
    ReportConfusions,
    ReportDocument,
    ReportExamples,
    ReportTable,
    ReportText,
)
from pellucid.viewer.reports import MAX_CONFUSIONS, comparison_report, evaluation_report, report_document, write_report

COUNTS = {"lines": 4, "bad_lines": 0, "truncated_outputs": 2}


def make_evaluation_document(assessment: Assessment, max_errors: int = 10) -> ReportDocument:
    return report_document(evaluation_report(assessment, "some/test.tsv", COUNTS, max_errors))


def make_comparison_document(*runs: Assessment) -> ReportDocument:
    comparisons = [ComparedAssessment(run, compare_runs(runs[0], run)) for run in runs[1:]]
    return report_document(comparison_report(runs, comparisons, [], [], "test.tsv", 10))


def test_evaluation_report_has_scores_and_errors() -> None:
    document = make_evaluation_document(build_assessment(ROWS))
    assert document.title == "run on test.tsv"
    assert section_titles(document) == ["Accuracy", "Confusions", "Calibration", "Errors"]
    summary = {each.label: (each.value, each.note) for each in document.summary}
    assert summary["sequence error rate"][0] == "50.00 %" and summary["sequence error rate"][1].endswith(
        "(wrong outputs; of single words: WER)"
    )
    assert "CER: edits over characters" in summary["symbol error rate"][1]
    assert summary["truncated outputs"] == ("2", "") and "bad lines" not in summary and "lines" not in summary
    (errors,) = select_parts(document, ReportExamples)
    assert [each.errors for each in errors.examples] == [[("z", None)], [("d", "c")]] and errors.listed
    assert [len(part.charts) for part in select_parts(document, ReportCharts)] == [2, 3]


def test_confusions_have_counts_and_correct_predictions() -> None:
    (confusions,) = select_parts(make_evaluation_document(build_assessment(ROWS)), ReportConfusions)
    assert [(each.expected, each.predicted, each.count, each.num_expected) for each in confusions.errors] == [
        ("d", "c", 1, 1),
        ("z", None, 1, 1),
    ]
    assert confusions.caption.startswith("1 substitution, 0 insertions, 1 deletion. ")
    assert confusions.correct == {"c": 1, "d": 0, "z": 0} and confusions.omitted == 0
    many = build_assessment([("".join(map(chr, range(256, 256 + MAX_CONFUSIONS + 5))), "")])
    (confusions,) = select_parts(make_evaluation_document(many), ReportConfusions)
    assert len(confusions.errors) == MAX_CONFUSIONS and confusions.omitted == 5


def test_calibration_charts_have_bins_and_diagonal() -> None:
    assessment = build_assessment(ROWS)
    _, charts = select_parts(make_evaluation_document(assessment), ReportCharts)
    reliability, selective, review = charts.charts
    assert assessment.calibration is not None
    nonempty_bins = [each for each in assessment.calibration.bins if each.total]
    assert [(point.x, point.y) for point in reliability.lines[0].points] == [
        (100 * each.mean_probability, 100 * each.accuracy) for each in nonempty_bins
    ]
    assert all(
        (point.low, point.high) == (*each.ci95.percent,)
        for point, each in zip(reliability.lines[0].points, nonempty_bins, strict=True)
    )
    assert reliability.lines[1].reference and [(p.x, p.y) for p in reliability.lines[1].points] == [(0, 0), (100, 100)]
    assert reliability.numbers is not None and len(reliability.numbers.rows) == 10
    coverage = assessment.calibration.coverage_points
    assert [(p.x, p.y) for p in selective.lines[0].points] == [(100 * c.coverage, 100 * c.accuracy) for c in coverage]
    assert [p.y for p in review.lines[0].points] == [100 * c.error_recall for c in reversed(coverage)]


def test_groups_are_in_a_table_with_their_mean() -> None:
    document = make_evaluation_document(build_assessment(ROWS, groups=["p", "p", "p", "q"]))
    assert section_titles(document)[0] == "By group"
    (table,) = select_parts(document, ReportTable)
    assert table.total and list(table.rows[-1][:3]) == ["mean", "2 groups", "66.67"]
    assert document.summary[0].label == "mean sequence error rate"


def test_absent_content_is_omitted() -> None:
    assert section_titles(make_evaluation_document(build_assessment([("ab", "ab")]))) == ["Accuracy", "Calibration"]
    assert section_titles(make_evaluation_document(build_assessment([("", "a"), ("b", "")])))[-1] == "Errors"
    (errors,) = select_parts(make_evaluation_document(build_assessment(ROWS), max_errors=1), ReportExamples)
    assert errors.caption == "The 1 worst of 2 (--worst)." and len(errors.examples) == 1
    assert select_parts(make_evaluation_document(build_assessment(ROWS), max_errors=0), ReportExamples) == []


def test_errors_list_their_candidates() -> None:
    document = make_evaluation_document(build_assessment([("ab", "a", "ab", "b"), ("c", "c", "d", "e")]))
    assert "oracle accuracy, k = 2" in [each.label for each in document.summary]
    (errors,) = select_parts(document, ReportExamples)
    (item,) = errors.examples[0].outputs
    assert [trace.output for trace in item.traces] == ["a", "ab", "b"] and item.references == ["ab"]


def test_comparison_report_has_both_runs() -> None:
    a, b = (
        build_assessment(ROWS, "one"),
        build_assessment([("abc", "abx"), ("abd", "abd"), ("x", "x"), ("yz", "yz")], "two"),
    )
    document = make_comparison_document(a, b)
    assert section_titles(document) == [
        *("Scores", "Significance", "Accuracy", "Confusions", "Calibration"),
        *("one correct, two wrong", "two correct, one wrong"),
    ]
    first, second = select_parts(document, ReportExamples)
    assert list(first.runs) == ["one", "two"] and list(second.runs) == ["two", "one"]
    (example,) = first.examples
    assert [item.exact for item in example.outputs] == [True, False] and len(second.examples) == 2
    assert example.output == [("ab", False), ("x", True)] and example.expected == [("abc", False)]
    (text,) = select_parts(document, ReportText)
    assert "In exact match, one and two do not differ significantly (p = " in text.text
    assert document.summary[2].value == "-25.00 points"
    tests, counts = select_parts(document, ReportTable, "Significance")
    assert [row[0] for row in tests.rows] == ["exact match, one − two", "symbol error rate, one − two"]
    assert list(counts.rows[0]) == ["two", "1", "1", "2", "0"]


def test_significant_difference_is_reported_with_its_direction() -> None:
    bad, good = build_assessment([("ab", "xy")] * 12, "bad"), build_assessment([("ab", "ab")] * 12, "good")
    (text,) = select_parts(make_comparison_document(good, bad), ReportText)
    assert text.text.startswith("In exact match, good is significantly better than bad (p = ")
    assert "In symbol error rate, good is significantly better than bad" in text.text


def test_compared_charts_have_a_line_per_run() -> None:
    a, b = build_assessment(ROWS, "one"), build_assessment([(target, target) for target, _ in ROWS], "two")
    accuracy, calibration = select_parts(make_comparison_document(a, b), ReportCharts)
    assert [[line.name for line in chart.lines] for chart in accuracy.charts] == [["one", "two"]] * 2
    assert [line.name for line in calibration.charts[0].lines] == ["one", "two", "perfect calibration"]
    assert all(point.low is None for chart in accuracy.charts for line in chart.lines for point in line.points)
    (confusions,) = select_parts(make_comparison_document(a, b), ReportTable, "Confusions")
    assert [list(row) for row in confusions.rows] == [["d → c", "1", "0"], ["z → –", "1", "0"]]


def test_disagreements_are_listed_for_each_pair_of_runs() -> None:
    a = build_assessment(ROWS, "one")
    assert select_parts(make_comparison_document(a, build_assessment(ROWS, "two")), ReportExamples) == []
    document = make_comparison_document(
        a, build_assessment(ROWS, "two"), build_assessment([(target, target) for target, _ in ROWS], "three")
    )
    assert section_titles(document)[-1] == "three correct, one wrong"
    assert "multiple comparisons" in select_parts(document, ReportTable, "Significance")[0].caption


@pytest.mark.parametrize("symbol", HOSTILE_SYMBOLS)
def test_markup_in_texts_stays_data(symbol: str, tmp_path: Path) -> None:
    trace = make_diagonal_trace((symbol, "a"), (symbol, END))
    decoded = DecodedExamples([Example(symbol, symbol)] * 2, [(symbol + "b",)] * 2, [symbol, "g"], [[trace], [trace]])
    bad = assess_outputs(symbol, decoded, tokenizers(), tokenizers(), ERROR_RATE_METRICS)
    write_report(tmp_path / "page.html", evaluation_report(bad, symbol, {}, 10))
    document = read_report(tmp_path / "page.html")
    (errors,) = select_parts(document, ReportExamples)
    shown = "\ufffd" if symbol == "\ud800" else symbol
    assert [each.outputs[0].text for each in errors.examples] == [f"{shown}a"] * 2
