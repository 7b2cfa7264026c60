"""The parameters of a network, as NumPy arrays by their role.

Arrays are float32 unless noted. N source ids, features included, V target ids, E embedding, H hidden, D memory (an
encoder state), G numbers of all gates (3 H or 4 H; in a GRU in the order reset, update, candidate, in an LSTM input,
forget, candidate, output), A attention units, K heads, U = A / K units of a head, P numbers of the initial states of
all layers, F filters, W width of a filter, I inputs of a layer, R inputs of the readout, O of the output layer (R, or E
where it is tied to the embedding).

The equations are in the classes of `pellucid.model` that hold the same parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass

import numpy as np

from pellucid.config.settings import (
    AttentionConfig,
    CellName,
    Config,
    DecoderConfig,
    EncoderConfig,
    LayerNormalization,
    TargetEmbedding,
    has_source_features,
    memory_size,
    output_layer_input_size,
)
from pellucid.data.extended_vocabulary import target_ids_of_source_ids
from pellucid.data.vocabulary import Vocabularies
from pellucid.shapes import Float, Int

Array = Float[np.ndarray, "..."]
"""An array of parameters."""
TensorGetter = Callable[[str, tuple[int, ...]], Array]
"""Function that returns the array of a name in the model file, of this shape."""


@dataclass(frozen=True, eq=False)
class LayerNormArrays:
    """g and b of LN(x) = g ⊙ (x − mean) / √(variance + 10⁻⁵) + b."""

    weight: Float[np.ndarray, " H"]
    bias: Float[np.ndarray, " H"]


@dataclass(frozen=True, eq=False)
class CellNormArrays:
    """Layer normalization within a cell (`layer_normalization = "cells"`): gains of W x and U h, and the norm of c'."""

    input_gain: Float[np.ndarray, " G"]
    hidden_gain: Float[np.ndarray, " G"]
    cell_state: LayerNormArrays | None
    """Normalization of c' before h' is computed from it; None for a GRU."""


@dataclass(frozen=True, eq=False)
class CellArrays:
    """Parameters of one recurrent cell: W and b for its input, U and c for its hidden state, gate by gate in rows."""

    kind: CellName
    """gru or lstm."""
    input_weight: Float[np.ndarray, "G I"]
    hidden_weight: Float[np.ndarray, "G H"]
    input_bias: Float[np.ndarray, " G"]
    hidden_bias: Float[np.ndarray, " G"]
    """c. In a GRU the part of the candidate is added to U h before the reset gate multiplies it."""
    normalization: CellNormArrays | None = None
    """None unless preactivations are normalized."""


@dataclass(frozen=True, eq=False)
class ConvolutionArrays:
    """One convolution between the source embeddings and the first layer."""

    weight: Float[np.ndarray, "F E W"]
    bias: Float[np.ndarray, " F"]


@dataclass(frozen=True, eq=False)
class EncoderLayerArrays:
    """One layer of the encoder: a cell for each direction, forward first, and the norm of the merged states."""

    directions: tuple[CellArrays, ...]
    normalization: LayerNormArrays | None


@dataclass(frozen=True, eq=False)
class EncoderArrays:
    """Parameters of the encoder."""

    embedding: Float[np.ndarray, "N E"]
    """Vectors of the source ids: symbols, then features. The identity for one-hot embeddings."""
    num_symbols: int
    """Number of ids that are symbols, not features."""
    convolutions: tuple[ConvolutionArrays, ...]
    layers: tuple[EncoderLayerArrays, ...]
    """From the bottom."""


@dataclass(frozen=True, eq=False)
class AttentionArrays:
    """Parameters of the attention; those that its score does not have are None.

    Attention of type "dot", "scaled-dot" and "none" has no parameters.
    """

    query: Float[np.ndarray, "A H"] | None = None
    """W of the additive, location-sensitive and monotonic scores."""
    key: Float[np.ndarray, "A D"] | None = None
    """U of these scores; W of the general score, with A = H."""
    key_bias: Float[np.ndarray, " A"] | None = None
    """b of these scores."""
    energy: Float[np.ndarray, "K U"] | None = None
    """v of each head, with U = A / K units; K = 1 unless there are several heads. For the monotonic score it is
    g vᵀ / ‖v‖."""
    location: Float[np.ndarray, "A F"] | None = None
    """L of the location-sensitive score."""
    filters: Float[np.ndarray, "F W"] | None = None
    """F of the location-sensitive score: one filter per row."""
    offset: float = 0.0
    """r of the monotonic score."""
    context: Float[np.ndarray, "D KD"] | None = None
    """W_o, which projects the contexts of several heads to one."""


@dataclass(frozen=True, eq=False)
class OutputLayerArrays:
    """logits = weight (adapter x) + bias, where x are the inputs of the output layer.

    With attend-then-step x is the state, the context, or both, as `decoder.output_layer_inputs` says; with
    step-then-attend it is the attentional state.
    """

    weight: Float[np.ndarray, "V O"]
    """The target embedding itself if the two are tied."""
    bias: Float[np.ndarray, " V"]
    adapter: Float[np.ndarray, "O R"] | None = None
    """A of tied embeddings; None if it is the identity, or if they are not tied."""


@dataclass(frozen=True, eq=False)
class PointerGeneratorArrays:
    """Gate p_gen = σ(gate · [state; context; embedding] + bias) of a decoder that copies, and its target ids."""

    source_to_target: Int[np.ndarray, " N"]
    """Target id of each source id, or a negative number (`target_ids_of_source_ids`); int64."""
    gate: Float[np.ndarray, " C"]
    gate_bias: float


@dataclass(frozen=True, eq=False)
class DecoderLayerArrays:
    """One layer of the decoder: its cell, and the norm of its output."""

    cell: CellArrays
    normalization: LayerNormArrays | None


@dataclass(frozen=True, eq=False)
class DecoderArrays:
    """Parameters of the decoder, without those of its attention."""

    embedding: Float[np.ndarray, "V E"]
    """Vectors of the target symbols; E = 0 if the previous symbol is not an input."""
    layers: tuple[DecoderLayerArrays, ...]
    """From the bottom. The first cell reads the embedding of the previous symbol."""
    feed: Float[np.ndarray, "G I"] | None
    """C, which adds another input to the gates of the first cell: with attend-then-step the context (I = D), with
    input feeding the attentional state (I = H). None without such an input."""
    init_weight: Float[np.ndarray, "P D"] | None
    """Projection of the encoder's summary to the initial state, h of all layers and then c of all layers of an LSTM; h
    then passes through tanh. None for the initial state zero."""
    init_bias: Float[np.ndarray, " P"] | None
    combination: Float[np.ndarray, "H R"] | None
    """W_c of step-then-attend: the attentional state is tanh(W_c x), x the state, the context, or both."""
    output: OutputLayerArrays
    pointer_generator: PointerGeneratorArrays | None


@dataclass(frozen=True, eq=False)
class NetworkArrays:
    """All parameters of an encoder-decoder."""

    encoder: EncoderArrays
    attention: AttentionArrays
    decoder: DecoderArrays


def build_network_arrays(config: Config, vocabularies: Vocabularies, take: TensorGetter) -> NetworkArrays:
    """Return the parameters of a network, from a function that returns the arrays of the model file.

    Args:
        config: Configuration of the run.
        vocabularies: Vocabularies of the run.
        take: Function that returns the array of a name and shape; it is called once for each tensor of the file.
    """
    features = len(vocabularies.features) if has_source_features(config) else 0
    source_symbols, target_symbols = len(vocabularies.source), len(vocabularies.target)
    source_to_target = None
    if config.decoder.pointer_generator:
        source_to_target = np.array(target_ids_of_source_ids(vocabularies), dtype=np.int64)
    return NetworkArrays(
        _encoder(config.encoder, (source_symbols, features), take),
        _attention(config.attention, config.decoder.hidden_size, memory_size(config.encoder), take),
        _decoder(config, target_symbols, source_to_target, take),
    )


def equal_arrays(one: object, other: object) -> bool:
    """Return whether two networks, or two parts of networks, have equal parameters.

    Args:
        one: `NetworkArrays`, or one of its parts.
        other: Another of them.
    """
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(equal_arrays, one, other))
    if not is_dataclass(one) or type(one) is not type(other):
        return one == other
    return all(equal_arrays(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))


def _encoder(config: EncoderConfig, id_counts: tuple[int, int], take: TensorGetter) -> EncoderArrays:
    """Return the parameters of the encoder; `id_counts` are the numbers of symbols and of features."""
    embedding = _embedding(config.embedding, "encoder.table.weight", (sum(id_counts), config.embedding_size), take)
    convolutions = tuple(
        ConvolutionArrays(
            take(f"encoder.convolutions.layers.{index}.weight", (config.filters, embedding.shape[1], width)),
            take(f"encoder.convolutions.layers.{index}.bias", (config.filters,)),
        )
        for index, width in enumerate(config.convolutions)
    )
    size = config.filters * len(convolutions) or embedding.shape[1]
    layers = []
    for layer in range(config.num_layers):
        directions = ("forward", "backward") if config.bidirectional else ("forward",)
        cells = tuple(
            _cell(config, f"encoder.{direction}_cells.layers.{layer}", size, take) for direction in directions
        )
        size = memory_size(config)
        norm = _output_norm(config.layer_normalization, f"encoder.normalizations.{layer}", size, take)
        layers.append(EncoderLayerArrays(cells, norm))
    return EncoderArrays(embedding, id_counts[0], convolutions, tuple(layers))


def _embedding(
    kind: TargetEmbedding, name: str, shape: tuple[int, int], take: TensorGetter
) -> Float[np.ndarray, "N E"]:
    """Return the vectors of all ids. One-hot tables and empty ones are not in the file."""
    match kind:
        case "one-hot":
            return np.eye(shape[0], dtype=np.float32)
        case "none":
            return np.zeros((shape[0], 0), np.float32)
        case "learned" | "frozen":
            return take(name, shape)


def _cell(config: EncoderConfig | DecoderConfig, name: str, input_size: int, take: TensorGetter) -> CellArrays:
    """Return the parameters of one cell."""
    size, rows = config.hidden_size, config.hidden_size * {"gru": 3, "lstm": 4}[config.cell]
    norm = None
    if config.layer_normalization == "cells":
        has_cell_state = config.cell == "lstm"
        norm = CellNormArrays(
            take(f"{name}.input_gain", (rows,)),
            take(f"{name}.hidden_gain", (rows,)),
            _layer_norm(f"{name}.leaving", size, take) if has_cell_state else None,
        )
    return CellArrays(
        config.cell,
        take(f"{name}.input_weight", (rows, input_size)),
        take(f"{name}.hidden_weight", (rows, size)),
        take(f"{name}.input_bias", (rows,)),
        take(f"{name}.hidden_bias", (rows,)),
        norm,
    )


def _output_norm(kind: LayerNormalization, name: str, size: int, take: TensorGetter) -> LayerNormArrays | None:
    """Return the normalization of the outputs of a layer; None if they are not normalized."""
    return _layer_norm(name, size, take) if kind == "outputs" else None


def _layer_norm(name: str, size: int, take: TensorGetter) -> LayerNormArrays:
    """Return the parameters of one layer normalization."""
    return LayerNormArrays(take(f"{name}.weight", (size,)), take(f"{name}.bias", (size,)))


def _attention(config: AttentionConfig, query_size: int, memory_size: int, take: TensorGetter) -> AttentionArrays:
    """Return the parameters of a built-in attention."""
    match config.type:
        case "additive" | "location" | "monotonic":
            return _additive_attention(config, query_size, memory_size, take)
        case "general":
            return AttentionArrays(key=take("decoder.attention.key_projection.weight", (query_size, memory_size)))
        case _:
            return AttentionArrays()


def _additive_attention(
    config: AttentionConfig, query_size: int, memory_size: int, take: TensorGetter
) -> AttentionArrays:
    """Return the parameters of an attention whose score is vᵀ tanh(W q + U h + b), with the terms that it adds."""
    name, units, heads = "decoder.attention", config.size, config.num_heads
    query = take(f"{name}.query_projection.weight", (units, query_size))
    key = take(f"{name}.key_projection.weight", (units, memory_size))
    key_bias = take(f"{name}.key_projection.bias", (units,))
    energy = take(f"{name}.energy", (units,) if heads == 1 else (heads, units // heads)).reshape(heads, -1)
    if config.type == "location":
        location = take(f"{name}.location_projection.weight", (units, config.filters))
        filters = take(f"{name}.filters.weight", (config.filters, 1, 2 * config.filter_radius + 1))[:, 0]
        return AttentionArrays(query, key, key_bias, energy, location, filters)
    if config.type == "monotonic":
        gain, offset = take(f"{name}.gain", ()), take(f"{name}.offset", ())
        norm = np.linalg.norm(energy)
        return AttentionArrays(query, key, key_bias, gain * energy / (norm or 1), offset=float(offset))
    context = None if heads == 1 else take(f"{name}.context_projection.weight", (memory_size, heads * memory_size))
    return AttentionArrays(query, key, key_bias, energy, context=context)


def _decoder(
    config: Config, vocabulary_size: int, source_to_target: Int[np.ndarray, " N"] | None, take: TensorGetter
) -> DecoderArrays:
    """Return the parameters of the decoder; `source_to_target` is that of `PointerGeneratorArrays`."""
    decoder, memory = config.decoder, memory_size(config.encoder)
    embedding_shape = vocabulary_size, decoder.embedding_size
    embedding = _embedding(decoder.embedding, "decoder.table.weight", embedding_shape, take)
    attends_first = decoder.order == "attend-then-step"
    extra_input_size = memory if attends_first else decoder.hidden_size * decoder.input_feeding
    rows = decoder.hidden_size * {"gru": 3, "lstm": 4}[decoder.cell]
    parts = decoder.num_layers * (2 if decoder.cell == "lstm" else 1) * decoder.hidden_size
    combined = output_layer_input_size(decoder.output_layer_inputs, decoder.hidden_size, memory)
    has_init = decoder.init_hidden != "zero"
    gate_size = decoder.hidden_size + memory + embedding.shape[1]
    return DecoderArrays(
        embedding,
        _decoder_layers(decoder, embedding.shape[1], take),
        take("decoder.context_projection.weight", (rows, extra_input_size)) if extra_input_size else None,
        take("decoder.bridge.weight", (parts, memory)) if has_init else None,
        take("decoder.bridge.bias", (parts,)) if has_init else None,
        None if attends_first else take("decoder.combination.weight", (decoder.hidden_size, combined)),
        _output_layer(decoder, combined if attends_first else decoder.hidden_size, embedding, take),
        None if source_to_target is None else _pointer_generator(gate_size, source_to_target, take),
    )


def _decoder_layers(config: DecoderConfig, embedding_size: int, take: TensorGetter) -> tuple[DecoderLayerArrays, ...]:
    """Return the parameters of the cells of the decoder and of their norms."""
    sizes = [embedding_size] + [config.hidden_size] * (config.num_layers - 1)
    return tuple(
        DecoderLayerArrays(
            _cell(config, f"decoder.cells.layers.{layer}", size, take),
            _output_norm(config.layer_normalization, f"decoder.normalizations.{layer}", config.hidden_size, take),
        )
        for layer, size in enumerate(sizes)
    )


def _output_layer(
    config: DecoderConfig, input_size: int, embedding: Float[np.ndarray, "V E"], take: TensorGetter
) -> OutputLayerArrays:
    """Return the parameters of the output layer, tied or not."""
    symbols, size = embedding.shape
    if not config.tie_embeddings:
        weight = take("decoder.head.projection.weight", (symbols, input_size))
        return OutputLayerArrays(weight, take("decoder.head.projection.bias", (symbols,)))
    adapter = None if input_size == size else take("decoder.head.adapter.weight", (size, input_size))
    return OutputLayerArrays(embedding, take("decoder.head.bias", (symbols,)), adapter)


def _pointer_generator(
    gate_size: int, source_to_target: Int[np.ndarray, " N"], take: TensorGetter
) -> PointerGeneratorArrays:
    """Return the parameters of the pointer-generator."""
    gate, bias = take("decoder.copying.gate.weight", (1, gate_size)), take("decoder.copying.gate.bias", (1,))
    return PointerGeneratorArrays(source_to_target, gate[0], float(bias[0]))
