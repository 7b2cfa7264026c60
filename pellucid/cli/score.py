"""Subcommand score: pellucid score RUN [RUN ...] [FILE|-] [--output-format text|csv|tsv|jsonl]"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.cluster_flags import OUTPUT_INDEPENDENT, OutputFlags, check_output_flags, output_to_file
from pellucid.cli.csv_output import CsvOutput, byte_order_mark
from pellucid.cli.input_flags import PairFileFlags, file_data_config
from pellucid.cli.output_files import check_output_files
from pellucid.cli.search_flags import MoreRuns, RunFolder
from pellucid.cli.sources import (
    Acceptance,
    DecodingNotes,
    InputLine,
    LineChunk,
    escape_text,
    is_pair,
    number_chunks,
    read_chunks,
    split_paths,
)
from pellucid.config.settings import Device
from pellucid.data.examples import Example, InputFormat, pair_config, parse_pairs, read_pairs
from pellucid.data.readers import TableCells
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_json

if TYPE_CHECKING:
    from pellucid.cli.backend import PredictionBackend
    from pellucid.decoding.base_predictor import BasePredictor

ScoreFormat = Literal["text", "csv", "tsv", "jsonl"]
PairFormat = Literal["auto", "tsv", "csv", "jsonl", "parquet"]
"""Formats of a file of pairs."""
CSV_NAMES = ("log_probability", "probability", "log_probability_per_symbol")
"""Names of the columns of results in CSV."""


@dataclass(frozen=True)
class ScoreArguments(OutputFlags, PairFileFlags):
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
    """Write the scores of targets to standard output or a file, and remarks on the input to standard error.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument, a run folder or an input line is invalid. The scores of earlier lines are written to
            standard output; a file is not written.
    """
    args = parse_arguments(ScoreArguments, "score", arguments)
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.cli.backend import PredictionBackend

    runs, file = split_paths(args.run, args.more, "score")
    check_output_flags(args, file)
    check_output_files(args, {"output": ""})
    device = args.device if args.on is None else "cpu"  # of this process, which scores nothing
    backend = PredictionBackend(runs, device, lambda predictor: predictor, needs_pair_ngram=False)
    pairs = PairInput(backend.predictor, args, file)
    if args.on is None:
        with output_to_file(args.output):
            scorer = PairScorer(args.output_format, pairs.build_table(sys.stdout.isatty()))
            _score_lines(backend, scorer, pairs)
    else:
        scorer = PairScorer(args.output_format, pairs.build_table(escape=False))
        _score_on_cluster(backend, scorer, pairs)
    scorer.notes.report(bool(pairs.data.features_column))
    return 0


class PairInput:
    """Input of score: its lines in chunks, and the cells of its rows."""

    def __init__(self, predictor: "BasePredictor", args: ScoreArguments, file: Path) -> None:
        """Set how the input is read.

        Args:
            predictor: Predictor of the runs.
            args: Parsed flags.
            file: Input file, or "-" for standard input.

        Raises:
            InputError: A flag does not fit the input or the model.
        """
        self.args, self.file = args, file
        self.data = file_data_config(pair_config(predictor.config.data), args, file, args.input_format)
        self.cells = TableCells() if args.output_format == "csv" else None
        columns = predictor.vocabularies.columns
        self.format = InputFormat(args.input_format, args.header, columns, cells=self.cells)

    def chunks(self) -> Iterator[LineChunk]:
        """Yield the lines in chunks.

        Raises:
            DataError: The input cannot be read, or a line is bad and bad lines are not skipped.
        """
        chunks = read_chunks(self.file, self.data, self.format, read_pairs, parse_pairs)
        yield from number_chunks(chunks, self.args.on_bad_line)

    def build_table(self, escape: bool) -> CsvOutput | None:
        """Return the output as CSV; None for other formats.

        Args:
            escape: Whether to escape control characters, for a terminal.
        """
        return None if self.cells is None else CsvOutput(self.cells, CSV_NAMES, escape, byte_order_mark(self.file))


class PairScorer:
    """Scores chunks of pairs and formats the scores, with counts for the notes at the end."""

    def __init__(self, output_format: ScoreFormat, table: CsvOutput | None) -> None:
        """Begin with the first line.

        Args:
            output_format: Output format.
            table: Output as CSV; None for other formats.
        """
        self.output_format, self.table, self.notes = output_format, table, DecodingNotes()
        self.acceptance: Acceptance | None = None

    def count_sources(self, chunk: LineChunk) -> int:
        """Return the number of pairs of a chunk.

        Args:
            chunk: Lines.
        """
        return sum(map(is_pair, chunk.items))

    def count_hypotheses(self, predictor: "BasePredictor", chunk: LineChunk) -> int:
        """Return the number of targets of a chunk.

        Args:
            predictor: Predictor of the runs.
            chunk: Lines.
        """
        return self.count_sources(chunk)

    def decode_lines(self, predictor: "BasePredictor", chunk: LineChunk) -> Iterator[str]:
        """Score a chunk, and yield the output line of each of its lines.

        Args:
            predictor: Predictor of the runs.
            chunk: Lines.

        Raises:
            InputError: A pair cannot be scored, or has more columns than those before it.
        """
        traces = iter(predictor.score_examples([item for item in chunk.items if is_pair(item)]))
        for item in chunk.items:
            trace = next(traces) if is_pair(item) else None
            self.notes.count_line(item, trace)
            if self.table is not None:
                yield self.table.rows(item, [] if trace is None else [_csv_values(trace)])
            else:
                yield _format_score(trace, item, self.output_format) + "\n"


class ScoreCommand(NamedTuple):
    """Arguments of score as the machines of a cluster get them (`LineCommand`)."""

    output_format: ScoreFormat
    device: Device
    runs: tuple[Path, ...]
    """Run folders, as absolute paths."""
    lexicon: None = None
    """A target is scored by the model, with or without a lexicon."""
    needs_pair_ngram: bool = False
    """A target is scored by the network alone."""

    def configure(self, predictor: "BasePredictor") -> "BasePredictor":
        """Return the predictor, which has no options.

        Args:
            predictor: Predictor of the runs.
        """
        return predictor

    def build_decoder(self, predictor: "BasePredictor", cells: TableCells, names: Sequence[str]) -> PairScorer:
        """Return the scorer of a block.

        Args:
            predictor: Predictor of the runs.
            cells: Cells of the lines of the block.
            names: Names of the columns of the input, whose row is written already.
        """
        table = CsvOutput(cells, CSV_NAMES, names=names) if self.output_format == "csv" else None
        return PairScorer(self.output_format, table)


def _score_lines(backend: "PredictionBackend", scorer: PairScorer, pairs: PairInput) -> None:
    """Score one pair per line to standard output."""
    for chunk in pairs.chunks():
        for line in scorer.decode_lines(backend.for_sources(scorer.count_sources(chunk)), chunk):
            sys.stdout.write(line)
        sys.stdout.flush()


def _score_on_cluster(backend: "PredictionBackend", scorer: PairScorer, pairs: PairInput) -> None:
    """Score one pair per line on a Ray cluster, to a file."""
    from pellucid.cli.fingerprint import command_fingerprint, file_checksum
    from pellucid.cli.line_blocks import ClusterOutput, decode_on_cluster

    args, runs = pairs.args, tuple(run.absolute() for run in backend.runs)
    options = [field.name for field in fields(args) if field.name not in OUTPUT_INDEPENDENT]
    command = ScoreCommand(args.output_format, args.device, runs)
    assert args.output is not None
    output = ClusterOutput(
        args.output, {**command_fingerprint(args, options, runs), "the input": file_checksum(pairs.file)}
    )
    decode_on_cluster(command, pairs.chunks(), scorer, backend, output)


def _csv_values(trace: Trace) -> list[str]:
    """Return the log-probability of a target, its probability, and the mean of the log-probabilities of its symbols."""
    return [f"{trace.score:.6f}", f"{trace.probability:.6g}", f"{trace.score / max(1, len(trace.target)):.6f}"]


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
