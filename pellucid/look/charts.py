"""Line charts as inline SVG for pages: real text, colours of the page, every point readable on hover.

Colours come from the page's custom properties (`--accent`, `--muted`, `--rule`), so a chart is at home in light, dark
and print.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Any, NamedTuple

from pellucid.evaluation.metrics import Accuracy, Followed

_WIDTH, _HEIGHT = 360, 226
_LEFT, _RIGHT, _TOP, _BOTTOM = 36, 342, 10, 182


class Point(NamedTuple):
    """One value of a line, and what it says on hover."""

    x: float
    y: float
    hint: str


class Line(NamedTuple):
    """A named line (on a chart of several the name is written, if there is one); `quiet` ones are thin and grey."""

    name: str
    points: Sequence[Point]
    quiet: bool = False
    dots: bool = True
    color: str = "var(--accent)"


class Chart(NamedTuple):
    """What one chart shows."""

    title: str
    x_title: str
    y_title: str
    lines: Sequence[Line]
    x_ticks: Sequence[tuple[float, str]]
    y_range: tuple[float, float]
    band: Sequence[tuple[float, float, float]] = ()
    """(x, low, high): the interval around the first line."""


class _Scale(NamedTuple):
    """From values to places on the drawing."""

    x_first: float
    x_last: float
    y_low: float
    y_high: float

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a value stands; beyond the range it stands on the edge."""
        across = (x - self.x_first) / ((self.x_last - self.x_first) or 1.0)
        up = min(max((y - self.y_low) / ((self.y_high - self.y_low) or 1.0), 0.0), 1.0)
        return _LEFT + across * (_RIGHT - _LEFT), _BOTTOM - up * (_BOTTOM - _TOP)


def chart_svg(chart: Chart) -> str:
    """The chart as one `<svg>` element, 360 by 226 units, as wide as its place."""
    xs = [point.x for line in chart.lines for point in line.points] + [x for x, _ in chart.x_ticks]
    scale = _Scale(min(xs), max(xs), *chart.y_range)
    drawing = "".join([*_grid(chart, scale), _band(chart, scale), *_lines(chart, scale)])
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-size="12" fill="currentColor"><title>{escape(chart.title)}</title>'
        f"<desc>{escape(_description(chart))}</desc>{drawing}</svg>"
    )


def learning_charts(log: Sequence[Mapping[str, Any]], followed: Sequence[Followed]) -> list[Chart]:
    """Loss, and each score that is followed, over the examples seen; none of what the log has not."""
    training = _curve(log, "stepped", "loss", "training loss {:.3g}")
    validation = _curve(log, "validated", "loss", "validation loss {:.3g}")
    loss = [Line("training", _thinned(training, 200), True, False), Line("validation", validation)]
    drawn = [
        ("Loss", "loss", [line for line in loss if line.points]),
    ]
    for key, name in followed:
        points = _curve(log, "validated", key, f"{name} {{:.1f}} %")
        drawn.append((name[:1].upper() + name[1:], "%", [Line(name, points)]))
    charts: list[Chart] = []
    for title, unit, lines in drawn:
        points = [point for line in lines for point in line.points]
        if points:
            top = round_up(max(point.y for point in points))
            ticks = [(x, short_number(x)) for x in round_ticks(0.0, max(point.x for point in points))]
            charts.append(Chart(title, "examples seen", unit, lines, ticks, (0.0, top)))
    return charts


def accuracy_chart(title: str, x_title: str, accuracies: Sequence[Accuracy]) -> Chart:
    """The accuracy of groups in their order, with the 95 % interval as a band."""
    known = [(float(place), group) for place, group in enumerate(accuracies) if group.total]
    points = [Point(x, group.percent, accuracy_hint(group)) for x, group in known]
    widest = max((len(group.label) for group in accuracies), default=0)
    every = max(1, math.ceil(len(accuracies) * (widest + 2) / 60))
    ticks = [(float(place), group.label) for place, group in enumerate(accuracies) if place % every == 0]
    band = [(x, group.low, group.high) for x, group in known]
    return Chart(title, x_title, "% right", [Line(title, points)], ticks, percent_range(accuracies), band)


def accuracy_hint(group: Accuracy) -> str:
    """A group's numbers in words: "7: 93.1 % right (931 of 1000; 95 % interval 91.4 to 94.5)"."""
    interval = f"95 % interval {group.low:.1f} to {group.high:.1f}"
    return f"{group.label}: {group.percent:.1f} % right ({group.right} of {group.total}; {interval})"


def percent_range(accuracies: Sequence[Accuracy]) -> tuple[float, float]:
    """The range an axis of accuracies needs: up to 100, down to the ten below the lowest interval's end."""
    lowest = min((group.low for group in accuracies if group.total), default=0.0)
    return min(math.floor(lowest / 10) * 10.0, 80.0), 100.0


def values(log: Sequence[Mapping[str, Any]], event: str, key: str) -> list[tuple[float, float]]:
    """(samples, value) of the log's records of one event, where the value is there and finite."""
    found = [(record["samples"], record.get(key)) for record in log if record.get("event") == event]
    return [(float(x), float(y)) for x, y in found if y is not None and math.isfinite(y)]


def round_up(value: float) -> float:
    """The next round number at or above a positive value, for the top of an axis."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        factor * power for factor in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if factor * power >= value * (1 - 1e-9)
    )


def round_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round values (steps of 1, 2 or 5 times a power of ten) within a range."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    rough = span / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.75)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def short_number(value: float) -> str:
    """A number for an axis: 1.5M, 20k, 300, 0.05."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{letter}"
    return f"{value:.4g}"


def _curve(log: Sequence[Mapping[str, Any]], event: str, key: str, hint: str) -> list[Point]:
    """A log's values as points."""
    return [Point(x, y, f"{hint.format(y)} after {x:,.0f} examples") for x, y in values(log, event, key)]


def _thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` points, the means of runs of equal length: no trend is lost, and no file grows with training."""
    run = math.ceil(len(points) / most) or 1
    pieces = [points[start : start + run] for start in range(0, len(points), run)]
    return [Point(fmean(p.x for p in piece), fmean(p.y for p in piece), piece[-1].hint) for piece in pieces]


def _grid(chart: Chart, scale: _Scale) -> Iterator[str]:
    """Hairlines with their values, the ticks below, and the axes' names."""
    quiet = 'style="fill:var(--muted)"'
    for y in round_ticks(*chart.y_range):
        _, place = scale.place(scale.x_first, y)
        yield f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{place:.1f}" y2="{place:.1f}" style="stroke:var(--rule)"/>'
        yield f'<text x="{_LEFT - 8}" y="{place + 4:.1f}" text-anchor="end" {quiet}>{short_number(y)}</text>'
    for x, label in chart.x_ticks:
        place, _ = scale.place(x, scale.y_low)
        yield f'<text x="{place:.1f}" y="{_BOTTOM + 18}" text-anchor="middle" {quiet}>{escape(label)}</text>'
    middle = (_LEFT + _RIGHT) / 2
    yield f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle" {quiet}>{escape(chart.x_title)}</text>'


def _band(chart: Chart, scale: _Scale) -> str:
    """The area between the intervals' ends."""
    upper = [scale.place(x, high) for x, _, high in chart.band]
    lower = [scale.place(x, low) for x, low, _ in reversed(chart.band)]
    if not upper:
        return ""
    return f'<path d="{_path([*upper, *lower])}Z" style="fill:var(--accent)" fill-opacity=".14"/>'


def _lines(chart: Chart, scale: _Scale) -> Iterator[str]:
    """Each line, its dots where it has them, and, where there are several, its name in its colour."""
    for number, line in enumerate(chart.lines):
        color, breadth = ("var(--muted)", 1) if line.quiet else (line.color, 2)
        known = [point for point in line.points if math.isfinite(point.y)]
        places = [scale.place(point.x, point.y) for point in known]
        if not places:
            continue
        shape = f'style="stroke:{color};stroke-width:{breadth}" stroke-linejoin="round"'
        yield f'<path d="{_path(places)}" fill="none" {shape}/>'
        if line.dots:
            radius = 3 if len(known) <= 40 else 2
            for point, (x, y) in zip(known, places, strict=True):
                hint = f"<title>{escape(point.hint)}</title>"
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" style="fill:{color}">{hint}</circle>'
        if len(chart.lines) > 1:
            y = _TOP + 12 + 17 * number
            yield f'<text x="{_RIGHT - 4}" y="{y}" text-anchor="end" style="fill:{color}">{escape(line.name)}</text>'


def _path(places: Sequence[tuple[float, float]]) -> str:
    """Straight strokes through places."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _description(chart: Chart) -> str:
    """The chart in words: where each line starts and ends."""
    parts = [f"{chart.y_title} over {chart.x_title}"]
    parts += [
        f"{line.name}{': ' if line.name else ''}from {line.points[0].hint} to {line.points[-1].hint}"
        for line in chart.lines
        if line.points
    ]
    return ". ".join(parts) + "."
