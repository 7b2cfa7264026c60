"""Subcommand score: pellucid score RUN [RUN ...] [FILE|-] [--output-format text|csv|tsv|jsonl]"""

import sys
from dataclasses import dataclass
from math import exp
from typing import Literal, TypeGuard

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.csv_output import CsvOutput, byte_order_mark
from pellucid.cli.input_flags import PairFileFlags, file_data_config
from pellucid.cli.search_flags import MoreRuns, RunFolder
from pellucid.cli.sources import DecodingNotes, InputLine, escape_text, first_bad_line, read_chunks, split_paths
from pellucid.config.settings import Device
from pellucid.data.examples import Example, InputFormat, pair_config, parse_pairs, read_pairs
from pellucid.data.readers import TableCells
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import DataError

ScoreFormat = Literal["text", "csv", "tsv", "jsonl"]
PairFormat = Literal["auto", "tsv", "csv", "jsonl", "parquet"]
"""Formats of a file of pairs."""
CSV_NAMES = ("log_probability", "probability", "log_probability_per_symbol")
"""Names of the columns of results in CSV."""


@dataclass(frozen=True)
class ScoreArguments(PairFileFlags):
    """Compute the natural log-probabilities of given targets (forced decoding). Each input line has exactly one output
    line, blank lines included."""

    run: RunFolder
    """Folder of a trained run."""
    more: MoreRuns = ()
    """Folders of further members of an ensemble, then the pairs: a file with the columns of the training file, or - for
    standard input (default)."""
    output_format: ScoreFormat = "text"
    """Output format. text: log-probability of the target, including the end symbol of a sequence; csv: the
    columns of the input, then log-probability and probability, under a row of names; tsv: source, target,
    log-probability, log-probability of each symbol; jsonl: trace."""
    input_format: PairFormat = "auto"
    """Format of the input; auto: from the file name, else the format of the training file, else TSV (also of a run that
    was trained on two parallel files)."""
    device: Device = "cpu"
    """Device for scoring: cpu, cuda (one GPU), or auto (a GPU if there is one)."""


def main(arguments: list[str]) -> int:
    """Write the scores of targets to standard output, and remarks on the input to standard error.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument, a run folder or an input line is invalid. The scores of earlier lines are written.
    """
    args = parse_arguments(ScoreArguments, "score", arguments)
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.cli.backend import PredictionBackend

    runs, file = split_paths(args.run, args.more, "score")
    backend = PredictionBackend(runs, args.device, lambda predictor: predictor)
    predictor = backend.predictor
    notes, data = DecodingNotes(), file_data_config(pair_config(predictor.config.data), args, file, args.input_format)
    cells = table = None
    if args.output_format == "csv":
        cells = TableCells()
        table = CsvOutput(cells, CSV_NAMES, escape=sys.stdout.isatty(), bom=byte_order_mark(file))
    input_format = InputFormat(args.input_format, args.header, predictor.vocabularies.columns, cells=cells)
    for chunk in read_chunks(file, data, input_format, read_pairs, parse_pairs):
        bad_index = first_bad_line(chunk) if args.on_bad_line == "stop" else None
        pairs = [item for item in chunk[:bad_index] if _is_pair(item)]
        traces = iter(backend.for_sources(len(pairs)).score_examples(pairs))
        for item in chunk[:bad_index]:
            trace = next(traces) if _is_pair(item) else None
            notes.count_line(item, trace)
            if table is not None:
                sys.stdout.write(table.rows(item, [] if trace is None else [_csv_values(trace)]))
            else:
                sys.stdout.write(_format_score(trace, item, args.output_format) + "\n")
        sys.stdout.flush()
        if bad_index is not None:
            raise DataError(f"{chunk[bad_index]} (--on-bad-line skip writes an empty output for such lines)")
    notes.report(bool(data.features_column))
    return 0


def _is_pair(item: InputLine) -> TypeGuard[Example]:
    """Return whether a line holds a pair: neither bad nor blank."""
    return isinstance(item, Example) and bool(item.source)


def _csv_values(trace: Trace) -> list[str]:
    """Return the log-probability of a target, its probability, and the mean of the log-probabilities of its symbols."""
    return [f"{trace.score:.6f}", f"{exp(trace.score):.6g}", f"{trace.score / max(1, len(trace.target)):.6f}"]


def _format_score(trace: Trace | None, item: InputLine, kind: ScoreFormat) -> str:
    """Return one output line; empty if nothing was scored, or the error as JSON."""
    if trace is None:
        error = {} if isinstance(item, Example) else {"error": str(item)}
        empty_record = encode_json({"output": None, **error}).decode()
        return {"text": "", "tsv": "\t\t\t", "jsonl": empty_record}[kind]
    match kind:
        case "text":
            return f"{trace.score:.6f}"
        case "tsv":
            symbol_scores = " ".join(f"{value:.6f}" for value in trace.log_probabilities)
            return "\t".join([escape_text(trace.text), escape_text(trace.output), f"{trace.score:.6f}", symbol_scores])
        case _:
            return trace.to_json()
