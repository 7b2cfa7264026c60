"""Attention, learning curves, accuracies and tags as matplotlib figures, with fonts for the scripts of the data.

T target symbols, S source positions.
"""

import io
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Annotated, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.image import AxesImage
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FuncFormatter, MaxNLocator
from rich.cells import cell_len

from pellucid.argument_checks import PROBABILITY, argument_error, check_arguments
from pellucid.decoding.trace import Trace
from pellucid.evaluation.metrics import GroupAccuracy, ValidationMetric
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS
from pellucid.reporting.display_text import format_probability, truncate_columns, visible_symbol
from pellucid.shapes import Float

MAX_RECTANGLES = 1_600
"""Maximum number of cells of a matrix that are drawn as rectangles: 40 symbols by 40."""
SCALE_LEVELS = 32
"""Number of shades of a color bar; from 50 on, matplotlib would embed it as an image."""


def accuracy_axis_limits(accuracies: Sequence[GroupAccuracy]) -> tuple[float, float]:
    """Return the ends of an axis for accuracies in percent: (low, 100).

    The lower end is the multiple of ten at or below the lowest interval, at most 80; 0 without any group.

    Args:
        accuracies: Accuracies in percent, with their intervals; groups without examples are left out.
    """
    lowest = min((group.low for group in accuracies if group.total), default=0.0)
    return min(math.floor(lowest / 10) * 10.0, 80.0), 100.0


def logged_values(log: Sequence[Mapping[str, Any]], event: str, key: str) -> list[tuple[float, float]]:
    """Return the points of a learning curve: (samples so far, value) of each log record of one kind, in log order.

    Args:
        log: Records of the training log.
        event: Value of "event" of the records to select: "stepped" or "validated".
        key: Key of the value; records without it, or with a value that is not finite, are left out.
    """
    points = [(record["samples"], record.get(key)) for record in log if record.get("event") == event]
    return [(float(x), float(y)) for x, y in points if y is not None and math.isfinite(y)]


def round_up(value: float) -> float:
    """Return the smallest of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten that is at least a value.

    It is used for the upper end of an axis.

    Args:
        value: A number; the result is 1 if it is not positive, or NaN.
    """
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        factor * power for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if factor * power >= value * (1 - 1e-9)
    )


def format_number(value: float) -> str:
    """Return a number as a short text for an axis: 2G, 1.5M, 20k, 300, 0.05.

    Args:
        value: The number; below 1,000 in absolute value it has four significant digits, else six.
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{letter}"
    return f"{value:.4g}"


_FONT = "DejaVu Sans"
"""Font that comes with matplotlib, so figures are equal on every machine."""
_REGULAR = (400, "normal", "regular", "book")


def set_tick_labels(axis: Axis, labels: Sequence[str], size: float, color: str) -> None:
    """Set the ticks 0, 1, … of an axis with labels. No label is parsed as mathematics; missing characters use other
    fonts.

    Args:
        axis: The axis.
        labels: One label for each tick.
        size: Font size in points.
        color: Color of the labels.
    """
    fonts = _find_fonts("".join(sorted(set("".join(labels)))))
    family = [_FONT, *sorted(set(fonts.values()) - {_FONT}), "sans-serif"]
    axis.set_ticks(range(len(labels)), labels, parse_math=False, fontfamily=family, fontsize=size, color=color)
    axis.set_major_formatter(FixedFormatter(labels))


@check_arguments
@contextmanager
def drawable_tick_labels(figure: Figure) -> Iterator[None]:
    """Replace characters of tick labels that no font contains by their code points, within the block.

    Args:
        figure: The figure.

    Raises:
        ArgumentError: The argument is not a figure.
    """
    formatters: list[tuple[Axis, FixedFormatter]] = []
    all_axes: list[Axis] = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    for axis in all_axes:
        formatter = axis.get_major_formatter()
        if isinstance(formatter, FixedFormatter):
            formatters.append((axis, formatter))
            axis.set_major_formatter(FixedFormatter([_with_glyphs(label) for label in formatter.seq]))
    try:
        yield
    finally:
        for axis, formatter in formatters:
            axis.set_major_formatter(formatter)


@contextmanager
def ignore_missing_glyphs() -> Iterator[None]:
    """Ignore warnings about missing glyphs within the block: the fonts of the reader's browser may contain them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from")
        yield


@lru_cache(maxsize=64)
def _find_fonts(characters: str) -> dict[str, str]:
    """Return an installed font family for each character, preferably matplotlib's own; characters without one are
    missing.
    """
    missing = set(characters)
    default_font = get_font(findfont(_FONT))
    fonts = {character: _FONT for character in missing if default_font.get_char_index(ord(character))}
    for entry in sorted(fontManager.ttflist, key=lambda entry: ("Sans" not in entry.name, entry.name)):
        missing -= fonts.keys()
        is_usable = entry.style == "normal" and entry.weight in _REGULAR and not entry.name.startswith("Last Resort")
        if missing and is_usable:
            font = get_font(entry.fname)
            if font.scalable:
                fonts |= {character: entry.name for character in missing if font.get_char_index(ord(character))}
    return fonts


def _with_glyphs(label: str) -> str:
    """Return a label in which characters without a font are replaced by their code points.

    A label of a single such character becomes its code point on two lines.
    """
    fonts = _find_fonts("".join(sorted(set(label))))
    missing = [character for character in label if character not in fonts]
    if missing and label.lstrip("◌") == missing[0]:
        code = _code_point(missing[0])
        return f"{code[:-2]}\n{code[-2:]}"
    return "".join(character if character in fonts else f"U+{_code_point(character)}" for character in label)


def _code_point(character: str) -> str:
    """Return the hexadecimal code point of a character; for the picture of a control character, of the control."""
    point = ord(character)
    return f"{point - 0x2400 if 0x2400 <= point < 0x2420 else point:04X}"


INK, MUTED, RULE, ACCENT, WARN = "#17191d", "#5c6370", "#dfe3e8", "#1f5fc0", "#8a5a00"
SHADES = LinearSegmentedColormap.from_list("pellucid", ["#ffffff", "#a9c4ee", "#3f78d0", "#0b3c8c"])
"""Color map for weights from 0 to 1: one hue that darkens steadily, also readable in grayscale."""


@check_arguments
def attention_figure(trace: Trace) -> Figure:
    """Draw the attention matrix of a trace: source horizontally, output vertically, white for 0 to dark blue for 1.

    The probability of each output symbol is at the right. Source symbols outside the vocabulary are underlined. Without
    attention weights the matrix is blank.

    Args:
        trace: The trace.
    """
    T, S = max(len(trace.target), 1), max(len(trace.source), 1)
    source, target = (
        [truncate_columns(visible_symbol(symbol), 24) for symbol in side] for side in (trace.source, trace.target)
    )
    tilted = max(map(len, source), default=0) > 3
    cell = min(0.3, 15 / S)
    above = 0.09 * max(map(len, source), default=0) if tilted else 0.2
    below = 0.4 if trace.unknown else 0.0
    figure = empty_figure(cell * S + 1.8 + 0.1 * max(map(len, target), default=0), 0.3 * T + 1.1 + above + below)
    axes = figure.add_subplot()
    weights = trace.attention if trace.attention.size else np.zeros((T, S))
    image = _draw_matrix(axes, weights, 1.0, 0)
    set_tick_labels(axes.xaxis, source, min(11.0, 64 * cell), INK)
    set_tick_labels(axes.yaxis, target, 11.0, INK)
    axes.tick_params(labeltop=True, labelbottom=False, length=0, pad=4)
    for label in axes.get_xticklabels() if tilted else ():
        label.set(rotation=55, rotation_mode="anchor", horizontalalignment="left")
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("source →", color=MUTED, loc="left", labelpad=8)
    axes.set_ylabel("← output", color=MUTED, loc="top", labelpad=8)
    for t, value in enumerate(trace.log_probabilities):
        transform = axes.get_yaxis_transform()
        axes.text(
            1 + 0.1 / (cell * S),
            t,
            format_probability(float(value)),
            transform=transform,
            va="center",
            size=9,
            color=MUTED,
        )
    if trace.unknown:
        mark_unknown(axes, trace.unknown)
        add_unknown_note(axes, 6)
    if trace.attention.size and not trace.attention.any():
        axes.text(0.5, 0.5, "no attention", transform=axes.transAxes, ha="center", va="center", color=MUTED)
    _add_scale(figure, axes, image, 1.0)
    return freeze_layout(figure)


@check_arguments
def curves_figure(
    log: Sequence[Mapping[str, Any]],
    validation_metrics: Sequence[ValidationMetric] = ERROR_RATE_METRICS.validation_metrics,
) -> Figure:
    """Draw learning curves over training samples: above, the losses; below, the validation metrics in percent.

    A dot on the curve of the first metric marks the best validation.

    Args:
        log: Records of the training log; without any, the figure says so.
        validation_metrics: Validation metrics of the task, most important first; those not in the log are left out.
    """
    figure = empty_figure(6.4, 5.2)
    upper, lower = figure.subplots(2, 1, sharex=True)
    _draw_curve(upper, logged_values(log, "stepped", "loss"), "training loss", MUTED, 0.8)
    _draw_curve(upper, logged_values(log, "validated", "loss"), "validation loss", ACCENT, 1.8)
    metrics = [metric for metric in validation_metrics if logged_values(log, "validated", metric.key)]
    for index, (key, name) in enumerate(metrics):
        _draw_curve(lower, logged_values(log, "validated", key), name, MUTED if index else ACCENT, 1.8)
    first = metrics[0].key if metrics else ""
    best = logged_values([record for record in log if record.get("best")], "validated", first)
    for x, y in best[-1:]:
        lower.plot([x], [y], "o", color=ACCENT, markersize=6, label=f"best checkpoint: {y:.1f} %")
    for axes, unit in ((upper, "loss"), (lower, "%")):
        style_axes(axes)
        axes.set_ylim(bottom=0.0)
        axes.set_ylabel(unit, color=MUTED)
        if axes.lines:
            axes.legend(frameon=False, labelcolor="linecolor", fontsize=9)
        else:
            axes.text(0.5, 0.5, "no records yet", transform=axes.transAxes, ha="center", color=MUTED)
    lower.set_xlabel("training samples", color=MUTED)
    lower.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    return freeze_layout(figure)


@check_arguments
def position_figure(accuracies: Sequence[GroupAccuracy]) -> Figure:
    """Draw accuracy by target position, with the 95 % interval as a band.

    Args:
        accuracies: Accuracy at each target position, in percent.
    """
    return _accuracy_figure(accuracies, "target position")


@check_arguments
def length_figure(accuracies: Sequence[GroupAccuracy]) -> Figure:
    """Draw accuracy by source length, with the 95 % interval as a band.

    Args:
        accuracies: Accuracy of each source length or range of lengths, in percent.
    """
    return _accuracy_figure(accuracies, "source length")


@check_arguments
def mean_attention(traces: Sequence[Trace]) -> Float[np.ndarray, "T S"]:
    """Return the mean attention weights of traces by target position (rows) and source position (columns).

    Row t is the mean over the traces with a step t; positions beyond a shorter source count as weight 0. A row sums to
    one if the weights of each of these traces do.

    Args:
        traces: The traces.

    Returns:
        Array of the longest target and the longest source; empty for no traces.
    """
    T = max((len(trace.target) for trace in traces), default=0)
    S = max((len(trace.source) for trace in traces), default=0)
    total, count = np.zeros((T, S)), np.zeros((T, 1))
    for trace in traces:
        rows, columns = trace.attention.shape
        total[:rows, :columns] += trace.attention
        count[:rows] += 1
    return total / np.maximum(count, 1)


@check_arguments
def mean_attention_figure(traces: Sequence[Trace]) -> Figure:
    """Draw the mean attention weights of traces by absolute target and source position, as `mean_weights_figure` does.

    Args:
        traces: The traces.
    """
    return mean_weights_figure(mean_attention(traces))


MIN_DRAWN_WEIGHT = 1e-30
"""Smaller weights are drawn as 0: matplotlib cannot place ticks between numbers near 1e-320."""


@check_arguments
def mean_weights_figure(mean: Annotated[Float[np.ndarray, "T S"], PROBABILITY]) -> Figure:
    """Draw mean attention weights: above, a line over the source for each target position; below, a shaded matrix.

    Args:
        mean: Mean weights, from `mean_attention`.
    """
    if len(mean) and not mean.size:
        raise argument_error("mean", "at least one source position", mean)
    mean = np.where(mean < MIN_DRAWN_WEIGHT, 0.0, mean)
    T, S = mean.shape
    figure = empty_figure(7.2, 5.6)
    lines, matrix = figure.subplots(2, 1, sharex=True)
    positions = np.arange(1, S + 1)
    for t in range(T):
        color = SHADES(1.0 - 0.7 * t / max(T - 1, 1))
        lines.plot(positions, mean[t], color=color, linewidth=1.4, label=str(t + 1))
        if T <= 30:
            peak = int(mean[t].argmax())
            lines.annotate(
                str(t + 1), (peak + 1, mean[t, peak]), (0, 3), textcoords="offset points", ha="center", size=8
            )
    style_axes(lines)
    lines.set_ylim(bottom=0.0)
    lines.set_ylabel("mean weight", color=MUTED)
    top = round_up(float(mean.max(initial=0.0)))
    image = _draw_matrix(matrix, mean if mean.size else np.zeros((1, 1)), top, 1)
    style_axes(matrix)
    matrix.grid(False)
    matrix.yaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    matrix.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    matrix.set_xlabel("source position →", color=MUTED)
    matrix.set_ylabel("← target position", color=MUTED)
    _add_scale(figure, matrix, image, top)
    return freeze_layout(figure)


@check_arguments
def to_png(figure: Figure, dots_per_inch: int = 160) -> bytes:
    """Return a figure as the bytes of a PNG image. Equal figures give equal bytes.

    Characters of tick labels that no installed font contains are drawn as code points.

    Args:
        figure: The figure.
        dots_per_inch: Resolution.
    """
    buffer = io.BytesIO()
    with drawable_tick_labels(figure):
        figure.savefig(buffer, format="png", dpi=dots_per_inch, metadata={"Software": None})
    return buffer.getvalue()


@check_arguments
def to_svg(figure: Figure) -> str:
    """Return a figure as an SVG document. Equal figures give equal text. Labels stay text in the reader's fonts.

    Args:
        figure: The figure.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pellucid"}), ignore_missing_glyphs():
        figure.savefig(buffer, format="svg", metadata=nothing)
    return buffer.getvalue()


def empty_figure(width: float, height: float) -> Figure:
    """Return an empty white figure whose layout makes room for labels (matplotlib's constrained layout).

    Args:
        width: Width in inches.
        height: Height in inches.
    """
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    return Figure(figsize=(width, height), layout=layout, facecolor="white")


def freeze_layout(figure: Figure) -> Figure:
    """Fix the layout of a figure, so that repeated drawing gives equal files.

    Args:
        figure: The figure.

    Returns:
        The same figure.
    """
    with drawable_tick_labels(figure):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _accuracy_figure(accuracies: Sequence[GroupAccuracy], axis: str) -> Figure:
    """Return a figure of accuracies with their intervals."""
    figure = empty_figure(6.4, 3.4)
    axes = figure.add_subplot()
    positions = np.arange(len(accuracies))
    low = [group.low if group.total else math.nan for group in accuracies]
    high = [group.high if group.total else math.nan for group in accuracies]
    axes.fill_between(positions, low, high, color=ACCENT, alpha=0.15, linewidth=0, label="95 % interval")
    axes.plot(positions, [group.percent for group in accuracies], "o-", color=ACCENT, markersize=4, linewidth=1.8)
    style_axes(axes)
    label_interval = max(1, math.ceil(sum(len(group.label) + 2 for group in accuracies) / 70))
    set_tick_labels(
        axes.xaxis, [group.label if n % label_interval == 0 else "" for n, group in enumerate(accuracies)], 9.0, INK
    )
    axes.set_ylim(*accuracy_axis_limits(accuracies))
    axes.set_xlabel(axis, color=MUTED)
    axes.set_ylabel("% correct", color=MUTED)
    return freeze_layout(figure)


def _draw_curve(axes: Axes, points: Sequence[tuple[float, float]], name: str, color: str, width: float) -> None:
    """Draw a labeled line, if it has points."""
    if points:
        axes.plot([x for x, _ in points], [y for _, y in points], color=color, linewidth=width, label=name)


def _draw_matrix(axes: Axes, weights: Float[np.ndarray, "T S"], top: float, first: int) -> AxesImage | QuadMesh:
    """Draw weights from 0 to `top` as shaded cells, the first of which is at (`first`, `first`).

    Up to `MAX_RECTANGLES` cells are rectangles, also in SVG; more of them are one image, which makes a smaller file.
    """
    T, S = weights.shape
    left, right, bottom, upper = first - 0.5, first + S - 0.5, first + T - 0.5, first - 0.5
    if weights.size > MAX_RECTANGLES:
        extent = (left, right, bottom, upper)
        return axes.imshow(weights, cmap=SHADES, vmin=0.0, vmax=top, aspect="auto", extent=extent, interpolation="none")
    columns, rows = (np.arange(size + 1) + first - 0.5 for size in (S, T))
    cells = axes.pcolormesh(columns, rows, weights, cmap=SHADES, vmin=0.0, vmax=top)
    axes.set(xlim=(left, right), ylim=(bottom, upper))
    return cells


def _add_scale(figure: Figure, axes: Axes, image: AxesImage | QuadMesh, top: float) -> None:
    """Add a color bar for weights from 0 to `top`, and a frame around the matrix."""
    levels = np.linspace(0.0, top, SCALE_LEVELS + 1)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, aspect=12, shrink=0.6, anchor=(0.0, 1.0), boundaries=levels)
    bar.set_ticks([0.0, top / 2, top], labels=[format_number(value) for value in (0.0, top / 2, top)])
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=MUTED)
    bar.ax.set_title("weight", fontsize=8, color=MUTED)
    bar.outline.set(edgecolor=RULE)
    for spine in axes.spines.values():
        spine.set(visible=True, color=RULE)


def mark_unknown(axes: Axes, indices: Iterable[int]) -> None:
    """Underline the tick labels of symbols that are not in the vocabulary, with a bar at the top of the axes.

    Args:
        axes: The axes, with labels above them.
        indices: Indices of the labels, from 0; a repeated one has one bar.
    """
    for index in dict.fromkeys(indices):
        across, up = [index - 0.4, index + 0.4], [1.0, 1.0]
        bar = Line2D(across, up, transform=axes.get_xaxis_transform(), color=WARN, linewidth=2.5, clip_on=False)
        bar.set(solid_capstyle="butt", zorder=3, gid=f"unknown-{index + 1}")
        axes.add_artist(bar)


def add_unknown_note(axes: Axes, points: int) -> None:
    """Add the explanation of `mark_unknown` below the axes.

    Args:
        axes: The axes.
        points: Distance below the axes, in points.
    """
    note = "underlined: not\nin the vocabulary"
    axes.annotate(note, (0, 0), (0, -points), "axes fraction", textcoords="offset points", va="top", size=8, color=WARN)


def style_axes(axes: Axes) -> None:
    """Remove the frame of axes and add horizontal grid lines behind the data.

    Args:
        axes: The axes.
    """
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=9, labelcolor=MUTED)


MAX_LABEL_WIDTH = 16
LINE_WIDTH = 9.0
"""Width of a line in inches."""
LINE_HEIGHT = 0.95
"""Distance between lines in inches."""


@check_arguments
def tag_labels(trace: Trace) -> tuple[list[str], list[str]]:
    """Return the displayed source symbols and tags of a trace.

    Args:
        trace: Trace of a tagger.

    Returns:
        Source symbols without features, and tags; each made visible and truncated to `MAX_LABEL_WIDTH` columns.
    """
    symbols = trace.source[trace.num_features :]
    source, tags = (
        [truncate_columns(visible_symbol(symbol), MAX_LABEL_WIDTH) for symbol in side]
        for side in (symbols, trace.target)
    )
    return source, tags


@check_arguments
def tags_figure(trace: Trace) -> Figure:
    """Draw source symbols in lines, each with its tag below and, between them, a bar for the tag's probability.

    Args:
        trace: Trace of a tagger.
    """
    source, tags = tag_labels(trace)
    cell = 0.2 + 0.095 * max([2, *(cell_len(label) for label in (*source, *tags))])
    n = min(max(1, int(LINE_WIDTH / cell)), max(1, len(tags)))
    lines = max(1, math.ceil(len(tags) / n))
    # The note on unknown symbols needs additional room.
    min_width, note_height = (1.8, 0.4) if trace.unknown else (0.0, 0.0)
    figure = empty_figure(max(n * cell + 0.3, min_width), lines * LINE_HEIGHT + 0.3 + note_height)
    rows = figure.subplots(lines, 1, squeeze=False)[:, 0]
    for number, axes in enumerate(rows):
        columns = slice(number * n, (number + 1) * n)
        axes.set_xlim(-0.5, n - 0.5)
        axes.set_ylim(0.0, 1.0)
        below = axes.twiny()
        below.set_xlim(-0.5, n - 0.5)
        below.xaxis.set_ticks_position("bottom")
        for row_axes, labels, color in ((axes, source[columns], INK), (below, tags[columns], ACCENT)):
            set_tick_labels(row_axes.xaxis, labels, 11.0, color)
            row_axes.tick_params(length=0, pad=2)
            row_axes.set_yticks([])
            row_axes.set_frame_on(False)
        axes.xaxis.set_ticks_position("top")
        _draw_probabilities(axes, trace.log_probabilities[columns])
        unseen = (position - trace.num_features - columns.start for position in trace.unknown)
        mark_unknown(axes, (index for index in unseen if 0 <= index < n))
    if trace.unknown:
        add_unknown_note(rows[-1], 20)
    return freeze_layout(figure)


def _draw_probabilities(axes: Axes, log_probabilities: np.ndarray) -> None:
    """Draw the probability of each tag as a bar and a number."""
    for index, value in enumerate(log_probabilities.tolist()):
        axes.barh(0.25, 0.8, 0.22, index - 0.4, color=RULE)
        axes.barh(0.25, 0.8 * math.exp(min(value, 0.0)), 0.22, index - 0.4, color=ACCENT)
        axes.text(index, 0.7, format_probability(value), ha="center", va="center", size=8, color=MUTED)
