"""Output constraints as masks: forbidden and required symbols, prefixes; lexicons."""

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
    """Targets of known sources, in the order of the file. Duplicate targets count once."""

    targets: Mapping[str, tuple[str, ...]]
    bad: tuple[BadLine, ...] = ()
    """Malformed lines that were skipped."""

    def __post_init__(self) -> None:
        """Store a read-only view of the targets, since the hash depends on the content."""
        super().__post_init__()
        targets = {source: tuple(dict.fromkeys(each)) for source, each in self.targets.items()}
        object.__setattr__(self, "targets", MappingProxyType(targets))

    def __reduce__(self) -> tuple[type["Lexicon"], tuple[dict[str, tuple[str, ...]], tuple[BadLine, ...]]]:
        """Return the pickle form; a view of a dict cannot be pickled."""
        return type(self), (dict(self.targets), self.bad)

    def __hash__(self) -> int:
        """Return the hash of the content. Like equality, it ignores the order of the sources."""
        return hash((frozenset(self.targets.items()), self.bad))


def load_lexicon(path: str | Path, config: DataConfig) -> Lexicon:
    """Read a lexicon from a file of pairs: the source and the target are the first two columns.

    Sources are compared in the Unicode normalization of the model.

    Raises:
        DataError: A line is malformed, and `config.on_bad_line` is "stop".
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


class DecodePosition(NamedTuple):
    """Position of hypotheses: the number of symbols written, and the maximum number that can follow."""

    sources: Int[np.ndarray, " b"]
    written: int
    left: Int[np.ndarray, " b"]


class Constraints(NamedTuple):
    """Constraints of one batch, in ids. Masks remove symbols; the others keep the log-probabilities of the model."""

    forbidden: Int[np.ndarray, " F"] = NONE
    required: Int[np.ndarray, " M"] = NONE
    prefixes: tuple[tuple[int, ...], ...] = ()
    """Prefix of each source's output; empty if there are none."""

    @property
    def any(self) -> bool:
        """True if there is any constraint."""
        return bool(len(self.forbidden) or len(self.required) or self.prefixes)

    def take(self, rows: Int[np.ndarray, " b"]) -> "Constraints":
        """Return the constraints of the chosen sources."""
        return self._replace(prefixes=tuple(self.prefixes[row] for row in rows.tolist()) if self.prefixes else ())

    def begun(self, source: int) -> int:
        """Return the length of the prefix of a source's output."""
        return len(self.prefixes[source]) if self.prefixes else 0

    def least(self, source: int) -> int:
        """Return the minimum length of a source's output: its prefix, and the required symbols outside it."""
        prefix = self.prefixes[source] if self.prefixes else ()
        return len(prefix) + len(set(self.required.tolist()) - set(prefix))

    def allow(self, source: int, ids: Sequence[int]) -> bool:
        """Return whether an output of a source, without EOS, satisfies the constraints."""
        prefix = self.prefixes[source] if self.prefixes else ()
        within = not set(ids) & set(self.forbidden.tolist()) and set(ids) >= set(self.required.tolist())
        return within and tuple(ids[: len(prefix)]) == prefix

    def first(self, sources: int) -> Bool[np.ndarray, "B 1 M"]:
        """Return which required symbols an empty hypothesis contains: none."""
        return np.zeros((sources, 1, len(self.required)), np.bool_)

    def holding(self, held: Bool[np.ndarray, "b k M"], ids: Int[np.ndarray, "b k"]) -> Bool[np.ndarray, "b k M"]:
        """Return which required symbols hypotheses contain after these symbols."""
        holding: Bool[np.ndarray, "b k M"] = held | (ids[:, :, None] == self.required)
        return holding

    def blocked(
        self, spot: DecodePosition, held: Bool[np.ndarray, "b k M"], symbols: int
    ) -> Bool[np.ndarray, "b k V"] | None:
        """Return the symbols that cannot follow: impossible ones, and EOS while required symbols are missing."""
        blocked = self.impossible(spot, held, symbols)
        if blocked is not None and len(self.required):
            blocked[:, :, EOS] |= ~held.all(axis=2)
        return blocked

    def impossible(
        self, spot: DecodePosition, held: Bool[np.ndarray, "b k M"], symbols: int
    ) -> Bool[np.ndarray, "b k V"] | None:
        """Return the symbols other than EOS that cannot follow; None if all can.

        If only as many symbols can follow as a hypothesis lacks, only the missing ones are possible. So every output
        contains all required symbols if its maximum length has room for them.
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

    def _require(
        self, blocked: Bool[np.ndarray, "b k V"], spot: DecodePosition, held: Bool[np.ndarray, "b k M"]
    ) -> None:
        """Block all symbols but the missing ones where there is no room for others."""
        lacking = (~held).sum(axis=2)
        last = (lacking > 0) & (lacking >= spot.left[:, None])
        blocked[last] = True
        rows, places = last.nonzero()
        for at, required in enumerate(self.required.tolist()):
            blocked[rows, places, required] = held[rows, places, at]


FREE = Constraints()
