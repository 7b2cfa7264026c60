"""Forced decoding: scoring of given targets.

B sources, T steps, S source positions, V vocabulary.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.data.vocabulary import BOS, UNK
from pellucid.decoding.hypothesis import Hypothesis, hypothesis_of
from pellucid.decoding.inference import Inference, StepOutput
from pellucid.decoding.outputs import Recorder, StepRecord, TopSymbols, num_candidates
from pellucid.decoding.topk import suppressed_symbols, symbol_log_probabilities, to_array, to_optional_array
from pellucid.shapes import Bool, Float, Int


class ForcedStep(NamedTuple):
    """One decoder step over known symbols."""

    before: Inference
    """The hypotheses before the step."""
    symbols: Int[Tensor, " B"]
    """Symbols fed back."""
    targets: Int[Tensor, " B"]
    """Symbols of the step."""
    output: StepOutput
    """Logits, attention weights, and the hypotheses after the step."""
    suppressed: Bool[Tensor, " V"]
    """Symbols that no search writes."""

    def log_probabilities(self) -> Float[Tensor, "B V"]:
        """Return the log-probabilities of the next symbols, as `step_log_probabilities` does."""
        return step_log_probabilities(self.output, self.targets, self.suppressed)


def forced_steps(inference: Inference, targets: Int[Tensor, "B T"]) -> Iterator[ForcedStep]:
    """Take one step after the other over known symbols (teacher forcing), and yield each.

    Args:
        inference: One empty hypothesis per row of the targets.
        targets: Target ids, each ending with EOS, then padding.

    Yields:
        T steps; those after the EOS of a row have no meaning for it.
    """
    symbols, suppressed = targets.new_full((len(targets),), BOS), None
    for step_targets in targets.unbind(dim=1):
        output = inference.step(symbols)
        if suppressed is None:
            suppressed = suppressed_symbols(output.logits.shape[1], targets.device)
        yield ForcedStep(inference, symbols, step_targets, output, suppressed)
        inference, symbols = output.after, step_targets


@torch.inference_mode()
def score_targets(
    inference: Inference, lengths: Int[Tensor, " B"], targets: Int[Tensor, "B T"], target_lengths: Int[Tensor, " B"]
) -> list[Hypothesis]:
    """Score targets as if they had been decoded: log-probabilities, attention weights and candidates of every step.

    The log-probability of a symbol is normalized over all symbols that a search could write at that step, so it equals
    the log-probability in a search. UNK is never searched; its log-probability is normalized over those symbols and
    UNK.

    Args:
        inference: One empty hypothesis per source.
        lengths: Number of encoder positions of each source.
        targets: Target ids, each ending with EOS, then padding.
        target_lengths: Target lengths, including EOS.

    Returns:
        One hypothesis per source, whose ids are its target.
    """
    recorder = Recorder(len(lengths), targets.shape[1])
    for step in forced_steps(inference, targets):
        recorder.add(_record(step))
    sizes = zip(target_lengths.tolist(), lengths.tolist(), strict=True)
    return [hypothesis_of(recorder.output(row, num_steps, length)) for row, (num_steps, length) in enumerate(sizes)]


def _record(step: ForcedStep) -> StepRecord:
    """Record a step that writes the given symbols."""
    targets, output, log_probabilities = step.targets, step.output, step.log_probabilities()
    top = log_probabilities.topk(num_candidates(log_probabilities.shape[1]))
    target_log_probabilities = to_array(log_probabilities.gather(1, targets[:, None])[:, 0])
    rows = np.arange(len(target_log_probabilities))
    top_symbols = TopSymbols(to_array(top.indices), to_array(top.values))
    return StepRecord(
        rows,
        to_array(targets),
        target_log_probabilities,
        to_array(output.weights),
        top_symbols,
        to_optional_array(output.heads),
    )


def step_log_probabilities(
    output: StepOutput, targets: Int[Tensor, " B"], suppressed: Bool[Tensor, " V"]
) -> Float[Tensor, "B V"]:
    """Return log-probabilities over the symbols that can be written, and in rows whose target is UNK also over UNK.

    Args:
        output: Output of the decoder step.
        targets: Target id of each row.
        suppressed: Mask of the symbols that are never written.
    """
    mask = suppressed
    if (targets == UNK).any():
        mask = mask.expand_as(output.logits).clone()
        mask[targets == UNK, UNK] = False
    return symbol_log_probabilities(output.logits, mask)
