"""What training makes small, against a loop over its definition. B batch, T target positions, V vocabulary."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import LENGTHS, SEEDS, few, padded
from torch import Tensor

from pellucid.data.vocabulary import PAD
from pellucid.training.objective import cross_entropy

SMOOTHING = st.sampled_from([0.0, 0.1, 0.5])


def logits_for(target: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*target.shape, 9, generator=generator, dtype=torch.float64) * 3


def loss_by_definition(logits: list[list[list[float]]], target: list[list[int]], smoothing: float) -> float:
    """The mean over symbols that are not PAD of −Σ_v q_v ln p_v."""
    losses = []
    for scores_of_row, row in zip(logits, target, strict=True):
        for scores, wanted in zip(scores_of_row, row, strict=True):
            if wanted != PAD:
                total = math.log(math.fsum(math.exp(score) for score in scores))
                shares = [smoothing / len(scores) + (1 - smoothing) * (v == wanted) for v in range(len(scores))]
                losses.append(-math.fsum(q * (score - total) for q, score in zip(shares, scores, strict=True)))
    return math.fsum(losses) / len(losses)


@few
@given(LENGTHS, SEEDS, SMOOTHING)
def test_the_loss_equals_its_definition(lengths: list[int], seed: int, smoothing: float) -> None:
    target = padded(lengths, seed)
    logits = logits_for(target, seed)
    loss = cross_entropy(logits, target, smoothing)
    assert loss.item() == pytest.approx(loss_by_definition(logits.tolist(), target.tolist(), smoothing), abs=1e-12)


@few
@given(LENGTHS, SEEDS, SMOOTHING)
def test_logits_at_padding_change_neither_the_loss_nor_a_gradient(
    lengths: list[int], seed: int, smoothing: float
) -> None:
    target = padded(lengths, seed)
    logits = logits_for(target, seed).requires_grad_()
    gradient = torch.autograd.grad(cross_entropy(logits, target, smoothing), logits)[0]
    assert not gradient[target == PAD].any()
    assert gradient[target != PAD].any(dim=-1).all()
    other = torch.where((target == PAD)[..., None], logits_for(target, seed + 1), logits)
    assert cross_entropy(other, target, smoothing).item() == cross_entropy(logits, target, smoothing).item()


def test_an_even_guess_costs_ln_v_whatever_the_smoothing() -> None:
    target = padded([3, 1], 1)
    for smoothing in (0.0, 0.1):
        loss = cross_entropy(torch.zeros(2, 3, 9, dtype=torch.float64), target, smoothing)
        assert loss.item() == pytest.approx(math.log(9), abs=1e-12)


def test_longer_examples_count_for_more_for_the_mean_is_over_symbols() -> None:
    target = torch.tensor([[4, 4, 4], [5, PAD, PAD]])
    logits = torch.zeros(2, 3, 9, dtype=torch.float64)
    logits[0, :, 4] = 100
    assert cross_entropy(logits, target, 0.0).item() == pytest.approx(math.log(9) / 4, abs=1e-12)


@few
@given(LENGTHS, SEEDS)
def test_more_padding_changes_nothing(lengths: list[int], seed: int) -> None:
    target = padded(lengths, seed)
    wider = torch.nn.functional.pad(target, (0, 2), value=PAD)
    logits = logits_for(wider, seed)
    narrow = cross_entropy(logits[:, : target.shape[1]], target, 0.1)
    assert cross_entropy(logits, wider, 0.1).item() == pytest.approx(narrow.item(), abs=1e-12)
