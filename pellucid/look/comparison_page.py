"""The page of several runs on the same examples: side by side, whether they differ, and where."""

from collections.abc import Iterator, Sequence

from pellucid.evaluation.assessment import Assessment
from pellucid.evaluation.comparing import Comparison, Difference
from pellucid.evaluation.metrics import Accuracy
from pellucid.look.calibration_charts import calibration_html, color, legend_html
from pellucid.look.charts import Chart, Line, accuracy_chart, percent_range
from pellucid.look.confusion_table import pair_name
from pellucid.look.error_list import SCRIPT, disagreement_rows, list_html
from pellucid.look.evaluation_page import groups_html
from pellucid.look.evaluation_tables import differences, only_right, p_value, score_rows
from pellucid.look.page import text
from pellucid.look.report import Fragment, Report, charts_html
from pellucid.look.visible import visible_text

CONFUSIONS = 20
CERTAIN = 0.05
"""Differences with a smaller p are called more than chance."""


def comparison_report(runs: Sequence[Assessment], comparisons: Sequence[Comparison], file: str, listed: int) -> Report:
    """The report of several runs on one file, the first compared with each other one."""
    first = runs[0]
    parts = [
        ("Side by side", "".join(_side_by_side(runs))),
        ("Do they differ?", "".join(_tests(runs, comparisons))),
        ("By group", "".join(groups_html(runs))),
        ("Where they are right", "".join(_accuracies(runs))),
        ("What they confuse", "".join(_confusions(runs))),
        ("How sure they were", legend_html(runs) + "".join(calibration_html(runs))),
    ]
    for other in runs[1:]:
        for right, wrong in ((first, other), (other, first)):
            title = f"{right.name} right, {wrong.name} wrong"
            parts.append((title, "".join(_disagreements(right, wrong, listed))))
    return Report(
        title=" and ".join(run.name for run in runs),
        introduction=f"{first.evaluation.examples:,} examples of {file}, decoded and scored with each run.",
        summary=_summary(runs, comparisons),
        parts=[Fragment(title, html) for title, html in parts if html],
        script=SCRIPT,
    )


def _summary(runs: Sequence[Assessment], comparisons: Sequence[Comparison]) -> list[tuple[str, str]]:
    """Exact match of each run, and the first difference."""
    over = "mean over groups" if runs[0].mean else "all examples"
    name = {"transduce": "exact match", "tag": "all tags right"}.get(runs[0].task, "accuracy")
    rows = [(f"{name}, {run.name}", f"{_exact(run):.2f} % ({over})") for run in runs]
    for run, comparison in zip(runs[1:], comparisons, strict=True):
        each = comparison.exact_match
        told = f"95 %: {each.ci95.low:+z.2f} to {each.ci95.high:+z.2f}, p {_p(each.p)}"
        rows.append((f"difference from {run.name}", f"{each.difference:+z.2f} points ({told})"))
    return rows


def _exact(run: Assessment) -> float:
    """The exact match that is compared."""
    return run.mean.exact_match if run.mean else run.evaluation.exact_match


def _p(value: float) -> str:
    """A p-value with its sign of relation."""
    shown = p_value(value)
    return shown if shown.startswith("<") else f"= {shown}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of numbers, its cells already HTML."""
    named = "".join(f'<th scope="col">{text(head)}</th>' for head in heads)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>\n'
        for first, *rest in rows
    )
    table = f'<table class="numbers"><thead><tr>{named}</tr></thead><tbody>\n{body}</tbody></table>'
    return f'<div class="wide">{table}</div>\n'


def _side_by_side(runs: Sequence[Assessment]) -> Iterator[str]:
    """A row for each score, a column for each run."""
    scores = [score_rows(run) for run in runs]
    names = [name for name, _, _ in max(scores, key=len)]
    known = [{name: value for name, value, _ in each} for each in scores]
    rows = [[text(name), *(text(each.get(name, "–")) for each in known)] for name in names]
    yield _table(["over all examples", *(run.name for run in runs)], rows)


def _tests(runs: Sequence[Assessment], comparisons: Sequence[Comparison]) -> Iterator[str]:
    """What the differences are worth, in numbers and in words."""
    first, rows, words = runs[0], [], []
    for run, comparison in zip(runs[1:], comparisons, strict=True):
        for name, each in differences(comparison):
            interval = f"{each.ci95.low:+z.2f} to {each.ci95.high:+z.2f}"
            cells = (f"{each.difference:+z.2f}", interval, text(p_value(each.p)), f"{100 * each.a_better:.1f} %")
            rows.append([text(f"{name}, {first.name} less {run.name}"), *cells])
            words.append(_in_words(name, each, first.name, run.name))
    heads = ("score", "difference, points", "95 % interval", "p", f"{first.name} better in")
    yield _table(heads, rows)
    yield "".join(f'<p class="verdictline">{text(each)}</p>\n' for each in words)
    counts = [
        [text(run.name), *(f"{count:,}" for count in (each.both, each.only_a, each.only_b, each.neither))]
        for run, each in zip(runs[1:], comparisons, strict=True)
    ]
    yield _table(("right", "both", f"only {first.name}", "only this one", "neither"), counts)
    over = "means over groups; each group is drawn by itself" if first.mean else "over all examples"
    yield (
        f'<p class="note">Rates {over}. Interval and "better in": paired bootstrap, 1,000 resamples of the examples '
        "(Koehn 2004). p: two-sided, 10,000 random swaps of the two outputs of each example (approximate "
        f"randomization).{' Several pairs are tested: a p of 0.05 is less rare then.' if len(runs) > 2 else ''}</p>\n"
    )


def _in_words(name: str, each: Difference, first: str, other: str) -> str:
    """One difference, told."""
    if each.p >= CERTAIN:
        return (
            f"In {name}, chance alone would make a difference like this between {first} and {other} (p {_p(each.p)})."
        )
    better = (each.difference > 0) == (name != "symbol error rate")
    return f"In {name}, {first} is {'better' if better else 'worse'} than {other} by more than chance (p {_p(each.p)})."


def _accuracies(runs: Sequence[Assessment]) -> Iterator[str]:
    """Accuracy by target position and by source length, a line for each run."""
    yield legend_html(runs)
    positions = [run.evaluation.positions for run in runs]
    lengths = [run.evaluation.lengths for run in runs]
    charts = [_lines("By target position", "position in the target", runs, positions)]
    charts.append(_lines("By source length", "symbols in the source", runs, lengths))
    yield from charts_html(charts)
    yield '<p class="note">Share right in per cent.</p>\n'


def _lines(title: str, axis: str, runs: Sequence[Assessment], groups: Sequence[Sequence[Accuracy]]) -> Chart:
    """One chart of the accuracies of all runs."""
    charts = [accuracy_chart(title, axis, each) for each in groups]
    longest = max(charts, key=lambda chart: len(chart.x_ticks))
    lines = [
        Line(
            "", [p._replace(hint=f"{visible_text(run.name)}, {p.hint}") for p in chart.lines[0].points], color=color(at)
        )
        for at, (run, chart) in enumerate(zip(runs, charts, strict=True))
    ]
    reach = percent_range([each for own in groups for each in own])
    return longest._replace(lines=lines, band=(), y_range=reach)


def _confusions(runs: Sequence[Assessment]) -> Iterator[str]:
    """The most frequent errors of symbols of any run, and how often each run made them."""
    counted = [{(each.wanted, each.written): each.times for each in run.confusions.errors} for run in runs]
    every = {pair for counts in counted for pair in counts}
    ranked = sorted(every, key=lambda pair: (-sum(counts.get(pair, 0) for counts in counted), pair_name(*pair)))
    if ranked:
        rows = [
            [text(pair_name(*pair)), *(f"{counts.get(pair, 0):,}" for counts in counted)]
            for pair in ranked[:CONFUSIONS]
        ]
        yield _table(["wanted → written", *(run.name for run in runs)], rows)
        yield '<p class="note">A dash is no symbol: wanted –, it was inserted; written –, left out.</p>\n'


def _disagreements(right: Assessment, wrong: Assessment, listed: int) -> Iterator[str]:
    """Examples of which one run alone is right, with both attentions."""
    places = only_right(right, wrong)
    if not places[:listed]:
        return
    left = f" The first {listed:,} of {len(places):,} are here." if len(places) > listed else ""
    what = "tags" if right.task == "tag" else "attention"
    yield f'<p class="note">Unfold an example for the {what} of both runs.{left}</p>\n'
    rows = disagreement_rows(right, wrong, places[:listed])
    yield list_html(("source", right.name, wrong.name), ("edits", "p"), rows)
