"""Comparison of kernels with PyTorch on inputs of unusual shapes."""

from collections.abc import Callable, Mapping, Sequence

import torch
from hypothesis import strategies
from torch import Tensor, nn

from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.types import CELL_LAYOUTS

SIZES = strategies.sampled_from([1, 2, 3, 10, 17, 32, 40])
CELLS = strategies.sampled_from([*CELL_LAYOUTS])
SEEDS = strategies.integers(0, 2**31)


def draw_lengths(data: strategies.DataObject, rows: int, max_length: int) -> Tensor:
    """Draw one length per row, from 1 to `max_length`, in any order."""
    return torch.tensor(data.draw(strategies.lists(strategies.integers(1, max_length), min_size=rows, max_size=rows)))


def compute_gradients(
    run: Callable[[], Sequence[Tensor]], inputs: Mapping[str, Tensor], seed: int
) -> dict[str, Tensor]:
    """Return the outputs, and the gradients of all inputs for random gradients of all outputs."""
    torch.manual_seed(seed)
    outputs = list(run())
    output_gradients = [torch.randn(output.shape, dtype=output.dtype, device=output.device) for output in outputs]
    gradients = torch.autograd.grad(outputs, list(inputs.values()), output_gradients, allow_unused=True)
    named_outputs = {f"output {index}": output.detach() for index, output in enumerate(outputs)}
    return named_outputs | {
        name: gradient for name, gradient in zip(inputs, gradients, strict=True) if gradient is not None
    }


def assert_named_tensors_close(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float = 1e-5
) -> None:
    """Assert that tensors of the same name are close, relative to the largest expected entry.

    The scale is at least 0.1, which allows for the rounding of larger summands that cancel.
    """
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        scale = max(float(tensor.abs().max()), 0.1) if tensor.numel() else 1.0
        assert actual[name].shape == tensor.shape, name
        torch.testing.assert_close(actual[name] / scale, tensor / scale, rtol=0, atol=tolerance, msg=name)


def run_with_and_without_kernels(
    network: nn.Module, run: Callable[[], Sequence[Tensor]], extra_inputs: Mapping[str, Tensor], seed: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the outputs and gradients with and without kernels, for all parameters of a network and further inputs."""
    inputs = {**dict(network.named_parameters()), **extra_inputs}
    fused = compute_gradients(run, inputs, seed)
    with disable_kernels():
        return fused, compute_gradients(run, inputs, seed)
