"""The places of a beam where outputs must hold certain symbols: shared out by how many of them a hypothesis holds.

A beam that goes by ln p alone drops every hypothesis that takes the trouble of a required symbol, and is left with
those that never meet it until their greatest length makes them. So each count of symbols met has places of its own.
Source: M. Post and D. Vilar (2018), "Fast lexically constrained decoding with dynamic beam allocation for neural
machine translation", NAACL, section 3.

b sources, k hypotheses of each, M required symbols, K width of the beam, E extensions, V symbols that can be written.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.search.constraints import Constraints
from pellucid.search.decoded import Extended, Masks, best_of, summed


def width_for(width: int, constraints: Constraints) -> int:
    """At least one place for each count of required symbols, 0 to M."""
    return max(width, len(constraints.required) + 1) if len(constraints.required) else width


def extend_to_meet(
    logits: Float[Tensor, "R V"],
    masks: Masks,
    scores: Float[np.ndarray, "b k"],
    lacking: tuple[Int[np.ndarray, " M"], Bool[np.ndarray, "b k M"]],
    width: int,
) -> Extended:
    """The best `width` extensions of each source, and those that no score may drop: section 3.2 of the source.

    They are the likeliest extension of every hypothesis, and each hypothesis with each required symbol that it lacks.
    Extensions beyond these have the score −∞.
    """
    found, sums = summed(logits, masks, scores)
    required, lacks = lacking
    rows, vocabulary = sums.view(*scores.shape, -1), logits.shape[1]
    chosen = torch.zeros_like(rows, dtype=torch.bool)
    chosen.scatter_(2, rows.argmax(dim=2, keepdim=True), True)
    for at, symbol in enumerate(required.tolist()):
        chosen[:, :, symbol] |= torch.from_numpy(lacks[:, :, at]).to(chosen.device)
    chosen = chosen.view(len(scores), -1)
    chosen.scatter_(1, sums.topk(min(width, sums.shape[1])).indices, True)
    most = min(width + scores.shape[1] * (len(required) + 1), scores.shape[1] * vocabulary)
    return best_of(found, sums.masked_fill(~chosen, -torch.inf), most)


def shared_out(
    open_: Bool[np.ndarray, "b E"], met: Int[np.ndarray, "b E"], required: int, width: int
) -> Bool[np.ndarray, "b E"]:
    """Which open extensions, ordered by falling score, have a place: K for each source.

    Each count of symbols met, 0 to M, has K / (M + 1) places, the higher counts one more where that leaves a rest.
    Places that a count cannot fill go to the best of the others: section 3.3 of the source.
    """
    counts = np.arange(required + 1)
    quotas = width // len(counts) + (counts >= len(counts) - width % len(counts))
    of_count = open_[:, :, None] & (met[:, :, None] == counts)
    own = (of_count & (of_count.cumsum(axis=1) <= quotas)).any(axis=2)
    others = open_ & ~own
    free = width - own.sum(axis=1, keepdims=True)
    placed: Bool[np.ndarray, "b E"] = own | (others & (others.cumsum(axis=1) <= free))
    return placed
