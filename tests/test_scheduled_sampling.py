"""Scheduled sampling has its published schedules, and replaces symbols by samples from the model.

B batch, T target positions.
"""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    SEEDS,
    VOCABULARY_SIZE,
    assert_tensors_close,
    batches,
    few_examples,
    make_config,
    make_network,
    output_projection,
)

from pellucid.config.settings import SamplingSchedule, TrainingConfig
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, EOS, PAD, UNK
from pellucid.model.memory import DecoderCache, DecoderState, NetworkOutput
from pellucid.model.network import EncoderDecoder, shift_right
from pellucid.training.scheduled_sampling import sample_symbols, scheduled_sampling_probability, unroll_sampled


def schedule_config(kind: SamplingSchedule, end: float) -> TrainingConfig:
    return make_config({"training": {"scheduled_sampling": kind, "sampling_probability": end}}).training


@given(st.sampled_from(["linear", "exponential", "inverse-sigmoid"]), st.floats(0.01, 0.99))
def test_every_schedule_rises_from_zero_to_its_final_probability(kind: SamplingSchedule, end: float) -> None:
    probabilities = [scheduled_sampling_probability(schedule_config(kind, end), step / 20) for step in range(21)]
    assert probabilities[0] == 0 and probabilities[-1] == pytest.approx(end)
    assert all(one <= other for one, other in pairwise(probabilities))


def test_the_schedules_equal_those_of_bengio_et_al() -> None:
    """Linear: half of the end value at half of training. Exponential: ε = kⁱ. Inverse sigmoid: k / (k + exp(i / k))."""
    assert scheduled_sampling_probability(schedule_config("linear", 0.5), 0.5) == 0.25
    logarithms = [
        math.log(1 - scheduled_sampling_probability(schedule_config("exponential", 0.5), x))
        for x in (0.0, 0.25, 0.5, 1.0)
    ]
    assert logarithms == pytest.approx([x * math.log(0.5) for x in (0.0, 0.25, 0.5, 1.0)])
    k, steps = 100.0, 2 * 100.0 * math.log(100.0)
    teacher_forcing = [k / (k + math.exp(x * steps / k)) for x in (0.0, 0.3, 0.5, 1.0)]
    for x, probability in zip((0.3, 0.5), teacher_forcing[1:3], strict=True):
        expected = 0.9 * (teacher_forcing[0] - probability) / (teacher_forcing[0] - teacher_forcing[3])
        assert scheduled_sampling_probability(schedule_config("inverse-sigmoid", 0.9), x) == pytest.approx(expected)
    assert scheduled_sampling_probability(schedule_config("none", 0.9), 1.0) == 0


def test_symbols_are_sampled_by_probability_and_special_ones_never() -> None:
    torch.manual_seed(1)
    logits = torch.tensor([9.0, 9.0, 9.0, 9.0, math.log(0.7), math.log(0.3), -torch.inf])
    samples = sample_symbols(logits.expand(100, 200, 7)).flatten()
    counts = torch.bincount(samples, minlength=7) / samples.numel()
    assert counts[[PAD, BOS, EOS, UNK, 6]].tolist() == [0.0] * 5
    assert counts[4:6].tolist() == pytest.approx([0.7, 0.3], abs=0.015)


def record_decoder_inputs(
    network: EncoderDecoder, batch: Batch, probability: float, monkeypatch: pytest.MonkeyPatch
) -> list[torch.Tensor]:
    """Return the input symbols of the decoder in each of the two passes."""
    inputs: list[torch.Tensor] = []
    unroll = network.decoder.unroll

    def record_and_unroll(symbols: torch.Tensor, state: DecoderState, cache: DecoderCache) -> NetworkOutput:
        inputs.append(symbols)
        return unroll(symbols, state, cache)

    with monkeypatch.context() as patched:
        patched.setattr(network.decoder, "unroll", record_and_unroll)
        unroll_sampled(network, batch, probability)
    return inputs


def test_each_symbol_is_replaced_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model always predicts symbol 7, which replaces each target symbol with probability 0.3."""
    network = make_network(make_config({}), 1)
    with torch.no_grad():
        output_projection(network.decoder).bias[7] += 1000
    target = torch.full((40, 50), 5)
    batch = Batch(torch.full((40, 3), 4), torch.full((40,), 3), target, torch.full((40,), 50))
    torch.manual_seed(1)
    first, second = record_decoder_inputs(network, batch, 0.3, monkeypatch)
    assert torch.equal(first, shift_right(target)) and (second[:, 0] == BOS).all()
    assert set(second[:, 1:].flatten().tolist()) == {5, 7}
    assert (second[:, 1:] == 7).float().mean().item() == pytest.approx(0.3, abs=0.03)
    counts = (second[:, 1:] == 7).sum(dim=1)
    assert counts.min() < counts.max()  # the draws are per symbol, not per row


@few_examples
@given(batches(), SEEDS)
def test_probability_0_is_teacher_forcing_and_probability_1_is_not(batch: Batch, seed: int) -> None:
    network = make_network(make_config({}), seed)
    torch.manual_seed(seed)
    assert_tensors_close(unroll_sampled(network, batch, 0.0).logits, network(batch).logits)
    result = unroll_sampled(network, batch, 1.0).logits
    assert_tensors_close(result[:, 0], network(batch).logits[:, 0])
    assert result.shape == (*batch.target.shape, VOCABULARY_SIZE) and result.requires_grad
