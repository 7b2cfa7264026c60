"""Greedy search: compared with a plain loop over one sentence, without batches.

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
from small import SEEDS, WIDTH, batches, config_of, configs, contents, few, hasty, littered, network_of, padded, same
from torch import Tensor

import pellucid.decoding.greedy as module
from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, EOS, NUM_SPECIAL, PAD, UNK
from pellucid.decoding.greedy import greedy
from pellucid.decoding.outputs import CANDIDATES, LengthLimits, suppressed_symbols, symbol_log_probabilities
from pellucid.model.memory import AttentionCache, AttentionOutput, Memory, Seq2SeqOutput, State, Step
from pellucid.model.network import EncoderDecoder

LIMIT = 7
LIMITS = LengthLimits(0, LIMIT)


class PlainOutput(NamedTuple):
    """What the loop over one sentence wrote."""

    ids: list[int]
    log_probabilities: list[float]
    weights: list[list[float]]


def log_probabilities_by_definition(logits: list[float]) -> dict[int, float]:
    """ln of each symbol's share among those that can be written, by id."""
    scores = {i: score for i, score in enumerate(logits) if i not in (PAD, BOS, UNK)}
    total = math.log(math.fsum(math.exp(score) for score in scores.values()))
    return {i: score - total for i, score in scores.items()}


@torch.no_grad()
def plain_greedy(network: EncoderDecoder, source: Tensor, limit: int) -> PlainOutput:
    """One source to EOS, or to `limit` symbols, by steps of the decoder."""
    memory: Memory = network.encoder(source[None], torch.tensor([len(source)]))
    state, cache = network.decoder.init_state(memory), network.decoder.prepare(memory)
    written, symbol = PlainOutput([], [], []), BOS
    while symbol != EOS:
        step = network.decoder.step(torch.tensor([symbol]), state, cache)
        found = log_probabilities_by_definition(step.logits[0].tolist())
        symbol, state = max(found, key=found.__getitem__), step.state
        if symbol != EOS and len(written.ids) == limit:
            break
        written.ids.append(symbol)
        written.log_probabilities.append(found[symbol])
        written.weights.append(step.attention.weights[0].tolist())
    return written


@few
@given(configs(), batches(), SEEDS)
def test_greedy_equals_a_loop_over_single_sentences(config: Config, batch: Batch, seed: int) -> None:
    network = hasty(config, seed)
    decoded = greedy(network, batch.source, batch.source_lengths, LIMITS)
    assert len(decoded) == len(batch.source)
    for found, source, length in zip(decoded, batch.source, batch.source_lengths.tolist(), strict=True):
        plain = plain_greedy(network, source[:length], LIMIT)
        assert found.ids.tolist() == plain.ids
        np.testing.assert_allclose(found.log_probabilities, plain.log_probabilities, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.weights, plain.weights, rtol=1e-5, atol=1e-6)


@few
@given(configs(), batches(), SEEDS, st.integers(0, 3), st.randoms(use_true_random=False))
def test_batch_composition_padding_and_order_change_nothing(
    config: Config, batch: Batch, seed: int, columns: int, random: Random
) -> None:
    network = hasty(config, seed)
    decoded = greedy(network, batch.source, batch.source_lengths, LIMITS)
    order = list(range(len(decoded)))
    random.shuffle(order)
    source = littered(batch.source, batch.source_lengths, seed, columns)
    for row, other in zip(order, greedy(network, source[order], batch.source_lengths[order], LIMITS), strict=True):
        same(other, decoded[row])


@few
@given(configs(), batches(), SEEDS, st.sampled_from([0.0, 0.3, 0.999, 2.0]))
def test_dropping_finished_rows_changes_nothing(config: Config, batch: Batch, seed: int, share: float) -> None:
    network = hasty(config, seed)
    decoded = greedy(network, batch.source, batch.source_lengths, LIMITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHRINK", share)
        for one, two in zip(greedy(network, batch.source, batch.source_lengths, LIMITS), decoded, strict=True):
            same(one, two)


@few
@given(configs(), batches(), SEEDS)
def test_log_probabilities_are_those_of_the_unrolled_network_forced_on_the_output(
    config: Config, batch: Batch, seed: int
) -> None:
    network = hasty(config, seed)
    for row, decoded in enumerate(greedy(network, batch.source, batch.source_lengths, LIMITS)):
        target = torch.from_numpy(decoded.ids)[None]
        rows = slice(row, row + 1)
        forced = Batch(batch.source[rows], batch.source_lengths[rows], target, torch.tensor([target.shape[1]]))
        unrolled: Seq2SeqOutput = network(forced)
        likely = symbol_log_probabilities(unrolled.logits, suppressed_symbols(network.vocabulary_size))
        found = likely[0].gather(1, target.T)[:, 0].detach()
        np.testing.assert_allclose(decoded.log_probabilities, found, rtol=1e-5, atol=1e-6)
        weights = unrolled.weights[0, :, : int(batch.source_lengths[row])].detach()
        np.testing.assert_allclose(decoded.weights, weights, rtol=1e-5, atol=1e-6)


@few
@given(configs(), batches(), SEEDS)
def test_candidates_are_the_most_probable_symbols_in_order_and_the_first_is_chosen(
    config: Config, batch: Batch, seed: int
) -> None:
    network = hasty(config, seed)
    for row, decoded in enumerate(greedy(network, batch.source, batch.source_lengths, LIMITS)):
        assert decoded.top_ids.shape == decoded.top_log_probabilities.shape == (len(decoded.ids), CANDIDATES)
        assert decoded.top_ids[:, 0].tolist() == decoded.ids.tolist()
        assert decoded.top_log_probabilities[:, 0].tolist() == decoded.log_probabilities.tolist()
        assert decoded.weights.shape == (len(decoded.ids), int(batch.source_lengths[row]))
        for ids, scores in zip(decoded.top_ids.tolist(), decoded.top_log_probabilities.tolist(), strict=True):
            assert len({*ids} - {PAD, BOS, UNK}) == CANDIDATES
            assert scores == sorted(scores, reverse=True)
            assert sum(map(math.exp, scores)) <= 1 + 1e-6


def logits_of(best: int) -> Tensor:
    """One symbol the likeliest of those that can be written, and the ones that cannot likelier still."""
    logits = torch.zeros(WIDTH)
    logits[[PAD, BOS, UNK]] = 100.0
    logits[best] = 5.0
    return logits


class ScriptedDecoder:
    """Stands for a decoder: a row writes one symbol fewer than its source has, EOS, and then what nobody should see."""

    def __init__(self) -> None:
        self.widths: list[int] = []

    def start(self, memory: Memory) -> State:
        """The state counts what is left to write: rows are told apart by their source's length."""
        return State(memory.lengths[:, None, None].float())

    def step(self, symbols: Tensor, state: State, cache: AttentionCache, override: None = None) -> Step:
        left = state.hidden[:, 0, 0].tolist()
        fed = {symbol for symbol, count in zip(symbols.tolist(), left, strict=True) if count > 0}
        assert fed == {NUM_SPECIAL if self.widths else BOS}
        self.widths.append(len(symbols))
        best = [NUM_SPECIAL if count > 1 else EOS if count == 1 else NUM_SPECIAL + 1 for count in left]
        logits = torch.stack([logits_of(symbol) for symbol in best])
        weights = cache.memory.mask() / cache.memory.lengths[:, None]
        return Step(logits, State(state.hidden - 1), AttentionOutput(cache.memory.states[:, 0], weights))


def run_script(patch: pytest.MonkeyPatch, lengths: Sequence[int], limit: int) -> tuple[list[list[int]], list[int]]:
    """What rows that write one symbol fewer than their source has become, and how many rows each step had."""
    network, script = network_of(config_of({}), 1), ScriptedDecoder()
    patch.setattr(network.decoder, "init_state", script.start)
    patch.setattr(network.decoder, "step", script.step)
    decoded = greedy(network, padded(lengths, 1), torch.tensor(lengths), LengthLimits(0, limit))
    return [row.ids.tolist() for row in decoded], script.widths


def test_each_row_stops_at_eos_and_contains_no_other_special_symbol(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [3, 1, 6, 2]
    ids, widths = run_script(monkeypatch, lengths, 20)
    assert ids == [[NUM_SPECIAL] * (length - 1) + [EOS] for length in lengths]
    assert len(widths) == max(lengths)


@pytest.mark.parametrize(("share", "expected"), [(0.0, [4] * 6), (0.6, [4, 4, 2, 1, 1, 1]), (1.0, [4, 3, 2, 1, 1, 1])])
def test_finished_rows_are_dropped_once_too_few_are_active(
    monkeypatch: pytest.MonkeyPatch, share: float, expected: list[int]
) -> None:
    monkeypatch.setattr(module, "SHRINK", share)
    ids, widths = run_script(monkeypatch, [3, 1, 6, 2], 20)
    assert widths == expected
    assert [len(row) for row in ids] == [3, 1, 6, 2]


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_no_output_exceeds_the_maximum_length(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    lengths = [limit, limit + 1, limit + 2, 30]
    ids, _ = run_script(monkeypatch, lengths, limit)
    symbols, end = [NUM_SPECIAL] * limit, [EOS]
    assert ids == [symbols[:-1] + end, symbols + end, symbols, symbols]


def test_a_vocabulary_without_symbols_can_only_end() -> None:
    log_probabilities = symbol_log_probabilities(torch.tensor([3.0, 2.0, 1.0, 0.0]), suppressed_symbols(4))
    assert log_probabilities.exp().tolist() == [0.0, 0.0, 1.0, 0.0]


@few
@given(configs(), batches(), SEEDS)
def test_searching_stores_nothing_and_needs_no_gradient(config: Config, batch: Batch, seed: int) -> None:
    network = hasty(config, seed)
    before = contents(network)
    greedy(network, batch.source, batch.source_lengths, LIMITS)
    assert contents(network) == before
    assert all(parameter.grad is None for parameter in network.parameters())
