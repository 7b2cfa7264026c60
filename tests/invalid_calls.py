"""Calls of functions with invalid values for each argument."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from invalid_arguments import VALUE_FACTORIES

from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, InputError

Functions = Mapping[Callable[..., Any], Mapping[str, Any]]
"""Public functions with valid values of their arguments."""

INVALID_ARRAYS: list[Any] = [
    *(
        [[0.5, float("nan")]],
        [[float("inf"), 1.0]],
        [[-float("inf"), 0.0]],
        [[1e308, -1e308]],
        [[1e-320, 0.0]],
        [[-0.5]],
    ),
    *(np.zeros((0, 3)), np.zeros((3, 0)), np.zeros((0, 0)), np.zeros((2, 3, 4)), np.full((2, 2), np.nan, np.float32)),
    *(np.ones((2, 2), np.float16), np.ones((2, 2), np.longdouble), np.ones((2, 2), ">f8"), np.ones((2, 2), bool)),
    *(np.ones((2, 2), complex), np.ones((2, 2), object), np.ones((2, 2), "M8[s]"), np.array([["a"]]), np.eye(3)[::-1]),
    *(np.full((2, 2), 2**64 - 1, np.uint64), np.ma.masked_array(np.ones((2, 2)), [[True, False], [False, False]])),
    *(torch.ones((2, 2), requires_grad=True), torch.ones((2, 2), dtype=torch.bfloat16), torch.eye(2).to_sparse()),
    *([[1, 2], [3]], [[10**400]], [[1, 2], [3, 4]], [[True, False]], [[None]], [b"x"], [[]], [[0, 1, 2]], [["a", "b"]]),
]
"""Arrays that some or all functions cannot use."""


def list_arguments(functions: Functions) -> list[tuple[Callable[..., Any], str]]:
    """Return each function with the name of each of its arguments."""
    return [
        (function, name) for function in functions for name in inspect.signature(function).parameters if name != "self"
    ]


def function_name(value: object) -> str | None:
    """Return the name of a function for the identifier of a test."""
    return value.__qualname__ if inspect.isfunction(value) else None


def find_faults(function: Callable[..., Any], valid_arguments: Mapping[str, Any], name: str) -> list[str]:
    """Call a function with invalid values of the argument `name`; return a description of each fault.

    A call has a fault if it returns NaN or raises another error than an `InputError` that names the argument.
    """
    faults = list[str]()
    for value in [*(make_value() for make_value in VALUE_FACTORIES), *INVALID_ARRAYS]:
        try:
            result = function(**{**valid_arguments, name: value})
            is_fault = contains_nan(list(result) if isinstance(result, Iterator) else result)
        except ArgumentError as error:
            is_fault = name not in str(error) or len(str(error)) > 400
        except InputError:
            is_fault = False
        except Exception as error:
            faults.append(f"{name} = {describe_value(value)}: {type(error).__name__}: {str(error)[:300]}")
            continue
        if is_fault:
            faults.append(f"{name} = {describe_value(value)}: NaN, or a message that does not name it")
    return faults


def contains_nan(value: Any) -> bool:  # noqa: ANN401
    """Return whether a result contains NaN at any depth."""
    if isinstance(value, float | np.ndarray | torch.Tensor):
        values = np.asarray(value)
        return values.dtype.kind == "f" and bool(np.isnan(values).any())
    if isinstance(value, Mapping):
        return any(map(contains_nan, value.values()))
    if is_dataclass(value):
        return any(contains_nan(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, list | tuple) and any(map(contains_nan, value))
