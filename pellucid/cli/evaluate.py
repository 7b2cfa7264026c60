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
from pellucid.cli.messages import print_message
from pellucid.cli.search_flags import SearchFlags, check_nbest, sampling_config
from pellucid.cli.sources import check_path_order, is_run
from pellucid.config.settings import Device, Format
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import InputError, quote
from pellucid.files import check_writable
from pellucid.run_folder.run_files import ENSEMBLE

if TYPE_CHECKING:
    from rich.table import Table

    from pellucid.cli.assessment import AssessmentResults
    from pellucid.evaluation.assessment import ComparedAssessment, GroupComparison, SeedRates

NUM_PRINTED_ERRORS = 10
"""Number of listed errors in tables and JSON if --worst is not given."""
MAX_UNEXPLAINED_CALIBRATION = 0.1
"""Difference of accuracy and mean probability from which label smoothing is named as its cause."""
NUM_PAGE_ERRORS = 100
"""Number of listed errors on the page if --worst is not given."""


@dataclass(frozen=True)
class EvaluateArguments(SearchFlags):
    """Evaluate trained models on pairs, with 95 % confidence intervals and significance tests between runs.

    {} in the paths of FILE and the runs is a placeholder for a name, such as a language: every matching file is scored
    with the runs of the same name, and the table has a row for each name and an unweighted mean. The folder of an
    ensemble counts as one run. For runs whose settings are equal except for the seed, the mean and the standard
    deviation are reported, too. --nbest and --sample also report accuracy at 1, 2, ... outputs.
    """

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a trained run."""
    file: Annotated[Positional[Path | None], tyro.conf.arg(metavar="[RUN ...]")] = None
    """Folders of further runs, each compared with the first."""
    more: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FILE")] = ()
    """File of pairs with the columns of the training file, or - for standard input. The last argument."""
    target: Path | None = None
    """File of targets, one per line, if FILE holds sources only."""
    multi_reference: bool = False
    """Merge pairs with the same source and features into one example with several references, any of which is correct.
    Not for task = "tag"."""
    group: str = ""
    """Column of FILE, by name or number from 1, with the group of each pair, such as its language. The report then has
    the scores of each group and their unweighted mean. Excludes --target."""
    texts: bool = False
    """Also compute metrics of running text: word error rate (edit distance), character error rate, BLEU, chrF. For
    task = "transduce" only."""
    worst: int | None = None
    """Number of examples with the highest error rates to list, 0 or more; for compared runs, of examples that only one
    of them has right. Default: 10, on the page of --html 100."""
    json: bool = False
    """Print one JSON object instead of tables."""
    html: Path | None = None
    """Also write the report to this .html file, with the attention weights of each listed error."""
    input_format: Format = "auto"
    """Format of FILE. auto: by the file name; for an unknown ending, the format of the training file."""
    device: Device = "cpu"
    """Device for decoding: cpu, cuda (one GPU), or auto (a GPU if there is one)."""


class TableConsole(Console):
    """Console that raises `BrokenPipeError` on a broken pipe, as all other output does: the exit code is then 141."""

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`; rich would exit with code 1."""
        raise BrokenPipeError


def main(arguments: list[str]) -> int:
    """Decode, score, print tables or JSON, and write the page of --html.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument, a run folder or a file is invalid, or runs cannot be compared.
    """
    args = parse_arguments(EvaluateArguments, "evaluate", arguments)
    _check_arguments(args)
    sampling = sampling_config(args)
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.cli.assessment import AssessmentOptions, assess_runs
    from pellucid.evaluation.assessment import ComparedAssessment, compare_groups, compare_runs, rates_over_seeds
    from pellucid.reporting.tables import assessment_tables, comparison_tables, group_comparison_table, seed_table

    paths = _paths(args)
    options = AssessmentOptions(
        args.target, args.multi_reference, args.group, args.texts, args.input_format, args, sampling, args.device
    )
    results = assess_runs(paths[:-1], paths[-1], options)
    first, groups = results.runs[0], results.seed_groups()
    comparisons = [ComparedAssessment(run, compare_runs(first, run)) for run in results.runs[1:]]
    # Seeds of one group are not compared with each other: tables and page have the first run of each other group.
    shown = [each for each in comparisons if any(each.run is group[0] for group in groups[1:])]
    group_comparisons = [
        compare_groups(groups[0], group) for group in groups[1:] if len(groups[0]) > 1 or len(group) > 1
    ]
    seed_rates = [rates_over_seeds(runs) for runs in groups if len(runs) > 1]
    for line in results.bad_lines:
        print_message(f"skipped {line}")
    max_errors = NUM_PRINTED_ERRORS if args.worst is None else args.worst
    if args.html is not None:  # before the tables, whose reader may end early
        _write_page(args, paths[-1], results, shown, seed_rates, group_comparisons)
    if args.json:
        values = _json_results(results, comparisons, seed_rates, group_comparisons, max_errors)
        sys.stdout.write(encode_json(values).decode() + "\n")
    elif len(results.runs) > 1:
        _print_run_names(results)
        _print_tables(map(seed_table, seed_rates))
        _print_tables(map(group_comparison_table, group_comparisons))
        _print_tables(comparison_tables(results.runs, shown, results.seconds, max_errors))
    else:
        _print_tables(assessment_tables(results.runs[0], results.counts[0], results.seconds[0], max_errors))
    _print_notes(results, paths[:-1])
    return 0


def _print_notes(results: "AssessmentResults", paths: Sequence[Path]) -> None:
    """Explain on standard error what is often misread: ensembles, and the probabilities of label smoothing."""
    for path in paths:
        if (path / ENSEMBLE).is_file():
            print_message(
                f"{path} is an ensemble, whose members decode together; for the mean over its seeds, give the folders "
                f"of the members, such as {path / 'seed-1'}"
            )
    too_low = [
        run
        for run, config in zip(results.runs, results.configs, strict=True)
        if config.training.label_smoothing
        and run.calibration.accuracy - run.calibration.confidence > MAX_UNEXPLAINED_CALIBRATION
    ]
    if too_low:
        advice = "the confidence is the estimated probability of being correct: use it in their place"
        if any(run.confidence_calibration is None for run in too_low):
            reason = next(run.confidence_obstacle for run in too_low if run.confidence_calibration is None)
            advice = f"their order is hardly affected, so thresholds for review are valid; no confidence: {reason}"
        print_message(
            f"{', '.join(run.name for run in too_low)}: probabilities are lower than the accuracy because of "
            f"training.label_smoothing; {advice}"
        )


def _paths(args: EvaluateArguments) -> tuple[Path, ...]:
    """Return the runs, and the file as the last path; `InputError` if one is missing or misplaced."""
    if args.file is None:
        raise InputError(
            f"expected the folder of a run and a file of pairs, got {quote(args.run)} alone: pellucid evaluate RUN "
            "[RUN ...] FILE"
        )
    paths = (args.run, args.file, *args.more)
    check_path_order(paths, "evaluate")
    _check_distinct(paths[:-1])
    if args.json and paths[-2].is_file() and not paths[-1].exists():
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
        earlier = first.setdefault(os.path.realpath(path), path)
        if earlier is not path:
            reason = "is given twice" if str(earlier) == str(path) else f"and {path} are one folder"
            raise InputError(f"{earlier} {reason}: each run is compared with the first one; name another run")


def _json_results(
    results: "AssessmentResults",
    comparisons: "Sequence[ComparedAssessment]",
    seed_rates: "Sequence[SeedRates]",
    group_comparisons: "Sequence[GroupComparison]",
    max_errors: int,
) -> dict[str, Any]:
    """Return all results as plain values: the scores of one run, or those of all runs and their comparisons.

    "seeds" has the mean and standard deviation of each main rate, for each group of runs that differ in their seeds
    only; "mean_differences" has the differences between the group of the first run and others.
    """
    from pellucid.reporting.tables import exclusively_right

    reports = [
        {
            **assessment.to_dict(),
            **counts,
            "seconds": seconds,
            "worst": [assessment.error_record(index) for index in assessment.worst_examples(max_errors)],
        }
        for assessment, counts, seconds in zip(results.runs, results.counts, results.seconds, strict=True)
    ]
    if not comparisons:
        return reports[0]
    first, pairs = results.runs[0], []
    for (other, comparison), name in zip(comparisons, results.names[1:], strict=True):
        record: dict[str, Any] = {"a": results.names[0], "b": name, **comparison.to_dict()}
        for key, one, opponent in (("a_right_b_wrong", first, other), ("b_right_a_wrong", other, first)):
            rows = exclusively_right(one, opponent)[:max_errors]
            record[key] = [{**opponent.error_record(index), "right_output": one.traces[index].output} for index in rows]
        pairs.append(record)
    named_reports = [{"name": name, **report} for name, report in zip(results.names, reports, strict=True)]
    full_names = dict(zip((run.name for run in results.runs), results.names, strict=True))
    seeds = [
        {"runs": [full_names[name] for name in group.runs], **{rate.key: rate.to_dict() for rate in group.rates}}
        for group in seed_rates
    ]
    means = [
        {**group.to_dict(), "a": [full_names[name] for name in group.a], "b": [full_names[name] for name in group.b]}
        for group in group_comparisons
    ]
    return {"runs": named_reports, "comparisons": pairs, "seeds": seeds, "mean_differences": means}


def _print_tables(tables: "Iterable[Table]") -> None:
    """Print tables."""
    console = TableConsole(highlight=False)
    for table in tables:
        console.print(table)


def _print_run_names(results: "AssessmentResults") -> None:
    """Print the full names of abbreviated runs."""
    for run, name in zip(results.runs, results.names, strict=True):
        if run.name != name:
            print_message(f"{run.name} is {name}")


def _write_page(
    args: EvaluateArguments,
    file: Path,
    results: "AssessmentResults",
    comparisons: "Sequence[ComparedAssessment]",
    seed_rates: "Sequence[SeedRates]",
    group_comparisons: "Sequence[GroupComparison]",
) -> None:
    """Write the HTML report and print its path."""
    from pellucid.viewer.reports import comparison_report, evaluation_report, write_report

    assert args.html is not None
    max_errors = NUM_PAGE_ERRORS if args.worst is None else args.worst
    if len(results.runs) > 1:
        report = comparison_report(results.runs, comparisons, seed_rates, group_comparisons, str(file), max_errors)
        full_names = [
            f"{run.name} is {name}" for run, name in zip(results.runs, results.names, strict=True) if run.name != name
        ]
        if full_names:
            report = replace(report, introduction=f"{report.introduction} {', '.join(full_names)}.")
    else:
        report = evaluation_report(results.runs[0], str(file), results.counts[0], max_errors)
    write_report(args.html, report)
    print_message(f"wrote {args.html}")


def _check_arguments(args: EvaluateArguments) -> None:
    """Raise `InputError` for invalid counts and paths."""
    if args.worst is not None and args.worst < 0:
        raise InputError(f"--worst: expected 0 or more, got {args.worst}")
    check_nbest(args)
    if args.html is not None and args.html.suffix != ".html":
        raise InputError(f"--html takes a file that ends with .html, got {quote(args.html)}")
    if args.html is not None:
        check_writable(args.html)
