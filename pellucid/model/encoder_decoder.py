"""The base of all networks, and the encoder-decoder."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Int
from torch import Tensor, nn

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS
from pellucid.errors import InputError
from pellucid.model.decoder import Decoder
from pellucid.model.encoder import Encoder
from pellucid.model.memory import Seq2SeqOutput


class Network(nn.Module, ABC):
    """Base of all networks: an encoder, and a part that computes logits over the target vocabulary."""

    def __init__(self, encoder: Encoder) -> None:
        """Store the encoder.

        Args:
            encoder: The encoder.
        """
        super().__init__()
        self.encoder = encoder

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """Return V, the number of target symbols, special ones included."""

    @abstractmethod
    def forward(self, batch: Batch) -> Seq2SeqOutput:
        """Return the logits of every output symbol of a batch, as the loss needs them.

        Args:
            batch: Sources and targets.
        """


class EncoderDecoder(Network):
    """A recurrent encoder-decoder, with or without attention."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        """Store both parts.

        Args:
            encoder: The encoder.
            decoder: The decoder.
        """
        super().__init__(encoder)
        self.decoder = decoder

    @property
    def vocabulary_size(self) -> int:
        """Return V, the number of target symbols, special ones included."""
        return self.decoder.table.weight.shape[0]

    def forward(self, batch: Batch) -> Seq2SeqOutput:
        """Return every target symbol's logits given the source and the true previous symbols (teacher forcing).

        Args:
            batch: Sources and targets.
        """
        memory = self.encoder(batch.source, batch.source_lengths)
        return self.decoder.unroll(
            shift_right(batch.target), self.decoder.init_hidden(memory), self.decoder.prepare(memory)
        )


def require_seq2seq(network: Network) -> EncoderDecoder:
    """Return the network unchanged if it is an encoder-decoder.

    Args:
        network: Any network.

    Raises:
        InputError: The network is not an `EncoderDecoder`, such as that of a tagger.
    """
    if not isinstance(network, EncoderDecoder):
        raise InputError(f"this is for outputs written symbol by symbol, which a {type(network).__name__} has not")
    return network


def shift_right(target: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Return the decoder's inputs: BOS, then all target symbols but the last.

    Args:
        target: Target ids.
    """
    return torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)
