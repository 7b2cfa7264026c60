"""Subcommand predict: pellucid predict RUN [RUN ...] [FILE|-] [--output-format text|csv|tsv|jsonl]"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
import tyro

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.csv_output import CsvOutput, byte_order_mark, format_confidence
from pellucid.cli.input_flags import file_data_config
from pellucid.cli.messages import print_message
from pellucid.cli.predict_fill import FilledTable, FillOptions, write_filled_table
from pellucid.cli.predict_text import write_decoded_text
from pellucid.cli.prefix_file import PrefixFile
from pellucid.cli.search_flags import (
    FloatFlag,
    MoreRuns,
    PathFlag,
    RunFolder,
    SearchFlags,
    apply_search_flags,
    check_decoding,
    check_nbest,
    decode_nbest,
    decode_samples,
    read_lexicon,
    sampling_config,
)
from pellucid.cli.sources import (
    DecodingNotes,
    InputLine,
    escape_text,
    first_bad_line,
    lexicon_count_message,
    read_chunks,
    split_paths,
)
from pellucid.config.settings import Device, Format
from pellucid.data.examples import Example, InputFormat, input_file_format, parse_sources, read_sources
from pellucid.data.readers import BadLine, TableCells
from pellucid.data.tokenizers import Tokenizer
from pellucid.decoding.confidence import reaches_confidence
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pellucid.cli.backend import PredictionBackend
    from pellucid.decoding.base_predictor import BasePredictor
    from pellucid.decoding.sampling_config import SamplingConfig

OutputFormat = Literal["text", "csv", "tsv", "jsonl"]
LineFormatter = Callable[[Sequence[Trace], InputLine, int], str]
"""Function that returns the output lines of an input line: of its traces, the line, and its number."""
SymbolFlags = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="SYMBOL")]


@dataclass(frozen=True)
class PredictArguments(SearchFlags):
    """Decode sources with a trained model. With one output per source, each input line has exactly one output line,
    empty lines included.

    With several outputs per source (--nbest, --top-mass, --sample), text writes them on one line, separated by tabs;
    csv and tsv write one line per output; jsonl writes one line with the list of traces. Flags of beam search,
    sampling, constraints and length limits apply to task = "transduce" only, but classes and positions have n-best
    lists, too.
    """

    run: RunFolder
    """Folder of a trained run."""
    more: MoreRuns = ()
    """Folders of further members of an ensemble, then the sources: a file with the columns of the training file, or
    with the source alone, or - for standard input (default)."""
    output_format: OutputFormat = "text"
    """Output format. text: output only; csv: the columns of the input, then output, log-probability,
    probability and confidence, under a row of names; tsv: source, output, natural log-probability and confidence;
    jsonl: trace, with attention weights and the log-probability of each symbol. The confidence is the estimated
    probability that the output is correct; it is empty where the run has none for it, and for known pairs of --lexicon:
    with that flag, csv has the column origin, lexicon or search."""
    input_format: Format = "auto"
    """Format of the input. auto: by the file name; for an unknown ending and for standard input, the format of the
    training file."""
    top_mass: FloatFlag = None
    """Write the fewest best outputs whose probabilities, normalized over the n-best list, sum to at least this value
    (above 0, at most 1). Requires --nbest, or a beam size above 1, which is then the length of the list."""
    prefix: Annotated[str, tyro.conf.arg(metavar="TEXT")] = ""
    """First symbols of every output, as text; the model decodes the rest. Excludes --prefixes."""
    prefixes: PathFlag = None
    """File with one target prefix per input line; an empty line sets no prefix. Excludes --prefix."""
    forbid: SymbolFlags = ()
    """Symbol that no output may contain. Can be repeated."""
    require: SymbolFlags = ()
    """Symbol that every output must contain if its maximum length has room for it. Can be repeated. Uses dynamic beam
    allocation (Post and Vilar 2018)."""
    lattice: bool = False
    """Write all hypotheses of the beam search to each trace. Requires --output-format jsonl; excludes --sample."""
    min_confidence: FloatFlag = None
    """Accept outputs whose confidence, the estimated probability of being correct, is at least this number, 0 to 1. In
    text, other outputs are an empty line; the other formats get the column or field accepted. Excludes --nbest,
    --top-mass and --sample, and options with which outputs have no confidence. evaluate prints thresholds."""
    fill: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = ""
    """Write FILE, a CSV or TSV table with a header, with outputs in the empty cells of this column, and all other cells
    unchanged. The column confidence is added, and with --lexicon the column origin. Rows whose cell is not empty are
    not decoded. With --min-confidence, only outputs with this confidence are written. Excludes --nbest, --top-mass,
    --sample, --prefixes, --text, other output formats than csv, and --on-bad-line skip."""
    text: bool = False
    """Read running text, and decode its words; all characters between them stay as they are. A word is a part between
    the word boundaries of Unicode that contains a letter (see --word-pattern). Known words come from --lexicon. text
    writes each line with its words replaced, jsonl each line with the positions of its words, csv and tsv one row per
    word. With --min-confidence, other words stay as they are."""
    word_pattern: Annotated[str | None, tyro.conf.arg(metavar="REGEX")] = None
    """Regular expression of the words of --text, such as [0-9]+, in the syntax of the Python package regex."""
    word_template: Annotated[str | None, tyro.conf.arg(metavar="TEMPLATE")] = None
    """Text that replaces a word of --text: {output} is its output, {word} the word. Default: {output}."""
    keep_case: bool = False
    """With --text, give the output of a word that was decoded in lower case the case of the word: an initial capital,
    or all capitals."""
    device: Device = "cpu"
    """Device for decoding: cpu, cuda (one GPU), or auto (a GPU if there is one)."""


class Acceptance:
    """Threshold of --min-confidence, with the number of outputs that it accepted."""

    def __init__(self, min_confidence: float) -> None:
        """Set the threshold.

        Args:
            min_confidence: Lowest confidence of an accepted output, 0 to 1.
        """
        self.min_confidence = min_confidence
        self.total = 0
        self.accepted = 0

    def accepts(self, trace: Trace) -> bool:
        """Return whether an output is accepted, and count it; to be called once per output.

        Args:
            trace: Best output of a source.
        """
        is_accepted = reaches_confidence(trace, self.min_confidence)
        self.total += 1
        self.accepted += is_accepted
        return is_accepted

    def describe(self, leaves_lines_empty: bool) -> str:
        """Return a message with the number of accepted outputs.

        Args:
            leaves_lines_empty: Whether other outputs are empty lines.
        """
        rest = self.total - self.accepted
        other = ""
        if rest:
            other = f"; the lines of the other {rest:,} are empty" if leaves_lines_empty else f"; {rest:,} are not"
        return (
            f"{self.accepted:,} of {self.total:,} outputs are accepted, with a confidence of at least "
            f"{self.min_confidence:g}{other}"
        )


def main(arguments: list[str]) -> int:
    """Decode to standard output, and write remarks on the input to standard error.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument, a run folder or an input line is invalid. The outputs of earlier lines are written.
    """
    args = parse_arguments(PredictArguments, "predict", arguments)
    _check_arguments(args, sampling_config(args))
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.cli.backend import PredictionBackend

    runs, file = split_paths(args.run, args.more, "predict")
    needed_by = _option_of_pytorch(args, file)
    backend = PredictionBackend(runs, args.device, lambda each: _configure_predictor(each, args), needed_by)
    if args.text:
        _predict_text(backend.predictor, args, file)
    elif args.fill:
        _fill_column(backend, args, file)
    else:
        _predict_lines(backend, args, file)
    return 0


def _predict_lines(backend: "PredictionBackend", args: PredictArguments, file: Path) -> None:
    """Decode one source per line to standard output."""
    predictor, sampling, has_several = backend.predictor, sampling_config(args), _has_several_outputs(args)
    prefixes = None if args.prefixes is None else PrefixFile(args.prefixes, predictor)
    nbest = _list_length(predictor, args) if has_several else 1
    if args.top_mass is not None and args.nbest is None and nbest == 1:
        raise ConfigError("--top-mass selects from several outputs: it requires --nbest, or a larger --beam-size")
    check_decoding(predictor, sampling, nbest, prefixes is not None)  # before standard input is read
    acceptance = _acceptance(predictor, args)
    notes, data = DecodingNotes(args.require), file_data_config(predictor.config.data, args, file, args.input_format)
    line_number = num_decoded = 0  # lines, and the sources among them
    num_outputs = args.nbest or args.sample or predictor.config.search.beam_size
    cells = TableCells()
    input_format = InputFormat(args.input_format, args.header, predictor.vocabularies.columns, cells=cells)
    tokenizer = predictor.tokenizers.target if data.class_column else None
    format_line = _line_formatter(args, has_several, CsvInput(file, cells, tokenizer), acceptance)
    outputs_per_source = num_outputs if has_several or args.lattice else 1
    for chunk in read_chunks(file, data, input_format, read_sources, parse_sources, outputs_per_source):
        bad_index = first_bad_line(chunk) if args.on_bad_line == "stop" else None
        examples = [item for item in chunk[:bad_index] if isinstance(item, Example)]
        chunk_prefixes = None if prefixes is None else _take_prefixes(chunk[:bad_index], prefixes)
        decoder = backend.for_sources(len(examples))
        outputs = iter(_decode(decoder, args, sampling, examples, num_decoded, chunk_prefixes))
        num_decoded += len(examples)
        for item in chunk[:bad_index]:
            traces = next(outputs) if isinstance(item, Example) else []
            line_number += 1
            notes.count_line(item, traces[0] if traces else None)
            sys.stdout.write(format_line(traces, item, line_number))
        sys.stdout.flush()
        cells.rows.clear()
        if bad_index is not None:
            raise DataError(f"{chunk[bad_index]} (--on-bad-line skip writes an empty output for such lines)")
    _report_notes(notes, predictor, args)
    if acceptance is not None:
        print_message(acceptance.describe(args.output_format == "text"))
    if len(cells.names) > 1 and args.header == "auto" and args.output_format in ("text", "tsv"):
        print_message("the names of the columns have no output line; --output-format csv writes all columns with names")
    if prefixes is not None:
        prefixes.check_exhausted()


def _predict_text(predictor: "BasePredictor", args: PredictArguments, file: Path) -> None:
    """Decode the words of running text to standard output."""
    from pellucid.data.text_words import WordRule
    from pellucid.decoding.text_decoder import TextDecoder

    _acceptance(predictor, args)  # raises an error that names the flag, if outputs have no confidence
    template = "{output}" if args.word_template is None else args.word_template
    decoder = TextDecoder(predictor, WordRule(args.word_pattern), template, args.min_confidence, args.keep_case)
    notes = DecodingNotes(args.require)
    write_decoded_text(decoder, file, args.output_format, args.on_bad_line, notes)
    _report_notes(notes, predictor, args)


def _fill_column(backend: "PredictionBackend", args: PredictArguments, file: Path) -> None:
    """Fill the empty cells of a column, and write the table to standard output."""
    predictor = backend.predictor
    _acceptance(predictor, args)  # raises an error that names the flag, if outputs have no confidence
    data, cells = file_data_config(predictor.config.data, args, file, args.input_format), TableCells()
    if data.class_column:
        raise ConfigError(
            "--fill fills one column, and this model predicts classes and tags for two (data.class_column): "
            "--output-format csv adds both columns"
        )
    input_format = InputFormat(args.input_format, args.header, predictor.vocabularies.columns, cells=cells)
    format = input_file_format(None if str(file) == "-" else file, data, input_format)
    table = FilledTable(cells, FillOptions(args.fill, args.min_confidence, args.lexicon is not None), file, format)
    notes = DecodingNotes(args.require)
    chunks = read_chunks(file, data, input_format, read_sources, parse_sources)
    write_filled_table(table, chunks, backend, notes)
    _report_notes(notes, predictor, args)


def _report_notes(notes: DecodingNotes, predictor: "BasePredictor", args: PredictArguments) -> None:
    """Print how many sources the lexicon decoded, and the notes on the input."""
    if predictor.options.lexicon is not None:
        print_message(lexicon_count_message(notes.num_from_lexicon, predictor.options.lexicon, args.lexicon))
    known_symbols = () if args.text else predictor.vocabularies.source.ids
    notes.report(bool(predictor.config.data.features_column) and not args.text, known_symbols)


def _take_prefixes(items: Sequence[InputLine], prefixes: PrefixFile) -> list[str]:
    """Return the prefixes of the readable lines."""
    pairs = zip(items, prefixes.next_prefixes(len(items)), strict=True)
    return [prefix for item, prefix in pairs if isinstance(item, Example)]


def _option_of_pytorch(args: PredictArguments, file: Path) -> str:
    """Return the option that needs PyTorch, or with which loading it is worth it; "" for none."""
    from pellucid.cli.backend import is_worth_loading

    if args.sample is not None:
        return "--sample"
    if args.require:
        return "--require"
    return "--text" if args.text and is_worth_loading(file) else ""


def _has_several_outputs(args: PredictArguments) -> bool:
    """Return whether several outputs per source are requested."""
    return (args.nbest, args.top_mass, args.sample) != (None, None, None)


def _configure_predictor(predictor: "BasePredictor", args: PredictArguments) -> "BasePredictor":
    """Return the predictor with the settings and options of the command line."""
    from pellucid.decoding.options import DecodingOptions

    predictor = apply_search_flags(predictor, args)
    lexicon = read_lexicon(predictor, args)
    return predictor.with_options(
        DecodingOptions(
            prefix=args.prefix, forbidden=args.forbid, required=args.require, lexicon=lexicon, lattice=args.lattice
        )
    )


def _list_length(predictor: "BasePredictor", args: PredictArguments) -> int:
    """Return the maximum length of an n-best list: --nbest, or else the beam size."""
    beam_size = predictor.config.search.beam_size if predictor.autoregressive else 1
    return beam_size if args.nbest is None else args.nbest


def _decode(
    predictor: "BasePredictor",
    args: PredictArguments,
    sampling: "SamplingConfig | None",
    examples: Sequence[Example],
    first: int,
    prefixes: Sequence[str] | None,
) -> list[list[Trace]]:
    """Return the outputs of each example of a chunk; `first` is the number of sources before it, for sampling."""
    if sampling is not None:
        return decode_samples(predictor, examples, sampling, first, prefixes)
    if not _has_several_outputs(args):
        return [[trace] for trace in predictor.predict_examples(examples, prefixes)]
    top_mass = 1.0 if args.top_mass is None else args.top_mass
    return decode_nbest(predictor, examples, _list_length(predictor, args), top_mass, prefixes)


def _check_arguments(args: PredictArguments, sampling: "SamplingConfig | None") -> None:
    """Raise `ConfigError` for numbers out of range and contradicting options; `sampling` is None for a search."""
    check_nbest(args)
    if args.top_mass is not None and not 0 < args.top_mass <= 1:
        raise ConfigError(f"--top-mass: expected a probability above 0 and at most 1, got {args.top_mass}")
    if args.prefix and args.prefixes is not None:
        raise ConfigError("--prefix and --prefixes exclude each other: one prefix for all sources, or one per source")
    if args.min_confidence is not None and not 0 <= args.min_confidence <= 1:
        raise ConfigError(f"--min-confidence: expected a number from 0 to 1, got {args.min_confidence}")
    if args.min_confidence is not None and _has_several_outputs(args):
        raise ConfigError(
            "--min-confidence accepts or rejects the best output, and cannot be combined with --nbest, --top-mass or "
            "--sample"
        )
    _check_text_flags(args)
    _check_fill_flags(args)
    if args.lattice and (args.output_format != "jsonl" or sampling is not None):
        raise ConfigError("--lattice requires --output-format jsonl and cannot be combined with --sample")


def _flags_of_single_lines(args: PredictArguments) -> dict[str, bool]:
    """Return which flags are given that need one source per line, for --text and --fill, which exclude them."""
    return {
        "--nbest": args.nbest is not None,
        "--top-mass": args.top_mass is not None,
        "--sample": args.sample is not None,
        "--prefixes": args.prefixes is not None,
    }


def _first_given(flags: Mapping[str, bool]) -> str:
    """Return the first flag that is given; "" if none is."""
    return next((name for name, is_given in flags.items() if is_given), "")


def _check_text_flags(args: PredictArguments) -> None:
    """Raise `ConfigError` for flags that contradict --text, or require it."""
    if not args.text:
        given = {
            "--word-pattern": args.word_pattern is not None,
            "--word-template": args.word_template is not None,
            "--keep-case": args.keep_case,
        }
        if flag := _first_given(given):
            raise ConfigError(f"{flag} requires --text")
        return
    excluded = {
        **_flags_of_single_lines(args),
        "--lattice": args.lattice,
        "--source-column": bool(args.source_column),
        "--delimiter": args.delimiter != "auto",
        "--features-column": bool(args.features_column),
        "--header": args.header != "auto",
        "--input-format": args.input_format not in ("auto", "text"),
    }
    if flag := _first_given(excluded):
        raise ConfigError(f"--text reads plain text and writes one output per word: it excludes {flag}")


def _check_fill_flags(args: PredictArguments) -> None:
    """Raise `ConfigError` for flags that contradict --fill."""
    excluded = {
        **_flags_of_single_lines(args),
        "--text": args.text,
        f"--output-format {args.output_format}": args.output_format not in ("text", "csv"),
        "--on-bad-line skip": args.on_bad_line == "skip",
    }
    if args.fill and (flag := _first_given(excluded)):
        raise ConfigError(f"--fill writes the rows of FILE with one output in each empty cell: it excludes {flag}")


def _acceptance(predictor: "BasePredictor", args: PredictArguments) -> Acceptance | None:
    """Return the counts of accepted outputs; None without --min-confidence.

    `ConfigError` if the outputs have no confidence.
    """
    if args.min_confidence is None:
        return None
    obstacle = predictor.no_confidence_reason(own_prefixes=args.prefixes is not None)
    if obstacle:
        raise ConfigError(f"--min-confidence: {obstacle}")
    return Acceptance(args.min_confidence)


class CsvInput(NamedTuple):
    """Input whose columns --output-format csv writes before the results."""

    file: Path
    """File, or "-" for standard input."""
    cells: TableCells
    """Its cells, which the reader fills."""
    class_tokenizer: Tokenizer | None
    """Tokenizer of targets, if classes and tags have a column each; else None."""


def _line_formatter(
    args: PredictArguments, has_several: bool, table_input: CsvInput, acceptance: Acceptance | None
) -> LineFormatter:
    """Return the function that formats the outputs of a line."""
    if args.output_format == "csv":
        accepted = [] if acceptance is None else ["accepted"]
        origin = [] if args.lexicon is None else ["origin"]
        share = ["share"] if args.sample is None else []
        file, cells, tokenizer = table_input
        classes = [] if tokenizer is None else ["class"]
        names = (
            (*classes, "output", "log_probability", "probability", "confidence", *origin, *accepted)
            if not has_several
            else ("rank", "output", "log_probability", "probability", *share, *origin)
        )
        table = CsvOutput(cells, names, escape=sys.stdout.isatty(), bom=byte_order_mark(file))
        return lambda traces, item, _: table.rows(
            item, [_csv_values(trace, names, acceptance, tokenizer) for trace in traces]
        )
    if has_several:
        return lambda traces, item, number: _format_outputs(traces, item, args.output_format, number)
    return lambda traces, item, _: _format_output(traces, item, args.output_format, acceptance) + "\n"


def _csv_values(
    trace: Trace, names: Sequence[str], acceptance: Acceptance | None, class_tokenizer: Tokenizer | None
) -> list[str]:
    """Return the cells of an output under these names; an empty source has no numbers, as nothing was decoded.

    With a tokenizer, the class of the output has a cell of its own, and "output" is the tags.
    """
    accepted = "" if acceptance is None else encode_json(acceptance.accepts(trace)).decode()
    if not trace.source:
        return [str(trace.rank) if name == "rank" else accepted if name == "accepted" else "" for name in names]
    values = {
        "rank": str(trace.rank),
        "output": trace.output,
        "log_probability": f"{trace.score:.6f}",
        "probability": f"{exp(trace.score):.6g}",
        "confidence": format_confidence(trace),
        "share": "" if trace.probability is None else f"{trace.probability:.6g}",
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
    is_accepted = acceptance is None or acceptance.accepts(trace)
    match kind:
        case "text":
            return escape_text(trace.output, tabs=False) if is_accepted else ""
        case "tsv":
            cells = [
                escape_text(trace.text),
                escape_text(trace.output),
                f"{trace.score:.6f}",
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
    """Return one of several outputs as TSV: number, rank, share of the list, log-probability, output, source.

    A sample has its own probability instead of a share.
    """
    probability = trace.probability if trace.probability is not None else exp(trace.score)
    numbers = f"{number}\t{trace.rank}\t{probability:.6f}\t{trace.score:.6f}"
    return f"{numbers}\t{escape_text(trace.output)}\t{escape_text(trace.text)}"


def _format_error(item: InputLine) -> str:
    """Return the error of a bad line as JSON."""
    assert isinstance(item, BadLine)
    return encode_json({"output": None, "error": str(item)}).decode()
