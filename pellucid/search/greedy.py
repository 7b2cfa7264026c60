"""Greedy search: the likeliest symbol at every step.

B batch, S source positions, T steps, V vocabulary, C candidates kept for inspection, R rows that still run.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.kernels.operands import Prepared, Rules
from pellucid.model.memory import Attendable, Memory, State
from pellucid.model.network import Network
from pellucid.search.decoded import (
    SHRINK,
    Decoded,
    Likeliest,
    Limits,
    Written,
    array,
    blank,
    closed_symbols,
    first_of,
    likeliest,
    outputs_of,
    rules_of,
)


class _Recorded(NamedTuple):
    """One step: the rows that ran, and what they wrote."""

    rows: Int[np.ndarray, " R"]
    weights: Float[np.ndarray, "R S"]
    top: Likeliest


@torch.inference_mode()
def greedy(network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], limits: Limits) -> list[Decoded]:
    """Decode each source of the batch to EOS or to the greatest length; batch-mates change nothing.

    A kernel takes all steps at once where there is one; else they follow each other here.
    """
    memory = network.encoder(source, lengths)
    state, attendable = network.decoder.start(memory), network.decoder.prepare(memory)
    if attendable.prepared is not None:
        return _compiled(attendable.prepared, memory, state, rules_of(network.vocabulary_size, limits))
    return stepwise(network, state, attendable, limits)


def _compiled(prepared: Prepared, memory: Memory, state: State, rules: Rules) -> list[Decoded]:
    """All steps by a kernel."""
    from pellucid.kernels.searching import search_greedily  # Numba takes a second to import

    outputs, lengths = list[Decoded](), memory.lengths.tolist()
    for part in search_greedily(prepared, first_of(state), rules):
        first = len(outputs)
        outputs += outputs_of(part, lengths[first : first + len(part.steps)])
    return outputs


def stepwise(network: Network, state: State, attendable: Attendable, limits: Limits) -> list[Decoded]:
    """The search by steps of the decoder, one of all rows after the other."""
    lengths = attendable.memory.lengths
    symbols = torch.full_like(lengths, BOS)
    rows, steps, recorded = np.arange(len(lengths)), np.zeros(len(lengths), np.int64), list[_Recorded]()
    running, closed = np.ones(len(lengths), np.bool_), closed_symbols(network.vocabulary_size, lengths.device)
    for written in range(limits.maximum + 1):
        step = network.decoder.step(symbols, state, attendable)
        found = likeliest(step.logits, closed.at(written, limits))
        recorded.append(_Recorded(rows, array(step.attended.weights), found))
        ids, state = found.ids[:, 0], step.state
        ended = ids == EOS
        steps[rows[running if written < limits.maximum else running & ended]] = written + 1
        running = running & ~ended
        if not running.any():
            break
        if running.mean() < SHRINK:
            kept = torch.from_numpy(running.nonzero()[0]).to(lengths.device)
            rows, ids, running = rows[running], ids[running], running[running]
            state, attendable = state.take(kept), attendable.take(kept)
        symbols = torch.from_numpy(ids).to(lengths.device)
    outputs = _gathered(recorded, len(lengths))
    sizes = zip(steps.tolist(), lengths.tolist(), strict=True)
    return [outputs.output(row, *size) for row, size in enumerate(sizes)]


def _gathered(recorded: list[_Recorded], rows: int) -> Written:
    """The steps of all rows, side by side."""
    first = recorded[0]
    written = blank(rows, len(recorded), first.weights.shape[1], first.top.ids.shape[1])
    for step, record in enumerate(recorded):
        written.weights[record.rows, step] = record.weights
        written.top_ids[record.rows, step], written.top_log_probabilities[record.rows, step] = record.top
    written.ids[:], written.log_probabilities[:] = written.top_ids[:, :, 0], written.top_log_probabilities[:, :, 0]
    return written
