"""Adam over all parameters at once, compared with PyTorch's Adam."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import SEEDS, few_examples
from torch import Tensor, nn

from pellucid.kernels.dispatch import disable_kernels
from pellucid.training import gradient_clipping
from pellucid.training.optimizer import Adam

SHAPES = st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=5)
Steps = list[list[bool]]
KernelContext = Callable[[], AbstractContextManager[None]]


class ParameterBag(nn.Module):
    """Module with random parameters of these shapes and a frozen parameter."""

    def __init__(self, shapes: Sequence[Sequence[int]], seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.trainable = nn.ParameterList(nn.Parameter(torch.randn(tuple(s), generator=generator)) for s in shapes)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)


def make_gradients(bag: ParameterBag, present: Sequence[bool], seed: int, scale: float = 1.0) -> list[Tensor | None]:
    """Return random gradients, with a transposed layout, of the parameters that are marked as present."""
    generator = torch.Generator().manual_seed(seed)
    values = [scale * torch.randn(tuple(reversed(p.shape)), generator=generator) for p in bag.trainable]
    transposed = [one.permute(tuple(reversed(range(one.dim())))) for one in values]
    return [one if is_present else None for one, is_present in zip(transposed, present, strict=True)]


@st.composite
def update_sequences(draw: st.DrawFn) -> tuple[list[list[int]], Steps]:
    """Draw shapes of parameters, and for each update the parameters that have a gradient."""
    shapes = draw(SHAPES)
    marks = st.lists(st.booleans() | st.just(True), min_size=len(shapes), max_size=len(shapes))
    return shapes, draw(st.lists(marks, min_size=1, max_size=12))


@few_examples
@given(update_sequences(), st.sampled_from([0.0, 0.1]), st.sampled_from([disable_kernels, nullcontext]), SEEDS)
def test_every_update_equals_that_of_pytorch(
    updates: tuple[list[list[int]], Steps], weight_decay: float, kernel_context: KernelContext, seed: int
) -> None:
    shapes, steps = updates
    bag, reference_bag = ParameterBag(shapes, seed), ParameterBag(shapes, seed)
    kind: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW if weight_decay else torch.optim.Adam
    reference = kind(list(reference_bag.trainable), weight_decay=weight_decay)
    optimizer = Adam(bag, weight_decay)
    for number, present in enumerate(steps):
        rate = 0.01 * (1 + number % 3)
        for parameter, gradient in zip(
            reference_bag.trainable, make_gradients(reference_bag, present, seed + number), strict=True
        ):
            parameter.grad = gradient
        for group in reference.param_groups:
            group["lr"] = rate
        reference.step()
        with kernel_context():
            optimizer.update(make_gradients(bag, present, seed + number), rate)
        for one, two in zip(bag.trainable, reference_bag.trainable, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)
    assert torch.equal(bag.frozen, torch.ones(3))


@pytest.mark.parametrize("kernel_context", [disable_kernels, nullcontext])
def test_many_updates_stay_close_to_those_of_pytorch(kernel_context: KernelContext) -> None:
    bag, reference_bag = ParameterBag([[30, 20], [7]], 1), ParameterBag([[30, 20], [7]], 1)
    reference, optimizer = torch.optim.AdamW(list(reference_bag.trainable), lr=1e-3, weight_decay=0.01), Adam(bag, 0.01)
    for number in range(500):
        for parameter, gradient in zip(
            reference_bag.trainable, make_gradients(reference_bag, [True, True], number), strict=True
        ):
            parameter.grad = gradient
        reference.step()
        with kernel_context():
            optimizer.update(make_gradients(bag, [True, True], number), 1e-3)
    for one, two in zip(bag.trainable, reference_bag.trainable, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("value", "norm"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.7), (0.5, 0.7), (99.0, 999.0)])
@pytest.mark.parametrize("block", [3, 1 << 16])
def test_gradients_are_clipped_by_value_and_then_by_norm(
    value: float, norm: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = ParameterBag([[5, 4], [3]], 1)
    optimizer = Adam(bag)
    monkeypatch.setattr(gradient_clipping, "NORM_BLOCK", block)
    unclipped = [g for g in make_gradients(bag, [True, True], 2) if g is not None]
    expected = [nn.Parameter(torch.zeros_like(p)) for p in bag.trainable]
    for parameter, gradient in zip(expected, unclipped, strict=True):
        parameter.grad = gradient.clone()
    if value:
        nn.utils.clip_grad_value_(expected, value)
    length = float(nn.utils.clip_grad_norm_(expected, norm or math.inf))
    assert optimizer.update(unclipped, 0.1, value, norm) == pytest.approx(length, rel=1e-6)
    state = optimizer.state()
    for name, parameter in zip(optimizer.names, expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(state[f"{name}.mean"], 0.1 * parameter.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_an_update_with_a_non_finite_norm_changes_nothing(bad: float) -> None:
    bag = ParameterBag([[4], [2]], 1)
    optimizer = Adam(bag)
    optimizer.update(make_gradients(bag, [True, True], 1), 0.1)
    before = {n: v.clone() for n, v in (bag.state_dict() | optimizer.state()).items()}
    non_finite = make_gradients(bag, [True, True], 2)
    assert non_finite[1] is not None
    non_finite[1][0] = bad
    assert not math.isfinite(optimizer.update(non_finite, 0.1, clip_norm=1.0))
    after = bag.state_dict() | optimizer.state()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_restored_state_continues_bit_for_bit() -> None:
    one, other = ParameterBag([[5, 4], [3], []], 1), ParameterBag([[5, 4], [3], []], 1)
    first, second = Adam(one, 0.1), Adam(other, 0.1)
    for number in range(3):
        first.update(make_gradients(one, [True, number > 0, True], number), 0.01)
    state = {name: value.clone() for name, value in first.state().items()}
    assert {n: int(v) for n, v in state.items() if n.endswith("count")} == {
        "trainable.0.count": 3,
        "trainable.1.count": 2,
        "trainable.2.count": 3,
    }
    assert {n: tuple(v.shape) for n, v in state.items() if n.startswith("trainable.0")} == {
        "trainable.0.count": (),
        "trainable.0.mean": (5, 4),
        "trainable.0.square": (5, 4),
    }
    other.load_state_dict(one.state_dict())
    second.restore(state)
    for optimizer, bag in ((first, one), (second, other)):
        optimizer.update(make_gradients(bag, [True, True, True], 9), 0.01)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(first.state()[name], value) for name, value in second.state().items())


def test_parameters_keep_their_memory() -> None:
    """Other code may hold or replace the memory of parameters, so the optimizer does not share it."""
    bag = ParameterBag([[2, 3], [4]], 1)
    pointers = [parameter.data_ptr() for parameter in bag.trainable]
    optimizer = Adam(bag)
    optimizer.update(make_gradients(bag, [True, True], 1), 0.1)
    assert [parameter.data_ptr() for parameter in bag.trainable] == pointers
    assert all(parameter.grad is None for parameter in bag.parameters())


@pytest.mark.parametrize("size", [1, 30])
def test_a_gradient_whose_square_exceeds_float32_changes_nothing(size: int) -> None:
    """Otherwise a moment would be infinite, and the checkpoint with it could not be loaded."""
    network = nn.Linear(size, 1, bias=False)
    optimizer, before = Adam(network), network.weight.detach().clone()
    assert optimizer.update([torch.full((1, size), 1e20)], 0.1) == math.inf
    assert torch.equal(network.weight, before) and not optimizer.square.any()
    assert optimizer.update([torch.full((1, size), 1e18)], 0.1) < math.inf
    assert optimizer.square.isfinite().all()


def make_row_gradient(parameter: Tensor, seed: int) -> Tensor:
    """Return a sparse gradient of some rows of a parameter."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(parameter), generator=generator)[: 1 + seed % len(parameter)].sort().values
    values = torch.randn(len(rows), *parameter.shape[1:], generator=generator)
    return torch.sparse_coo_tensor(rows[None], values, parameter.shape, is_coalesced=True, check_invariants=False)


@pytest.mark.parametrize("kernel_context", [disable_kernels, nullcontext])
def test_sparse_gradients_update_their_rows_as_those_of_pytorch(kernel_context: KernelContext) -> None:
    """The reference is `torch.optim.SparseAdam` for the first and the third parameter, and Adam for the second."""
    shapes = [[30, 5], [7], [20]]
    bag, reference_bag = ParameterBag(shapes, 1), ParameterBag(shapes, 1)
    one, two, three = reference_bag.trainable
    references = [torch.optim.SparseAdam([one, three], lr=0.01), torch.optim.Adam([two], lr=0.01)]
    optimizer = Adam(bag)
    for number in range(40):
        dense = torch.randn(7, generator=torch.Generator().manual_seed(number))
        gradients = [make_row_gradient(one, number), dense, make_row_gradient(three, number + 3)]
        for parameter, gradient in zip(reference_bag.trainable, gradients, strict=True):
            parameter.grad = gradient.clone()
        for reference in references:
            reference.step()
        with kernel_context():
            norm = optimizer.update(gradients, 0.01)
        expected_norm = math.sqrt(sum(float(each.to_dense().square().sum()) for each in gradients))
        assert norm == pytest.approx(expected_norm, rel=1e-5)
        for mine, theirs in zip(bag.trainable, reference_bag.trainable, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_sparse_gradients_are_clipped_with_the_others_and_not_changed() -> None:
    shapes = [[6, 2], [3]]
    bag, reference_bag = ParameterBag(shapes, 1), ParameterBag(shapes, 1)
    sparse, dense = make_row_gradient(bag.trainable[0], 5), torch.tensor([3.0, -4.0, 0.5])
    before = sparse.to_dense().clone()
    norms = [
        Adam(each, weight_decay=0.1).update(gradients, 0.01, clip_value=1.0, clip_norm=0.7)
        for each, gradients in ((bag, [sparse, dense]), (reference_bag, [before, dense]))
    ]
    assert norms[0] == pytest.approx(norms[1])
    assert torch.equal(sparse.to_dense(), before)
    rows = sparse.indices()[0]
    for mine, theirs, selected in zip(bag.trainable, reference_bag.trainable, (rows, slice(None)), strict=True):
        torch.testing.assert_close(mine[selected], theirs[selected], rtol=1e-5, atol=1e-6)
    others = sorted(set(range(6)) - set(rows.tolist()))
    assert torch.equal(bag.trainable[0][others], ParameterBag(shapes, 1).trainable[0][others])


def test_a_gradient_that_is_not_finite_changes_no_row() -> None:
    bag = ParameterBag([[6, 2]], 1)
    values = torch.tensor([[math.nan, 1.0]])
    rows = torch.tensor([[2]])
    gradient = torch.sparse_coo_tensor(rows, values, (6, 2), is_coalesced=True, check_invariants=False)
    optimizer = Adam(bag)
    assert not math.isfinite(optimizer.update([gradient], 0.01)) and optimizer.counts == [0]
    assert torch.equal(bag.trainable[0], ParameterBag([[6, 2]], 1).trainable[0])
