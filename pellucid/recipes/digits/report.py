"""Report of a lesson: page, numbers and figures, with the authors' results for comparison."""

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
from pellucid.recipes.digits.training import DigitsExperiment, DigitsResult, run_experiment
from pellucid.recipes.jobs import run_jobs
from pellucid.recipes.published_data import describe_download
from pellucid.recipes.recipe import RecipeRequest
from pellucid.reporting.figures import (
    MUTED,
    empty_figure,
    format_number,
    freeze_layout,
    mean_weights_figure,
    style_axes,
    to_svg,
)
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import Report, write_report

POSITIONS_REPEAT = (
    *(0.78, 0.67, 0.33, 0.19, 0.15, 0.16, 0.16, 0.17, 0.17, 0.19, 0.18),
    *(0.20, 0.20, 0.21, 0.21, 0.21, 0.24, 0.35, 0.83, 0.98, 1.00),
)
"""Accuracy at each target position without attention after 3 million samples; blog of 2015."""
POSITIONS_ATTENTION = (
    *(1.0, 1.0, 0.986, 0.935, 0.964, 0.991, 0.992, 0.983, 0.965, 0.946, 0.931),
    *(0.903, 0.897, 0.863, 0.823, 0.81, 0.855, 0.813, 0.27, 0.968, 0.82),
)
"""Accuracy at each target position with attention after 150,000 samples; the better run of the 2016 notebook."""


class ReferenceCurve(NamedTuple):
    """Validation accuracy of an author's run over the samples seen."""

    name: str
    points: list[tuple[float, float]]
    """Samples seen and symbol accuracy, as a fraction."""

    def accuracy_at(self, samples: int) -> float:
        """Return the accuracy at the last validation up to a number of samples.

        Args:
            samples: Maximum number of training samples, at least that of the first validation.

        Raises:
            IndexError: The first validation is later.
        """
        return [accuracy for seen, accuracy in self.points if seen <= samples][-1]

    def truncate(self, samples: int) -> "ReferenceCurve":
        """Return the curve up to a number of samples; it may be empty.

        Args:
            samples: Maximum number of training samples.
        """
        return ReferenceCurve(self.name, [point for point in self.points if point[0] <= samples])


STORED_CURVES = {
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
"""Key in the file and displayed name of each complete run, by decoder."""


def load_reference_curves(data: Path, kind: str) -> list[ReferenceCurve]:
    """Return the stored validation curves of the authors' complete runs.

    Args:
        data: Folder of the data sets, with digits-curves/curves.json.
        kind: "repeat" or "attention".

    Raises:
        DataError: The file is missing, cannot be read, is damaged, or lacks a curve; or there are no curves of this
            kind.
    """
    path = data / "digits-curves" / "curves.json"
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=dict[str, list[tuple[float, float]]])
        return [ReferenceCurve(name, stored[key]) for key, name in STORED_CURVES[kind].items()]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: {describe_download('digits-curves')}") from None
    except (OSError, msgspec.DecodeError, KeyError) as error:
        raise DataError(f"{path} does not hold the authors' curves: {abbreviate_reason(error)}") from None


REFERENCE_COLORS = ("#b4530a", "#8a3ffc", "#0f766e")
"""Colors of the authors' curves, which are dashed."""


class DigitsRuns(NamedTuple):
    """Runs of one network, one per seed."""

    name: str
    results: Sequence[DigitsResult]

    @property
    def median(self) -> DigitsResult:
        """Return the run with the median final accuracy; the lower one of two medians."""
        return sorted(self.results, key=lambda result: result.accuracy)[(len(self.results) - 1) // 2]


def curve_figure(groups: Sequence[DigitsRuns], references: Sequence[ReferenceCurve], max_samples: int) -> Figure:
    """Draw symbol accuracy at each validation over the training samples seen.

    Args:
        groups: Runs; each is a thin line, the median run of a group a thick one.
        references: The authors' runs, dashed; at most three are drawn.
        max_samples: Number of samples up to which the authors' runs are drawn.

    Returns:
        The figure.
    """
    figure = empty_figure(7.2, 4.0)
    axes = figure.add_subplot()
    for group, color in zip(groups, line_colors(len(groups)), strict=True):
        for result in group.results:
            is_median = result is group.median
            xs, ys = [point.samples for point in result.curve], [point.symbol_accuracy for point in result.curve]
            label = group.name if is_median else None
            width, alpha = (1.8, 1.0) if is_median else (0.7, 0.6)
            axes.plot(xs, ys, color=color, linewidth=width, alpha=alpha, label=label)
    for reference, color in zip(references, REFERENCE_COLORS, strict=False):
        points = reference.truncate(max_samples).points
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            "--",
            color=color,
            linewidth=1.3,
            label=f"{reference.name}, stored",
        )
    _style_axes(axes, "samples seen")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    return freeze_layout(figure)


def position_figure(groups: Sequence[DigitsRuns], reference: Sequence[float] = (), reference_name: str = "") -> Figure:
    """Draw symbol accuracy at each target position, counted from 1.

    Args:
        groups: Runs; a group is drawn as its mean and a band from minimum to maximum.
        reference: The authors' accuracies by position, dashed; empty if there is none.
        reference_name: Their name in the legend.

    Returns:
        The figure.
    """
    figure = empty_figure(7.2, 3.6)
    axes = figure.add_subplot()
    for group, color in zip(groups, line_colors(len(groups)), strict=True):
        runs = np.array([result.final.per_position for result in group.results])
        positions = np.arange(1, runs.shape[1] + 1)
        axes.fill_between(positions, runs.min(axis=0), runs.max(axis=0), color=color, alpha=0.15, linewidth=0)
        axes.plot(positions, runs.mean(axis=0), "o-", color=color, markersize=3.5, linewidth=1.6, label=group.name)
    if reference:
        positions = np.arange(1, len(reference) + 1)
        axes.plot(
            positions,
            reference,
            "--",
            color=REFERENCE_COLORS[0],
            linewidth=1.3,
            label=f"{reference_name}, read from the plot",
        )
    _style_axes(axes, "target position (the last one is the end symbol)")
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    return freeze_layout(figure)


def line_colors(count: int) -> list[str]:
    """Return distinguishable colors: up to six of a fixed palette, which begins with the accent color; else of viridis.

    Args:
        count: Number of lines.
    """
    palette = ["#1f5fc0", "#c2410c", "#15803d", "#7c3aed", "#be185d", "#0e7490"]
    return (
        palette[:count]
        if count <= len(palette)
        else [to_hex(colormaps["viridis"](n / (count - 1))) for n in range(count)]
    )


def _style_axes(axes: Axes, x_title: str) -> None:
    """Set limits, labels and legend."""
    style_axes(axes)
    highest = max(float(np.max(line.get_ydata(), initial=0.1)) for line in axes.lines)
    axes.set_ylim(0.0, min(1.02, 1.25 * highest))
    axes.set_ylabel("symbol accuracy", color=MUTED)
    axes.set_xlabel(x_title, color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)


class LessonReport(NamedTuple):
    """Content of the report of a digits recipe (a lesson)."""

    name: str
    """Name of the recipe."""
    title: str
    introduction: str
    groups: Sequence[DigitsRuns]
    """Runs; the lesson's own network comes first."""
    references: Sequence[ReferenceCurve] = ()
    """The authors' curves."""
    positions: Sequence[float] = ()
    """The authors' accuracies by target position, as fractions."""
    parts: Sequence[ReportPart] = ()
    """Parts of the page after the curves and the positions."""
    numbers: Mapping[str, Any] = {}
    """Further entries of report.json."""


def run_experiments(
    experiments: Sequence[DigitsExperiment], request: RecipeRequest
) -> Generator[str, None, list[DigitsRuns]]:
    """Train and evaluate each experiment with every seed, in parallel.

    Ctrl-C ends a single experiment early: its group holds the finished runs or, for a single run, its beginning.

    Args:
        experiments: The experiments.
        request: The recipe's request.

    Returns:
        A group of runs per experiment.

    Yields:
        A line per run.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed, and there are several experiments or no finished run.
        RunError: The output folder cannot be created.
    """
    make_folder(request.out)
    results = run_jobs(run_experiment, name_experiments(repeat_with_seeds(experiments, request)), request)
    groups = list[DigitsRuns]()
    for experiment in experiments:
        experiment_results = list[DigitsResult]()
        try:
            experiment_results.extend(next(results) for _ in range(request.seeds))
        except KeyboardInterrupt:
            if len(experiments) > 1 or not experiment_results:
                raise
        groups.append(DigitsRuns(experiment.name, experiment_results))
        yield from run_lines(groups[-1])
    return groups


def repeat_with_seeds(experiments: Sequence[DigitsExperiment], request: RecipeRequest) -> list[DigitsExperiment]:
    """Return each experiment with every seed.

    Args:
        experiments: The experiments; their seeds are replaced.
        request: The recipe's request, with the number of seeds; `samples` replaces the number of samples unless it is
            0.
    """
    return [
        experiment._replace(
            seed=seed, plan=experiment.plan._replace(samples=request.samples or experiment.plan.samples)
        )
        for experiment in experiments
        for seed in range(1, request.seeds + 1)
    ]


def name_experiments(experiments: Sequence[DigitsExperiment]) -> list[tuple[str, DigitsExperiment]]:
    """Return each experiment with the name shown with its progress.

    Args:
        experiments: The experiments.
    """
    return [(f"{experiment.name}, seed {experiment.seed}", experiment) for experiment in experiments]


def run_lines(group: DigitsRuns) -> Iterator[str]:
    """Yield one line per run: scores as fractions, alignment error in percent, parameters, samples and seconds.

    Args:
        group: Runs of one network.
    """
    for result in group.results:
        final, agreement = result.final, result.final.agreement
        alignment = f", alignment error {100 * agreement.error:.2f} %" if agreement else ""
        interrupted = "; interrupted" if result.interrupted else ""
        yield (
            f"{group.name}, seed {result.seed}: symbol accuracy {final.symbol_accuracy:.4f}, "
            f"exact match {final.exact_match:.4f}{alignment}; {result.parameters:,} parameters, "
            f"{result.curve[-1].samples:,} samples in {result.seconds:,.0f} s{interrupted}"
        )


def write_lesson_report(request: RecipeRequest, lesson: LessonReport) -> str:
    """Write report.html and report.json to the output folder.

    Args:
        request: The recipe's request.
        lesson: Content of the report.

    Returns:
        The line that names the report.

    Raises:
        RunError: A file cannot be written.
    """
    write_report(request.out / "report.html", _report_page(lesson, request))
    write_json(request.out / "report.json", report_json(lesson))
    return f"report: {request.out / 'report.html'}"


def _report_page(lesson: LessonReport, request: RecipeRequest) -> Report:
    """Return the page."""
    first = lesson.groups[0].median
    selection = f"median of {request.seeds} seeds" if request.seeds > 1 else "one seed"
    summary = [
        ("symbol accuracy", f"{100 * first.accuracy:.2f} % ({lesson.groups[0].name}; {selection})"),
        ("exact match", f"{100 * first.final.exact_match:.2f} % (the same run)"),
        ("parameters", f"{first.parameters:,}"),
        ("samples", f"{first.curve[-1].samples:,}"),
        ("training", f"{first.seconds:,.0f} s (one thread)"),
    ]
    return Report(title=lesson.title, introduction=lesson.introduction, summary=summary, parts=report_parts(lesson))


def report_parts(lesson: LessonReport) -> list[ReportPart]:
    """Return the figures and tables of a lesson.

    Args:
        lesson: Content of the report.
    """
    max_samples = max(result.curve[-1].samples for group in lesson.groups for result in group.results)
    reference_note = " Dashed: the authors' runs, from their stored plots." if lesson.references else ""
    return [
        ReportFigure(
            "Validation during training",
            "Symbol accuracy on the validation samples. A thick line is the run with the median final accuracy, a "
            f"thin line another seed.{reference_note}",
            to_svg(curve_figure(lesson.groups, lesson.references, max_samples)),
        ),
        _run_table(lesson.groups),
        ReportFigure(
            "Accuracy by position",
            "Symbol accuracy at each target position; the band is the range of the seeds.",
            to_svg(position_figure(lesson.groups, lesson.positions, "the authors' plot")),
        ),
        *_attention_figures(lesson.groups),
        *lesson.parts,
    ]


def _attention_figures(groups: Sequence[DigitsRuns]) -> Iterator[ReportPart]:
    """Yield the mean attention weights of the median run of each group."""
    for group in groups:
        mean = group.median.final.attention_mean
        if mean is not None:
            yield ReportFigure(
                "Mean attention weights",
                f"{group.name}, seed {group.median.seed}: mean weights over the validation samples, a line for "
                "each target position; below, the same weights as an image.",
                to_svg(mean_weights_figure(np.array(mean))),
            )


def _run_table(groups: Sequence[DigitsRuns]) -> ReportTable:
    """Return a table of all runs; with columns for attention if any run has it."""
    has_attention = any(result.final.agreement for group in groups for result in group.results)
    attention = ("alignment error", "weight on the word") if has_attention else ()
    heads = ("run", "symbol accuracy", "exact match", *attention, "parameters", "seconds")
    rows = [_run_row(group, result, has_attention) for group in groups for result in group.results]
    return ReportTable("Validation during training", _ATTENTION_CAPTION if has_attention else "", heads, rows)


_ATTENTION_CAPTION = (
    "Alignment error: fraction of digits whose greatest weight lies outside their own word and the space after it. "
    "Weight on the word: mean weight inside. Both use the generator's record of the word positions."
)


def _run_row(group: DigitsRuns, result: DigitsResult, has_attention: bool) -> list[str]:
    """Return the table row of a run."""
    final, agreement = result.final, result.final.agreement
    attention = [f"{100 * agreement.error:.2f} %", f"{agreement.mass:.3f}"] if agreement else ["–", "–"]
    return [
        f"{group.name}, seed {result.seed}",
        f"{100 * final.symbol_accuracy:.2f} %",
        f"{100 * final.exact_match:.2f} %",
        *(attention if has_attention else []),
        f"{result.parameters:,}",
        f"{result.seconds:,.0f}",
    ]


def report_json(lesson: LessonReport) -> dict[str, Any]:
    """Return the content of report.json: the median run of the first group, the authors' results, all runs, and further
    numbers. Rates are fractions.

    Args:
        lesson: Content of the report.
    """
    return {
        "name": lesson.name,
        **_run_json(lesson.groups[0].median),
        "reference": {curve.name: curve.points for curve in lesson.references},
        "reference_per_position": list(lesson.positions),
        "runs": [{"run": group.name, **_run_json(result)} for group in lesson.groups for result in group.results],
        **lesson.numbers,
    }


def _run_json(result: DigitsResult) -> dict[str, Any]:
    """Return the numbers of one run."""
    curve, final = result.curve, result.final
    return {
        "seed": result.seed,
        "parameters": result.parameters,
        "samples": curve[-1].samples,
        "seconds": result.seconds,
        "validation_samples": [point.samples for point in curve],
        "training_cost": [point.loss for point in curve],
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
