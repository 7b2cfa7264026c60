"""Greedy search: the likeliest symbol at every step.

B batch, S source positions, T steps, V vocabulary, C candidates kept for inspection, R rows that still run.
"""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.decoding.inference import Alone, Running, begin
from pellucid.decoding.outputs import (
    SHRINK,
    Decoded,
    Limits,
    Recorded,
    Recorder,
    array,
    array_or_none,
    closed_symbols,
    first_of,
    likeliest,
    outputs_of,
    rules_of,
)
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import SearchLimits
from pellucid.model.network import Network


@torch.inference_mode()
def greedy(network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], limits: Limits) -> list[Decoded]:
    """Decode each source of the batch to EOS or to the greatest length; batch-mates change nothing.

    A kernel takes all steps at once where there is one; else they follow each other here.
    """
    running = begin(network, source, lengths)
    lengths = running.attendable.memory.lengths
    if use_kernel(running.decoder.request("greedy", running.attendable)):
        rules = rules_of(network.vocabulary_size, limits)
        return _compiled(running, lengths.tolist(), rules)
    return stepwise(running, lengths, limits)


def _compiled(running: Alone, lengths: list[int], rules: SearchLimits) -> list[Decoded]:
    """All steps by a kernel."""
    from pellucid.kernels.autograd import search_greedily  # Numba takes a second to import

    prepared, outputs = running.attendable.kernel, list[Decoded]()
    assert prepared is not None, "a kernel that takes all steps takes each"
    for part in search_greedily(prepared, first_of(running.state), rules):
        first = len(outputs)
        outputs += outputs_of(part, lengths[first : first + len(part.steps)])
    return outputs


def stepwise(running: Running, lengths: Int[Tensor, " B"], limits: Limits) -> list[Decoded]:
    """The search by steps of whatever writes, one of all rows after the other."""
    symbols = torch.full_like(lengths, BOS)
    rows, steps, recorded = np.arange(len(lengths)), np.zeros(len(lengths), np.int64), Recorder(len(lengths))
    going, closed = np.ones(len(lengths), np.bool_), None
    for written in range(limits.maximum + 1):
        seen = running.step(symbols)
        closed = closed or closed_symbols(seen.logits.shape[1], lengths.device)
        found = likeliest(seen.logits, closed.at(written, limits))
        ids, running = found.ids[:, 0], seen.after
        looks = array(seen.weights), found, array_or_none(seen.heads)
        recorded.add(Recorded(rows, ids, found.log_probabilities[:, 0], *looks))
        ended = ids == EOS
        steps[rows[going if written < limits.maximum else going & ended]] = written + 1
        going = going & ~ended
        if not going.any():
            break
        if going.mean() < SHRINK:
            kept = torch.from_numpy(going.nonzero()[0]).to(lengths.device)
            rows, ids, going = rows[going], ids[going], going[going]
            running = running.take(kept, kept)
        symbols = torch.from_numpy(ids).to(lengths.device)
    sizes = zip(steps.tolist(), lengths.tolist(), strict=True)
    return [recorded.output(row, *size) for row, size in enumerate(sizes)]
