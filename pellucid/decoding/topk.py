"""Selection of the best symbols and extensions from the logits of a step, in PyTorch or by a kernel.

N extensions of a source (k·V), V vocabulary, C candidates kept for inspection, R hypotheses, b sources, k hypotheses of
each before a step, K after it.
"""

import numpy as np
import torch
from torch import Tensor

from pellucid.data.vocabulary import EOS
from pellucid.decoding.outputs import (
    BeamExtensions,
    LengthLimits,
    SymbolMasks,
    TopSymbols,
    num_candidates,
    suppressed_mask,
)
from pellucid.kernels.backend import ComputationRequest, present_fields
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.runtime import defer_signals
from pellucid.kernels.types import KernelDecoderState, SearchLimits
from pellucid.model.memory import DecoderState
from pellucid.model.requests import request_of
from pellucid.shapes import Bool, Float


def suppressed_symbols(vocabulary_size: int, device: torch.device | None = None) -> Bool[Tensor, " V"]:
    """Return `suppressed_mask` as a tensor.

    Args:
        vocabulary_size: V, the number of target ids.
        device: Device of the mask; None for the CPU.
    """
    return torch.from_numpy(suppressed_mask(vocabulary_size)).to(device)


def initial_kernel_state(state: DecoderState) -> KernelDecoderState:
    """Return the initial state of a decoder for a kernel.

    Args:
        state: Decoder state.
    """
    return KernelDecoderState(state.hidden, state.cell_state, state.attention_state)


def search_limits(vocabulary_size: int, limits: LengthLimits) -> SearchLimits:
    """Return the arguments of a search kernel: suppressed symbols, length limits, and number of candidates per step.

    Args:
        vocabulary_size: V, the number of target ids.
        limits: Minimum and maximum output length.
    """
    return SearchLimits(
        suppressed=suppressed_mask(vocabulary_size),
        min_length=limits.minimum,
        max_length=limits.maximum,
        num_candidates=num_candidates(vocabulary_size),
    )


def symbol_log_probabilities(
    logits: Float[Tensor, "*shape V"], suppressed: Bool[Tensor, "*mask V"]
) -> Float[Tensor, "*shape V"]:
    """Return log-probabilities; suppressed symbols have probability zero.

    EOS keeps its probability before the minimum length, where a search does not choose it: log-probabilities are those
    of the model, as in `score_targets`.

    Args:
        logits: Logits of the next symbols.
        suppressed: Mask of the symbols that are never written.
    """
    return logits.masked_fill(suppressed, -torch.inf).log_softmax(dim=-1)


def top_symbols(logits: Float[Tensor, "R V"], suppressed: Bool[Tensor, " V"]) -> TopSymbols:
    """Return the C most probable symbols of each hypothesis, by a kernel if one supports it.

    Args:
        logits: Logits of the next symbols.
        suppressed: Mask of the symbols that are never written.
    """
    count = num_candidates(logits.shape[1])
    if use_kernel(_ranking_request(logits, SymbolMasks(suppressed))):
        from pellucid.kernels.search import rank_symbols  # Numba takes a second to import

        with defer_signals():
            return TopSymbols(*rank_symbols(logits.numpy(), suppressed.numpy(), count))
    top = symbol_log_probabilities(logits, suppressed).topk(count)
    return TopSymbols(to_array(top.indices), to_array(top.values))


def _ranking_request(logits: Float[Tensor, "R V"], masks: SymbolMasks) -> ComputationRequest:
    """Return the kernel request for the best symbols of a step."""
    return request_of("ranking", logits, present_fields("symbol_masks", masks))


def extend_hypotheses(
    logits: Float[Tensor, "R V"], masks: SymbolMasks, cumulative_log_probs: Float[np.ndarray, "b k"], count: int
) -> BeamExtensions:
    """Return the best extensions of each source's hypotheses, by a kernel if one supports it.

    Args:
        logits: Logits of the next symbols.
        masks: Symbols that cannot follow.
        cumulative_log_probs: Log-probability of each hypothesis.
        count: Number of extensions of each source; at most all of them are returned.
    """
    vocabulary = logits.shape[1]
    count = min(count, cumulative_log_probs.shape[1] * vocabulary)
    if use_kernel(_ranking_request(logits, masks)):
        sizes = (num_candidates(vocabulary), count)
        from pellucid.kernels.search import rank_extensions  # Numba takes a second to import

        with defer_signals():
            ids, values, extensions, *log_probabilities_and_scores = rank_extensions(
                logits.numpy(), masks.suppressed.numpy(), cumulative_log_probs, sizes, masks.is_early
            )
        return BeamExtensions(
            TopSymbols(ids, values), extensions // vocabulary, extensions % vocabulary, *log_probabilities_and_scores
        )
    return select_extensions(*score_extensions(logits, masks, cumulative_log_probs), count)


def score_extensions(
    logits: Float[Tensor, "R V"], masks: SymbolMasks, cumulative_log_probs: Float[np.ndarray, "b k"]
) -> tuple[Float[Tensor, "R V"], Float[Tensor, "b N"]]:
    """Return the log-probabilities of all symbols, and the log-probability of each hypothesis with each symbol.

    Args:
        logits: Logits of the next symbols.
        masks: Symbols that cannot follow.
        cumulative_log_probs: Log-probability of each hypothesis.

    Returns:
        Log-probabilities of the next symbols, one row per hypothesis, −∞ for suppressed ones; and the log-probability
        of each hypothesis with each symbol, one row per source and N = k·V columns, −∞ also for blocked symbols.
    """
    log_probabilities = symbol_log_probabilities(logits, masks.suppressed)
    allowed = log_probabilities
    if masks.blocked is not None:
        allowed = allowed.masked_fill(flat_mask(masks.blocked, allowed.device), -torch.inf)
    if masks.is_early:
        allowed = allowed.index_fill(1, torch.tensor([EOS], device=allowed.device), -torch.inf)
    return log_probabilities, (
        torch.from_numpy(cumulative_log_probs).to(log_probabilities).flatten()[:, None] + allowed
    ).view(len(cumulative_log_probs), -1)


def select_extensions(
    log_probabilities: Float[Tensor, "R V"], cumulative_log_probs: Float[Tensor, "b N"], count: int
) -> BeamExtensions:
    """Return the most probable extensions, and the candidates of their hypotheses.

    Args:
        log_probabilities: Log-probabilities of the next symbols.
        cumulative_log_probs: Log-probability of each hypothesis with each symbol.
        count: Number of extensions of each source, at most N.
    """
    vocabulary = log_probabilities.shape[1]
    best, top = cumulative_log_probs.topk(count), log_probabilities.topk(num_candidates(vocabulary))
    extension_log_probabilities = log_probabilities.view(len(cumulative_log_probs), -1).gather(1, best.indices)
    extensions = to_array(best.indices)
    candidates = TopSymbols(to_array(top.indices), to_array(top.values))
    return BeamExtensions(
        candidates,
        extensions // vocabulary,
        extensions % vocabulary,
        to_array(extension_log_probabilities),
        to_array(best.values),
    )


def flat_mask(mask: Bool[np.ndarray, "b k V"], device: torch.device) -> Bool[Tensor, "R V"]:
    """Reshape a mask per source and hypothesis to one per row.

    Args:
        mask: Mask of each hypothesis.
        device: Device of the result.
    """
    return torch.from_numpy(mask.reshape(-1, mask.shape[2])).to(device)


def to_array(tensor: Tensor) -> np.ndarray:
    """Return a tensor of any device as an array; floating-point numbers of any precision become float32.

    Args:
        tensor: Any tensor.
    """
    result: np.ndarray = (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
    return result


def to_optional_array(tensor: Tensor | None) -> np.ndarray | None:
    """Return a tensor as an array, or None.

    Args:
        tensor: Any tensor, or None.
    """
    return None if tensor is None else to_array(tensor)
