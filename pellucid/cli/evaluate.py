"""Subcommand evaluate: pellucid evaluate RUN [RUN ...] FILE [--json] [--html PAGE]"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import Positional

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.cluster_flags import ClusterFlags, FolderFlag, absolute_paths, check_blocks_flag
from pellucid.cli.cluster_jobs import OnFlag
from pellucid.cli.csv_output import byte_order_mark
from pellucid.cli.input_flags import PairFileFlags, check_columns_of_pairs, file_data_config
from pellucid.cli.messages import print_message
from pellucid.cli.output_files import check_output_files
from pellucid.cli.search_flags import PathFlag, SearchFlags, check_nbest, sampling_config
from pellucid.cli.sources import check_path_order, is_run
from pellucid.config.settings import Delimiter, Device, Format, MetricName
from pellucid.data.delimiters import format_csv
from pellucid.data.examples import file_delimiter
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import InputError, RunError, count_noun, quote
from pellucid.files import follow_links, open_atomic
from pellucid.record_file import RecordFile
from pellucid.reporting.terminal_width import MIN_WIDTH, environment_with_width
from pellucid.run_folder.run_files import ENSEMBLE

if TYPE_CHECKING:
    from rich.table import Table

    from pellucid.run_evaluation import RunComparisons, RunEvaluation

MAX_UNEXPLAINED_CALIBRATION = 0.1
"""Difference of accuracy and mean probability from which label smoothing is named as its cause."""
ErrorRecords = RecordFile[dict[str, Any]]
"""Wrong outputs of a run as plain values, in the order of the examples."""
NUM_PAGE_ERRORS = 100
"""Number of listed errors on the page if --worst is not given."""


@dataclass(frozen=True)
class EvaluateArguments(ClusterFlags, SearchFlags, PairFileFlags):
    """Evaluate trained models on pairs, with 95 % confidence intervals and significance tests between runs.

    {} in the paths of FILE and the runs is a placeholder for a name, such as a language: every matching file is scored
    with the runs of the same name, and the table has a row for each name and an unweighted mean. The folder of an
    ensemble counts as one run. For runs on the same training file whose settings are equal except for the seed, the
    mean and the standard deviation are reported, too. --nbest and --sample also report accuracy at 1, 2, ... outputs.
    """

    on: OnFlag = field(default=None, kw_only=True)
    """Decode on the machines of a Ray cluster: that of the variable RAY_ADDRESS, else the last one that ray start
    has started on this machine, else this machine alone. All machines need the same versions, and share the folders of
    the runs, the folder of --blocks and the lexicon. After a crash, repeat the command: finished blocks are kept."""
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
    metrics: Annotated[tuple[MetricName, ...], tyro.conf.arg(metavar="NAME")] = ()
    """Names of custom metrics (of other packages) to compute, besides the training.metric of the runs."""
    worst: int | None = None
    """Number of examples with the highest error rates to list, 0 or more; for compared runs, of examples
    that only one of them has correct. Default: 10, on the page of --html 100."""
    json: bool = False
    """Print one JSON object instead of tables."""
    errors: PathFlag = None
    """Also write all wrong outputs to this .csv file, in the order of the table of the worst: run (of several), line,
    id (if FILE has such a column), group, source, features, output, expected, errors, confidence, log_probability. It
    has the delimiter of FILE. errors is the number of insertions, deletions and substitutions of symbols to the nearest
    reference; several references are joined by " | "."""
    html: Path | None = None
    """Also write the report to this .html file, with the attention weights of each listed error."""
    input_format: Format = "auto"
    """Format of FILE. auto: by the file name; for an unknown ending, the format of the training file."""
    device: Device = "cpu"
    """Device for decoding: cpu, cuda (one GPU), or auto (a GPU if there is one)."""
    blocks: FolderFlag = None
    """Folder in which --on ray keeps finished blocks of outputs until all runs are decoded. --on ray requires it."""


class TableConsole(Console):
    """Console of at least `MIN_WIDTH` columns that raises `BrokenPipeError` on a broken pipe, as all other output does:
    the exit code is then 141."""

    def __init__(self) -> None:
        """Initialize without highlighting."""
        super().__init__(highlight=False, _environ=environment_with_width())
        self.width = max(MIN_WIDTH, self.width)

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`; rich would exit with code 1."""
        raise BrokenPipeError


def main(arguments: list[str]) -> int:
    """Decode, score, print tables or JSON, and write the page of --html.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code: 0, or 2 if a file of --html or --errors could not be written.

    Raises:
        InputError: An argument, a run folder or a file is invalid, or runs cannot be compared.
    """
    args = parse_arguments(EvaluateArguments, "evaluate", arguments)
    _check_arguments(args)
    sampling = sampling_config(args)
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.cli.assessment import AssessmentOptions, assess_runs
    from pellucid.cli.evaluation_blocks import evaluation_cluster

    paths = _paths(args)
    errors = [ErrorRecords(dict) for _ in paths[:-1]] if args.errors is not None else []
    options = AssessmentOptions(
        target=args.target,
        multi_reference=args.multi_reference,
        group=args.group,
        texts=args.texts,
        input_format=args.input_format,
        reading=args,
        search=args,
        sampling=sampling,
        device=args.device,
        num_listed=_num_listed(args),
        metrics=args.metrics,
        errors=errors,
    )
    with evaluation_cluster(args.blocks, args.device) as cluster:
        if cluster is None:
            runs = assess_runs(paths[:-1], paths[-1], options)
        else:
            with cluster.connected():
                options = options._replace(search=absolute_paths(args), cluster=cluster)
                runs = assess_runs(paths[:-1], paths[-1], options)
        is_written = _write_results(args, paths, runs, errors)
        if cluster is not None and is_written:
            cluster.remove()  # the last: if a result cannot be written, the same command decodes nothing again
    return 0 if is_written else 2


def _write_results(
    args: EvaluateArguments, paths: tuple[Path, ...], runs: "Sequence[RunEvaluation]", errors: Sequence[ErrorRecords]
) -> bool:
    """Compare the runs, write the files of --html and --errors, and print the tables or JSON.

    Returns:
        Whether the files could be written. If not, the messages follow the tables.
    """
    from pellucid.run_evaluation import compare_evaluations

    results = compare_evaluations(runs)
    for line in runs[0].bad_lines:
        print_message(f"skipped {line}")
    failures = _write_files(args, paths[-1], results, errors)  # before the tables, whose reader may end early
    try:
        _print_scores(args, results)
        _print_notes(runs, paths[:-1])
        sys.stdout.flush()  # a closed pipe is noticed here
    finally:
        for failure in failures:
            print_message(*map(str, failure.args))
    return not failures


def _write_files(
    args: EvaluateArguments, file: Path, results: "RunComparisons", errors: Sequence[ErrorRecords]
) -> list[RunError]:
    """Write the files of --html and --errors; return the errors of those that cannot be written."""
    failures = list[RunError]()
    if args.html is not None:
        try:
            _write_page(args, file, results)
        except RunError as error:
            failures.append(error)
    if args.errors is not None:
        try:
            _write_errors(args.errors, args, file, results.evaluations, errors)
        except RunError as error:
            failures.append(error)
    return failures


def _print_scores(args: EvaluateArguments, results: "RunComparisons") -> None:
    """Print the scores of all runs as tables or JSON."""
    from pellucid.reporting.tables import assessment_tables, comparison_tables, group_comparison_table, seed_table
    from pellucid.run_evaluation import MAX_LISTED_ERRORS

    runs, width = results.evaluations, TableConsole().width
    max_errors = MAX_LISTED_ERRORS if args.worst is None else args.worst
    if args.json:
        values = results.to_dict(max_errors) if len(runs) > 1 else runs[0].to_dict(max_errors)
        sys.stdout.write(encode_json(values).decode() + "\n")
    elif len(runs) > 1:
        _print_run_names(runs)
        _print_tables(seed_table(group, results.unfinished_names, results.timed_updates) for group in results.seeds)
        _print_tables(map(group_comparison_table, results.mean_differences))
        assessments, seconds = [run.assessment for run in runs], [run.seconds for run in runs]
        parameters = [run.parameters for run in runs]
        _print_tables(comparison_tables(assessments, results.distinct, seconds, max_errors, parameters, width))
    else:
        assessment = runs[0].assessment
        _print_tables(assessment_tables(assessment, _shown_counts(runs[0]), runs[0].seconds, max_errors, width))


def _shown_counts(run: "RunEvaluation") -> dict[str, int]:
    """Return the counts that are shown with the scores of one run, with the number of parameters of its network."""
    return run.counts if run.parameters is None else {**run.counts, "parameters": run.parameters}


def _print_notes(runs: "Sequence[RunEvaluation]", paths: Sequence[Path]) -> None:
    """Explain on standard error what is often misread: ensembles, and the probabilities of label smoothing."""
    for path in paths:
        if (path / ENSEMBLE).is_file():
            print_message(
                f"{path} is an ensemble, whose members decode together; for the mean over its seeds, give the folders "
                f"of the members, such as {path / 'seed-1'}"
            )
    too_low = [
        run
        for run in runs
        if run.config.training.label_smoothing
        and (calibration := run.assessment.calibration) is not None
        and calibration.accuracy - calibration.mean_probability > MAX_UNEXPLAINED_CALIBRATION
    ]
    if not too_low:
        return
    assessments = [run.assessment for run in too_low]
    advice = "the confidence is the estimated probability of being correct: use it in their place"
    if any(each.confidence_calibration is None for each in assessments):
        reason = next(each.no_confidence_reason for each in assessments if each.confidence_calibration is None)
        advice = f"their order is hardly affected, so thresholds for review are valid; no confidence: {reason}"
    noun = "run" if len(too_low) == 1 else "runs"
    network = ""
    if any(run.pair_ngram_weight for run in too_low):
        network = (
            ", and because they are those of the network alone, while the pair n-gram model also ranks the outputs"
        )
    print_message(
        f"{noun} {', '.join(each.name for each in assessments)}: probabilities are lower than the accuracy because of "
        f"training.label_smoothing{network}; {advice}"
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


def _print_tables(tables: "Iterable[Table]") -> None:
    """Print tables."""
    console = TableConsole()
    for table in tables:
        console.print(table)


def _print_run_names(runs: "Sequence[RunEvaluation]") -> None:
    """Print the full names of abbreviated runs."""
    for text in _full_names(runs):
        print_message(text)


def _full_names(runs: "Sequence[RunEvaluation]") -> list[str]:
    """Return "NAME is FULL NAME" for each abbreviated run."""
    return [f"{run.assessment.name} is {run.name}" for run in runs if run.assessment.name != run.name]


def _write_page(args: EvaluateArguments, file: Path, results: "RunComparisons") -> None:
    """Write the HTML report and print its path."""
    from pellucid.viewer.reports import comparison_report, evaluation_report, write_report

    assert args.html is not None
    max_errors, runs = NUM_PAGE_ERRORS if args.worst is None else args.worst, results.evaluations
    if len(runs) > 1:
        report = comparison_report(
            [run.assessment for run in runs],
            results.distinct,
            results.seeds,
            results.mean_differences,
            str(file),
            max_errors,
        )
        if full_names := _full_names(runs):
            report = replace(report, introduction=f"{report.introduction} {', '.join(full_names)}.")
    else:
        report = evaluation_report(runs[0].assessment, str(file), _shown_counts(runs[0]), max_errors)
    if unfinished := [str(training) for run in runs for training in run.unfinished]:
        report = replace(report, introduction=f"{report.introduction} Warning: {', and '.join(unfinished)}.")
    write_report(args.html, report)
    print_message(f"wrote {args.html}")


def _write_errors(
    path: Path, args: EvaluateArguments, file: Path, runs: "Sequence[RunEvaluation]", errors: Sequence[ErrorRecords]
) -> None:
    """Write all wrong outputs as CSV and print the path."""
    from pellucid.run_evaluation import evaluation_data_config

    delimiter: Delimiter = ","
    bom = ""
    if args.target is None and file.is_file():
        data = file_data_config(runs[0].config.data, args, file, args.input_format)
        delimiter = file_delimiter(file, evaluation_data_config(data, file, args.input_format))
        bom = byte_order_mark(file)
    names = ["run"] if len(runs) > 1 else []
    names += ["line", *(["id"] if runs[0].assessment.has_ids else [])]
    names += [name for name in ("group", "features") if any(record[name] for records in errors for record in records)]
    names += ["source", "output", "expected", "errors", "confidence", "log_probability"]
    with open_atomic(follow_links(path)) as output:
        output.write((bom + format_csv([names], delimiter)).encode())
        for run, records in zip(runs, errors, strict=True):
            for row in _errors_by_rate(run, records):
                cells = [_error_cell({"run": run.name, **row}, name) for name in names]
                output.write(format_csv([cells], delimiter).encode("utf-8", "backslashreplace"))
    print_message(f"wrote {path}: {count_noun(sum(map(len, errors)), 'wrong output')}")


def _errors_by_rate(run: "RunEvaluation", records: ErrorRecords) -> Iterator[Mapping[str, Any]]:
    """Yield the wrong outputs of a run in the order of the table of the worst."""
    for place in run.assessment.counts.best.wrong_by_rate():
        yield records[place]


def _error_cell(row: Mapping[str, Any], name: str) -> str:
    """Return the cell of a column of a wrong output."""
    match name:
        case "expected":
            return " | ".join(row["references"])
        case "log_probability" | "confidence":
            return "" if row[name] is None else f"{row[name]:.6f}"
        case _:
            return "" if row.get(name) is None else str(row[name])


def _num_listed(args: EvaluateArguments) -> int:
    """Return the maximum length of the lists of outputs, also of those on the page."""
    from pellucid.run_evaluation import MAX_LISTED_ERRORS

    if args.worst is not None:
        return args.worst
    return MAX_LISTED_ERRORS if args.html is None else NUM_PAGE_ERRORS


def _check_arguments(args: EvaluateArguments) -> None:
    """Raise `InputError` for invalid counts and paths."""
    if args.worst is not None and args.worst < 0:
        raise InputError(f"--worst: expected 0 or more, got {args.worst}")
    check_nbest(args)
    check_blocks_flag(args, args.blocks, args.more[-1] if args.more else args.file)
    check_columns_of_pairs(args, args.target)
    check_output_files(args, {"html": ".html", "errors": ".csv"})
