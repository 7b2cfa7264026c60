"""Construction of ONNX graphs: operators, weights in float32 or 8 bits, inputs and outputs.

A value of a graph is known by its name, a string. The package onnx is an optional dependency.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from pellucid.export.quantization import quantize_rows
from pellucid.runtime.parameters import Array, LayerNormArrays
from pellucid.version import __version__

Attributes = Mapping[str, Any]
"""Attributes of an operator by their names."""
NO_ATTRIBUTES: Attributes = {}
LAYER_NORM_EPSILON = 1e-5
"""Number that layer normalization adds to the variance, as in PyTorch."""


class GraphOptions(NamedTuple):
    """Options of a graph."""

    opset: int
    """Version of the ONNX operators."""
    int8: bool = False
    """Store matrices as 8-bit integers with one scale per row (`quantize_rows`)."""


class GraphBuilder:
    """A graph under construction: its operators in their order, weights, inputs and outputs."""

    def __init__(self, options: GraphOptions) -> None:
        """Begin an empty graph.

        Args:
            options: Version of the operators, and type of the weights.
        """
        self.options = options
        self._nodes: list[NodeProto] = []
        self._weights: dict[str, TensorProto] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: type[np.generic], shape: Sequence[str | int]) -> str:
        """Add an input, and return its name.

        Args:
            name: Name of the input.
            kind: Type of its numbers, such as `np.float32`.
            shape: Size of each dimension; a name for one that may vary.
        """
        self._inputs.append(_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: str, kind: type[np.generic], shape: Sequence[str | int]) -> None:
        """Add an output.

        Args:
            name: Name of the output.
            value: Value of the graph that becomes the output.
            kind: Type of its numbers.
            shape: Size of each dimension; a name for one that may vary.
        """
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_value_info(name, kind, shape))

    def add(self, operator: str, *inputs: str, attributes: Attributes = NO_ATTRIBUTES) -> str:
        """Add an operator with one output, and return the name of this output.

        Args:
            operator: Name of the operator, such as "MatMul".
            *inputs: Names of its inputs.
            attributes: Attributes of the operator; none by default.
        """
        return self.add_all(operator, inputs, 1, attributes)[0]

    def add_all(
        self, operator: str, inputs: Sequence[str], num_outputs: int, attributes: Attributes = NO_ATTRIBUTES
    ) -> list[str]:
        """Add an operator, and return the names of its outputs.

        Args:
            operator: Name of the operator.
            inputs: Names of its inputs.
            num_outputs: Number of its outputs.
            attributes: Attributes of the operator; none by default.
        """
        number = len(self._nodes)
        outputs = [f"{operator.lower()}_{number}_{index}" for index in range(num_outputs)]
        self._nodes.append(helper.make_node(operator, list(inputs), outputs, **attributes))
        return outputs

    def constant(self, values: Any) -> str:  # noqa: ANN401 (anything that NumPy makes an array of)
        """Add a constant of any type, and return its name. Equal constants are stored once.

        Args:
            values: Array, number or list. Integers become int64.
        """
        array = np.asarray(values)
        for name, tensor in self._weights.items():
            if name.startswith("constant_") and tensor.raw_data == array.tobytes() and _is_like(tensor, array):
                return name
        return self._store(f"constant_{len(self._weights)}", array)

    def weight(self, name: str, values: Array) -> str:
        """Add parameters, and return the name of their float32 value.

        With `int8`, the graph computes the value of a matrix from 8-bit integers by DequantizeLinear.

        Args:
            name: Name of the parameters in the graph.
            values: Parameters; those of two dimensions are a matrix.
        """
        if not self.options.int8 or values.ndim != 2 or not values.size:
            return self._store(name, np.ascontiguousarray(values, np.float32))
        matrix = quantize_rows(values)
        stored = self._store(f"{name}.int8", matrix.values), self._store(f"{name}.scale", matrix.scales)
        return self.add("DequantizeLinear", *stored, attributes={"axis": 0})

    def linear(self, inputs: str, weight: str, bias: str = "") -> str:
        """Return x Wᵀ + b.

        Args:
            inputs: x, of two or three dimensions.
            weight: W, of two dimensions.
            bias: b; "" if there is none.
        """
        product = self.add("MatMul", inputs, self.add("Transpose", weight, attributes={"perm": [1, 0]}))
        return self.add("Add", product, bias) if bias else product

    def layer_norm(self, inputs: str, name: str, norm: LayerNormArrays) -> str:
        """Return LN(x) over the last dimension.

        Args:
            inputs: x.
            name: Name of the normalization in the graph.
            norm: Its parameters.
        """
        parameters = self.weight(f"{name}.weight", norm.weight), self.weight(f"{name}.bias", norm.bias)
        return self.add(
            "LayerNormalization", inputs, *parameters, attributes={"axis": -1, "epsilon": LAYER_NORM_EPSILON}
        )

    def dimension(self, value: str, axis: int) -> str:
        """Return the size of one dimension, as an array of one number.

        Args:
            value: Value of the graph.
            axis: The dimension, from 0.
        """
        return self.add("Shape", value, attributes={"start": axis, "end": axis + 1})

    def length_mask(self, lengths: str, positions: str) -> str:
        """Return True at the real positions of each row, shape (B, S).

        Args:
            lengths: Number of real positions of each row, shape (B).
            positions: S, as `dimension` returns it.
        """
        scalar = self.add("Squeeze", positions, self.constant([0]))
        numbers = self.add("Range", self.constant(0), scalar, self.constant(1))
        return self.add("Less", numbers, self.add("Unsqueeze", lengths, self.constant([1])))

    def reshape(self, value: str, *sizes: str | int) -> str:
        """Return a value with another shape.

        Args:
            value: Value of the graph.
            *sizes: Size of each dimension: a number (−1: what remains; 0: as before), or what `dimension` returns.
        """
        if all(isinstance(size, int) for size in sizes):
            return self.add("Reshape", value, self.constant(list(sizes)))
        parts = [size if isinstance(size, str) else self.constant([size]) for size in sizes]
        return self.add("Reshape", value, self.add("Concat", *parts, attributes={"axis": 0}))

    def build(self, name: str, metadata: Mapping[str, str]) -> ModelProto:
        """Return the model, after the check of onnx.

        Args:
            name: Name of the graph.
            metadata: Texts that are stored in the model, by their keys.
        """
        graph: GraphProto = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, list(self._weights.values())
        )
        opset = helper.make_opsetid("", self.options.opset)
        model = helper.make_model(
            graph,
            opset_imports=[opset],
            ir_version=helper.find_min_ir_version_for([opset]),
            producer_name="pellucid",
            producer_version=__version__,
        )
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model, full_check=True)
        return model

    def _store(self, name: str, values: np.ndarray) -> str:
        """Store an array under a name, and return the name."""
        assert name not in self._weights, f"{name} is stored twice"
        self._weights[name] = numpy_helper.from_array(values, name)
        return name


def _value_info(name: str, kind: type[np.generic], shape: Sequence[str | int]) -> Any:  # noqa: ANN401
    """Return the description of an input or output."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), list(shape))


def _is_like(tensor: TensorProto, array: np.ndarray) -> bool:
    """Return whether a stored array has the type and shape of another one."""
    return tuple(tensor.dims) == array.shape and tensor.data_type == helper.np_dtype_to_tensor_dtype(array.dtype)
