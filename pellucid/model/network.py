"""Networks: their base class, the encoder-decoder, and the parts that the networks of all tasks are built from."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pellucid.config.settings import AttentionConfig, Config, DecoderConfig, has_source_features, memory_size
from pellucid.data.batches import Batch
from pellucid.data.extended_vocabulary import target_ids_of_source_ids
from pellucid.data.vocabulary import BOS, NUM_SPECIAL, UNK, Vocabularies
from pellucid.errors import ArgumentError, InputError
from pellucid.model.character_encoder import empty_words
from pellucid.model.decoder import AttendThenStep, Decoder, DecoderSizes, StepThenAttend
from pellucid.model.encoder import Encoder
from pellucid.model.memory import NetworkOutput, SampledOutputs
from pellucid.shapes import Int


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
    def forward(self, batch: Batch) -> NetworkOutput:
        """Return the logits of every output symbol of a batch, as the loss needs them.

        Args:
            batch: Sources and targets.
        """

    def _empty_output(self, batch: Batch) -> NetworkOutput:
        """Return the output of a batch without rows: that of one row of the same width, without this row."""
        source, target = (ids.new_full((1, max(1, ids.shape[1])), UNK) for ids in (batch.source, batch.target))
        lengths = [ids.new_full((1,), ids.shape[1]) for ids in (source, target)]
        characters = None if batch.characters is None else empty_words(source)
        output: NetworkOutput = self(Batch(source, lengths[0], target, lengths[1], characters))
        empty: dict[str, Any] = {
            name: None if values is None else values[:0] for name, values in output._asdict().items() if name != "state"
        }
        return output._replace(state=output.state.index_select(target.new_empty(0)), **empty)


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

    def forward(self, batch: Batch, sampled_symbols: Int[Tensor, " C"] | None = None) -> NetworkOutput:
        """Return every target symbol's logits given the source and the true previous symbols (teacher forcing).

        Args:
            batch: Sources and targets; without rows, the output has none.
            sampled_symbols: Distinct target ids, in ascending order: only their logits and those of the targets are
                computed (sampled softmax). By default, those of all symbols.

        Raises:
            ArgumentError: On the CPU: a length is not from 1 to S, or an id is out of range.
        """
        self._check_target(batch)
        if not len(batch.source):
            return self._empty_output(batch)
        memory = self.encoder(batch.source, batch.source_lengths, batch.characters)
        state = self.decoder.init_state(memory)
        cache = self.decoder.build_cache(memory)
        if sampled_symbols is not None:
            cache = cache._replace(sampled_outputs=SampledOutputs(batch.target, sampled_symbols))
        return self.decoder.unroll(shift_right(batch.target), state, cache)

    def _check_target(self, batch: Batch) -> None:
        """Check the target ids, by which kernels read memory; ids of the vocabulary size and above denote copies."""
        target = batch.target
        if target.dim() != 2 or len(target) != len(batch.source):
            expected = f"one row per source ({len(batch.source)})"
            raise ArgumentError(f"target: expected {expected}, got shape {tuple(target.shape)}")
        if target.device.type != "cpu" or not target.numel():
            return
        least, greatest = (int(bound) for bound in target.aminmax())
        if least < 0 or (self.decoder.copying is None and greatest >= self.vocabulary_size):
            wrong = least if least < 0 else greatest
            raise ArgumentError(f"target: expected ids from 0 to {self.vocabulary_size - 1}, got {wrong}")


def require_encoder_decoder(network: Network) -> EncoderDecoder:
    """Return the network unchanged if it is an encoder-decoder.

    Args:
        network: Any network.

    Raises:
        InputError: The network is not an `EncoderDecoder`, such as that of a tagger.
    """
    if not isinstance(network, EncoderDecoder):
        raise InputError(
            f"this is for outputs written symbol by symbol, which a {type(network).__name__} does not produce"
        )
    return network


def shift_right(target: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Return the decoder's inputs: BOS, then all target symbols but the last.

    Args:
        target: Target ids.
    """
    return torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)


class NetworkParts(NamedTuple):
    """Arguments of `Task.build_network`: what the networks of all tasks are built from."""

    config: Config
    encoder: Encoder
    sizes: DecoderSizes
    """Sizes of the encoder's states and of the target vocabulary, and the target id of each source id."""
    vocabularies: Vocabularies


def build_parts(config: Config, vocabularies: Vocabularies) -> NetworkParts:
    """Return a new encoder with random parameters, and the sizes that the rest of the network needs.

    Args:
        config: The configuration.
        vocabularies: Vocabularies of sources, features and targets.
    """
    features = len(vocabularies.features) if has_source_features(config) else 0
    symbols = len(vocabularies.source)
    single_words = [index for index, count in enumerate(vocabularies.source.counts, NUM_SPECIAL) if count == 1]
    encoder = Encoder(
        config.encoder,
        symbols + features,
        symbols,
        len(vocabularies.characters),
        single_words,
        config.encoder.context_dropout if config.data.context_words else 0.0,
    )
    copies = config.decoder.pointer_generator
    source_to_target = torch.tensor(target_ids_of_source_ids(vocabularies)) if copies else None
    sizes = DecoderSizes(memory_size(config.encoder), len(vocabularies.target), source_to_target)
    return NetworkParts(config, encoder, sizes, vocabularies)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's random number generator of the CPU within the block, and restore its state afterwards.

    Args:
        seed: The seed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed imports modules for a second
        yield


def build_decoder(config: DecoderConfig, attention: AttentionConfig, sizes: DecoderSizes) -> Decoder:
    """Return a new decoder with random parameters, of the class that `config.order` names.

    Args:
        config: Configuration of the decoder.
        attention: Configuration of the attention.
        sizes: Sizes of memory and vocabulary.
    """
    match config.order:
        case "attend-then-step":
            return AttendThenStep(config, attention, sizes)
        case "step-then-attend":
            return StepThenAttend(config, attention, sizes)


def parameter_count(network: nn.Module) -> int:
    """Return the number of trainable parameters.

    Args:
        network: The network.
    """
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
