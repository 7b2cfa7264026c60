"""A report consists of parts, and its document is data of the page."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_documents import read_report, section_titles, select_parts
from sample_traces import HOSTILE_SYMBOLS, make_diagonal_trace, make_small_trace, make_trace

from pellucid.config.settings import TaskName
from pellucid.decoding.trace import END, Trace, identity_attention
from pellucid.decoding.trace_schema import EncodedArray
from pellucid.errors import RunError
from pellucid.evaluation.metrics import GroupAccuracy, ScoredExample, ValidationMetric
from pellucid.tasks.registry import get_task
from pellucid.tasks.task import ATTENTION_CAPTION
from pellucid.viewer.pages import built_page
from pellucid.viewer.report_parts import ExampleOutput, accuracy_charts, compare_texts, split_tags, training_curves
from pellucid.viewer.report_schema import (
    MarkedText,
    ReportCharts,
    ReportExamples,
    ReportFigure,
    ReportSettings,
    ReportTable,
    ReportText,
    SummaryValue,
)
from pellucid.viewer.reports import Report, report_document, write_report

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>'
LOG = [
    {"event": "stepped", "samples": 32 * step, "loss": 3.0 / step, "learning_rate": 0.1} for step in range(1, 1001)
] + [
    {
        "event": "validated",
        "samples": 16000 * n,
        "exact_match": 40.0 + 10 * n,
        "symbol_error_rate": 9.0 / n,
        "loss": 1.0,
    }
    for n in (1, 2)
]
GROUP_ACCURACIES = [
    GroupAccuracy("1", 9, 10, 59.6, 98.2),
    GroupAccuracy("2", 0, 0, 0.0, 100.0),
    GroupAccuracy("3–4", 5, 10, 23.7, 76.3),
]


def make_scored_example(output: str, *references: str, positional: bool = False) -> ScoredExample:
    return ScoredExample(tuple(output), tuple(tuple(each) for each in references), 3, positional)


def make_hostile_trace() -> Trace:
    return make_diagonal_trace(HOSTILE_SYMBOLS, [*HOSTILE_SYMBOLS, END])


def tagged(words: str, tags: str, separator: str = " ") -> Trace:
    """Return a trace of a tagger whose output joins the tags with a separator."""
    source, target = tuple(words.split()), tuple(tags.split())
    n = len(source)
    steps = np.log(np.full(n, 0.5))
    top_symbols = tuple((tag,) for tag in target)
    output = separator.join(target)
    return Trace(words, source, 0, (), target, output, True, steps, np.eye(n), top_symbols, steps[:, None], task="tag")


def full() -> Report:
    """Return a report with every kind of content."""
    return Report(
        title="Spelling <to> sound",
        introduction="One paragraph,\nin two lines.\n\nAnother & last.",
        summary=[("exact match", "86.4 % (95 %: 83.0 to 89.3)"), ("seed", "1")],
        log=LOG,
        positions=GROUP_ACCURACIES,
        lengths=GROUP_ACCURACIES,
        examples=[
            ExampleOutput(make_small_trace(), ("AB",)),
            ExampleOutput(make_small_trace(), ("AC", "B"), make_scored_example("AB", "AC", "B")),
            ExampleOutput(make_hostile_trace(), ()),
        ],
        errors=[
            ExampleOutput(make_small_trace(), ("xyz", "ACB"), make_scored_example("AB", "xyz", "ACB")),
            ExampleOutput(make_hostile_trace(), ("<i>שלום</i>",)),
        ],
        config_toml='size = "<base>"\n\n[encoder]\nnum_layers = 1\n',
        parts=[
            ReportFigure("Mean", "over <all>", SVG),
            ReportTable("Numbers", "all <of> them", ("what", "how many"), [("<a>", "1"), ("b", "2")]),
            ReportText("Numbers", "first\n\nsecond"),
        ],
    )


def test_written_page_is_the_built_page_with_the_report(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", full())
    source = (tmp_path / "report.html").read_text("utf-8")
    assert read_report(tmp_path / "report.html").title == "Spelling <to> sound"
    assert "<script>1" not in source and "<i>" not in source and "connect-src &#x27;none&#x27;" in source
    assert not re.search(r"""<(script|link|img|iframe)[^>]*\s(src|href)=["']?(https?:)?//""", source)
    assert source.count("</script>") == built_page().count("</script>")


def test_sections_are_in_order() -> None:
    titles = ["Training curves", "Accuracy", "Attention", "Errors", "Mean", "Numbers", "Settings"]
    assert section_titles(report_document(full())) == titles


def test_empty_sections_are_omitted() -> None:
    document = report_document(Report("Only a title"))
    assert document.parts == [] and document.summary == [] and document.title == "Only a title"


def test_trailing_parentheses_become_a_note() -> None:
    assert report_document(full()).summary == [
        SummaryValue("exact match", "86.4 %", "95 %: 83.0 to 89.3"),
        SummaryValue("seed", "1"),
    ]


def test_parts_keep_their_texts() -> None:
    document = report_document(full())
    (table,), (text,) = select_parts(document, ReportTable), select_parts(document, ReportText)
    (figure,) = select_parts(document, ReportFigure)
    assert table.rows[0] == ("<a>", "1") and table.caption == "all <of> them" and text.text == "first\n\nsecond"
    assert figure.svg == SVG
    assert select_parts(document, ReportSettings)[0].toml.startswith('size = "<base>"')


def test_drawn_examples_share_a_caption_and_have_their_correctness() -> None:
    (attention,) = select_parts(report_document(full()), ReportExamples, "Attention")
    assert attention.caption == ATTENTION_CAPTION and not attention.listed
    items = [example.outputs[0] for example in attention.examples]
    assert [item.exact for item in items] == [True, False, None]
    assert [edit.kind for edit in items[1].edits] == ["same", "substitution"] and items[1].references == ["AC", "B"]
    attention_array = items[1].traces[0].attention
    assert isinstance(attention_array, EncodedArray) and attention_array.shape == [3, 3]
    assert ExampleOutput(make_small_trace(), ("other form",), make_scored_example("AB", "AB")).correct
    assert not ExampleOutput(make_small_trace(), ()).correct


def test_errors_mark_differences_from_the_nearest_reference() -> None:
    (errors,) = select_parts(report_document(full()), ReportExamples, "Errors")
    first, second = errors.examples
    assert errors.listed and first.output == [("AB", False)] and first.edits == 1
    assert first.expected == [("A", False), ("C", True), ("B", False)] and first.errors == [("C", None)]
    assert second.outputs[0].references == ["<i>שלום</i>"] and list(second.errors) == []


def compare_symbols(symbols: list[str], *references: str) -> tuple[MarkedText, MarkedText, int | None]:
    return compare_texts(ExampleOutput(make_trace("x", symbols, [[1]] * len(symbols)), references))


def test_characters_are_compared_with_their_combining_marks() -> None:
    output, expected, edits = compare_symbols(["a", " ", "b", "é"], "a cé")
    assert (output, edits) == ([("a ", False), ("b", True), ("é", False)], 1)
    assert expected == [("a ", False), ("c", True), ("é", False)]
    assert compare_symbols(["a"]) == ([("a", False)], [], None)
    assert compare_symbols([], "a") == ([], [("a", True)], 1)


@pytest.mark.parametrize("symbols", [["Yo", " te", " voy"], ["Yo", " ", "te", " v", "oy"]])
def test_outputs_of_words_are_compared_by_word(symbols: list[str]) -> None:
    output, expected, edits = compare_symbols(symbols, "Ya te vas a")
    assert output == [("Yo", True), (" ", False), ("te", False), (" ", False), ("voy", True)] and edits == 3
    assert expected == [("Ya", True), (" ", False), ("te", False), (" ", False), ("vas a", True)]


def test_output_with_another_tokenization_has_no_edits() -> None:
    document = report_document(
        Report("t", errors=[ExampleOutput(make_small_trace(), ("AC",), ScoredExample(("AB",), (("AC",),), 3))])
    )
    (errors,) = select_parts(document, ReportExamples)
    assert errors.examples[0].outputs[0].edits == [] and errors.examples[0].errors == [("AC", "AB")]


@pytest.mark.parametrize(
    ("tags", "separator", "output", "expected"),
    [
        ("O B-a I-a", " ", "O  B-b O", ["O", "B-b", "O"]),
        ("H E C", "", "HCE", ["H", "C", "E"]),
        ("NN V", "|", "V|NN", ["V", "NN"]),
        ("B-a", " ", "O", ["O"]),
    ],
)
def test_tags_are_split_by_the_separator_of_the_trace(
    tags: str, separator: str, output: str, expected: list[str]
) -> None:
    words = " ".join("w" * len(tags.split()))
    assert split_tags(output, tagged(words, tags, separator)) == expected


def test_wrong_tags_have_their_expected_tag() -> None:
    def find_wrong_tags(trace: Trace, expected: str, ignored_tag: str = "") -> list[tuple[int | None, str | None]]:
        output = ExampleOutput(trace, (expected,), ignored_tag=ignored_tag)
        (errors,) = select_parts(report_document(Report("t", errors=[output])), ReportExamples)
        edits = errors.examples[0].outputs[0].edits
        assert [edit.step for edit in edits] == list(range(len(trace.target)))
        return [(edit.step, edit.expected) for edit in edits if edit.kind != "same"]

    assert find_wrong_tags(tagged("play a <b>", "O O B-x"), "O B-y B-x") == [(1, "B-y")]
    assert find_wrong_tags(tagged("a b", "O O"), "O -", ignored_tag="-") == []
    trace_with_features = replace(tagged("play a", "O O"), source=("N", "play", "a"), num_features=1, unknown=(0, 2))
    trace_with_features = replace(trace_with_features, attention=identity_attention(2, 3, 1))
    assert find_wrong_tags(trace_with_features, "B-x O") == [(0, "B-x")]


def test_equal_reports_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_report(tmp_path / name, full())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_unwritable_report_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot write"):
        write_report(tmp_path / "missing" / "report.html", full())


def test_learning_charts_equal_the_log() -> None:
    (part,) = training_curves(LOG, get_task("transduce").metrics.validation_metrics)
    loss, exact, errors = part.charts
    training, validation = loss.lines
    assert len(training.points) == 200
    assert np.mean([point.y for point in training.points]) == pytest.approx(np.mean([3 / n for n in range(1, 1001)]))
    assert [(point.x, point.y) for point in validation.points] == [(16000, 1), (32000, 1)]
    assert [(point.x, point.y) for point in exact.lines[0].points] == [(16000, 50), (32000, 60)]
    assert exact.lines[0].points[1].label == "60.0 % after 32,000 samples"
    assert (exact.low, exact.high) == (0, 60) and errors.high == 10
    assert training_curves([{"event": "started"}], get_task("tag").metrics.validation_metrics) == []


def test_learning_charts_show_the_metrics_of_the_task() -> None:
    log = [{**record, "symbol_accuracy": 91.0} for record in LOG]
    with_span_f1 = [{**record, "span_f1": 70.0} for record in log[-1:]]

    def chart_titles(log: list[dict[str, object]], task: TaskName) -> list[str]:
        return [
            chart.title
            for part in training_curves(log, get_task(task).metrics.validation_metrics)
            for chart in part.charts
        ]

    assert chart_titles(log, "tag") == ["Loss", "Tag accuracy", "Sequence accuracy"]
    assert chart_titles([*log[:-1], *with_span_f1], "tag") == ["Loss", "Span F1", "Tag accuracy", "Sequence accuracy"]
    assert chart_titles(log, "classify") == ["Loss", "Accuracy"] and chart_titles(log, "point") == ["Loss", "Accuracy"]
    document = report_document(Report("t", log=log, validation_metrics=[ValidationMetric("symbol_accuracy", "Q3")]))
    assert [chart.title for chart in select_parts(document, ReportCharts)[0].charts] == ["Loss", "Q3"]


def test_learning_charts_omit_non_finite_values() -> None:
    log = [{"event": "stepped", "samples": n, "loss": [1.0, math.nan, math.inf][n]} for n in range(3)]
    (part,) = training_curves(log, get_task("transduce").metrics.validation_metrics)
    (loss,) = part.charts
    assert [point.y for line in loss.lines for point in line.points] == [1.0]


def test_accuracy_charts_have_intervals_ranges_and_tables() -> None:
    (part,) = accuracy_charts(GROUP_ACCURACIES, [])
    (chart,) = part.charts
    first, last = chart.lines[0].points
    assert (first.x, first.y, first.low, first.high, first.tick) == (1, 90, 59.6, 98.2, "1")
    assert (last.x, last.tick) == (3.5, "3–4") and (chart.low, chart.high) == (20, 100)
    assert first.label == "1: 90.0 % correct (9 of 10; 95 % interval 59.6 to 98.2)"
    assert chart.numbers is not None and [list(row) for row in chart.numbers.rows] == [
        ["1", "9", "10", "90.0", "59.6 – 98.2"],
        ["2", "0", "0", "–", "0.0 – 100.0"],
        ["3–4", "5", "10", "50.0", "23.7 – 76.3"],
    ]
