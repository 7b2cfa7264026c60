"""Losses, compared with loops over their definitions. B batch, T target positions, V vocabulary."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import LENGTHS, SEEDS, few_examples, make_padded_ids
from torch import Tensor

from pellucid.data.vocabulary import PAD
from pellucid.model.losses import (
    copying_cross_entropy,
    coverage_loss,
    cross_entropy,
    symmetric_kl,
    vocabulary_cross_entropy,
)

SMOOTHING = st.sampled_from([0.0, 0.1, 0.5])


def make_logits(target: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*target.shape, 9, generator=generator, dtype=torch.float64) * 3


def reference_loss(logits: list[list[list[float]]], target: list[list[int]], smoothing: float) -> float:
    """Return the mean over symbols that are not PAD of −Σ_v q_v log p_v."""
    losses = []
    for row_scores, row in zip(logits, target, strict=True):
        for scores, expected in zip(row_scores, row, strict=True):
            if expected != PAD:
                total = math.log(math.fsum(math.exp(score) for score in scores))
                probabilities = [
                    smoothing / len(scores) + (1 - smoothing) * (v == expected) for v in range(len(scores))
                ]
                losses.append(-math.fsum(q * (score - total) for q, score in zip(probabilities, scores, strict=True)))
    return math.fsum(losses) / len(losses)


@few_examples
@given(LENGTHS, SEEDS, SMOOTHING)
def test_the_loss_equals_its_definition(lengths: list[int], seed: int, smoothing: float) -> None:
    target = make_padded_ids(lengths, seed)
    logits = make_logits(target, seed)
    loss = cross_entropy(logits, target, smoothing)
    assert loss.item() == pytest.approx(reference_loss(logits.tolist(), target.tolist(), smoothing), abs=1e-12)


@few_examples
@given(LENGTHS, SEEDS, SMOOTHING)
def test_logits_at_padding_change_neither_the_loss_nor_a_gradient(
    lengths: list[int], seed: int, smoothing: float
) -> None:
    target = make_padded_ids(lengths, seed)
    logits = make_logits(target, seed).requires_grad_()
    gradient = torch.autograd.grad(cross_entropy(logits, target, smoothing), logits)[0]
    assert not gradient[target == PAD].any()
    assert gradient[target != PAD].any(dim=-1).all()
    other = torch.where((target == PAD)[..., None], make_logits(target, seed + 1), logits)
    assert cross_entropy(other, target, smoothing).item() == cross_entropy(logits, target, smoothing).item()


def test_the_loss_of_uniform_logits_is_log_v_with_any_smoothing() -> None:
    target = make_padded_ids([3, 1], 1)
    for smoothing in (0.0, 0.1):
        loss = cross_entropy(torch.zeros(2, 3, 9, dtype=torch.float64), target, smoothing)
        assert loss.item() == pytest.approx(math.log(9), abs=1e-12)


def test_the_mean_is_over_symbols() -> None:
    target = torch.tensor([[4, 4, 4], [5, PAD, PAD]])
    logits = torch.zeros(2, 3, 9, dtype=torch.float64)
    logits[0, :, 4] = 100
    assert cross_entropy(logits, target, 0.0).item() == pytest.approx(math.log(9) / 4, abs=1e-12)


@few_examples
@given(LENGTHS, SEEDS)
def test_more_padding_does_not_change_the_loss(lengths: list[int], seed: int) -> None:
    target = make_padded_ids(lengths, seed)
    wider = torch.nn.functional.pad(target, (0, 2), value=PAD)
    logits = make_logits(wider, seed)
    narrow = cross_entropy(logits[:, : target.shape[1]], target, 0.1)
    assert cross_entropy(logits, wider, 0.1).item() == pytest.approx(narrow.item(), abs=1e-12)


@few_examples
@given(LENGTHS, st.integers(1, 5), SEEDS)
def test_coverage_loss_equals_its_definition(lengths: list[int], positions: int, seed: int) -> None:
    """The loss equals Σ_t Σ_i min(a_i^t, c_i^t) over real targets, and is zero if no position is attended twice."""
    target, generator = make_padded_ids(lengths, seed), torch.Generator().manual_seed(seed)
    shape = (*target.shape, positions)
    weights = torch.randn(shape, generator=generator, dtype=torch.float64).softmax(dim=2).requires_grad_()
    total = 0.0
    for row, length in enumerate(lengths):
        covered = [0.0] * positions
        for step in range(length):
            step_weights = weights[row, step].tolist()
            total += sum(min(a, c) for a, c in zip(step_weights, covered, strict=True))
            covered = [c + a for a, c in zip(step_weights, covered, strict=True)]
    loss = coverage_loss(weights, target)
    assert loss.item() == pytest.approx(total / sum(lengths), abs=1e-12)
    gradient = torch.autograd.grad(loss, weights)[0]
    assert bool(gradient.any()) == (max(lengths) > 1)
    diagonal_weights = torch.eye(max(lengths), dtype=torch.float64).expand(len(lengths), -1, -1)
    assert coverage_loss(diagonal_weights, target).item() == 0


@few_examples
@given(LENGTHS, SEEDS, st.sampled_from([0.0, 0.3]))
def test_smoothing_excludes_copied_positions(lengths: list[int], seed: int, smoothing: float) -> None:
    """Without copied positions the loss equals `cross_entropy`; impossible positions do not contribute."""
    target, generator = make_padded_ids(lengths, seed), torch.Generator().manual_seed(seed)
    logits = torch.randn(*target.shape, 9, generator=generator, dtype=torch.float64).log_softmax(dim=2)
    wide = torch.nn.functional.pad(logits, (0, 3), value=-torch.inf)
    expected = cross_entropy(logits, target, smoothing).item()
    assert copying_cross_entropy(wide, target, smoothing, 9).item() == pytest.approx(expected, abs=1e-12)
    copied_target = torch.where(target == PAD, PAD, 9)
    half = torch.nn.functional.pad(logits - math.log(2), (0, 1), value=math.log(0.5))
    actual = copying_cross_entropy(half, copied_target, smoothing, 9).item()
    uniform_loss = -(half[..., :9].mean(dim=2) * (target != PAD)).sum().item() / sum(lengths)
    assert actual == pytest.approx((1 - smoothing) * math.log(2) + smoothing * uniform_loss, abs=1e-12)


@few_examples
@given(LENGTHS, SEEDS, SMOOTHING)
def test_copied_targets_do_not_count_for_the_generator(lengths: list[int], seed: int, smoothing: float) -> None:
    target = make_padded_ids(lengths, seed)
    logits = make_logits(target, seed)
    assert vocabulary_cross_entropy(logits, target, smoothing) == cross_entropy(logits, target, smoothing)
    copied = torch.where(torch.arange(target.shape[1]) == 0, 9, target)
    if (without_copied := torch.where(copied == 9, PAD, target)).any():
        assert vocabulary_cross_entropy(logits, copied, smoothing) == cross_entropy(logits, without_copied, smoothing)


@few_examples
@given(LENGTHS, SEEDS)
def test_symmetric_kl_ignores_impossible_symbols(lengths: list[int], seed: int) -> None:
    target, generator = make_padded_ids(lengths, seed), torch.Generator().manual_seed(seed)
    one, other = torch.randn(2, *target.shape, 5, generator=generator, dtype=torch.float64).requires_grad_()
    total = 0.0
    for row, length in enumerate(lengths):
        for step in range(length):
            p, q = one[row, step].detach().softmax(dim=0), other[row, step].detach().softmax(dim=0)
            total += sum(float(a * (a / b).log() + b * (b / a).log()) for a, b in zip(p, q, strict=True))
    actual = symmetric_kl(one, other, target)
    assert actual.item() == pytest.approx(total / sum(lengths), abs=1e-12)
    wide, wider = (torch.nn.functional.pad(logits, (0, 2), value=-torch.inf) for logits in (one, other))
    assert symmetric_kl(wide, wider, target).item() == pytest.approx(actual.item(), abs=1e-12)
    gradient = torch.autograd.grad(symmetric_kl(wide, wider, target), one)[0]
    assert bool(gradient.isfinite().all()) and bool(gradient.any())
    assert symmetric_kl(one, one, target).item() == 0


def test_smoothing_over_suppressed_symbols_is_a_smaller_smoothing() -> None:
    """q over V, renormalized without three symbols, is q' over the V − 3 others, ε' = ε (V − 3) / (V − 3 ε)."""
    size, smoothing, target = 9, 0.3, 5
    q = torch.full((size,), smoothing / size)
    q[target] += 1 - smoothing
    allowed = torch.tensor([2, *range(4, size)])
    smaller = smoothing * (size - 3) / (size - 3 * smoothing)
    expected = torch.full((size - 3,), smaller / (size - 3))
    expected[allowed == target] += 1 - smaller
    torch.testing.assert_close(q[allowed] / q[allowed].sum(), expected)
