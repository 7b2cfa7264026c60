"""How to search, on the command line of every verb that decodes: flags instead of the run's own settings."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from tyro.conf import Positional, arg

from pellucid.cli.messages import say
from pellucid.config.settings import MAX_BEAM_SIZE, Header, SearchConfig
from pellucid.errors import ArgumentError, ConfigError

if TYPE_CHECKING:
    from pellucid.decoding.constraints import Lexicon
    from pellucid.decoding.predictor import Predictor
    from pellucid.decoding.sampling import Drawing

RunFolder = Annotated[Path, Positional, arg(metavar="RUN")]
MoreRuns = Annotated[tuple[Path, ...], Positional, arg(metavar="[RUN ...] [FILE|-]")]
IntegerFlag = Annotated[int | None, arg(metavar="N")]
FloatFlag = Annotated[float | None, arg(metavar="X")]
PathFlag = Annotated[Path | None, arg(metavar="FILE")]
LengthNormalizationFlag = Annotated[Literal["none", "average", "gnmt"] | None, arg(metavar="{none,average,gnmt}")]
SAMPLING_FLAGS = ("temperature", "top_k", "top_p", "seed")
"""Flags that need --sample."""
SEARCH_ONLY_FLAGS = ("beam_size", "nbest", "until", "length_normalization", "length_penalty_alpha", "coverage_penalty")
"""Flags that a sample has no use for."""


@dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """What stands instead of the run's search settings, or beside them."""

    beam_size: IntegerFlag = None
    """Hypotheses kept for each source at every step, instead of the run's search.beam_size: 1 (greedy) to 1,024."""
    nbest: IntegerFlag = None
    """So many outputs a source, 1,024 at most, likeliest first. The beam is made as wide; a wider one misses fewer."""
    sample: IntegerFlag = None
    """Draw so many outputs of each source at random, 1,024 at most."""
    temperature: FloatFlag = None
    """For --sample: what ln p is divided by before drawing (1)."""
    top_k: IntegerFlag = None
    """For --sample: draw among so many likeliest symbols; 0 sets no limit, and neither does leaving it out."""
    top_p: FloatFlag = None
    """For --sample: draw among the fewest likeliest symbols that have this probability together."""
    seed: IntegerFlag = None
    """For --sample: seed of the draws (1)."""
    lexicon: PathFlag = None
    """File of pairs: its sources get its targets (but those that break a constraint); the model does the rest."""
    length_normalization: LengthNormalizationFlag = None
    """What ln p of an output is divided by to rank it, instead of the run's."""
    length_penalty_alpha: FloatFlag = None
    """Exponent of gnmt, instead of the run's."""
    coverage_penalty: FloatFlag = None
    """Weight of the penalty for source symbols not looked at, instead of the run's."""
    max_length: IntegerFlag = None
    """Longest output, in symbols, instead of the run's; 0: half as much again as the longest training target + 10."""
    min_length: IntegerFlag = None
    """Shortest output, in symbols, instead of the run's."""
    max_length_ratio: FloatFlag = None
    """Longest output in symbols for each source symbol, instead of the run's; 0 sets no limit."""
    max_length_offset: IntegerFlag = None
    """Symbols added to what the maximum ratio allows, instead of the run's."""
    min_length_ratio: FloatFlag = None
    """Shortest output in symbols for each source symbol, instead of the run's; 0 sets no limit."""
    min_length_offset: IntegerFlag = None
    """Symbols added to what the minimum ratio asks, instead of the run's."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What an unreadable line does: stop, or be skipped, counted and listed (predict gives it an empty output)."""
    header: Header = "auto"
    """Whether the first line of FILE names the columns (--header, --no-header); auto: as in the training file."""


def apply_search_flags(transducer: "Predictor", flags: SearchFlags) -> "Predictor":
    """The transducer with the settings asked for; `ConfigError` for what contradicts itself."""
    names = [field.name for field in msgspec.structs.fields(SearchConfig) if hasattr(flags, field.name)]
    changes = {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}
    if not changes:
        return transducer
    try:
        return transducer.with_search(msgspec.structs.replace(transducer.config.search, **changes))
    except ConfigError as error:
        told = str(error)
        for name in changes:
            told = re.sub(rf"\bsearch\.{name}\b", f"--{name.replace('_', '-')}", told)
        raise ConfigError(told) from error


def check_nbest(flags: SearchFlags) -> None:
    """`ConfigError` for a list that is empty, or longer than a beam can be wide."""
    if flags.nbest is not None and not 1 <= flags.nbest <= MAX_BEAM_SIZE:
        raise ConfigError(
            f"--nbest: expected 1 to {MAX_BEAM_SIZE:,} outputs, got {flags.nbest}: the beam is at least "
            "as large as the list"
        )


def read_lexicon(transducer: "Predictor", flags: SearchFlags) -> "Lexicon | None":
    """The lexicon, read as training pairs are; lines that are skipped are told."""
    from pellucid.decoding.constraints import load_lexicon

    if flags.lexicon is None:
        return None
    data = msgspec.structs.replace(transducer.config.data, on_bad_line=flags.on_bad_line)
    lexicon = load_lexicon(flags.lexicon, data)
    for line in lexicon.bad:
        say(f"skipped {line}")
    return lexicon


def sampling_config(flags: SearchFlags) -> "Drawing | None":
    """How samples are drawn, if any are; `ConfigError` for values out of range, and flags that need --sample."""
    from pellucid.decoding.sampling import Drawing

    changes = {name: getattr(flags, name) for name in SAMPLING_FLAGS if getattr(flags, name) is not None}
    if flags.sample is None:
        if changes:
            raise ConfigError(f"--{next(iter(changes)).replace('_', '-')} needs --sample")
        return None
    for name in SEARCH_ONLY_FLAGS:
        if getattr(flags, name, None) is not None:
            shown = name.replace("_", "-")
            raise ConfigError(f"--sample draws outputs, --{shown} searches for them: give one of them")
    try:
        return Drawing(samples=flags.sample, **changes)
    except ArgumentError as error:
        name, _, told = str(error).partition(":")
        raise ConfigError(f"--{name.replace('samples', 'sample').replace('_', '-')}:{told}") from error
