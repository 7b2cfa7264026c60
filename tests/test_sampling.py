"""Sampling: frequencies equal the model's probabilities, and batch composition changes no sample.

V symbols, N samples.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from small_networks import SEEDS, batches, few_examples, make_padded_ids
from small_searches import NETWORK_KINDS, enumerate_outputs, make_small_network, score_outputs
from test_transducer import transducer_of

from pellucid.data.batches import Batch
from pellucid.decoding.beam_search import BeamConfig
from pellucid.decoding.greedy import greedy
from pellucid.decoding.inference import encode_and_initialize
from pellucid.decoding.outputs import DecodedOutput, LengthLimits, batch_length_limits
from pellucid.decoding.sampling import SamplingConfig, draw_symbols, sample
from pellucid.model.network import Network

LONGEST = 5
KIND = st.sampled_from(NETWORK_KINDS)


def samples(
    network: Network, batch: Batch, drawing: SamplingConfig, longest: int = LONGEST
) -> list[list[DecodedOutput]]:
    """Samples of sources that have the numbers of their rows."""
    return sample_numbered(network, batch, list(range(len(batch.source))), drawing, longest)


def sample_numbered(
    network: Network, batch: Batch, numbers: list[int], drawing: SamplingConfig, longest: int = LONGEST
) -> list[list[DecodedOutput]]:
    """Samples of sources of these numbers."""
    wanted = BeamConfig(batch_length_limits(LengthLimits(0, longest), len(numbers)), 1)
    with torch.inference_mode():
        running = encode_and_initialize(network, batch.source, batch.source_lengths)
        return sample(running, batch.source_lengths, np.array(numbers), wanted, drawing)


@few_examples
@given(KIND, batches(), SEEDS)
def test_sampling_from_one_candidate_is_greedy(kind: tuple[str, str], batch: Batch, seed: int) -> None:
    network = make_small_network(kind, seed)
    likeliest = greedy(network, batch.source, batch.source_lengths, LengthLimits(0, LONGEST))
    for drawing in (SamplingConfig(samples=2, top_k=1), SamplingConfig(samples=2, top_p=1e-6)):
        for outputs, one in zip(samples(network, batch, drawing), likeliest, strict=True):
            assert [each.ids.tolist() for each in outputs] == [one.ids.tolist()] * 2


@few_examples
@given(KIND, batches(), SEEDS, st.integers(0, 5), st.sampled_from([1.0, 0.7]))
def test_batch_composition_changes_no_sample(
    kind: tuple[str, str], batch: Batch, seed: int, first: int, temperature: float
) -> None:
    network, drawing = (
        make_small_network(kind, seed),
        SamplingConfig(samples=3, seed=seed % 99, temperature=temperature),
    )
    numbers = [first + row for row in range(len(batch.source))]
    for row, outputs in enumerate(sample_numbered(network, batch, numbers, drawing)):
        length, rows = int(batch.source_lengths[row]), slice(row, row + 1)
        alone = batch._replace(source=batch.source[rows, :length], source_lengths=batch.source_lengths[rows])
        again = sample_numbered(network, alone, [numbers[row]], drawing)[0]
        assert [each.ids.tolist() for each in outputs] == [each.ids.tolist() for each in again]
        for each, told in zip(
            outputs, score_outputs(network, batch, row, [e.ids.tolist() for e in outputs]), strict=True
        ):
            np.testing.assert_allclose(each.log_probabilities, told.log_probabilities, atol=1e-5)
            np.testing.assert_allclose(each.weights, told.weights, atol=1e-5)


@pytest.mark.parametrize("kind", NETWORK_KINDS[:2])
def test_outputs_are_sampled_by_their_probability(kind: tuple[str, str]) -> None:
    network, count = make_small_network(kind, 3), 1024
    batch = Batch(make_padded_ids([3], 1), torch.tensor([3]), make_padded_ids([1], 2), torch.tensor([1]))
    lists = [samples(network, batch, SamplingConfig(samples=count, seed=seed), 2)[0] for seed in range(4)]
    found = [tuple(each.ids.tolist()) for outputs in lists for each in outputs]
    every = enumerate_outputs(2)
    scores = np.array([each.log_probabilities.sum() for each in score_outputs(network, batch, 0, every)])
    wanted = np.exp(scores) * len(found)
    counted = np.array([found.count(ids) for ids in every])
    often = wanted > 5
    rest = len(found) - wanted[often].sum(), len(found) - counted[often].sum()
    statistic = ((counted[often] - wanted[often]) ** 2 / wanted[often]).sum() + (rest[1] - rest[0]) ** 2 / rest[0]
    assert often.sum() > 5 and stats.chi2.sf(statistic, often.sum()) > 0.001


def test_temperature_top_k_and_top_p_equal_their_definitions() -> None:
    likely = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    chances = np.linspace(0, 0.999, 1000)

    def shares(drawing: SamplingConfig) -> list[float]:
        ids = draw_symbols(likely.expand(1000, -1), None, drawing, chances)
        return [float((ids == at).mean()) for at in range(4)]

    assert shares(SamplingConfig()) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.002)
    assert shares(SamplingConfig(top_k=2)) == pytest.approx([0.625, 0.375, 0, 0], abs=0.002)
    assert shares(SamplingConfig(top_p=0.6)) == pytest.approx([0.625, 0.375, 0, 0], abs=0.002)
    cold = np.array([0.5, 0.3, 0.15, 0.05]) ** 2
    assert shares(SamplingConfig(temperature=0.5)) == pytest.approx((cold / cold.sum()).tolist(), abs=0.002)


def test_samples_depend_on_the_source_number_and_not_on_the_batch_size() -> None:
    texts, drawing = ["abc", "a", "", "bca", "abc"], SamplingConfig(samples=2, seed=4)
    transducer = transducer_of({"search": {"max_length": 6}})
    small = transducer_of({"search": {"max_length": 6, "batch_size": 1}})
    lists = transducer.sample(texts, drawing)
    outputs = [[trace.output for trace in traces] for traces in lists]
    assert outputs == [[trace.output for trace in traces] for traces in small.sample(texts, drawing)]
    assert [[trace.rank for trace in traces] for traces in lists] == [[1, 2]] * 5
    assert {trace.origin for traces in lists for trace in traces} == {"sample"}
    other = transducer.sample(texts, SamplingConfig(samples=2, seed=5))
    assert outputs != [[trace.output for trace in traces] for traces in other]
