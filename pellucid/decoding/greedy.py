"""Greedy search: the most probable symbol at every step.

B batch, S source positions, T steps, V vocabulary, C candidates kept for inspection, R active rows.
"""

import numpy as np
import torch
from torch import Tensor

from pellucid.data.characters import WordCharacters
from pellucid.data.vocabulary import BOS, EOS
from pellucid.decoding.hypothesis import Hypothesis, hypothesis_of
from pellucid.decoding.inference import Inference, SingleModelInference, encode_and_initialize
from pellucid.decoding.outputs import (
    MIN_ACTIVE_FRACTION,
    LengthLimits,
    Recorder,
    StepRecord,
    choose_symbols,
    split_outputs,
)
from pellucid.decoding.topk import (
    initial_kernel_state,
    search_limits,
    suppressed_symbols,
    to_array,
    to_optional_array,
    top_symbols,
)
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import SearchLimits
from pellucid.model.network import Network
from pellucid.shapes import Int


@torch.inference_mode()
def greedy(
    network: Network,
    source: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    limits: LengthLimits,
    characters: WordCharacters | None = None,
) -> list[Hypothesis]:
    """Decode each source to EOS or to the maximum length. The other sources of the batch do not change an output.

    A kernel runs all steps if one supports the model.

    Args:
        network: Trained encoder-decoder, in evaluation mode.
        source: Source ids.
        lengths: Source lengths.
        limits: Minimum and maximum output length, in symbols without EOS.
        characters: Characters of the source words; None, the default, for a network that reads none.

    Returns:
        One hypothesis per source, with EOS unless it was truncated at the maximum length.

    Raises:
        ArgumentError: A length is not from 1 to S, or an id is negative.
        InputError: The network is not an encoder-decoder.
    """
    if not len(source):
        return []
    inference = encode_and_initialize(network, source, lengths, characters=characters)
    positions = inference.cache.memory.lengths
    if use_kernel(inference.decoder.request("greedy", inference.cache)):
        kernel_limits = search_limits(network.vocabulary_size, limits)
        return _greedy_kernel(inference, positions.tolist(), kernel_limits)
    return greedy_stepwise(inference, positions, limits)


def _greedy_kernel(inference: SingleModelInference, lengths: list[int], limits: SearchLimits) -> list[Hypothesis]:
    """Return the hypothesis of each source; a kernel takes all steps."""
    from pellucid.kernels.tensor_functions import greedy_search  # Numba takes a second to import

    prepared = inference.cache.kernel
    outputs = list[Hypothesis]()
    assert prepared is not None, "a search kernel needs a prepared decoder"
    for result in greedy_search(prepared, initial_kernel_state(inference.state), limits):
        first = len(outputs)
        positions = lengths[first : first + len(result.steps)]
        outputs += map(hypothesis_of, split_outputs(result, positions))
    return outputs


def greedy_stepwise(inference: Inference, lengths: Int[Tensor, " B"], limits: LengthLimits) -> list[Hypothesis]:
    """Run greedy search step by step on any `Inference`.

    Args:
        inference: One empty hypothesis per source.
        lengths: Number of encoder positions of each source.
        limits: Minimum and maximum output length, in symbols without EOS.

    Returns:
        One hypothesis per source, with EOS unless it was truncated at the maximum length.
    """
    symbols = torch.full_like(lengths, BOS)
    rows = np.arange(len(lengths))
    steps = np.zeros(len(lengths), np.int64)
    recorder = Recorder(len(lengths))
    active = np.ones(len(lengths), np.bool_)
    suppressed = None
    for length in range(limits.maximum + 1):
        output = inference.step(symbols)
        if suppressed is None:
            suppressed = suppressed_symbols(output.logits.shape[1], lengths.device)
        candidates = top_symbols(output.logits, suppressed)
        ids, log_probabilities = choose_symbols(candidates, length < limits.minimum)
        inference = output.after
        weights = to_array(output.weights)
        heads = to_optional_array(output.heads)
        recorder.add(StepRecord(rows, ids, log_probabilities, weights, candidates, heads))
        ended = ids == EOS
        steps[rows[active if length < limits.maximum else active & ended]] = length + 1
        active = active & ~ended
        if not active.any():
            break
        if active.mean() < MIN_ACTIVE_FRACTION:
            active_rows = torch.from_numpy(active.nonzero()[0]).to(lengths.device)
            rows, ids, active = rows[active], ids[active], active[active]
            inference = inference.index_select(active_rows, active_rows)
        symbols = torch.from_numpy(ids).to(lengths.device)
    sizes = zip(steps.tolist(), lengths.tolist(), strict=True)
    return [hypothesis_of(recorder.output(row, num_steps, length)) for row, (num_steps, length) in enumerate(sizes)]
