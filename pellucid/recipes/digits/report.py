"""Page, numbers and figures of a lesson, beside those of the authors."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pellucid.errors import DataError, abbreviate_reason
from pellucid.files import make_folder, write_json
from pellucid.recipes.digits.study import Outcome, Study, conduct
from pellucid.recipes.following import followed
from pellucid.recipes.recipe import Request
from pellucid.reporting.figures import MUTED, empty_figure, mean_weights_figure, settled, short_number, svg, tidy
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import Report, write_report

POSITIONS_REPEAT = (
    *(0.78, 0.67, 0.33, 0.19, 0.15, 0.16, 0.16, 0.17, 0.17, 0.19, 0.18),
    *(0.20, 0.20, 0.21, 0.21, 0.21, 0.24, 0.35, 0.83, 0.98, 1.00),
)
"""Accuracy at each target position without attention, after 3 million samples (the blog of 2015)."""
POSITIONS_ATTENTION = (
    *(1.0, 1.0, 0.986, 0.935, 0.964, 0.991, 0.992, 0.983, 0.965, 0.946, 0.931),
    *(0.903, 0.897, 0.863, 0.823, 0.81, 0.855, 0.813, 0.27, 0.968, 0.82),
)
"""Accuracy at each target position with attention, after 150,000 samples (the better notebook of 2016)."""


class Curve(NamedTuple):
    """An author's validation accuracy over the samples seen."""

    name: str
    points: list[tuple[float, float]]

    def at(self, samples: int) -> float:
        """The accuracy at the last validation up to so many samples."""
        return [accuracy for seen, accuracy in self.points if seen <= samples][-1]

    def until(self, samples: int) -> "Curve":
        """The curve's beginning."""
        return Curve(self.name, [point for point in self.points if point[0] <= samples])


STORED = {
    "repeat": {
        "nv_624843e_gru_valacc(9.1e5)": "notebook 624843e (2016)",
        "blog/day3_85d4f0d_gru_valacc(3e6)": "blog (2015)",
        "sk_a27c9d1_gru_valacc(1e6)": "notebook a27c9d1",
    },
    "attention": {
        "nv_a3fe320_attn_valacc(1.5e5,complete)": "notebook a3fe320 (2016)",
        "nv_624843e_attn_valacc(1.5e5,complete)": "notebook 624843e (2016)",
    },
}
"""The complete runs, and where each comes from."""


def curves(data: Path, kind: str) -> list[Curve]:
    """The authors' curves of a kind of network ("repeat" or "attention"); `DataError` where they are not at hand."""
    path = data / "digits-curves" / "curves.json"
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=dict[str, list[tuple[float, float]]])
        return [Curve(name, stored[key]) for key, name in STORED[kind].items()]
    except FileNotFoundError:
        raise DataError(
            f"{path} is not there: the authors' curves stand in the folder given with --data, or in PELLUCID_DATA"
        ) from None
    except (OSError, msgspec.DecodeError, KeyError) as error:
        raise DataError(f"{path} does not hold the authors' curves: {abbreviate_reason(error)}") from None


AUTHORS = ("#b4530a", "#8a3ffc", "#0f766e")
"""The authors' curves, dashed; ours are solid."""


class Group(NamedTuple):
    """The runs of one network, a seed each."""

    name: str
    outcomes: Sequence[Outcome]

    @property
    def median(self) -> Outcome:
        """The run whose final accuracy is the median (of an even number, the lower)."""
        return sorted(self.outcomes, key=lambda outcome: outcome.accuracy)[(len(self.outcomes) - 1) // 2]


def curve_figure(groups: Sequence[Group], references: Sequence[Curve], longest: int) -> Figure:
    """Accuracy over samples: every run as a hairline, each group's median run as a line, the authors' runs dashed."""
    figure = empty_figure(7.2, 4.0)
    axes = figure.add_subplot()
    for group, color in zip(groups, colors(len(groups)), strict=True):
        for outcome in group.outcomes:
            strong = outcome is group.median
            xs, ys = [point.samples for point in outcome.curve], [point.symbol_accuracy for point in outcome.curve]
            name = group.name if strong else None
            axes.plot(xs, ys, color=color, linewidth=1.8 if strong else 0.7, alpha=1 if strong else 0.6, label=name)
    for reference, color in zip(references, AUTHORS, strict=False):
        points = reference.until(longest).points
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            "--",
            color=color,
            linewidth=1.3,
            label=f"{reference.name}, as stored",
        )
    _finish(axes, "samples seen")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    return settled(figure)


def position_figure(groups: Sequence[Group], reference: Sequence[float] = (), reference_name: str = "") -> Figure:
    """Accuracy at each target position, counted from 1: the mean of a group's runs, and their range as a band."""
    figure = empty_figure(7.2, 3.6)
    axes = figure.add_subplot()
    for group, color in zip(groups, colors(len(groups)), strict=True):
        runs = np.array([outcome.final.per_position for outcome in group.outcomes])
        places = np.arange(1, runs.shape[1] + 1)
        axes.fill_between(places, runs.min(axis=0), runs.max(axis=0), color=color, alpha=0.15, linewidth=0)
        axes.plot(places, runs.mean(axis=0), "o-", color=color, markersize=3.5, linewidth=1.6, label=group.name)
    if reference:
        places = np.arange(1, len(reference) + 1)
        axes.plot(
            places, reference, "--", color=AUTHORS[0], linewidth=1.3, label=f"{reference_name}, read off its plot"
        )
    _finish(axes, "target position (the last is the end)")
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    return settled(figure)


def colors(count: int) -> list[str]:
    """So many colours that are told apart, the first one the accent."""
    palette = ["#1f5fc0", "#c2410c", "#15803d", "#7c3aed", "#be185d", "#0e7490"]
    return (
        palette[:count]
        if count <= len(palette)
        else [to_hex(colormaps["viridis"](n / (count - 1))) for n in range(count)]
    )


def _finish(axes: Axes, x_title: str) -> None:
    """Axes from nothing to all, and the names of the lines."""
    tidy(axes)
    highest = max(float(np.max(line.get_ydata(), initial=0.1)) for line in axes.lines)
    axes.set_ylim(0.0, min(1.02, 1.25 * highest))
    axes.set_ylabel("symbols right", color=MUTED)
    axes.set_xlabel(x_title, color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)


class Lesson(NamedTuple):
    """What was done, what came out, and what there is to say."""

    name: str
    title: str
    introduction: str
    groups: Sequence[Group]
    """The lesson's own network first."""
    references: Sequence[Curve] = ()
    """The authors' curves."""
    positions: Sequence[float] = ()
    """The authors' accuracies by position."""
    parts: Sequence[ReportPart] = ()
    """What follows the curves and the positions."""
    numbers: Mapping[str, Any] = {}
    """Further numbers for the JSON."""


def conducted(studies: Sequence[Study], request: Request) -> Generator[str, None, list[Group]]:
    """Each study with every seed asked for: a line for each run, and in the end a group for each study.

    Ctrl-C ends a single study early: its report then holds the runs that are finished or, of one alone, its beginning.
    """
    make_folder(request.out)
    outcomes, groups = followed(conduct, named(every_seed(studies, request)), request), list[Group]()
    for study in studies:
        done = list[Outcome]()
        try:
            done.extend(next(outcomes) for _ in range(request.seeds))
        except KeyboardInterrupt:
            if len(studies) > 1 or not done:
                raise
        groups.append(Group(study.name, done))
        yield from lines_of(groups[-1])
    return groups


def every_seed(studies: Sequence[Study], request: Request) -> list[Study]:
    """Each study with every seed asked for; `request.samples` cuts them short."""
    return [
        study._replace(seed=seed, plan=study.plan._replace(samples=request.samples or study.plan.samples))
        for study in studies
        for seed in range(1, request.seeds + 1)
    ]


def named(studies: Sequence[Study]) -> list[tuple[str, Study]]:
    """Each with the name under which its progress is told."""
    return [(f"{study.name}, seed {study.seed}", study) for study in studies]


def lines_of(group: Group) -> Iterator[str]:
    """One line for each run of a group."""
    for outcome in group.outcomes:
        final, agreed = outcome.final, outcome.final.agreement
        looked = f", alignment error {100 * agreed.error:.2f} %" if agreed else ""
        ended = "; interrupted" if outcome.interrupted else ""
        yield (
            f"{group.name}, seed {outcome.seed}: {final.symbol_accuracy:.4f} of the symbols, "
            f"{final.exact_match:.4f} of the sequences{looked}; {outcome.parameters:,} parameters, "
            f"{outcome.curve[-1].samples:,} samples in {outcome.seconds:,.0f} s{ended}"
        )


def write_lesson(request: Request, lesson: Lesson) -> str:
    """Write report.html and report.json into the folder asked for; the line that says where."""
    write_report(request.out / "report.html", _report(lesson, request))
    write_json(request.out / "report.json", report_of(lesson))
    return f"report: {request.out / 'report.html'}"


def _report(lesson: Lesson, request: Request) -> Report:
    """The page."""
    first = lesson.groups[0].median
    which = f"median of {request.seeds} seeds" if request.seeds > 1 else "one seed"
    summary = [
        ("symbols right", f"{100 * first.accuracy:.2f} % ({lesson.groups[0].name}; {which})"),
        ("whole sequences right", f"{100 * first.final.exact_match:.2f} % (the same run)"),
        ("parameters", f"{first.parameters:,}"),
        ("samples", f"{first.curve[-1].samples:,}"),
        ("training", f"{first.seconds:,.0f} s (one thread)"),
    ]
    return Report(title=lesson.title, introduction=lesson.introduction, summary=summary, parts=parts_of(lesson))


def parts_of(lesson: Lesson) -> list[ReportPart]:
    """The pictures and tables of a lesson, and what it adds."""
    longest = max(outcome.curve[-1].samples for group in lesson.groups for outcome in group.outcomes)
    theirs = " Dashed: the authors' own runs, from their stored plots." if lesson.references else ""
    return [
        ReportFigure(
            "Validation while training",
            "Symbols right of samples that no training sees. A thick line is the run whose final accuracy is the "
            f"median, a thin one another seed.{theirs}",
            svg(curve_figure(lesson.groups, lesson.references, longest)),
        ),
        _table(lesson.groups),
        ReportFigure(
            "By position",
            "Symbols right at each place of the target; the band spans the seeds.",
            svg(position_figure(lesson.groups, lesson.positions, "the authors' plot")),
        ),
        *_attention(lesson.groups),
        *lesson.parts,
    ]


def _attention(groups: Sequence[Group]) -> Iterator[ReportPart]:
    """Where the median run of each group with attention looks on average."""
    for group in groups:
        mean = group.median.final.attention_mean
        if mean is not None:
            yield ReportFigure(
                "Where it looks on average",
                f"{group.name}, seed {group.median.seed}: mean weights over all samples it is judged on, a line for "
                "each target position; below, the same as an image.",
                svg(mean_weights_figure(np.array(mean))),
            )


def _table(groups: Sequence[Group]) -> ReportTable:
    """Every run in numbers; those of attention where there is any."""
    looks = any(outcome.final.agreement for group in groups for outcome in group.outcomes)
    attention = ("alignment error", "weight on the word") if looks else ()
    heads = ("run", "symbols right", "sequences right", *attention, "parameters", "seconds")
    rows = [_row(group, outcome, looks) for group in groups for outcome in group.outcomes]
    return ReportTable("Validation while training", _MEANING if looks else "", heads, rows)


_MEANING = (
    "Alignment error: digits whose greatest weight lies outside their own word and the space behind it. Weight on the "
    "word: the mean weight inside. Both against the generator's own record of where each word stands."
)


def _row(group: Group, outcome: Outcome, looks: bool) -> list[str]:
    """One run in numbers."""
    final, agreed = outcome.final, outcome.final.agreement
    attention = [f"{100 * agreed.error:.2f} %", f"{agreed.mass:.3f}"] if agreed else ["–", "–"]
    return [
        f"{group.name}, seed {outcome.seed}",
        f"{100 * final.symbol_accuracy:.2f} %",
        f"{100 * final.exact_match:.2f} %",
        *(attention if looks else []),
        f"{outcome.parameters:,}",
        f"{outcome.seconds:,.0f}",
    ]


def report_of(lesson: Lesson) -> dict[str, Any]:
    """report.json: the median run of the lesson's own network above, all runs below, shares of 1."""
    return {
        "name": lesson.name,
        **_numbers(lesson.groups[0].median),
        "reference": {curve.name: curve.points for curve in lesson.references},
        "reference_per_position": list(lesson.positions),
        "runs": [{"run": group.name, **_numbers(outcome)} for group in lesson.groups for outcome in group.outcomes],
        **lesson.numbers,
    }


def _numbers(outcome: Outcome) -> dict[str, Any]:
    """One run."""
    curve, final = outcome.curve, outcome.final
    return {
        "seed": outcome.seed,
        "parameters": outcome.parameters,
        "samples": curve[-1].samples,
        "seconds": outcome.seconds,
        "validation_samples": [point.samples for point in curve],
        "training_cost": [point.cost for point in curve],
        "symbol_accuracy": [point.symbol_accuracy for point in curve],
        "exact_match": [point.exact_match for point in curve],
        "per_position": final.per_position,
        "attention_mean": final.attention_mean,
        "final": {
            "symbol_accuracy": final.symbol_accuracy,
            "exact_match": final.exact_match,
            "alignment_error": final.agreement.error if final.agreement else None,
            "alignment_mass": final.agreement.mass if final.agreement else None,
        },
    }
