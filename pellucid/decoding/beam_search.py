"""Beam search of networks of PyTorch: by a kernel that takes all steps, or step by step (`beam_steps`).

B batch, b active sources, k hypotheses of each before a step (1 before the first), R = b·k, V vocabulary, E extensions
considered, N columns of a mask.
"""

from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.data.characters import WordCharacters
from pellucid.decoding.beam_steps import BeamConfig, ExtensionCounts, RequiredSymbols, SearchStep, search_beam
from pellucid.decoding.hypothesis import Hypothesis, hypothesis_of
from pellucid.decoding.inference import Inference, SingleModelInference, encode_and_initialize
from pellucid.decoding.outputs import (
    BeamExtensions,
    LengthLimits,
    SymbolMasks,
    batch_length_limits,
    split_outputs,
)
from pellucid.decoding.topk import (
    extend_hypotheses,
    initial_kernel_state,
    score_extensions,
    search_limits,
    select_extensions,
    suppressed_symbols,
    to_array,
    to_optional_array,
)
from pellucid.errors import ArgumentError
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import SearchLimits
from pellucid.model.network import Network
from pellucid.shapes import Bool, Float, Int


def extend_constrained(
    logits: Float[Tensor, "R V"],
    masks: SymbolMasks,
    cumulative_log_probs: Float[np.ndarray, "b k"],
    required: RequiredSymbols,
    counts: ExtensionCounts,
) -> tuple[BeamExtensions, Bool[np.ndarray, "b E"]]:
    """Return the extensions of constrained beam search by descending log-probability; −∞ in places not filled by them.

    The possible ones are the best extensions of each source, the best extension of each hypothesis, and each hypothesis
    followed by each required symbol that it does not contain.

    Args:
        logits: Logits of the next symbols.
        masks: Symbols that cannot follow.
        cumulative_log_probs: Log-probability of each hypothesis.
        required: Required symbols, and the hypotheses that do not contain them.
        counts: Numbers of best extensions of each source.

    Returns:
        The extensions, and which of them are possible; the others are only listed.

    References:
        Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural Machine
        Translation", section 3.2.
    """
    log_probabilities, extended = score_extensions(logits, masks, cumulative_log_probs)
    by_hypothesis = extended.view(*cumulative_log_probs.shape, -1)
    vocabulary = logits.shape[1]
    selected = torch.zeros_like(by_hypothesis, dtype=torch.bool)
    selected.scatter_(2, by_hypothesis.argmax(dim=2, keepdim=True), True)
    for index, symbol in enumerate(required.ids.tolist()):
        selected[:, :, symbol] |= torch.from_numpy(required.unmet[:, :, index]).to(selected.device)
    best = extended.topk(min(counts.total, extended.shape[1])).indices
    is_possible = selected.view(extended.shape) | _mask_of(best, counts.are_allowed(best.shape[1]), extended.shape[1])
    is_listed = is_possible | _mask_of(best, counts.are_listed(best.shape[1]), extended.shape[1])
    num_extensions = min(
        counts.total + cumulative_log_probs.shape[1] * (len(required.ids) + 1),
        cumulative_log_probs.shape[1] * vocabulary,
    )
    extensions = select_extensions(log_probabilities, extended.masked_fill(~is_listed, -torch.inf), num_extensions)
    possible = np.take_along_axis(to_array(is_possible), extensions.parents * vocabulary + extensions.ids, axis=1)
    return extensions, possible & np.isfinite(extensions.cumulative_log_probs)


def _mask_of(indices: Int[Tensor, "b E"], marked: Bool[np.ndarray, "b E"], width: int) -> Bool[Tensor, "b N"]:
    """Return a mask of N = `width` columns that is True at the marked indices of each row."""
    mask = torch.zeros((len(indices), width), dtype=torch.bool, device=indices.device)
    return mask.scatter_(1, indices, torch.from_numpy(marked).to(indices.device))


class TensorScores(NamedTuple):
    """Logits of the next symbols, in PyTorch, and the symbols that are never written (see `SymbolScores`)."""

    logits: Float[Tensor, "R V"]
    suppressed: Bool[Tensor, " V"]

    @property
    def num_symbols(self) -> int:
        """V, the number of symbols that can be written."""
        return self.logits.shape[1]

    def extend(self, masks: SymbolMasks, cumulative_log_probs: Float[np.ndarray, "b k"], count: int) -> BeamExtensions:
        """Return the best extensions of each source's hypotheses, by a kernel if one supports it.

        Args:
            masks: Symbols that cannot follow.
            cumulative_log_probs: Log-probability of each hypothesis.
            count: Number of extensions of each source; at most all of them are returned.
        """
        masks = masks._replace(suppressed=self.suppressed)
        return extend_hypotheses(self.logits, masks, cumulative_log_probs, count)

    def extend_constrained(
        self,
        masks: SymbolMasks,
        cumulative_log_probs: Float[np.ndarray, "b k"],
        required: RequiredSymbols,
        counts: ExtensionCounts,
    ) -> tuple[BeamExtensions, Bool[np.ndarray, "b E"]]:
        """Return the extensions with required symbols, and which of them are possible.

        Args:
            masks: Symbols that cannot follow.
            cumulative_log_probs: Log-probability of each hypothesis.
            required: Required symbols, and the hypotheses that do not contain them.
            counts: Numbers of best extensions of each source.
        """
        masks = masks._replace(suppressed=self.suppressed)
        return extend_constrained(self.logits, masks, cumulative_log_probs, required, counts)


class TensorInference(NamedTuple):
    """Hypotheses of an `Inference` of PyTorch, for a search that takes and returns arrays (see `SearchInference`)."""

    inference: Inference
    device: torch.device
    suppressed: Bool[Tensor, " V"] | None = None
    """Symbols that are never written; None before the first step, which tells their number."""

    def step(self, symbols: Int[np.ndarray, " R"]) -> SearchStep:
        """Run one decoder step.

        Args:
            symbols: Previous symbol of each hypothesis.
        """
        output = self.inference.step(torch.from_numpy(symbols).to(self.device))
        suppressed = self.suppressed
        if suppressed is None:
            suppressed = suppressed_symbols(output.logits.shape[1], self.device)
        after = TensorInference(output.after, self.device, suppressed)
        scores = TensorScores(output.logits, suppressed)
        return SearchStep(scores, to_array(output.weights), after, to_optional_array(output.heads))

    def take(
        self, hypotheses: Int[np.ndarray, " R"], sources: Int[np.ndarray, " b"] | None = None
    ) -> "TensorInference":
        """Select hypotheses and sources, in the given order.

        Args:
            hypotheses: Rows of the selected hypotheses.
            sources: Rows of the sources that stay; None for all.
        """
        rows = None if sources is None else torch.from_numpy(sources).to(self.device)
        return self._replace(inference=self.inference.index_select(torch.from_numpy(hypotheses).to(self.device), rows))


@torch.inference_mode()
def beam_search(  # noqa: PLR0913 (characters are a part of the sources)
    network: Network,
    source: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    limits: LengthLimits,
    beam_size: int,
    nbest: int = 1,
    characters: WordCharacters | None = None,
) -> list[list[Hypothesis]]:
    """Decode each source by beam search, ranking outputs by log-probability.

    The other sources of the batch do not change an output. A kernel runs all steps if one supports the model.

    Args:
        network: Trained encoder-decoder, in evaluation mode.
        source: Source ids.
        lengths: Source lengths.
        limits: Minimum and maximum output length, in symbols without EOS.
        beam_size: K, the number of hypotheses per source.
        nbest: Maximum number of outputs per source, at most `beam_size`.
        characters: Characters of the source words; None, the default, for a network that reads none.

    Returns:
        The hypotheses of each source, the best first; those truncated at the maximum length, without EOS, follow the
        finished ones. A source with non-finite probabilities has none.

    Raises:
        ArgumentError: A length is not from 1 to S, an id is negative, or `beam_size` is below 1.
        InputError: The network is not an encoder-decoder.
    """
    if beam_size < 1:
        raise ArgumentError(f"beam_size: expected at least 1, got {beam_size}")
    if not len(source):
        return []
    inference = encode_and_initialize(network, source, lengths, characters=characters)
    positions = inference.cache.memory.lengths
    if use_kernel(inference.decoder.request("beam", inference.cache)):
        kernel_limits = search_limits(network.vocabulary_size, limits)
        return _beam_kernel(inference, positions.tolist(), kernel_limits, beam_size, nbest)
    hypotheses = beam_search_stepwise(
        inference, positions, BeamConfig(batch_length_limits(limits, len(positions)), beam_size, nbest)
    )
    # The score that ranked them is a sum in float32. A kernel returns none: this sum is the same on both backends.
    return [[hypothesis_of(hypothesis.decoded) for hypothesis in source_nbest] for source_nbest in hypotheses]


def _beam_kernel(
    inference: SingleModelInference, lengths: list[int], limits: SearchLimits, beam_size: int, nbest: int
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, the best first; a kernel takes all steps."""
    from pellucid.kernels import tensor_functions  # Numba takes a second to import
    from pellucid.kernels.search import BeamSizes

    prepared = inference.cache.kernel
    results = list[list[Hypothesis]]()
    assert prepared is not None, "a search kernel needs a prepared decoder"
    initial_state = initial_kernel_state(inference.state)
    for outputs, counts in tensor_functions.beam_search(prepared, initial_state, limits, BeamSizes(beam_size, nbest)):
        positions = lengths[len(results) : len(results) + len(counts)]
        flat = map(hypothesis_of, split_outputs(outputs, np.repeat(positions, counts).tolist()))
        results += [list(islice(flat, count)) for count in counts.tolist()]
    return results


@torch.inference_mode()
def beam_search_stepwise(
    inference: Inference, lengths: Int[Tensor, " B"], config: BeamConfig
) -> list[list[Hypothesis]]:
    """Run beam search step by step on any `Inference`, with every score and constraint (`search_beam`).

    Args:
        inference: One empty hypothesis per source.
        lengths: Number of encoder positions of each source.
        config: Settings of the search.

    Returns:
        At most `config.nbest` hypotheses of each source, the best first.
    """
    return search_beam(TensorInference(inference, lengths.device), to_array(lengths), config)
