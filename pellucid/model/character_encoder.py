"""Vectors of the characters of words: a convolution with a maximum over positions, or a bidirectional GRU.

W distinct words of a batch, C ids of a word, E embedding of a character, F units of a word's vector, N directions,
B batch, S source positions.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from pellucid.config.settings import EncoderConfig
from pellucid.data.characters import WordCharacters
from pellucid.data.vocabulary import BOS, EOS, PAD
from pellucid.model.cells import RecurrentCell
from pellucid.model.embedding import Embedding
from pellucid.model.recurrence import InputVectors, length_mask, run_rnn
from pellucid.shapes import Float, Int

CONVOLUTION_WIDTH = 3
"""Number of characters that a filter covers."""


class CharacterEncoder(nn.Module, ABC):
    """Base of the modules that compute a vector of each distinct word of a batch from its characters."""

    size: int
    """F, the size of the vectors."""

    def __init__(self, num_characters: int, config: EncoderConfig) -> None:
        """Build the embeddings of characters.

        Args:
            num_characters: Number of ids of characters, special ids included.
            config: Configuration of the encoder.
        """
        super().__init__()
        self.table = Embedding("learned", num_characters, config.character_size, config.dropout)

    @abstractmethod
    def encode_words(self, ids: Int[Tensor, "W C"], lengths: Int[Tensor, " W"]) -> Float[Tensor, "W F"]:
        """Return one vector for each word. Ids beyond a word change nothing.

        Args:
            ids: Ids of the characters of each word, between BOS and EOS.
            lengths: Number of ids of each word.
        """

    def forward(self, characters: WordCharacters) -> Float[Tensor, "B S F"]:
        """Return the vector of the word at each position; each distinct word is computed once.

        Args:
            characters: Characters of the words of a batch.
        """
        return nn.functional.embedding(characters.word_rows, self.encode_words(characters.ids, characters.lengths))


class CharacterConvolution(CharacterEncoder):
    """c = max_j (b + Σ_k W_k e_{j+k}), k = −1, 0, 1, over the positions j of BOS, the characters of a word, and EOS.

    W_k e is computed once for each character of the table, and not for each position. Vectors beyond a word are zero.

    References:
        Ma & Hovy 2016, section 2.1.
    """

    def __init__(self, num_characters: int, config: EncoderConfig) -> None:
        """Build the embeddings and the filters.

        Args:
            num_characters: Number of ids of characters, special ids included.
            config: Configuration of the encoder.
        """
        super().__init__(num_characters, config)
        self.size = config.character_size
        self.filters = nn.Linear(self.table.size, CONVOLUTION_WIDTH * self.size, bias=False)
        self.bias = nn.Parameter(torch.zeros(self.size))

    def encode_words(self, ids: Int[Tensor, "W C"], lengths: Int[Tensor, " W"]) -> Float[Tensor, "W F"]:
        """Return the maximum of each filter over the positions of each word.

        Args:
            ids: Ids of the characters of each word, between BOS and EOS.
            lengths: Number of ids of each word.
        """
        projected = self.filters(self.table.vectors()).view(-1, CONVOLUTION_WIDTH, self.size)
        is_padding = (torch.arange(len(projected), device=ids.device) == PAD)[:, None, None]
        projected = projected.masked_fill(is_padding, 0.0)
        mask = length_mask(lengths, ids.shape[1])
        padded = nn.functional.pad(ids.masked_fill(~mask, PAD), (1, 1), value=PAD)
        size = ids.shape[1]
        terms = [
            nn.functional.embedding(padded[:, offset : offset + size], projected[:, offset])
            for offset in range(CONVOLUTION_WIDTH)
        ]
        sums = torch.stack(terms).sum(dim=0).masked_fill(~mask[:, :, None], -torch.inf)
        return sums.amax(dim=1) + self.bias


class CharacterGRU(CharacterEncoder):
    """c = [forward GRU at the last character; backward GRU at the first].

    References:
        Lample et al. 2016, section 4.1, with GRUs in place of LSTMs.
    """

    def __init__(self, num_characters: int, config: EncoderConfig) -> None:
        """Build the embeddings and the cells.

        Args:
            num_characters: Number of ids of characters, special ids included.
            config: Configuration of the encoder.
        """
        super().__init__(num_characters, config)
        self.size = 2 * config.character_size
        self.cells = nn.ModuleList(RecurrentCell("gru", self.table.size, config.character_size) for _ in range(2))

    def encode_words(self, ids: Int[Tensor, "W C"], lengths: Int[Tensor, " W"]) -> Float[Tensor, "W F"]:
        """Return the final states of both directions.

        Args:
            ids: Ids of the characters of each word, between BOS and EOS.
            lengths: Number of ids of each word.
        """
        cells = [cell for cell in self.cells if isinstance(cell, RecurrentCell)]
        final: Float[Tensor, "W N H"] = run_rnn(cells, InputVectors(self.table.vectors(), ids), lengths).final
        return final.flatten(1)


def build_character_encoder(num_characters: int, config: EncoderConfig) -> CharacterEncoder | None:
    """Return a new module that computes the vectors of words from their characters; None without characters.

    Args:
        num_characters: Number of ids of characters, special ids included.
        config: Configuration of the encoder.
    """
    match config.characters:
        case "none":
            return None
        case "convolution":
            return CharacterConvolution(num_characters, config)
        case "gru":
            return CharacterGRU(num_characters, config)


def empty_words(source: Int[Tensor, "B S"]) -> WordCharacters:
    """Return a word without characters for each position of some sources.

    Args:
        source: Source ids, of which only the shape is read.
    """
    ids = source.new_tensor([[BOS, EOS]])
    return WordCharacters(ids, source.new_tensor([ids.shape[1]]), torch.zeros_like(source))
