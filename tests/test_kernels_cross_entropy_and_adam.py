"""The compiled cross-entropy compared with PyTorch, and the compiled Adam with its reference."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import SEEDS, SIZES
from small_networks import few_examples

from pellucid.data.vocabulary import PAD
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.losses import cross_entropy
from pellucid.training.optimizer import compute_adam_changes, compute_adam_changes_kernel


@given(
    st.integers(1, 5), st.integers(1, 7), SIZES, SEEDS, st.sampled_from([0.0, 0.1, 0.9]), st.sampled_from([1.0, 30.0])
)
@settings(max_examples=60, deadline=None)
def test_loss_and_gradient_equal_pytorch(
    rows: int, steps: int, size: int, seed: int, smoothing: float, scale: float
) -> None:
    torch.manual_seed(seed)
    wide = torch.randn(rows, steps, 2 * size + 2) * scale
    logits = wide[:, :, ::2][:, :, : size + 1].requires_grad_()
    target = torch.randint(0, size + 1, (rows, steps))
    target[0, 0] = PAD + 1
    loss = cross_entropy(logits, target, smoothing)
    (gradient,) = torch.autograd.grad(3 * loss, logits)
    with disable_kernels():
        expected = cross_entropy(logits, target, smoothing)
        (expected_gradient,) = torch.autograd.grad(3 * expected, logits)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-6)
    assert (gradient[target == PAD] == 0).all()


def test_the_loss_of_padding_alone_is_nan() -> None:
    logits, target = torch.zeros(1, 2, 3), torch.full((1, 2), PAD)
    assert math.isnan(float(cross_entropy(logits, target, 0.1)))
    with disable_kernels():
        assert math.isnan(float(cross_entropy(logits, target, 0.1)))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_logits_give_a_non_finite_loss(bad: float) -> None:
    logits = torch.zeros(1, 2, 3)
    logits[0, 1, 2] = bad
    assert not math.isfinite(float(cross_entropy(logits, torch.ones(1, 2, dtype=torch.int64), 0.1)))


@few_examples
@given(st.integers(0, 300), st.integers(0, 9), st.floats(1e-6, 1e3), st.floats(-1.0, 1.0), SEEDS)
def test_adam_equals_the_reference(size: int, offset: int, scale: float, step: float, seed: int) -> None:
    """The arrays may be slices of others, with any offset."""
    generator = torch.Generator().manual_seed(seed)
    gradient, mean = scale * torch.randn(2, size + offset, generator=generator)
    square = scale**2 * torch.rand(size + offset, generator=generator)
    reference, compiled = ([t.clone()[offset:] for t in (gradient, mean, square)] for _ in range(2))
    coefficients = (0.1, 0.001, step, 1e-8)
    compute_adam_changes(reference[0], reference[1], reference[2], coefficients)
    compute_adam_changes_kernel(compiled[0], compiled[1], compiled[2], coefficients)
    for actual, expected in zip(compiled, reference, strict=True):
        # Where two numbers nearly cancel, a moment has the absolute error of these numbers.
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6 * max(float(expected.abs().sum()), 1e-30))


@pytest.mark.parametrize("update", [compute_adam_changes, compute_adam_changes_kernel])
def test_adam_propagates_nan(update: Callable[..., None]) -> None:
    gradient = torch.tensor([math.nan, 0.0])
    update(gradient, torch.zeros(2), torch.zeros(2), (0.1, 0.001, -0.1, 1e-8))
    assert math.isnan(gradient[0]) and gradient[1] == 0
