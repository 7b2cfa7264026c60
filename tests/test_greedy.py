"""Greedy search, compared with a loop over single sentences without batches.

B batch, S source positions, T steps, V vocabulary.
"""

import math
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    SEEDS,
    VOCABULARY_SIZE,
    assert_outputs_close,
    batches,
    collect_attributes,
    configs,
    few_examples,
    make_config,
    make_network,
    make_network_with_eos_bias,
    make_padded_ids,
    randomize_padding,
)
from small_searches import greedy_outputs
from torch import Tensor

import pellucid.decoding.greedy as module
from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, EOS, NUM_SPECIAL, PAD, UNK
from pellucid.decoding.outputs import CANDIDATES, LengthLimits
from pellucid.decoding.topk import suppressed_symbols, symbol_log_probabilities
from pellucid.model.memory import AttentionOutput, DecoderCache, DecoderState, DecoderStepOutput, Memory, NetworkOutput
from pellucid.model.network import EncoderDecoder

LIMIT = 7
LIMITS = LengthLimits(0, LIMIT)


class ReferenceOutput(NamedTuple):
    """Output of the reference loop over one sentence."""

    ids: list[int]
    log_probabilities: list[float]
    weights: list[list[float]]


def compute_log_probabilities(logits: list[float]) -> dict[int, float]:
    """Return the log-probabilities of the symbols that can be output, by id."""
    scores = {i: score for i, score in enumerate(logits) if i not in (PAD, BOS, UNK)}
    total = math.log(math.fsum(math.exp(score) for score in scores.values()))
    return {i: score - total for i, score in scores.items()}


@torch.no_grad()
def reference_greedy(network: EncoderDecoder, source: Tensor, limit: int) -> ReferenceOutput:
    """Decode one source to EOS or to `limit` symbols, by steps of the decoder."""
    memory: Memory = network.encoder(source[None], torch.tensor([len(source)]))
    state, cache = network.decoder.init_state(memory), network.decoder.build_cache(memory)
    output, symbol = ReferenceOutput([], [], []), BOS
    while symbol != EOS:
        step = network.decoder.step(torch.tensor([symbol]), state, cache)
        log_probabilities = compute_log_probabilities(step.logits[0].tolist())
        symbol, state = max(log_probabilities, key=log_probabilities.__getitem__), step.state
        if symbol != EOS and len(output.ids) == limit:
            break
        output.ids.append(symbol)
        output.log_probabilities.append(log_probabilities[symbol])
        output.weights.append(step.attention.weights[0].tolist())
    return output


@pytest.mark.slow
@few_examples
@given(configs(), batches(), SEEDS)
def test_greedy_equals_a_loop_over_single_sentences(config: Config, batch: Batch, seed: int) -> None:
    network = make_network_with_eos_bias(config, seed)
    decoded = greedy_outputs(network, batch.source, batch.source_lengths, LIMITS)
    assert len(decoded) == len(batch.source)
    for actual, source, length in zip(decoded, batch.source, batch.source_lengths.tolist(), strict=True):
        expected = reference_greedy(network, source[:length], LIMIT)
        assert actual.ids.tolist() == expected.ids
        np.testing.assert_allclose(actual.log_probabilities, expected.log_probabilities, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(actual.weights, expected.weights, rtol=1e-5, atol=1e-6)


@few_examples
@given(configs(), batches(), SEEDS, st.integers(0, 3), st.randoms(use_true_random=False))
def test_batch_composition_padding_and_order_do_not_change_outputs(
    config: Config, batch: Batch, seed: int, columns: int, random: Random
) -> None:
    network = make_network_with_eos_bias(config, seed)
    decoded = greedy_outputs(network, batch.source, batch.source_lengths, LIMITS)
    order = list(range(len(decoded)))
    random.shuffle(order)
    source = randomize_padding(batch.source, batch.source_lengths, seed, columns)
    for row, other in zip(
        order, greedy_outputs(network, source[order], batch.source_lengths[order], LIMITS), strict=True
    ):
        assert_outputs_close(other, decoded[row])


@few_examples
@given(configs(), batches(), SEEDS, st.sampled_from([0.0, 0.3, 0.999, 2.0]))
def test_dropping_finished_rows_does_not_change_outputs(
    config: Config, batch: Batch, seed: int, fraction: float
) -> None:
    network = make_network_with_eos_bias(config, seed)
    decoded = greedy_outputs(network, batch.source, batch.source_lengths, LIMITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIN_ACTIVE_FRACTION", fraction)
        for one, two in zip(greedy_outputs(network, batch.source, batch.source_lengths, LIMITS), decoded, strict=True):
            assert_outputs_close(one, two)


@pytest.mark.slow
@few_examples
@given(configs(), batches(), SEEDS)
def test_log_probabilities_equal_those_of_the_unrolled_network(config: Config, batch: Batch, seed: int) -> None:
    network = make_network_with_eos_bias(config, seed)
    for row, decoded in enumerate(greedy_outputs(network, batch.source, batch.source_lengths, LIMITS)):
        target = torch.from_numpy(decoded.ids)[None]
        rows = slice(row, row + 1)
        forced = Batch(batch.source[rows], batch.source_lengths[rows], target, torch.tensor([target.shape[1]]))
        unrolled: NetworkOutput = network(forced)
        log_probabilities = symbol_log_probabilities(unrolled.logits, suppressed_symbols(network.vocabulary_size))
        expected = log_probabilities[0].gather(1, target.T)[:, 0].detach()
        np.testing.assert_allclose(decoded.log_probabilities, expected, rtol=1e-5, atol=1e-6)
        weights = unrolled.weights[0, :, : int(batch.source_lengths[row])].detach()
        np.testing.assert_allclose(decoded.weights, weights, rtol=1e-5, atol=1e-6)


@few_examples
@given(configs(), batches(), SEEDS)
def test_candidates_are_the_most_probable_symbols_in_order_and_the_first_is_chosen(
    config: Config, batch: Batch, seed: int
) -> None:
    network = make_network_with_eos_bias(config, seed)
    for row, decoded in enumerate(greedy_outputs(network, batch.source, batch.source_lengths, LIMITS)):
        assert decoded.top_ids.shape == decoded.top_log_probabilities.shape == (len(decoded.ids), CANDIDATES)
        assert decoded.top_ids[:, 0].tolist() == decoded.ids.tolist()
        assert decoded.top_log_probabilities[:, 0].tolist() == decoded.log_probabilities.tolist()
        assert decoded.weights.shape == (len(decoded.ids), int(batch.source_lengths[row]))
        for ids, scores in zip(decoded.top_ids.tolist(), decoded.top_log_probabilities.tolist(), strict=True):
            assert len({*ids} - {PAD, BOS, UNK}) == CANDIDATES
            assert scores == sorted(scores, reverse=True)
            assert sum(map(math.exp, scores)) <= 1 + 1e-6


def make_logits(best: int) -> Tensor:
    """Return logits in which `best` is the highest of the allowed symbols; suppressed symbols have higher ones."""
    logits = torch.zeros(VOCABULARY_SIZE)
    logits[[PAD, BOS, UNK]] = 100.0
    logits[best] = 5.0
    return logits


class ScriptedDecoder:
    """Fake decoder: a row outputs one symbol fewer than its source has, EOS, and then symbols that must not appear."""

    def __init__(self) -> None:
        self.batch_sizes: list[int] = []

    def start(self, memory: Memory) -> DecoderState:
        """Return a state that counts the remaining symbols; rows differ by the lengths of their sources."""
        return DecoderState(memory.lengths[:, None, None].float())

    def step(
        self, symbols: Tensor, state: DecoderState, cache: DecoderCache, forced_weights: None = None
    ) -> DecoderStepOutput:
        remaining = state.hidden[:, 0, 0].tolist()
        inputs = {symbol for symbol, count in zip(symbols.tolist(), remaining, strict=True) if count > 0}
        assert inputs == {NUM_SPECIAL if self.batch_sizes else BOS}
        self.batch_sizes.append(len(symbols))
        best = [NUM_SPECIAL if count > 1 else EOS if count == 1 else NUM_SPECIAL + 1 for count in remaining]
        logits = torch.stack([make_logits(symbol) for symbol in best])
        weights = cache.memory.length_mask() / cache.memory.lengths[:, None]
        return DecoderStepOutput(
            logits, DecoderState(state.hidden - 1), AttentionOutput(cache.memory.states[:, 0], weights)
        )


def run_scripted_greedy(
    patch: pytest.MonkeyPatch, lengths: Sequence[int], limit: int
) -> tuple[list[list[int]], list[int]]:
    """Decode with a `ScriptedDecoder`; return the ids of each row, and the number of rows at each step."""
    network, decoder = make_network(make_config({}), 1), ScriptedDecoder()
    patch.setattr(network.decoder, "init_state", decoder.start)
    patch.setattr(network.decoder, "step", decoder.step)
    decoded = greedy_outputs(network, make_padded_ids(lengths, 1), torch.tensor(lengths), LengthLimits(0, limit))
    return [row.ids.tolist() for row in decoded], decoder.batch_sizes


def test_each_row_stops_at_eos_and_contains_no_other_special_symbol(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [3, 1, 6, 2]
    ids, batch_sizes = run_scripted_greedy(monkeypatch, lengths, 20)
    assert ids == [[NUM_SPECIAL] * (length - 1) + [EOS] for length in lengths]
    assert len(batch_sizes) == max(lengths)


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.0, [4] * 6), (0.6, [4, 4, 2, 1, 1, 1]), (1.0, [4, 3, 2, 1, 1, 1])]
)
def test_finished_rows_are_dropped_once_too_few_are_active(
    monkeypatch: pytest.MonkeyPatch, fraction: float, expected: list[int]
) -> None:
    monkeypatch.setattr(module, "MIN_ACTIVE_FRACTION", fraction)
    ids, batch_sizes = run_scripted_greedy(monkeypatch, [3, 1, 6, 2], 20)
    assert batch_sizes == expected
    assert [len(row) for row in ids] == [3, 1, 6, 2]


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_no_output_exceeds_the_maximum_length(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    lengths = [limit, limit + 1, limit + 2, 30]
    ids, _ = run_scripted_greedy(monkeypatch, lengths, limit)
    symbols, end = [NUM_SPECIAL] * limit, [EOS]
    assert ids == [symbols[:-1] + end, symbols + end, symbols, symbols]


def test_a_vocabulary_without_symbols_gives_only_eos() -> None:
    log_probabilities = symbol_log_probabilities(torch.tensor([3.0, 2.0, 1.0, 0.0]), suppressed_symbols(4))
    assert log_probabilities.exp().tolist() == [0.0, 0.0, 1.0, 0.0]


@few_examples
@given(configs(), batches(), SEEDS)
def test_searching_stores_nothing_and_needs_no_gradient(config: Config, batch: Batch, seed: int) -> None:
    network = make_network_with_eos_bias(config, seed)
    before = collect_attributes(network)
    greedy_outputs(network, batch.source, batch.source_lengths, LIMITS)
    assert collect_attributes(network) == before
    assert all(parameter.grad is None for parameter in network.parameters())
