"""One decoder step as an ONNX graph: from the previous symbols and the state to log-probabilities and the next state.

B batch, R hypotheses (K of each source, adjacent: R = B·K), S source positions, L layers, H hidden units, D memory, E
embedding, A attention units, N heads, U = A / N units of a head, F filters, G numbers of all gates, V target
vocabulary, W = V symbols, with copying W = V + S.

The equations are those of `pellucid.model.decoder`, `attention` and `pointer_generator`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto

from pellucid.config.settings import Config, memory_size
from pellucid.data.vocabulary import BOS, PAD, UNK
from pellucid.export.onnx_graph import GraphBuilder, GraphOptions
from pellucid.runtime.parameters import CellArrays, NetworkArrays, PointerGeneratorArrays
from pellucid.shapes import Float

STATES = ("hidden", "cell_state", "input_feed", "attention_state")
"""Parts of the state of a decoder; each graph has those that its network needs. The outputs are named next_hidden etc.
"""


class AttentionValues(NamedTuple):
    """Values of the graph that attention returns."""

    context: str
    """Context of each hypothesis, shape (R, D)."""
    weights: str
    """Attention weights, shape (R, S); the mean of all heads."""


class LayerValues(NamedTuple):
    """Values of the graph that all layers of a step return."""

    hidden: list[str]
    """h of each layer, shape (R, H)."""
    cell_states: list[str]
    """c of each layer of an LSTM, shape (R, H)."""
    output: str
    """Output of the top layer, shape (R, H)."""


class DecoderStepGraph:
    """Builder of the graph of one decoder step."""

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
        decoder = config.decoder
        self.symbols = graph.input("symbols", np.int64, ["hypotheses"])
        shape: list[str | int] = ["hypotheses", decoder.num_layers, decoder.hidden_size]
        self.state = {"hidden": graph.input("hidden", np.float32, shape)}
        if decoder.cell == "lstm":
            self.state["cell_state"] = graph.input("cell_state", np.float32, shape)
        if network.decoder.combination is not None and network.decoder.feed is not None:
            self.state["input_feed"] = graph.input("input_feed", np.float32, ["hypotheses", decoder.hidden_size])
        if config.attention.type == "location":
            self.state["attention_state"] = graph.input("attention_state", np.float32, ["hypotheses", "positions"])
        self.memory = graph.input("memory", np.float32, ["batch", "positions", memory_size(config.encoder)])
        self.lengths = graph.input("lengths", np.int64, ["batch"])
        self.batch, self.positions = graph.dimension(self.memory, 0), graph.dimension(self.memory, 1)
        vectors = network.decoder.embedding
        self.embedding = graph.weight("decoder.embedding", vectors) if vectors.size else ""

    def build(self, metadata: Mapping[str, str]) -> ModelProto:
        """Return the model.

        Args:
            metadata: Texts that are stored in the model.
        """
        graph, decoder = self.graph, self.network.decoder
        is_known = graph.add("Less", self.symbols, graph.constant(len(decoder.embedding)))
        symbols = graph.add("Where", is_known, self.symbols, graph.constant(UNK))
        vectors = graph.add("Gather", self.embedding, symbols) if self.embedding else ""
        if decoder.combination is None:
            layers, attention = self._attend_then_step(vectors)
            features = self._select_inputs(layers.output, attention.context)
            output = layers.output
        else:
            layers, attention = self._step_then_attend(vectors)
            output = features = self._combine(layers.output, attention.context)
        logits = self._logits(features)
        if decoder.pointer_generator is not None:
            gate_inputs = [value for value in (output, attention.context, vectors) if value]
            logits = self._mix_copies(logits, attention.weights, gate_inputs, decoder.pointer_generator)
        self._add_outputs(logits, layers, attention, output)
        return graph.build("decoder_step", metadata)

    def _attend_then_step(self, vectors: str) -> tuple[LayerValues, AttentionValues]:
        """Return the layers after the step, and attention, whose query is the previous state of the top layer."""
        graph, decoder = self.graph, self.network.decoder
        attention = self._attend(self._layer_state("hidden", len(decoder.layers) - 1))
        assert decoder.feed is not None
        fed = graph.linear(attention.context, graph.weight("decoder.feed", decoder.feed))
        return self._step_layers(vectors, fed), attention

    def _step_then_attend(self, vectors: str) -> tuple[LayerValues, AttentionValues]:
        """Return the layers after the step, and attention, whose query is the output of the top layer."""
        graph, decoder, fed = self.graph, self.network.decoder, ""
        if decoder.feed is not None:
            fed = graph.linear(self.state["input_feed"], graph.weight("decoder.feed", decoder.feed))
        layers = self._step_layers(vectors, fed)
        return layers, self._attend(layers.output)

    def _combine(self, top: str, context: str) -> str:
        """Return the attentional state tanh(W_c [s; c])."""
        combination = self.network.decoder.combination
        assert combination is not None
        weight = self.graph.weight("decoder.combination", combination)
        return self.graph.add("Tanh", self.graph.linear(self._select_inputs(top, context), weight))

    def _select_inputs(self, state: str, context: str) -> str:
        """Return the state, the context, or both concatenated, as `decoder.output_layer_inputs` says."""
        match self.config.decoder.output_layer_inputs:
            case "state":
                return state
            case "context":
                return context
            case "state-and-context":
                return self.graph.add("Concat", state, context, attributes={"axis": 1})

    def _layer_state(self, part: str, layer: int) -> str:
        """Return h or c of one layer before the step, shape (R, H)."""
        return self.graph.add("Gather", self.state[part], self.graph.constant(layer), attributes={"axis": 1})

    def _step_layers(self, vectors: str, fed: str) -> LayerValues:
        """Take one step of every cell.

        Args:
            vectors: Vectors of the previous symbols; "" if they are not inputs.
            fed: Part of the first cell's preactivations that comes from the context or the attentional state; "" if
                there is none.
        """
        graph, hidden, cell_states, output = self.graph, list[str](), list[str](), vectors
        for index, layer in enumerate(self.network.decoder.layers):
            name = f"decoder.{index}"
            inputs = self._project(f"{name}.input", layer.cell, output)
            if fed and not index:
                inputs = graph.add("Add", inputs, fed)
            new_hidden, new_cell_state = self._step_cell(name, layer.cell, inputs, index)
            hidden.append(new_hidden)
            cell_states += [new_cell_state] if new_cell_state else []
            layer_output = new_hidden
            if layer.normalization is not None:
                layer_output = graph.layer_norm(new_hidden, f"{name}.norm", layer.normalization)
            is_added = self.config.decoder.residual and index
            output = graph.add("Add", output, layer_output) if is_added else layer_output
        return LayerValues(hidden, cell_states, output)

    def _project(self, name: str, cell: CellArrays, inputs: str) -> str:
        """Return W x + b of all gates, shape (R, G); b of shape (G) if there is no input."""
        bias = self.graph.weight(f"{name}_bias", cell.input_bias)
        return (
            self.graph.linear(inputs, self.graph.weight(f"{name}_weight", cell.input_weight), bias) if inputs else bias
        )

    def _step_cell(self, name: str, cell: CellArrays, inputs: str, layer: int) -> tuple[str, str]:
        """Return h and c of a layer after the step; "" in place of the c of a GRU.

        Args:
            name: Name of the layer in the graph.
            cell: Parameters of the cell.
            inputs: W x + b of all gates.
            layer: Index of the layer.
        """
        graph, hidden = self.graph, self._layer_state("hidden", layer)
        parameters = graph.weight(f"{name}.hidden_weight", cell.hidden_weight), cell.hidden_bias
        recurrent = graph.linear(hidden, parameters[0], graph.weight(f"{name}.hidden_bias", parameters[1]))
        size = cell.hidden_weight.shape[1]
        if cell.kind == "gru":
            return self._step_gru(inputs, recurrent, hidden, size), ""
        return self._step_lstm(graph.add("Add", recurrent, inputs), self._layer_state("cell_state", layer), size)

    def _step_gru(self, inputs: str, recurrent: str, hidden: str, size: int) -> str:
        """Return h' = n + z ⊙ (h − n), with n = tanh(W_n x + b_n + r ⊙ (U_n h + c_n)).

        Args:
            inputs: W x + b of all gates.
            recurrent: U h + c of all gates.
            hidden: h.
            size: H.
        """
        graph, sizes = self.graph, self.graph.constant([2 * size, size])
        (gate_inputs, new_inputs), (gate_recurrent, new_recurrent) = (
            graph.add_all("Split", [values, sizes], 2, attributes={"axis": -1}) for values in (inputs, recurrent)
        )
        gates = graph.add("Sigmoid", graph.add("Add", gate_recurrent, gate_inputs))
        reset, update = graph.add_all("Split", [gates, graph.constant([size, size])], 2, attributes={"axis": -1})
        gated = graph.add("Mul", reset, new_recurrent)
        candidate = graph.add("Tanh", graph.add("Add", gated, new_inputs))
        return graph.add("Add", candidate, graph.add("Mul", update, graph.add("Sub", hidden, candidate)))

    def _step_lstm(self, preactivations: str, cell_state: str, size: int) -> tuple[str, str]:
        """Return h' = o ⊙ tanh(c') and c' = f ⊙ c + i ⊙ g.

        Args:
            preactivations: Sums of all gates, before the activations.
            cell_state: c.
            size: H.
        """
        graph = self.graph
        parts = graph.add_all("Split", [preactivations, graph.constant([size] * 4)], 4, attributes={"axis": -1})
        operators = ("Sigmoid", "Sigmoid", "Tanh", "Sigmoid")
        input_gate, forget_gate, candidate, output_gate = map(graph.add, operators, parts)
        kept = graph.add("Mul", forget_gate, cell_state)
        new_cell_state = graph.add("Add", kept, graph.add("Mul", input_gate, candidate))
        return graph.add("Mul", output_gate, graph.add("Tanh", new_cell_state)), new_cell_state

    def _attend(self, query: str) -> AttentionValues:
        """Return the contexts and the attention weights of queries of shape (R, H)."""
        graph, kind = self.graph, self.config.attention.type
        if kind == "none":
            return self._final_state(query)
        if kind in ("additive", "location"):
            return self._sum_by_heads(self._additive_scores(query))
        grouped = self._group_by_source(query)
        keys = self._keys() if kind == "general" else self.memory
        scores = graph.add("MatMul", grouped, graph.add("Transpose", keys, attributes={"perm": [0, 2, 1]}))
        if kind == "scaled-dot":
            scores = graph.add("Div", scores, graph.constant(np.float32(memory_size(self.config.encoder) ** 0.5)))
        return self._sum_by_heads(graph.add("Unsqueeze", scores, graph.constant([2])))

    def _keys(self) -> str:
        """Return the input of the keys, shape (B, S, A)."""
        key = self.network.attention.key
        assert key is not None
        return self.graph.input("keys", np.float32, ["batch", "positions", len(key)])

    def _group_by_source(self, rows: str) -> str:
        """Return rows of hypotheses with those of one source in a group, shape (B, K, columns)."""
        return self.graph.reshape(rows, self.batch, -1, self.graph.dimension(rows, 1))

    def _additive_scores(self, query: str) -> str:
        """Return the scores vᵀ tanh(W q + keys) of each head, shape (B, K, N, S)."""
        graph, attention = self.graph, self.network.attention
        assert attention.query is not None and attention.energy is not None
        projected = self._group_by_source(graph.linear(query, graph.weight("attention.query", attention.query)))
        by_position = graph.add("Unsqueeze", projected, graph.constant([2]))
        summed = graph.add("Add", by_position, graph.add("Unsqueeze", self._keys(), graph.constant([1])))
        if self.config.attention.type == "location":
            summed = graph.add("Add", summed, self._location_term())
        energies = graph.weight("attention.energy", _block_diagonal(attention.energy)[None, None])
        scores = graph.add("MatMul", graph.add("Tanh", summed), energies)
        return graph.add("Transpose", scores, attributes={"perm": [0, 1, 3, 2]})

    def _location_term(self) -> str:
        """Return L f of the location-sensitive score, shape (B, K, S, A)."""
        graph, attention = self.graph, self.network.attention
        assert attention.location is not None and attention.filters is not None
        num_filters, width = attention.filters.shape
        filters = graph.weight("attention.filters", attention.filters.reshape(num_filters, 1, width))
        previous = graph.add("Unsqueeze", self.state["attention_state"], graph.constant([1]))
        maps = graph.add("Conv", previous, filters, attributes={"kernel_shape": [width], "pads": [width // 2] * 2})
        term = graph.linear(
            graph.add("Transpose", maps, attributes={"perm": [0, 2, 1]}),
            graph.weight("attention.location", attention.location),
        )
        return graph.reshape(term, self.batch, -1, self.positions, len(attention.location))

    def _sum_by_heads(self, scores: str) -> AttentionValues:
        """Return Σ_s α_s h_s with α = softmax(scores) at real positions; several heads are projected to one context.

        Args:
            scores: Scores of each head, shape (B, K, N, S).
        """
        graph, attention = self.graph, self.network.attention
        heads = 1 if attention.energy is None else len(attention.energy)
        is_real = graph.add("Unsqueeze", graph.length_mask(self.lengths, self.positions), graph.constant([1, 2]))
        allowed = graph.add("Where", is_real, scores, graph.constant(np.float32(-np.inf)))
        weights = graph.reshape(graph.add("Softmax", allowed, attributes={"axis": -1}), self.batch, -1, self.positions)
        context = graph.reshape(graph.add("MatMul", weights, self.memory), -1, heads * memory_size(self.config.encoder))
        if attention.context is not None:
            context = graph.linear(context, graph.weight("attention.context", attention.context))
        by_head = graph.reshape(weights, -1, heads, self.positions)
        total = graph.add("ReduceSum", by_head, graph.constant([1]), attributes={"keepdims": 0})
        return AttentionValues(context, graph.add("Div", total, graph.constant(np.float32(heads))))

    def _final_state(self, query: str) -> AttentionValues:
        """Return the encoder's final state as the context of all its hypotheses, and weights of zero."""
        graph, size = self.graph, memory_size(self.config.encoder)
        final = graph.input("final_state", np.float32, ["batch", size])
        rows = graph.dimension(query, 0)
        one = graph.constant([1])
        shape = graph.add("Concat", self.batch, graph.add("Div", rows, self.batch), one, attributes={"axis": 0})
        context = graph.add("Expand", graph.add("Unsqueeze", final, one), shape)
        weights = graph.add("ConstantOfShape", graph.add("Concat", rows, self.positions, attributes={"axis": 0}))
        return AttentionValues(graph.reshape(context, -1, size), weights)

    def _logits(self, features: str) -> str:
        """Return the logits of the vocabulary, shape (R, V)."""
        graph, decoder = self.graph, self.network.decoder
        layer = decoder.output
        if layer.adapter is not None:
            features = graph.linear(features, graph.weight("decoder.output_adapter", layer.adapter))
        is_tied = layer.weight is decoder.embedding
        weight = self.embedding if is_tied else graph.weight("decoder.output_weight", layer.weight)
        return graph.linear(features, weight, graph.weight("decoder.output_bias", layer.bias))

    def _mix_copies(
        self, logits: str, weights: str, gate_inputs: Sequence[str], pointer_generator: PointerGeneratorArrays
    ) -> str:
        """Return the log-probabilities of W symbols, as `mix_distributions` of `pellucid.model` does, shape (R, W).

        Args:
            logits: Logits of the vocabulary, shape (R, V).
            weights: Attention weights, shape (R, S).
            gate_inputs: Parts of the input of the gate, shape (R, columns).
            pointer_generator: Parameters of the gate.
        """
        graph, axis_two = self.graph, self.graph.constant([2])
        num_symbols = len(self.network.decoder.embedding)
        ids = graph.input("copy_ids", np.int64, ["batch", "positions"])
        can_copy = graph.add("Not", graph.add("Less", ids, graph.constant(0)))
        copyable = graph.add(
            "Unsqueeze", graph.add("Cast", can_copy, attributes={"to": TensorProto.FLOAT}), graph.constant([1])
        )
        masses = graph.add("Mul", self._group_by_source(weights), copyable)
        columns = graph.add("Unsqueeze", graph.add("Max", ids, graph.constant(0)), graph.constant([1]))
        copied = self._scatter(masses, columns)
        gate = self._gate(gate_inputs, pointer_generator)
        generates, copies = graph.add("Sigmoid", gate), graph.add("Sigmoid", graph.add("Neg", gate))
        uncopyable = graph.add(
            "Sub", graph.constant(np.float32(1)), graph.add("ReduceSum", masses, axis_two, attributes={"keepdims": 1})
        )
        uncopyable = graph.add("Max", uncopyable, graph.constant(np.float32(0)))
        share = graph.add("Add", generates, graph.add("Mul", copies, uncopyable))
        probabilities = self._group_by_source(graph.add("Softmax", logits, attributes={"axis": -1}))
        generated = graph.add("Mul", share, probabilities)
        pads = graph.add("Concat", graph.constant([0] * 5), self.positions, attributes={"axis": 0})
        mixture = graph.add("Add", graph.add("Pad", generated, pads), graph.add("Mul", copies, copied))
        smallest = graph.constant(np.finfo(np.float32).tiny)
        logarithms = graph.add("Log", graph.add("Max", mixture, smallest))
        is_copied = graph.add("Greater", self._scatter(copyable, columns), graph.constant(np.float32(0)))
        width = graph.add("Add", self.positions, graph.constant([num_symbols]))
        is_symbol = graph.length_mask(graph.constant([num_symbols]), width)
        is_possible = graph.add("Or", is_copied, is_symbol)
        masked = graph.add("Where", is_possible, logarithms, graph.constant(np.float32(-np.inf)))
        return graph.reshape(masked, -1, width)

    def _scatter(self, values: str, columns: str) -> str:
        """Return values of positions added up by target id.

        Args:
            values: Values of each position, shape (B, K, S).
            columns: Target id of each position, shape (B, 1, S).

        Returns:
            Sums, shape (B, K, W).
        """
        graph = self.graph
        width = graph.add("Add", self.positions, graph.constant([len(self.network.decoder.embedding)]))
        rows = graph.dimension(values, 1)
        zeros = graph.add("ConstantOfShape", graph.add("Concat", self.batch, rows, width, attributes={"axis": 0}))
        index = graph.add("Expand", columns, graph.add("Shape", values))
        return graph.add("ScatterElements", zeros, index, values, attributes={"axis": 2, "reduction": "add"})

    def _gate(self, inputs: Sequence[str], pointer_generator: PointerGeneratorArrays) -> str:
        """Return the logit of p_gen, shape (B, K, 1)."""
        graph = self.graph
        weight = graph.weight("decoder.copy_gate", pointer_generator.gate[None])
        bias = graph.constant(np.array([pointer_generator.gate_bias], np.float32))
        joined = graph.add("Concat", *inputs, attributes={"axis": 1})
        return self._group_by_source(graph.linear(joined, weight, bias))

    def _add_outputs(self, logits: str, layers: LayerValues, attention: AttentionValues, output: str) -> None:
        """Add the log-probabilities, the attention weights and the next state.

        Args:
            logits: Logits or log-probabilities of all symbols, shape (R, W).
            layers: Layers after the step.
            attention: Contexts and weights.
            output: Attentional state, which input feeding returns to the next step.
        """
        graph, decoder = self.graph, self.config.decoder
        log_probabilities = graph.add("LogSoftmax", self._suppress(logits), attributes={"axis": -1})
        graph.output("log_probabilities", log_probabilities, np.float32, ["hypotheses", "symbols"])
        graph.output("attention_weights", attention.weights, np.float32, ["hypotheses", "positions"])
        shape: list[str | int] = ["hypotheses", decoder.num_layers, decoder.hidden_size]
        graph.output("next_hidden", self._stack(layers.hidden), np.float32, shape)
        if layers.cell_states:
            graph.output("next_cell_state", self._stack(layers.cell_states), np.float32, shape)
        if "input_feed" in self.state:
            graph.output("next_input_feed", output, np.float32, ["hypotheses", decoder.hidden_size])
        if "attention_state" in self.state:
            graph.output("next_attention_state", attention.weights, np.float32, ["hypotheses", "positions"])

    def _stack(self, layers: Sequence[str]) -> str:
        """Return the states of all layers, shape (R, L, H)."""
        graph = self.graph
        return graph.add(
            "Concat", *(graph.add("Unsqueeze", layer, graph.constant([1])) for layer in layers), attributes={"axis": 1}
        )

    def _suppress(self, logits: str) -> str:
        """Return logits with −∞ for PAD, BOS and UNK, which are never written."""
        graph = self.graph
        penalties = np.zeros(len(self.network.decoder.embedding), np.float32)
        penalties[[PAD, BOS, UNK]] = -np.inf
        suppressed = graph.constant(penalties)
        if self.network.decoder.pointer_generator is not None:
            zeros = graph.add("ConstantOfShape", self.positions)
            suppressed = graph.add("Concat", suppressed, zeros, attributes={"axis": 0})
        return graph.add("Add", logits, suppressed)


def _block_diagonal(energy: Float[np.ndarray, "N U"]) -> Float[np.ndarray, "A N"]:
    """Return v of each head in a column of its own, zero at the units of other heads."""
    heads, units = energy.shape
    matrix = np.zeros((heads, units, heads), np.float32)
    matrix[np.arange(heads), :, np.arange(heads)] = energy
    return matrix.reshape(heads * units, heads)
