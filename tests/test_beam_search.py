"""Beam search: compared with a plain loop over hypotheses, and with all possible outputs.

B batch, S source positions, T steps, V vocabulary, K beam size.
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
from small_searches import beam_outputs, greedy_outputs
from torch import Tensor

import pellucid.decoding.beam_steps as module
from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, EOS, NUM_SPECIAL
from pellucid.decoding.outputs import DecodedOutput, LengthLimits
from pellucid.decoding.topk import suppressed_symbols, symbol_log_probabilities
from pellucid.model.memory import DecoderCache, DecoderState, DecoderStepOutput, NetworkOutput
from pellucid.model.network import EncoderDecoder

LIMIT = 5
LIMITS = LengthLimits(0, LIMIT)
BEAM_SIZES = st.integers(1, 6)
NETWORKS = configs().filter(lambda config: config.decoder.output_layer_inputs != "context")
"""Networks whose hypotheses have different scores. A readout of the context alone may ignore the order of symbols."""


class Hypothesis(NamedTuple):
    """The symbols of one hypothesis, its score and its decoder state."""

    score: float
    ids: list[int]
    state: DecoderState


@torch.no_grad()
def beam_by_loops(
    network: EncoderDecoder, source: Tensor, limits: LengthLimits, beam_size: int
) -> list[tuple[float, list[int]]]:
    """Search for one source by a loop over hypotheses. Return the finished and then the unfinished ones, by score."""
    memory = network.encoder(source[None], torch.tensor([len(source)]))
    cache = network.decoder.build_cache(memory)
    running = [Hypothesis(0.0, [], network.decoder.init_state(memory))]
    finished: list[tuple[float, list[int]]] = []
    suppressed = suppressed_symbols(VOCABULARY_SIZE)
    for length in range(limits.maximum + 1):
        candidates: list[Hypothesis] = []
        for hypothesis in running:
            last = torch.tensor([hypothesis.ids[-1] if hypothesis.ids else BOS])
            step = network.decoder.step(last, hypothesis.state, cache)
            log_probabilities = symbol_log_probabilities(step.logits[0], suppressed).tolist()
            allowed = [
                i
                for i in range(VOCABULARY_SIZE)
                if math.isfinite(log_probabilities[i]) and (i != EOS or length >= limits.minimum)
            ]
            candidates += [
                Hypothesis(hypothesis.score + log_probabilities[i], [*hypothesis.ids, i], step.state) for i in allowed
            ]
        candidates = sorted(candidates, key=lambda each: -each.score)[: beam_size - len(finished)]
        finished_now = [(each.score, each.ids) for each in candidates if each.ids[-1] == EOS]
        finished += finished_now
        if length == limits.maximum:
            finished_ids = [ids[:-1] for _, ids in finished_now]
            unfinished = [(each.score, each.ids) for each in running if each.ids not in finished_ids]
            return sorted(finished, key=lambda pair: -pair[0]) + sorted(unfinished, key=lambda pair: -pair[0])
        running = [each for each in candidates if each.ids[-1] != EOS]
        if not running:
            break
    return sorted(finished, key=lambda pair: -pair[0])


def output_score(decoded: DecodedOutput) -> float:
    """Return the log-probability of an output."""
    return float(decoded.log_probabilities.sum(dtype=np.float64))


@few_examples
@given(NETWORKS, batches(), SEEDS, BEAM_SIZES, st.integers(0, 3))
def test_beam_equals_a_loop_over_single_hypotheses(
    config: Config, batch: Batch, seed: int, beam_size: int, minimum: int
) -> None:
    network, limits = make_network_with_eos_bias(config, seed), LengthLimits(minimum, LIMIT)
    actual = beam_outputs(network, batch.source, batch.source_lengths, limits, beam_size, nbest=beam_size)
    assert len(actual) == len(batch.source)
    for outputs, source, length in zip(actual, batch.source, batch.source_lengths.tolist(), strict=True):
        expected = beam_by_loops(network, source[:length], limits, beam_size)
        assert [output.ids.tolist() for output in outputs] == [ids for _, ids in expected[:beam_size]]
        np.testing.assert_allclose(
            [output_score(output) for output in outputs], [s for s, _ in expected[:beam_size]], atol=1e-5
        )


@few_examples
@given(NETWORKS, batches(), SEEDS)
def test_beam_size_one_equals_greedy_search(config: Config, batch: Batch, seed: int) -> None:
    network = make_network_with_eos_bias(config, seed)
    result = beam_outputs(network, batch.source, batch.source_lengths, LIMITS, 1)
    for outputs, greedy_output in zip(
        result, greedy_outputs(network, batch.source, batch.source_lengths, LIMITS), strict=True
    ):
        assert len(outputs) == 1
        assert_outputs_close(outputs[0], greedy_output)


@settings(max_examples=8, deadline=None)
@given(NETWORKS, batches(), SEEDS)
def test_exhaustive_beam_finds_the_most_probable_outputs(config: Config, batch: Batch, seed: int) -> None:
    network, symbols = make_network_with_eos_bias(config, seed), range(NUM_SPECIAL, VOCABULARY_SIZE)
    source, lengths = batch.source[:1], batch.source_lengths[:1]
    all_outputs = [[*ids, EOS] for count in range(3) for ids in product(symbols, repeat=count)]
    limits, beam_size = LengthLimits(0, 2), len(all_outputs)
    result = beam_outputs(network, source, lengths, limits, beam_size + len(symbols) ** 3, nbest=beam_size)[0]
    memory = network.encoder(source, lengths)
    cache, suppressed = network.decoder.build_cache(memory), suppressed_symbols(VOCABULARY_SIZE)
    scores = {}
    for ids in all_outputs:
        unrolled = network.decoder.unroll(torch.tensor([[BOS, *ids[:-1]]]), network.decoder.init_state(memory), cache)
        log_probabilities = symbol_log_probabilities(unrolled.logits, suppressed)[0].detach()
        scores[tuple(ids)] = float(log_probabilities.gather(1, torch.tensor(ids)[:, None]).sum())
    best = sorted(all_outputs, key=lambda ids: -scores[tuple(ids)])
    assert [output.ids.tolist() for output in result] == best
    np.testing.assert_allclose(
        [output_score(output) for output in result], [scores[tuple(ids)] for ids in best], atol=1e-5
    )


@few_examples
@given(NETWORKS, batches(), SEEDS, BEAM_SIZES, st.integers(0, 3), st.randoms(use_true_random=False))
def test_outputs_are_independent_of_batch_composition_padding_and_order(
    config: Config, batch: Batch, seed: int, beam_size: int, columns: int, random: Random
) -> None:
    network = make_network_with_eos_bias(config, seed)
    result = beam_outputs(network, batch.source, batch.source_lengths, LIMITS, beam_size, nbest=2)
    order = list(range(len(result)))
    random.shuffle(order)
    source = randomize_padding(batch.source, batch.source_lengths, seed, columns)
    reordered = beam_outputs(network, source[order], batch.source_lengths[order], LIMITS, beam_size, nbest=2)
    for row, outputs in zip(order, reordered, strict=True):
        for actual, expected in zip(outputs, result[row], strict=True):
            assert_outputs_close(actual, expected)


@few_examples
@given(NETWORKS, batches(), SEEDS, BEAM_SIZES, st.sampled_from([0.0, 0.3, 0.999, 2.0]))
def test_removal_of_finished_sources_does_not_change_outputs(
    config: Config, batch: Batch, seed: int, beam_size: int, shrink: float
) -> None:
    network = make_network_with_eos_bias(config, seed)
    arguments = (network, batch.source, batch.source_lengths, LIMITS, beam_size)
    result = beam_outputs(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MIN_ACTIVE_FRACTION", shrink)
        for actual, expected in zip(beam_outputs(*arguments), result, strict=True):
            assert_outputs_close(actual[0], expected[0])


@few_examples
@given(NETWORKS, batches(), SEEDS, BEAM_SIZES)
def test_every_hypothesis_has_the_scores_and_attention_of_forced_decoding(
    config: Config, batch: Batch, seed: int, beam_size: int
) -> None:
    network, suppressed = make_network_with_eos_bias(config, seed), suppressed_symbols(VOCABULARY_SIZE)
    for row, outputs in enumerate(
        beam_outputs(network, batch.source, batch.source_lengths, LIMITS, beam_size, nbest=beam_size)
    ):
        for decoded in outputs:
            target, rows = torch.from_numpy(decoded.ids)[None], slice(row, row + 1)
            forced_batch = Batch(
                batch.source[rows], batch.source_lengths[rows], target, torch.tensor([target.shape[1]])
            )
            unrolled: NetworkOutput = network(forced_batch)
            log_probabilities = symbol_log_probabilities(unrolled.logits, suppressed)[0].detach()
            np.testing.assert_allclose(
                decoded.log_probabilities, log_probabilities.gather(1, target.T)[:, 0], atol=1e-5
            )
            np.testing.assert_allclose(decoded.top_log_probabilities, log_probabilities.topk(5).values, atol=1e-5)
            weights = unrolled.weights[0, :, : int(batch.source_lengths[row])].detach()
            np.testing.assert_allclose(decoded.weights, weights, rtol=1e-5, atol=1e-6)


def test_memory_is_not_copied_per_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make_network(make_config({}), 1)
    sizes: list[tuple[int, int]] = []
    step = network.decoder.step

    def record_sizes(
        symbols: Tensor, state: DecoderState, cache: DecoderCache, forced_weights: None = None
    ) -> DecoderStepOutput:
        sizes.append((len(symbols), len(cache.keys)))
        return step(symbols, state, cache)

    monkeypatch.setattr(network.decoder, "step", record_sizes)
    beam_outputs(network, make_padded_ids([3, 2], 1), torch.tensor([3, 2]), LengthLimits(4, 4), 5)
    assert sizes == [(2, 2), *[(10, 2)] * 4]


def test_search_stores_nothing_and_needs_no_gradient() -> None:
    network = make_network_with_eos_bias(make_config({}), 1)
    before = collect_attributes(network)
    beam_outputs(network, make_padded_ids([3, 2], 1), torch.tensor([3, 2]), LIMITS, 3)
    assert collect_attributes(network) == before
    assert all(parameter.grad is None for parameter in network.parameters())
