"""Samples have the probabilities of the model, and batch composition changes no sample.

V symbols, N samples.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from small_networks import SEEDS, batches, few_examples, make_padded_ids
from small_searches import NETWORK_KINDS, enumerate_outputs, greedy_outputs, make_small_network, score_outputs
from test_transducer import transducer_of

from pellucid.data.batches import Batch
from pellucid.decoding.constraints import NO_CONSTRAINTS
from pellucid.decoding.inference import encode_and_initialize
from pellucid.decoding.outputs import DecodedOutput, LengthLimits, batch_length_limits
from pellucid.decoding.sampling import draw_symbols, sample
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.model.network import Network

MAX_LENGTH = 5
KIND_STRATEGY = st.sampled_from(NETWORK_KINDS)


def draw_samples(
    network: Network, batch: Batch, config: SamplingConfig, max_length: int = MAX_LENGTH
) -> list[list[DecodedOutput]]:
    """Draw samples for sources that are numbered by their rows."""
    return draw_numbered_samples(network, batch, list(range(len(batch.source))), config, max_length)


def draw_numbered_samples(
    network: Network, batch: Batch, numbers: list[int], config: SamplingConfig, max_length: int = MAX_LENGTH
) -> list[list[DecodedOutput]]:
    """Draw samples for sources with the given numbers."""
    limits = batch_length_limits(LengthLimits(0, max_length), len(numbers))
    with torch.inference_mode():
        inference = encode_and_initialize(network, batch.source, batch.source_lengths)
        samples = sample(inference, batch.source_lengths, np.array(numbers), limits, NO_CONSTRAINTS, config)
    return [[hypothesis.decoded for hypothesis in hypotheses] for hypotheses in samples]


@few_examples
@given(KIND_STRATEGY, batches(), SEEDS)
def test_sampling_from_one_candidate_is_greedy(kind: tuple[str, str], batch: Batch, seed: int) -> None:
    network = make_small_network(kind, seed)
    greedy_results = greedy_outputs(network, batch.source, batch.source_lengths, LengthLimits(0, MAX_LENGTH))
    for config in (SamplingConfig(samples=2, top_k=1), SamplingConfig(samples=2, top_p=1e-6)):
        for outputs, one in zip(draw_samples(network, batch, config), greedy_results, strict=True):
            assert [each.ids.tolist() for each in outputs] == [one.ids.tolist()] * 2


@few_examples
@given(KIND_STRATEGY, batches(), SEEDS, st.integers(0, 5), st.sampled_from([1.0, 0.7]))
def test_batch_composition_changes_no_sample(
    kind: tuple[str, str], batch: Batch, seed: int, first: int, temperature: float
) -> None:
    network, config = make_small_network(kind, seed), SamplingConfig(samples=3, seed=seed % 99, temperature=temperature)
    numbers = [first + row for row in range(len(batch.source))]
    for row, outputs in enumerate(draw_numbered_samples(network, batch, numbers, config)):
        length, rows = int(batch.source_lengths[row]), slice(row, row + 1)
        single = batch._replace(source=batch.source[rows, :length], source_lengths=batch.source_lengths[rows])
        again = draw_numbered_samples(network, single, [numbers[row]], config)[0]
        assert [each.ids.tolist() for each in outputs] == [each.ids.tolist() for each in again]
        for each, scored in zip(
            outputs, score_outputs(network, batch, row, [e.ids.tolist() for e in outputs]), strict=True
        ):
            np.testing.assert_allclose(each.log_probabilities, scored.log_probabilities, atol=1e-5)
            np.testing.assert_allclose(each.weights, scored.weights, atol=1e-5)


@pytest.mark.parametrize("kind", NETWORK_KINDS[:2])
def test_outputs_are_sampled_by_their_probability(kind: tuple[str, str]) -> None:
    network, count = make_small_network(kind, 3), 1024
    batch = Batch(make_padded_ids([3], 1), torch.tensor([3]), make_padded_ids([1], 2), torch.tensor([1]))
    lists = [draw_samples(network, batch, SamplingConfig(samples=count, seed=seed), 2)[0] for seed in range(4)]
    result = [tuple(each.ids.tolist()) for outputs in lists for each in outputs]
    outputs_up_to_2 = enumerate_outputs(2)
    scores = np.array([each.log_probabilities.sum() for each in score_outputs(network, batch, 0, outputs_up_to_2)])
    expected_counts = np.exp(scores) * len(result)
    counts = np.array([result.count(ids) for ids in outputs_up_to_2])
    is_frequent = expected_counts > 5
    rare = len(result) - expected_counts[is_frequent].sum(), len(result) - counts[is_frequent].sum()
    statistic = ((counts[is_frequent] - expected_counts[is_frequent]) ** 2 / expected_counts[is_frequent]).sum() + (
        rare[1] - rare[0]
    ) ** 2 / rare[0]
    assert is_frequent.sum() > 5 and stats.chi2.sf(statistic, is_frequent.sum()) > 0.001


def test_temperature_top_k_and_top_p_equal_their_definitions() -> None:
    log_probabilities = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    uniform_draws = np.linspace(0, 0.999, 1000)

    def symbol_frequencies(config: SamplingConfig) -> list[float]:
        ids = draw_symbols(log_probabilities.expand(1000, -1), None, config, uniform_draws)
        return [float((ids == index).mean()) for index in range(4)]

    assert symbol_frequencies(SamplingConfig()) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.002)
    assert symbol_frequencies(SamplingConfig(top_k=2)) == pytest.approx([0.625, 0.375, 0, 0], abs=0.002)
    assert symbol_frequencies(SamplingConfig(top_p=0.6)) == pytest.approx([0.625, 0.375, 0, 0], abs=0.002)
    cold = np.array([0.5, 0.3, 0.15, 0.05]) ** 2
    assert symbol_frequencies(SamplingConfig(temperature=0.5)) == pytest.approx((cold / cold.sum()).tolist(), abs=0.002)


def test_samples_depend_on_the_source_number_and_not_on_the_batch_size() -> None:
    texts, config = ["abc", "a", "", "bca", "abc"], SamplingConfig(samples=2, seed=4)
    transducer = transducer_of({"search": {"max_length": 6}})
    small = transducer_of({"search": {"max_length": 6, "batch_size": 1}})
    lists = transducer.sample(texts, config)
    outputs = [[trace.output for trace in traces] for traces in lists]
    assert outputs == [[trace.output for trace in traces] for traces in small.sample(texts, config)]
    assert [[trace.rank for trace in traces] for traces in lists] == [[1, 2]] * 5
    assert {trace.origin for traces in lists for trace in traces} == {"sample"}
    other = transducer.sample(texts, SamplingConfig(samples=2, seed=5))
    assert outputs != [[trace.output for trace in traces] for traces in other]
