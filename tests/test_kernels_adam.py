"""The kernel of Adam against its plain version."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import SEEDS, few

from pellucid.kernels import autograd
from pellucid.training.optimizer import AdamUpdate, adam_update


@few
@given(st.integers(0, 300), st.integers(0, 9), st.floats(1e-6, 1e3), st.floats(-1.0, 1.0), SEEDS)
def test_the_kernel_equals_the_plain_version(size: int, offset: int, scale: float, step: float, seed: int) -> None:
    """Also on a part of an array, wherever it begins."""
    generator = torch.Generator().manual_seed(seed)
    gradient, mean = scale * torch.randn(2, size + offset, generator=generator)
    square = scale**2 * torch.rand(size + offset, generator=generator)
    plain, compiled = ([t.clone()[offset:] for t in (gradient, mean, square)] for _ in range(2))
    numbers = (0.1, 0.001, step, 1e-8)
    adam_update(plain[0], plain[1], plain[2], numbers)
    autograd.adam_update(compiled[0], compiled[1], compiled[2], numbers)
    for one, other in zip(compiled, plain, strict=True):
        # A moment that two numbers nearly cancel in is right as far as these are.
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * max(float(other.abs().sum()), 1e-30))


@pytest.mark.parametrize("turn", [adam_update, autograd.adam_update])
def test_what_is_no_number_is_seen(turn: AdamUpdate) -> None:
    gradient = torch.tensor([math.nan, 0.0])
    turn(gradient, torch.zeros(2), torch.zeros(2), (0.1, 0.001, -0.1, 1e-8))
    assert math.isnan(gradient[0]) and gradient[1] == 0
