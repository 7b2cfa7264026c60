"""Forced attention: given attention weights at some steps, and masked source positions at all steps.

B sources, b active sources, R hypotheses, S source positions.
"""

from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.decoding.inference import Inference, StepOutput
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.preprocessing import SourceBatch
from pellucid.errors import InputError, count_noun, quote
from pellucid.model.network import Network, require_encoder_decoder
from pellucid.shapes import Float, Int


class ForcedAttentionInference(NamedTuple):
    """Inference with given attention weights at some steps, equal for all hypotheses and ensemble members."""

    inference: Inference
    weights: dict[int, Float[Tensor, " S"]]
    """Attention weights of each forced step, by its index from 0; they sum to one."""
    length: int = 0
    """Number of steps taken."""

    def step(self, symbols: Int[Tensor, " R"], forced_weights: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Run one step with the attention weights that `weights` has for it, else with `forced_weights`.

        Args:
            symbols: Previous symbol of each hypothesis.
            forced_weights: Attention weights at a step without given ones; None for the model's own.
        """
        forced = self.weights.get(self.length)
        output = self.inference.step(symbols, forced_weights if forced is None else forced.repeat(len(symbols), 1))
        return output._replace(after=ForcedAttentionInference(output.after, self.weights, self.length + 1))

    def index_select(
        self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None
    ) -> "ForcedAttentionInference":
        """Select hypotheses; the forced weights stay.

        Args:
            hypotheses: Rows of the hypotheses.
            sources: Rows of their sources; None for all sources.
        """
        return self._replace(inference=self.inference.index_select(hypotheses, sources))


def force_attention(inference: Inference, weights: dict[int, Float[Tensor, " S"]]) -> Inference:
    """Wrap an `Inference` so that it uses forced attention weights; without any, return it unchanged.

    Args:
        inference: Hypotheses before the first step.
        weights: Attention weights of each forced step, as `forced_weights` returns them.
    """
    return ForcedAttentionInference(inference, weights) if weights else inference


def forced_weights(
    options: DecodingOptions, batch: SourceBatch, networks: tuple[Network, ...], max_steps: int
) -> dict[int, Float[Tensor, " S"]]:
    """Return the forced attention weights of each step, set to zero at masked positions and scaled to sum to one.

    Args:
        options: Forced attention weights and masked positions.
        batch: Batch of sources, each of which the options must fit.
        networks: Networks that decode together.
        max_steps: Maximum output length; steps 0 to `max_steps` exist.

    Returns:
        One weight per source position of the batch, by the index of the forced step. Masked positions at other steps
        are not included.

    Raises:
        InputError: A masked position is not in a source, all positions of a source are masked, or no network has an
            attention to mask; or forced weights belong to a step that does not exist, are given twice for a step, are
            not as many as a source has positions, or are all zero outside masked positions.
    """
    check_attention_options(options, networks, max_steps)
    for number, length in zip((batch.rows + batch.first + 1).tolist(), batch.positions.tolist(), strict=True):
        _check_masked(options.masked_positions, number, length)
        for forced in options.forced_attention:
            _check_forced_attention(forced, number, length)
    like = next(networks[0].parameters())
    columns = batch.source.shape[1]
    return {
        forced.step: _normalized_row(forced, options.masked_positions, columns).to(like)
        for forced in options.forced_attention
    }


def check_attention_options(options: DecodingOptions, networks: tuple[Network, ...], max_steps: int) -> None:
    """Check forced attention weights and masked positions without a source.

    Args:
        options: Forced attention weights and masked positions.
        networks: Networks that decode together.
        max_steps: Maximum output length; steps 0 to `max_steps` exist.

    Raises:
        InputError: A masked position is negative, or no network has an attention to mask; or forced weights belong to a
            step that does not exist, are given twice for a step, or are all zero outside masked positions.
    """
    negative = next((position for position in options.masked_positions if position < 0), None)
    if negative is not None:
        raise InputError(f"masked_positions: there is no position {quote(negative)}: the first one is 0")
    if options.masked_positions and not any(
        require_encoder_decoder(network).decoder.attention.has_weights for network in networks
    ):
        raise InputError("masked_positions: the model has no attention, so no source position can be masked")
    counts = Counter(forced.step for forced in options.forced_attention)
    repeated = next((step for step, count in counts.items() if count > 1), None)
    if repeated is not None:
        raise InputError(f"forced_attention: step {repeated} is given twice")
    masked = {*options.masked_positions}
    for forced in options.forced_attention:
        if not 0 <= forced.step <= max_steps:
            raise InputError(
                f"forced_attention: there is no step {quote(forced.step)}: an output has 0 to {max_steps} at most"
            )
        if not any(weight > 0 for position, weight in enumerate(forced.weights) if position not in masked):
            where = " outside masked positions" if masked else ""
            raise InputError(
                f"forced_attention: step {forced.step} has no weight above 0{where}: expected at least one"
            )


def _check_masked(masked: tuple[int, ...], number: int, length: int) -> None:
    """Check that masked positions are in the source and do not cover it."""
    for position in masked:
        if not 0 <= position < length:
            raise InputError(
                f"masked_positions: there is no position {quote(position)}: source {number} has 0 to {length - 1}"
            )
    if len(set(masked)) == length:
        raise InputError(f"masked_positions: all positions of source {number} are masked; leave at least one")


def _check_forced_attention(forced: ForcedAttention, number: int, length: int) -> None:
    """Check that a row fits its source."""
    weights = len(forced.weights)
    if weights != length:
        raise InputError(
            f"forced_attention: step {forced.step} has {count_noun(weights, 'weight')}, but source {number} has "
            f"{count_noun(length, 'position')}"
        )


def _normalized_row(forced: ForcedAttention, masked: tuple[int, ...], columns: int) -> Float[Tensor, " S"]:
    """Return the row without masked positions, scaled to sum to one; dividing by the maximum avoids overflow."""
    row = torch.zeros(columns, dtype=torch.float64)
    row[: len(forced.weights)] = torch.tensor(forced.weights, dtype=torch.float64)
    row[list(masked)] = 0
    row = row / row.max()
    return row / row.sum()
