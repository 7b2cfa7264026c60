"""The kernel that projects keys, against PyTorch's projection."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import SEEDS, SIZES, assert_equal, gradients_of

from pellucid.kernels import parallel
from pellucid.kernels.autograd import project


@given(st.integers(1, 9), st.integers(1, 12), SIZES, SIZES, SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_keys_and_gradients_equal_pytorch(
    rows: int, positions: int, size: int, units: int, seed: int, biased: bool
) -> None:
    assert_equal(*_both(rows, (positions, size, units), seed, biased))


def test_keys_of_several_threads_equal_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "MIN_ROWS", 2)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert_equal(*_both(5, (7, 6, 4), 1, True))
    finally:
        torch.set_num_threads(threads)


def _both(
    rows: int, sizes: tuple[int, int, int], seed: int, biased: bool
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return keys and gradients by the kernel and by PyTorch, of a memory that is not contiguous."""
    positions, size, units = sizes
    torch.manual_seed(seed)
    memory = torch.randn(positions, rows, size, requires_grad=True)
    weight = torch.randn(units, size, requires_grad=True)
    bias = torch.randn(units, requires_grad=True) if biased else None
    inputs = {"memory": memory, "weight": weight} | ({"bias": bias} if bias is not None else {})
    actual = gradients_of(lambda: [project(memory.transpose(0, 1), weight, bias)], inputs, seed)
    plain = torch.nn.functional.linear
    return actual, gradients_of(lambda: [plain(memory.transpose(0, 1), weight, bias)], inputs, seed)
