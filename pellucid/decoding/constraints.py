"""Output constraints as masks: forbidden and required symbols, and prefixes.

B sources, k hypotheses of each, F forbidden symbols, M required symbols.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.data.vocabulary import EOS
from pellucid.shapes import Bool, Int

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

    def blocked_symbols(
        self, position: DecodePosition, met: Bool[np.ndarray, "b k M"], num_symbols: int
    ) -> Bool[np.ndarray, "b k V"] | None:
        """Return the symbols of `blocked_symbols_except_eos`, and EOS wherever required symbols are missing.

        Args:
            position: Position of the hypotheses.
            met: Required symbols that each hypothesis contains.
            num_symbols: V, the number of target ids.

        Returns:
            A mask that is True for symbols that cannot follow; None if all can.
        """
        blocked = self.blocked_symbols_except_eos(position, met, num_symbols)
        if blocked is not None and len(self.required):
            blocked[:, :, EOS] |= ~met.all(axis=2)
        return blocked

    def blocked_symbols_except_eos(
        self, position: DecodePosition, met: Bool[np.ndarray, "b k M"], num_symbols: int
    ) -> Bool[np.ndarray, "b k V"] | None:
        """Return the symbols that cannot follow, except EOS while required symbols are missing.

        They are the forbidden ones, and within a prefix all others.

        If no more symbols can follow than a hypothesis still requires, only those are possible. So every output
        contains all required symbols if its maximum length has room for them. EOS is blocked within a prefix and where
        only required symbols are possible; elsewhere `blocked_symbols` blocks it.

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
