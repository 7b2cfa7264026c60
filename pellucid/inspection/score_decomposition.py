"""Decomposition of attention scores into temporal and input-driven components.

n traces, T steps, S source positions, N heads, D memory, H hidden.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pellucid.arguments import check_arguments
from pellucid.decoding.inference import SingleModelInference
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import ArgumentError
from pellucid.inspection.replay import Replay, build_replays, inference_mode, replay_steps, start_replay
from pellucid.inspection.states import outputs_of
from pellucid.model.attention import MonotonicAttention, NoAttention
from pellucid.model.decoder import AttendThenStep
from pellucid.model.memory import AttentionCache
from pellucid.model.network import require_seq2seq


class ScoreDecomposition(NamedTuple):
    """Components of the variance of attention scores within rows. They sum to one; each may be below 0 or above 1."""

    temporal: float
    """Component of the mean states of each position, equal for all sources and outputs."""
    input_driven: float
    """Additional component of the mean deviation of each symbol."""
    rest: float
    """Remaining component: context and interactions."""


class _Looks(NamedTuple):
    """Attention of one trace: its memory, and at each step the query, the previous symbol and the previous weights."""

    memory: Float[Tensor, "S D"]
    read: list[Hashable]
    queries: Float[Tensor, "T H"]
    fed: list[Hashable]
    looked: list[Tensor | None]


@check_arguments
def decompose_scores(transducer: Predictor, traces: Sequence[Trace]) -> ScoreDecomposition:
    """Return how much of attention is temporal and how much is driven by the input.

    Aitken et al. 2021 split each encoder and decoder state into h = μ + χ + Δ: μ_t is the mean of all states at
    position t over the traces, χ_x the mean of h − μ over all positions with symbol x (for a query: the previous
    symbol), and Δ the rest. They multiply the components of a dot product. Here the model's own attention is computed
    with the components, so it applies to additive scores too:

        e0 = score(μ query, μ memory)    e1 = score(μ + χ query, μ + χ memory)    e = score(query, memory)

    Scores are log attention weights, centered per row, since a softmax determines them up to a constant. The components
    are Σ e0 · e, Σ (e1 − e0) · e and Σ (e − e1) · e over Σ e · e, over all rows, positions and heads: covariances
    divided by the variance. They sum to one; a negative one opposes the attention. A location-sensitive score keeps its
    previous weights.

    Args:
        transducer: The model.
        traces: Traces of the model; a few hundred give stable means.

    Raises:
        InputError: The model is an ensemble, has no attention or monotonic attention (no softmax), or no row varies.

    References:
        Aitken et al. 2021, "Understanding how encoder-decoder architectures attend", NeurIPS, section 3.
    """
    require_transducer(transducer, "steps")
    attention = require_seq2seq(transducer.network).decoder.attention
    if isinstance(attention, NoAttention | MonotonicAttention):
        raise ArgumentError("transducer: expected a model with attention by a softmax, which has scores to take apart")
    sums, total = np.zeros(3), 0.0
    with torch.inference_mode(), inference_mode(transducer, len(traces)):
        found = list[tuple[SingleModelInference, _Looks]]()
        for replay in build_replays(transducer, traces):
            found += _looks(transducer, replay)
        memories = parted([each.memory for _, each in found], [each.read for _, each in found])
        queries = parted([each.queries for _, each in found], [each.fed for _, each in found])
        for (alone, looks), memory, query in zip(found, memories, queries, strict=True):
            place, both = _scores(alone, looks, memory[0], query[0]), _scores(alone, looks, memory[1], query[1])
            whole = _scores(alone, looks, looks.memory, looks.queries)
            sums += [float((part * whole).sum()) for part in (place, both - place, whole - both)]
            total += float((whole * whole).sum())
    if not total:
        raise ArgumentError("traces: expected attention that varies: there is nothing to take apart")
    return ScoreDecomposition(*(sums / total).tolist())


def parted(
    values: Sequence[Float[Tensor, "_ size"]], symbols: Sequence[Sequence[Hashable]]
) -> list[tuple[Float[Tensor, "_ size"], Float[Tensor, "_ size"]]]:
    """Return μ and μ + χ of each position of each sequence; see `decompose_scores`."""
    most = max((len(each) for each in values), default=0)
    means = [torch.stack([each[at] for each in values if len(each) > at]).mean(dim=0) for at in range(most)]
    gathered: defaultdict[Hashable, list[Tensor]] = defaultdict(list)
    for each, own in zip(values, symbols, strict=True):
        for at, symbol in enumerate(own):
            gathered[symbol].append(each[at] - means[at])
    brought = {symbol: torch.stack(all_).mean(dim=0) for symbol, all_ in gathered.items()}
    found = []
    for each, own in zip(values, symbols, strict=True):
        temporal = torch.stack(means[: len(each)])
        found.append((temporal, temporal + torch.stack([brought[symbol] for symbol in own])))
    return found


def _looks(transducer: Predictor, replay: Replay) -> list[tuple[SingleModelInference, _Looks]]:
    """Return the attention of each trace of a batch."""
    alone, guide = start_replay(transducer, replay)
    steps, decoder = list(replay_steps(alone, guide, replay.target)), alone.decoder
    first = isinstance(decoder, AttendThenStep)
    queries = [
        each.before.hidden[:, -1] if first else outputs_of(decoder, each.step.state.hidden)[-1] for each in steps
    ]
    found = []
    for row, (_, positions, count) in enumerate(replay.sizes):
        looks = _Looks(
            alone.attendable.memory.states[row, :positions],
            replay.work.source[row, :positions].tolist(),
            torch.stack([query[row] for query in queries[:count]]),
            [int(each.symbols[row]) for each in steps[:count]],
            [
                None if each.before.attention_state is None else each.before.attention_state[row, :positions]
                for each in steps[:count]
            ],
        )
        found.append((alone, looks))
    return found


def _scores(
    alone: SingleModelInference, looks: _Looks, states: Float[Tensor, "S D"], queries: Float[Tensor, "T H"]
) -> Float[Tensor, "T N S"]:
    """Return log attention weights, centered per row; all T queries of one source together."""
    memory = alone.attendable.memory
    lengths = torch.tensor([len(states)], device=states.device)
    own = memory._replace(states=states[None], lengths=lengths, source=None, masked=None)
    before = None if looks.looked[0] is None else torch.stack([each for each in looks.looked if each is not None])
    attention = alone.decoder.attention
    attended = attention(queries, AttentionCache(own, attention.keys(own)), before, None)
    weights = attended.weights[:, None] if attended.heads is None else attended.heads
    scores: Tensor = weights.double().clamp_min(1e-45).log()
    return scores - scores.mean(dim=-1, keepdim=True)
