"""Attention in NumPy; the equations are those of `pellucid.model.attention`.

B sources, S source positions, K hypotheses of a source, R = B·K all hypotheses, D memory, H hidden units of the query,
A attention units, N heads, F filters, W positions of a filter.
"""

import math
from typing import NamedTuple

import numpy as np

from pellucid.config.settings import AttentionConfig
from pellucid.runtime.encoder import EncodedSources
from pellucid.runtime.parameters import AttentionArrays
from pellucid.shapes import Float


class AttendedSources(NamedTuple):
    """Contexts and attention weights of all hypotheses, at one step."""

    context: Float[np.ndarray, "R D"]
    weights: Float[np.ndarray, "R S"]
    """Weights of each hypothesis. They sum to one, or to zero: without attention, and if a monotonic scan ends."""
    heads: Float[np.ndarray, "R N S"] | None = None
    """The weights of each head, of which `weights` are the mean; None for a single head."""


def attention_keys(
    attention: AttentionArrays, config: AttentionConfig, memory: EncodedSources
) -> Float[np.ndarray, "B S A"]:
    """Return the part of the scores that does not depend on the query, and is computed once per source.

    Args:
        attention: Parameters of the attention.
        config: Its settings.
        memory: Output of the encoder.
    """
    if config.type == "scaled-dot":
        return memory.states / np.float32(math.sqrt(memory.states.shape[2]))
    if attention.key is None:
        return memory.states
    keys: Float[np.ndarray, "B S A"] = memory.states @ attention.key.T
    return keys if attention.key_bias is None else keys + attention.key_bias


def initial_attention_state(config: AttentionConfig, memory: EncodedSources) -> Float[np.ndarray, "B S"] | None:
    """Return the attention weights before the first step; None if no step reads the previous weights.

    Args:
        config: Settings of the attention.
        memory: Output of the encoder.
    """
    if config.type not in ("location", "monotonic"):
        return None
    weights = np.zeros(memory.states.shape[:2], np.float32)
    if config.type == "monotonic":
        weights[:, 0] = 1
    return weights


def attend(
    attention: AttentionArrays,
    config: AttentionConfig,
    query: Float[np.ndarray, "R H"],
    memory: EncodedSources,
    keys: Float[np.ndarray, "B S A"],
    previous: Float[np.ndarray, "R S"] | None,
) -> AttendedSources:
    """Return the attention weights and the context of each hypothesis.

    Args:
        attention: Parameters of the attention.
        config: Its settings.
        query: Decoder state of each hypothesis; those of a source are consecutive.
        memory: Output of the encoder.
        keys: Keys (`attention_keys`).
        previous: Attention weights of the previous step; None if the attention reads none.
    """
    sources, rows = len(memory.lengths), len(query)
    if config.type == "none":
        context = np.repeat(memory.final, rows // sources, axis=0)
        return AttendedSources(context, np.zeros((rows, memory.states.shape[1]), np.float32))
    queries = query.reshape(sources, -1, query.shape[1])
    if attention.query is None:
        return _weighted(softmax_positions(queries @ keys.transpose(0, 2, 1), memory), memory)
    summed = (queries @ attention.query.T)[:, :, None] + keys[:, None]
    if attention.location is not None and attention.filters is not None:
        assert previous is not None, "a location-sensitive score needs the previous weights"
        filtered = _filter_weights(attention.filters, previous.reshape(*queries.shape[:2], -1), memory)
        summed = summed + filtered @ attention.location.T
    assert attention.energy is not None, "an additive score has an energy vector"
    activations = np.tanh(summed)
    if len(attention.energy) > 1:
        return _attend_heads(attention, activations, memory)
    energies = activations @ attention.energy[0]
    if config.type == "monotonic":
        assert previous is not None, "a monotonic scan needs the previous weights"
        is_open = (energies + np.float32(attention.offset) > 0) & memory.length_mask()[:, None]
        return _weighted(hard_stop(is_open, previous.reshape(energies.shape)), memory)
    return _weighted(softmax_positions(energies, memory), memory)


def softmax_positions(scores: Float[np.ndarray, "B K S"], memory: EncodedSources) -> Float[np.ndarray, "B K S"]:
    """Return the softmax over the positions that are not padding; the others get exactly zero.

    Args:
        scores: Score of each query at each position.
        memory: Lengths of the sources.
    """
    masked = np.where(memory.length_mask()[:, None], scores, np.float32(-np.inf))
    exponentials = np.exp(masked - masked.max(axis=2, keepdims=True))
    weights: Float[np.ndarray, "B K S"] = exponentials / exponentials.sum(axis=2, keepdims=True)
    return weights


def hard_stop(is_open: np.ndarray, previous: Float[np.ndarray, "B K S"]) -> Float[np.ndarray, "B K S"]:
    """Return the weights of a monotonic scan: an open position gets those after the previous open one, up to itself.

    Args:
        is_open: True at positions where the scan stops.
        previous: Weights of the previous step.
    """
    cumulative = previous.cumsum(axis=2)
    at_open = np.maximum.accumulate(np.where(is_open, cumulative, np.float32(0)), axis=2)
    at_previous = np.pad(at_open, ((0, 0), (0, 0), (1, 0)))[:, :, :-1]
    return np.where(is_open, cumulative - at_previous, np.float32(0))


def _weighted(weights: Float[np.ndarray, "B K S"], memory: EncodedSources) -> AttendedSources:
    """Return the contexts Σ_s α_s h_s of these weights."""
    context = weights @ memory.states
    return AttendedSources(context.reshape(-1, context.shape[2]), weights.reshape(-1, weights.shape[2]))


def _attend_heads(
    attention: AttentionArrays, activations: Float[np.ndarray, "B K S A"], memory: EncodedSources
) -> AttendedSources:
    """Return the projected contexts of all heads, and the mean of their weights."""
    assert attention.energy is not None and attention.context is not None, "several heads have an output projection"
    by_head = activations.reshape(*activations.shape[:3], *attention.energy.shape)
    scores = (by_head * attention.energy).sum(axis=4).transpose(0, 1, 3, 2)
    output = _weighted(softmax_positions(scores.reshape(len(scores), -1, scores.shape[3]), memory), memory)
    rows = scores.shape[0] * scores.shape[1]
    heads = output.weights.reshape(rows, len(attention.energy), -1)
    return AttendedSources(output.context.reshape(rows, -1) @ attention.context.T, heads.mean(axis=1), heads)


def _filter_weights(
    filters: Float[np.ndarray, "F W"], previous: Float[np.ndarray, "B K S"], memory: EncodedSources
) -> Float[np.ndarray, "B K S F"]:
    """Return f_s = Σ_j F_j α'_{s+j} of the weights α' of the previous step, which are zero beyond a source's end."""
    radius = filters.shape[1] // 2
    padded = np.pad(previous * memory.length_mask()[:, None], ((0, 0), (0, 0), (radius, radius)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, filters.shape[1], axis=2)
    filtered: Float[np.ndarray, "B K S F"] = windows @ filters.T
    return filtered
