"""Greedy search: the most probable symbol at every step.

B batch, S source positions, T steps, V vocabulary, C candidates kept for inspection, R active rows.
"""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.decoding.inference import Inference, SingleModelInference, encode_and_initialize
from pellucid.decoding.outputs import (
    SHRINK,
    DecodedOutput,
    LengthLimits,
    Recorder,
    StepRecord,
    initial_kernel_state,
    search_limits,
    split_outputs,
    suppressed_symbols,
    to_array,
    to_optional_array,
    top_symbols,
)
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import SearchLimits
from pellucid.model.network import Network


@torch.inference_mode()
def greedy(
    network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], limits: LengthLimits
) -> list[DecodedOutput]:
    """Decode each source to EOS or to the maximum length. The other sources of the batch do not change an output.

    A kernel runs all steps if one supports the model.

    Args:
        network: Trained network.
        source: Source ids.
        lengths: Source lengths.
        limits: Minimum and maximum output length.
    """
    running = encode_and_initialize(network, source, lengths)
    lengths = running.attendable.memory.lengths
    if use_kernel(running.decoder.request("greedy", running.attendable)):
        rules = search_limits(network.vocabulary_size, limits)
        return _compiled(running, lengths.tolist(), rules)
    return stepwise(running, lengths, limits)


def _compiled(running: SingleModelInference, lengths: list[int], rules: SearchLimits) -> list[DecodedOutput]:
    """Run all steps in a kernel."""
    from pellucid.kernels.autograd import search_greedily  # Numba takes a second to import

    prepared, outputs = running.attendable.kernel, list[DecodedOutput]()
    assert prepared is not None, "a kernel that takes all steps takes each"
    for part in search_greedily(prepared, initial_kernel_state(running.state), rules):
        first = len(outputs)
        outputs += split_outputs(part, lengths[first : first + len(part.steps)])
    return outputs


def stepwise(running: Inference, lengths: Int[Tensor, " B"], limits: LengthLimits) -> list[DecodedOutput]:
    """Run greedy search step by step on any `Inference`."""
    symbols = torch.full_like(lengths, BOS)
    rows, steps, recorded = np.arange(len(lengths)), np.zeros(len(lengths), np.int64), Recorder(len(lengths))
    going, closed = np.ones(len(lengths), np.bool_), None
    for written in range(limits.maximum + 1):
        seen = running.step(symbols)
        closed = closed or suppressed_symbols(seen.logits.shape[1], lengths.device)
        found = top_symbols(seen.logits, closed.at(written, limits))
        ids, running = found.ids[:, 0], seen.after
        looks = to_array(seen.weights), found, to_optional_array(seen.heads)
        recorded.add(StepRecord(rows, ids, found.log_probabilities[:, 0], *looks))
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
