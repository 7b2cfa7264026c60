import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_traces import HOSTILE, diagonal, made, small

from pellucid.config import Task
from pellucid.errors import RunError
from pellucid.evaluation.metrics import FOLLOWED, Accuracy, Followed
from pellucid.look.attention_html import attention_svg, headline_html, notes_on
from pellucid.look.charts import (
    Line,
    accuracy_chart,
    chart_svg,
    learning_charts,
    percent_range,
    round_ticks,
    round_up,
    short_number,
)
from pellucid.look.report import Passage, Picture, Report, Shown, Table, report_html, write_report
from pellucid.look.terminal import CAPTION
from pellucid.look.visible import visible
from pellucid.search.trace import END, Trace

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "img", "br", "hr"}
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


class Page(HTMLParser):
    """The elements of a page as (tag, attributes), its texts, and whether every element was closed in its place."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    @property
    def text(self) -> str:
        return "".join(self.texts)


def hostile() -> Trace:
    return diagonal(HOSTILE, [*HOSTILE, END])


def full() -> Report:
    groups = [Accuracy("1", 9, 10, 59.6, 98.2), Accuracy("2", 0, 0, 0.0, 100.0), Accuracy("3", 5, 10, 23.7, 76.3)]
    return Report(
        title="Spelling <to> sound",
        introduction="One paragraph,\nin two lines.\n\nAnother & last.",
        summary=[("exact match", "86.4 % (95 %: 83.0 to 89.3)"), ("seed", "1")],
        log=LOG,
        positions=groups,
        lengths=groups,
        examples=[Shown(small(), ("AB",)), Shown(small(), ("AC", "B"), 1), Shown(hostile(), ())],
        mistakes=[Shown(small(), ("xyz", "ACB"), 7), Shown(hostile(), ("<i>שלום</i>",))],
        config_toml='size = "<base>"\n\n[encoder]\nlayers = 1\n',
        parts=[Picture("Mean", "over <all>", '<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>')],
    )


def svg_texts(document: str) -> list[str]:
    elements = ElementTree.fromstring(document).iter(f"{SVG}text")
    return [
        (element.text or "") + "".join(child.text or "" for child in element.iter(f"{SVG}tspan"))
        for element in elements
    ]


def titles(document: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(document).iter(f"{SVG}title")]


def test_cells_are_the_weights() -> None:
    document = ElementTree.fromstring(attention_svg(small()))
    found = {}
    for cell in document.iter(f"{SVG}rect"):
        hint = cell.find(f"{SVG}title")
        if hint is not None and " reads '" in (hint.text or ""):
            found[hint.text] = (float(cell.attrib["fill-opacity"]), float(cell.attrib["x"]), float(cell.attrib["y"]))
    assert {hint: opacity for hint, (opacity, _, _) in found.items()} == {
        "writes 'A' reads 'a': 0.80": 0.8,
        "writes 'A' reads 'b': 0.20": 0.2,
        "writes 'B' reads 'a': 0.30": 0.3,
        "writes 'B' reads 'b': 0.60": 0.6,
        "writes 'B' reads 'c': 0.10": 0.1,
        "writes '⟨end⟩' reads 'c': 0.9960": 0.996,
    }
    labels = {
        element.text: float(element.attrib["x"]) for element in document.iter(f"{SVG}text") if "x" in element.attrib
    }
    (_, left, top), (_, right, below) = found["writes 'A' reads 'a': 0.80"], found["writes 'B' reads 'b': 0.60"]
    assert left < labels["a"] < right < labels["b"]
    assert top < below


def test_rows_tell_probability_and_runner_up() -> None:
    shown = svg_texts(attention_svg(small()))
    assert "0.93x 0.05" in shown and "0.50x 0.38" in shown and "0.9990" in shown
    assert "'B' with probability 0.50; else 'x' 0.38, 'y' 0.12" in titles(attention_svg(small()))
    assert "reads (source) →" in shown and "writes ↓" in shown


def test_the_description_says_it_in_words() -> None:
    description = ElementTree.fromstring(attention_svg(small())).findtext(f"{SVG}desc") or ""
    assert "writes 'A' (p = 0.93), reads most 'a' at position 1 (0.80). writes 'B'" in description
    assert ElementTree.fromstring(attention_svg(small())).attrib["role"] == "img"
    assert titles(attention_svg(small()))[0] == "Attention: abc → AB"


def test_unknown_symbols_and_features_are_marked() -> None:
    trace = made(["PL", "a", "ж"], ["A"], [[0, 0, 1]], features=1, unknown=(2,))
    document = ElementTree.fromstring(attention_svg(trace))
    underlined = [
        text.text for text in document.iter(f"{SVG}text") if text.attrib.get("text-decoration") == "underline"
    ]
    assert underlined == ["ж"]
    assert "'ж', position 3, never seen in training" in titles(attention_svg(trace))
    assert len(list(document.iter(f"{SVG}line"))) == 1
    assert "Underlined, because never seen in training: ж" in notes_on(trace)


def fragment_of(trace: Trace) -> str:
    """All that the list of errors and the report show of a trace."""
    notes = "".join(f"<p>{escape(note)}</p>" for note in notes_on(trace))
    return f"<div>{headline_html(trace)}{notes}{attention_svg(trace) if trace.target else ''}</div>"


def test_long_sources_still_fit_a_page() -> None:
    document = attention_svg(diagonal("abcdefghi" * 11, [*"0123456789" * 2, END]))
    assert float(ElementTree.fromstring(document).attrib["width"]) < 1150
    assert len(document) < 80_000


@given(st.lists(st.text(max_size=4), min_size=1, max_size=6), st.lists(st.text(max_size=4), min_size=1, max_size=6))
def test_any_symbols_make_well_formed_pictures(source: list[str], target: list[str]) -> None:
    trace = diagonal(source, target)
    shown = svg_texts(attention_svg(trace))
    assert {visible(symbol) for symbol in [*source, *target] if len(symbol) < 3} <= set(shown)
    assert Page(fragment_of(trace)).open == []


def test_hostile_symbols_are_text_in_a_fragment() -> None:
    fragment = fragment_of(hostile())
    page = Page(fragment)
    assert page.open == []
    assert page.tags <= {
        "figure",
        "div",
        "bdi",
        "b",
        "span",
        "p",
        "svg",
        "title",
        "desc",
        "text",
        "tspan",
        "rect",
        "g",
        "line",
        "figcaption",
    }
    assert page.tags.isdisjoint({"script", "s", "style", "iframe"})
    for symbol in HOSTILE:
        assert visible(symbol) in page.texts
    assert not set("\u202e\t\x1b") & set(fragment)
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    fragment.encode("utf-8")


def test_fragments_do_not_disturb_each_other() -> None:
    page = Page(fragment_of(small()) * 2)
    assert not any({"id", "class"} & set(attributes) for _, attributes in page.elements)
    assert page.text.count("reads (source)") == 2


def test_fragments_tell_what_is_missing() -> None:
    none = fragment_of(made("ab", ["A"], [[0, 0]]))
    assert "reads (source)" not in none
    empty = Page(fragment_of(made([], [END], []))).text
    assert "The source is empty." in empty
    nothing = fragment_of(made("ab", [], []))
    assert "Nothing was decoded." in nothing and "<svg" not in nothing
    unknown = ElementTree.fromstring(attention_svg(made("ab", ["A"], [[math.nan, math.nan]], [math.nan])))
    assert not any("nan" in value for element in unknown.iter() for value in element.attrib.values())


def test_directions_are_left_to_the_text() -> None:
    page = Page(fragment_of(diagonal("שלום", "سلم")))
    assert [attributes["dir"] for tag, attributes in page.elements if tag == "bdi"] == ["auto", "auto"]


def test_the_report_is_one_page_that_asks_for_nothing(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", full())
    source = (tmp_path / "report.html").read_text("utf-8")
    page = Page(source)
    assert page.open == []
    assert "script" not in page.tags and "link" not in page.tags and "iframe" not in page.tags
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert name not in ("src", "href", "srcset", "xlink:href") or (value or "").startswith("data:"), tag
            assert not name.startswith("on")
    assert re.search(r"@import|url\(", source) is None
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert "prefers-color-scheme: dark" in source and "@media print" in source


def test_the_report_escapes_everything() -> None:
    page = Page(report_html(full()))
    assert page.tags.isdisjoint({"to", "base", "i", "s", "all"})
    for text in ("Spelling <to> sound", 'size = "<base>"', "over <all>", "<i>שלום</i>"):
        assert text in page.text
    assert {visible(symbol) for symbol in HOSTILE} <= set(page.texts)


def test_the_report_tells_its_numbers() -> None:
    source = report_html(full())
    assert "<dt>exact match</dt><dd>86.4 %<small>95 %: 83.0 to 89.3</small></dd>" in source
    assert "<dt>seed</dt><dd>1</dd>" in source
    assert '<th scope="row">1</th><td>9</td><td>10</td><td>90.0</td><td>59.6 – 98.2</td>' in source
    assert '<th scope="row">2</th><td>0</td><td>0</td><td>–</td>' in source
    assert source.count('<p class="introduction">') == 2 and "One paragraph, in two lines." in source
    assert source.count(CAPTION) == 1


def test_the_report_tells_right_from_wrong() -> None:
    text = Page(report_html(full())).text
    assert text.count("✓ right") == 1
    assert "✗ expected AC or B" in text
    assert Shown(small(), ("AB",)).right and Shown(small(), ("other form",), 0).right
    assert not Shown(small(), ("AB",), 2).right and not Shown(small(), ()).right


def test_mistakes_mark_what_differs_from_the_nearest_reference() -> None:
    source = report_html(full())
    assert '<bdi dir="auto">AB</bdi></td><td><bdi dir="auto">A<mark>C</mark>B</bdi></td><td>7</td>' in source
    trace = made("x", ["a", " ", "b", "é"], [[1]] * 4)
    row = report_html(Report("t", mistakes=[Shown(trace, ("a cé",))]))
    assert 'a <mark>b</mark>é</bdi></td><td><bdi dir="auto">a <mark>c</mark>é</bdi></td><td>1</td>' in row
    unknown = report_html(Report("t", mistakes=[Shown(trace, ())]))
    assert "<td>–</td><td>–</td>" in unknown


def test_mistakes_of_models_that_write_words_mark_words() -> None:
    for symbols in (["Yo", " te", " voy"], ["Yo", " ", "te", " v", "oy"]):
        row = report_html(Report("t", mistakes=[Shown(made("x", symbols, [[1]] * len(symbols)), ("Ya te vas a",))]))
        assert '<bdi dir="auto"><mark>Yo</mark> te <mark>voy</mark></bdi></td>' in row
        assert '<bdi dir="auto"><mark>Ya</mark> te <mark>vas</mark> <mark>a</mark></bdi></td><td>3</td>' in row


def test_what_is_empty_is_left_out() -> None:
    page = Page(report_html(Report("Only a title")))
    assert "section" not in page.tags and "dl" not in page.tags
    assert "Only a title" in page.texts


def test_tables_have_headings_and_pictures_words() -> None:
    page = Page(report_html(full()))
    assert {attributes.get("scope") for tag, attributes in page.elements if tag == "th"} == {"col", "row"}
    assert all(attributes.get("alt") for tag, attributes in page.elements if tag == "img")
    source = report_html(full())
    assert source.count("<svg") == source.count('role="img"') == source.count("<desc>")
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_the_same_report_gives_the_same_file() -> None:
    assert report_html(full()) == report_html(full())


def test_a_report_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot write"):
        write_report(tmp_path / "missing" / "report.html", full())


def test_learning_charts_hold_the_log() -> None:
    loss, exact, errors = learning_charts(LOG, FOLLOWED["transduce"])
    training, validation = loss.lines
    assert len(training.points) == 200
    assert np.mean([point.y for point in training.points]) == pytest.approx(np.mean([3 / n for n in range(1, 1001)]))
    assert [(point.x, point.y) for point in validation.points] == [(16000, 1), (32000, 1)]
    assert [(point.x, point.y) for point in exact.lines[0].points] == [(16000, 50), (32000, 60)]
    assert exact.lines[0].points[1].hint == "exact match 60.0 % after 32,000 examples"
    assert exact.y_range == (0, 60) and errors.y_range == (0, 10)
    assert learning_charts([{"event": "started"}], FOLLOWED["tag"]) == []


def test_learning_charts_are_of_what_the_task_is_told_by() -> None:
    log = [{**record, "symbol_accuracy": 91.0} for record in LOG]
    chunked = [{**record, "span_f1": 70.0} for record in log[-1:]]

    def drawn(log: list[dict[str, object]], task: Task) -> list[str]:
        return [chart.title for chart in learning_charts(log, FOLLOWED[task])]

    assert drawn(log, "tag") == ["Loss", "Tags right", "All tags right"]
    assert drawn([*log[:-1], *chunked], "tag") == ["Loss", "Span F1", "Tags right", "All tags right"]
    assert drawn(log, "classify") == ["Loss", "Classes right"] and drawn(log, "point") == ["Loss", "Positions right"]
    page = Page(report_html(Report("t", log=log, followed=[Followed("symbol_accuracy", "Q3")])))
    assert "Q3" in page.text and "Exact match" not in page.text


def test_learning_charts_leave_out_what_is_not_finite() -> None:
    (loss,) = learning_charts(
        [{"event": "stepped", "samples": n, "loss": [1.0, math.nan, math.inf][n]} for n in range(3)],
        FOLLOWED["transduce"],
    )
    assert [point.y for line in loss.lines for point in line.points] == [1.0]


def test_accuracy_charts_place_points_within_their_band() -> None:
    chart = accuracy_chart("By position", "position", full().positions)
    document = ElementTree.fromstring(chart_svg(chart))
    heights = [float(circle.attrib["cy"]) for circle in document.iter(f"{SVG}circle")]
    assert len(heights) == 2 and heights[0] < heights[1]
    assert chart.y_range == (20, 100)
    band = next(path.attrib["d"] for path in document.iter(f"{SVG}path") if path.attrib["d"].endswith("Z"))
    corners = [tuple(map(float, corner.split())) for corner in re.split("[ML]", band.rstrip("Z"))[1:]]
    assert corners[0][1] < heights[0] < corners[-1][1]
    assert "1: 90.0 % right (9 of 10; 95 % interval 59.6 to 98.2)" in titles(chart_svg(chart))
    assert [label for _, label in chart.x_ticks] == ["1", "2", "3"]


def test_charts_name_several_lines_only() -> None:
    loss, exact, _ = learning_charts(LOG, FOLLOWED["transduce"])
    assert {"training", "validation"} <= set(svg_texts(chart_svg(loss)))
    assert "exact match" not in svg_texts(chart_svg(exact))
    assert chart_svg(loss._replace(lines=[*loss.lines, Line("none", [])])).count("<path") == 2


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_and_within(low: float, span: float) -> None:
    ticks = round_ticks(low, low + span)
    assert 2 <= len(ticks) <= 8
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)


@given(st.floats(1e-6, 1e9))
def test_tops_are_not_far_above(value: float) -> None:
    assert value * (1 - 1e-6) <= round_up(value) <= value * 1.51


def test_numbers_for_axes() -> None:
    shown = [short_number(value) for value in (0.0, 0.05, 20.0, 1500.0, 20000.0, 1.5e6, 2e9)]
    assert shown == ["0", "0.05", "20", "1.5k", "20k", "1.5M", "2G"]
    assert round_ticks(5.0, 5.0) == [5.0] and round_up(0.0) == 1.0
    assert percent_range([]) == (0.0, 100.0) and percent_range([Accuracy("1", 99, 100, 95.0, 99.0)]) == (80.0, 100.0)


def test_tables_and_passages_stand_in_their_order_under_one_title() -> None:
    table = Table("Numbers", "all <of> them", ("what", "how many"), [("<a>", "1"), ("b", "2")])
    report = Report(title="t", parts=[Passage("Numbers", "first\n\nsecond"), table, Passage("Words", "third")])
    page = report_html(report)
    assert page.count("<h2>") == 2 and page.index("second") < page.index("how many") < page.index("third")
    assert "&lt;a&gt;" in page and "all &lt;of&gt; them" in page and "<a>" not in page
