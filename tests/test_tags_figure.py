"""Figure of tags: symbols, tags and probabilities."""

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


def tagged(source: list[str], tags: list[str], chances: list[float] | None = None) -> Trace:
    return replace(make_trace(source, tags, np.eye(len(tags)).tolist(), chances), task="tag")


def texts(document: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(document).iter(f"{SVG}text")]


def test_every_symbol_has_its_tag_and_probability() -> None:
    trace = tagged(["play", "a", "song"], ["O", "O", "MUSIC"], [0.93, 0.5, 0.001])
    shown = texts(to_svg(tags_figure(trace)))
    assert sorted(shown) == sorted(["play", "a", "song", "O", "O", "MUSIC", "0.93", "0.50", "1e-03"])
    assert not tags_figure(trace).axes[0].images


def test_bar_length_is_the_probability() -> None:
    axes = tags_figure(tagged(["a", "b"], ["X", "Y"], [1.0, 0.25])).axes[0]
    whole, first, _, second = axes.patches
    assert [bar.get_extents().width / whole.get_extents().width for bar in (first, second)] == pytest.approx(
        [1.0, 0.25]
    )


def test_long_source_wraps_to_further_lines() -> None:
    letters = [*"ACDEFGHIKLMNPQRSTVWY"] * 5
    figure = tags_figure(tagged(letters, ["H"] * 100, [0.5] * 100))
    assert figure.get_figwidth() < 10 < figure.get_figheight() * 3
    across = [text.get_text() for axes in figure.axes for text in axes.get_xticklabels() if text.get_text() != "H"]
    assert "".join(across) == "".join(letters).replace("H", "")


def middle(line: Line2D) -> float:
    """Where a mark lies."""
    return float(np.mean(np.asarray(line.get_xdata(), dtype=float)))


def test_unknown_symbols_are_underlined_in_their_line() -> None:
    letters = [*"ACDEFGHIKLMNPQRSTVWY"] * 5
    drawn = tagged(letters, ["H"] * 100, [0.5] * 100)
    trace = replace(drawn, source=("f", *letters), features=1, unknown=(1, 60, 100))
    figure = tags_figure(trace)
    marks = [(axes, line) for axes in figure.axes for line in axes.lines]
    n = len([label for label in figure.axes[0].get_xticklabels() if label.get_text()])
    assert [middle(line) for _, line in marks] == pytest.approx([place % n for place in (0, 59, 99)])
    under = [axes.get_xticklabels()[round(middle(line))].get_text() for axes, line in marks]
    assert under == [trace.source[position] for position in trace.unknown]
    assert len({axes for axes, _ in marks}) > 1
    assert [text for text in texts(to_svg(figure)) if text.startswith(("underlined", "seen"))]
    assert not [line for axes in tags_figure(replace(trace, unknown=())).axes for line in axes.lines]
    assert to_png(tags_figure(replace(tagged(["a"], ["X"]), unknown=(0,)))).startswith(b"\x89PNG")


def test_markup_stays_text_and_an_empty_trace_is_drawn() -> None:
    trace = tagged([*HOSTILE_SYMBOLS], ["$x$"] * len(HOSTILE_SYMBOLS))
    assert {visible_symbol(symbol) for symbol in HOSTILE_SYMBOLS} <= set(texts(to_svg(tags_figure(trace))))
    assert tag_labels(trace)[1] == ["$x$"] * len(HOSTILE_SYMBOLS)
    assert to_png(tags_figure(tagged([], []))).startswith(b"\x89PNG")
