"""The compiled cross-entropy against PyTorch's."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import SEEDS, SIZES

from pellucid.data.vocabulary import PAD
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.losses import cross_entropy


@given(
    st.integers(1, 5), st.integers(1, 7), SIZES, SEEDS, st.sampled_from([0.0, 0.1, 0.9]), st.sampled_from([1.0, 30.0])
)
@settings(max_examples=60, deadline=None)
def test_loss_and_gradient_equal_pytorchs(
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
        wanted = cross_entropy(logits, target, smoothing)
        (wanted_gradient,) = torch.autograd.grad(3 * wanted, logits)
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, wanted_gradient, rtol=1e-5, atol=1e-6)
    assert (gradient[target == PAD] == 0).all()


def test_padding_alone_has_no_loss() -> None:
    logits, target = torch.zeros(1, 2, 3), torch.full((1, 2), PAD)
    assert math.isnan(float(cross_entropy(logits, target, 0.1)))
    with disable_kernels():
        assert math.isnan(float(cross_entropy(logits, target, 0.1)))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_diverged_network_shows(bad: float) -> None:
    logits = torch.zeros(1, 2, 3)
    logits[0, 1, 2] = bad
    assert not math.isfinite(float(cross_entropy(logits, torch.ones(1, 2, dtype=torch.int64), 0.1)))
