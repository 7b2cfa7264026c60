import base64
import itertools
import math
import re
import struct
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from sample_traces import HOSTILE_SYMBOLS, make_diagonal_trace, make_trace

from pellucid.decoding.trace import END, Trace
from pellucid.evaluation.metrics import GroupAccuracy
from pellucid.reporting import figures as fonts
from pellucid.reporting.display_text import visible_symbol
from pellucid.reporting.figures import (
    SHADES,
    attention_figure,
    curves_figure,
    length_figure,
    mean_attention,
    mean_attention_figure,
    position_figure,
    to_png,
    to_svg,
)
from pellucid.tasks.registry import get_task

SVG = "{http://www.w3.org/2000/svg}"
LOG: list[Mapping[str, Any]] = [
    {"event": "started"},
    {"event": "stepped", "samples": 32, "loss": 3.0},
    {"event": "stepped", "samples": 64, "loss": math.nan},
    {"event": "stepped", "samples": 96, "loss": 1.0},
    {"event": "validated", "samples": 64, "exact_match": 40.0, "symbol_error_rate": 30.0, "loss": 2.0, "best": True},
    {"event": "validated", "samples": 96, "exact_match": 60.5, "symbol_error_rate": 20.0, "loss": 1.5, "best": True},
    {"event": "validated", "samples": 128, "exact_match": 50.0, "symbol_error_rate": 25.0, "best": False},
]
GROUPS = [
    GroupAccuracy("1–3", 9, 10, 59.6, 98.2),
    GroupAccuracy("4–5", 0, 0, 0.0, 0.0),
    GroupAccuracy("6", 50, 100, 40.4, 59.6),
]


@pytest.fixture(autouse=True)
def assert_unchanged_rcparams() -> Iterator[None]:
    before = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == before


def build_trace() -> Trace:
    return make_trace("abc", ["A", "B", END], [[0.8, 0.2, 0.0], [0.3, 0.6, 0.1], [0.0, 0.02, 0.98]], [0.93, 0.5, 0.001])


def tick_labels(axes: Axes) -> tuple[list[str], list[str]]:
    x_labels = [axes.xaxis.get_major_formatter()(position, position) for position in axes.get_xticks()]
    return x_labels, [axes.yaxis.get_major_formatter()(position, position) for position in axes.get_yticks()]


def svg_texts(document: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(document).iter(f"{SVG}text")]


def line_points(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    points_by_label = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in axes.lines}
    return {name: [(x, y) for x, y in points] for name, points in points_by_label.items()}


def test_attention_figure_shows_weights_symbols_and_probabilities() -> None:
    axes = attention_figure(build_trace()).axes[0]
    (image,) = axes.collections
    assert np.array_equal(np.asarray(image.get_array()), build_trace().attention)
    assert image.get_clim() == (0.0, 1.0)
    assert tick_labels(axes) == (["a", "b", "c"], ["A", "B", "⟨end⟩"])
    assert ("source" in axes.get_xlabel(), "output" in axes.get_ylabel()) == (True, True)
    assert [(text.get_text(), text.get_position()[1]) for text in axes.texts] == [
        ("0.93", 0),
        ("0.50", 1),
        ("1e-03", 2),
    ]
    assert axes.yaxis_inverted()


def test_shades_darken_monotonically_in_grayscale() -> None:
    luminance = [
        sum(coefficient * channel for coefficient, channel in zip((0.2, 0.7, 0.1), SHADES(step / 10)[:3], strict=True))
        for step in range(11)
    ]
    assert all(lighter - darker > 0.03 for lighter, darker in itertools.pairwise(luminance))


def test_missing_attention_is_reported() -> None:
    axes = attention_figure(make_trace("ab", ["A"], [[0, 0]])).axes[0]
    assert "no attention" in [text.get_text() for text in axes.texts]
    assert "no attention" not in [text.get_text() for text in attention_figure(build_trace()).axes[0].texts]


def test_unknown_symbols_are_underlined() -> None:
    axes = attention_figure(replace(build_trace(), unknown=(0, 2))).axes[0]
    assert [np.asarray(line.get_xdata()).tolist() for line in axes.lines] == [[-0.4, 0.4], [1.6, 2.4]]
    assert [text.get_text() for text in axes.texts if "underlined" in text.get_text()] == [
        "underlined: not\nin the vocabulary"
    ]
    assert axes.get_xlim() == attention_figure(build_trace()).axes[0].get_xlim()
    svg = to_svg(attention_figure(replace(build_trace(), unknown=(0, 2))))
    assert 'id="unknown-1"' in svg and 'id="unknown-3"' in svg and 'id="unknown-2"' not in svg
    assert to_svg(attention_figure(replace(build_trace(), unknown=(0, 0, 2, 0)))).count('id="unknown-1"') == 1
    assert "unknown" not in to_svg(attention_figure(build_trace()))


@pytest.mark.parametrize("trace", [make_trace([], [END], []), make_trace("ab", [], []), make_trace([], [], [])])
def test_empty_sides_are_drawn(trace: Trace) -> None:
    figure = attention_figure(trace)
    assert to_png(figure).startswith(b"\x89PNG")
    ElementTree.fromstring(to_svg(figure))


@pytest.mark.parametrize("script", ["աբգ", "ღმე", "سلم", "अंत", "가능성", "あ漢字", "😀👩", "𐎠𒀀\U0001f9ff"])
def test_every_script_is_drawn_as_text_without_warnings(script: str) -> None:
    figure = attention_figure(make_diagonal_trace(list(script), [*script, END]))
    assert to_png(figure).startswith(b"\x89PNG")
    assert {visible_symbol(symbol) for symbol in script} <= set(svg_texts(to_svg(figure)))
    assert tick_labels(figure.axes[0])[0] == [visible_symbol(symbol) for symbol in script]


def test_characters_without_a_font_are_code_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fonts, "_find_fonts", lambda characters: dict.fromkeys(set(characters) - {"अ", "ं", "␛"}, "DejaVu Sans")
    )
    figure = attention_figure(make_diagonal_trace(["अ", "ं", "xअ", "\x1b", "b"], [END]))
    axes = figure.axes[0]
    with fonts.drawable_tick_labels(figure):
        assert tick_labels(axes)[0] == ["09\n05", "09\n02", "xU+0905", "00\n1B", "b"]
    assert tick_labels(axes)[0] == ["अ", "◌ं", "xअ", "␛", "b"]


def test_placeholder_font_is_not_used() -> None:
    assert not any("Last Resort" in family for family in fonts._find_fonts("अ가\U0010fffd").values())


def test_markup_in_symbols_stays_text() -> None:
    shown = svg_texts(to_svg(attention_figure(make_diagonal_trace(HOSTILE_SYMBOLS, [END]))))
    assert {visible_symbol(symbol) for symbol in HOSTILE_SYMBOLS} <= set(shown)


@pytest.mark.slow
def test_equal_figures_give_equal_files() -> None:
    first, second = attention_figure(build_trace()), attention_figure(build_trace())
    assert to_svg(first) == to_svg(first) == to_svg(second)
    assert to_png(first) == to_png(first) == to_png(second)
    assert "<dc:date>" not in to_svg(first)
    assert to_svg(mean_attention_figure([build_trace()])) == to_svg(mean_attention_figure([build_trace()]))


def test_png_has_the_requested_resolution() -> None:
    figure = attention_figure(build_trace())
    sizes = [struct.unpack(">II", to_png(figure, dots)[16:24]) for dots in (50, 100)]
    assert sizes[1][0] == pytest.approx(2 * sizes[0][0], abs=1)
    assert sizes[1][0] == int(figure.get_figwidth() * 100)


def test_svg_cells_are_rectangles_in_the_shades_of_the_weights() -> None:
    trace = build_trace()
    document = ElementTree.fromstring(to_svg(attention_figure(trace)))
    assert not list(document.iter(f"{SVG}image"))
    (mesh,) = [group for group in document.iter(f"{SVG}g") if group.get("id") == "QuadMesh_1"]
    cells = [path for path in mesh.iter(f"{SVG}path") if path.get("style")]
    colors = [re.findall(r"fill: (#\w{6})", path.attrib["style"])[0] for path in cells]
    assert colors == [to_hex(SHADES(float(weight))) for weight in trace.attention.ravel()]
    corners = [re.findall(r"[ML] ([\d.]+) ([\d.]+)", path.attrib["d"]) for path in cells]
    left_edges = [min(float(x) for x, _ in corner) for corner in corners]
    assert all(len(set(corner)) == 4 for corner in corners) and left_edges[0] < left_edges[1] < left_edges[2]


def test_svg_of_many_cells_embeds_one_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded image has one pixel per cell and asks browsers to scale it without smoothing."""
    monkeypatch.setattr(fonts, "MAX_RECTANGLES", 8)
    document = ElementTree.fromstring(to_svg(attention_figure(build_trace())))
    image = next(document.iter(f"{SVG}image"))
    data = base64.b64decode(image.attrib["{http://www.w3.org/1999/xlink}href"].partition(",")[2])
    assert struct.unpack(">II", data[16:24]) == (3, 3)
    assert "pixelated" in image.attrib["style"]


def test_curves_equal_the_log() -> None:
    upper, lower = curves_figure(LOG).axes
    assert line_points(upper) == {"training loss": [(32, 3), (96, 1)], "validation loss": [(64, 2), (96, 1.5)]}
    assert line_points(lower) == {
        "exact match": [(64, 40), (96, 60.5), (128, 50)],
        "symbol error rate": [(64, 30), (96, 20), (128, 25)],
        "best checkpoint: 60.5 %": [(96, 60.5)],
    }
    assert upper.get_ylim()[0] == lower.get_ylim()[0] == 0


def test_curves_show_the_metrics_of_the_task() -> None:
    log = [{**record, "span_f1": record["exact_match"]} for record in LOG if record["event"] == "validated"]
    _, lower = curves_figure(log, get_task("tag").metrics.validation_metrics).axes
    assert list(line_points(lower)) == ["span F1", "sequence accuracy", "best checkpoint: 60.5 %"]


def test_curves_of_an_empty_log_show_a_note() -> None:
    figure = curves_figure([{"event": "started"}])
    assert [axes.texts[0].get_text() for axes in figure.axes] == ["no records yet"] * 2
    assert to_png(figure)


@pytest.mark.parametrize(("draw", "axis"), [(position_figure, "target"), (length_figure, "source")])
def test_accuracy_figure_shows_intervals(draw: object, axis: str) -> None:
    assert callable(draw)
    figure = draw(GROUPS)
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    (line,) = axes.lines
    positions, values = np.asarray(line.get_xydata()).T
    assert positions.tolist() == [0, 1, 2]
    assert values[[0, 2]].tolist() == [90, 50] and math.isnan(values[1])
    corners = {
        tuple(corner) for path in axes.collections[0].get_paths() for corner in np.asarray(path.vertices).tolist()
    }
    assert {(0, 59.6), (0, 98.2), (2, 40.4), (2, 59.6)} <= corners
    assert tick_labels(axes)[0] == ["1–3", "4–5", "6"]
    assert axes.get_ylim() == (40, 100)
    assert axis in axes.get_xlabel()
    assert np.asarray(axes.collections[0].get_facecolor())[0, :3] == pytest.approx(to_rgb(line.get_color()))


@pytest.mark.slow
def test_many_groups_have_readable_ticks() -> None:
    figure = position_figure([GroupAccuracy(str(n), 1, 2, 9.5, 90.5) for n in range(1, 101)])
    shown = [label for label in tick_labels(figure.axes[0])[0] if label]
    assert shown[0] == "1" and len(shown) < 25
    assert to_png(position_figure([]))


def test_mean_attention_averages_each_row_over_traces_that_have_it() -> None:
    short = make_trace("ab", ["A"], [[1, 0]])
    long = make_trace("abc", ["A", END], [[0, 0.5, 0.5], [0, 0, 1]])
    mean = mean_attention([short, long])
    assert mean.tolist() == [[0.5, 0.25, 0.25], [0, 0, 1]]
    assert mean_attention([]).shape == (0, 0)


def test_mean_attention_figure_shows_lines_and_image() -> None:
    traces = [make_trace("ab", ["A"], [[1, 0]]), make_trace("abc", ["A", END], [[0, 0.5, 0.5], [0, 0, 1]])]
    upper, lower = mean_attention_figure(traces).axes[:2]
    assert line_points(upper) == {"1": [(1, 0.5), (2, 0.25), (3, 0.25)], "2": [(1, 0), (2, 0), (3, 1)]}
    assert [text.get_text() for text in upper.texts] == ["1", "2"]
    (image,) = lower.collections
    assert np.asarray(image.get_array()).tolist() == mean_attention(traces).tolist()
    assert (*lower.get_xlim(), *lower.get_ylim()) == (0.5, 3.5, 2.5, 0.5)
    assert to_png(mean_attention_figure([]))


def test_long_symbols_fit_in_the_figure() -> None:
    trace = make_diagonal_trace(["internationalisation" * 3], ["Subcellular localisation"])
    figure = attention_figure(trace)
    axes = figure.axes[0]
    assert to_png(figure) and all(label.endswith("…") for label in tick_labels(axes)[0])
    bounds = axes.get_tightbbox()
    assert bounds is not None
    assert bounds.x0 >= 0 and bounds.x1 <= figure.bbox.x1 and bounds.y0 >= 0 and bounds.y1 <= figure.bbox.y1
