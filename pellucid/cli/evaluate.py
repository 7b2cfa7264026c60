"""pellucid evaluate RUN [RUN ...] FILE [--json] [--html PAGE]"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import Positional

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.messages import say
from pellucid.cli.search_flags import SearchFlags, check_nbest, sampling_config
from pellucid.cli.sources import check_order, is_run
from pellucid.config.settings import Device, Format
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import InputError, quote
from pellucid.files import check_writable

if TYPE_CHECKING:
    from rich.table import Table

    from pellucid.cli.assessment import AssessmentResults
    from pellucid.evaluation.significance import Comparison

NUM_PRINTED_ERRORS = 10
NUM_PAGE_ERRORS = 100
"""How many errors the page draws the attention of, where --worst does not say."""


@dataclass(frozen=True)
class EvaluateArguments(SearchFlags):
    """Score trained models on pairs, with 95 % confidence intervals; with several runs, say whether they differ.

    Where FILE and the runs have {} in their paths, it stands for a name (a language, say): every file found is scored
    with the runs of its name, and the table has a row for each name and their mean without weights. The folder of an
    ensemble is one run. With --nbest or --sample it is also told how often a right output is among the first 1, 2, …
    """

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a trained run."""
    file: Annotated[Positional[Path | None], tyro.conf.arg(metavar="[RUN ...]")] = None
    """Folders of further runs to compare with the first, if any; FILE must follow."""
    more: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = ()
    """Pairs, in a file like the training file, or - for standard input; it comes last."""
    target: Path | None = None
    """The targets of FILE, line by line, where they are in a file of their own."""
    multi_reference: bool = False
    """Take lines with the same source as one example that may be answered by any of their targets."""
    group: str = ""
    """Column of FILE (a name, or a number from 1) with the group of each pair, say its language."""
    texts: bool = False
    """Outputs are texts of several words: also word error rate by edits, character error rate, BLEU and chrF."""
    worst: int | None = None
    """How many of the worst examples to list; 10, on the page 100."""
    json: bool = False
    """Print one JSON object instead of tables."""
    html: Path | None = None
    """Also write a page that holds all of it, with the attention of each error."""
    input_format: Format = "auto"
    """Format of FILE; auto goes by its name, then by the training file's."""
    device: Device = "cpu"
    """What decodes: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""


class TableConsole(Console):
    """A console whose reader may go away, which ends the program as it ends every other."""

    def on_broken_pipe(self) -> None:
        """Pass it on; rich would leave with exit code 1."""
        raise BrokenPipeError


def main(arguments: list[str]) -> int:
    """Decode, score, and print."""
    given = parse_arguments(EvaluateArguments, "evaluate", arguments)
    _check_arguments(given)
    drawing = sampling_config(given)
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.cli.assessment import AssessmentOptions, assess_runs
    from pellucid.evaluation.assessment import compare_runs
    from pellucid.reporting.tables import assessment_tables, comparison_tables

    paths = _paths(given)
    how = AssessmentOptions(
        given.target, given.multi_reference, given.group, given.texts, given.input_format, given, drawing, given.device
    )
    found = assess_runs(paths[:-1], paths[-1], how)
    comparisons = [compare_runs(found.runs[0], other) for other in found.runs[1:]]
    for line in found.bad:
        say(f"skipped {line}")
    listed = NUM_PRINTED_ERRORS if given.worst is None else given.worst
    if given.json:
        sys.stdout.write(encode_json(_json_results(found, comparisons, listed)).decode() + "\n")
    elif comparisons:
        _print_run_names(found)
        _print_tables(comparison_tables(found.runs, comparisons, found.seconds, listed))
    else:
        _print_tables(assessment_tables(found.runs[0], found.counts[0], found.seconds[0], listed))
    if given.html is not None:
        _write_page(given, found, comparisons)
    return 0


def _paths(given: EvaluateArguments) -> tuple[Path, ...]:
    """The runs, and the file in the end; `InputError` where one of them is missing or stands in another's place."""
    if given.file is None:
        raise InputError(
            f"expected the folder of a run and a file of pairs, got {quote(given.run)} alone: pellucid evaluate RUN "
            "[RUN ...] FILE"
        )
    paths = (given.run, given.file, *given.more)
    check_order(paths, "evaluate")
    if given.json and paths[-2].is_file() and not paths[-1].exists():
        raise InputError(f"--json takes no file: it prints, so that {paths[-1]} is written by --json > {paths[-1]}")
    if is_run(paths[-1]):
        raise InputError(f"{paths[-1]} is the folder of a run: the file of pairs comes last (pellucid evaluate --help)")
    return paths


def _json_results(found: "AssessmentResults", comparisons: "Sequence[Comparison]", listed: int) -> dict[str, Any]:
    """Everything as plain values: the scores of one run, or those of each run and their comparisons."""
    from pellucid.reporting.tables import only_right

    reports = [
        {**each.to_dict(), **counts, "seconds": seconds, "worst": [each.error(at) for at in each.worst(listed)]}
        for each, counts, seconds in zip(found.runs, found.counts, found.seconds, strict=True)
    ]
    if not comparisons:
        return reports[0]
    first, *others = found.runs
    pairs = []
    for other, name, comparison in zip(others, found.names[1:], comparisons, strict=True):
        told: dict[str, Any] = {"a": found.names[0], "b": name, **comparison.to_dict()}
        for key, one, against in (("a_right_b_wrong", first, other), ("b_right_a_wrong", other, first)):
            rows = only_right(one, against)[:listed]
            told[key] = [{**against.error(at), "right_output": one.traces[at].output} for at in rows]
        pairs.append(told)
    named = [{"name": name, **report} for name, report in zip(found.names, reports, strict=True)]
    return {"runs": named, "comparisons": pairs}


def _print_tables(tables: "Iterable[Table]") -> None:
    """Tables for people."""
    console = TableConsole(highlight=False)
    for table in tables:
        console.print(table)


def _print_run_names(found: "AssessmentResults") -> None:
    """What short names stand for."""
    for run, name in zip(found.runs, found.names, strict=True):
        if run.name != name:
            say(f"{run.name} is {name}")


def _write_page(given: EvaluateArguments, found: "AssessmentResults", comparisons: "Sequence[Comparison]") -> None:
    """The page, and where it is."""
    from pellucid.viewer.reports import comparison_report, evaluation_report, write_report

    assert given.html is not None
    listed = NUM_PAGE_ERRORS if given.worst is None else given.worst
    *_, file = _paths(given)
    if comparisons:
        report = comparison_report(found.runs, comparisons, str(file), listed)
        told = [f"{run.name} is {name}" for run, name in zip(found.runs, found.names, strict=True) if run.name != name]
        if told:
            report = replace(report, introduction=f"{report.introduction} {', '.join(told)}.")
    else:
        report = evaluation_report(found.runs[0], str(file), found.counts[0], listed)
    write_report(given.html, report)
    say(f"wrote {given.html}")


def _check_arguments(given: EvaluateArguments) -> None:
    """`InputError` for counts that cannot be."""
    if given.worst is not None and given.worst < 0:
        raise InputError(f"--worst: expected 0 or more, got {given.worst}")
    check_nbest(given)
    if given.html is not None and given.html.suffix != ".html":
        raise InputError(f"--html takes a file that ends with .html, got {quote(given.html)}")
    if given.html is not None:
        check_writable(given.html)
