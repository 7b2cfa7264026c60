"""Lines of predict: the input with its prefixes, in chunks, and the output lines of each input line."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pellucid.cli.backend import count_hypotheses
from pellucid.cli.csv_output import CsvOutput, format_confidence, format_score
from pellucid.cli.input_flags import file_data_config
from pellucid.cli.messages import print_message
from pellucid.cli.predict_arguments import OutputFormat, PredictArguments, has_several_outputs, list_length
from pellucid.cli.prefix_file import PrefixFile
from pellucid.cli.search_flags import check_decoding, decode_nbest, decode_samples, sampling_config
from pellucid.cli.sources import (
    Acceptance,
    DecodingNotes,
    InputLine,
    LineChunk,
    escape_text,
    number_chunks,
    read_chunks,
)
from pellucid.data.examples import Example, InputFormat, parse_sources, read_sources
from pellucid.data.readers import BadLine, TableCells
from pellucid.data.tokenizers import Tokenizer
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import ConfigError

if TYPE_CHECKING:
    from pellucid.decoding.base_predictor import BasePredictor


class SourceInput:
    """Input of predict: its lines in chunks, with the prefix of each, and the cells of its rows."""

    def __init__(self, predictor: "BasePredictor", args: PredictArguments, file: Path) -> None:
        """Check the options of decoding and read the prefixes, before standard input is read.

        Args:
            predictor: Predictor of the runs.
            args: Parsed flags.
            file: Input file, or "-" for standard input.

        Raises:
            InputError: Options of decoding fit no source, or the prefixes cannot be read.
        """
        has_several, sampling = has_several_outputs(args), sampling_config(args)
        self.args, self.file = args, file
        self.prefixes = None if args.prefixes is None else PrefixFile(args.prefixes, predictor)
        nbest = list_length(predictor, args) if has_several else 1
        if args.top_mass is not None and args.nbest is None and nbest == 1:
            raise ConfigError("--top-mass selects from several outputs: it requires --nbest, or a larger --beam-size")
        check_decoding(predictor, sampling, nbest, self.prefixes is not None)
        self.data = file_data_config(predictor.config.data, args, file, args.input_format)
        self.cells = TableCells(has_rows=args.output_format == "csv")
        columns = predictor.vocabularies.columns
        self.format = InputFormat(args.input_format, args.header, columns, cells=self.cells)
        num_outputs = args.nbest or args.sample or predictor.config.search.beam_size
        self.outputs_per_source = num_outputs if has_several or args.search_tree else 1

    def chunks(self) -> Iterator[LineChunk]:
        """Yield the lines in chunks.

        Raises:
            DataError: The input cannot be read, a line is bad and bad lines are not skipped, or a line has no prefix.
        """
        chunks = read_chunks(self.file, self.data, self.format, read_sources, parse_sources, self.outputs_per_source)
        for chunk in number_chunks(chunks, self.args.on_bad_line):
            yield (
                chunk if self.prefixes is None else chunk._replace(prefixes=_take_prefixes(chunk.items, self.prefixes))
            )

    def report_names(self) -> None:
        """Print a message about names of columns that have no output line."""
        args = self.args
        if len(self.cells.names) > 1 and args.header == "auto" and args.output_format in ("text", "tsv"):
            print_message(
                "the first line of the input names the columns, so it has no output; --output-format csv writes all "
                "columns with their names"
            )

    def check_prefixes(self) -> None:
        """Raise `DataError` if prefixes remain after the last line."""
        if self.prefixes is not None:
            self.prefixes.check_exhausted()


class SourceDecoder:
    """Decodes chunks of lines and formats the outputs, with counts for the notes at the end."""

    def __init__(
        self, predictor: "BasePredictor", args: PredictArguments, table: CsvOutput | None, has_classes: bool
    ) -> None:
        """Begin with the first line.

        Args:
            predictor: Predictor of the runs, for its confidence and its tokenizers.
            args: Parsed flags.
            table: CSV writer of the output; None for other formats.
            has_classes: Whether classes and tags have a column each.

        Raises:
            ConfigError: --min-confidence is given, and the outputs have no confidence.
        """
        self.args, self.table = args, table
        self.sampling, self.has_several = sampling_config(args), has_several_outputs(args)
        self.notes, self.acceptance = DecodingNotes(args.require), read_acceptance(predictor, args)
        self.class_tokenizer = predictor.tokenizers.target if has_classes else None

    def count_sources(self, chunk: LineChunk) -> int:
        """Return the number of sources of a chunk.

        Args:
            chunk: Lines.
        """
        return len(chunk.examples)

    def count_hypotheses(self, predictor: "BasePredictor", chunk: LineChunk) -> int:
        """Return the number of hypotheses that are searched for a chunk, without sources of the lexicon.

        Args:
            predictor: Predictor of the runs.
            chunk: Lines.
        """
        nbest = list_length(predictor, self.args) if self.has_several else 1
        return count_hypotheses(predictor, chunk.examples, nbest, self.sampling)

    def decode_lines(self, predictor: "BasePredictor", chunk: LineChunk) -> Iterator[str]:
        """Decode a chunk, and yield the output lines of each of its lines.

        Args:
            predictor: Predictor of the runs.
            chunk: Lines.

        Raises:
            InputError: A source cannot be decoded, or has more columns than those before it.
        """
        outputs = iter(self._decode(predictor, chunk))
        for number, item in enumerate(chunk.items, chunk.first_line + 1):
            traces = next(outputs) if isinstance(item, Example) else []
            self.notes.count_line(item, traces[0] if traces else None, traces[1:])
            yield self._format(traces, item, number)

    def _decode(self, predictor: "BasePredictor", chunk: LineChunk) -> list[list[Trace]]:
        """Return the outputs of each example of a chunk."""
        examples, args = chunk.examples, self.args
        if self.sampling is not None:
            return decode_samples(predictor, examples, self.sampling, chunk.first_source, chunk.prefixes)
        if not self.has_several:
            return [[trace] for trace in predictor.predict_examples(examples, chunk.prefixes)]
        top_mass = 1.0 if args.top_mass is None else args.top_mass
        return decode_nbest(predictor, examples, list_length(predictor, args), top_mass, chunk.prefixes)

    def _format(self, traces: Sequence[Trace], item: InputLine, number: int) -> str:
        """Return the output lines of a line."""
        if self.table is not None:
            names = self.table.result_names
            values = [_csv_values(trace, names, self.acceptance, self.class_tokenizer) for trace in traces]
            return self.table.rows(item, values)
        if self.has_several:
            return _format_outputs(traces, item, self.args.output_format, number)
        return _format_output(traces, item, self.args.output_format, self.acceptance) + "\n"


def result_columns(args: PredictArguments, has_classes: bool) -> tuple[str, ...]:
    """Return the names of the columns of results in CSV.

    Args:
        args: Parsed flags.
        has_classes: Whether classes and tags have a column each.
    """
    origin = () if args.lexicon is None else ("origin",)
    if has_several_outputs(args):
        nbest = ("nbest_probability",) if args.sample is None else ()
        return ("rank", "output", "log_probability", "probability", *nbest, *origin)
    accepted = () if args.min_confidence is None else ("accepted",)
    classes = ("class",) if has_classes else ()
    return (*classes, "output", "log_probability", "probability", "confidence", *origin, *accepted)


def read_acceptance(predictor: "BasePredictor", args: PredictArguments) -> Acceptance | None:
    """Return the counts of accepted outputs; None without --min-confidence.

    Args:
        predictor: Predictor of the runs.
        args: Parsed flags.

    Raises:
        ConfigError: The outputs have no confidence.
    """
    if args.min_confidence is None:
        return None
    obstacle = predictor.no_confidence_reason(has_example_prefixes=args.prefixes is not None)
    if obstacle:
        raise ConfigError(f"--min-confidence: {obstacle}")
    return Acceptance(args.min_confidence)


def _take_prefixes(items: Sequence[InputLine], prefixes: PrefixFile) -> list[str]:
    """Return the prefixes of the readable lines."""
    pairs = zip(items, prefixes.next_prefixes(len(items)), strict=True)
    return [prefix for item, prefix in pairs if isinstance(item, Example)]


def _csv_values(
    trace: Trace, names: Sequence[str], acceptance: Acceptance | None, class_tokenizer: Tokenizer | None
) -> list[str]:
    """Return the cells of an output under these names; an empty source has no numbers, as nothing was decoded.

    With a tokenizer, the class of the output has a cell of its own, and "output" is the tags.
    """
    accepted = "" if acceptance is None else encode_json(acceptance.count_and_check(trace)).decode()
    if not trace.source:
        return [str(trace.rank) if name == "rank" else accepted if name == "accepted" else "" for name in names]
    values = {
        "rank": str(trace.rank),
        "output": trace.output,
        "log_probability": format_score(trace),
        "probability": format_score(trace) and f"{trace.probability:.6g}",
        "confidence": format_confidence(trace),
        "nbest_probability": "" if trace.nbest_probability is None else f"{trace.nbest_probability:.6g}",
        "origin": trace.origin,
        "accepted": accepted,
    }
    if class_tokenizer is not None:
        values |= {"class": trace.target[0], "output": class_tokenizer.join(trace.target[1:])}
    return [values[name] for name in names]


def _format_output(
    traces: Sequence[Trace], item: InputLine, kind: OutputFormat, acceptance: Acceptance | None = None
) -> str:
    """Return the output line of one input line; for a bad line it is empty, or its error as JSON."""
    if not traces:
        empty_row = "\t" * (3 if acceptance is None else 4)
        return _format_error(item) if kind == "jsonl" else "" if kind == "text" else empty_row
    trace = traces[0]
    is_accepted = acceptance is None or acceptance.count_and_check(trace)
    match kind:
        case "text":
            return escape_text(trace.output, tabs=False) if is_accepted else ""
        case "tsv":
            cells = [
                escape_text(trace.text),
                escape_text(trace.output),
                format_score(trace),
                format_confidence(trace),
            ]
            return "\t".join([*cells, *([] if acceptance is None else [encode_json(is_accepted).decode()])])
        case _:
            if acceptance is None:
                return trace.to_json()
            record: dict[str, object] = msgspec.to_builtins(trace.to_record())
            return encode_json({**record, "accepted": is_accepted}).decode()


def _format_outputs(traces: Sequence[Trace], item: InputLine, kind: OutputFormat, number: int) -> str:
    """Return the output lines of one input line with several outputs; a bad line has one row of rank 0."""
    match kind:
        case "text":
            return "\t".join(escape_text(trace.output) for trace in traces) + "\n"
        case "tsv":
            lines = [_format_tsv_row(trace, number) for trace in traces] or [f"{number}\t0\t\t\t\t"]
            return "".join(f"{line}\n" for line in lines)
        case _:
            return (f"[{','.join(trace.to_json() for trace in traces)}]" if traces else _format_error(item)) + "\n"


def _format_tsv_row(trace: Trace, number: int) -> str:
    """Return one of several outputs as TSV: number, rank, n-best probability, log-probability, output, source.

    A sample has no n-best probability.
    """
    probability = "" if trace.nbest_probability is None else f"{trace.nbest_probability:.6f}"
    numbers = f"{number}\t{trace.rank}\t{probability}\t{format_score(trace)}"
    return f"{numbers}\t{escape_text(trace.output)}\t{escape_text(trace.text)}"


def _format_error(item: InputLine) -> str:
    """Return the error of a bad line as JSON."""
    assert isinstance(item, BadLine)
    return encode_json({"output": None, "error": str(item)}).decode()
