"""A trace as a heat map of inline SVG: crisp, with real text, and nothing that could act outside itself.

The drawing has no ids, styles or scripts, takes the colour of the text around it, and its accent from the page's
`--accent` where there is one: so any number of them stand in one page or notebook, light or dark.
"""

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len

from pellucid.look.terminal import NO_ATTENTION
from pellucid.look.visible import portion, probability, shortened, visible, visible_text
from pellucid.search.trace import END, Trace

ACCENT = "var(--accent, #2f74d0)"
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"

_ROW = 22.0
_LEAST = 0.005
"""Lighter cells are left out: they round to nothing, and a long source has thousands of them."""
_RUNNER_UP = 0.05
"""The second candidate is named beside the row from this probability on."""
_LONGEST_LABEL = 24


class _Layout(NamedTuple):
    """Where everything stands, in pixels."""

    left: float
    top: float
    column: float
    columns: int
    rows: int
    tilted: bool
    """Whether source symbols are too wide for their columns and stand aslant."""
    font: float

    @property
    def right(self) -> float:
        """The matrix's right edge."""
        return self.left + self.columns * self.column

    @property
    def bottom(self) -> float:
        """The matrix's lower edge."""
        return self.top + self.rows * _ROW

    @property
    def width(self) -> float:
        """The drawing's width: the probabilities stand on the right, and a last tilted symbol leans over them."""
        return self.right + 130

    @property
    def height(self) -> float:
        """The drawing's height."""
        return self.bottom + 4


def attention_svg(trace: Trace) -> str:
    """The heat map of a trace as one `<svg>` element: source symbols across, target symbols down, weights as opacity.

    Each cell and row tells its numbers on hover; the description names, for those who do not see it, the position each
    symbol was read from most. Probabilities stand at the rows' ends, with the runner-up where it came near.
    """
    layout = _layout(trace)
    drawing = "".join([*_axes(trace, layout), *_labels(trace, layout), *_rows(trace, layout)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" '
        f'width="{layout.width:.0f}" height="{layout.height:.0f}" fill="currentColor" font-size="{layout.font:g}" '
        f'font-family="{escape(SANS)}" '
        f'style="display:block;height:auto;max-width:100%;min-width:{0.75 * layout.width:.0f}px">'
        f"<title>Attention: {_text(trace.text)} → {_text(trace.output)}</title>"
        f"<desc>{_description(trace)}</desc>{drawing}</svg>"
    )


def headline_html(trace: Trace) -> str:
    """Source → output and the probability, each text in its own direction."""
    return (
        f'<bdi dir="auto">{_text(trace.text)}</bdi> <span style="opacity:.5">→</span> '
        f'<bdi dir="auto"><b style="font-weight:600">{_text(trace.output)}</b></bdi> '
        f'<span style="opacity:.65;margin-left:.6em;font-size:.85em;white-space:nowrap">'
        f"p = {probability(trace.score)}</span>"
    )


def notes_on(trace: Trace) -> list[str]:
    """What the picture alone would not tell: an output cut short, unknown symbols, an empty side."""
    notes: list[str] = []
    if not trace.finished:
        notes.append("The output was cut at the greatest length: the model had not ended it.")
    if not trace.target:
        notes.append("Nothing was decoded.")
    if not trace.source:
        notes.append("The source is empty.")
    if trace.unknown:
        unknown = dict.fromkeys(visible(trace.source[position]) for position in trace.unknown)
        notes.append(f"Underlined, because never seen in training: {' '.join(unknown)}")
    return notes


def _layout(trace: Trace) -> _Layout:
    """Columns wide enough for the symbols where these are short, and never so many that they must be tiny."""
    S = len(trace.source) if trace.attention.any() else 0
    widest = max((cell_len(_label(symbol)) for symbol in trace.source), default=1)
    tilted = widest > 3
    margin = max([8, *(cell_len(_label(symbol)) for symbol in trace.target)]) * 7.5 + 16
    fitting = (1024 - 130 - margin) / max(S, 1)
    column = 26.0 if tilted else min(max(fitting, 9.0), max(26.0, 8.0 * widest + 6))
    top = 24.0 + (20.0 if not tilted else min(widest, _LONGEST_LABEL) * 5.6 + 12)
    return _Layout(margin, top if S else 20.0, column, S, len(trace.target), tilted, 11.0 if column < 13 else 13.0)


def _axes(trace: Trace, layout: _Layout) -> Iterator[str]:
    """The two directions by name, the frame, and the line behind the features."""
    small = 'font-size="11" fill-opacity=".6"'
    if layout.columns:
        yield f'<text x="{layout.left:.0f}" y="11" {small}>reads (source) →</text>'
        yield (
            f'<rect x="{layout.left - 0.5:.1f}" y="{layout.top - 0.5:.1f}" '
            f'width="{layout.right - layout.left + 1:.1f}" height="{layout.bottom - layout.top + 1:.1f}" '
            f'fill="none" stroke="currentColor" stroke-opacity=".18"/>'
        )
    yield f'<text x="{layout.left - 10:.0f}" y="{layout.top - 8:.0f}" text-anchor="end" {small}>writes ↓</text>'
    if 0 < trace.features < layout.columns:
        x = layout.left + trace.features * layout.column
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{layout.top - 18:.1f}" y2="{layout.bottom:.1f}" '
            f'stroke="currentColor" stroke-opacity=".45"><title>features stand before this line</title></line>'
        )


def _labels(trace: Trace, layout: _Layout) -> Iterator[str]:
    """The source symbols above their columns; unknown ones underlined."""
    for s, symbol in enumerate(trace.source[: layout.columns]):
        x, y = layout.left + (s + 0.5) * layout.column, layout.top - 8
        place = f'text-anchor="middle" x="{x:.1f}" y="{y:.1f}"'
        if layout.tilted:
            place = f'transform="translate({x - 1:.1f} {y + 2:.1f}) rotate(-50)"'
        unknown = ' text-decoration="underline" font-weight="700"' if s in trace.unknown else ""
        hint = f"{_quoted(symbol)}, position {s + 1}{', never seen in training' if unknown else ''}"
        yield f"<text {place}{unknown}>{escape(_label(symbol))}<title>{hint}</title></text>"


def _rows(trace: Trace, layout: _Layout) -> Iterator[str]:
    """For each target symbol its label, its cells and its probability."""
    for t, symbol in enumerate(trace.target):
        y = layout.top + t * _ROW
        quiet = ' fill-opacity=".55"' if symbol == END else ""
        label = escape(_label(symbol))
        yield f'<text x="{layout.left - 10:.1f}" y="{y + 15.5:.1f}" text-anchor="end"{quiet}>{label}</text>'
        if layout.columns:
            yield _band(trace, t, layout, y)
            yield from _cells(trace, t, layout, y)
        yield _chance(trace, t, layout, y)


def _band(trace: Trace, t: int, layout: _Layout, y: float) -> str:
    """The row's whole ground, an ample place to hover: it names what was read most."""
    return (
        f'<rect x="{layout.left:.1f}" y="{y:.1f}" width="{layout.right - layout.left:.1f}" height="{_ROW:g}" '
        f'fill-opacity="{0.025 if t % 2 else 0}"><title>{_reading(trace, t)}</title></rect>'
    )


def _cells(trace: Trace, t: int, layout: _Layout, y: float) -> Iterator[str]:
    """The row's cells that can be seen."""
    for s in np.flatnonzero(trace.attention[t] >= _LEAST).tolist():
        weight = float(trace.attention[t, s])
        hint = f"writes {_quoted(trace.target[t])} reads {_quoted(trace.source[s])}: {portion(weight)}"
        x = layout.left + s * layout.column
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{layout.column:.1f}" height="{_ROW:g}" '
            f'style="fill:{ACCENT}" fill-opacity="{min(weight, 1.0):.3f}"><title>{hint}</title></rect>'
        )


def _chance(trace: Trace, t: int, layout: _Layout, y: float) -> str:
    """The probability of the row's symbol as a bar and a number, and the runner-up where it came near."""
    x = layout.right + 12
    share = float(np.nan_to_num(np.exp(trace.log_probabilities[t])))
    shown = probability(float(trace.log_probabilities[t]))
    rivals = [
        (other, float(score))
        for other, score in zip(trace.top_symbols[t], trace.top_log_probabilities[t], strict=True)
        if other != trace.target[t]
    ]
    hint = ", ".join(f"{_quoted(other)} {probability(score)}" for other, score in rivals)
    near = ""
    if rivals and np.exp(rivals[0][1]) >= _RUNNER_UP:
        near = f'<tspan dx="8" fill-opacity=".55">{escape(_label(rivals[0][0], 8))} {probability(rivals[0][1])}</tspan>'
    return (
        f"<g><title>{_quoted(trace.target[t])} with probability {shown}{'; else ' + hint if hint else ''}</title>"
        f'<rect x="{x:.1f}" y="{y + 8:.1f}" width="22" height="6" fill-opacity=".12"/>'
        f'<rect x="{x:.1f}" y="{y + 8:.1f}" width="{22 * share:.1f}" height="6" fill-opacity=".4"/>'
        f'<text x="{x + 29:.1f}" y="{y + 15.5:.1f}" font-size="12">{shown}{near}</text></g>'
    )


def _description(trace: Trace) -> str:
    """The picture in words."""
    if not trace.attention.any():
        return NO_ATTENTION if trace.attention.size else " ".join(notes_on(trace))
    return ". ".join(_reading(trace, t) for t in range(len(trace.target))) + "."


def _reading(trace: Trace, t: int) -> str:
    """One row in words: the symbol, its probability, and where it was read from most."""
    s = int(np.argmax(trace.attention[t]))
    chance = probability(float(trace.log_probabilities[t]))
    most = f"{_quoted(trace.source[s])} at position {s + 1} ({portion(float(trace.attention[t, s]))})"
    return f"writes {_quoted(trace.target[t])} (p = {chance}), reads most {most}"


def _label(symbol: str, longest: int = _LONGEST_LABEL) -> str:
    """A symbol as the drawing shows it: visible, and not endless."""
    return shortened(visible(symbol), longest)


def _quoted(symbol: str) -> str:
    """A symbol within a sentence, escaped."""
    return f"'{escape(visible(symbol))}'"


def _text(text: str) -> str:
    """A running text, visible and escaped."""
    return escape(visible_text(text))
