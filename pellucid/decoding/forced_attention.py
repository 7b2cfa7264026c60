"""Forced attention: given attention weights at some steps, and masked source positions at all steps.

B sources, b active sources, R hypotheses, S source positions.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.decoding.inference import Inference, StepOutput
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.preprocessing import InferenceBatch
from pellucid.errors import InputError, quote
from pellucid.model.attention import NoAttention
from pellucid.model.network import Network, require_seq2seq


class ForcedAttentionInference(NamedTuple):
    """Inference with given attention weights at some steps, equal for all hypotheses and ensemble members."""

    running: Inference
    rows: dict[int, Float[Tensor, " S"]]
    """Attention weights of each forced step; they sum to one."""
    written: int = 0

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Run one step with the given attention weights of this step, else with `override`."""
        row = self.rows.get(self.written)
        seen = self.running.step(symbols, override if row is None else row.repeat(len(symbols), 1))
        return seen._replace(after=ForcedAttentionInference(seen.after, self.rows, self.written + 1))

    def take(
        self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None
    ) -> "ForcedAttentionInference":
        """Select hypotheses; the forced weights stay."""
        return self._replace(running=self.running.take(hypotheses, sources))


def force_attention(running: Inference, rows: dict[int, Float[Tensor, " S"]]) -> Inference:
    """Wrap an `Inference` so that it uses forced attention rows, if there are any."""
    return ForcedAttentionInference(running, rows) if rows else running


def attention_rows(
    options: DecodingOptions, work: InferenceBatch, networks: tuple[Network, ...], longest: int
) -> dict[int, Float[Tensor, " S"]]:
    """Return the forced attention rows, with masked positions set to zero and scaled to sum to one.

    Raises:
        InputError: A masked position is not in the source, all positions are masked, or the model has no attention; or
            a row belongs to a step beyond the `longest` output, is given twice, has a wrong number of weights, or has
            no weight outside masked positions.
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
    """Check that masked positions are in the source and do not cover it."""
    for position in masked:
        if not 0 <= position < length:
            raise InputError(f"masked: there is no position {quote(position)}: source {number} has 0 to {length - 1}")
    if len(set(masked)) == length:
        raise InputError(f"masked: all {length} positions of source {number} are hidden; attention must see one")


def _check_painted(painted: ForcedAttention, number: int, length: int, longest: int) -> None:
    """Check that a row fits its source."""
    if not 0 <= painted.step <= longest:
        raise InputError(f"painted: there is no step {quote(painted.step)}: an output has 0 to {longest} at most")
    weights = len(painted.weights)
    if weights != length:
        raise InputError(
            f"painted: step {painted.step} has {weights} weights, but source {number} has {length} positions"
        )


def _scaled(painted: ForcedAttention, masked: tuple[int, ...], columns: int) -> Float[Tensor, " S"]:
    """Return the row without masked positions, scaled to sum to one; dividing by the maximum avoids overflow."""
    row = torch.zeros(columns, dtype=torch.float64)
    row[: len(painted.weights)] = torch.tensor(painted.weights, dtype=torch.float64)
    row[list(masked)] = 0
    if not row.any():
        hidden = " once what is masked is hidden" if masked else ""
        raise InputError(f"painted: step {painted.step} has no weight anywhere{hidden}: expected one above 0")
    row = row / row.max()
    return row / row.sum()
