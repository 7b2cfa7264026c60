"""Beam search: compared with a plain loop over hypotheses, and with all possible outputs.

B batch, S source positions, T steps, V vocabulary, K width of the beam.
"""

import math
from itertools import product
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import SEEDS, WIDTH, batches, config_of, configs, contents, few, hasty, littered, network_of, padded, same
from torch import Tensor

import pellucid.decoding.beam_search as module
from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, EOS, NUM_SPECIAL
from pellucid.decoding.beam_search import beam
from pellucid.decoding.greedy import greedy
from pellucid.decoding.outputs import DecodedOutput, LengthLimits, suppressed_symbols, symbol_log_probabilities
from pellucid.model.memory import AttentionCache, Seq2SeqOutput, State, Step
from pellucid.model.network import EncoderDecoder

LIMIT = 5
LIMITS = LengthLimits(0, LIMIT)
WIDTHS = st.integers(1, 6)
NETWORKS = configs().filter(lambda config: config.decoder.output != "context")
"""Networks whose outputs differ in score: from a context alone, the order of the symbols may not matter."""


class Hypothesis(NamedTuple):
    """What one hypothesis wrote, and what the decoder remembers of it."""

    score: float
    ids: list[int]
    state: State


@torch.no_grad()
def plain_beam(
    network: EncoderDecoder, source: Tensor, limits: LengthLimits, width: int
) -> list[tuple[float, list[int]]]:
    """One source, one hypothesis after the other; every finished one, then every cut one, by their scores."""
    memory = network.encoder(source[None], torch.tensor([len(source)]))
    cache = network.decoder.prepare(memory)
    running = [Hypothesis(0.0, [], network.decoder.init_state(memory))]
    finished: list[tuple[float, list[int]]] = []
    closed = suppressed_symbols(WIDTH)
    for written in range(limits.maximum + 1):
        extended: list[Hypothesis] = []
        for hypothesis in running:
            last = torch.tensor([hypothesis.ids[-1] if hypothesis.ids else BOS])
            step = network.decoder.step(last, hypothesis.state, cache)
            found = symbol_log_probabilities(step.logits[0], closed).tolist()
            possible = [i for i in range(WIDTH) if math.isfinite(found[i]) and (i != EOS or written >= limits.minimum)]
            extended += [Hypothesis(hypothesis.score + found[i], [*hypothesis.ids, i], step.state) for i in possible]
        extended = sorted(extended, key=lambda each: -each.score)[: width - len(finished)]
        ended = [(each.score, each.ids) for each in extended if each.ids[-1] == EOS]
        finished += ended
        if written == limits.maximum:
            over = [ids[:-1] for _, ids in ended]
            cut = [(each.score, each.ids) for each in running if each.ids not in over]
            return sorted(finished, key=lambda pair: -pair[0]) + sorted(cut, key=lambda pair: -pair[0])
        running = [each for each in extended if each.ids[-1] != EOS]
        if not running:
            break
    return sorted(finished, key=lambda pair: -pair[0])


def score(decoded: DecodedOutput) -> float:
    """ln p of the whole output."""
    return float(decoded.log_probabilities.sum(dtype=np.float64))


@few
@given(NETWORKS, batches(), SEEDS, WIDTHS, st.integers(0, 3))
def test_beam_equals_a_loop_over_single_hypotheses(
    config: Config, batch: Batch, seed: int, width: int, minimum: int
) -> None:
    network, limits = hasty(config, seed), LengthLimits(minimum, LIMIT)
    found = beam(network, batch.source, batch.source_lengths, limits, width, nbest=width)
    assert len(found) == len(batch.source)
    for outputs, source, length in zip(found, batch.source, batch.source_lengths.tolist(), strict=True):
        plain = plain_beam(network, source[:length], limits, width)
        assert [output.ids.tolist() for output in outputs] == [ids for _, ids in plain[:width]]
        np.testing.assert_allclose([score(output) for output in outputs], [s for s, _ in plain[:width]], atol=1e-5)


@few
@given(NETWORKS, batches(), SEEDS)
def test_a_beam_of_one_is_greedy(config: Config, batch: Batch, seed: int) -> None:
    network = hasty(config, seed)
    one = beam(network, batch.source, batch.source_lengths, LIMITS, 1)
    for outputs, written in zip(one, greedy(network, batch.source, batch.source_lengths, LIMITS), strict=True):
        assert len(outputs) == 1
        same(outputs[0], written)


@settings(max_examples=8, deadline=None)
@given(NETWORKS, batches(), SEEDS)
def test_a_beam_wide_enough_finds_the_most_probable_of_all_outputs(config: Config, batch: Batch, seed: int) -> None:
    network, symbols = hasty(config, seed), range(NUM_SPECIAL, WIDTH)
    source, lengths = batch.source[:1], batch.source_lengths[:1]
    every = [[*ids, EOS] for count in range(3) for ids in product(symbols, repeat=count)]
    limits, width = LengthLimits(0, 2), len(every)
    found = beam(network, source, lengths, limits, width + len(symbols) ** 3, nbest=width)[0]
    memory = network.encoder(source, lengths)
    cache, closed = network.decoder.prepare(memory), suppressed_symbols(WIDTH)
    scores = {}
    for ids in every:
        unrolled = network.decoder.unroll(torch.tensor([[BOS, *ids[:-1]]]), network.decoder.init_state(memory), cache)
        likely = symbol_log_probabilities(unrolled.logits, closed)[0].detach()
        scores[tuple(ids)] = float(likely.gather(1, torch.tensor(ids)[:, None]).sum())
    best = sorted(every, key=lambda ids: -scores[tuple(ids)])
    assert [output.ids.tolist() for output in found] == best
    np.testing.assert_allclose([score(output) for output in found], [scores[tuple(ids)] for ids in best], atol=1e-5)


@few
@given(NETWORKS, batches(), SEEDS, WIDTHS, st.integers(0, 3), st.randoms(use_true_random=False))
def test_batch_composition_padding_and_order_change_nothing(
    config: Config, batch: Batch, seed: int, width: int, columns: int, random: Random
) -> None:
    network = hasty(config, seed)
    found = beam(network, batch.source, batch.source_lengths, LIMITS, width, nbest=2)
    order = list(range(len(found)))
    random.shuffle(order)
    source = littered(batch.source, batch.source_lengths, seed, columns)
    other = beam(network, source[order], batch.source_lengths[order], LIMITS, width, nbest=2)
    for row, outputs in zip(order, other, strict=True):
        for one, two in zip(outputs, found[row], strict=True):
            same(one, two)


@few
@given(NETWORKS, batches(), SEEDS, WIDTHS, st.sampled_from([0.0, 0.3, 0.999, 2.0]))
def test_dropping_finished_sources_changes_nothing(
    config: Config, batch: Batch, seed: int, width: int, share: float
) -> None:
    network = hasty(config, seed)
    given_ = (network, batch.source, batch.source_lengths, LIMITS, width)
    found = beam(*given_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHRINK", share)
        for one, two in zip(beam(*given_), found, strict=True):
            same(one[0], two[0])


@few
@given(NETWORKS, batches(), SEEDS, WIDTHS)
def test_every_hypothesis_has_the_scores_and_attention_of_forced_decoding(
    config: Config, batch: Batch, seed: int, width: int
) -> None:
    network, closed = hasty(config, seed), suppressed_symbols(WIDTH)
    for row, outputs in enumerate(beam(network, batch.source, batch.source_lengths, LIMITS, width, nbest=width)):
        for decoded in outputs:
            target, rows = torch.from_numpy(decoded.ids)[None], slice(row, row + 1)
            forced = Batch(batch.source[rows], batch.source_lengths[rows], target, torch.tensor([target.shape[1]]))
            unrolled: Seq2SeqOutput = network(forced)
            likely = symbol_log_probabilities(unrolled.logits, closed)[0].detach()
            np.testing.assert_allclose(decoded.log_probabilities, likely.gather(1, target.T)[:, 0], atol=1e-5)
            np.testing.assert_allclose(decoded.top_log_probabilities, likely.topk(5).values, atol=1e-5)
            weights = unrolled.weights[0, :, : int(batch.source_lengths[row])].detach()
            np.testing.assert_allclose(decoded.weights, weights, rtol=1e-5, atol=1e-6)


def test_the_memory_is_not_copied_per_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(config_of({}), 1)
    seen: list[tuple[int, int]] = []
    step = network.decoder.step

    def spy(symbols: Tensor, state: State, cache: AttentionCache, override: None = None) -> Step:
        seen.append((len(symbols), len(cache.keys)))
        return step(symbols, state, cache)

    monkeypatch.setattr(network.decoder, "step", spy)
    beam(network, padded([3, 2], 1), torch.tensor([3, 2]), LengthLimits(4, 4), 5)
    assert seen == [(2, 2), *[(10, 2)] * 4]


def test_searching_stores_nothing_and_needs_no_gradient() -> None:
    network = hasty(config_of({}), 1)
    before = contents(network)
    beam(network, padded([3, 2], 1), torch.tensor([3, 2]), LIMITS, 3)
    assert contents(network) == before
    assert all(parameter.grad is None for parameter in network.parameters())
