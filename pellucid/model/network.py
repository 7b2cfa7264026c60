"""The assembly: a network built from a configuration and the sizes of the vocabularies."""

import msgspec
import torch
from torch import nn

from pellucid.config import AttentionConfig, Config, DecoderConfig, memory_size
from pellucid.data.vocabulary import SPECIAL, Vocabularies
from pellucid.model.attend_then_step import AttendThenStep
from pellucid.model.copying import copied_ids
from pellucid.model.decoder import Decoder, Sizes, build_attention
from pellucid.model.encoder import Encoder
from pellucid.model.encoder_decoder import EncoderDecoder, Network, shifted, writing
from pellucid.model.heads import PositionTag
from pellucid.model.reader import Classifier, Pointer, Query, Reader, Tagger
from pellucid.model.step_then_attend import StepThenAttend

__all__ = [
    "EncoderDecoder",
    "Network",
    "build_decoder",
    "build_meta_network",
    "build_network",
    "parameter_count",
    "shifted",
    "tagged",
    "writing",
]


def build_network(config: Config, vocabularies: Vocabularies) -> Network:
    """A new network; its parameters are a function of the configuration's seed and nothing else."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)  # torch.manual_seed imports what takes a second
        features = len(vocabularies.features) if tagged(config) else 0
        symbols = len(vocabularies.source)
        encoder = Encoder(config.encoder, symbols + features, symbols)
        targets = copied_ids(vocabularies) if config.decoder.copying else None
        sizes = Sizes(memory_size(config.encoder), len(vocabularies.target), targets)
        if config.task != "transduce":
            return build_reader(config, encoder, sizes)
        return EncoderDecoder(encoder, build_decoder(config.decoder, config.attention, sizes))


def build_meta_network(config: Config, vocabularies: Vocabularies) -> Network:
    """Return a network of names and shapes alone, on the meta device: no memory is taken, no number is drawn."""
    with torch.device("meta"):
        return build_network(config, vocabularies)


def build_reader(config: Config, encoder: Encoder, sizes: Sizes) -> Reader:
    """The network of a task in which nothing is written symbol by symbol."""
    decoder = config.decoder
    match config.task:
        case "classify":
            silent = msgspec.structs.replace(decoder, embedding="none")
            return Classifier(encoder, build_decoder(silent, config.attention, sizes), decoder.steps)
        case "point":
            query = Query(decoder.start, sizes.memory, decoder.hidden_size)
            attention = build_attention(config.attention, decoder.hidden_size, sizes.memory)
            return Pointer(encoder, query, attention, sizes.vocabulary - SPECIAL)
        case _:
            return Tagger(encoder, PositionTag(sizes.memory, sizes.vocabulary))


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
