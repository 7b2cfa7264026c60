"""Equations of a network in LaTeX, from its configuration, with the sizes of all symbols.

The symbols are those of docs/glossary.md. E embedding, H hidden units, D memory, A attention units, V vocabulary, L
layers. Layers above the first have their number in parentheses. The parameters of all groups are those of the network.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from pellucid.config.attention_types import is_custom_attention
from pellucid.config.cell_types import CELL_TYPES, has_cell_state, is_custom_cell
from pellucid.config.settings import (
    AttentionConfig,
    CellName,
    Config,
    DecoderConfig,
    EncoderConfig,
    LayerNormalization,
    memory_size,
    output_layer_input_size,
)
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.model.character_encoder import CONVOLUTION_WIDTH


class SymbolSize(NamedTuple):
    """A symbol of an equation, or several of the same size."""

    latex: str
    """The symbol in LaTeX."""
    meaning: str
    """Meaning in a few words."""
    shape: tuple[int, ...]
    """Sizes of its axes; empty for a number."""
    copies: int = 1
    """Number of arrays of this shape, such as one for each gate."""
    is_trained: bool = False
    """Whether it is a parameter that training learns."""

    @property
    def size(self) -> str:
        """Return the size as text: "32 × 16", or "3 of 32 × 16" for several arrays."""
        text = " × ".join(f"{axis:,}" for axis in self.shape) or "1"
        return text if self.copies == 1 else f"{self.copies} of {text}"

    @property
    def num_parameters(self) -> int:
        """Return the number of trained parameters."""
        return self.copies * prod(self.shape) if self.is_trained else 0


class EquationGroup(NamedTuple):
    """Equations of one part of a network."""

    title: str
    """Name of the part."""
    equations: list[str]
    """Equations in LaTeX, in the order of computation."""
    symbols: list[SymbolSize]
    """Symbols of the equations that have a size."""
    note: str = ""
    """Sentences on what the equations leave out; "" if there is none."""


class VocabularySizes(NamedTuple):
    """Numbers of ids of a network, special symbols included."""

    source: int
    """Source symbols and features."""
    target: int
    """Target symbols."""
    characters: int = NUM_SPECIAL
    """Characters of source words; special symbols alone for an encoder that reads none."""


def _parameter(latex: str, meaning: str, *shape: int, copies: int = 1) -> SymbolSize:
    """Return the size of a parameter."""
    return SymbolSize(latex, meaning, shape, copies, is_trained=True)


def _present(symbols: Iterable[SymbolSize]) -> list[SymbolSize]:
    """Return the symbols that have a number: a cell without input has no input weights."""
    return [symbol for symbol in symbols if symbol.copies and 0 not in symbol.shape]


# Cells

GATES: Mapping[CellName, str] = {"gru": "rzn", "lstm": "ifgo"}
"""Letters of the gates of each cell."""
CELL_RESULTS: Mapping[CellName, tuple[str, ...]] = {
    "gru": (r"\mathrm{@}(x, h) = (1 - z) \odot n + z \odot h",),
    "lstm": (r"k' = f \odot k + i \odot g", r"\mathrm{@}(x, h) = o \odot \tanh(k')"),
}
"""State after a step of each cell; @ stands for the name of the cell."""
NORMALIZED_GATES: Mapping[CellName, str] = {"gru": "r and z together, and over n", "lstm": "all gates together"}


def _gate_letters(cell: CellName) -> Sequence[str]:
    """Return the letters of the gates of a cell; the gates of other packages are numbered."""
    if not is_custom_cell(cell):
        return GATES[cell]
    return [str(number) for number in range(1, len(CELL_TYPES.get(cell).gates) + 1)]


def cell_name(cell: CellName, normalization: LayerNormalization) -> str:
    """Return the name of a cell in the equations: "GRU", or "LN-GRU" if it is normalized inside; "cell" for others.

    Args:
        cell: The cell.
        normalization: Where layer normalization is applied.
    """
    return f"{'LN-' if normalization == 'cells' else ''}{'cell' if is_custom_cell(cell) else cell.upper()}"


def cell_equations(cell: CellName, normalization: LayerNormalization) -> EquationGroup:
    """Return the equations of a cell with the input x and the state h; a cell of another package has its own.

    Args:
        cell: The cell.
        normalization: Where layer normalization is applied.
    """
    name = cell_name(cell, normalization)
    is_normalized = normalization == "cells"
    if is_custom_cell(cell):
        gates = ", ".join(f"{number} {gate}" for number, gate in enumerate(CELL_TYPES.get(cell).gates, start=1))
        note = f"The class of the cell “{cell}”, of another package, has its equations. Its gates: {gates}."
        return EquationGroup(f"Cell {cell}", [rf"\mathrm{{{name}}}(x, h) = h'"], [], note)
    equations = [_gate_equation(gate, is_normalized) for gate in GATES[cell]]
    results = [result.replace("@", name) for result in CELL_RESULTS[cell]]
    if is_normalized:
        results = [result.replace(r"\tanh(k')", r"\tanh(\mathrm{LN}(k'))") for result in results]
    notes = ["x is the input, and h the state of the step before."]
    if cell == "lstm":
        notes.append("The cell state k, which the literature calls c, is passed from step to step beside h.")
    if is_normalized:
        notes.append(f"LN has mean 0 and variance 1 over {NORMALIZED_GATES[cell]}, times the gains.")
    return EquationGroup(name, equations + results, [], " ".join(notes))


def _gate_equation(gate: str, is_normalized: bool) -> str:
    """Return the equation of a gate."""
    from_input, from_state = (f"{weight}_{gate} {vector}" for weight, vector in ("Wx", "Uh"))
    if is_normalized:
        from_input, from_state = (rf"\mathrm{{LN}}({product})" for product in (from_input, from_state))
    recurrent = f"{from_state} + b'_{gate}"
    if gate == "n":
        return rf"n = \tanh({from_input} + b_n + r \odot ({recurrent}))"
    activation = r"\tanh" if gate == "g" else r"\sigma"
    return f"{gate} = {activation}({from_input} + b_{gate} + {recurrent})"


class _Stack(NamedTuple):
    """Recurrent layers of an encoder or a decoder."""

    config: EncoderConfig | DecoderConfig
    input_size: int
    """Size of the input of the first layer."""
    upper_size: int
    """Size of the input of the other layers."""
    directions: int = 1

    def symbols(self) -> list[SymbolSize]:
        """Return the parameters of all cells, and of the layer normalization of outputs."""
        layers = self.config.num_layers
        upper = self.config.num_layers - 1
        first = " of layer 1" if upper else ""
        above = f" of layer{f's 2 to {layers}' if upper > 1 else ' 2'}"
        return _present(
            [
                *self._cell_symbols(self.input_size, 1, first),
                *self._cell_symbols(self.upper_size, upper, above),
                *self._output_normalization(layers),
            ]
        )

    def _cell_symbols(self, input_size: int, layers: int, which: str) -> list[SymbolSize]:
        """Return the parameters of the cells of some layers, whose inputs have one size."""
        config = self.config
        gates = _gate_letters(self.config.cell)
        size = config.hidden_size
        copies = len(gates) * self.directions * layers
        where = f"{which}{', both directions' if self.directions > 1 else ''}"
        symbols = [
            _parameter(_list_gates("W", gates), f"input weights{where}", size, input_size, copies=copies),
            _parameter(_list_gates("U", gates), f"recurrent weights{where}", size, size, copies=copies),
            _parameter(_list_gates("b", gates), f"biases of the input{where}", size, copies=copies),
            _parameter(_list_gates("b'", gates), f"biases of the state{where}", size, copies=copies),
        ]
        if config.layer_normalization == "cells":
            symbols.append(_parameter(r"\mathrm{LN}", f"gains of the gates{where}", size, copies=2 * copies))
            if has_cell_state(config.cell):
                meaning = f"gain and bias for the cell state{where}"
                symbols.append(_parameter(r"\mathrm{LN}", meaning, size, copies=2 * self.directions * layers))
        return symbols

    def _output_normalization(self, layers: int) -> list[SymbolSize]:
        """Return gains and biases of the normalized outputs; none without."""
        if self.config.layer_normalization != "outputs":
            return []
        size = self.config.hidden_size if isinstance(self.config, DecoderConfig) else memory_size(self.config)
        return [_parameter(r"\mathrm{LN}", "gain and bias of each layer's output", size, copies=2 * layers)]


def _list_gates(letter: str, gates: Sequence[str]) -> str:
    """Return a parameter of all gates: "W_r, W_z, W_n"."""
    return ", ".join(f"{letter}_{gate}" for gate in gates)


# Encoder

WAYS = (("overrightarrow", "-"), ("overleftarrow", "+"))
"""Arrow of each direction, and the sign of the step to the state before."""
FINAL, MEAN = "m", r"\bar{h}"
"""Summaries of a source: the final state of the encoder, and the mean state."""


def encoder_equations(encoder: EncoderConfig, vocabularies: VocabularySizes, summaries: Sequence[str]) -> EquationGroup:
    """Return the equations of an encoder.

    Args:
        encoder: Configuration.
        vocabularies: Numbers of source ids and of characters.
        summaries: Summaries that other parts read: `FINAL`, `MEAN`, both or none.
    """
    num_symbols = vocabularies.source
    size = num_symbols if encoder.embedding == "one-hot" else encoder.embedding_size
    character_equations, character_symbols, spelled_size = _character_equations(encoder, vocabularies.characters)
    input_equations, input_symbols, input_size = _convolution_equations(encoder, size + spelled_size)
    input_equations = [*character_equations, *input_equations]
    directions = 2 if encoder.bidirectional else 1
    stack = _Stack(encoder, input_size, memory_size(encoder), directions)
    embedding = "w_s" if character_equations else "x_s"
    symbols = [
        SymbolSize(embedding, "embedding of the source symbol at position s", (size,)),
        *character_symbols,
        *_embedding_symbol(
            "X", encoder.embedding, "embeddings of the source symbols and special ones", num_symbols, size
        ),
        *input_symbols,
        SymbolSize("h_s", "encoder state at position s", (memory_size(encoder),)),
    ]
    summary_equations = [equation for name, equation in _summaries(encoder).items() if name in summaries]
    note = (
        "x_s is the sum of the embeddings of the symbol and of all features." if encoder.feature_merge == "sum" else ""
    )
    equations = [*input_equations, *_layer_equations(encoder), *summary_equations]
    return EquationGroup("Encoder", equations, [*symbols, *stack.symbols()], note)


def _embedding_symbol(latex: str, kind: str, meaning: str, num_symbols: int, size: int) -> list[SymbolSize]:
    """Return the table of embeddings; one-hot vectors and none have no table."""
    if kind in ("one-hot", "none"):
        return []
    frozen = ", not trained" if kind == "frozen" else ""
    return [SymbolSize(latex, f"{meaning}{frozen}", (num_symbols, size), is_trained=not frozen)]


def _character_equations(encoder: EncoderConfig, num_characters: int) -> tuple[list[str], list[SymbolSize], int]:
    """Return equations and parameters of the characters of a word, and the size of their vector."""
    size = encoder.character_size
    word = "x_s = [w_s; d_s]"
    symbols = [
        SymbolSize("a_j", "embedding of character j of the word at position s, or of BOS or EOS", (size,)),
        _parameter("C", "embeddings of the characters and special ones", num_characters, size),
    ]
    match encoder.characters:
        case "none":
            return [], [], 0
        case "convolution":
            equation = r"d_s = b_d + \mathrm{max}_j \sum_{k=-1}^{1} F_k a_{j+k}"
            filters = _parameter("F_k", "filters over characters", size, size, copies=CONVOLUTION_WIDTH)
            return [equation, word], [*symbols, filters, _parameter("b_d", "biases of the filters", size)], size
        case "gru":
            cells = [rf"\{way}{{d}}_j = \mathrm{{GRU}}(a_j, \{way}{{d}}_{{j{step}1}})" for way, step in WAYS]
            gates = GATES["gru"]
            copies = 2 * len(gates)
            where = " of characters, both directions"
            weights = [
                _parameter(_list_gates("W", gates), f"input weights{where}", size, size, copies=copies),
                _parameter(_list_gates("U", gates), f"recurrent weights{where}", size, size, copies=copies),
                _parameter(_list_gates("b", gates), f"biases of the input{where}", size, copies=copies),
                _parameter(_list_gates("b'", gates), f"biases of the state{where}", size, copies=copies),
            ]
            ends = r"d_s = [\overrightarrow{d}_J; \overleftarrow{d}_1]"
            return [*cells, ends, word], [*symbols, *weights], 2 * size


def _convolution_equations(encoder: EncoderConfig, size: int) -> tuple[list[str], list[SymbolSize], int]:
    """Return equation and parameters of the convolutions, and the size of the first layer's input."""
    widths, filters = encoder.convolutions, encoder.filters
    if not widths:
        return [], [], size
    listed = ", ".join(f"{width}" for width in widths)
    equation = rf"\tilde{{x}}_s = [\mathrm{{ReLU}}(\sum_j W_{{kj}} x_{{s+j}} + b_k)]_{{k = {listed}}}"
    symbols = [_parameter(f"W_{{{width} j}}", f"filters of width {width}", filters, width, size) for width in widths]
    biases = _parameter("b_k", "biases of the filters", filters, copies=len(widths))
    return [equation], [*symbols, biases], filters * len(widths)


def _layer_equations(encoder: EncoderConfig) -> list[str]:
    """Return the equations of the recurrent layers, from the embeddings to h_s."""
    stacked = encoder.num_layers > 1
    cell = cell_name(encoder.cell, encoder.layer_normalization)
    layer = "^{(l)}" if stacked else ""
    first_input = r"\tilde{x}_s" if encoder.convolutions else "x_s"
    read = "h_s^{(l-1)}" if stacked else first_input
    is_plain = not encoder.bidirectional and encoder.layer_normalization != "outputs"
    hidden = "h" if is_plain and not (encoder.residual and stacked) else r"\overrightarrow{h}"
    equations = [f"h_s^{{(0)}} = {first_input}"] if stacked else []
    equations.append(rf"{hidden}_s{layer} = \mathrm{{{cell}}}({read}, {hidden}_{{s-1}}{layer})")
    if encoder.bidirectional:
        back = r"\overleftarrow{h}"
        equations.append(rf"{back}_s{layer} = \mathrm{{{cell}}}({read}, {back}_{{s+1}}{layer})")
    if hidden != "h":
        equations += _merge_equations(encoder, layer)
    return [*equations, f"h_s = h_s^{{({encoder.num_layers})}}"] if stacked else equations


def _merge_equations(encoder: EncoderConfig, layer: str) -> list[str]:
    """Return the equations of a layer's output: directions merged, normalized, with residuals."""
    merged = _merged(encoder, "s", "s", layer)
    if encoder.layer_normalization == "outputs":
        merged = rf"\mathrm{{LN}}({merged})"
    if not (layer and encoder.residual):
        return [f"h_s{layer} = {merged}"]
    upper = rf"h_s{layer} = h_s^{{(l-1)}} + {merged} \quad (l > 1)"
    return [f"h_s^{{(1)}} = {merged.replace(layer, '^{(1)}')}", upper]


def _merged(encoder: EncoderConfig, forward: str, backward: str, layer: str) -> str:
    """Return the states of both directions as one; the forward state if there is one direction."""
    first = rf"\overrightarrow{{h}}_{forward}{layer}"
    second = rf"\overleftarrow{{h}}_{backward}{layer}"
    if not encoder.bidirectional:
        return first
    match encoder.merge:
        case "concatenate":
            return f"[{first}; {second}]"
        case "sum":
            return f"{first} + {second}"
        case "product":
            return rf"{first} \odot {second}"


def _summaries(encoder: EncoderConfig) -> dict[str, str]:
    """Return the equations of the summaries of a source."""
    layer = f"^{{({encoder.num_layers})}}" if encoder.num_layers > 1 else ""
    final = _merged(encoder, "S", "1", layer)
    if not any(r"\overrightarrow" in equation for equation in _layer_equations(encoder)):
        final = final.replace(r"\overrightarrow{h}", "h")
    return {FINAL: f"m = {final}", MEAN: r"\bar{h} = \frac{1}{S} \sum_{s=1}^{S} h_s"}


# Attention


class _ScoreSizes(NamedTuple):
    """Query of an attention, and its sizes."""

    query: str
    """The query in LaTeX."""
    hidden: int
    memory: int


Equations = tuple[list[str], list[SymbolSize]]
CONTEXT = r"c_t = \sum_s \alpha_{ts} h_s"
WEIGHTS = r"\alpha_t = \mathrm{softmax}(e_t)"


def _additive_symbols(attention: AttentionConfig, sizes: _ScoreSizes) -> list[SymbolSize]:
    """Return W, U, b and v."""
    units = attention.size
    return [
        _parameter("W", "query projection", units, sizes.hidden),
        _parameter("U", "key projection", units, sizes.memory),
        _parameter("b", "its bias", units),
        _parameter("v", "energy vector", units),
    ]


def _additive(attention: AttentionConfig, sizes: _ScoreSizes) -> Equations:
    """Return the equations of `AdditiveAttention`, or of `MultiHeadAttention`."""
    if attention.num_heads > 1:
        return _multi_head(attention, sizes)
    score = rf"e_{{ts}} = v^\top \tanh(W {sizes.query} + U h_s + b)"
    return [score, WEIGHTS, CONTEXT], _additive_symbols(attention, sizes)


def _multi_head(attention: AttentionConfig, sizes: _ScoreSizes) -> Equations:
    """Return the equations of `MultiHeadAttention`."""
    heads = attention.num_heads
    units = attention.size // attention.num_heads
    equations = [
        rf"e_{{nts}} = v_n^\top \tanh(W_n {sizes.query} + U_n h_s + b_n) \quad (n = 1, \ldots, {heads})",
        r"\alpha_{nt} = \mathrm{softmax}(e_{nt})",
        rf"c_t = W_h [\sum_s \alpha_{{1ts}} h_s; \ldots; \sum_s \alpha_{{{heads}ts}} h_s]",
        rf"\alpha_{{ts}} = \frac{{1}}{{{heads}}} \sum_n \alpha_{{nts}}",
    ]
    symbols = [
        _parameter("W_n", "query projection of each head", units, sizes.hidden, copies=heads),
        _parameter("U_n", "key projection of each head", units, sizes.memory, copies=heads),
        _parameter("b_n", "its bias", units, copies=heads),
        _parameter("v_n", "energy vector of each head", units, copies=heads),
        _parameter("W_h", "projection of the contexts", sizes.memory, heads * sizes.memory),
    ]
    return equations, symbols


def _location(attention: AttentionConfig, sizes: _ScoreSizes) -> Equations:
    """Return the equations of `LocationSensitiveAttention`."""
    radius = attention.filter_radius
    equations = [
        rf"f_{{ts}} = \sum_{{j=-{radius}}}^{{{radius}}} F_j \alpha_{{t-1,s+j}} \quad (\alpha_0 = 0)",
        rf"e_{{ts}} = v^\top \tanh(W {sizes.query} + U h_s + b + L f_{{ts}})",
        WEIGHTS,
        CONTEXT,
    ]
    filters = _parameter("F_j", "filters over the previous weights", attention.filters, copies=2 * radius + 1)
    location = _parameter("L", "projection of the filters", attention.size, attention.filters)
    return equations, [*_additive_symbols(attention, sizes), filters, location]


def _monotonic(attention: AttentionConfig, sizes: _ScoreSizes) -> Equations:
    """Return the equations of `MonotonicAttention` in decoding."""
    equations = [
        rf"e_{{ts}} = g \frac{{v^\top}}{{\| v \|}} \tanh(W {sizes.query} + U h_s + b) + r",
        r"p_{ts} = 1 \text{ if } e_{ts} > 0 \text{, else } 0",
        r"\alpha_{ts} = p_{ts} \sum_{k \le s} \alpha_{t-1,k} \prod_{l=k}^{s-1} (1 - p_{tl}) \quad (\alpha_{01} = 1)",
        CONTEXT,
    ]
    scalars = [_parameter("g", "gain"), _parameter("r", "offset")]
    return equations, [*_additive_symbols(attention, sizes), *scalars]


def _dot(attention: AttentionConfig, sizes: _ScoreSizes) -> Equations:
    """Return the equations of `DotAttention`."""
    return [rf"e_{{ts}} = {sizes.query}^\top h_s", WEIGHTS, CONTEXT], []


def _general(attention: AttentionConfig, sizes: _ScoreSizes) -> Equations:
    """Return the equations of `GeneralAttention`."""
    weight = _parameter("W", "key projection", sizes.hidden, sizes.memory)
    return [rf"e_{{ts}} = {sizes.query}^\top W h_s", WEIGHTS, CONTEXT], [weight]


def _scaled_dot(attention: AttentionConfig, sizes: _ScoreSizes) -> Equations:
    """Return the equations of `ScaledDotAttention`."""
    score = rf"e_{{ts}} = \frac{{{sizes.query}^\top h_s}}{{\sqrt{{D}}}}"
    return [score, WEIGHTS, CONTEXT], [SymbolSize("D", f"size of an encoder state: {sizes.memory}", ())]


def _none(attention: AttentionConfig, sizes: _ScoreSizes) -> Equations:
    """Return the equation of `NoAttention`."""
    return [f"c_t = {FINAL}"], []


ATTENTION_EQUATIONS: Mapping[str, Callable[[AttentionConfig, _ScoreSizes], Equations]] = {
    "additive": _additive,
    "location": _location,
    "monotonic": _monotonic,
    "dot": _dot,
    "general": _general,
    "scaled-dot": _scaled_dot,
    "none": _none,
}
"""Equations of the built-in attentions by their names in the settings."""
ATTENTION_NOTES = {
    "monotonic": "In training, p is the sigmoid of e plus noise from N(0, 1), and the weights are expectations.",
    "none": "The context is the same at every step: there is no attention.",
}


def attention_equations(attention: AttentionConfig, query: str, hidden: int, memory: int) -> EquationGroup:
    """Return the equations of an attention: score, weights and context.

    Args:
        attention: Configuration.
        query: Query in LaTeX: the decoder state before the step, or after it.
        hidden: H, the size of the query.
        memory: D.
    """
    sizes = _ScoreSizes(query, hidden, memory)
    context = SymbolSize("c_t", "context", (memory,))
    if is_custom_attention(attention):
        note = f"The class of the attention “{attention.type}”, of another package, has its equations and parameters."
        equation = rf"c_t = \mathrm{{attention}}({query}, h_1, \ldots, h_S)"
        return EquationGroup("Attention", [equation], [context], note)
    equations, symbols = ATTENTION_EQUATIONS[attention.type](attention, sizes)
    return EquationGroup("Attention", equations, [*symbols, context], ATTENTION_NOTES.get(attention.type, ""))


# Decoder and output layer


def _subscript(step: str) -> str:
    """Return the subscript of a step."""
    return f"_{step}" if len(step) == 1 else f"_{{{step}}}"


class _DecoderNames(NamedTuple):
    """Symbols of a decoder that other parts read, in LaTeX, and its sizes."""

    config: DecoderConfig
    memory: int
    vocabulary: int
    embedding_size: int
    """E, 0 if no symbol is fed back."""

    @property
    def is_processed(self) -> bool:
        """True if the output of a layer differs from its state, by normalization or residuals."""
        has_residuals = self.config.residual and self.config.num_layers > 1
        return self.config.layer_normalization == "outputs" or has_residuals

    @property
    def attends_first(self) -> bool:
        """True if attention precedes the cell."""
        return self.config.order == "attend-then-step"

    def state(self, step: str, layer: str = "") -> str:
        """Return the state of a layer, by default of the top one."""
        return f"s{_subscript(step)}{self._layer(layer)}"

    def output(self, step: str, layer: str = "") -> str:
        """Return the output of a layer, by default of the top one."""
        state = self.state(step, layer)
        return state.replace("s", r"\tilde{s}", 1) if self.is_processed else state

    def _layer(self, layer: str) -> str:
        """Return the superscript of a layer."""
        return f"^{{({layer or self.config.num_layers})}}" if self.config.num_layers > 1 else ""

    @property
    def query(self) -> str:
        """Return the query of attention."""
        return self.state("t-1") if self.attends_first else self.output("t")

    @property
    def fed_back(self) -> list[str]:
        """Return the inputs of the first cell."""
        symbol = ["y_{t-1}"] if self.embedding_size else []
        return symbol + (["c_t"] if self.attends_first else ["a_{t-1}"] if self.config.input_feeding else [])

    @property
    def input_size(self) -> int:
        """Return the size of the input of the first cell."""
        fed = self.memory if self.attends_first else self.config.hidden_size if self.config.input_feeding else 0
        return self.embedding_size + fed


def _concatenated(parts: Sequence[str]) -> str:
    """Return vectors as one."""
    return parts[0] if len(parts) == 1 else f"[{'; '.join(parts)}]"


def decoder_equations(names: _DecoderNames) -> EquationGroup:
    """Return the equations of the initial state and of the cells of a decoder.

    Args:
        names: Symbols and sizes of the decoder.
    """
    config, size = names.config, names.embedding_size
    cell = cell_name(config.cell, config.layer_normalization)
    read = _concatenated(names.fed_back or ["0"])
    lowest = "1" if config.num_layers > 1 else ""
    equations = [*_initial_equations(config)]
    if not names.attends_first and config.input_feeding:
        equations.append("a_0 = 0")
    equations.append(rf"{names.state('t', lowest)} = \mathrm{{{cell}}}({read}, {names.state('t-1', lowest)})")
    if config.num_layers > 1:
        below = names.output("t", "l-1")
        layers = r" \quad (l > 1)"
        equations.append(rf"{names.state('t', 'l')} = \mathrm{{{cell}}}({below}, {names.state('t-1', 'l')}){layers}")
    symbols = [
        *([SymbolSize("y_{t-1}", "embedding of the output symbol before", (size,))] if size else []),
        *_embedding_symbol(
            "Y", config.embedding, "embeddings of the target symbols and special ones", names.vocabulary, size
        ),
        SymbolSize("s_t", "decoder state", (config.hidden_size,), config.num_layers),
        *_initial_symbols(config, names.memory),
        *_Stack(config, names.input_size, config.hidden_size).symbols(),
    ]
    note = "" if names.fed_back else "The cell has no input but its state."
    return EquationGroup("Decoder", [*equations, *_output_equations(names)], symbols, note)


def _initial_equations(config: DecoderConfig) -> list[str]:
    """Return the equations of the initial state."""
    layer = "^{(l)}" if config.num_layers > 1 else ""
    if config.init_hidden == "zero":
        return [f"s_0{layer} = 0", *([f"k_0{layer} = 0"] if has_cell_state(config.cell) else [])]
    summary = FINAL if config.init_hidden == "final" else MEAN
    equations = [rf"s_0{layer} = \tanh(W_0{layer} {summary} + b_0{layer})"]
    if has_cell_state(config.cell):
        equations.append(rf"k_0{layer} = V_0{layer} {summary} + d_0{layer}")
    return equations


def _initial_symbols(config: DecoderConfig, memory: int) -> list[SymbolSize]:
    """Return the parameters of the initial state."""
    if config.init_hidden == "zero":
        return []
    size, layers = config.hidden_size, config.num_layers
    symbols = [
        _parameter("W_0", "projection to the initial state", size, memory, copies=layers),
        _parameter("b_0", "its bias", size, copies=layers),
    ]
    if has_cell_state(config.cell):
        symbols += [
            _parameter("V_0", "projection to the initial cell state", size, memory, copies=layers),
            _parameter("d_0", "its bias", size, copies=layers),
        ]
    return symbols


def _output_equations(names: _DecoderNames) -> list[str]:
    """Return the equations of the outputs of the layers, if these are not their states."""
    config = names.config
    if not names.is_processed:
        return []
    stacked = config.num_layers > 1
    has_residuals = config.residual and stacked

    def normalized(layer: str) -> str:
        """Return the state of a layer, normalized if so configured.

        Args:
            layer: Number of the layer.
        """
        state = names.state("t", layer)
        return rf"\mathrm{{LN}}({state})" if config.layer_normalization == "outputs" else state

    if not has_residuals:
        layer = "l" if stacked else ""
        return [f"{names.output('t', layer)} = {normalized(layer)}"]
    above = rf"{names.output('t', 'l')} = {names.output('t', 'l-1')} + {normalized('l')} \quad (l > 1)"
    return [f"{names.output('t', '1')} = {normalized('1')}", above]


def output_equations(names: _DecoderNames, step: str = "t") -> EquationGroup:
    """Return the equations of the output layer of a decoder.

    Args:
        names: Symbols and sizes of the decoder.
        step: Step from which the output is predicted.
    """
    config = names.config
    state, context = names.output(step), f"c{_subscript(step)}"
    inputs = {"state": [state], "context": [context], "state-and-context": [state, context]}
    read = _concatenated(inputs[config.output_layer_inputs])
    size = output_layer_input_size(config.output_layer_inputs, config.hidden_size, names.memory)
    equations = list[str]()
    symbols = list[SymbolSize]()
    if not names.attends_first:
        state = f"a{_subscript(step)}"
        equations.append(rf"{state} = \tanh(W_c {read})")
        symbols.append(_parameter("W_c", "projection to the attentional state", config.hidden_size, size))
        read = state
        size = config.hidden_size
    logits, output_symbols = _logits(names, read, size)
    probabilities = "p_t" if step == "t" else "p"
    if config.pointer_generator:
        equations += _copy_equations(names, logits)
        output_symbols += _copy_symbols(names)
    else:
        equations.append(rf"{probabilities} = \mathrm{{softmax}}({logits})")
    result = SymbolSize(probabilities, "probabilities of all target symbols", (names.vocabulary,))
    return EquationGroup("Output layer", equations, [*symbols, *output_symbols, result])


def _logits(names: _DecoderNames, read: str, size: int) -> tuple[str, list[SymbolSize]]:
    """Return the logits of an output layer, and its parameters."""
    bias = _parameter("b_o", "its bias", names.vocabulary)
    if not names.config.tie_embeddings:
        return f"W_o {read} + b_o", [_parameter("W_o", "output layer", names.vocabulary, size), bias]
    if size == names.embedding_size:
        return f"Y {read} + b_o", [bias]
    return f"Y A {read} + b_o", [_parameter("A", "projection to the size of Y", names.embedding_size, size), bias]


def _copy_equations(names: _DecoderNames, logits: str) -> list[str]:
    """Return the equations of a pointer-generator."""
    state = names.output("t") if names.attends_first else "a_t"
    symbol = ["y_{t-1}"] if names.embedding_size else []
    return [
        rf"\gamma_t = \sigma(w^\top {_concatenated([state, 'c_t', *symbol])} + b_w)",
        r"\kappa_t = \sum_{s \text{ can be copied}} \alpha_{ts}",
        rf"p_t(y) = (1 - (1 - \gamma_t) \kappa_t) \mathrm{{softmax}}({logits})_y + (1 - \gamma_t) "
        r"\sum_{s \text{ is } y} \alpha_{ts}",
    ]


def _copy_symbols(names: _DecoderNames) -> list[SymbolSize]:
    """Return the parameters of a pointer-generator."""
    size = names.config.hidden_size + names.memory + names.embedding_size
    return [_parameter("w", "gate of copying", size), _parameter("b_w", "its bias")]


# Networks


def _with_cells(
    parts: Sequence[EquationGroup], configs: Sequence[EncoderConfig | DecoderConfig]
) -> list[EquationGroup]:
    """Return the groups of a network, and those of its cells, each once."""
    kinds = dict.fromkeys((part.cell, _cell_normalization(part.layer_normalization)) for part in configs)
    if any(isinstance(part, EncoderConfig) and part.characters == "gru" for part in configs):
        kinds["gru", "none"] = None
    return [*parts, *(cell_equations(cell, normalization) for cell, normalization in kinds)]


def _cell_normalization(normalization: LayerNormalization) -> LayerNormalization:
    """Return the layer normalization as far as it changes the equations of a cell."""
    return "cells" if normalization == "cells" else "none"


def _used_summaries(config: Config) -> list[str]:
    """Return the summaries of the source that decoder and attention read."""
    start = {"final": [FINAL], "mean": [MEAN], "zero": []}[config.decoder.init_hidden]
    return [*start, *([FINAL] if config.attention.type == "none" else [])]


def _with_decoder(
    config: Config, vocabularies: VocabularySizes, decoder: DecoderConfig, last: str
) -> list[EquationGroup]:
    """Return the equations of an encoder and a decoder whose step `last` predicts the output."""
    size = {"one-hot": vocabularies.target, "none": 0}.get(decoder.embedding, decoder.embedding_size)
    names = _DecoderNames(decoder, memory_size(config.encoder), vocabularies.target, size)
    attention = attention_equations(config.attention, names.query, decoder.hidden_size, names.memory)
    steps = [attention, decoder_equations(names)]
    parts = [
        encoder_equations(config.encoder, vocabularies, _used_summaries(config)),
        *(steps if names.attends_first else steps[::-1]),
        output_equations(names, last),
    ]
    return _with_cells(parts, [config.encoder, decoder])


def transducer_equations(config: Config, vocabularies: VocabularySizes) -> list[EquationGroup]:
    """Return the equations of an encoder-decoder.

    Args:
        config: Configuration.
        vocabularies: Numbers of source and target ids.
    """
    return _with_decoder(config, vocabularies, config.decoder, "t")


def classifier_equations(config: Config, vocabularies: VocabularySizes, decoder: DecoderConfig) -> list[EquationGroup]:
    """Return the equations of a classifier, which predicts its class from the last attention hop.

    Args:
        config: Configuration.
        vocabularies: Numbers of source ids and classes.
        decoder: Configuration of the decoder, without feedback.
    """
    return _with_decoder(config, vocabularies, decoder, f"{decoder.num_hops}")


def tagger_equations(config: Config, vocabularies: VocabularySizes) -> list[EquationGroup]:
    """Return the equations of a tagger.

    Args:
        config: Configuration.
        vocabularies: Numbers of source ids and tags.
    """
    memory = memory_size(config.encoder)
    symbols = [
        _parameter("W_o", "output layer", vocabularies.target, memory),
        _parameter("b_o", "its bias", vocabularies.target),
        SymbolSize("p_s", "probabilities of all tags at position s", (vocabularies.target,)),
    ]
    output = EquationGroup("Output layer", [r"p_s = \mathrm{softmax}(W_o h_s + b_o)"], symbols)
    return _with_cells([encoder_equations(config.encoder, vocabularies, []), output], [config.encoder])


def tagging_classifier_equations(config: Config, vocabularies: VocabularySizes) -> list[EquationGroup]:
    """Return the equations of a network for a class and tags: one attention step, and two output layers.

    Args:
        config: Configuration.
        vocabularies: Numbers of source ids, and of classes and tags together.
    """
    size = config.decoder.hidden_size
    memory = memory_size(config.encoder)
    decoder = config.decoder
    input_size = output_layer_input_size(decoder.output_layer_inputs, size, memory)
    inputs = {"state": "q", "context": "c_1", "state-and-context": "[q; c_1]"}[decoder.output_layer_inputs]
    symbols = [
        _parameter("W_o", "output layer of the class", vocabularies.target, input_size),
        _parameter("b_o", "its bias", vocabularies.target),
        _parameter("W_t", "output layer of the tags", vocabularies.target, memory),
        _parameter("b_t", "its bias", vocabularies.target),
        SymbolSize("p", "probabilities of all classes", (vocabularies.target,)),
        SymbolSize("p_s", "probabilities of all tags at position s", (vocabularies.target,)),
    ]
    equations = [rf"p = \mathrm{{softmax}}(W_o {inputs} + b_o)", r"p_s = \mathrm{softmax}(W_t h_s + b_t)"]
    note = "There is one step, t = 1. Rows of tags in the first layer, and of classes in the second, have no effect."
    parts = [
        encoder_equations(config.encoder, vocabularies, _used_summaries(config)),
        _query_equations(decoder, memory),
        attention_equations(config.attention, "q", size, memory),
        EquationGroup("Output layers", equations, symbols, note),
    ]
    return _with_cells(parts, [config.encoder])


def pointer_equations(config: Config, vocabularies: VocabularySizes) -> list[EquationGroup]:
    """Return the equations of a pointer: one attention step whose weights are the probabilities of the positions.

    Args:
        config: Configuration.
        vocabularies: Numbers of source ids and positions.
    """
    size = config.decoder.hidden_size
    memory = memory_size(config.encoder)
    parts = [
        encoder_equations(config.encoder, vocabularies, _used_summaries(config)),
        _query_equations(config.decoder, memory),
        attention_equations(config.attention, "q", size, memory),
        EquationGroup("Output", [r"p(s) = \alpha_{1s}"], [], "There is one step, t = 1."),
    ]
    return _with_cells(parts, [config.encoder])


def _query_equations(decoder: DecoderConfig, memory: int) -> EquationGroup:
    """Return the equation of the query of the only attention step of a pointer, or of a class with tags."""
    size = decoder.hidden_size
    query = SymbolSize("q", "query", (decoder.hidden_size,))
    if decoder.init_hidden == "zero":
        return EquationGroup("Query", ["q = 0"], [query])
    summary = FINAL if decoder.init_hidden == "final" else MEAN
    symbols = [query, _parameter("W_0", "projection", size, memory), _parameter("b_0", "its bias", size)]
    return EquationGroup("Query", [rf"q = \tanh(W_0 {summary} + b_0)"], symbols)
