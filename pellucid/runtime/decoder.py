"""The decoder in NumPy: its initial state, and one step with attention; the equations are those of `pellucid.model`.

B sources, S source positions, R hypotheses of all sources, H hidden, G numbers of all gates, I inputs of the output
layer, D memory, V vocabulary, W = V, or V + S with copying.
"""

from typing import NamedTuple

import numpy as np

from pellucid.config.settings import Config, ReadoutKind
from pellucid.data.extended_vocabulary import BY_POSITION, NEVER_COPIED
from pellucid.data.vocabulary import UNK
from pellucid.runtime.attention import AttendedSources, attend, attention_keys, initial_attention_state
from pellucid.runtime.cells import CellState, layer_norm, project_inputs, step_cell
from pellucid.runtime.encoder import EncodedSources, encode
from pellucid.runtime.parameters import DecoderArrays, NetworkArrays, OutputLayerArrays, PointerGeneratorArrays
from pellucid.shapes import Float, Int

TINY = np.finfo(np.float32).tiny
"""Lower bound of a possible probability of a pointer-generator."""


class DecoderCarry(NamedTuple):
    """State of the decoder between two steps, one row per hypothesis."""

    layers: tuple[CellState, ...]
    """State of each layer, from the bottom."""
    input_feed: Float[np.ndarray, "R H"] | None = None
    """The attentional state of the previous step, with input feeding."""
    weights: Float[np.ndarray, "R S"] | None = None
    """The attention weights of the previous step; None if attention does not read them."""

    def take(self, rows: Int[np.ndarray, " r"]) -> "DecoderCarry":
        """Return the state of some hypotheses.

        Args:
            rows: Indices of the hypotheses, in the order of the result.
        """
        feed, weights = (None if values is None else values[rows] for values in self[1:])
        return DecoderCarry(tuple(layer.take(rows) for layer in self.layers), feed, weights)


class SourceCache(NamedTuple):
    """Values that all steps share: the memory, the keys of attention, and the ids that can be copied."""

    memory: EncodedSources
    keys: Float[np.ndarray, "B S A"]
    copy_ids: Int[np.ndarray, "B S"] | None = None
    """The target id of each position's symbol when it is copied; None without a pointer-generator."""

    def take(self, rows: Int[np.ndarray, " b"]) -> "SourceCache":
        """Return some sources.

        Args:
            rows: Rows of the sources.
        """
        copy_ids = None if self.copy_ids is None else self.copy_ids[rows]
        return SourceCache(self.memory.take(rows), self.keys[rows], copy_ids)


class DecodedStep(NamedTuple):
    """Result of `step_decoder`."""

    logits: Float[np.ndarray, "R W"]
    """Logits of the next symbols; with a pointer-generator, log-probabilities of V + S symbols."""
    carry: DecoderCarry
    """State after the step."""
    attention: AttendedSources


def encode_sources(
    network: NetworkArrays, config: Config, source: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"]
) -> tuple[SourceCache, DecoderCarry]:
    """Encode sources; return what all decoder steps read, and the state before the first step.

    Args:
        network: Parameters of the network.
        config: Configuration of the run.
        source: Ids of each source, features first.
        lengths: Number of ids of each row, at least 1.
    """
    memory = encode(network.encoder, config.encoder, source, lengths)
    keys = attention_keys(network.attention, config.attention, memory)
    pointer = network.decoder.pointer_generator
    copy_ids = None if pointer is None else _copy_ids(pointer, len(network.decoder.embedding), memory)
    return SourceCache(memory, keys, copy_ids), _initial_carry(network.decoder, config, memory)


def _initial_carry(decoder: DecoderArrays, config: Config, memory: EncodedSources) -> DecoderCarry:
    """Return s_0: zero, or h = tanh(W m + b) and c = W' m + b' from the final or the mean encoder state m."""
    size, layers, has_cell = config.decoder.hidden_size, config.decoder.num_layers, config.decoder.cell == "lstm"
    rows = len(memory.lengths)
    if decoder.init_weight is None or decoder.init_bias is None:
        hidden = cells = np.zeros((rows, layers, size), np.float32)
    else:
        summary = memory.final
        if config.decoder.init_hidden == "mean":
            summary = memory.states.sum(axis=1) / memory.lengths[:, None].astype(np.float32)
        parts = (summary @ decoder.init_weight.T + decoder.init_bias).reshape(rows, -1, layers, size)
        hidden, cells = np.tanh(parts[:, 0]), parts[:, -1]
    states = tuple(CellState(hidden[:, layer], cells[:, layer] if has_cell else None) for layer in range(layers))
    feed = np.zeros((rows, size), np.float32) if config.decoder.input_feeding else None
    return DecoderCarry(states, feed, initial_attention_state(config.attention, memory))


def step_decoder(
    network: NetworkArrays, config: Config, symbols: Int[np.ndarray, " R"], carry: DecoderCarry, cache: SourceCache
) -> DecodedStep:
    """Take one step for all hypotheses, and compute the logits of the next symbols.

    Args:
        network: Parameters of the network.
        config: Configuration of the run.
        symbols: Symbol fed back, for each hypothesis; those of a source are consecutive.
        carry: State before the step.
        cache: Memory and keys.
    """
    decoder = network.decoder
    embedded = decoder.embedding[np.where(symbols < len(decoder.embedding), symbols, UNK)]
    preactivations = project_inputs(decoder.layers[0].cell, embedded)
    if config.decoder.order == "attend-then-step":
        attention = _attend(network, config, carry.layers[-1].hidden, carry, cache)
        assert decoder.feed is not None, "attend-then-step feeds the context to the first cell"
        layers, output = _step_layers(decoder, config, preactivations + attention.context @ decoder.feed.T, carry)
        features = select_inputs(config.decoder.output_layer_inputs, output, attention.context)
    else:
        if decoder.feed is not None and carry.input_feed is not None:
            preactivations = preactivations + carry.input_feed @ decoder.feed.T
        layers, top = _step_layers(decoder, config, preactivations, carry)
        attention = _attend(network, config, top, carry, cache)
        assert decoder.combination is not None, "step-then-attend combines state and context"
        features = select_inputs(config.decoder.output_layer_inputs, top, attention.context)
        output = features = np.tanh(features @ decoder.combination.T)
    logits = _vocabulary_logits(decoder.output, features)
    if decoder.pointer_generator is not None:
        gate_inputs = np.concatenate([output, attention.context, embedded], axis=1)
        logits = _mix_copies(decoder.pointer_generator, logits, attention.weights, gate_inputs, cache)
    feed = None if carry.input_feed is None else output
    weights = None if carry.weights is None else attention.weights
    return DecodedStep(logits, DecoderCarry(layers, feed, weights), attention)


def select_inputs(
    inputs: ReadoutKind, state: Float[np.ndarray, "R H"], context: Float[np.ndarray, "R D"]
) -> Float[np.ndarray, "R I"]:
    """Return the state, the context, or both concatenated.

    Args:
        inputs: Which of them are read.
        state: Output of the top layer.
        context: Context of attention.
    """
    match inputs:
        case "state":
            return state
        case "context":
            return context
        case "state-and-context":
            return np.concatenate([state, context], axis=1)


def _attend(
    network: NetworkArrays, config: Config, query: Float[np.ndarray, "R H"], carry: DecoderCarry, cache: SourceCache
) -> AttendedSources:
    """Return the attention of every hypothesis."""
    return attend(network.attention, config.attention, query, cache.memory, cache.keys, carry.weights)


def _step_layers(
    decoder: DecoderArrays, config: Config, preactivations: Float[np.ndarray, "R G"], carry: DecoderCarry
) -> tuple[tuple[CellState, ...], Float[np.ndarray, "R H"]]:
    """Take one step of every cell; return the new states and the output of the top layer."""
    states, output = list[CellState](), carry.layers[0].hidden
    for index, (layer, before) in enumerate(zip(decoder.layers, carry.layers, strict=True)):
        if index:
            preactivations = project_inputs(layer.cell, output)
        states.append(step_cell(layer.cell, preactivations, before))
        layer_output = layer_norm(states[-1].hidden, layer.normalization)
        output = output + layer_output if config.decoder.residual and index else layer_output
    return tuple(states), output


def _vocabulary_logits(layer: OutputLayerArrays, features: Float[np.ndarray, "R I"]) -> Float[np.ndarray, "R V"]:
    """Return one logit for each symbol."""
    adapted = features if layer.adapter is None else features @ layer.adapter.T
    logits: Float[np.ndarray, "R V"] = adapted @ layer.weight.T + layer.bias
    return logits


def _copy_ids(pointer: PointerGeneratorArrays, vocabulary_size: int, memory: EncodedSources) -> Int[np.ndarray, "B S"]:
    """Return the target id of each position's symbol when it is copied, as `PointerGenerator.copy_ids` does."""
    source, known = memory.source, len(pointer.source_to_target)
    ids = pointer.source_to_target[np.minimum(source, known - 1)]
    first_position = (source[:, :, None] == source[:, None, :]).argmax(axis=2)
    ids = np.where(ids == BY_POSITION, vocabulary_size + first_position, ids)
    ids = np.where(source >= known, source - known, ids)
    return np.where(memory.length_mask(), ids, NEVER_COPIED)


def _mix_copies(
    pointer: PointerGeneratorArrays,
    logits: Float[np.ndarray, "R V"],
    weights: Float[np.ndarray, "R S"],
    gate_inputs: Float[np.ndarray, "R C"],
    cache: SourceCache,
) -> Float[np.ndarray, "R W"]:
    """Return the log-probability of each symbol and position, as `mix_distributions` does; −∞ for impossible ones."""
    assert cache.copy_ids is not None, "a pointer-generator needs the ids that can be copied"
    (rows, vocabulary), positions = logits.shape, weights.shape[1]
    copy_ids = np.repeat(cache.copy_ids, rows // len(cache.copy_ids), axis=0)
    copyable, targets = copy_ids >= 0, np.maximum(copy_ids, 0)
    masses, index = weights * copyable, (np.arange(rows)[:, None], targets)
    copied, is_possible = np.zeros((rows, vocabulary + positions), np.float32), np.zeros((rows, vocabulary + positions))
    np.add.at(copied, index, masses)
    np.add.at(is_possible, index, copyable)
    gate = (gate_inputs @ pointer.gate[:, None] + np.float32(pointer.gate_bias)).astype(np.float64)
    generates, copies = 1 / (1 + np.exp(-gate)), 1 / (1 + np.exp(gate))  # in float64: small ones are exact, too
    uncopyable = np.maximum(1 - masses.sum(axis=1, keepdims=True), 0)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
    mixture = copies * copied
    mixture[:, :vocabulary] += (generates + copies * uncopyable) * softmax
    is_possible[:, :vocabulary] = 1
    return np.where(is_possible > 0, np.log(np.maximum(mixture, TINY)), -np.inf).astype(np.float32)
