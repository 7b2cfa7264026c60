"""The pictures of the typo post: highlighted letters, and the embedding, still and moving.

V symbols.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pellucid.data.typos import VOWELS
from pellucid.look.figures import INK, MUTED, RULE, empty_figure, settled, tidy
from pellucid.recipes.typos.networks import SYMBOLS

POST: dict[str, dict[int, int]] = {
    "bapk": {1: 60, 3: 28, 4: 8},
    "downwtairs": {5: 14},
    "tably": {1: 14, 3: 80, 5: 240},
    "wtnts": {2: 14},
    "wresch": {6: 17},
    "boolcase": {1: 32, 4: 14},
    "pareztal": {3: 29, 4: 14, 5: 41},
}
"""The blue of some letters in the post's figure, by position from 1: 0 is the strongest yellow, 255 is white.

Read off its pixels. In boolcase an o has 77 as well; which of the two was not noted.
"""
RED, YELLOW = "#c81e1e", "#ffe100"
SIZE, MARGIN, FRAME_SECONDS = 560, 40, 0.08


class Highlighted(NamedTuple):
    """A word with the strength of each letter, from 0 to 1; None where it is not known."""

    word: str
    strengths: Sequence[float | None]
    right: frozenset[int]
    """Positions from 1 that a typo may have: where a word of the list has its other letter."""


def post_highlights(rights: Sequence[frozenset[int]]) -> list[Highlighted]:
    """The post's own figure, as far as it was read off."""
    return [
        Highlighted(word, [1 - blues[at] / 255 if at in blues else None for at in range(1, len(word) + 1)], right)
        for (word, blues), right in zip(POST.items(), rights, strict=True)
    ]


def highlight_figure(columns: Sequence[tuple[str, Sequence[Highlighted]]]) -> Figure:
    """Words letter by letter, the likelier a typo the more yellow; below a letter a line where a typo may be."""
    widest = max(len(each.word) for _, words in columns for each in words)
    rows = max(len(words) for _, words in columns)
    figure = empty_figure(0.4 + len(columns) * (widest + 1) * 0.21, 0.5 + 0.34 * rows)
    axes = figure.add_subplot()
    for column, (title, words) in enumerate(columns):
        left = column * (widest + 1)
        axes.text(left, -0.35, title, size=9, color=MUTED, va="bottom")
        for row, each in enumerate(words):
            for place, (letter, strength) in enumerate(zip(each.word, each.strengths, strict=True)):
                known = strength is not None
                shade = (1.0, 1.0 - 0.12 * (strength or 0), 1.0 - (strength or 0)) if known else "white"
                axes.add_patch(Rectangle((left + place, row), 1, 0.86, facecolor=shade, edgecolor=RULE, linewidth=0.6))
                axes.text(
                    left + place + 0.5, row + 0.43, letter, ha="center", va="center", color=INK if known else "#9aa3ad"
                )
                if place + 1 in each.right:
                    axes.plot([left + place + 0.15, left + place + 0.85], [row + 0.8] * 2, color=RED, linewidth=1.6)
    axes.set_xlim(-0.1, len(columns) * (widest + 1) - 0.9)
    axes.set_ylim(rows, -0.9)
    axes.set_axis_off()
    return settled(figure)


def embedding_figure(vectors: Sequence[tuple[str, Float[np.ndarray, "V 2"]]]) -> Figure:
    """Symbols at their two numbers, a panel for each training, vowels in red."""
    figure = empty_figure(3.5 * len(vectors), 3.6)
    for axes, (title, points) in zip(np.atleast_1d(np.array(figure.subplots(1, len(vectors)))), vectors, strict=True):
        for symbol, (x, y) in zip(_shown(), points.tolist(), strict=True):
            vowel = symbol in VOWELS
            style = {"color": RED if vowel else INK, "weight": "bold" if vowel else "normal"}
            axes.text(x, y, symbol, ha="center", va="center", size=11 if len(symbol) == 1 else 7, **style)
        low, high = points.min(axis=0), points.max(axis=0)
        room = 0.08 * (high - low) + 1e-6
        axes.set_xlim(low[0] - room[0], high[0] + room[0])
        axes.set_ylim(low[1] - room[1], high[1] + room[1])
        tidy(axes)
        axes.set_title(title, size=9, color=MUTED, loc="left")
    return settled(figure)


def curve_figure(runs: Sequence[tuple[str, Sequence[tuple[int, float]]]], colors: Sequence[str]) -> Figure:
    """Positions right of the development words over typos seen, a line for each training."""
    figure = empty_figure(6.4, 3.2)
    axes = figure.add_subplot()
    for (name, points), color in zip(runs, colors, strict=True):
        axes.plot([x for x, _ in points], [100 * y for _, y in points], "o-", color=color, markersize=3, label=name)
    tidy(axes)
    axes.set_ylim(0, 100)
    axes.set_ylabel("% of positions right", color=MUTED)
    axes.set_xlabel("typos seen", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=9)
    return settled(figure)


def film_svg(film: Float[np.ndarray, "frames V 2"], title: str) -> str:
    """The symbols moving from the first frame to the last, over and over: an SVG document that needs no script.

    The scale is the same in all frames. The last frame stays for an eighth of the time.
    """
    count = len(film)
    seconds = count * FRAME_SECONDS * 8 / 7
    times = ";".join(f"{7 / 8 * at / max(count - 1, 1):.4f}" for at in range(count)) + ";1"
    reach = max(float(np.abs(film).max()), 1e-6)
    middle = SIZE / 2
    drawn = middle + film * np.array([1, -1]) * ((middle - MARGIN) / reach)
    clock = f'dur="{seconds:.2f}s" repeatCount="indefinite" keyTimes="{times}"'
    letters = [_moving(symbol, drawn[:, at], clock) for at, symbol in enumerate(_shown())]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" height="{SIZE}" '
        f'font-family="sans-serif" text-anchor="middle">\n<title>{escape(title)}</title>\n'
        f'<rect width="{SIZE}" height="{SIZE}" fill="white"/>\n'
        f'<path d="M0 {middle}H{SIZE}M{middle} 0V{SIZE}" stroke="{RULE}"/>\n'
        f'<text x="8" y="20" text-anchor="start" font-size="13" fill="{MUTED}">{escape(title)}</text>\n'
        f'<rect y="{SIZE - 4}" height="4" fill="{MUTED}" width="{SIZE}"><animate attributeName="width" '
        f'values="0;{SIZE};{SIZE}" keyTimes="0;0.875;1" dur="{seconds:.2f}s" repeatCount="indefinite"/></rect>\n'
        f"{''.join(letters)}</svg>\n"
    )


def _moving(symbol: str, points: Float[np.ndarray, "frames 2"], clock: str) -> str:
    """One symbol on its way; where nothing moves it stands where it ends."""
    path = [f"{x:.1f} {y:.1f}" for x, y in points.tolist()]
    vowel = symbol in VOWELS
    size, color, weight = 18 if len(symbol) == 1 else 11, RED if vowel else INK, 700 if vowel else 400
    look = f'fill="{color}" font-size="{size}" font-weight="{weight}"'
    return (
        f'<g transform="translate({path[-1]})"><text y="6" {look}>{escape(symbol)}</text><animateTransform '
        f'attributeName="transform" type="translate" values="{";".join([*path, path[-1]])}" {clock}/></g>\n'
    )


def _shown() -> list[str]:
    """The symbols as they are drawn: the padding by name."""
    return [symbol if symbol != " " else "pad" for symbol in SYMBOLS]
