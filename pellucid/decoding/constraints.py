"""Constraints of outputs as masks: forbidden, required and listed symbols; lexicons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Bool, Int

from pellucid.arguments import CheckedFields, convert_argument
from pellucid.config.settings import DataConfig
from pellucid.data.examples import read_examples
from pellucid.data.readers import BadLine
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import EOS


@dataclass(frozen=True)
class Lexicon(CheckedFields):
    """The targets of each source, in the file's order; a target that stands twice counts once."""

    targets: Mapping[str, tuple[str, ...]]
    bad: tuple[BadLine, ...] = ()
    """Lines that could not be read, where they are skipped."""

    def __post_init__(self) -> None:
        """Keep a view of the targets that nobody can change: the hash is that of the content."""
        super().__post_init__()
        object.__setattr__(self, "targets", MappingProxyType(self.targets))

    def __reduce__(self) -> tuple[type["Lexicon"], tuple[dict[str, tuple[str, ...]], tuple[BadLine, ...]]]:
        """Return how a copy is made, which a view of a dict alone cannot be."""
        return type(self), (dict(self.targets), self.bad)

    def __hash__(self) -> int:
        """Return the hash of the content, in which the order of the sources does not count, as in `==`."""
        return hash((frozenset(self.targets.items()), self.bad))


def load_lexicon(path: str | Path, config: DataConfig) -> Lexicon:
    """Pairs of a file: source and target in its first two columns, whatever the training file was like.

    Sources are compared in the Unicode form that the model reads. Errors and bad lines are those of a training file:
    `DataError` for the first unless `config.on_bad_line` is "skip".
    """
    file: Path = convert_argument("path", path, str | Path)
    config = convert_argument("config", config, DataConfig)
    own = msgspec.structs.replace(
        config, format="auto", header=False, source_column="1", target_column="2", features_column=""
    )
    reading, source = read_examples(file, own), build_tokenizers(config).source
    targets: dict[str, dict[str, None]] = {}
    for example in reading.examples:
        targets.setdefault(source.normalize(example.source), {})[example.target] = None
    return Lexicon({source: tuple(each) for source, each in targets.items()}, tuple(reading.bad))


NONE = np.zeros(0, np.int64)


class Spot(NamedTuple):
    """Where hypotheses stand: so many symbols are written, at most so many more can be."""

    sources: Int[np.ndarray, " b"]
    written: int
    left: Int[np.ndarray, " b"]


class Constraints(NamedTuple):
    """Constraints of one batch, in ids. Masks take symbols away; ln p of those that stay is the model's own."""

    forbidden: Int[np.ndarray, " F"] = NONE
    required: Int[np.ndarray, " M"] = NONE
    prefixes: tuple[tuple[int, ...], ...] = ()
    """What each source's output begins with; empty where no source's is told."""

    @property
    def any(self) -> bool:
        """Whether anything is asked."""
        return bool(len(self.forbidden) or len(self.required) or self.prefixes)

    def take(self, rows: Int[np.ndarray, " b"]) -> "Constraints":
        """Those of the chosen sources."""
        return self._replace(prefixes=tuple(self.prefixes[row] for row in rows.tolist()) if self.prefixes else ())

    def begun(self, source: int) -> int:
        """How many symbols of a source's output are given."""
        return len(self.prefixes[source]) if self.prefixes else 0

    def least(self, source: int) -> int:
        """How many symbols a source's output has at least: those it begins with, and those required beside them."""
        prefix = self.prefixes[source] if self.prefixes else ()
        return len(prefix) + len(set(self.required.tolist()) - set(prefix))

    def allow(self, source: int, ids: Sequence[int]) -> bool:
        """Whether an output of a source, its end not counted, is all that is asked."""
        prefix = self.prefixes[source] if self.prefixes else ()
        within = not set(ids) & set(self.forbidden.tolist()) and set(ids) >= set(self.required.tolist())
        return within and tuple(ids[: len(prefix)]) == prefix

    def first(self, sources: int) -> Bool[np.ndarray, "B 1 M"]:
        """Which required symbols an empty hypothesis holds: none."""
        return np.zeros((sources, 1, len(self.required)), np.bool_)

    def holding(self, held: Bool[np.ndarray, "b k M"], ids: Int[np.ndarray, "b k"]) -> Bool[np.ndarray, "b k M"]:
        """Which of them hypotheses hold once these symbols are written."""
        holding: Bool[np.ndarray, "b k M"] = held | (ids[:, :, None] == self.required)
        return holding

    def blocked(self, spot: Spot, held: Bool[np.ndarray, "b k M"], symbols: int) -> Bool[np.ndarray, "b k V"] | None:
        """What a search cannot write next: what is impossible, and the end while required symbols are lacking."""
        blocked = self.impossible(spot, held, symbols)
        if blocked is not None and len(self.required):
            blocked[:, :, EOS] |= ~held.all(axis=2)
        return blocked

    def impossible(self, spot: Spot, held: Bool[np.ndarray, "b k M"], symbols: int) -> Bool[np.ndarray, "b k V"] | None:
        """What cannot be written next, the end not looked at; None where everything can.

        When no more symbols can follow than a hypothesis lacks of those required, it writes those it lacks: so every
        output holds all of them where its greatest length has room for them.
        """
        if not self.any:
            return None
        blocked = np.zeros((*held.shape[:2], symbols), np.bool_)
        if len(self.required):
            self._require(blocked, spot, held)
        blocked[:, :, self.forbidden] = True
        for row, source in enumerate(spot.sources.tolist()):
            prefix = self.prefixes[source] if self.prefixes else ()
            if spot.written < len(prefix):
                blocked[row] = True
                blocked[row, :, prefix[spot.written]] = False
        return blocked

    def _require(self, blocked: Bool[np.ndarray, "b k V"], spot: Spot, held: Bool[np.ndarray, "b k M"]) -> None:
        """Block all but the symbols that are lacking where there is room for no other."""
        lacking = (~held).sum(axis=2)
        last = (lacking > 0) & (lacking >= spot.left[:, None])
        blocked[last] = True
        rows, places = last.nonzero()
        for at, required in enumerate(self.required.tolist()):
            blocked[rows, places, required] = held[rows, places, at]


FREE = Constraints()
