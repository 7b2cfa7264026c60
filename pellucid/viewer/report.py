"""Reports: what they are made from, and the page that shows them as one offline file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.evaluation.metrics import Accuracy, Followed
from pellucid.evaluation.scoring import ERROR_RATES
from pellucid.files import write_text
from pellucid.tasks.registry import task_named
from pellucid.version import __version__
from pellucid.viewer.pages import exported
from pellucid.viewer.report_charts import accuracy_charts, learning_charts
from pellucid.viewer.report_examples import ExampleOutput, drawn_examples, listed_errors
from pellucid.viewer.report_schema import (
    REPORT_FORMAT,
    ReportDocument,
    ReportExamples,
    ReportPart,
    ReportSettings,
    SummaryValue,
)


@dataclass(frozen=True, eq=False)
class Report:
    """Content of a report. Sections without content are omitted."""

    title: str
    introduction: str = ""
    """Paragraphs of plain text, with an empty line between."""
    summary: Sequence[tuple[str, str]] = ()
    """(label, value); what stands in parentheses at the end of a value is set smaller below it."""
    log: Sequence[Mapping[str, Any]] = ()
    """Records of the training log."""
    followed: Sequence[Followed] = ERROR_RATES.followed
    """Scores of the log that are drawn."""
    positions: Sequence[Accuracy] = ()
    """Accuracy at each target position."""
    lengths: Sequence[Accuracy] = ()
    """Accuracy for each source length or range of lengths."""
    examples: Sequence[ExampleOutput] = ()
    """Outputs whose attention is drawn."""
    mistakes: Sequence[ExampleOutput] = ()
    """Outputs for the list of errors, in its order."""
    config_toml: str = ""
    parts: Sequence[ReportPart] = ()
    """Further parts, in their order."""


def write_report(path: Path, report: Report) -> None:
    """Write a report as one stand-alone HTML file; `RunError` where the system refuses."""
    write_text(path, exported(report_document(report)))


def report_document(report: Report) -> ReportDocument:
    """Return a report as the JSON schema of the page has it."""
    settings = [ReportSettings("Settings", report.config_toml.strip())] if report.config_toml.strip() else []
    parts: list[ReportPart] = [
        *learning_charts(report.log, report.followed),
        *accuracy_charts(report.positions, report.lengths),
        *drawn_examples("Attention", report.examples),
        *listed_errors(report.mistakes),
        *report.parts,
        *settings,
    ]
    return ReportDocument(
        format=REPORT_FORMAT,
        version=__version__,
        title=report.title,
        introduction=report.introduction,
        summary=[_summary_value(label, value) for label, value in report.summary],
        parts=parts,
        tasks={name: task_named(name).view for name in _tasks(parts)},
    )


def _tasks(parts: Sequence[ReportPart]) -> list[str]:
    """Return the tasks of all outputs that are shown."""
    examples = (example for part in parts if isinstance(part, ReportExamples) for example in part.examples)
    return sorted({trace.task for example in examples for item in example.items for trace in item.traces})


def _summary_value(label: str, told: str) -> SummaryValue:
    """Return a value, and separately what stands in parentheses behind it."""
    value, parenthesis, note = told.partition(" (")
    if not parenthesis or not note.endswith(")"):
        return SummaryValue(label, told)
    return SummaryValue(label, value, note[:-1])
