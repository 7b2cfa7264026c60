"""Forced decoding: what a model says of outputs that are given.

B sources, T steps, S source positions, V symbols.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, UNK
from pellucid.decoding.inference import Running, Seen
from pellucid.decoding.outputs import (
    Closed,
    Decoded,
    Likeliest,
    Recorded,
    Recorder,
    array,
    array_or_none,
    candidates,
    closed_symbols,
    symbol_log_probabilities,
)


@torch.inference_mode()
def force(
    running: Running, lengths: Int[Tensor, " B"], targets: Int[Tensor, "B T"], steps: Int[Tensor, " B"]
) -> list[Decoded]:
    """Each target (EOS last) as though it had been decoded: ln p, attention, and the likeliest symbols of every step.

    ln p of a symbol is that among all symbols a search could write there, so it equals the search's own; of UNK, which
    no search writes, it is that among those and UNK.
    """
    symbols, recorded, closed = torch.full_like(lengths, BOS), Recorder(len(lengths), targets.shape[1]), None
    for wanted in targets.unbind(dim=1):
        seen = running.step(symbols)
        closed = closed or closed_symbols(seen.logits.shape[1], lengths.device)
        recorded.add(_record(seen, wanted, closed))
        running, symbols = seen.after, wanted
    sizes = zip(steps.tolist(), lengths.tolist(), strict=True)
    return [recorded.output(row, *size) for row, size in enumerate(sizes)]


def _record(seen: Seen, wanted: Int[Tensor, " B"], closed: Closed) -> Recorded:
    """One step that writes what is wanted."""
    likely = likelihoods(seen, wanted, closed)
    top = likely.topk(candidates(likely.shape[1]))
    own = array(likely.gather(1, wanted[:, None])[:, 0])
    rows, found = np.arange(len(own)), Likeliest(array(top.indices), array(top.values))
    return Recorded(rows, array(wanted), own, array(seen.weights), found, array_or_none(seen.heads))


def likelihoods(seen: Seen, wanted: Int[Tensor, " B"], closed: Closed) -> Float[Tensor, "B V"]:
    """ln p of every symbol that can be written, and of UNK where that is wanted."""
    mask = closed.after
    if (wanted == UNK).any():
        mask = mask.expand_as(seen.logits).clone()
        mask[wanted == UNK, UNK] = False
    return symbol_log_probabilities(seen.logits, mask)
