"""Search flags of the subcommands predict and evaluate, and types of flags that they share with score."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from tyro.conf import Positional, arg

from pellucid.cli.input_flags import FileFlags
from pellucid.cli.messages import print_message
from pellucid.config.settings import MAX_BEAM_SIZE, SearchConfig
from pellucid.errors import ArgumentError, ConfigError

if TYPE_CHECKING:
    from pellucid.data.examples import Example
    from pellucid.decoding.base_predictor import BasePredictor, Prefixes
    from pellucid.decoding.lexicon import Lexicon
    from pellucid.decoding.sampling_config import SamplingConfig
    from pellucid.decoding.trace import Trace

PredictorT = TypeVar("PredictorT", bound="BasePredictor")
"""Type of the predictor to which flags are applied."""
RunFolder = Annotated[Path, Positional, arg(metavar="RUN")]
MoreRuns = Annotated[tuple[Path, ...], Positional, arg(metavar="[RUN ...] [FILE|-]")]
IntegerFlag = Annotated[int | None, arg(metavar="N")]
FloatFlag = Annotated[float | None, arg(metavar="X")]
SwitchFlag = Annotated[bool | None, arg(metavar="")]
PathFlag = Annotated[Path | None, arg(metavar="FILE")]
LengthNormalizationFlag = Annotated[Literal["none", "average", "gnmt"] | None, arg(metavar="{none,average,gnmt}")]
SAMPLING_FLAGS = ("temperature", "top_k", "top_p", "seed")
"""Flags that require --sample."""
SEARCH_ONLY_FLAGS = (
    "beam_size",
    "nbest",
    "top_mass",
    "length_normalization",
    "length_penalty_alpha",
    "coverage_penalty",
    "pair_ngram",
)
"""Flags of beam search, which --sample excludes."""


@dataclass(frozen=True, kw_only=True)
class SearchFlags(FileFlags):
    """Flags that override the search settings of a run, sampling flags, and flags for reading FILE."""

    beam_size: IntegerFlag = None
    """Beam size, 1 (greedy search) to 1,024. Default: search.beam_size of the run, which is 5 unless it was set."""
    nbest: IntegerFlag = None
    """Number of outputs per source, best first, 1 to 1,024. They come from the beam; if N is greater than its size, the
    beam has the size N. If N is at most the beam size, the first output is the same as without --nbest."""
    sample: IntegerFlag = None
    """Sample this number of outputs per source, 1 to 1,024, instead of a search."""
    temperature: FloatFlag = None
    """Sampling temperature, above 0: below 1 favors probable symbols, above 1 flattens the distribution. Requires
    --sample. Default: 1."""
    top_k: IntegerFlag = None
    """Top-k sampling: sample each symbol from the k most probable ones; 0 = no limit. Requires --sample. Default: 0.
    """
    top_p: FloatFlag = None
    """Nucleus (top-p) sampling: sample each symbol from the smallest set of most probable ones with this total
    probability, above 0 and at most 1. Requires --sample. Default: 1, no limit."""
    seed: IntegerFlag = None
    """Random seed of the samples, from 0. Requires --sample. Default: 1."""
    lexicon: PathFlag = None
    """File of known pairs. A header with the names of the source and target columns of the training file selects them;
    columns that were selected by number are read by number if the file has as many columns as the training file.
    Otherwise the file has two columns without header, source and target. --header does not apply to it. A source of the
    file gets its targets there, unless they violate a constraint; the model decodes all others."""
    length_normalization: LengthNormalizationFlag = None
    """Divide the log-probability of a hypothesis by nothing (none), its number of symbols including the end symbol
    (average), or the GNMT length penalty (gnmt). Default: search.length_normalization of the run."""
    length_penalty_alpha: FloatFlag = None
    """Exponent alpha of the gnmt length penalty, 0 to 5. Default: search.length_penalty_alpha of the run."""
    coverage_penalty: FloatFlag = None
    """Weight of the penalty on hypotheses that attend little to some source positions; 0 = off. Default:
    search.coverage_penalty of the run."""
    pair_ngram: SwitchFlag = None
    """Rank outputs by the network and by the pair n-gram model of the run, if there is one (--pair-ngram), or by the
    network alone (--no-pair-ngram). Default: search.pair_ngram of the run."""
    max_length: IntegerFlag = None
    """Maximum output length in symbols; 0: 1.5 times the longest training target plus 10. At most 1,000, or 10 times
    the longest training target if that is more. Default: search.max_length of the run."""
    min_length: IntegerFlag = None
    """Minimum output length in symbols; 0 = no minimum. Default: search.min_length of the run."""
    max_length_ratio: FloatFlag = None
    """Maximum output length as a multiple of the source length; the smaller of this and --max-length applies; 0 = off.
    Default: search.max_length_ratio of the run."""
    max_length_offset: IntegerFlag = None
    """Number of symbols added to the maximum of --max-length-ratio; may be negative. Default: search.max_length_offset
    of the run."""
    min_length_ratio: FloatFlag = None
    """Minimum output length as a multiple of the source length; the larger of this and --min-length applies; 0 = off.
    Default: search.min_length_ratio of the run."""
    min_length_offset: IntegerFlag = None
    """Number of symbols added to the minimum of --min-length-ratio; may be negative. Default: search.min_length_offset
    of the run."""


def needs_pair_ngram(flags: SearchFlags) -> bool:
    """Return whether flags leave the choice of outputs to the pair n-gram model, if the run has one.

    Args:
        flags: Parsed flags.
    """
    from pellucid.decoding.hypothesis_scorer import allows_pair_ngram_ranking

    return flags.sample is None and allows_pair_ngram_ranking(
        msgspec.structs.replace(SearchConfig(), **_changes(flags))
    )


def apply_search_flags(predictor: PredictorT, flags: SearchFlags) -> PredictorT:
    """Return the predictor with the search settings of the flags that are given.

    Args:
        predictor: Predictor of a run.
        flags: Parsed flags.

    Returns:
        Predictor with the new settings; the same one if no such flag is given.

    Raises:
        ConfigError: A value is out of range, the task has no such setting, it has no effect, or settings contradict
            each other; the message names the flags.
    """
    changes = _changes(flags)
    if not changes:
        return predictor
    try:
        return predictor.with_search(msgspec.structs.replace(predictor.config.search, **changes))
    except ConfigError as error:
        message = str(error)
        for name in changes:
            message = re.sub(rf"\bsearch\.{name}\b", f"--{name.replace('_', '-')}", message)
        raise ConfigError(message) from error


def _changes(flags: SearchFlags) -> dict[str, Any]:
    """Return the search settings of the flags that are given."""
    names = [field.name for field in msgspec.structs.fields(SearchConfig) if field.name != "batch_size"]
    return {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}


def decode_nbest(
    predictor: "BasePredictor",
    examples: "Sequence[Example]",
    count: int,
    top_mass: float = 1.0,
    prefixes: "Prefixes" = None,
) -> "list[list[Trace]]":
    """Return the n-best list of each example (`Predictor.nbest_examples`).

    Args:
        predictor: Predictor.
        examples: Examples; their targets are ignored.
        count: Maximum length of each list, 1 to 1,024.
        top_mass: Cut each list when its outputs reach this probability mass, above 0 and at most 1; 1 by default.
        prefixes: Target prefix of each example; None for the prefix of the predictor's options.

    Returns:
        One list of traces per example, the best first.

    Raises:
        ConfigError: The task gives one output per source; the message names --nbest.
        InputError: As in `Predictor.nbest_examples`.
    """
    with _named_by_flag("count", "--nbest"):
        return predictor.nbest_examples(examples, count, top_mass, prefixes)


def decode_samples(
    predictor: "BasePredictor",
    examples: "Sequence[Example]",
    sampling: "SamplingConfig",
    first: int = 0,
    prefixes: "Prefixes" = None,
) -> "list[list[Trace]]":
    """Return samples of the output of each example (`Predictor.sample_examples`).

    Args:
        predictor: Predictor.
        examples: Examples; their targets are ignored.
        sampling: Number of samples, temperature, filters and seed.
        first: Number of the first example within the whole input, from 0; it selects the random numbers.
        prefixes: Target prefix of each example; None for the prefix of the predictor's options.

    Returns:
        One list of traces per example.

    Raises:
        ConfigError: The task is not sampled from; the message names --sample.
        InputError: As in `Predictor.sample_examples`.
    """
    with _named_by_flag("sample_examples", "--sample"):
        return predictor.sample_examples(examples, sampling, first, prefixes)


def check_decoding(
    predictor: "BasePredictor", sampling: "SamplingConfig | None", nbest: int, has_example_prefixes: bool
) -> None:
    """Refuse options of decoding that fit no source, before the first source is read.

    Args:
        predictor: Predictor.
        sampling: Settings of sampling; None for a search.
        nbest: Maximum number of outputs per source of a search.
        has_example_prefixes: True if each output has its own prefix, in place of that of the predictor's options.

    Raises:
        InputError: As in `Predictor.check_search` or `Predictor.check_sampling`; the message names the flag.
    """
    if sampling is None:
        with _named_by_flag("count", "--nbest"):
            predictor.check_search(nbest, has_example_prefixes)
    else:
        with _named_by_flag("sample_examples", "--sample"):
            predictor.check_sampling(has_example_prefixes)


@contextmanager
def _named_by_flag(name: str, flag: str) -> Iterator[None]:
    """Name the flag in a `ConfigError` that begins with the name of an argument or method."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(re.sub(rf"^{name}:", f"{flag}:", str(error))) from error


def check_nbest(flags: SearchFlags) -> None:
    """Raise `ConfigError` if --nbest is below 1 or above `MAX_BEAM_SIZE`.

    Args:
        flags: Parsed flags.
    """
    if flags.nbest is not None and not 1 <= flags.nbest <= MAX_BEAM_SIZE:
        raise ConfigError(f"--nbest: expected 1 to {MAX_BEAM_SIZE:,} outputs, the largest beam size, got {flags.nbest}")


def read_lexicon(predictor: "BasePredictor", flags: SearchFlags) -> "Lexicon | None":
    """Read the file of --lexicon, and print a message for each skipped line and each note.

    Args:
        predictor: Predictor, whose columns, tokenizers and length limits apply to the pairs.
        flags: Parsed flags; --on-bad-line applies.

    Returns:
        Lexicon, or None if --lexicon is not given.

    Raises:
        DataError: The file cannot be read, contains no pair or has other columns, or a line is bad (unless bad lines
            are skipped).
        ConfigError: The task has no lexicons.
    """
    from pellucid.decoding.lexicon import Lexicon, load_lexicon
    from pellucid.decoding.options import DecodingOptions

    if flags.lexicon is None:
        return None
    predictor.with_options(DecodingOptions(lexicon=Lexicon({})))  # refused before the file is read
    data = msgspec.structs.replace(predictor.config.data, on_bad_line=flags.on_bad_line)
    lexicon = load_lexicon(flags.lexicon, data, predictor.vocabularies.columns)
    for line in lexicon.bad_lines:
        print_message(f"skipped {line}")
    for note in lexicon.notes:
        print_message(f"note: {note}")
    return lexicon


def sampling_config(flags: SearchFlags) -> "SamplingConfig | None":
    """Return the settings of sampling, or None if --sample is not given.

    Args:
        flags: Parsed flags.

    Raises:
        ConfigError: A value is out of range, a sampling flag is given without --sample, or a flag of beam search with
            it.
    """
    from pellucid.decoding.sampling_config import SamplingConfig

    changes = {name: getattr(flags, name) for name in SAMPLING_FLAGS if getattr(flags, name) is not None}
    if flags.sample is None:
        if changes:
            raise ConfigError(f"--{next(iter(changes)).replace('_', '-')} requires --sample")
        return None
    for name in SEARCH_ONLY_FLAGS:
        if getattr(flags, name, None) is not None:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} controls beam search and cannot be combined with --sample")
    try:
        return SamplingConfig(samples=flags.sample, **changes)
    except ArgumentError as error:
        name, _, reason = str(error).partition(":")
        raise ConfigError(f"--{name.replace('samples', 'sample').replace('_', '-')}:{reason}") from error
