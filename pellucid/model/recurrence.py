"""Recurrent cells and whole sequences of them: in plain PyTorch, and where a kernel takes its place.

B batch, S positions, N directions, E input, H hidden units. Gate equations as in PyTorch, the reset gate applied after
the product:

    GRU    r = σ(W_r x + U_r h + b_r)   z = σ(W_z x + U_z h + b_z)
           n = tanh(W_n x + b_n + r ⊙ (U_n h + c_n))   h' = (1 − z) ⊙ n + z ⊙ h
    LSTM   i, f, o = σ(W x + U h + b)   g = tanh(W_g x + U_g h + b_g)   c' = f ⊙ c + i ⊙ g   h' = o ⊙ tanh(c')

Sources: Cho et al. 2014, section 2.3; Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout

from pellucid.config.settings import Cell, DecoderConfig, EncoderConfig, LayerNormalization
from pellucid.kernels.backend import parts_given
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import Direction
from pellucid.model.requests import kind_of, request_of


class CellNoise(NamedTuple):
    """What a cell reads in place of its own: both None outside training, and where nothing is dropped."""

    weight: Float[Tensor, "G H"] | None = None
    """U, some of its numbers dropped: a cell with fewer connexions, which runs as any other (kernels included)."""
    state: Float[Tensor, "B H"] | None = None
    """Multiplies h where U h is computed, at every step by the same numbers."""


SILENCE = CellNoise()


class Noise(NamedTuple):
    """All that is drawn for the sequences of a batch."""

    cells: tuple[CellNoise, ...]
    outputs: tuple[Float[Tensor, "B H"], ...] = ()
    """Multiply the output of each layer, at every step by the same numbers; empty where each step draws anew."""
    missed: Bool[Tensor, "B V"] | None = None
    """Symbols whose vectors are zero wherever they stand in a sequence."""

    def take(self, rows: Int[Tensor, " R"]) -> "Noise":
        """That of the chosen sequences, in their order."""
        cells = tuple(
            cell._replace(state=None if cell.state is None else cell.state.index_select(0, rows)) for cell in self.cells
        )
        outputs = tuple(mask.index_select(0, rows) for mask in self.outputs)
        return Noise(cells, outputs, None if self.missed is None else self.missed.index_select(0, rows))


NO_NOISE = Noise(())


def draw_cells(
    weights: Iterable[Float[Tensor, "G H"]], rows: int, config: EncoderConfig | DecoderConfig
) -> tuple[CellNoise, ...]:
    """Recurrent dropout of cells with these weights U, for so many sequences.

    On weights: Merity et al. 2018, section 2, one mask for the batch. On states: Gal & Ghahramani 2016, section 4.1.
    """
    share = config.recurrent_dropout
    if not share:
        return tuple(SILENCE for _ in weights)
    if config.recurrent_dropout_on == "weights":
        return tuple(CellNoise(weight=dropout(weight, share)) for weight in weights)
    return tuple(CellNoise(state=draw_mask(weight, (rows, weight.shape[1]), share)) for weight in weights)


def draw_mask(like: Tensor, shape: tuple[int, ...], share: float) -> Tensor:
    """Zeros, this share of them, and 1 / (1 − share) elsewhere."""
    return dropout(torch.ones(shape, dtype=like.dtype, device=like.device), share)


GATES: dict[Cell, int] = {"gru": 3, "lstm": 4}


class LayerState(NamedTuple):
    """The state of one layer inside a step: apart from its neighbours', so that no step copies them all."""

    hidden: Float[Tensor, "B H"]
    cell: Float[Tensor, "B H"] | None


class RecurrentCell(nn.Module):
    """The parameters of one cell: input and hidden weights and biases of all gates, one below the other."""

    kind: ClassVar[str] = "recurrent"

    def __init__(self, cell: Cell, input_size: int, hidden_size: int) -> None:
        """Glorot-uniform input weights, orthogonal hidden weights a gate, zero biases, forget bias one.

        An input of size 0 is none at all.
        """
        super().__init__()
        self.cell: Cell = cell
        self.hidden_size = hidden_size
        rows = GATES[cell] * hidden_size
        self.input_weight = nn.Parameter(torch.empty(rows, input_size))
        self.hidden_weight = nn.Parameter(torch.empty(rows, hidden_size))
        self.input_bias = nn.Parameter(torch.zeros(rows))
        self.hidden_bias = nn.Parameter(torch.zeros(rows))
        for gate in range(GATES[cell]):
            block = slice(gate * hidden_size, (gate + 1) * hidden_size)
            if input_size:
                nn.init.xavier_uniform_(self.input_weight.data[block])
            nn.init.orthogonal_(self.hidden_weight.data[block])
        if cell == "lstm":
            self.input_bias.data[hidden_size : 2 * hidden_size] = 1.0

    def reset_bias(self) -> Float[Tensor, " C"]:
        """The bias that a GRU's reset gate multiplies, c_n; empty for an LSTM, which has none such."""
        return self.hidden_bias[2 * self.hidden_size :] if self.cell == "gru" else self.hidden_bias[:0]

    def added_bias(self) -> Float[Tensor, " G"]:
        """The sum of all other biases, which are only added."""
        if self.cell == "lstm":
            return self.input_bias + self.hidden_bias
        return self.input_bias + nn.functional.pad(self.hidden_bias[: 2 * self.hidden_size], (0, self.hidden_size))

    def compact(self) -> None:
        """On a GPU, lay the four parameters side by side, or cuDNN copies them at every call; elsewhere do nothing."""
        kind = nn.GRU if self.cell == "gru" else nn.LSTM
        shell = kind(self.input_weight.shape[1], self.hidden_size, device="meta")
        names = ("input_weight", "hidden_weight", "input_bias", "hidden_bias")
        for name, own in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), names, strict=True):
            setattr(shell, name, getattr(self, own))
        shell.flatten_parameters()

    def project(self, inputs: Float[Tensor, "*shape E"]) -> Float[Tensor, "*shape G"]:
        """W x + b, what `advance` takes."""
        return nn.functional.linear(inputs, self.input_weight, self.input_bias)

    def advance(self, projected: Float[Tensor, "B G"], state: LayerState, noise: CellNoise = SILENCE) -> LayerState:
        """One step from the projected input (all gates) and the state before."""
        entered, recurrent = self.sums(projected, state.hidden, noise)
        if state.cell is None:
            return LayerState(gru_step(entered, recurrent, state.hidden), None)
        return LayerState(*lstm_step(entered + recurrent, state.cell))

    def sums(
        self, projected: Float[Tensor, "B G"], hidden: Float[Tensor, "B H"], noise: CellNoise = SILENCE
    ) -> tuple[Float[Tensor, "B G"], Float[Tensor, "B G"]]:
        """W x + b and U h + c, of which the gates are made."""
        return projected, self.recurrent(hidden, noise, self.hidden_bias)

    def recurrent(
        self, hidden: Float[Tensor, "B H"], noise: CellNoise, bias: Float[Tensor, " G"] | None
    ) -> Float[Tensor, "B G"]:
        """U h + bias, less what dropout takes of U or h."""
        seen = hidden if noise.state is None else hidden * noise.state
        return nn.functional.linear(seen, self.hidden_weight if noise.weight is None else noise.weight, bias)


class Stack(nn.Module):
    """Cells one above the other: a list of modules that knows what they are."""

    def __init__(
        self, cell: Cell, input_sizes: Sequence[int], hidden_size: int, kind: type[RecurrentCell] = RecurrentCell
    ) -> None:
        """One cell for each input size."""
        super().__init__()
        self.layers = nn.ModuleList(kind(cell, size, hidden_size) for size in input_sizes)

    def __len__(self) -> int:
        """How many layers there are."""
        return len(self.layers)

    def __getitem__(self, layer: int) -> RecurrentCell:
        """The cell of a layer, from the bottom."""
        return cast(RecurrentCell, self.layers[layer])

    def __iter__(self) -> Iterator[RecurrentCell]:
        """The cells from the bottom to the top."""
        return (self[layer] for layer in range(len(self.layers)))


def gru_step(
    projected: Float[Tensor, "B G"], recurrent: Float[Tensor, "B G"], hidden: Float[Tensor, "B H"]
) -> Float[Tensor, "B H"]:
    """The GRU's new state from W x + b, U h + c (gates r, z, n in this order) and h."""
    size = hidden.shape[-1]
    reset, update = torch.sigmoid(projected[:, : 2 * size] + recurrent[:, : 2 * size]).chunk(2, dim=-1)
    candidate = torch.tanh(projected[:, 2 * size :] + reset * recurrent[:, 2 * size :])
    return candidate + update * (hidden - candidate)


def lstm_step(
    gates: Float[Tensor, "B G"], cell: Float[Tensor, "B H"]
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """The LSTM's new (hidden, cell) from the summed gates (i, f, g, o in this order) and the old cell."""
    enter, forget, candidate, leave = gates.chunk(4, dim=-1)
    new = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(new), new


class Inputs(NamedTuple):
    """A sequence of vectors a row: one for each position, or rows of a table that symbols name."""

    vectors: Float[Tensor, "*rows E"]
    symbols: Int[Tensor, "B *steps"] | None = None

    def spread(self) -> Float[Tensor, "B *steps E"]:
        """One vector for each position."""
        return self.vectors if self.symbols is None else nn.functional.embedding(self.symbols, self.vectors)

    def table(self) -> tuple[Float[Tensor, "V E"], Int[Tensor, "B S"]]:
        """A table, and the row of each position: the symbols' own, unless it has more rows than there are positions."""
        if self.symbols is not None and len(self.vectors) <= self.symbols.numel():
            return self.vectors, self.symbols
        spread = self.spread()
        return spread.flatten(0, 1), torch.arange(spread.shape[0] * spread.shape[1]).view(spread.shape[:2])


class Sequences(NamedTuple):
    """What each direction of a layer leaves: its states, zero beyond a row's length, and its last state."""

    states: Float[Tensor, "B S N H"]
    last: Float[Tensor, "B N H"]


QUIET = (SILENCE, SILENCE)


def run(
    cells: Sequence[RecurrentCell], inputs: Inputs, lengths: Int[Tensor, " B"], noise: Sequence[CellNoise] = QUIET
) -> Sequences:
    """The hidden states of one cell, or two, run from zero over every row.

    The first goes forward; the second backward, from a row's own last position to its first. A kernel runs both where
    it can.
    """
    pairs = list(zip(cells, noise, strict=False))
    facts = (
        *(("cell.kind", kind_of(cell)) for cell in cells),
        *(("cell.cell", cell.cell) for cell in cells),
        *(fact for _, own in pairs for fact in parts_given("recurrent_mask", own)),
    )
    compiled = use_kernel(request_of("recurrence", inputs.vectors, facts))
    return run_compiled(cells, inputs, lengths, noise) if compiled else run_plain(cells, inputs, lengths, noise)


def _supports_fused(cell: RecurrentCell, noise: CellNoise) -> bool:
    """Return whether PyTorch runs a cell over a sequence in one call."""
    return kind_of(cell) == RecurrentCell.kind and noise.state is None


def run_plain(
    cells: Sequence[RecurrentCell], inputs: Inputs, lengths: Int[Tensor, " B"], noise: Sequence[CellNoise] = QUIET
) -> Sequences:
    """`run` in PyTorch."""
    spread = inputs.spread()
    states = [run_forward(cells[0], spread, noise[0])]
    lasts = [last_within(states[0], lengths)]
    for cell in cells[1:]:
        states.append(reverse_within(run_forward(cell, reverse_within(spread, lengths), noise[1]), lengths))
        lasts.append(states[1][:, 0])
    inside = torch.arange(spread.shape[1], device=spread.device) < lengths[:, None]
    return Sequences(torch.stack(states, dim=2) * inside[:, :, None, None], torch.stack(lasts, dim=1))


def run_compiled(
    cells: Sequence[RecurrentCell], inputs: Inputs, lengths: Int[Tensor, " B"], noise: Sequence[CellNoise] = QUIET
) -> Sequences:
    """`run` by a kernel, which takes inputs as rows of a table: it is the table that is projected."""
    from pellucid.kernels.autograd import run_recurrence  # Numba takes a second to import

    vectors, symbols = inputs.table()
    directions = [
        Direction(
            nn.functional.linear(vectors, cell.input_weight, cell.added_bias()),
            cell.hidden_weight if own.weight is None else own.weight,
            cell.reset_bias(),
        )
        for cell, own in zip(cells, noise, strict=False)
    ]
    return Sequences(*run_recurrence(directions, symbols, lengths))


def run_forward(
    cell: RecurrentCell, inputs: Float[Tensor, "B S E"], noise: CellNoise = SILENCE
) -> Float[Tensor, "B S H"]:
    """The hidden states of a cell run from zero over positions 0, 1, … of every row, lengths ignored."""
    if not _supports_fused(cell, noise):
        return _run_stepwise(cell, inputs, noise)
    recurrent = cell.hidden_weight if noise.weight is None else noise.weight
    weights: list[Tensor] = [cell.input_weight, recurrent, cell.input_bias, cell.hidden_bias]
    start = inputs.new_zeros(1, inputs.shape[0], cell.hidden_size)
    trains = torch.is_grad_enabled()  # cuDNN keeps what the way back needs only if it is told so
    # Within bf16 autocast cuDNN would take float16, whose small numbers vanish: recurrences keep their precision.
    with torch.autocast(inputs.device.type, enabled=False):
        if cell.cell == "gru":
            return torch.gru(inputs, start, weights, True, 1, 0.0, trains, False, True)[0]
        return torch.lstm(inputs, [start, start], weights, True, 1, 0.0, trains, False, True)[0]


def _run_stepwise(cell: RecurrentCell, inputs: Float[Tensor, "B S E"], noise: CellNoise) -> Float[Tensor, "B S H"]:
    """`run_forward`, step by step."""
    zero = inputs.new_zeros(len(inputs), cell.hidden_size)
    state, states = LayerState(zero, zero if cell.cell == "lstm" else None), list[Tensor]()
    for projected in cell.project(inputs).unbind(dim=1):
        state = cell.advance(projected, state, noise)
        states.append(state.hidden)
    return torch.stack(states, dim=1)


def reverse_within(values: Int[Tensor, "B S"] | Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> Tensor:
    """Each row reversed within its own length; what lies beyond stays where it is.

    Running forward over rows so reversed equals running backward over the originals, exactly and without packing.
    """
    positions = torch.arange(values.shape[1], device=values.device)
    mirrored = lengths[:, None] - 1 - positions
    index = torch.where(mirrored >= 0, mirrored, positions)
    return values.gather(1, index if values.dim() == 2 else index[:, :, None].expand_as(values))


def last_within(states: Float[Tensor, "B S H"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B H"]:
    """The state at each row's last real position."""
    return states[torch.arange(states.shape[0], device=states.device), lengths - 1]


class NormalizedCell(RecurrentCell):
    """A cell whose sums are normalized, LN(x; g) = g ⊙ (x − mean) / deviation, over the units of all gates together.

        GRU    W x and U h become LN(W x; g) and LN(U h; g'): over r and z together, and over n; biases are added then
        LSTM   the same over all four gates, and h' = o ⊙ tanh(LN(c'; g'') + b'')

    Source: Ba et al. 2016, section 3.1 and the supplement's equations 20 to 22 and 25 to 28.
    """

    kind: ClassVar[str] = "normalized"

    def __init__(self, cell: Cell, input_size: int, hidden_size: int) -> None:
        """Gains of one beside a cell's own parameters."""
        super().__init__(cell, input_size, hidden_size)
        rows = GATES[cell] * hidden_size
        self.groups = [2 * hidden_size, hidden_size] if cell == "gru" else [rows]
        self.input_gain, self.hidden_gain = nn.Parameter(torch.ones(rows)), nn.Parameter(torch.ones(rows))
        self.leaving = nn.LayerNorm(hidden_size) if cell == "lstm" else None

    def project(self, inputs: Float[Tensor, "*shape E"]) -> Float[Tensor, "*shape G"]:
        """W x: the bias comes after normalization."""
        return nn.functional.linear(inputs, self.input_weight)

    def advance(self, projected: Float[Tensor, "B G"], state: LayerState, noise: CellNoise = SILENCE) -> LayerState:
        """One step from the projected input (all gates) and the state before."""
        entered, recurrent = self.sums(projected, state.hidden, noise)
        if state.cell is None or self.leaving is None:
            return LayerState(gru_step(entered, recurrent, state.hidden), None)
        leave = (entered + recurrent)[:, 3 * self.hidden_size :]
        _, cell = lstm_step(entered + recurrent, state.cell)
        return LayerState(torch.sigmoid(leave) * torch.tanh(self.leaving(cell)), cell)

    def sums(
        self, projected: Float[Tensor, "B G"], hidden: Float[Tensor, "B H"], noise: CellNoise = SILENCE
    ) -> tuple[Float[Tensor, "B G"], Float[Tensor, "B G"]]:
        """What the gates are made of, normalized, the biases added."""
        entered = self._normalized(projected) * self.input_gain + self.input_bias
        recurrent = self._normalized(self.recurrent(hidden, noise, None)) * self.hidden_gain + self.hidden_bias
        return entered, recurrent

    def _normalized(self, sums: Float[Tensor, "B G"]) -> Float[Tensor, "B G"]:
        """Mean 0 and variance 1 within each group of gates."""
        parts = torch.split(sums, self.groups, dim=-1)
        return torch.cat([nn.functional.layer_norm(part, part.shape[-1:]) for part in parts], dim=-1)


def cell_kind(normalization: LayerNormalization) -> type[RecurrentCell]:
    """The cells that a setting asks for."""
    return NormalizedCell if normalization == "cells" else RecurrentCell


def output_normalizations(normalization: LayerNormalization, layers: int, size: int) -> nn.ModuleList:
    """One for the outputs of each layer: none of them does anything unless it is outputs that are normalized."""
    chosen = normalization == "outputs"
    return nn.ModuleList(nn.LayerNorm(size) if chosen else nn.Identity() for _ in range(layers))
