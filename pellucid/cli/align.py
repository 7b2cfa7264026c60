"""Subcommand align: pellucid align [RUN ...] [FILE|-] [--output-format tsv|jsonl|phonetisaurus|pharaoh]"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
import tyro

from pellucid.alignment.pair_aligner import align_symbols
from pellucid.alignment.types import (
    EPSILON,
    SEPARATOR,
    Alignment,
    AlignmentMethod,
    ChunkLimits,
    ChunkSize,
    no_alignment_reason,
)
from pellucid.cli.arguments import parse_arguments
from pellucid.cli.input_flags import PairFileFlags, file_data_config
from pellucid.cli.messages import print_message
from pellucid.cli.score import PairFormat
from pellucid.cli.sources import (
    MAX_LISTED_PER_NOTE,
    DecodingNotes,
    InputLine,
    check_path_order,
    escape_text,
    first_bad_line,
    is_pair,
    is_run,
    read_chunks,
)
from pellucid.config.settings import DataConfig, Device
from pellucid.data.examples import Example, InputFormat, pair_config, parse_pairs, read_pairs
from pellucid.data.tokenizers import build_tokenizers, symbol_kind_warnings
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import ConfigError, DataError, InputError, count_noun

if TYPE_CHECKING:
    from pellucid.decoding.predictor import Predictor

AlignmentFormat = Literal["tsv", "jsonl", "phonetisaurus", "pharaoh"]
SymbolKind = Annotated[str, tyro.conf.arg(metavar="KIND")]
SYMBOL_ESCAPES = str.maketrans({"\\": r"\\", SEPARATOR: r"\x7c", " ": r"\x20"})
"""Escapes of the characters with a meaning in the columns of aligned symbols."""


@dataclass(frozen=True)
class AlignArguments(PairFileFlags):
    """Align the source symbols of pairs with their target symbols, in order (monotone, many-to-many). Each input line
    has exactly one output line; a blank line has an empty one. For a pair without an alignment, tsv has empty columns,
    jsonl has no chunks, and the other formats have an empty line.

    Without RUN, a many-to-many model is fitted to the pairs of FILE by expectation-maximization. With RUN, the
    alignment is the best monotone path through the attention weights with which the model writes the given target.
    """

    paths: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="[RUN...] [FILE|-]")]
    """Folder of a trained run, or of several as an ensemble, or none; then the pairs: a file with the columns of the
    training file (without RUN: source and target, unless columns are selected), or - for standard input (default with
    RUN)."""
    method: AlignmentMethod = "auto"
    """Method. em: without RUN, expectation-maximization on the pairs of FILE, which is read to its end first; with RUN,
    the pair n-gram model of the run, whose chunks have their own limits. attention: the attention of RUN. auto:
    attention with RUN, else em."""
    output_format: AlignmentFormat = "tsv"
    """Output format. tsv: source, target, the chunks of both sides, and score ("|" joins the symbols of a chunk, "_" is
    no symbol; these characters, spaces and backslashes in symbols are escaped); jsonl: an object with the symbols, the
    chunks as [source start, source stop, target start, target stop], and the score; phonetisaurus: a corpus of
    phonetisaurus-align, "t|h}TH e}_"; pharaoh: pairs of positions, "0-0 1-0"."""
    input_format: PairFormat = "auto"
    """Format of the input; auto: from the file name, else the format of the training file, else TSV (also of a run that
    was trained on two parallel files)."""
    max_source: ChunkSize = ChunkLimits().max_source
    """Maximum number of source symbols of a chunk, 1 to 16."""
    max_target: ChunkSize = ChunkLimits().max_target
    """Maximum number of target symbols of a chunk, 1 to 16."""
    insertions: bool = True
    """Allow target symbols without a source symbol."""
    deletions: bool = True
    """Allow source symbols without a target symbol."""
    many_to_many: bool = False
    """Allow chunks with several source symbols and several target symbols; otherwise one side has one at most."""
    source_symbols: SymbolKind = ""
    """Symbols of sources: characters (default), ipa (phones of texts in IPA), words, or parts between a separator. With
    RUN, those of the training."""
    target_symbols: SymbolKind = ""
    """Symbols of targets, in the same way."""
    device: Device = "cpu"
    """Device for RUN: cpu, cuda (one GPU), or auto (a GPU if there is one)."""

    @property
    def limits(self) -> ChunkLimits:
        """Limits of the chunks."""
        return ChunkLimits(self.max_source, self.max_target, self.insertions, self.deletions, self.many_to_many)


class AlignmentInput(NamedTuple):
    """Runs and input of a command line."""

    runs: list[Path]
    file: Path


def main(arguments: list[str]) -> int:
    """Write the alignments of pairs to standard output, and remarks on the input to standard error.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument, a run folder or an input line is invalid. With RUN, the alignments of earlier lines are
            written.
    """
    args = parse_arguments(AlignArguments, "align", arguments)
    runs, file = _split_paths(args.paths)
    _check_arguments(args, runs)
    writer = AlignmentWriter(args)
    if runs:
        _align_with_run(args, runs, file, writer)
    else:
        _align_by_em(args, file, writer)
    return 0


def _split_paths(paths: Sequence[Path]) -> AlignmentInput:
    """Return the runs and the input of a command line: a last path that is not a run folder is the input."""
    if not paths:
        raise InputError("a file of pairs is required: pellucid align [RUN] FILE (- is standard input)")
    check_path_order(paths, "align")
    if is_run(paths[-1]):
        return AlignmentInput(list(paths), Path("-"))
    return AlignmentInput(list(paths[:-1]), paths[-1])


def _check_arguments(args: AlignArguments, runs: Sequence[Path]) -> None:
    """Raise `InputError` for contradicting options."""
    if not runs and args.method == "attention":
        raise ConfigError("--method attention requires the folder of a run: pellucid align RUN FILE")
    if runs and (args.source_symbols or args.target_symbols):
        raise ConfigError("--source-symbols and --target-symbols split pairs without RUN; a run has its own tokenizers")
    if "subwords" in (args.source_symbols, args.target_symbols):
        raise ConfigError(
            "subwords are known only to a trained run: give its folder (pellucid align RUN FILE), and leave out "
            "--source-symbols and --target-symbols"
        )
    if runs and args.method == "em" and args.limits != ChunkLimits():
        raise ConfigError(
            "the pair n-gram model of a run has its own chunks: --max-source, --max-target, --no-insertions, "
            "--no-deletions and --many-to-many apply to --method attention, and without RUN"
        )


class AlignmentWriter:
    """Writes one line per input line, which `notes` has counted, and counts the pairs without an alignment."""

    def __init__(self, args: AlignArguments) -> None:
        """Set the format, and start all counts at zero.

        Args:
            args: Parsed flags.
        """
        self.args = args
        self.notes = DecodingNotes()
        self.num_pairs = 0
        self.num_unaligned = 0
        self.reasons: list[str] = []
        """Reasons of the first pairs without an alignment."""

    def write(self, item: InputLine, alignment: Alignment | None, reason: str = "") -> None:
        """Write the output line of an input line.

        Args:
            item: Input line.
            alignment: Its alignment; None for a blank or bad line, and for a pair without an alignment.
            reason: Why a pair without an alignment has none.

        Raises:
            DataError: A symbol cannot be written in the format, unless such lines are skipped.
        """
        line = ""
        if is_pair(item):
            self.num_pairs += 1
            line, reason = self._format(item, alignment, reason)
            if reason:
                self.num_unaligned += 1
                if len(self.reasons) < MAX_LISTED_PER_NOTE:
                    self.reasons.append(f"output line {self.notes.num_lines:,}: {reason}")
        else:
            reason = "" if isinstance(item, Example) else str(item)
        sys.stdout.write((line or self._empty_line(item, reason)) + "\n")

    def _format(self, item: Example, alignment: Alignment | None, reason: str) -> tuple[str, str]:
        """Return the line of an alignment and ""; or "" and the reason for which there is none."""
        if alignment is None:
            return "", reason
        match self.args.output_format:
            case "tsv":
                return _format_tsv(item, alignment), ""
            case "jsonl":
                return alignment.to_json(), ""
            case "pharaoh":
                return alignment.to_pharaoh(), ""
        return self._format_for_phonetisaurus(alignment)

    def _format_for_phonetisaurus(self, alignment: Alignment) -> tuple[str, str]:
        """Return the line of an alignment and ""; or, if bad lines are skipped, "" and why it cannot be written."""
        try:
            return alignment.to_phonetisaurus(), ""
        except DataError as error:
            if self.args.on_bad_line == "skip":
                return "", str(error)
            raise DataError(
                f"output line {self.notes.num_lines:,}: {error}; --output-format tsv or jsonl can write it, and "
                "--on-bad-line skip leaves such lines empty"
            ) from None

    def _empty_line(self, item: InputLine, reason: str) -> str:
        """Return the line of an input line without alignment."""
        match self.args.output_format:
            case "tsv":
                texts = item[:2] if isinstance(item, Example) else ("", "")
                return "\t".join([*map(escape_text, texts), "", "", ""])
            case "jsonl":
                return encode_json({"chunks": None, **({"error": reason} if reason else {})}).decode()
        return ""

    def report(self, has_features: bool) -> None:
        """Print the notes on the input on standard error.

        Args:
            has_features: Whether the model was trained with features.
        """
        self.notes.report(has_features)
        if self.num_unaligned:
            print_message(
                f"{self.num_unaligned:,} of {count_noun(self.num_pairs, 'pair')} without an alignment, each with an "
                "empty output"
            )
        for reason in self.reasons:
            print_message(reason)
        if self.num_unaligned > len(self.reasons):
            print_message(f"... and {self.num_unaligned - len(self.reasons):,} more")


def _align_by_em(args: AlignArguments, file: Path, writer: AlignmentWriter) -> None:
    """Align all pairs of a file by a model that is fitted to them."""
    kinds = {"source_symbols": args.source_symbols, "target_symbols": args.target_symbols}
    data = msgspec.structs.replace(DataConfig(), **{name: kind for name, kind in kinds.items() if kind})
    data = file_data_config(data, args, file, args.input_format)
    tokenizers = build_tokenizers(data)
    items = list[InputLine]()
    for chunk in read_chunks(file, data, InputFormat(args.input_format, args.header), read_pairs, parse_pairs):
        _check_bad_lines(args, chunk, first_bad_line(chunk))
        items += chunk
    examples = [item for item in items if is_pair(item)]
    sources, targets = ([getattr(example, side) for example in examples] for side in ("source", "target"))
    for warning in symbol_kind_warnings(sources, targets, data):
        print_message(f"warning: {warning}")
    pairs = [tokenizers.split_pair(example.source, example.target) for example in examples]
    alignments = iter(zip(pairs, align_symbols(pairs, args.limits), strict=True))
    for item in items:
        writer.notes.count_line(item, None)
        pair, alignment = next(alignments) if is_pair(item) else (([], []), None)
        writer.write(item, alignment, no_alignment_reason(len(pair[0]), len(pair[1]), args.limits))
    writer.report(has_features=False)


def _align_with_run(args: AlignArguments, runs: Sequence[Path], file: Path, writer: AlignmentWriter) -> None:
    """Align the pairs of a file, in chunks, by the attention or by the pair n-gram model of a run."""
    # Slow imports follow the checks, so that a wrong argument is reported at once.
    from pellucid.decoding.transducer import require_transducer
    from pellucid.model.device import use_threads
    from pellucid.run_folder.predictor_loader import load

    by_attention = args.method != "em"
    predictor = load(runs[0] if len(runs) == 1 else list(runs), args.device, needs_pair_ngram=not by_attention)
    use_threads(predictor.config.threads)
    if by_attention:
        predictor.check_alignment()
    else:
        require_transducer(predictor, "--method em").check_pair_ngram_alignment()
    data = file_data_config(pair_config(predictor.config.data), args, file, args.input_format)
    input_format = InputFormat(args.input_format, args.header, predictor.vocabularies.columns)
    align = partial(_align_by_attention, limits=args.limits) if by_attention else _align_by_pair_ngram
    for chunk in read_chunks(file, data, input_format, read_pairs, parse_pairs):
        bad_index = first_bad_line(chunk) if args.on_bad_line == "stop" else None
        align(predictor, chunk[:bad_index], writer)
        sys.stdout.flush()
        _check_bad_lines(args, chunk, bad_index)
    writer.report(bool(data.features_column))


def _align_by_attention(
    predictor: "Predictor", items: Sequence[InputLine], writer: AlignmentWriter, limits: ChunkLimits
) -> None:
    """Write the alignments of input lines by the attention of a model."""
    from pellucid.decoding.trace_alignment import align_trace

    traces = iter(predictor.score_examples([item for item in items if is_pair(item)]))
    for item in items:
        trace = next(traces) if is_pair(item) else None
        writer.notes.count_line(item, trace)
        if trace is None:
            writer.write(item, None)
        else:
            num_source, num_target = len(trace.source) - trace.num_features, len(trace.symbols)
            writer.write(item, align_trace(trace, limits), no_alignment_reason(num_source, num_target, limits))


def _align_by_pair_ngram(predictor: "Predictor", items: Sequence[InputLine], writer: AlignmentWriter) -> None:
    """Write the alignments of input lines by the pair n-gram model of a run."""
    from pellucid.decoding.transducer import require_transducer

    transducer = require_transducer(predictor, "--method em")
    alignments = iter(transducer.align_by_pair_ngram([item for item in items if is_pair(item)]))
    for item in items:
        writer.notes.count_line(item, None)
        alignment = next(alignments) if is_pair(item) else None
        writer.write(item, alignment, "the pair n-gram model cannot write this target")


def _check_bad_lines(args: AlignArguments, chunk: Sequence[InputLine], bad_index: int | None) -> None:
    """Raise `DataError` for a bad line of a chunk, unless bad lines are skipped."""
    if bad_index is not None and args.on_bad_line == "stop":
        raise DataError(f"{chunk[bad_index]} (--on-bad-line skip writes an empty output for such lines)")


def _format_tsv(item: Example, alignment: Alignment) -> str:
    """Return the columns of an alignment."""
    sides = list[str]()
    for chunks in zip(*alignment.symbols, strict=True) if alignment.chunks else ((), ()):
        sides.append(" ".join(SEPARATOR.join(map(_escape_symbol, symbols)) or EPSILON for symbols in chunks))
    return "\t".join([*map(escape_text, item[:2]), *sides, f"{alignment.score:.6f}"])


def _escape_symbol(symbol: str) -> str:
    """Return a symbol in which the characters with a meaning in the columns of aligned symbols are escaped."""
    return r"\x5f" if symbol == EPSILON else escape_text(symbol.translate(SYMBOL_ESCAPES))
