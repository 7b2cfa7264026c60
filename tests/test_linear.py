"""Linear projections by the kernel, compared with PyTorch: results and gradients, with and without bias."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import SEEDS, assert_named_tensors_close, compute_gradients
from torch import nn

from pellucid.kernels.dispatch import bfloat16_products, disable_kernels
from pellucid.kernels.microkernel import HAS_BFLOAT16
from pellucid.model.linear import linear

SHAPES = st.lists(st.sampled_from([0, 1, 2, 7, 33]), min_size=0, max_size=2)


@given(
    shape=SHAPES,
    sizes=st.tuples(st.sampled_from([0, 1, 40, 70]), st.sampled_from([1, 5, 40])),
    has_bias=st.booleans(),
    seed=SEEDS,
)
def test_results_and_gradients_equal_those_of_pytorch(
    shape: list[int], sizes: tuple[int, int], has_bias: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    tensors = {"inputs": torch.randn(*shape, sizes[0]), "weight": torch.randn(*reversed(sizes))}
    if has_bias:
        tensors["bias"] = torch.randn(sizes[1])
    leaves = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
    fused = compute_gradients(lambda: [linear(**leaves)], leaves, seed)
    with disable_kernels():
        assert_named_tensors_close(fused, compute_gradients(lambda: [linear(**leaves)], leaves, seed))


def test_operands_need_not_be_contiguous_and_may_be_constant() -> None:
    inputs, weight = torch.randn(6, 10).T, torch.randn(6, 8).T
    bias = torch.randn(8, requires_grad=True)
    result = linear(inputs, weight, bias)
    torch.testing.assert_close(result, nn.functional.linear(inputs, weight, bias))
    (gradient,) = torch.autograd.grad(result.sum(), bias)
    assert (gradient == 10).all()


def test_the_threads_of_a_process_change_rounding_only() -> None:
    inputs, weight = torch.randn(90, 40, requires_grad=True), torch.randn(30, 40, requires_grad=True)
    expected = compute_gradients(lambda: [linear(inputs, weight)], {"x": inputs, "w": weight}, 1)
    torch.set_num_threads(2)
    try:
        actual, again = (
            compute_gradients(lambda: [linear(inputs, weight)], {"x": inputs, "w": weight}, 1) for _ in range(2)
        )
    finally:
        torch.set_num_threads(1)
    assert_named_tensors_close(actual, expected)
    assert all(torch.equal(tensor, again[name]) for name, tensor in actual.items())


@pytest.mark.skipif(not HAS_BFLOAT16, reason="needs avx512_bf16")
def test_bfloat16_rounds_the_operands_and_not_the_results() -> None:
    inputs, weight = torch.randn(50, 40), torch.randn(30, 40, requires_grad=True)
    with bfloat16_products():
        result = linear(inputs, weight)
    rounded = inputs.bfloat16().float(), weight.detach().bfloat16().float()
    torch.testing.assert_close(result.detach(), nn.functional.linear(*rounded), rtol=1e-5, atol=1e-5)
    output_gradient = torch.randn(50, 30)
    (gradient,) = torch.autograd.grad(result, weight, output_gradient)
    expected = output_gradient.bfloat16().float().T @ rounded[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-4)
    assert gradient.dtype == torch.float32
