"""How sure models were, as charts: probability beside the share right, and what a review by probability is worth."""

from collections.abc import Iterator, Sequence

from pellucid.evaluation.assessment import Assessment
from pellucid.evaluation.calibration import Calibration
from pellucid.look.charts import Chart, Line, Point
from pellucid.look.page import text
from pellucid.look.report import charts_html
from pellucid.look.visible import visible_text

SERIES = ("var(--accent)", "var(--series-2)", "var(--series-3)", "var(--series-4)")
_PER_CENT = [(float(x), str(x)) for x in range(0, 101, 20)]


def color(number: int) -> str:
    """The colour of a run; they repeat after four."""
    return SERIES[number % len(SERIES)]


def calibration_html(runs: Sequence[Assessment]) -> Iterator[str]:
    """Three charts of one run or several, and the numbers of the first behind them."""
    charts = [_reliability(runs), _certain(runs), _review(runs)]
    yield from charts_html(charts, [_bins(runs[0].calibration) if len(runs) == 1 else "", "", ""])
    unit = runs[0].unit
    own = "probability exp(score)" if unit == "outputs" else "own probability"
    yield (
        f'<p class="note">Reliability: {unit} gathered by their {own} in ten bins; on the grey line '
        f"probabilities can be taken at their word, above it {unit} are right more often than they say. The mean "
        f"distance from that line is the calibration error. The other two order {unit} by probability: how many of the "
        "most certain are right, and how many of all errors a person finds who reviews the least certain (grey: in any "
        "order).</p>\n"
    )


def legend_html(runs: Sequence[Assessment]) -> str:
    """Which colour is which run."""
    names = (f'<span style="--series:{color(at)}">{text(run.name)}</span>' for at, run in enumerate(runs))
    return f'<p class="legend">{"".join(names)}</p>\n'


def _reliability(runs: Sequence[Assessment]) -> Chart:
    """Share right over mean probability, bin by bin."""
    lines, band = [], []
    for at, run in enumerate(runs):
        points = []
        for each in run.calibration.bins:
            if each.total:
                share = f"{100 * each.accuracy:.1f} % right of {each.total:,}"
                hint = f"{visible_text(run.name)}: mean probability {each.confidence:.2f}, {share}"
                points.append(Point(100 * each.confidence, 100 * each.accuracy, hint))
                low, high = each.ci95.percent
                band += [(points[-1].x, low, high)] if len(runs) == 1 else []
        lines.append(Line("", points, color=color(at)))
    perfect = Line("", [Point(0.0, 0.0, "probability 0"), Point(100.0, 100.0, "probability 1")], quiet=True, dots=False)
    return Chart("Reliability", "mean probability, %", "%", [*lines, perfect], _PER_CENT, (0.0, 100.0), band)


def _certain(runs: Sequence[Assessment]) -> Chart:
    """Share right among the most certain."""
    lines = []
    for at, run in enumerate(runs):
        points = [
            Point(
                100 * each.share,
                100 * each.accuracy,
                f"{visible_text(run.name)}: {100 * each.accuracy:.1f} % of the most certain "
                f"{100 * each.share:.0f} % are right (p ≥ {each.probability:.3f})",
            )
            for each in run.calibration.certain
        ]
        lines.append(Line("", points, color=color(at)))
    lowest = min(point.y for line in lines for point in line.points)
    range_ = (min(80.0, lowest // 10 * 10), 100.0)
    return Chart("Right among the most certain", f"most certain {runs[0].unit}, %", "%", lines, _PER_CENT, range_)


def _review(runs: Sequence[Assessment]) -> Chart:
    """Errors found by reviewing the least certain."""
    lines = []
    for at, run in enumerate(runs):
        points = [
            Point(
                100 * (1 - each.share),
                100 * each.caught,
                f"{visible_text(run.name)}: reviewing the least certain "
                f"{100 * (1 - each.share):.0f} % finds {100 * each.caught:.0f} % of the errors",
            )
            for each in run.calibration.certain
        ]
        lines.append(Line("", points[::-1], color=color(at)))
    chance = Line("", [Point(0.0, 0.0, "none"), Point(100.0, 100.0, "all")], quiet=True, dots=False)
    title = f"least certain {runs[0].unit} reviewed, %"
    return Chart("Errors found by review", title, "%", [*lines, chance], _PER_CENT, (0.0, 100.0))


def _bins(calibration: Calibration) -> str:
    """The numbers behind the reliability chart, folded away."""
    rows = "".join(
        f'<tr><th scope="row">{each.low:.1f} – {each.high:.1f}</th><td>{each.right:,}</td><td>{each.total:,}</td>'
        f"<td>{f'{100 * each.accuracy:.1f}' if each.total else '–'}</td>"
        f"<td>{f'{100 * each.confidence:.1f}' if each.total else '–'}</td></tr>\n"
        for each in calibration.bins
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("probability", "right", "of", "% right", "mean, %"))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table>"
    return f"<details><summary>Numbers</summary>{table}</details>"
