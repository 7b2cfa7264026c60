"""Search flags of every subcommand that decodes."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from tyro.conf import Positional, arg

from pellucid.cli.messages import print_message
from pellucid.config.settings import MAX_BEAM_SIZE, Header, SearchConfig
from pellucid.errors import ArgumentError, ConfigError

if TYPE_CHECKING:
    from pellucid.data.examples import Example
    from pellucid.decoding.constraints import Lexicon
    from pellucid.decoding.predictor import Predictor, Prefixes
    from pellucid.decoding.sampling import SamplingConfig
    from pellucid.decoding.trace import Trace

RunFolder = Annotated[Path, Positional, arg(metavar="RUN")]
MoreRuns = Annotated[tuple[Path, ...], Positional, arg(metavar="[RUN ...] [FILE|-]")]
IntegerFlag = Annotated[int | None, arg(metavar="N")]
FloatFlag = Annotated[float | None, arg(metavar="X")]
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
)
"""Flags of beam search, which --sample excludes."""


@dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """Flags that override the search settings of a run, and sampling flags."""

    beam_size: IntegerFlag = None
    """Beam size, 1 (greedy search) to 1,024. Default: search.beam_size of the run."""
    nbest: IntegerFlag = None
    """Number of outputs per source, best first, at most 1,024. The beam is at least this large."""
    sample: IntegerFlag = None
    """Number of random samples per source, at most 1,024, instead of a search."""
    temperature: FloatFlag = None
    """Sampling temperature. Requires --sample. Default: 1."""
    top_k: IntegerFlag = None
    """Top-k sampling: sample from the k most probable symbols; 0 is no limit. Requires --sample. Default: 0."""
    top_p: FloatFlag = None
    """Nucleus (top-p) sampling: sample from the smallest set of most probable symbols with this total probability.
    Requires --sample."""
    seed: IntegerFlag = None
    """Random seed of the samples. Requires --sample. Default: 1."""
    lexicon: PathFlag = None
    """File of pairs: its sources get its targets, unless they violate a constraint. The model decodes all others."""
    length_normalization: LengthNormalizationFlag = None
    """Length normalization of hypothesis scores. Default: search.length_normalization of the run."""
    length_penalty_alpha: FloatFlag = None
    """Exponent alpha of the gnmt length penalty. Default: search.length_penalty_alpha of the run."""
    coverage_penalty: FloatFlag = None
    """Weight of the coverage penalty. Default: search.coverage_penalty of the run."""
    max_length: IntegerFlag = None
    """Maximum output length in symbols; 0: 1.5 times the longest training target plus 10. Default: search.max_length of
    the run."""
    min_length: IntegerFlag = None
    """Minimum output length in symbols. Default: search.min_length of the run."""
    max_length_ratio: FloatFlag = None
    """Maximum output length per source symbol; 0 is no limit. Default: search.max_length_ratio of the run."""
    max_length_offset: IntegerFlag = None
    """Constant added to the maximum of --max-length-ratio. Default: search.max_length_offset of the run."""
    min_length_ratio: FloatFlag = None
    """Minimum output length per source symbol; 0 is no limit. Default: search.min_length_ratio of the run."""
    min_length_offset: IntegerFlag = None
    """Constant added to the minimum of --min-length-ratio. Default: search.min_length_offset of the run."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """Action at a bad line: stop with an error, or skip it and report it (predict writes an empty output)."""
    header: Header = "auto"
    """Whether the first line of FILE holds the column names (--header, --no-header); auto: as in the training file."""


def apply_search_flags(predictor: "Predictor", flags: SearchFlags) -> "Predictor":
    """Return the predictor with the search settings of the flags.

    Args:
        predictor: Predictor of a run.
        flags: Parsed flags.

    Returns:
        Predictor with the new settings.

    Raises:
        ConfigError: The settings contradict each other; the message names the flags.
    """
    names = [field.name for field in msgspec.structs.fields(SearchConfig) if hasattr(flags, field.name)]
    changes = {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}
    if not changes:
        return predictor
    try:
        return predictor.with_search(msgspec.structs.replace(predictor.config.search, **changes))
    except ConfigError as error:
        message = str(error)
        for name in changes:
            message = re.sub(rf"\bsearch\.{name}\b", f"--{name.replace('_', '-')}", message)
        raise ConfigError(message) from error


def decode_nbest(
    predictor: "Predictor",
    examples: "Sequence[Example]",
    count: int,
    top_mass: float = 1.0,
    prefixes: "Prefixes" = None,
) -> "list[list[Trace]]":
    """Return `Predictor.hypotheses`; a task without n-best lists is an error that names --nbest.

    Args:
        predictor: Predictor.
        examples: Examples.
        count: Length of each list.
        top_mass: Probability mass of each list.
        prefixes: Prefix of each output.
    """
    with _named_by_flag("count", "--nbest"):
        return predictor.hypotheses(examples, count, top_mass, prefixes)


def decode_samples(
    predictor: "Predictor",
    examples: "Sequence[Example]",
    sampling: "SamplingConfig",
    first: int = 0,
    prefixes: "Prefixes" = None,
) -> "list[list[Trace]]":
    """Return `Predictor.samples`; a task that cannot be sampled from is an error that names --sample.

    Args:
        predictor: Predictor.
        examples: Examples.
        sampling: Settings of sampling.
        first: Number of the first example.
        prefixes: Prefix of each output.
    """
    with _named_by_flag("samples", "--sample"):
        return predictor.samples(examples, sampling, first, prefixes)


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


def read_lexicon(predictor: "Predictor", flags: SearchFlags) -> "Lexicon | None":
    """Read the file of --lexicon as training pairs are read, and report skipped lines.

    Args:
        predictor: Predictor, whose data configuration is used.
        flags: Parsed flags.

    Returns:
        Lexicon, or None if --lexicon is not given.
    """
    from pellucid.decoding.constraints import load_lexicon

    if flags.lexicon is None:
        return None
    data = msgspec.structs.replace(predictor.config.data, on_bad_line=flags.on_bad_line)
    lexicon = load_lexicon(flags.lexicon, data)
    for line in lexicon.bad:
        print_message(f"skipped {line}")
    return lexicon


def sampling_config(flags: SearchFlags) -> "SamplingConfig | None":
    """Return the configuration of sampling, or None if --sample is not given.

    Args:
        flags: Parsed flags.

    Returns:
        Sampling configuration.

    Raises:
        ConfigError: A value out of range, or a flag that requires or excludes --sample.
    """
    from pellucid.decoding.sampling import SamplingConfig

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
