"""Ranking of symbols and extensions compared with PyTorch, and whole-batch searches with stepwise searches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import CELLS, SEEDS
from small_networks import VOCABULARY_SIZE, make_config, make_network, make_padded_ids, output_projection
from small_searches import beam_outputs, greedy_outputs
from test_kernels_unroll import SCORES, Score
from torch import Tensor

import pellucid.decoding.beam_search as beam_module
import pellucid.decoding.greedy as greedy_module
from pellucid.config.settings import Cell
from pellucid.data.vocabulary import EOS
from pellucid.decoding.beam_steps import BeamConfig
from pellucid.decoding.inference import encode_and_initialize
from pellucid.decoding.outputs import DecodedOutput, LengthLimits, SymbolMasks, batch_length_limits, num_candidates
from pellucid.decoding.topk import extend_hypotheses, suppressed_symbols, top_symbols
from pellucid.kernels import runtime
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.network import EncoderDecoder

VOCABULARIES = st.sampled_from([4, 5, 8, 17, 300])


def make_distinct_logits(rows: int, vocabulary: int, seed: int) -> torch.Tensor:
    """Return distinct logits, so that the order is unique."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(rows * vocabulary, generator=generator).view(rows, vocabulary) * (10 / (rows * vocabulary))


@given(st.integers(1, 6), VOCABULARIES, SEEDS)
@settings(max_examples=60, deadline=None)
def test_candidates_equal_pytorch(rows: int, vocabulary: int, seed: int) -> None:
    logits, mask = make_distinct_logits(rows, vocabulary, seed), suppressed_symbols(vocabulary)
    actual = top_symbols(logits, mask)
    with disable_kernels():
        expected = top_symbols(logits, mask)
    num_possible = min(num_candidates(vocabulary), int((~mask).sum()))
    assert (actual.ids[:, :num_possible] == expected.ids[:, :num_possible]).all()
    np.testing.assert_allclose(actual.log_probabilities, expected.log_probabilities, rtol=1e-5, atol=1e-5)


@given(st.integers(1, 4), st.integers(1, 5), VOCABULARIES, st.integers(1, 7), SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_extensions_equal_pytorch(
    sources: int, beam_size: int, vocabulary: int, count: int, seed: int, early: bool
) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal((sources, beam_size)).astype(np.float32)
    scores[generator.random((sources, beam_size)) < 0.2] = -np.inf
    logits, mask = make_distinct_logits(sources * beam_size, vocabulary, seed), suppressed_symbols(vocabulary)
    actual = extend_hypotheses(logits, SymbolMasks(mask, is_early=early), scores, count)
    with disable_kernels():
        expected = extend_hypotheses(logits, SymbolMasks(mask, is_early=early), scores, count)
    alive = np.isfinite(expected.cumulative_log_probs)
    assert not (early and (expected.ids[alive] == EOS).any())
    np.testing.assert_allclose(actual.cumulative_log_probs, expected.cumulative_log_probs, rtol=1e-5, atol=1e-5)
    tied = np.isclose(expected.cumulative_log_probs[:, :-1], expected.cumulative_log_probs[:, 1:], rtol=1e-5, atol=1e-5)
    if not tied[alive[:, 1:]].any():
        for name in ("parents", "ids"):
            assert (getattr(actual, name)[alive] == getattr(expected, name)[alive]).all()
        np.testing.assert_allclose(
            actual.log_probabilities[alive], expected.log_probabilities[alive], rtol=1e-5, atol=1e-5
        )


LIMITS = st.builds(lambda minimum, more: LengthLimits(minimum, minimum + more), st.integers(0, 3), st.integers(0, 6))

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=7)

OUTPUTS = st.sampled_from(["state", "context", "state-and-context"])


def draw_network(data: st.DataObject, cell: Cell, score: Score, seed: int) -> EncoderDecoder:
    """Return a network that a kernel supports, of odd sizes, with a random bias towards EOS."""
    size, half = data.draw(st.sampled_from([2, 6, 10, 34])), data.draw(st.sampled_from([1, 5, 16]))
    equal = score in ("dot", "scaled-dot")
    config = make_config(
        {
            "encoder": {"cell": cell, "hidden_size": size // 2 if equal else half},
            "decoder": {"cell": cell, "hidden_size": size, "output_layer_inputs": data.draw(OUTPUTS)},
            "attention": {"type": score, "size": data.draw(st.integers(1, 20))},
        }
    )
    network = make_network(config, seed, torch.float32)
    with torch.no_grad():
        output_projection(network.decoder).bias[EOS] += data.draw(st.sampled_from([-1.0, 0.0, 1.0, 50.0]))
    return network


def search_stepwise(
    network: EncoderDecoder, source: Tensor, lengths: Tensor, limits: LengthLimits, beam_size: int
) -> list[list[DecodedOutput]]:
    """Return the outputs of a stepwise search with the compiled step; a beam size of zero is greedy search."""
    with torch.inference_mode():
        inference = encode_and_initialize(network, source, lengths)
        assert inference.cache.kernel is not None
        if beam_size == 0:
            return [[each.decoded] for each in greedy_module.greedy_stepwise(inference, lengths, limits)]
        beam_config = BeamConfig(batch_length_limits(limits, len(lengths)), beam_size, beam_size)
        return [
            [hypothesis.decoded for hypothesis in outputs]
            for outputs in beam_module.beam_search_stepwise(inference, lengths, beam_config)
        ]


def search_compiled(
    network: EncoderDecoder, source: Tensor, lengths: Tensor, limits: LengthLimits, beam_size: int
) -> list[list[DecodedOutput]]:
    """Return the outputs of a search in one compiled call; a beam size of zero is greedy search."""
    if beam_size == 0:
        return [[output] for output in greedy_outputs(network, source, lengths, limits)]
    return beam_outputs(network, source, lengths, limits, beam_size, beam_size)


def assert_outputs_close(actual: list[list[DecodedOutput]], expected: list[list[DecodedOutput]]) -> None:
    """Assert equal outputs up to rounding; if the last bit decides a tie, only equal scores."""
    assert [len(outputs) for outputs in actual] == [len(outputs) for outputs in expected]
    for one, two in [pair for pairs in zip(actual, expected, strict=True) for pair in zip(*pairs, strict=True)]:
        if one.ids.tolist() != two.ids.tolist():
            assert one.log_probabilities.sum() == pytest.approx(two.log_probabilities.sum(), abs=1e-4)
            continue
        for first, second in zip(one, two, strict=True):
            assert (first is None) == (second is None)
            assert first is None or second is None or (first.shape, first.dtype) == (second.shape, second.dtype)
        np.testing.assert_allclose(one.log_probabilities, two.log_probabilities, atol=1e-4)
        np.testing.assert_allclose(one.weights, two.weights, atol=1e-4)
        np.testing.assert_allclose(one.top_log_probabilities, two.top_log_probabilities, atol=1e-4)
        distinct = np.abs(np.diff(two.top_log_probabilities, axis=1)) > 1e-4
        if distinct.all():
            assert (one.top_ids == two.top_ids).all()


@pytest.mark.slow
@given(st.data(), CELLS, SCORES, LENGTHS, LIMITS, SEEDS, st.integers(0, VOCABULARY_SIZE))
@settings(max_examples=120, deadline=None)
def test_whole_batch_searches_equal_stepwise_searches(
    data: st.DataObject, cell: Cell, score: Score, lengths: list[int], limits: LengthLimits, seed: int, beam_size: int
) -> None:
    network = draw_network(data, cell, score, seed)
    arguments = (network, make_padded_ids(lengths, seed), torch.tensor(lengths), limits, beam_size)
    assert_outputs_close(search_compiled(*arguments), search_stepwise(*arguments))


@given(st.data(), CELLS, LENGTHS, LIMITS, SEEDS, st.integers(0, 4), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_batch_composition_and_threads_do_not_change_outputs(
    data: st.DataObject, cell: Cell, lengths: list[int], limits: LengthLimits, seed: int, beam_size: int, threads: int
) -> None:
    network, source = draw_network(data, cell, "additive", seed), make_padded_ids(lengths, seed)
    single = [
        search_compiled(network, source[row : row + 1, :length], torch.tensor([length]), limits, beam_size)[0]
        for row, length in enumerate(lengths)
    ]
    before, rows = torch.get_num_threads(), runtime.MIN_ROWS
    try:
        torch.set_num_threads(threads)
        runtime.MIN_ROWS = 1
        batched = search_compiled(network, source, torch.tensor(lengths), limits, beam_size)
    finally:
        torch.set_num_threads(before)
        runtime.MIN_ROWS = rows
    assert_outputs_close(batched, single)


@pytest.mark.parametrize("beam_size", [0, 1, 3])
def test_no_python_runs_between_steps(monkeypatch: pytest.MonkeyPatch, beam_size: int) -> None:
    network = make_network(make_config({}), 1, torch.float32)
    monkeypatch.setattr(network.decoder, "step", None)
    decoded = search_compiled(network, make_padded_ids([3, 2], 1), torch.tensor([3, 2]), LengthLimits(4, 4), beam_size)
    assert [len(outputs[0].ids) in (4, 5) for outputs in decoded] == [True, True]
