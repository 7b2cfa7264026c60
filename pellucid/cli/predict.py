"""Subcommand predict: pellucid predict RUN [RUN ...] [FILE|-] [--output-format text|csv|tsv|jsonl]"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.cluster_flags import OUTPUT_INDEPENDENT, absolute_paths, check_output_flags, output_to_file
from pellucid.cli.csv_output import CsvOutput, byte_order_mark
from pellucid.cli.input_flags import file_data_config
from pellucid.cli.messages import print_message
from pellucid.cli.output_files import check_output_files
from pellucid.cli.predict_arguments import PredictArguments, check_arguments, configure_predictor
from pellucid.cli.predict_fill import FilledTable, FillOptions, RowReader, check_rows, write_filled_table
from pellucid.cli.predict_lines import SourceDecoder, SourceInput, read_acceptance, result_columns
from pellucid.cli.predict_text import write_decoded_text
from pellucid.cli.search_flags import needs_pair_ngram, sampling_config
from pellucid.cli.sources import DecodingNotes, LineChunk, lexicon_count_message, read_chunks, split_paths
from pellucid.config.settings import Device
from pellucid.data.examples import InputFormat, input_file_format, parse_sources, read_first_lines, read_sources
from pellucid.data.headers import with_header
from pellucid.data.readers import TableCells
from pellucid.errors import ConfigError

if TYPE_CHECKING:
    from pellucid.cli.backend import PredictionBackend
    from pellucid.decoding.base_predictor import BasePredictor


class PredictCommand(NamedTuple):
    """Arguments of predict as the machines of a cluster get them (`LineCommand`)."""

    args: PredictArguments
    """Parsed flags, with absolute paths."""
    runs: tuple[Path, ...]
    """Run folders, as absolute paths."""
    has_classes: bool
    """Whether classes and tags have a column each."""

    @property
    def device(self) -> Device:
        """Device for decoding."""
        return self.args.device

    @property
    def lexicon(self) -> Path | None:
        """File of --lexicon; None without one."""
        return self.args.lexicon

    @property
    def needs_pair_ngram(self) -> bool:
        """False if the flags exclude the pair n-gram model."""
        return needs_pair_ngram(self.args)

    def configure(self, predictor: "BasePredictor") -> "BasePredictor":
        """Return the predictor with the options of the command line.

        Args:
            predictor: Predictor of the runs.
        """
        return configure_predictor(predictor, self.args)

    def build_decoder(self, predictor: "BasePredictor", cells: TableCells, names: Sequence[str]) -> SourceDecoder:
        """Return the decoder of a block.

        Args:
            predictor: Predictor of the runs.
            cells: Cells of the lines of the block.
            names: Names of the columns of the input, whose row is written already.
        """
        table = None
        if self.args.output_format == "csv":
            table = CsvOutput(cells, result_columns(self.args, self.has_classes), names=names)
        return SourceDecoder(predictor, self.args, table, self.has_classes)


def main(arguments: list[str]) -> int:
    """Decode to standard output or a file, and write remarks on the input to standard error.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument, a run folder or an input line is invalid. The outputs of earlier lines are written to
            standard output; a file is not written.
    """
    args = parse_arguments(PredictArguments, "predict", arguments)
    check_arguments(args, sampling_config(args))
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.cli.backend import PredictionBackend

    runs, file = split_paths(args.run, args.more, "predict")
    check_output_flags(args, file)
    check_output_files(args, {"output": ""})
    needed_by = _option_of_pytorch(args, file)
    device = args.device if args.on is None else "cpu"  # of this process, which decodes nothing
    backend = PredictionBackend(
        runs, device, lambda each: configure_predictor(each, args), needed_by, needs_pair_ngram(args)
    )
    if args.on is not None:
        _predict_on_cluster(backend, args, file)
        return 0
    with output_to_file(args.output):
        if args.text:
            _predict_text(backend.predictor, args, file)
        elif args.fill:
            _fill_column(backend, args, file)
        else:
            _predict_lines(backend, args, file)
    return 0


def _predict_lines(backend: "PredictionBackend", args: PredictArguments, file: Path) -> None:
    """Decode one source per line to standard output."""
    sources = SourceInput(backend.predictor, args, file)
    decoder = _build_decoder(backend.predictor, sources, sys.stdout.isatty())
    for chunk in sources.chunks():
        for lines in decoder.decode_lines(backend.for_sources(decoder.count_sources(chunk)), chunk):
            sys.stdout.write(lines)
        sys.stdout.flush()
    _report_lines(decoder, sources, backend.predictor)
    sources.check_prefixes()


def _predict_on_cluster(backend: "PredictionBackend", args: PredictArguments, file: Path) -> None:
    """Decode one source per line on a Ray cluster, to a file."""
    from pellucid.cli.fingerprint import command_fingerprint, file_checksum
    from pellucid.cli.line_blocks import ClusterOutput, decode_on_cluster

    sources = SourceInput(backend.predictor, args, file)
    decoder = _build_decoder(backend.predictor, sources, escape=False)
    runs = tuple(run.absolute() for run in backend.runs)
    options = [field.name for field in fields(args) if field.name not in OUTPUT_INDEPENDENT]
    command = PredictCommand(absolute_paths(args), runs, decoder.class_tokenizer is not None)
    assert args.output is not None
    output = ClusterOutput(args.output, {**command_fingerprint(args, options, runs), "the input": file_checksum(file)})
    decode_on_cluster(command, _all_chunks(sources), decoder, backend, output)
    _report_lines(decoder, sources, backend.predictor)


def _all_chunks(sources: SourceInput) -> Iterator[LineChunk]:
    """Yield the lines in chunks, and check at the end that no prefix remains."""
    yield from sources.chunks()
    sources.check_prefixes()


def _build_decoder(predictor: "BasePredictor", sources: SourceInput, escape: bool) -> SourceDecoder:
    """Return the decoder of an input; `escape` is True for a terminal."""
    args, table, has_classes = sources.args, None, bool(sources.data.class_column)
    if args.output_format == "csv":
        bom = byte_order_mark(sources.file)
        table = CsvOutput(sources.cells, result_columns(args, has_classes), escape, bom)
    return SourceDecoder(predictor, args, table, has_classes)


def _report_lines(decoder: SourceDecoder, sources: SourceInput, predictor: "BasePredictor") -> None:
    """Print the notes on the input, and how many outputs are accepted."""
    _report_notes(decoder.notes, predictor, sources.args)
    if decoder.acceptance is not None:
        print_message(decoder.acceptance.describe(sources.args.output_format == "text"))
    sources.report_names()


def _predict_text(predictor: "BasePredictor", args: PredictArguments, file: Path) -> None:
    """Decode the words of running text to standard output."""
    from pellucid.data.text_words import WordRule
    from pellucid.decoding.text_decoder import TextDecoder

    if not predictor.autoregressive:
        raise predictor.unsupported_error("--text")
    read_acceptance(predictor, args)  # raises an error that names the flag, if outputs have no confidence
    template = "{output}" if args.word_template is None else args.word_template
    decoder = TextDecoder(predictor, WordRule(args.word_pattern), template, args.min_confidence, args.keep_case)
    notes = DecodingNotes(args.require)
    write_decoded_text(decoder, file, args.output_format, args.on_bad_line, notes)
    _report_notes(notes, predictor, args)


def _fill_column(backend: "PredictionBackend", args: PredictArguments, file: Path) -> None:
    """Fill the empty cells of a column, and write the table to standard output."""
    predictor = backend.predictor
    read_acceptance(predictor, args)  # raises an error that names the flag, if outputs have no confidence
    data, cells = file_data_config(predictor.config.data, args, file, args.input_format), TableCells()
    if data.class_column:
        raise ConfigError(
            "--fill fills one column, and this model predicts classes and tags for two (data.class_column): "
            "--output-format csv adds both columns"
        )
    input_format = InputFormat(args.input_format, args.header, predictor.vocabularies.columns, cells=cells)
    format = input_file_format(None if str(file) == "-" else file, data, input_format)
    table = FilledTable(cells, FillOptions(args.fill, args.min_confidence, args.lexicon is not None), file, format)
    bad_rows = None
    if file.is_file():
        header_data, source_format = with_header(data, args.header), input_format._replace(cells=None)
        check_rows(read_sources(file, header_data, source_format), file, args.on_bad_line)
        if args.on_bad_line == "skip":
            bad_rows = RowReader(file, read_first_lines(file, header_data, source_format))
    elif args.on_bad_line == "skip":
        raise ConfigError("--fill with --on-bad-line skip reads FILE twice: give a regular file, not standard input")
    notes = DecodingNotes(args.require)
    chunks = read_chunks(file, data, input_format, read_sources, parse_sources)
    write_filled_table(table, chunks, backend, notes, bad_rows)
    _report_notes(notes, predictor, args)


def _report_notes(notes: DecodingNotes, predictor: "BasePredictor", args: PredictArguments) -> None:
    """Print how many sources the lexicon decoded, and the notes on the input."""
    if predictor.options.lexicon is not None:
        print_message(lexicon_count_message(notes.num_from_lexicon, predictor.options.lexicon, args.lexicon))
    known_symbols = () if args.text else predictor.vocabularies.source.ids
    notes.report(bool(predictor.config.data.features_column) and not args.text, known_symbols)


def _option_of_pytorch(args: PredictArguments, file: Path) -> str:
    """Return the option that needs PyTorch, or with which loading it is worth it; "" for none."""
    from pellucid.cli.backend import is_worth_loading

    if args.sample is not None:
        return "--sample"
    if args.require:
        return "--require"
    return "--text" if args.text and is_worth_loading(file) else ""
