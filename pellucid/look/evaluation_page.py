"""The page of one evaluated run: its scores, where it is right, what it confuses, how sure it was, and every error."""

from collections.abc import Iterator, Mapping, Sequence

from pellucid.config import Task
from pellucid.evaluation.assessment import Assessment, GroupScores, rates_of
from pellucid.evaluation.outcomes import Mean
from pellucid.look.calibration_charts import calibration_html
from pellucid.look.confusion_table import confusions_html
from pellucid.look.error_list import SCRIPT, error_rows, list_html
from pellucid.look.evaluation_tables import score_rows
from pellucid.look.page import text
from pellucid.look.report import Fragment, Report, accuracies_html
from pellucid.look.terminal import caption_of


def evaluation_report(assessment: Assessment, file: str, counts: Mapping[str, int], listed: int) -> Report:
    """The report of one run on one file (or several, by name), with at most `listed` errors."""
    evaluation = assessment.evaluation
    parts = [
        ("By group", "".join(groups_html([assessment]))),
        ("Where it is right", "".join(accuracies_html(evaluation.positions, evaluation.lengths))),
        ("What it confuses", "".join(confusions_html(assessment.confusions))),
        ("How sure it was", "".join(calibration_html([assessment]))),
        ("Errors", "".join(_errors(assessment, listed))),
    ]
    return Report(
        title=f"{assessment.name} on {file.rsplit('/', 1)[-1]}",
        introduction=f"{evaluation.examples:,} examples of {file}, decoded and scored.",
        summary=_summary(assessment, counts),
        parts=[Fragment(title, html) for title, html in parts if html],
        script=SCRIPT,
    )


def groups_html(runs: Sequence[Assessment]) -> Iterator[str]:
    """A row for each group, a mean without weights below; nothing where there is one group."""
    if runs[0].mean is None:
        return
    several, task = len(runs) > 1, runs[0].task
    first, *others = (f"{rate.name}, %" for rate in rates_of(runs[0].mean, task))
    heads = ["group", "examples"]
    for run in runs:
        own = [first, *([] if several else ["95 % interval"]), *others]
        heads += [f"{run.name}: {head}" if several else head for head in own]
    yield '<div class="wide"><table class="numbers"><thead><tr>'
    yield "".join(f'<th scope="col">{text(head)}</th>' for head in heads) + "</tr></thead><tbody>\n"
    for rows in zip(*(run.groups for run in runs), strict=True):
        yield f'<tr><th scope="row">{text(rows[0].group)}</th><td>{rows[0].examples:,}</td>'
        for row in rows:
            yield from _cells(row, task, several)
        yield "</tr>\n"
    yield f'<tr class="total"><th scope="row">mean</th><td>{len(runs[0].groups)} groups</td>'
    for run in runs:
        if run.mean:
            yield from _cells(run.mean, task, several)
    yield "</tr>\n</tbody></table></div>\n"
    told = "Word error rate: the share of wrong outputs. " if task == "transduce" else ""
    yield f'<p class="note">{told}The mean weighs all groups alike.</p>\n'


def _cells(row: GroupScores | Mean, task: Task, several: bool) -> Iterator[str]:
    """The rates of a run in one group, or their means; the interval where there is room."""
    first, *others = rates_of(row, task)
    yield f"<td>{first.value:.2f}</td>"
    if not several:
        yield f"<td>{first.interval.low:.2f} to {first.interval.high:.2f}</td>"
    yield from (f"<td>{rate.value:.2f}</td>" for rate in others)


def _summary(assessment: Assessment, counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """The numbers that matter most: the mean over groups before all others."""
    rows = [(name, f"{value} ({rest})" if rest else value) for name, value, rest in score_rows(assessment)]
    if assessment.mean:
        first = rates_of(assessment.mean, assessment.task)[0]
        low, high = first.interval
        rows.insert(0, (f"mean {first.name}", f"{first.value:.2f} % (95 %: {low:.2f} to {high:.2f})"))
    told = [(name.replace("_", " "), f"{count:,}") for name, count in counts.items() if count and name != "lines"]
    return [*rows, ("examples", f"{assessment.evaluation.examples:,}"), *told]


def _errors(assessment: Assessment, listed: int) -> Iterator[str]:
    """The worst outputs; nothing where all are right."""
    wrong = assessment.worst(len(assessment.scored))
    if not wrong[:listed]:
        return
    tags = assessment.task == "tag"
    caption = "its words with their tags." if tags else f"its attention. {caption_of(assessment.traces[wrong[0]])}"
    left = f" The {listed:,} worst of {len(wrong):,} are here (--worst)." if len(wrong) > listed else ""
    yield (
        f'<p class="note">Unfold an error for {caption} What differs from the nearest reference is '
        f"underlined; p is the probability of the output.{left}</p>\n"
    )
    rows = error_rows(assessment, wrong[:listed])
    yield list_html(("source", "output", "expected"), ("edits", "p"), rows)
