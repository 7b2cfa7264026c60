"""export/onnx_graph.py: construction of graphs, and the weights that they hold."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx.checker import ValidationError
from onnx_networks import assert_values_close, load_session, run_session

from pellucid.export.onnx_graph import GraphBuilder, GraphOptions
from pellucid.export.quantization import quantize_rows
from pellucid.runtime.parameters import LayerNormArrays

MATRIX = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)
INPUTS = np.random.default_rng(2).normal(size=(4, 2)).astype(np.float32)


def build_linear(options: GraphOptions) -> GraphBuilder:
    """Return a graph of x Wᵀ + b."""
    graph = GraphBuilder(options)
    inputs = graph.input("x", np.float32, ["rows", 2])
    result = graph.linear(inputs, graph.weight("w", MATRIX), graph.weight("b", np.ones(3, np.float32)))
    graph.output("y", result, np.float32, ["rows", 3])
    return graph


@pytest.mark.parametrize("opset", [17, 21, 23, onnx.defs.onnx_opset_version()])
def test_linear_layer_of_several_opsets(opset: int) -> None:
    model = build_linear(GraphOptions(opset)).build("linear", {"key": "text"})
    assert model.opset_import[0].version == opset
    assert [(entry.key, entry.value) for entry in model.metadata_props] == [("key", "text")]
    assert_values_close(run_session(load_session(model), {"x": INPUTS})["y"], INPUTS @ MATRIX.T + 1, 1e-6)


def test_matrices_are_stored_in_8_bits_and_vectors_in_float32() -> None:
    model = build_linear(GraphOptions(17, int8=True)).build("linear", {})
    types = {tensor.name: onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type) for tensor in model.graph.initializer}
    assert types["w.int8"] == np.int8 and types["w.scale"] == types["b"] == np.float32
    expected = INPUTS @ quantize_rows(MATRIX).dequantize().T + 1
    assert_values_close(run_session(load_session(model), {"x": INPUTS})["y"], expected, 1e-6)


def test_layer_normalization() -> None:
    graph = GraphBuilder(GraphOptions(17))
    norm = LayerNormArrays(np.array([2, 3], np.float32), np.array([1, -1], np.float32))
    graph.output("y", graph.layer_norm(graph.input("x", np.float32, [4, 2]), "norm", norm), np.float32, [4, 2])
    centered = INPUTS - INPUTS.mean(axis=1, keepdims=True)
    expected = centered / np.sqrt(INPUTS.var(axis=1, keepdims=True) + 1e-5) * norm.weight + norm.bias
    assert_values_close(run_session(load_session(graph.build("norm", {})), {"x": INPUTS})["y"], expected)


def test_mask_and_reshape_follow_the_sizes_of_the_inputs() -> None:
    graph = GraphBuilder(GraphOptions(17))
    ids = graph.input("ids", np.int64, ["rows", "columns"])
    lengths = graph.input("lengths", np.int64, ["rows"])
    columns = graph.dimension(ids, 1)
    graph.output("mask", graph.length_mask(lengths, columns), np.bool_, ["rows", "columns"])
    graph.output("flat", graph.reshape(ids, -1, columns, 1), np.int64, ["rows", "columns", 1])
    session = load_session(graph.build("mask", {}))
    for rows in ([[1, 2, 3], [4, 5, 6]], [[1, 2, 3, 4]]):
        values = {"ids": np.array(rows), "lengths": np.array([3, 1][: len(rows)])}
        outputs = run_session(session, values)
        assert outputs["mask"].sum(axis=1).tolist() == values["lengths"].tolist()
        assert outputs["mask"][:, 0].all() and outputs["flat"].shape == (*np.shape(rows), 1)


def test_equal_constants_are_stored_once() -> None:
    graph = GraphBuilder(GraphOptions(17))
    assert graph.constant([1]) == graph.constant([1])
    assert len({graph.constant([1]), graph.constant(1), graph.constant(np.float32(1)), graph.constant([0])}) == 4


def test_a_wrong_graph_is_refused_by_the_check_of_onnx() -> None:
    graph = GraphBuilder(GraphOptions(17))
    graph.output("y", graph.add("MatMul", "missing", graph.constant(np.eye(2))), np.float64, [2, 2])
    with pytest.raises(ValidationError):
        graph.build("wrong", {})
