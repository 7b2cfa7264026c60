"""What drives attention: the place in the sequences, or the symbols that stand there.

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
from pellucid.decoding.inference import Alone
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import ArgumentError
from pellucid.inspection.replay import Replay, answering, begun, replays, taken
from pellucid.inspection.states import outputs_of
from pellucid.model.attention import MonotonicAttention, NoAttention
from pellucid.model.decoder import AttendThenStep
from pellucid.model.memory import AttentionCache
from pellucid.model.network import require_seq2seq


class Drive(NamedTuple):
    """Parts of the variance of attention's scores within a row: they sum to one, but each may lie beyond 0 and 1."""

    temporal: float
    """What the mean states of each place give: the same for all sources and outputs."""
    input_driven: float
    """What the mean deviations that each symbol brings add to it."""
    rest: float
    """What neither explains: context, and how they work together."""


class _Looks(NamedTuple):
    """One trace: its memory, and at each step the query, the symbol fed back, and where the look before was."""

    memory: Float[Tensor, "S D"]
    read: list[Hashable]
    queries: Float[Tensor, "T H"]
    fed: list[Hashable]
    looked: list[Tensor | None]


@check_arguments
def drive(transducer: Predictor, traces: Sequence[Trace]) -> Drive:
    """How much of attention is temporal and how much is driven by the input.

    Aitken et al. 2021 (NeurIPS, "Understanding how encoder-decoder architectures attend", section 3) part each state
    of encoder and decoder, h = μ + χ + Δ: μ_t the mean of all states at place t over the traces, χ_x the mean of
    h − μ over all places where the symbol x was read (of a query: was fed back), Δ the rest. Where they multiply the
    parts of a dot product, here the model's own attention, of whatever score, looks with the parts, so that it holds
    for additive scores too:

        e0 = score(μ query, μ memory)    e1 = score(μ + χ query, μ + χ memory)    e = score(query, memory)

    Scores are ln α of the looks, for a softmax fixes them but for a constant a row; each row is centred. The parts are
    Σ e0 · e, Σ (e1 − e0) · e and Σ (e − e1) · e over Σ e · e, of all rows, positions and heads: covariances over the
    variance, not shares. They sum to one; one below zero works against attention as it is, and others may exceed one.
    What a score by location saw of the look before stays as it was.

    The means are of the traces given: some hundred make them stand.

    Raises:
        ArgumentError: The model's attention is no softmax (none, or monotonic), no trace has a row that varies, the
            model cannot read a trace again, or an argument is of another type.
        InputError: The model is an ensemble, or writes nothing.
    """
    require_transducer(transducer, "steps")
    attention = require_seq2seq(transducer.network).decoder.attention
    if isinstance(attention, NoAttention | MonotonicAttention):
        raise ArgumentError("transducer: expected a model with attention by a softmax, which has scores to take apart")
    sums, total = np.zeros(3), 0.0
    with torch.inference_mode(), answering(transducer, len(traces)):
        found = list[tuple[Alone, _Looks]]()
        for replay in replays(transducer, traces):
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
    return Drive(*(sums / total).tolist())


def parted(
    values: Sequence[Float[Tensor, "_ size"]], symbols: Sequence[Sequence[Hashable]]
) -> list[tuple[Float[Tensor, "_ size"], Float[Tensor, "_ size"]]]:
    """For each sequence μ and μ + χ of its places, as `drive` defines them."""
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


def _looks(transducer: Predictor, replay: Replay) -> list[tuple[Alone, _Looks]]:
    """The looks of each trace of a batch."""
    alone, guide = begun(transducer, replay)
    steps, decoder = list(taken(alone, guide, replay.target)), alone.decoder
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
    alone: Alone, looks: _Looks, states: Float[Tensor, "S D"], queries: Float[Tensor, "T H"]
) -> Float[Tensor, "T N S"]:
    """ln α of all looks, each row centred: the T queries of one source at once."""
    memory = alone.attendable.memory
    lengths = torch.tensor([len(states)], device=states.device)
    own = memory._replace(states=states[None], lengths=lengths, source=None, masked=None)
    before = None if looks.looked[0] is None else torch.stack([each for each in looks.looked if each is not None])
    attention = alone.decoder.attention
    attended = attention(queries, AttentionCache(own, attention.keys(own)), before, None)
    weights = attended.weights[:, None] if attended.heads is None else attended.heads
    scores: Tensor = weights.double().clamp_min(1e-45).log()
    return scores - scores.mean(dim=-1, keepdim=True)
