"""Greedy search: the likeliest symbol at every step.

B batch, S source positions, T steps, V vocabulary, C candidates kept for inspection, R rows that still run.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.model.network import Network
from pellucid.search.decoded import (
    SHRINK,
    Decoded,
    Limits,
    Written,
    blank,
    candidates,
    closed_symbols,
    symbol_log_probabilities,
)


class _Recorded(NamedTuple):
    """One step: the rows that ran, and what they wrote."""

    rows: Int[np.ndarray, " R"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R C"]
    top_log_probabilities: Float[np.ndarray, "R C"]


@torch.inference_mode()
def greedy(network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], limits: Limits) -> list[Decoded]:
    """Decode each source of the batch to EOS or to the greatest length; batch-mates change nothing."""
    memory = network.encoder(source, lengths)
    state, attendable = network.decoder.start(memory), network.decoder.prepare(memory)
    symbols = torch.full_like(lengths, BOS)
    rows, steps, recorded = np.arange(len(lengths)), np.zeros(len(lengths), np.int64), list[_Recorded]()
    running, closed = np.ones(len(lengths), np.bool_), closed_symbols(network.vocabulary_size, source.device)
    for written in range(limits.maximum + 1):
        step = network.decoder.step(symbols, state, attendable)
        found = symbol_log_probabilities(step.logits, closed.at(written, limits))
        top = found.topk(candidates(network.vocabulary_size))
        symbols, state = top.indices[:, 0], step.state
        recorded.append(_record(rows, step.attended.weights, top.indices, top.values))
        ended = recorded[-1].top_ids[:, 0] == EOS
        steps[rows[running if written < limits.maximum else running & ended]] = written + 1
        running = running & ~ended
        if not running.any():
            break
        if running.mean() < SHRINK:
            kept = torch.from_numpy(running.nonzero()[0]).to(source.device)
            rows, symbols, running = rows[running], symbols[kept], running[running]
            state, attendable = state.take(kept), attendable.take(kept)
    outputs = _gathered(recorded, len(lengths))
    return [
        outputs.output(row, *counts) for row, counts in enumerate(zip(steps.tolist(), lengths.tolist(), strict=True))
    ]


def _record(rows: Int[np.ndarray, " R"], weights: Tensor, top_ids: Tensor, top_values: Tensor) -> _Recorded:
    """A step as arrays."""
    ids, values = top_ids.cpu().numpy(), top_values.float().cpu().numpy()
    return _Recorded(rows, weights.float().cpu().numpy(), ids, values)


def _gathered(recorded: list[_Recorded], rows: int) -> Written:
    """The steps of all rows, side by side."""
    first = recorded[0]
    written = blank(rows, len(recorded), first.weights.shape[1], first.top_ids.shape[1])
    for step, record in enumerate(recorded):
        written.weights[record.rows, step] = record.weights
        written.top_ids[record.rows, step] = record.top_ids
        written.top_log_probabilities[record.rows, step] = record.top_log_probabilities
    written.ids[:], written.log_probabilities[:] = written.top_ids[:, :, 0], written.top_log_probabilities[:, :, 0]
    return written
