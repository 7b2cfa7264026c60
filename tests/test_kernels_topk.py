"""The compiled selection of candidates and extensions against PyTorch."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import SEEDS

from pellucid.data.vocabulary import EOS
from pellucid.decoding.outputs import SymbolMasks, candidate_count, extend_hypotheses, suppressed_symbols, top_symbols
from pellucid.kernels.dispatch import disable_kernels

SIZES = st.sampled_from([4, 5, 8, 17, 300])


def distinct_logits(rows: int, vocabulary: int, seed: int) -> torch.Tensor:
    """Return distinct logits, so that the order is unique."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(rows * vocabulary, generator=generator).view(rows, vocabulary) * (10 / (rows * vocabulary))


@given(st.integers(1, 6), SIZES, SEEDS)
@settings(max_examples=60, deadline=None)
def test_candidates_equal_pytorch(rows: int, vocabulary: int, seed: int) -> None:
    logits, mask = distinct_logits(rows, vocabulary, seed), suppressed_symbols(vocabulary)
    actual = top_symbols(logits, mask)
    with disable_kernels():
        expected = top_symbols(logits, mask)
    num_possible = min(candidate_count(vocabulary), int((~mask).sum()))
    assert (actual.ids[:, :num_possible] == expected.ids[:, :num_possible]).all()
    np.testing.assert_allclose(actual.log_probabilities, expected.log_probabilities, rtol=1e-5, atol=1e-5)


@given(st.integers(1, 4), st.integers(1, 5), SIZES, st.integers(1, 7), SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_extensions_equal_pytorch(
    sources: int, beam_size: int, vocabulary: int, width: int, seed: int, early: bool
) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal((sources, beam_size)).astype(np.float32)
    scores[generator.random((sources, beam_size)) < 0.2] = -np.inf
    logits, mask = distinct_logits(sources * beam_size, vocabulary, seed), suppressed_symbols(vocabulary)
    actual = extend_hypotheses(logits, SymbolMasks(mask, is_early=early), scores, width)
    with disable_kernels():
        expected = extend_hypotheses(logits, SymbolMasks(mask, is_early=early), scores, width)
    alive = np.isfinite(expected.scores)
    assert not (early and (expected.ids[alive] == EOS).any())
    np.testing.assert_allclose(actual.scores, expected.scores, rtol=1e-5, atol=1e-5)
    tied = np.isclose(expected.scores[:, :-1], expected.scores[:, 1:], rtol=1e-5, atol=1e-5)
    if not tied[alive[:, 1:]].any():
        for name in ("parents", "ids"):
            assert (getattr(actual, name)[alive] == getattr(expected, name)[alive]).all()
        np.testing.assert_allclose(
            actual.log_probabilities[alive], expected.log_probabilities[alive], rtol=1e-5, atol=1e-5
        )
