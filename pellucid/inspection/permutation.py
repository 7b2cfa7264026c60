"""Whether it matters where attention looked: its weights shuffled, and what would have been written then.

T steps, S source positions, N permutations, V symbols.
"""

from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from pellucid.arguments import check_arguments
from pellucid.config.settings import Seed
from pellucid.data.vocabulary import BOS
from pellucid.decoding.forced_attention import Guided
from pellucid.decoding.forced_decoding import likelihoods
from pellucid.decoding.inference import Alone, Together
from pellucid.decoding.outputs import closed_symbols
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import ArgumentError
from pellucid.inspection.replay import answering, replays
from pellucid.model.attention import NoAttention
from pellucid.model.network import require_seq2seq

Permutations = Annotated[int, Meta(ge=1, le=10_000)]
"""How many permutations there are of a step; all of them are in memory together."""


class Permuted(NamedTuple):
    """What shuffling the weights of each step does to that step's distribution."""

    change: Float[np.ndarray, " T"]
    """The median total variation distance ½ Σ |p − p'| over the permutations: 0 nothing, 1 everything."""
    greatest: Float[np.ndarray, " T"]
    """The greatest weight of the step: what is spread evenly cannot change by shuffling."""


@check_arguments
def permutation(transducer: Predictor, trace: Trace, permutations: Permutations = 100, seed: Seed = 1) -> Permuted:
    """Shuffle one step's weights among the source positions, along the trace's own output, and write that step again.

    All other steps keep their own weights. With several heads, all look by the shuffled mean of theirs, and what is
    compared is their look by the mean as it was. A step whose median is near 0 would have been written wherever it
    looked: its weights do not explain it. Source: Jain & Wallace 2019, section 4.2.1 and algorithm 1 (100 permutations,
    the median). The result depends on the seed.

    Args:
        transducer: The model, or an ensemble.
        trace: One of its traces, or one that it could have written.
        permutations: How often each step is written again.
        seed: That of the permutations.

    Raises:
        ArgumentError: The model has no attention or cannot read the trace again, or an argument is of another type.
    """
    require_transducer(transducer, "steps")
    if all(isinstance(require_seq2seq(network).decoder.attention, NoAttention) for network in transducer.networks):
        raise ArgumentError("transducer: expected a model with attention: without, there is nothing to permute")
    generator = np.random.default_rng(seed)
    changes, greatest = list[float](), list[float]()
    with torch.inference_mode(), answering(transducer, permutations * len(trace.target)):
        for replay in replays(transducer, [trace], "trace"):
            running, symbols = (
                require_transducer(transducer, "steps").begin(replay.work),
                torch.full_like(replay.target[:, 0], BOS),
            )
            for wanted in replay.target.unbind(dim=1):
                seen = running.step(symbols)
                rows = shuffled(seen.weights[0], permutations, generator)
                copies = torch.zeros(len(rows), dtype=torch.int64, device=symbols.device)
                again = running.take(copies)
                inner = again.running if isinstance(again, Guided) else again
                assert isinstance(inner, Alone | Together), "what can be given rows"
                changed = inner.step(symbols.repeat(len(rows)), rows)
                closed = closed_symbols(changed.logits.shape[1], symbols.device)
                likely = likelihoods(changed, wanted.repeat(len(rows)), closed).exp().double()
                changes.append(float((likely[1:] - likely[:1]).abs().sum(dim=1).median() / 2))
                greatest.append(float(seen.weights[0].max()))
                running, symbols = seen.after, wanted
    return Permuted(np.array(changes), np.array(greatest))


def shuffled(row: Float[Tensor, " S"], permutations: int, generator: np.random.Generator) -> Float[Tensor, "N S"]:
    """A row as it is, and below it so many permutations of it."""
    orders: list[Int[np.ndarray, " S"]] = [generator.permutation(len(row)) for _ in range(permutations)]
    places = torch.from_numpy(np.stack([np.arange(len(row)), *orders])).to(row.device)
    return row[places]
