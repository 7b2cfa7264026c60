"""Arguments of the subcommand predict, their checks, and the predictor with the options of the command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from pellucid.cli.cluster_flags import OutputFlags
from pellucid.cli.search_flags import (
    FloatFlag,
    MoreRuns,
    PathFlag,
    RunFolder,
    SearchFlags,
    apply_search_flags,
    check_nbest,
    read_lexicon,
)
from pellucid.config.settings import Device, Format
from pellucid.errors import ConfigError

if TYPE_CHECKING:
    from pellucid.decoding.base_predictor import BasePredictor
    from pellucid.decoding.sampling_config import SamplingConfig

OutputFormat = Literal["text", "csv", "tsv", "jsonl"]
SymbolFlags = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="SYMBOL")]


@dataclass(frozen=True)
class PredictArguments(OutputFlags, SearchFlags):
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
    probability that the output is correct. It is empty if the run has no confidence for this output, and for known
    pairs of a lexicon. With --lexicon, csv also has the column origin: lexicon (known pair), search (decoded by the
    model), or pair_ngram (decoded by the pair n-gram model alone, before the network has a validation)."""
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
    search_tree: bool = False
    """Write all hypotheses of the beam search to each trace. Requires --output-format jsonl; excludes --sample."""
    min_confidence: FloatFlag = None
    """Accept outputs whose confidence, the estimated probability of being correct, is at least this number, 0 to 1. In
    text, other outputs are an empty line; the other formats get the column or field accepted. Excludes --nbest,
    --top-mass and --sample, and options with which outputs have no confidence. evaluate prints thresholds."""
    fill: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = ""
    """Write FILE, a CSV or TSV table with a header, with outputs in the empty cells of this column, and all other cells
    unchanged. The column confidence is added, and with --lexicon the column origin. Rows whose cell is not empty are
    not decoded. With --min-confidence, only outputs with this confidence are written. Excludes --nbest, --top-mass,
    --sample, --prefixes, --text, and other output formats than csv. With --on-bad-line skip, rows that cannot be read
    are written as they are."""
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


def check_arguments(args: PredictArguments, sampling: "SamplingConfig | None") -> None:
    """Check the flags before a run is loaded.

    Args:
        args: Parsed flags.
        sampling: Settings of sampling; None for a search.

    Raises:
        ConfigError: A number is out of range, or options contradict each other.
    """
    check_nbest(args)
    if args.top_mass is not None and not 0 < args.top_mass <= 1:
        raise ConfigError(f"--top-mass: expected a probability above 0 and at most 1, got {args.top_mass}")
    if args.prefix and args.prefixes is not None:
        raise ConfigError("--prefix and --prefixes exclude each other: one prefix for all sources, or one per source")
    if args.min_confidence is not None and not 0 <= args.min_confidence <= 1:
        raise ConfigError(f"--min-confidence: expected a number from 0 to 1, got {args.min_confidence}")
    if args.min_confidence is not None and has_several_outputs(args):
        raise ConfigError(
            "--min-confidence accepts or rejects the best output, and cannot be combined with --nbest, --top-mass or "
            "--sample"
        )
    _check_text_flags(args)
    _check_fill_flags(args)
    if args.on is not None and (flag := _first_given({"--text": args.text, "--fill": bool(args.fill)})):
        raise ConfigError(f"--on ray writes one output per line or row: it excludes {flag}")
    if args.search_tree and (args.output_format != "jsonl" or sampling is not None):
        raise ConfigError("--search-tree requires --output-format jsonl and cannot be combined with --sample")


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
        "--search-tree": args.search_tree,
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
    }
    if args.fill and (flag := _first_given(excluded)):
        raise ConfigError(f"--fill writes the rows of FILE with one output in each empty cell: it excludes {flag}")


def has_several_outputs(args: PredictArguments) -> bool:
    """Return whether several outputs per source are requested.

    Args:
        args: Parsed flags.
    """
    return (args.nbest, args.top_mass, args.sample) != (None, None, None)


def configure_predictor(predictor: "BasePredictor", args: PredictArguments) -> "BasePredictor":
    """Return the predictor with the settings and options of the command line.

    Args:
        predictor: Predictor of the runs.
        args: Parsed flags.

    Raises:
        InputError: A setting or an option does not fit the model, or the lexicon cannot be read.
    """
    from pellucid.decoding.options import DecodingOptions

    predictor = apply_search_flags(predictor, args)
    lexicon = read_lexicon(predictor, args)
    return predictor.with_options(
        DecodingOptions(
            prefix=args.prefix,
            forbidden=args.forbid,
            required=args.require,
            lexicon=lexicon,
            search_tree=args.search_tree,
        )
    )


def list_length(predictor: "BasePredictor", args: PredictArguments) -> int:
    """Return the maximum length of an n-best list: --nbest, or else the beam size.

    Args:
        predictor: Predictor of the runs.
        args: Parsed flags.
    """
    beam_size = predictor.config.search.beam_size if predictor.autoregressive else 1
    return beam_size if args.nbest is None else args.nbest
