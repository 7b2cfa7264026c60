"""Types of arrays without jaxtyping have the attributes of jaxtyping's, by which arguments are checked."""

import subprocess
import sys
from typing import Any

import jaxtyping
import numpy as np
import pytest

from pellucid import shapes
from pellucid.shapes import FLOATS, INTEGERS, UNSIGNED, ShapedArray, shaped_array

KINDS = {
    "Bool": ("bool",),
    "Float": FLOATS,
    "Int": INTEGERS,
    "Integer": INTEGERS + UNSIGNED,
    "UInt": UNSIGNED,
    "UInt32": ("uint32",),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dims", ["", " B", "B S", "*shape N", "B *steps", "..."])
def test_attributes_are_those_of_jaxtyping(name: str, dims: str) -> None:
    expected: Any = getattr(jaxtyping, name)[np.ndarray, dims]
    actual = shaped_array(name, KINDS[name], np.ndarray, dims)
    assert (actual.array_type, actual.dim_str.split()) == (expected.array_type, expected.dim_str.split())
    assert actual.index_variadic == expected.index_variadic
    numpy_types = {"bool", "float16", "float32", "float64", "int32", "int64", "uint8", "uint32"}
    assert {*actual.dtypes} & numpy_types == {*expected.dtypes} & numpy_types


def test_values_are_arrays() -> None:
    kind = shaped_array("Float", FLOATS, np.ndarray, "N")
    assert isinstance(np.zeros(2), kind) and not isinstance([0.0], kind)
    assert isinstance([0.0], shaped_array("Float", FLOATS, Any, "N"))
    assert (kind | None) is not None and issubclass(kind, ShapedArray)


def test_a_program_checks_arguments_without_jaxtyping() -> None:
    program = """
import sys
import numpy as np
from pellucid.alignment.attention_path import monotone_path
from pellucid.shapes import Float
from pellucid.errors import ArgumentError
print(Float[np.ndarray, "B S"].__name__, monotone_path([[1.0]]) is not None)
try:
    monotone_path(np.zeros(3))
except ArgumentError as error:
    print(error)
print("jaxtyping" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    name, error, is_imported = result.stdout.splitlines()
    assert name == "Float[ndarray, 'B S'] True" and is_imported == "False"
    assert error.startswith("weights: expected an array of numbers of shape")


def test_the_tests_use_jaxtyping() -> None:
    assert shapes.Float is jaxtyping.Float
