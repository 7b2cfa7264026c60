"""Output constraints as masks: forbidden and required symbols, prefixes; lexicons.

B sources, k hypotheses of each, F forbidden symbols, M required symbols.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from pellucid.argument_checks import CheckedFields, convert_argument
from pellucid.config.settings import DataConfig
from pellucid.data.examples import read_lexicon_examples
from pellucid.data.readers import BadLine
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import EOS
from pellucid.errors import quote
from pellucid.shapes import Bool, Int


@dataclass(frozen=True)
class Lexicon(CheckedFields):
    """Targets of known sources, which a search returns without asking the model. It is immutable and hashable.

    Raises:
        ArgumentError: A field has a wrong type.
    """

    targets: Mapping[str, tuple[str, ...]]
    """Target texts by source text, the best first; duplicates are removed.

    Sources are in the Unicode normalization of the model.
    """
    bad_lines: tuple[BadLine, ...] = ()
    """Malformed lines of the file that were skipped."""
    notes: tuple[str, ...] = ()
    """Notes about rows of the file that can decode no source, or few."""

    def __post_init__(self) -> None:
        """Check the types, remove duplicate targets, and make the mapping read-only, as the hash needs."""
        super().__post_init__()
        targets = {source: tuple(dict.fromkeys(texts)) for source, texts in self.targets.items()}
        object.__setattr__(self, "targets", MappingProxyType(targets))

    def __reduce__(
        self,
    ) -> tuple[type["Lexicon"], tuple[dict[str, tuple[str, ...]], tuple[BadLine, ...], tuple[str, ...]]]:
        """Return the pickle form; a view of a dict cannot be pickled."""
        return type(self), (dict(self.targets), self.bad_lines, self.notes)

    def __hash__(self) -> int:
        """Return the hash of the content. Like equality, it ignores the order of the sources."""
        return hash((frozenset(self.targets.items()), self.bad_lines, self.notes))


def load_lexicon(path: str | Path, config: DataConfig, num_columns: int = 0) -> Lexicon:
    """Read a lexicon from a file of pairs: with the columns of the training file, or of two columns without header.

    A header that contains the names of the source and target columns of the training file selects them; for columns
    that were selected by number, the numbers do. Otherwise, a file of two columns has the source in the first and the
    target in the second. Any other file is refused. Sources are compared in the Unicode normalization of the model.

    Args:
        path: File of pairs; its ending selects the format, else it is TSV.
        config: Data settings of the model, `model.config.data`. Features are not read.
        num_columns: Number of columns of the training file, `model.vocabularies.columns`: where columns were selected
            by number, a file of more than two columns needs this number; 0, the default, allows any.

    Returns:
        The lexicon; its field `bad_lines` holds the malformed lines that were skipped. Rows without a
        target are not read, and counted in `notes`.

    Raises:
        ArgumentError: An argument has a wrong type.
        DataError: The file cannot be read, holds no pair, or has neither the columns of the training file nor two
            columns; or a line is malformed, and `config.on_bad_line` is "stop".
    """
    lexicon_path: Path = convert_argument("path", path, str | Path)
    config = convert_argument("config", config, DataConfig)
    num_columns = convert_argument("num_columns", num_columns, int)
    result, num_without_target = read_lexicon_examples(lexicon_path, config, num_columns)
    source = build_tokenizers(config).source
    targets: dict[str, dict[str, None]] = {}
    for example in result.examples:
        targets.setdefault(source.normalize(example.source), {})[example.target] = None
    notes = list[str]()
    if num_without_target:
        notes.append(f"{lexicon_path}: rows without a target, which are not used: {num_without_target:,}")
    spaced = [example.source for example in result.examples if example.source != example.source.strip()]
    if spaced:
        notes.append(
            f"{lexicon_path}: sources that begin or end with a space, and decode only such sources: {len(spaced):,}, "
            f"such as {quote(spaced[0])}"
        )
    several = [source for source, texts in targets.items() if len(texts) > 1]
    if several:
        notes.append(
            f"{lexicon_path}: sources with several targets, of which the first one is the output: {len(several):,}, "
            f"such as {quote(several[0])}"
        )
    return Lexicon({source: tuple(texts) for source, texts in targets.items()}, tuple(result.bad_lines), tuple(notes))


NO_SYMBOL_IDS = np.zeros(0, np.int64)


class DecodePosition(NamedTuple):
    """Position of the hypotheses of a batch, all of which have the same length."""

    sources: Int[np.ndarray, " b"]
    """Rows of the active sources in the batch."""
    length: int
    """Number of symbols of each hypothesis."""
    remaining: Int[np.ndarray, " b"]
    """Maximum number of symbols that can follow, for each source."""


class Constraints(NamedTuple):
    """Constraints of one batch, in target ids.

    They exclude symbols; the others keep the log-probabilities of the model, which are not renormalized.
    """

    forbidden: Int[np.ndarray, " F"] = NO_SYMBOL_IDS
    """Symbols that no output contains."""
    required: Int[np.ndarray, " M"] = NO_SYMBOL_IDS
    """Distinct symbols that every output contains."""
    prefixes: tuple[tuple[int, ...], ...] = ()
    """Prefix of each source's output; empty if there are none."""

    @property
    def any(self) -> bool:
        """True if there is any constraint."""
        return bool(len(self.forbidden) or len(self.required) or self.prefixes)

    def take(self, rows: Int[np.ndarray, " b"]) -> "Constraints":
        """Return the constraints of the selected sources.

        Args:
            rows: Rows of the sources.
        """
        return self._replace(prefixes=tuple(self.prefixes[row] for row in rows.tolist()) if self.prefixes else ())

    def prefix_length(self, source: int) -> int:
        """Return the length of the prefix of a source's output; 0 without a prefix.

        Args:
            source: Row of the source.
        """
        return len(self.prefixes[source]) if self.prefixes else 0

    def min_length(self, source: int) -> int:
        """Return the minimum length of a source's output without EOS: its prefix, and required symbols outside it.

        Args:
            source: Row of the source.
        """
        prefix = self.prefixes[source] if self.prefixes else ()
        return len(prefix) + len(set(self.required.tolist()) - set(prefix))

    def allows(self, source: int, ids: Sequence[int]) -> bool:
        """Return whether an output satisfies the constraints.

        Args:
            source: Row of the source.
            ids: Target ids of the output, without EOS.
        """
        prefix = self.prefixes[source] if self.prefixes else ()
        symbols_fit = not set(ids) & set(self.forbidden.tolist()) and set(ids) >= set(self.required.tolist())
        return symbols_fit and tuple(ids[: len(prefix)]) == prefix

    def initial_met(self, num_sources: int) -> Bool[np.ndarray, "B 1 M"]:
        """Return which required symbols an empty hypothesis contains: none.

        Args:
            num_sources: Number of sources in the batch.
        """
        return np.zeros((num_sources, 1, len(self.required)), np.bool_)

    def update_met(self, met: Bool[np.ndarray, "b k M"], ids: Int[np.ndarray, "b k"]) -> Bool[np.ndarray, "b k M"]:
        """Return which required symbols the hypotheses contain after their next symbol.

        Args:
            met: Required symbols that each hypothesis contains.
            ids: Next symbol of each hypothesis.
        """
        updated: Bool[np.ndarray, "b k M"] = met | (ids[:, :, None] == self.required)
        return updated

    def blocked_symbols_and_eos(
        self, position: DecodePosition, met: Bool[np.ndarray, "b k M"], num_symbols: int
    ) -> Bool[np.ndarray, "b k V"] | None:
        """Return the symbols of `blocked_symbols`, and EOS wherever required symbols are missing.

        Args:
            position: Position of the hypotheses.
            met: Required symbols that each hypothesis contains.
            num_symbols: V, the number of target ids.

        Returns:
            A mask that is True for symbols that cannot follow; None if all can.
        """
        blocked = self.blocked_symbols(position, met, num_symbols)
        if blocked is not None and len(self.required):
            blocked[:, :, EOS] |= ~met.all(axis=2)
        return blocked

    def blocked_symbols(
        self, position: DecodePosition, met: Bool[np.ndarray, "b k M"], num_symbols: int
    ) -> Bool[np.ndarray, "b k V"] | None:
        """Return the symbols that cannot follow, except EOS while required symbols are missing.

        They are the forbidden ones, and within a prefix all others.

        If no more symbols can follow than a hypothesis still requires, only those are possible. So every output
        contains all required symbols if its maximum length has room for them. EOS is blocked within a prefix and where
        only required symbols are possible; elsewhere `blocked_symbols_and_eos` blocks it.

        Args:
            position: Position of the hypotheses.
            met: Required symbols that each hypothesis contains.
            num_symbols: V, the number of target ids.

        Returns:
            A mask that is True for symbols that cannot follow; None if all can.
        """
        if not self.any:
            return None
        blocked = np.zeros((*met.shape[:2], num_symbols), np.bool_)
        if len(self.required):
            self._require(blocked, position, met)
        blocked[:, :, self.forbidden] = True
        for row, source in enumerate(position.sources.tolist()):
            prefix = self.prefixes[source] if self.prefixes else ()
            if position.length < len(prefix):
                blocked[row] = True
                blocked[row, :, prefix[position.length]] = False
        return blocked

    def _require(
        self, blocked: Bool[np.ndarray, "b k V"], position: DecodePosition, met: Bool[np.ndarray, "b k M"]
    ) -> None:
        """Block all symbols but the missing ones where there is no room for others."""
        num_unmet = (~met).sum(axis=2)
        no_room = (num_unmet > 0) & (num_unmet >= position.remaining[:, None])
        blocked[no_room] = True
        rows, hypotheses = no_room.nonzero()
        for index, required in enumerate(self.required.tolist()):
            blocked[rows, hypotheses, required] = met[rows, hypotheses, index]


NO_CONSTRAINTS = Constraints()
