"""Recurrent encoder: unidirectional or bidirectional, stacked.

B batch, S source positions, N directions, V source ids, E embedding, F filters of all convolutions, H hidden units a
direction, D memory (2H where directions are concatenated).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pellucid.config.settings import EncoderConfig, memory_size
from pellucid.data.characters import WordCharacters
from pellucid.data.vocabulary import NUM_SPECIAL, UNK
from pellucid.errors import ArgumentError, quote
from pellucid.kernels.types import RecurrentOutput
from pellucid.model.cells import RecurrentCell, StackedCells, cell_class
from pellucid.model.character_encoder import build_character_encoder
from pellucid.model.embedding import Embedding
from pellucid.model.memory import DecoderState, Memory
from pellucid.model.recurrence import (
    InputVectors,
    draw_mask,
    draw_recurrent_masks,
    length_mask,
    output_norms,
    run_rnn,
)
from pellucid.shapes import Bool, Float, Int


class Convolutions(nn.Module):
    """y_s = [ReLU(b_k + Σ_j W_kj x_{s+j}) for each width k], j over the k positions around s.

    An even width covers one more position after s. The outputs of all widths are concatenated. Inputs beyond a
    sequence, on both sides, are zero, so that padding changes nothing.

    References:
        Sønderby et al. 2015, section 2.1.
    """

    def __init__(self, widths: Sequence[int], filters: int, size: int) -> None:
        """Build one layer for each width.

        Args:
            widths: Number of positions that the filters of a layer cover.
            filters: Number of filters of each width.
            size: E.
        """
        super().__init__()
        self.size = filters * len(widths)
        self.layers = nn.ModuleList(nn.Conv1d(size, filters, width) for width in widths)
        for layer in self.layers:
            assert isinstance(layer, nn.Conv1d)
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias if layer.bias is not None else torch.empty(0))

    def forward(self, vectors: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S F"]:
        """Return all filters' outputs at every position, zero beyond each row's length.

        Args:
            vectors: Embedded sources.
            lengths: Number of real positions of each row.
        """
        mask = length_mask(lengths, vectors.shape[1])[:, None]
        masked = vectors.transpose(1, 2) * mask
        feature_maps = [torch.relu(layer(nn.functional.pad(masked, _same_padding(layer)))) for layer in self.layers]
        return (torch.cat(feature_maps, dim=1) * mask).transpose(1, 2)


def _same_padding(layer: nn.Module) -> tuple[int, int]:
    """Return the number of zeros before and after a sequence that keep its length."""
    assert isinstance(layer, nn.Conv1d)
    (width,) = layer.kernel_size
    return (width - 1) // 2, width // 2


class Encoder(nn.Module):
    """h_s = merge(forward RNN over x_1 … x_s, backward RNN over x_n … x_s); layer l reads layer l − 1.

    Residual layers add their input, y_l = y_{l−1} + LN(h_l) (Wu et al. 2016, section 3.1); dropout is applied to the y
    that is read, not to the sum.

    Features precede the source's symbols and are positions like these; or, if they are summed, x_s is the vector of
    symbol s plus those of all features of the source, which then have no positions.

    With `config.characters`, x_s is the vector of the word followed by a vector of its characters. In training, words
    that occur once are read as UNK with the probability `config.word_dropout`; their characters are still read.
    Features that are words of the context are read as the unknown feature with the probability `context_dropout`.

    References:
        Schuster & Paliwal 1997; merging as in Bahdanau et al. 2015, section 3.2.
    """

    is_single: Bool[Tensor, " V"]

    def __init__(
        self,
        config: EncoderConfig,
        vocabulary_size: int,
        symbols: int | None = None,
        num_characters: int = NUM_SPECIAL,
        single_words: Sequence[int] = (),
        context_dropout: float = 0.0,
    ) -> None:
        """Build all parts.

        Args:
            config: Configuration of the encoder.
            vocabulary_size: Number of source ids: symbols, then features.
            symbols: Number of ids that are symbols, the others being features; None for all.
            num_characters: Number of ids of characters, special ids included, which is the default.
            single_words: Ids of the words that occur once in the training set; read with `config.characters` only.
            context_dropout: Probability of reading a feature, which is a word of the context, as an unknown feature in
                training; 0 by default.
        """
        super().__init__()
        self.config = config
        self.symbols = vocabulary_size if symbols is None else symbols
        self.context_dropout = context_dropout
        self.table = Embedding(
            config.embedding, vocabulary_size, config.embedding_size, config.dropout, config.embedding_dropout
        )
        self.characters = build_character_encoder(num_characters, config)
        if self.characters is not None:
            is_single = torch.zeros(vocabulary_size, dtype=torch.bool)
            is_single[list(single_words)] = True
            self.register_buffer("is_single", is_single, persistent=False)
        widths = config.convolutions
        input_size = self.table.size
        if self.characters is not None:
            input_size += self.characters.size
        self.convolutions = Convolutions(widths, config.filters, input_size) if widths else None
        if self.convolutions is not None:
            input_size = self.convolutions.size
        inputs = [input_size] + [memory_size(config)] * (config.num_layers - 1)
        kind = cell_class(config.layer_normalization)
        backward = inputs if config.bidirectional else []
        self.forward_cells = StackedCells(config.cell, inputs, config.hidden_size, kind)
        self.backward_cells = StackedCells(config.cell, backward, config.hidden_size, kind)
        self.normalizations = output_norms(config.layer_normalization, config.num_layers, memory_size(config))

    def forward(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], characters: WordCharacters | None = None
    ) -> Memory:
        """Encode sources. Ids beyond a row's length change nothing. Ids outside the table are read as UNK.

        Args:
            source: Ids of each source, features first.
            lengths: Number of real positions of each row, at least 1.
            characters: Characters of the words of the sources; not read by an encoder without characters.

        Raises:
            ArgumentError: On the CPU: there are no rows, an id is negative, or a length is not from 1 to S; on every
                device: the lengths are not one a row, or the encoder needs the characters.
        """
        check_sources(source, lengths)
        return self.forward_embedded(self.embed(source, characters), source, lengths)

    def embed(self, source: Int[Tensor, "B S"], characters: WordCharacters | None = None) -> InputVectors:
        """Return the vectors of the ids, and with characters also those of the words, with dropout in training.

        Args:
            source: Ids of each source, features first.
            characters: Characters of the words of the sources; not read by an encoder without characters.

        Raises:
            ArgumentError: The encoder needs the characters.
        """
        known = self._drop_contexts(self.oov_to_unk(source))
        if self.characters is None:
            return self.table.embed(known, self.table.draw_dropped_symbols(len(source)))
        if characters is None or characters.word_rows.shape != source.shape:
            raise ArgumentError(
                f"characters: expected the word at each position of {len(source)} sources, which "
                f"encoder.characters = {quote(self.config.characters)} reads"
            )
        is_word = known < self.symbols
        if self.training:
            is_dropped = torch.rand(source.shape, device=source.device) < self.config.word_dropout
            known = torch.where(is_dropped & self.is_single[known], UNK, known)
        vectors = self.table.embed(known, self.table.draw_dropped_symbols(len(source))).to_dense()
        spelled = self._apply_dropout(self.characters(characters)) * is_word[:, :, None]
        return InputVectors(torch.cat([vectors, spelled], dim=2))

    def _drop_contexts(self, source: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """Return the ids, in training with words of the context at random positions read as the unknown feature."""
        if not (self.training and self.context_dropout):
            return source
        is_dropped = torch.rand(source.shape, device=source.device) < self.context_dropout
        return torch.where(is_dropped & (source >= self.symbols), self.symbols + UNK, source)

    def oov_to_unk(self, source: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """Return the ids, with UNK for ids outside the table, which only a decoder with a pointer-generator reads.

        Args:
            source: Ids of each source.
        """
        return torch.where(source < len(self.table.weight), source, UNK)

    def forward_embedded(self, inputs: InputVectors, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """Encode pre-embedded inputs, as `forward` does after the embedding.

        Args:
            inputs: Vectors of each source.
            source: Ids of each source, which select features to sum and are stored in the memory.
            lengths: Number of real positions of each row.
        """
        inputs, source, lengths = self.prepare_inputs(inputs, source, lengths)
        states = inputs.vectors
        finals: list[Float[Tensor, "B D"]] = []
        for layer in range(self.config.num_layers):
            states, final = self.forward_layer(layer, inputs, states, lengths)
            inputs = InputVectors(self._apply_dropout(states))
            finals.append(final)
        return Memory(inputs.vectors, lengths, DecoderState(torch.stack(finals, dim=1)), source)

    def prepare_inputs(
        self, inputs: InputVectors, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
    ) -> tuple[InputVectors, Int[Tensor, "B S"], Int[Tensor, " B"]]:
        """Return the inputs of the first recurrent layer, with their ids and lengths.

        Summed features are added to the vectors of the symbols and lose their positions; then convolutions are applied.

        Args:
            inputs: Vectors of each source.
            source: Ids of each source.
            lengths: Number of real positions of each row.
        """
        if self.config.feature_merge == "sum":
            inputs, source, lengths = _sum_features(inputs, source, lengths, self.oov_to_unk(source) >= self.symbols)
        if self.convolutions is not None:
            inputs = InputVectors(self._apply_dropout(self.convolutions(inputs.to_dense(), lengths)))
        return inputs, source, lengths

    def forward_layer(
        self, layer: int, inputs: InputVectors, residual: Float[Tensor, "*rows E"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
        """Run one layer and return its states, both directions merged, and its final state.

        States are normalized and have the residual added, if so configured; the final state has neither.

        Args:
            layer: Index of the layer, from the bottom.
            inputs: Inputs of the layer, with dropout.
            residual: Inputs of the layer, without dropout; read by residual layers above the first.
            lengths: Number of real positions of each row.
        """
        output = self._run(self.cells(layer), inputs, lengths)
        layer_states = _normalized(self.normalizations[layer], self._merge(output.states), lengths)
        return residual + layer_states if self.config.residual and layer else layer_states, self._merge(output.final)

    def cells(self, layer: int) -> list[RecurrentCell]:
        """Return the cell of each direction of a layer, forward first; one cell if the encoder is unidirectional.

        Args:
            layer: Index of the layer.
        """
        return [stack[layer] for stack in (self.forward_cells, self.backward_cells) if len(stack)]

    def _run(self, cells: list[RecurrentCell], inputs: InputVectors, lengths: Int[Tensor, " B"]) -> RecurrentOutput:
        """Run the cells of a layer over all rows, with recurrent dropout in training."""
        if not self.training:
            return run_rnn(cells, inputs, lengths)
        return run_rnn(
            cells,
            inputs,
            lengths,
            draw_recurrent_masks([cell.hidden_weight for cell in cells], len(lengths), self.config),
        )

    def _apply_dropout(self, states: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Return the states with dropout, in training: by position, or of the same units along a sequence."""
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


def check_sources(source: Tensor, lengths: Tensor) -> None:
    """Check that a batch has rows, no negative ids, and for each row a length from 1 to S.

    Kernels read memory by these numbers unchecked. On a GPU only shapes are checked: the values would have to be
    copied.

    Args:
        source: Ids of each source.
        lengths: Number of real positions of each row.

    Raises:
        ArgumentError: One of these is wrong.
    """
    if source.dim() != 2 or not source.numel():
        raise ArgumentError(f"source: expected at least one row of at least one id, got shape {tuple(source.shape)}")
    if lengths.shape != source.shape[:1]:
        raise ArgumentError(f"lengths: expected one per source ({len(source)}), got shape {tuple(lengths.shape)}")
    if source.device.type != "cpu" or lengths.device.type != "cpu":
        return
    shortest, longest = (int(bound) for bound in lengths.aminmax())
    if shortest < 1 or longest > source.shape[1]:
        wrong = shortest if shortest < 1 else longest
        raise ArgumentError(f"lengths: expected whole numbers from 1 to {source.shape[1]}, got {wrong}")
    if (least := int(source.min())) < 0:
        raise ArgumentError(f"source: expected ids of at least 0, got {least}")


def _sum_features(
    inputs: InputVectors, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], features: Bool[Tensor, "B S"]
) -> tuple[InputVectors, Int[Tensor, "B S"], Int[Tensor, " B"]]:
    """Return the symbols, from position 0 on, each plus the sum of its row's features; with their ids and lengths."""
    vectors = inputs.to_dense()
    counts = features.sum(dim=1)
    positions = torch.arange(source.shape[1], device=source.device)
    indices = (positions + counts[:, None]).clamp(max=source.shape[1] - 1)
    summed = (vectors * features[:, :, None]).sum(dim=1, keepdim=True)
    combined = vectors.gather(1, indices[:, :, None].expand_as(vectors)) + summed
    return InputVectors(combined), source.gather(1, indices), lengths - counts


def _normalized(normalization: nn.Module, states: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]) -> Tensor:
    """Return normalized states, still zero beyond each row's length."""
    if isinstance(normalization, nn.Identity):
        return states
    normalized: Tensor = normalization(states)
    return normalized * length_mask(lengths, states.shape[1])[:, :, None]
