"""Descriptions of the computations of a network, by which a backend is chosen (`kernels.dispatch`)."""

from collections.abc import Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.kernels.backend import Computation, ComputationRequest, Properties


def request_of(computation: Computation, operand: Tensor, properties: Properties = ()) -> ComputationRequest:
    """Return the request for a computation, in the present mode of gradients.

    Args:
        computation: Kind of computation.
        operand: Tensor with the device and type of all operands.
        properties: Further properties; default none.
    """
    return ComputationRequest(
        computation, operand.device.type, _name(operand.dtype), torch.is_grad_enabled(), properties
    )


@cache
def _name(dtype: torch.dtype) -> str:
    """Return the name of a type of numbers, such as float32."""
    return str(dtype).removeprefix("torch.")


def kind_of(module: nn.Module) -> str:
    """Return the `kind` that the class of a layer itself declares, by which backends identify its equations.

    A subclass may change the equations, so it does not inherit `kind`; without its own the result is its module and
    name, which no backend supports.

    Args:
        module: The layer.
    """
    module_class: Any = type(module)
    return _kind_of_class(module_class)


@cache
def _kind_of_class(module_class: Hashable) -> str:
    """Return the kind of a class of layers."""
    assert isinstance(module_class, type)
    kind: str = vars(module_class).get("kind", f"{module_class.__module__}.{module_class.__qualname__}")
    return kind
