"""Attention that a person gives: rows painted at some steps, positions hidden at all of them.

B sources, b of them that still run, R hypotheses, S source positions.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.decoding.inference import Running, Seen
from pellucid.decoding.options import Options, Painted
from pellucid.decoding.preprocessing import Work
from pellucid.errors import InputError, quote
from pellucid.model.attention import NoAttention
from pellucid.model.network import Network, require_seq2seq


class Guided(NamedTuple):
    """Hypotheses whose looks are given at some steps: the same row for all of them, and for every member."""

    running: Running
    rows: dict[int, Float[Tensor, " S"]]
    """The weights of each painted step; they sum to one."""
    written: int = 0

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> Seen:
        """The step, with this step's row in place of the softmax if there is one, and otherwise `override`."""
        row = self.rows.get(self.written)
        seen = self.running.step(symbols, override if row is None else row.repeat(len(symbols), 1))
        return seen._replace(after=Guided(seen.after, self.rows, self.written + 1))

    def take(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "Guided":
        """The chosen hypotheses; their looks are given as before."""
        return self._replace(running=self.running.take(hypotheses, sources))


def guided(running: Running, rows: dict[int, Float[Tensor, " S"]]) -> Running:
    """What runs, with painted rows if there are any."""
    return Guided(running, rows) if rows else running


def rows_of(
    options: Options, work: Work, networks: tuple[Network, ...], longest: int
) -> dict[int, Float[Tensor, " S"]]:
    """The painted rows, what is hidden taken out of them; each sums to one.

    `InputError` for hidden positions that a source does not have, that are all it has, or that a model without
    attention never looks at; and for rows of a step beyond the `longest` output or painted twice, of another number of
    weights than a source has positions, or of nothing once positions are hidden.
    """
    for number, length in zip((work.rows + work.first + 1).tolist(), work.positions.tolist(), strict=True):
        _check_masked(options.masked, number, length)
        for painted in options.painted:
            _check_painted(painted, number, length, longest)
    if options.masked and all(
        isinstance(require_seq2seq(network).decoder.attention, NoAttention) for network in networks
    ):
        raise InputError("masked: the model has no attention, so there is nothing to hide from it")
    steps = [painted.step for painted in options.painted]
    twice = next((step for step in steps if steps.count(step) > 1), None)
    if twice is not None:
        raise InputError(f"painted: step {twice} is painted twice")
    like, columns = next(networks[0].parameters()), work.source.shape[1]
    return {painted.step: _scaled(painted, options.masked, columns).to(like) for painted in options.painted}


def _check_masked(masked: tuple[int, ...], number: int, length: int) -> None:
    """Hidden positions are the source's own, and leave some."""
    for position in masked:
        if not 0 <= position < length:
            raise InputError(f"masked: there is no position {quote(position)}: source {number} has 0 to {length - 1}")
    if len(set(masked)) == length:
        raise InputError(f"masked: all {length} positions of source {number} are hidden; attention must see one")


def _check_painted(painted: Painted, number: int, length: int, longest: int) -> None:
    """A row fits the source."""
    if not 0 <= painted.step <= longest:
        raise InputError(f"painted: there is no step {quote(painted.step)}: an output has 0 to {longest} at most")
    weights = len(painted.weights)
    if weights != length:
        raise InputError(
            f"painted: step {painted.step} has {weights} weights, but source {number} has {length} positions"
        )


def _scaled(painted: Painted, masked: tuple[int, ...], columns: int) -> Float[Tensor, " S"]:
    """Return the row with zeros at hidden positions, scaled to sum to one (by its greatest first: no sum overflows).

    Zeros follow up to the memory's `columns`: features that are added to the symbols leave padding behind them.
    """
    row = torch.zeros(columns, dtype=torch.float64)
    row[: len(painted.weights)] = torch.tensor(painted.weights, dtype=torch.float64)
    row[list(masked)] = 0
    if not row.any():
        hidden = " once what is masked is hidden" if masked else ""
        raise InputError(f"painted: step {painted.step} has no weight anywhere{hidden}: expected one above 0")
    row = row / row.max()
    return row / row.sum()
