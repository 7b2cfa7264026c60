"""A lesson told: its report as a page and as JSON."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.files import make_folder, write_json
from pellucid.look.figures import mean_weights_figure, svg
from pellucid.recipes.digits.figures import Group, curve_figure, position_figure
from pellucid.recipes.digits.reference import Curve
from pellucid.recipes.digits.study import Outcome, Study, conduct
from pellucid.recipes.following import followed
from pellucid.recipes.recipe import Request
from pellucid.viewer.report import Report, write_report
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable


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
