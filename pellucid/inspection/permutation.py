"""Permutation test of attention: the change of the output distribution when attention weights are shuffled.

T steps, S source positions, N permutations, V symbols.
"""

from typing import Annotated, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from pellucid.argument_checks import check_arguments
from pellucid.config.settings import Seed
from pellucid.decoding.forced_attention import ForcedAttentionInference
from pellucid.decoding.forced_decoding import forced_steps, step_log_probabilities
from pellucid.decoding.inference import EnsembleInference, SingleModelInference
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import ArgumentError
from pellucid.inspection.replay import build_replays, check_finite, checked_traces, evaluation_context
from pellucid.model.network import require_encoder_decoder
from pellucid.shapes import Float, Int

Permutations = Annotated[int, Meta(ge=1, le=10_000)]
"""Number of permutations per step; all of them are in memory at the same time."""


class PermutationResult(NamedTuple):
    """Effect of permuting the attention weights of each step on the distribution of the next symbol."""

    change: Float[np.ndarray, " T"]
    """Median over the permutations of the total variation distance ½ Σ |p − p'|, from 0 (no effect) to 1."""
    max_weights: Float[np.ndarray, " T"]
    """Largest attention weight of the step. If weights are nearly uniform, permuting them changes little."""


@check_arguments
@check_finite
def permute_attention(
    predictor: Predictor, trace: Trace, permutations: Permutations = 100, seed: Seed = 1
) -> PermutationResult:
    """Permute the attention weights of each step randomly among the source positions, and measure the effect.

    At each step in turn, the distribution of the next symbol is computed again with permuted weights; the steps before
    it keep theirs. With several heads, all use the permuted mean of their weights, which is compared with the mean
    itself. A median near 0 means that the output does not depend on these weights: they do not explain it.

    Args:
        predictor: The model, which decodes symbol by symbol; or an ensemble of such models.
        trace: A trace of the model.
        permutations: Number of permutations per step, 1 to 10,000.
        seed: Seed of the permutations.

    Returns:
        Effect and largest weight of each step; empty for a trace without source or output.

    Raises:
        ConfigError: The model does not decode symbol by symbol.
        ArgumentError: The model has no attention, a field of the trace is wrong, the trace is of another model, or an
            argument is out of range.

    References:
        Jain & Wallace 2019, section 4.2.1 and algorithm 1 (100 permutations, median).
    """
    transducer = require_transducer(predictor, "predictor")
    if not any(require_encoder_decoder(network).decoder.attention.has_weights for network in predictor.networks):
        raise ArgumentError("predictor: expected a model with attention, whose weights can be permuted")
    (trace,) = checked_traces(predictor, [trace], "trace")
    generator = np.random.default_rng(seed)
    changes, max_weights = list[float](), list[float]()
    with torch.inference_mode(), evaluation_context(predictor, permutations * len(trace.target)):
        for replay in build_replays(predictor, [trace], "trace"):
            inference = transducer.initialize(replay.batch)
            for step in forced_steps(inference, replay.target):
                rows = row_and_permutations(step.output.weights[0], permutations, generator)
                copied = step.before.index_select(torch.zeros(len(rows), dtype=torch.int64, device=step.symbols.device))
                inner = copied.inference if isinstance(copied, ForcedAttentionInference) else copied
                assert isinstance(inner, SingleModelInference | EnsembleInference), "its step accepts weights"
                changed = inner.step(step.symbols.repeat(len(rows)), rows)
                targets = step.targets.repeat(len(rows))
                probabilities = step_log_probabilities(changed, targets, step.suppressed).exp().double()
                changes.append(float((probabilities[1:] - probabilities[:1]).abs().sum(dim=1).median() / 2))
                max_weights.append(float(step.output.weights[0].max()))
    return PermutationResult(np.array(changes), np.array(max_weights))


def row_and_permutations(
    row: Float[Tensor, " S"], permutations: int, generator: np.random.Generator
) -> Float[Tensor, "N S"]:
    """Return the weights of a step, unchanged in the first row and randomly permuted in the others.

    Args:
        row: Attention weights of one step.
        permutations: N − 1, the number of permuted rows.
        generator: Random generator.
    """
    orders: list[Int[np.ndarray, " S"]] = [generator.permutation(len(row)) for _ in range(permutations)]
    indices = torch.from_numpy(np.stack([np.arange(len(row)), *orders])).to(row.device)
    return row[indices]
