"""Requests of the parts of a network to a backend."""

from collections.abc import Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from pellucid.kernels.backend import Computation, Facts, Request


def request_of(computation: Computation, operand: Tensor, facts: Facts = ()) -> Request:
    """Return the request for a computation with tensors such as the operand, in the present mode of gradients."""
    return Request(computation, operand.device.type, _name(operand.dtype), torch.is_grad_enabled(), facts)


@cache
def _name(dtype: torch.dtype) -> str:
    """Return the name of a type of numbers, as float32."""
    return str(dtype).removeprefix("torch.")


def kind_of(module: nn.Module) -> str:
    """Return the `kind` that the class of a layer declares itself, by which backends know its equations.

    A subclass may change the equations: it has no kind but the one that it declares, and is else known by its name.
    """
    own: Any = type(module)
    return _kind_of_class(own)


@cache
def _kind_of_class(own: Hashable) -> str:
    """Return the kind of a class of layers."""
    assert isinstance(own, type)
    kind: str = vars(own).get("kind", f"{own.__module__}.{own.__qualname__}")
    return kind
