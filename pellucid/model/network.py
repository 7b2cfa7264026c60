"""The assembly: encoder and decoder, built from a configuration and the sizes of the vocabularies."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from pellucid.config import AttentionConfig, Config, DecoderConfig, memory_size
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, Vocabularies
from pellucid.model.attend_then_step import AttendThenStep
from pellucid.model.copying import copied_ids
from pellucid.model.decoder import Decoder, Sizes
from pellucid.model.encoder import Encoder
from pellucid.model.memory import Unrolled
from pellucid.model.step_then_attend import StepThenAttend


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


def build_network(config: Config, vocabularies: Vocabularies) -> Network:
    """A new network; its parameters are a function of the configuration's seed and nothing else."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)  # torch.manual_seed imports what takes a second
        features = len(vocabularies.features) if tagged(config) else 0
        symbols = len(vocabularies.source)
        encoder = Encoder(config.encoder, symbols + features, symbols)
        targets = copied_ids(vocabularies) if config.decoder.copying else None
        sizes = Sizes(memory_size(config.encoder), len(vocabularies.target), targets)
        return Network(encoder, build_decoder(config.decoder, config.attention, sizes))


def tagged(config: Config) -> bool:
    """Whether sources have tags beside them: the file's, or the one of copied words."""
    return bool(config.data.features_column) or config.training.augmentation == "copy"


def build_decoder(config: DecoderConfig, attention: AttentionConfig, sizes: Sizes) -> Decoder:
    """The decoder whose order a configuration names."""
    match config.order:
        case "attend-then-step":
            return AttendThenStep(config, attention, sizes)
        case "step-then-attend":
            return StepThenAttend(config, attention, sizes)


def parameter_count(network: nn.Module) -> int:
    """How many numbers training may change."""
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
