"""Recurrent cells over whole sequences, in plain PyTorch or by a kernel.

B batch, R rows of a selection, S positions, N directions, E input, H hidden units, G numbers of all gates. The cells
are in cells.py.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from pellucid.config.settings import DecoderConfig, EncoderConfig, LayerNormalization
from pellucid.kernels.backend import present_fields
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import DirectionParameters, RecurrentOutput
from pellucid.model.cells import NO_DROPOUT, RecurrentCell, RecurrentMask
from pellucid.model.linear import linear
from pellucid.model.requests import kind_of, request_of
from pellucid.shapes import Bool, Float, Int


class DropoutMasks(NamedTuple):
    """Dropout masks of a batch of sequences that are drawn once for all steps."""

    cells: tuple[RecurrentMask, ...]
    outputs: tuple[Float[Tensor, "B H"], ...] = ()
    """Factors of the output of each layer, the same at every step; empty if each step draws its own."""
    dropped_symbols: Bool[Tensor, "B V"] | None = None
    """Symbols whose vectors are zero at all positions of a sequence."""

    def index_select(self, rows: Int[Tensor, " R"]) -> "DropoutMasks":
        """Return the masks of some sequences.

        Args:
            rows: Indices of the sequences, in the order of the result.
        """
        cells = tuple(
            cell._replace(state=None if cell.state is None else cell.state.index_select(0, rows)) for cell in self.cells
        )
        outputs = tuple(mask.index_select(0, rows) for mask in self.outputs)
        dropped = None if self.dropped_symbols is None else self.dropped_symbols.index_select(0, rows)
        return DropoutMasks(cells, outputs, dropped)


NO_MASKS = DropoutMasks(())


def draw_recurrent_masks(
    weights: Iterable[Float[Tensor, "G H"]], rows: int, config: EncoderConfig | DecoderConfig
) -> tuple[RecurrentMask, ...]:
    """Draw the recurrent dropout of cells, for one batch in training.

    Args:
        weights: U of each cell.
        rows: Number of sequences.
        config: Rate and kind of recurrent dropout; at rate 0 the result drops nothing.

    References:
        On weights, one mask for the batch: Merity et al. 2018, section 2.
        On states: Gal & Ghahramani 2016, section 4.1.
    """
    rate = config.recurrent_dropout
    if not rate:
        return tuple(NO_DROPOUT for _ in weights)
    if config.recurrent_dropout_on == "weights":
        return tuple(RecurrentMask(weight=dropout(weight, rate)) for weight in weights)
    return tuple(RecurrentMask(state=draw_mask(weight, (rows, weight.shape[1]), rate)) for weight in weights)


def draw_mask(like: Tensor, shape: tuple[int, ...], rate: float) -> Tensor:
    """Draw a dropout mask: 0 with probability `rate`, else 1 / (1 − rate).

    Args:
        like: Tensor whose type and device the mask has.
        shape: Shape of the mask.
        rate: Probability of dropping.
    """
    return dropout(torch.ones(shape, dtype=like.dtype, device=like.device), rate)


class InputVectors(NamedTuple):
    """Vectors of a layer's inputs: one per position, or a table of vectors and the row of each position in it."""

    vectors: Float[Tensor, "*rows E"]
    """Vectors of shape (B, S, E); with `rows`, the table."""
    rows: Int[Tensor, "B *steps"] | None = None
    """Row of the table for each position; None without a table."""

    def to_dense(self) -> Float[Tensor, "B *steps E"]:
        """Return one vector for each position."""
        return self.vectors if self.rows is None else nn.functional.embedding(self.rows, self.vectors)

    def table(self) -> tuple[Float[Tensor, "V E"], Int[Tensor, "B S"]]:
        """Return a table of vectors and the row of each position.

        It has one row per position if there is no table, or if the table has more rows than there are positions.
        """
        if self.rows is not None and len(self.vectors) <= self.rows.numel():
            return self.vectors, self.rows
        dense = self.to_dense()
        return dense.flatten(0, 1), torch.arange(dense.shape[0] * dense.shape[1]).view(dense.shape[:2])


NO_RECURRENT_DROPOUT = (NO_DROPOUT, NO_DROPOUT)


def run_rnn(
    cells: Sequence[RecurrentCell],
    inputs: InputVectors,
    lengths: Int[Tensor, " B"],
    masks: Sequence[RecurrentMask] = NO_RECURRENT_DROPOUT,
) -> RecurrentOutput:
    """Run one cell or two over sequences, from a zero state, and return their hidden states.

    The first cell runs forward; the second backward, from a row's last position to its first. A kernel runs both if it
    supports the request.

    Args:
        cells: One cell for each direction.
        inputs: Vectors of each row.
        lengths: Number of real positions of each row.
        masks: Recurrent dropout of each cell; default none.
    """
    pairs = list(zip(cells, masks, strict=False))
    properties = (
        *(("cell.kind", kind_of(cell)) for cell in cells),
        *(("cell.type", cell.cell_type) for cell in cells),
        *(present for _, mask in pairs for present in present_fields("recurrent_mask", mask)),
    )
    compiled = use_kernel(request_of("recurrence", inputs.vectors, properties))
    return run_rnn_kernel(cells, inputs, lengths, masks) if compiled else run_rnn_torch(cells, inputs, lengths, masks)


def _supports_fused(cell: RecurrentCell, mask: RecurrentMask) -> bool:
    """Return whether PyTorch runs a cell over a sequence in one call."""
    return kind_of(cell) == RecurrentCell.kind and cell.spec.torch_module is not None and mask.state is None


def run_rnn_torch(
    cells: Sequence[RecurrentCell],
    inputs: InputVectors,
    lengths: Int[Tensor, " B"],
    masks: Sequence[RecurrentMask] = NO_RECURRENT_DROPOUT,
) -> RecurrentOutput:
    """Compute `run_rnn` in PyTorch.

    Args:
        cells: One cell for each direction.
        inputs: Vectors of each row.
        lengths: Number of real positions of each row.
        masks: Recurrent dropout of each cell; default none.
    """
    dense = inputs.to_dense()
    states = [run_cell(cells[0], dense, masks[0])]
    final = [gather_last(states[0], lengths)]
    for cell in cells[1:]:
        states.append(reverse_sequence(run_cell(cell, reverse_sequence(dense, lengths), masks[1]), lengths))
        final.append(states[1][:, 0])
    is_real = length_mask(lengths, dense.shape[1])
    return RecurrentOutput(torch.stack(states, dim=2) * is_real[:, :, None, None], torch.stack(final, dim=1))


def run_rnn_kernel(
    cells: Sequence[RecurrentCell],
    inputs: InputVectors,
    lengths: Int[Tensor, " B"],
    masks: Sequence[RecurrentMask] = NO_RECURRENT_DROPOUT,
) -> RecurrentOutput:
    """Compute `run_rnn` by a Numba kernel. It reads inputs as rows of a table, so only the table is projected.

    Args:
        cells: One cell for each direction.
        inputs: Vectors of each row.
        lengths: Number of real positions of each row.
        masks: Recurrent dropout of each cell, of which only the weights are read; default none.
    """
    from pellucid.kernels.tensor_functions import run_recurrence  # Numba takes a second to import

    vectors, rows = inputs.table()
    directions = [
        DirectionParameters(
            cell.layout,
            linear(vectors, cell.input_weight, cell.added_bias()),
            cell.hidden_weight if mask.weight is None else mask.weight,
            cell.bias_n(),
        )
        for cell, mask in zip(cells, masks, strict=False)
    ]
    return run_recurrence(directions, rows, lengths)


def run_cell(
    cell: RecurrentCell, inputs: Float[Tensor, "B S E"], mask: RecurrentMask = NO_DROPOUT
) -> Float[Tensor, "B S H"]:
    """Return the hidden states of a cell run from zero over all positions of every row; lengths are ignored.

    Args:
        cell: The cell.
        inputs: Vectors of each row.
        mask: Recurrent dropout; default none.
    """
    if not _supports_fused(cell, mask):
        return _run_stepwise(cell, inputs, mask)
    recurrent = cell.hidden_weight if mask.weight is None else mask.weight
    weights: list[Tensor] = [cell.input_weight, recurrent, cell.input_bias, cell.hidden_bias]
    start = inputs.new_zeros(1, inputs.shape[0], cell.hidden_size)
    trains = torch.is_grad_enabled()  # cuDNN stores the values of the backward pass only if this is set
    # Within bf16 autocast cuDNN would use float16, whose small numbers underflow: recurrences keep their precision.
    with torch.autocast(inputs.device.type, enabled=False):
        return cell.spec.run_fused(inputs, start, weights, trains)


def _run_stepwise(cell: RecurrentCell, inputs: Float[Tensor, "B S E"], mask: RecurrentMask) -> Float[Tensor, "B S H"]:
    """Compute `run_cell` step by step."""
    state = cell.initial_state(inputs.new_zeros(len(inputs), cell.hidden_size))
    states = list[Tensor]()
    for projected in cell.project(inputs).unbind(dim=1):
        state = cell.step(projected, state, mask)
        states.append(state.hidden)
    return torch.stack(states, dim=1)


def length_mask(lengths: Int[Tensor, " B"], num_positions: int) -> Bool[Tensor, "B S"]:
    """Return True at the real positions of each row, False beyond its length.

    Args:
        lengths: Number of real positions of each row.
        num_positions: S.
    """
    return torch.arange(num_positions, device=lengths.device) < lengths[:, None]


def reverse_sequence(values: Int[Tensor, "B S"] | Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> Tensor:
    """Return each row reversed within its length; padding keeps its positions.

    Running forward over reversed rows equals running backward over the originals, exactly and without packing.

    Args:
        values: Ids or vectors.
        lengths: Number of real positions of each row.
    """
    positions = torch.arange(values.shape[1], device=values.device)
    reversed_positions = lengths[:, None] - 1 - positions
    index = torch.where(reversed_positions >= 0, reversed_positions, positions)
    return values.gather(1, index if values.dim() == 2 else index[:, :, None].expand_as(values))


def gather_last(states: Float[Tensor, "B S H"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B H"]:
    """Return the state at each row's last real position.

    Args:
        states: States of all positions.
        lengths: Number of real positions of each row.
    """
    return states[torch.arange(states.shape[0], device=states.device), lengths - 1]


def output_norms(normalization: LayerNormalization, layers: int, size: int) -> nn.ModuleList:
    """Return one new module for the outputs of each layer: LayerNorm if outputs are normalized, else the identity.

    Args:
        normalization: Where layer normalization is applied: "none", "outputs" or "cells".
        layers: Number of layers.
        size: Number of units.
    """
    is_normalized = normalization == "outputs"
    return nn.ModuleList(nn.LayerNorm(size) if is_normalized else nn.Identity() for _ in range(layers))
