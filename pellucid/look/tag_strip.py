"""The tags of a source as a strip of its symbols: what a picture of a tagger shows, which has no attention to draw.

n symbols of a line.
"""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.cells import cell_len

from pellucid.look.figures import ACCENT, INK, MUTED, RULE, empty_figure, mark_unseen, settled, tell_unseen
from pellucid.look.fonts import name_ticks
from pellucid.look.visible import probability, shortened, visible
from pellucid.search.trace import Trace

LONGEST = 16
WIDTH = 9.0
"""Inches of a line."""
LINE = 0.95
"""Inches from line to line."""


def labels_of(trace: Trace) -> tuple[list[str], list[str]]:
    """The symbols that have a tag, and their tags, as they are drawn."""
    symbols = trace.source[trace.features :]
    source, tags = ([shortened(visible(symbol), LONGEST) for symbol in side] for side in (symbols, trace.target))
    return source, tags


def tags_figure(trace: Trace) -> Figure:
    """The source's symbols in lines, each tag below its symbol; between them a bar as long as its probability."""
    source, tags = labels_of(trace)
    cell = 0.2 + 0.095 * max([2, *(cell_len(label) for label in (*source, *tags))])
    n = min(max(1, int(WIDTH / cell)), max(1, len(tags)))
    lines = max(1, math.ceil(len(tags) / n))
    # What the marks say needs room of its own.
    wide, high = (1.8, 0.4) if trace.unknown else (0.0, 0.0)
    figure = empty_figure(max(n * cell + 0.3, wide), lines * LINE + 0.3 + high)
    rows = figure.subplots(lines, 1, squeeze=False)[:, 0]
    for number, axes in enumerate(rows):
        here = slice(number * n, (number + 1) * n)
        axes.set_xlim(-0.5, n - 0.5)
        axes.set_ylim(0.0, 1.0)
        below = axes.twiny()
        below.set_xlim(-0.5, n - 0.5)
        below.xaxis.set_ticks_position("bottom")
        for each, labels, color in ((axes, source[here], INK), (below, tags[here], ACCENT)):
            name_ticks(each.xaxis, labels, 11.0, color)
            each.tick_params(length=0, pad=2)
            each.set_yticks([])
            each.set_frame_on(False)
        axes.xaxis.set_ticks_position("top")
        _bars(axes, trace.log_probabilities[here])
        unseen = (position - trace.features - here.start for position in trace.unknown)
        mark_unseen(axes, (place for place in unseen if 0 <= place < n))
    if trace.unknown:
        tell_unseen(rows[-1], 20)
    return settled(figure)


def _bars(axes: Axes, log_probabilities: np.ndarray) -> None:
    """Of each tag a bar from its cell's left, as long as its probability, and the number."""
    for place, value in enumerate(log_probabilities.tolist()):
        axes.barh(0.25, 0.8, 0.22, place - 0.4, color=RULE)
        axes.barh(0.25, 0.8 * math.exp(min(value, 0.0)), 0.22, place - 0.4, color=ACCENT)
        axes.text(place, 0.7, probability(value), ha="center", va="center", size=8, color=MUTED)
