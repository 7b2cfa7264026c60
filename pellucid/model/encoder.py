"""Recurrent encoder: unidirectional or bidirectional, stacked.

B batch, S source positions, N directions, E embedding, H hidden units a direction, D memory (2H where directions are
concatenated).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from pellucid.config.settings import EncoderConfig, memory_size
from pellucid.data.vocabulary import UNK
from pellucid.model.cells import RecurrentCell, StackedCells, cell_class
from pellucid.model.embedding import Embedding
from pellucid.model.memory import Memory, State
from pellucid.model.recurrence import (
    Inputs,
    Sequences,
    draw_mask,
    draw_recurrent_masks,
    output_norms,
    run_rnn,
)


class Convolutions(nn.Module):
    """y_s = [ReLU(b_k + Σ_j W_kj x_{s+j}) for each width k], j over the k positions around s (to its right by half).

    Widths stand side by side, as in Sønderby et al. 2015, section 2.1. What stands beyond a sequence is zero, before
    its first position and after its last, so that padding changes nothing.
    """

    def __init__(self, widths: Sequence[int], filters: int, size: int) -> None:
        """`filters` of each width over vectors of `size` numbers."""
        super().__init__()
        self.size = filters * len(widths)
        self.layers = nn.ModuleList(nn.Conv1d(size, filters, width) for width in widths)
        for layer in self.layers:
            assert isinstance(layer, nn.Conv1d)
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias if layer.bias is not None else torch.empty(0))

    def forward(self, vectors: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S NF"]:
        """All filters at every position, zero beyond each row's length."""
        inside = (torch.arange(vectors.shape[1], device=vectors.device) < lengths[:, None])[:, None]
        within = vectors.transpose(1, 2) * inside
        found = [torch.relu(layer(nn.functional.pad(within, _around(layer)))) for layer in self.layers]
        return (torch.cat(found, dim=1) * inside).transpose(1, 2)


def _around(layer: nn.Module) -> tuple[int, int]:
    """Zeros before and after a sequence that keep its length."""
    assert isinstance(layer, nn.Conv1d)
    (width,) = layer.kernel_size
    return (width - 1) // 2, width // 2


class Encoder(nn.Module):
    """h_s = merge(forward RNN over x_1 … x_s, backward RNN over x_n … x_s); layer l reads layer l − 1.

    Source: Schuster & Paliwal 1997; merging as in Bahdanau et al. 2015, section 3.2. Residual layers add their input,
    y_l = y_{l−1} + LN(h_l): Wu et al. 2016, section 3.1; dropout falls on what is read of y, not on the sum.

    Features stand before the source's symbols and are positions as these are; or, where they are added, x_s is the
    vector of symbol s with those of all the source's features, which then have no positions.
    """

    def __init__(self, config: EncoderConfig, vocabulary_size: int, symbols: int | None = None) -> None:
        """Sizes follow from the configuration and the ids that are read: symbols (None: all), then features."""
        super().__init__()
        self.config = config
        self.symbols = vocabulary_size if symbols is None else symbols
        self.table = Embedding(
            config.embedding, vocabulary_size, config.embedding_size, config.dropout, config.embedding_dropout
        )
        widths = config.convolutions
        self.convolutions = Convolutions(widths, config.filters, self.table.size) if widths else None
        first = self.table.size if self.convolutions is None else self.convolutions.size
        inputs, kind = [first] + [memory_size(config)] * (config.num_layers - 1), cell_class(config.layer_normalization)
        backward = inputs if config.bidirectional else []
        self.forward_cells = StackedCells(config.cell, inputs, config.hidden_size, kind)
        self.backward_cells = StackedCells(config.cell, backward, config.hidden_size, kind)
        self.normalizations = output_norms(config.layer_normalization, config.num_layers, memory_size(config))

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """Read sources of the given lengths (each at least 1). What stands beyond a length changes nothing."""
        return self.forward_embedded(
            self.table.embed(self.known(source), self.table.draw_dropped_tokens(len(source))), source, lengths
        )

    def known(self, source: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """Return the ids with those beyond the table, which only a decoder that copies reads, as unknown."""
        return torch.where(source < len(self.table.weight), source, UNK)

    def forward_embedded(self, inputs: Inputs, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """Encode pre-embedded inputs."""
        inputs, source, lengths = self.prepare_inputs(inputs, source, lengths)
        states = inputs.vectors
        finals: list[Float[Tensor, "B D"]] = []
        for layer in range(self.config.num_layers):
            states, final = self.forward_layer(layer, inputs, states, lengths)
            inputs = Inputs(self._dropped(states))
            finals.append(final)
        return Memory(inputs.vectors, lengths, State(torch.stack(finals, dim=1)), source)

    def prepare_inputs(
        self, inputs: Inputs, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
    ) -> tuple[Inputs, Int[Tensor, "B S"], Int[Tensor, " B"]]:
        """Return the inputs of the first layer, their ids and lengths: features that are added are no positions."""
        if self.config.features == "sum":
            inputs, source, lengths = _added(inputs, source, lengths, self.known(source) >= self.symbols)
        if self.convolutions is not None:
            inputs = Inputs(self._dropped(self.convolutions(inputs.to_dense(), lengths)))
        return inputs, source, lengths

    def forward_layer(
        self, layer: int, inputs: Inputs, below: Float[Tensor, "*rows E"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
        """Return the states of one layer and its final state; `below` is its input without dropout."""
        ran = self._run(self.cells(layer), inputs, lengths)
        own = _normalized(self.normalizations[layer], self._merge(ran.states), lengths)
        return below + own if self.config.residual and layer else own, self._merge(ran.last)

    def cells(self, layer: int) -> list[RecurrentCell]:
        """Return the cell of each direction, forward first."""
        return [stack[layer] for stack in (self.forward_cells, self.backward_cells) if len(stack)]

    def _run(self, cells: list[RecurrentCell], inputs: Inputs, lengths: Int[Tensor, " B"]) -> Sequences:
        """Run the cells of a layer over all rows, with recurrent dropout in training."""
        if not self.training:
            return run_rnn(cells, inputs, lengths)
        return run_rnn(
            cells,
            inputs,
            lengths,
            draw_recurrent_masks([cell.hidden_weight for cell in cells], len(lengths), self.config),
        )

    def _dropped(self, states: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Dropout, in training: of units at every position by itself, or of the same ones all along a sequence."""
        if self.training and self.config.dropout_mask == "sequence":
            return states * draw_mask(states, (len(states), 1, states.shape[2]), self.config.dropout)
        return nn.functional.dropout(states, self.config.dropout, self.training)

    def _merge(self, directions: Float[Tensor, "*shape N H"]) -> Float[Tensor, "*shape D"]:
        """Return the states of all directions as one."""
        match self.config.merge:
            case "concatenate":
                return directions.flatten(-2)
            case "sum":
                return directions.sum(dim=-2)
            case "product":
                return directions.prod(dim=-2)


def _added(
    inputs: Inputs, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], features: Bool[Tensor, "B S"]
) -> tuple[Inputs, Int[Tensor, "B S"], Int[Tensor, " B"]]:
    """The symbols alone, from position 0 on, each with the sum of its row's features; with their ids and lengths."""
    vectors, counts = inputs.to_dense(), features.sum(dim=1)
    positions = torch.arange(source.shape[1], device=source.device)
    places = (positions + counts[:, None]).clamp(max=source.shape[1] - 1)
    summed = (vectors * features[:, :, None]).sum(dim=1, keepdim=True)
    moved = vectors.gather(1, places[:, :, None].expand_as(vectors)) + summed
    return Inputs(moved), source.gather(1, places), lengths - counts


def _normalized(normalization: nn.Module, states: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]) -> Tensor:
    """Return normalized states, still zero beyond each row's length."""
    if isinstance(normalization, nn.Identity):
        return states
    inside = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
    normalized: Tensor = normalization(states)
    return normalized * inside[:, :, None]
