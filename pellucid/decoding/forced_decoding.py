"""Forced decoding: scoring of given targets.

B sources, T steps, S source positions, V vocabulary.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, UNK
from pellucid.decoding.inference import Inference, StepOutput
from pellucid.decoding.outputs import (
    DecodedOutput,
    Recorder,
    StepRecord,
    SuppressedSymbols,
    TopSymbols,
    candidate_count,
    suppressed_symbols,
    symbol_log_probabilities,
    to_array,
    to_optional_array,
)


@torch.inference_mode()
def score_targets(
    running: Inference, lengths: Int[Tensor, " B"], targets: Int[Tensor, "B T"], steps: Int[Tensor, " B"]
) -> list[DecodedOutput]:
    """Score targets as if they had been decoded: log-probabilities, attention weights and candidates of every step.

    The log-probability of a symbol is normalized over all symbols that a search could write at that step, so it equals
    the log-probability in a search. UNK is never searched; its log-probability is normalized over those symbols and
    UNK.

    Args:
        running: The model before its first step.
        lengths: Source lengths.
        targets: Target ids, each ending with EOS.
        steps: Target lengths.
    """
    symbols, recorded, closed = torch.full_like(lengths, BOS), Recorder(len(lengths), targets.shape[1]), None
    for wanted in targets.unbind(dim=1):
        seen = running.step(symbols)
        closed = closed or suppressed_symbols(seen.logits.shape[1], lengths.device)
        recorded.add(_record(seen, wanted, closed))
        running, symbols = seen.after, wanted
    sizes = zip(steps.tolist(), lengths.tolist(), strict=True)
    return [recorded.output(row, *size) for row, size in enumerate(sizes)]


def _record(seen: StepOutput, wanted: Int[Tensor, " B"], closed: SuppressedSymbols) -> StepRecord:
    """Record a step that writes the given symbols."""
    likely = likelihoods(seen, wanted, closed)
    top = likely.topk(candidate_count(likely.shape[1]))
    own = to_array(likely.gather(1, wanted[:, None])[:, 0])
    rows, found = np.arange(len(own)), TopSymbols(to_array(top.indices), to_array(top.values))
    return StepRecord(rows, to_array(wanted), own, to_array(seen.weights), found, to_optional_array(seen.heads))


def likelihoods(seen: StepOutput, wanted: Int[Tensor, " B"], closed: SuppressedSymbols) -> Float[Tensor, "B V"]:
    """Return log-probabilities over the symbols that can be written, and over UNK where it is the target."""
    mask = closed.after
    if (wanted == UNK).any():
        mask = mask.expand_as(seen.logits).clone()
        mask[wanted == UNK, UNK] = False
    return symbol_log_probabilities(seen.logits, mask)
