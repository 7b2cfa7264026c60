"""Tensors of PyTorch that are written to and read from safetensors files."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pellucid.run_folder.tensor_file import TensorFile, read_arrays


def read_tensors(stored: TensorFile, expected: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a file after the checks of `read_arrays`.

    Args:
        stored: The file.
        expected: Tensors of the expected types and shapes, by name; their values are not read.

    Raises:
        RunError: A name, type or shape differs, or a number is not finite.
    """
    return {name: torch.from_numpy(values) for name, values in read_arrays(stored, expected).items()}


def cpu_tensors(tensors: dict[str, Any]) -> dict[str, Tensor]:
    """Return detached, contiguous CPU tensors with separate memory, as safetensors requires.

    Args:
        tensors: Tensors, on any device, or single numbers, by name.
    """
    detached = {name: torch.as_tensor(value).detach() for name, value in tensors.items()}
    return {name: value.to("cpu", copy=True).contiguous() for name, value in detached.items()}
