"""The encoder as an ONNX graph: from source ids to what all decoder steps read, and to the initial state.

B batch, S source positions, N directions, E embedding, H hidden units, D memory, L layers of the decoder, A attention
units, G numbers of all gates.

The recurrent layers are the operators GRU and LSTM with the lengths of the rows (`sequence_lens`): the backward
direction begins at the last real position of each row. Their equations are those of `pellucid.model`; the GRU has
`linear_before_reset = 1`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, TensorProto

from pellucid.config.settings import CellName, Config, memory_size
from pellucid.data.extended_vocabulary import BY_POSITION, NEVER_COPIED
from pellucid.data.vocabulary import UNK
from pellucid.export.onnx_graph import GraphBuilder, GraphOptions
from pellucid.runtime.parameters import (
    CellArrays,
    ConvolutionArrays,
    EncoderLayerArrays,
    NetworkArrays,
    PointerGeneratorArrays,
)
from pellucid.shapes import Float

GATE_ORDERS: Mapping[CellName, tuple[int, ...]] = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2)}
"""Gates in the order of the ONNX operators (GRU: update, reset, candidate; LSTM: input, output, forget, candidate), by
their index in the parameters of a run."""


class EncoderGraph:
    """Builder of the graph of an encoder."""

    def __init__(self, config: Config, network: NetworkArrays, options: GraphOptions) -> None:
        """Add the inputs.

        Args:
            config: Configuration of the run.
            network: Parameters of the network.
            options: Options of the graph.
        """
        self.config = config
        self.network = network
        self.graph = graph = GraphBuilder(options)
        self.ids = graph.input("ids", np.int64, ["batch", "positions"])
        self.lengths = graph.input("lengths", np.int64, ["batch"])
        self.batch = graph.dimension(self.ids, 0)
        self.positions = graph.dimension(self.ids, 1)
        self.is_real = graph.length_mask(self.lengths, self.positions)
        mask = graph.add("Cast", self.is_real, attributes={"to": TensorProto.FLOAT})
        self.mask = graph.add("Unsqueeze", mask, graph.constant([2]))

    def build(self, metadata: Mapping[str, str]) -> ModelProto:
        """Return the model.

        Args:
            metadata: Texts that are stored in the model.
        """
        memory, final = self._encode()
        self._add_memory_outputs(memory, final)
        self._add_state_outputs(memory, final)
        return self.graph.build("encoder", metadata)

    def _encode(self) -> tuple[str, str]:
        """Return the states of the top layer, shape (B, S, D), and its final state, shape (B, D)."""
        states, final = self._embed(), ""
        for index, layer in enumerate(self.network.encoder.layers):
            outputs, final = self._run_layer(f"encoder.{index}", layer, states)
            if layer.normalization is not None:
                outputs = self.graph.layer_norm(outputs, f"encoder.{index}.norm", layer.normalization)
            outputs = self.graph.add("Mul", outputs, self.mask)
            states = self.graph.add("Add", states, outputs) if self.config.encoder.residual and index else outputs
        return states, final

    def _embed(self) -> str:
        """Return the inputs of the first layer, shape (B, S, E): embeddings, or convolutions of them."""
        graph, encoder = self.graph, self.network.encoder
        is_known = graph.add("Less", self.ids, graph.constant(len(encoder.embedding)))
        ids = graph.add("Where", is_known, self.ids, graph.constant(UNK))
        vectors = graph.add("Gather", graph.weight("encoder.embedding", encoder.embedding), ids)
        return self._convolve(vectors, encoder.convolutions) if encoder.convolutions else vectors

    def _convolve(self, vectors: str, convolutions: Sequence[ConvolutionArrays]) -> str:
        """Return the outputs of all convolutions, concatenated; inputs and outputs beyond a row's length are zero."""
        graph, maps = self.graph, list[str]()
        inputs = graph.add("Transpose", graph.add("Mul", vectors, self.mask), attributes={"perm": [0, 2, 1]})
        for index, layer in enumerate(convolutions):
            width, name = layer.weight.shape[2], f"encoder.convolution_{index}"
            parameters = graph.weight(f"{name}.weight", layer.weight), graph.weight(f"{name}.bias", layer.bias)
            pads = [(width - 1) // 2, width // 2]
            maps.append(
                graph.add(
                    "Relu", graph.add("Conv", inputs, *parameters, attributes={"kernel_shape": [width], "pads": pads})
                )
            )
        joined = graph.add(
            "Transpose", graph.add("Concat", *maps, attributes={"axis": 1}), attributes={"perm": [0, 2, 1]}
        )
        return graph.add("Mul", joined, self.mask)

    def _run_layer(self, name: str, layer: EncoderLayerArrays, states: str) -> tuple[str, str]:
        """Return the states of a recurrent layer, shape (B, S, D), and its final state, both directions merged."""
        graph, cells = self.graph, layer.directions
        lengths = graph.add("Cast", self.lengths, attributes={"to": TensorProto.INT32})
        inputs = graph.add("Transpose", states, attributes={"perm": [1, 0, 2]})
        kind = cells[0].kind
        special = {"linear_before_reset": 1} if kind == "gru" else {}
        outputs = graph.add_all(
            kind.upper(),
            [inputs, *self._cell_weights(name, cells), lengths],
            2,
            attributes={
                "hidden_size": cells[0].hidden_weight.shape[1],
                "direction": "bidirectional" if len(cells) > 1 else "forward",
                **special,
            },
        )
        by_position = graph.add("Transpose", outputs[0], attributes={"perm": [2, 0, 1, 3]})
        final = graph.add("Transpose", outputs[1], attributes={"perm": [1, 0, 2]})
        return self._merge(by_position, 2, len(cells)), self._merge(final, 1, len(cells))

    def _cell_weights(self, name: str, cells: Sequence[CellArrays]) -> list[str]:
        """Return W, R and B of a recurrent operator, with one direction in each entry of their first dimension."""
        graph, parts = self.graph, list[list[str]]()
        for cell, direction in zip(cells, ("forward", "backward"), strict=False):
            label = f"{name}.{direction}"
            biases = np.concatenate([_reorder(cell.kind, bias) for bias in (cell.input_bias, cell.hidden_bias)])
            stored = (
                graph.weight(f"{label}.input_weight", _reorder(cell.kind, cell.input_weight)),
                graph.weight(f"{label}.hidden_weight", _reorder(cell.kind, cell.hidden_weight)),
                graph.weight(f"{label}.bias", biases),
            )
            parts.append([graph.add("Unsqueeze", weight, graph.constant([0])) for weight in stored])
        return [graph.add("Concat", *directions, attributes={"axis": 0}) for directions in zip(*parts, strict=True)]

    def _merge(self, states: str, axis: int, directions: int) -> str:
        """Return the states of all directions, which are one dimension of `states`, as one."""
        graph = self.graph
        if directions == 1:
            return graph.add("Squeeze", states, graph.constant([axis]))
        if self.config.encoder.merge == "concatenate":
            return graph.reshape(states, *[0] * axis, -1)
        forward, backward = (
            graph.add("Gather", states, graph.constant(index), attributes={"axis": axis}) for index in range(2)
        )
        return graph.add("Add" if self.config.encoder.merge == "sum" else "Mul", forward, backward)

    def _add_memory_outputs(self, memory: str, final: str) -> None:
        """Add what all decoder steps read: memory, keys of attention, and the ids that can be copied."""
        graph, attention, size = self.graph, self.network.attention, memory_size(self.config.encoder)
        graph.output("memory", memory, np.float32, ["batch", "positions", size])
        if attention.key is not None:
            bias = "" if attention.key_bias is None else graph.weight("attention.key_bias", attention.key_bias)
            keys = graph.linear(memory, graph.weight("attention.key", attention.key), bias)
            graph.output("keys", keys, np.float32, ["batch", "positions", len(attention.key)])
        if self.config.attention.type == "none":
            graph.output("final_state", final, np.float32, ["batch", size])
        pointer_generator = self.network.decoder.pointer_generator
        if pointer_generator is not None:
            graph.output("copy_ids", self._copy_ids(pointer_generator), np.int64, ["batch", "positions"])

    def _copy_ids(self, pointer_generator: PointerGeneratorArrays) -> str:
        """Return the target id of each position when it is copied, as `PointerGenerator.copy_ids` does."""
        graph, count = self.graph, len(pointer_generator.source_to_target)
        num_targets = len(self.network.decoder.embedding)
        known = graph.add("Min", self.ids, graph.constant(count - 1))
        ids = graph.add("Gather", graph.constant(pointer_generator.source_to_target), known)
        rows, columns = (graph.add("Unsqueeze", self.ids, graph.constant([axis])) for axis in (2, 1))
        is_equal = graph.add("Cast", graph.add("Equal", rows, columns), attributes={"to": TensorProto.INT32})
        first = graph.add("ArgMax", is_equal, attributes={"axis": 2, "keepdims": 0})
        by_position = graph.add("Add", first, graph.constant(num_targets))
        ids = graph.add("Where", graph.add("Equal", ids, graph.constant(BY_POSITION)), by_position, ids)
        is_extended = graph.add("Not", graph.add("Less", self.ids, graph.constant(count)))
        extended = graph.add("Sub", self.ids, graph.constant(count))
        ids = graph.add("Where", is_extended, extended, ids)
        return graph.add("Where", self.is_real, ids, graph.constant(NEVER_COPIED))

    def _add_state_outputs(self, memory: str, final: str) -> None:
        """Add the initial state of the decoder, as `Decoder.init_state` returns it."""
        graph, decoder = self.graph, self.config.decoder
        shape = decoder.num_layers, decoder.hidden_size
        has_cell_state = decoder.cell == "lstm"
        states = [self._zeros(*shape)] * 2
        if decoder.init_hidden != "zero":
            states = self._project_initial_state(memory, final)
        graph.output("hidden", states[0], np.float32, ["batch", *shape])
        if has_cell_state:
            graph.output("cell_state", states[1], np.float32, ["batch", *shape])
        if decoder.order == "step-then-attend" and decoder.input_feeding:
            graph.output("input_feed", self._zeros(decoder.hidden_size), np.float32, ["batch", decoder.hidden_size])
        if self.config.attention.type == "location":
            graph.output("attention_state", self._zeros(self.positions), np.float32, ["batch", "positions"])

    def _project_initial_state(self, memory: str, final: str) -> list[str]:
        """Return the initial h, and for an LSTM c, projected from the final or the mean state of the encoder."""
        graph, config, decoder = self.graph, self.config.decoder, self.network.decoder
        assert decoder.init_weight is not None and decoder.init_bias is not None
        summary = final
        if config.init_hidden == "mean":
            total = graph.add("ReduceSum", memory, graph.constant([1]), attributes={"keepdims": 0})
            counts = graph.add("Cast", self.lengths, attributes={"to": TensorProto.FLOAT})
            summary = graph.add("Div", total, graph.add("Unsqueeze", counts, graph.constant([1])))
        weights = graph.weight("decoder.init_weight", decoder.init_weight)
        projected = graph.linear(summary, weights, graph.weight("decoder.init_bias", decoder.init_bias))
        parts = graph.reshape(projected, 0, -1, config.num_layers, config.hidden_size)
        hidden = graph.add("Tanh", graph.add("Gather", parts, graph.constant(0), attributes={"axis": 1}))
        if config.cell == "gru":
            return [hidden]
        return [hidden, graph.add("Gather", parts, graph.constant(1), attributes={"axis": 1})]

    def _zeros(self, *sizes: int | str) -> str:
        """Return zeros of shape (B, *sizes)."""
        parts = [size if isinstance(size, str) else self.graph.constant([size]) for size in sizes]
        shape = self.graph.add("Concat", self.batch, *parts, attributes={"axis": 0})
        return self.graph.add("ConstantOfShape", shape)


def _reorder(kind: CellName, parameters: Float[np.ndarray, "G *columns"]) -> Float[np.ndarray, "G *columns"]:
    """Return parameters of all gates with the gates in the order of the ONNX operator."""
    gates = np.split(parameters, len(GATE_ORDERS[kind]))
    return np.concatenate([gates[index] for index in GATE_ORDERS[kind]])
