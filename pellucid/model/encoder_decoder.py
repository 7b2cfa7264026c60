"""The encoder-decoder: what reads, and what writes symbol by symbol."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS
from pellucid.model.decoder import Decoder
from pellucid.model.encoder import Encoder
from pellucid.model.memory import Unrolled


class Network(nn.Module):
    """A recurrent encoder-decoder with attention."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        """Hold the two halves."""
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    @property
    def vocabulary_size(self) -> int:
        """V, how many target symbols there are, the special ones included."""
        return self.decoder.table.weight.shape[0]

    def forward(self, batch: Batch) -> Unrolled:
        """Every target symbol's logits given the source and the true symbols before it (teacher forcing)."""
        memory = self.encoder(batch.source, batch.source_lengths)
        return self.decoder.unroll(shifted(batch.target), self.decoder.start(memory), self.decoder.prepare(memory))


def shifted(target: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """What is fed back when a target was written so far: BOS, then all symbols but the last."""
    return torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)
