"""The parts that the networks of all tasks are built from."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from pellucid.config import AttentionConfig, Config, DecoderConfig, memory_size
from pellucid.data.vocabulary import Vocabularies
from pellucid.model.attend_then_step import AttendThenStep
from pellucid.model.copying import copied_ids
from pellucid.model.decoder import Decoder, Sizes
from pellucid.model.encoder import Encoder
from pellucid.model.encoder_decoder import EncoderDecoder, Network, shifted, writing
from pellucid.model.step_then_attend import StepThenAttend

__all__ = [
    "EncoderDecoder",
    "Network",
    "NetworkParts",
    "build_decoder",
    "build_parts",
    "parameter_count",
    "seeded",
    "shifted",
    "tagged",
    "writing",
]


class NetworkParts(NamedTuple):
    """What the network of every task begins with."""

    config: Config
    encoder: Encoder
    sizes: Sizes
    """Of the encoder's states and of the target vocabulary."""


def build_parts(config: Config, vocabularies: Vocabularies) -> NetworkParts:
    """Return a new encoder, and the sizes that the rest of the network needs."""
    features = len(vocabularies.features) if tagged(config) else 0
    symbols = len(vocabularies.source)
    encoder = Encoder(config.encoder, symbols + features, symbols)
    targets = copied_ids(vocabularies) if config.decoder.copying else None
    return NetworkParts(config, encoder, Sizes(memory_size(config.encoder), len(vocabularies.target), targets))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, random numbers of the processor are a function of the seed; those outside do not notice."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed imports what takes a second
        yield


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
