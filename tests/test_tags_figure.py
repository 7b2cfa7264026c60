"""The figure of tags shows symbols, tags and probabilities."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.lines import Line2D
from sample_traces import HOSTILE_SYMBOLS, make_trace

from pellucid.decoding.trace import Trace
from pellucid.reporting.display_text import visible_symbol
from pellucid.reporting.figures import tag_labels, tags_figure, to_png, to_svg

SVG = "{http://www.w3.org/2000/svg}"


def make_tag_trace(source: list[str], tags: list[str], probabilities: list[float] | None = None) -> Trace:
    return replace(make_trace(source, tags, np.eye(len(tags)).tolist(), probabilities), task="tag")


def read_svg_texts(document: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(document).iter(f"{SVG}text")]


def test_every_symbol_has_its_tag_and_probability() -> None:
    trace = make_tag_trace(["play", "a", "song"], ["O", "O", "MUSIC"], [0.93, 0.5, 0.001])
    svg_texts = read_svg_texts(to_svg(tags_figure(trace)))
    assert sorted(svg_texts) == sorted(["play", "a", "song", "O", "O", "MUSIC", "0.93", "0.50", "1e-03"])
    assert not tags_figure(trace).axes[0].images


def test_bar_length_is_the_probability() -> None:
    axes = tags_figure(make_tag_trace(["a", "b"], ["X", "Y"], [1.0, 0.25])).axes[0]
    whole, first, _, second = axes.patches
    assert [bar.get_extents().width / whole.get_extents().width for bar in (first, second)] == pytest.approx(
        [1.0, 0.25]
    )


def test_long_source_wraps_to_further_lines() -> None:
    letters = [*"ACDEFGHIKLMNPQRSTVWY"] * 5
    figure = tags_figure(make_tag_trace(letters, ["H"] * 100, [0.5] * 100))
    assert figure.get_figwidth() < 10 < figure.get_figheight() * 3
    symbols = [text.get_text() for axes in figure.axes for text in axes.get_xticklabels() if text.get_text() != "H"]
    assert "".join(symbols) == "".join(letters).replace("H", "")


def mark_position(line: Line2D) -> float:
    """Return the horizontal position of a mark."""
    return float(np.mean(np.asarray(line.get_xdata(), dtype=float)))


@pytest.mark.slow
def test_unknown_symbols_are_underlined_in_their_line() -> None:
    letters = [*"ACDEFGHIKLMNPQRSTVWY"] * 5
    tag_trace = make_tag_trace(letters, ["H"] * 100, [0.5] * 100)
    trace = replace(tag_trace, source=("f", *letters), num_features=1, unknown=(1, 60, 100))
    figure = tags_figure(trace)
    marks = [(axes, line) for axes in figure.axes for line in axes.lines]
    n = len([label for label in figure.axes[0].get_xticklabels() if label.get_text()])
    assert [mark_position(line) for _, line in marks] == pytest.approx([index % n for index in (0, 59, 99)])
    marked_symbols = [axes.get_xticklabels()[round(mark_position(line))].get_text() for axes, line in marks]
    assert marked_symbols == [trace.source[position] for position in trace.unknown]
    assert len({axes for axes, _ in marks}) > 1
    assert [text for text in read_svg_texts(to_svg(figure)) if text.startswith(("underlined",))]
    assert not [line for axes in tags_figure(replace(trace, unknown=())).axes for line in axes.lines]
    assert to_png(tags_figure(replace(make_tag_trace(["a"], ["X"]), unknown=(0,)))).startswith(b"\x89PNG")


def test_markup_stays_text_and_an_empty_trace_is_drawn() -> None:
    trace = make_tag_trace([*HOSTILE_SYMBOLS], ["$x$"] * len(HOSTILE_SYMBOLS))
    assert {visible_symbol(symbol) for symbol in HOSTILE_SYMBOLS} <= set(read_svg_texts(to_svg(tags_figure(trace))))
    assert tag_labels(trace)[1] == ["$x$"] * len(HOSTILE_SYMBOLS)
    assert to_png(tags_figure(make_tag_trace([], []))).startswith(b"\x89PNG")
