"""Decomposition of attention scores into temporal and input-driven components.

n traces, T steps, S source positions, N heads, D memory, H hidden.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.argument_checks import check_arguments
from pellucid.decoding.inference import SingleModelInference
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import ArgumentError
from pellucid.inspection.replay import (
    Replay,
    build_replays,
    check_finite,
    evaluation_context,
    replay_steps,
    start_replay,
)
from pellucid.inspection.states import layer_outputs
from pellucid.model.attention import Attention
from pellucid.model.decoder import AttendThenStep
from pellucid.model.memory import DecoderCache
from pellucid.model.network import require_encoder_decoder
from pellucid.shapes import Float


class ScoreDecomposition(NamedTuple):
    """Fractions of the variance of attention scores over source positions. They sum to one; each may be below 0 or
    above 1.
    """

    temporal: float
    """Fraction that the position alone explains: scores of the mean states at each position."""
    input_driven: float
    """Additional fraction that the symbols explain: mean deviation of each symbol's states."""
    residual: float
    """Remaining fraction: context and interactions."""


class _TraceAttention(NamedTuple):
    """Attention of one trace: its memory, and at each step the query, the previous symbol and the previous state."""

    inference: SingleModelInference
    memory: Float[Tensor, "S D"]
    source_ids: list[Hashable]
    queries: Float[Tensor, "T H"]
    input_ids: list[Hashable]
    attention_states: list[Tensor | None]
    row: int = 0
    """Row of the source in the batch of the inference."""


class MeanComponents(NamedTuple):
    """Components of the states of one sequence, one row per position."""

    temporal: Float[Tensor, "_ size"]
    """μ, the mean of all states at the same position."""
    temporal_and_input: Float[Tensor, "_ size"]
    """μ + χ, where χ is the mean deviation of all states of the same symbol."""


@check_arguments
@check_finite
def decompose_scores(predictor: Predictor, traces: Sequence[Trace]) -> ScoreDecomposition:
    """Return how much of attention is temporal and how much is driven by the input.

    Aitken et al. 2021 split each encoder and decoder state into h = μ + χ + Δ: μ_t is the mean of all states at
    position t over the traces, χ_x the mean of h − μ over all positions with symbol x (for a query: the previous
    symbol), and Δ the rest. They multiply the components of a dot product. Here the model's own attention is computed
    with the components, so it applies to additive scores too:

        e0 = score(μ query, μ memory)    e1 = score(μ + χ query, μ + χ memory)    e = score(query, memory)

    Scores are log attention weights, centered per row, since a softmax determines them up to a constant. The components
    are Σ e0 · e, Σ (e1 − e0) · e and Σ (e − e1) · e over Σ e · e, over all rows, positions and heads: covariances
    divided by the variance. They sum to one; a negative one opposes the attention. A score that depends on the
    previous weights keeps the state that it had at the step.

    Args:
        predictor: A single model that decodes symbol by symbol.
        traces: Traces of the model; a few hundred give stable means. Those without source or output are left out.

    Raises:
        ConfigError: The model does not decode symbol by symbol.
        ArgumentError: The model is an ensemble, or has no attention, or monotonic attention (no softmax); the weights
            of every step are constant, or there is no trace; a field of a trace is wrong, or a trace is of another
            model.

    References:
        Aitken et al. 2021, "Understanding how encoder-decoder architectures attend", NeurIPS, section 3.
    """
    require_transducer(predictor, "predictor")
    attention = require_encoder_decoder(predictor.network).decoder.attention
    if not attention.uses_softmax:
        raise ArgumentError("predictor: expected a model with attention by a softmax, whose scores can be decomposed")
    sums, total = np.zeros(3), 0.0
    with torch.inference_mode(), evaluation_context(predictor, len(traces)):
        rows = list[_TraceAttention]()
        # An attention class may give its state any shape, so that padding cannot be cut from it: traces of such a class
        # are replayed without padding.
        for replay in build_replays(predictor, traces, padded=not _has_state(attention)):
            rows += _trace_attention(predictor, replay)
        memories = mean_components([row.memory for row in rows], [row.source_ids for row in rows])
        queries = mean_components([row.queries for row in rows], [row.input_ids for row in rows])
        for row, memory, query in zip(rows, memories, queries, strict=True):
            temporal = _scores(row, memory.temporal, query.temporal)
            both = _scores(row, memory.temporal_and_input, query.temporal_and_input)
            scores = _scores(row, row.memory, row.queries)
            sums += [float((part * scores).sum()) for part in (temporal, both - temporal, scores - both)]
            total += float((scores * scores).sum())
    if not total:
        raise ArgumentError("traces: expected attention that varies, got constant weights in every row")
    return ScoreDecomposition(*(sums / total).tolist())


def mean_components(
    values: Sequence[Float[Tensor, "_ size"]], symbols: Sequence[Sequence[Hashable]]
) -> list[MeanComponents]:
    """Return μ and μ + χ of each position of each sequence, as defined in `decompose_scores`.

    Args:
        values: States of each sequence, one row per position.
        symbols: Symbol of each state, by sequence and position.

    Returns:
        Components of each sequence, in order.
    """
    longest = max((len(states) for states in values), default=0)
    means = [torch.stack([states[t] for states in values if len(states) > t]).mean(dim=0) for t in range(longest)]
    deviations: defaultdict[Hashable, list[Tensor]] = defaultdict(list)
    for states, states_symbols in zip(values, symbols, strict=True):
        for t, symbol in enumerate(states_symbols):
            deviations[symbol].append(states[t] - means[t])
    input_driven = {symbol: torch.stack(rows).mean(dim=0) for symbol, rows in deviations.items()}
    components = []
    for states, states_symbols in zip(values, symbols, strict=True):
        temporal = torch.stack(means[: len(states)])
        both = temporal + torch.stack([input_driven[symbol] for symbol in states_symbols])
        components.append(MeanComponents(temporal, both))
    return components


def _trace_attention(predictor: Predictor, replay: Replay) -> list[_TraceAttention]:
    """Return the attention of each trace of a batch."""
    inference, forced = start_replay(predictor, replay)
    steps, decoder = list(replay_steps(inference, forced, replay.target)), inference.decoder
    attend_first = isinstance(decoder, AttendThenStep)
    queries = [
        step.before.hidden[:, -1] if attend_first else layer_outputs(decoder, step.step.state.hidden)[-1]
        for step in steps
    ]
    rows = []
    for row, (_, positions, count) in enumerate(replay.sizes):
        before = [step.before.attention_state for step in steps[:count]]
        rows.append(
            _TraceAttention(
                inference,
                inference.cache.memory.states[row, :positions],
                replay.batch.source[row, :positions].tolist(),
                torch.stack([query[row] for query in queries[:count]]),
                [int(step.symbols[row]) for step in steps[:count]],
                [None if state is None else state[row] for state in before],
                row,
            )
        )
    return rows


def _has_state(attention: Attention) -> bool:
    """Return whether an attention may have a state, which the next step reads."""
    return type(attention).initial_attention_state is not Attention.initial_attention_state


def _scores(
    trace: _TraceAttention, states: Float[Tensor, "S D"], queries: Float[Tensor, "T H"]
) -> Float[Tensor, "T N S"]:
    """Return log attention weights, centered per row; all T queries of one source together."""
    lengths = torch.tensor([len(states)], device=states.device)
    memory = trace.inference.cache.memory
    final = memory.final.index_select(torch.tensor([trace.row], device=states.device))
    memory = memory._replace(states=states[None], lengths=lengths, final=final, source=None, ignored=None)
    states_before = [state for state in trace.attention_states if state is not None]
    before = torch.stack(states_before) if states_before else None
    attention = trace.inference.decoder.attention
    attended = attention(queries, DecoderCache(memory, attention.keys(memory)), before, None)
    weights = attended.weights[:, None] if attended.heads is None else attended.heads
    scores: Tensor = weights.double().clamp_min(1e-45).log()
    return scores - scores.mean(dim=-1, keepdim=True)
