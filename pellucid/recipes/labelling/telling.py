"""What came out: a line for each run, report.json and report.html."""

import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from pellucid.files import write_json, write_text
from pellucid.recipes.labelling.conducting import Labelling, Run, runs_of
from pellucid.recipes.labelling.judging import Worth
from pellucid.recipes.recipe import Request
from pellucid.tasks.registry import task_of
from pellucid.toml import to_toml
from pellucid.viewer.report import Report, write_report
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable

SETS = ("test", "dev")
LABELS = 16
"""A confusion of more labels is left out of the page."""


def run_labelling(labelling: Labelling, request: Request) -> Iterator[str]:
    """Train and judge what is asked for; a line as each is done, then the mean over seeds, and where the report is."""
    runs = list[Run]()
    for run in runs_of(labelling, request):
        yield row_of(labelling, run)
        runs.append(run)
    yield from _means(runs)
    yield write_reports(labelling, request, runs)


def row_of(labelling: Labelling, run: Run) -> str:
    """One line of a run: its scores on both sets, and what is published."""
    dev, test = (_scores(worth) for worth in run.worths)
    beside = "; ".join(
        f"{name}: {', '.join(f'{system} {value:.2f}' for system, value in systems.items())}"
        for name, systems in labelling.published.items()
    )
    told = f"{run.experiment}, {run.who}: test {test}{f' [published: {beside}]' if beside else ''}; dev {dev}"
    stopped = run.stopped
    trained = f", {stopped['samples']:,} samples in {stopped['seconds']:,.0f} s" if stopped else ""
    return f"{told}; {run.parameters:,} parameters{trained}"


def write_reports(labelling: Labelling, request: Request, runs: Sequence[Run]) -> str:
    """Write report.json, report.html, and the recipe's own pictures as files too; the line that says where."""
    reference = labelling.reference
    names = list(dict.fromkeys(run.experiment for run in runs))
    published = {name: dict(systems) for name, systems in labelling.published.items()}
    numbers = {
        **{"name": reference.name, "title": reference.title, "published": published},
        **{"seeds": request.seeds, "samples": request.samples},
        "experiments": [
            {"name": name, "runs": [_told(run) for run in runs if run.experiment == name]} for name in names
        ],
    }
    write_json(request.out / "report.json", numbers)
    own = list(labelling.parts(runs))
    write_report(request.out / "report.html", _page(labelling, runs, own))
    for part in own:
        if isinstance(part, ReportFigure):
            write_text(request.out / f"{re.sub(r'[^a-z0-9]+', '-', part.title.lower())}.svg", part.svg)
    return f"report: {request.out / 'report.html'}"


def confusion_table(run: Run) -> ReportTable | None:
    """How often each label was answered with each, and the share right; None where there are too many labels."""
    labelled = run.worths.test.labelled
    if not 1 < len(labelled.labels) <= LABELS:
        return None
    rows = [
        [label, *(f"{count:,}" for count in counts), f"{100 * counts[at] / max(sum(counts), 1):.1f} %"]
        for at, (label, counts) in enumerate(zip(labelled.labels, labelled.confusion, strict=True))
    ]
    caption = f"{run.experiment}, {run.who}, test set: what was wanted down, what was answered across."
    return ReportTable("What is taken for what", caption, ["wanted", *labelled.labels, "right"], rows)


def _scores(worth: Worth) -> str:
    """All scores on one set."""
    return ", ".join(f"{name} {score.text}" for name, score in worth.scores.items())


def _means(runs: Sequence[Run]) -> Iterator[str]:
    """For each experiment of several seeds, the mean of its test scores, and from where to where they go."""
    for name in dict.fromkeys(run.experiment for run in runs):
        own = [run.worths.test.scores for run in runs if run.experiment == name and run.log]
        if len(own) > 1:
            parts = []
            for score in own[0]:
                values = [scores[score].value for scores in own]
                parts.append(f"{score} {statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})")
            yield f"{name}, mean of {len(own)} seeds: test {', '.join(parts)}"


def _told(run: Run) -> dict[str, Any]:
    """All numbers of one run."""
    told: dict[str, Any] = {"who": run.who, "test": run.worths.test.told(), "dev": run.worths.dev.told()}
    told["parameters"] = run.parameters
    if run.stopped:
        counted = {name: run.stopped[key] for name, key in (("seconds",) * 2, ("updates", "update"), ("samples",) * 2)}
        told |= {"seed": run.config.seed, **counted, "config": msgspec.to_builtins(run.config)}
    return told


def _page(labelling: Labelling, runs: Sequence[Run], own: Sequence[ReportPart]) -> Report:
    """The table of all runs; curves, mistakes and settings of the first one; what is the recipe's own."""
    first, reference = runs[0], labelling.reference
    heads = ["experiment", "of", "set", *first.worths.test.scores, "parameters", "seconds"]
    rows = [row for run in runs for row in _cells(run)]
    published = [
        [name, system, f"{value:.2f}"] for name, own in labelling.published.items() for system, value in own.items()
    ]
    parts = [ReportTable("All runs", "In brackets: 95 % intervals.", heads, rows)]
    if published:
        parts.append(ReportTable("Published", "On the same test set.", ["score", "system", "value"], published))
    tables = filter(None, map(confusion_table, runs))
    return Report(
        title=reference.title,
        introduction=f"{reference.introduction}\n\nCurves, mistakes, settings: {first.experiment}, {first.who}.",
        summary=[(f"test {name}", score.text) for name, score in first.worths.test.scores.items()],
        log=first.log,
        followed=labelling.followed or task_of(first.config).metrics.followed,
        mistakes=first.mistakes,
        config_toml=to_toml(first.config),
        parts=[*parts, *own, *tables],
    )


def _cells(run: Run) -> Iterator[list[str]]:
    """A row of the table for each set."""
    seconds = f"{run.stopped['seconds']:,.0f}" if run.stopped else "–"
    for which, worth in zip(SETS, (run.worths.test, run.worths.dev), strict=True):
        scores = [score.text for score in worth.scores.values()]
        yield [run.experiment, run.who, which, *scores, f"{run.parameters:,}", seconds]
