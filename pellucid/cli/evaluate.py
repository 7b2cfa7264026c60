"""Subcommand evaluate: pellucid evaluate RUN [RUN ...] FILE [--json] [--html PAGE]"""

import os
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
    from pellucid.evaluation.significance import RunComparison

NUM_PRINTED_ERRORS = 10
NUM_PAGE_ERRORS = 100
"""Number of errors on the page if --worst is not given."""


@dataclass(frozen=True)
class EvaluateArguments(SearchFlags):
    """Evaluate trained models on pairs, with 95 % confidence intervals and significance tests between runs.

    {} in the paths of FILE and the runs is a placeholder for a name, such as a language: every matching file is scored
    with the runs of the same name, and the table has a row for each name and an unweighted mean. The folder of an
    ensemble counts as one run. --nbest and --sample also report accuracy at 1, 2, ... outputs.
    """

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a trained run."""
    file: Annotated[Positional[Path | None], tyro.conf.arg(metavar="[RUN ...]")] = None
    """Folders of further runs, each compared with the first."""
    more: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = ()
    """File of pairs in the format of the training file, or - for standard input. The last argument."""
    target: Path | None = None
    """File of targets, one per line, if FILE holds sources only."""
    multi_reference: bool = False
    """Merge pairs with the same source into one example with several references."""
    group: str = ""
    """Column of FILE, by name or number from 1, with the group of each pair, such as its language."""
    texts: bool = False
    """Also compute metrics of running text: word error rate (edit distance), character error rate, BLEU, chrF."""
    worst: int | None = None
    """Number of worst examples to list. Default: 10, on the page 100."""
    json: bool = False
    """Print one JSON object instead of tables."""
    html: Path | None = None
    """Also write the report as an HTML page, with the attention weights of each error."""
    input_format: Format = "auto"
    """Format of FILE; auto: from the file name, else the format of the training file."""
    device: Device = "cpu"
    """Device for decoding: cpu, cuda (one GPU), or auto (a GPU if there is one)."""


class TableConsole(Console):
    """Console that ends the program on a broken pipe, as all other output does."""

    def on_broken_pipe(self) -> None:
        """Raise the error; rich would exit with code 1."""
        raise BrokenPipeError


def main(arguments: list[str]) -> int:
    """Decode, score and print.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code.
    """
    given = parse_arguments(EvaluateArguments, "evaluate", arguments)
    _check_arguments(given)
    drawing = sampling_config(given)
    # Slow imports follow the checks, so that a wrong argument is reported at once.
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
    """Return the runs, and the file as the last path; `InputError` if one is missing or misplaced."""
    if given.file is None:
        raise InputError(
            f"expected the folder of a run and a file of pairs, got {quote(given.run)} alone: pellucid evaluate RUN "
            "[RUN ...] FILE"
        )
    paths = (given.run, given.file, *given.more)
    check_order(paths, "evaluate")
    _check_distinct(paths[:-1])
    if given.json and paths[-2].is_file() and not paths[-1].exists():
        raise InputError(f"--json prints to standard output and takes no file: use --json > {paths[-1]}")
    if is_run(paths[-1]):
        raise InputError(
            f"{paths[-1]} is a run folder: the file of pairs is the last argument (pellucid evaluate --help)"
        )
    return paths


def _check_distinct(runs: Sequence[Path]) -> None:
    """Raise `InputError` if a folder is given twice."""
    first: dict[str, Path] = {}
    for path in runs:
        before = first.setdefault(os.path.realpath(path), path)
        if before is not path:
            same = "is given twice" if str(before) == str(path) else f"and {path} are one folder"
            raise InputError(f"{before} {same}: each run is compared with the first one; name another run")


def _json_results(found: "AssessmentResults", comparisons: "Sequence[RunComparison]", listed: int) -> dict[str, Any]:
    """Return all results as plain values: the scores of one run, or those of all runs and their comparisons."""
    from pellucid.reporting.tables import exclusively_right

    reports = [
        {
            **each.to_dict(),
            **counts,
            "seconds": seconds,
            "worst": [each.error_record(at) for at in each.worst_examples(listed)],
        }
        for each, counts, seconds in zip(found.runs, found.counts, found.seconds, strict=True)
    ]
    if not comparisons:
        return reports[0]
    first, *others = found.runs
    pairs = []
    for other, name, comparison in zip(others, found.names[1:], comparisons, strict=True):
        told: dict[str, Any] = {"a": found.names[0], "b": name, **comparison.to_dict()}
        for key, one, against in (("a_right_b_wrong", first, other), ("b_right_a_wrong", other, first)):
            rows = exclusively_right(one, against)[:listed]
            told[key] = [{**against.error_record(at), "right_output": one.traces[at].output} for at in rows]
        pairs.append(told)
    named = [{"name": name, **report} for name, report in zip(found.names, reports, strict=True)]
    return {"runs": named, "comparisons": pairs}


def _print_tables(tables: "Iterable[Table]") -> None:
    """Print tables."""
    console = TableConsole(highlight=False)
    for table in tables:
        console.print(table)


def _print_run_names(found: "AssessmentResults") -> None:
    """Print the full names of abbreviated runs."""
    for run, name in zip(found.runs, found.names, strict=True):
        if run.name != name:
            say(f"{run.name} is {name}")


def _write_page(given: EvaluateArguments, found: "AssessmentResults", comparisons: "Sequence[RunComparison]") -> None:
    """Write the HTML report and print its path."""
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
    """Raise `InputError` for invalid counts and paths."""
    if given.worst is not None and given.worst < 0:
        raise InputError(f"--worst: expected 0 or more, got {given.worst}")
    check_nbest(given)
    if given.html is not None and given.html.suffix != ".html":
        raise InputError(f"--html takes a file that ends with .html, got {quote(given.html)}")
    if given.html is not None:
        check_writable(given.html)
