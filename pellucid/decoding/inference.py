"""Hypotheses of a search, for one network or an ensemble: their start and the step interface.

B sources, b active sources, R hypotheses (a multiple of b; those of one source are adjacent), S source positions, V
symbols that can be written (with copying, source positions follow the vocabulary), U source symbols, N attention heads,
M members of an ensemble.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor

from pellucid.argument_checks import convert_argument
from pellucid.data.characters import WordCharacters
from pellucid.decoding.outputs import mixed_copying_error
from pellucid.decoding.topk import suppressed_symbols
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError
from pellucid.model.decoder import Decoder
from pellucid.model.memory import DecoderCache, DecoderState, Memory
from pellucid.model.network import Network, require_encoder_decoder
from pellucid.shapes import Bool, Float, Int


class StepOutput(NamedTuple):
    """Output of one decoder step of all hypotheses."""

    logits: Float[Tensor, "R V"]
    """Logits of the next symbols, not normalized; of an ensemble, the logarithm of the mean probability."""
    weights: Float[Tensor, "R S"]
    """Attention weights."""
    after: "Inference"
    """The hypotheses after this step."""
    heads: Float[Tensor, "R N S"] | None = None
    """Attention weights of each of N heads; None for one head, and for ensembles."""


@runtime_checkable
class Inference(Protocol):
    """Active hypotheses with their sources: an immutable value."""

    def step(self, symbols: Int[Tensor, " R"], forced_weights: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Run one decoder step.

        Args:
            symbols: Previous symbol of each hypothesis.
            forced_weights: Attention weights that replace the model's; None for its own.
        """

    def index_select(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "Inference":
        """Select hypotheses and sources, in the given order.

        Args:
            hypotheses: Rows of the selected hypotheses, equally many for each source and adjacent; a row may be
                repeated.
            sources: Rows of the sources that stay; None for all.
        """


class SingleModelInference(NamedTuple):
    """Hypotheses of one network: its decoder, their states, and the attention cache of their sources."""

    decoder: Decoder
    state: DecoderState
    cache: DecoderCache

    def step(self, symbols: Int[Tensor, " R"], forced_weights: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Run one decoder step, in a kernel if the memory was prepared for one and no weights are forced.

        Args:
            symbols: Previous symbol of each hypothesis.
            forced_weights: Attention weights that replace the model's; None for its own.
        """
        output = self.decoder.step(symbols, self.state, self.cache, forced_weights)
        return StepOutput(
            output.logits, output.attention.weights, self._replace(state=output.state), output.attention.heads
        )

    def index_select(
        self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None
    ) -> "SingleModelInference":
        """Select rows of the state and of the memory.

        Args:
            hypotheses: Rows of the hypotheses.
            sources: Rows of their sources; None for all sources.
        """
        cache = self.cache if sources is None else self.cache.index_select(sources)
        return SingleModelInference(self.decoder, self.state.index_select(hypotheses), cache)


class ReorderedInference(NamedTuple):
    """Hypotheses of a network whose target ids are in a different order from those of the ensemble."""

    inference: Inference
    id_map: Int[Tensor, " V"]
    """The network's id of each target id of the ensemble; ids of V and above (copied positions) are equal in both."""

    def step(self, symbols: Int[Tensor, " R"], forced_weights: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Run the network's step, and reorder its logits.

        Args:
            symbols: Previous symbol of each hypothesis, in the ids of the ensemble.
            forced_weights: Attention weights that replace the model's; None for its own.
        """
        output = self.inference.step(_map_ids(symbols, self.id_map), forced_weights)
        position_ids = torch.arange(len(self.id_map), output.logits.shape[1], device=symbols.device)
        return output._replace(
            logits=output.logits[:, torch.cat([self.id_map, position_ids])], after=self._replace(inference=output.after)
        )

    def index_select(
        self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None
    ) -> "ReorderedInference":
        """Select hypotheses of the network.

        Args:
            hypotheses: Rows of the hypotheses.
            sources: Rows of their sources; None for all sources.
        """
        return self._replace(inference=self.inference.index_select(hypotheses, sources))


class EnsembleInference(NamedTuple):
    """Hypotheses of several networks that decode together.

    Probabilities and attention weights are the means of the members'.
    """

    members: tuple[Inference, ...]

    def step(self, symbols: Int[Tensor, " R"], forced_weights: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Run one decoder step in every member; the logits are the logarithm of the mean of their probabilities.

        Each member's probabilities are normalized over the symbols that can be written (not PAD, BOS or UNK).

        Args:
            symbols: Previous symbol of each hypothesis.
            forced_weights: Attention weights that replace those of all members; None for their own.

        Raises:
            RunError: The members have different numbers of symbols, because only some of them copy from the source.
        """
        outputs = [member.step(symbols, forced_weights) for member in self.members]
        if len({output.logits.shape[1] for output in outputs}) > 1:
            raise mixed_copying_error()
        suppressed = suppressed_symbols(outputs[0].logits.shape[1], outputs[0].logits.device)
        log_probabilities = torch.stack([_normalize_writable(output.logits, suppressed) for output in outputs])
        weights = torch.stack([output.weights for output in outputs]).mean(dim=0)
        after = EnsembleInference(tuple(output.after for output in outputs))
        return StepOutput(log_mean_exp(log_probabilities), weights, after)

    def index_select(
        self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None
    ) -> "EnsembleInference":
        """Select rows of every member.

        Args:
            hypotheses: Rows of the hypotheses.
            sources: Rows of their sources; None for all sources.
        """
        return EnsembleInference(tuple(member.index_select(hypotheses, sources) for member in self.members))


def encode_and_initialize(
    network: Network,
    source: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    masked_positions: Sequence[int] = (),
    characters: WordCharacters | None = None,
) -> SingleModelInference:
    """Encode the sources and return one empty hypothesis per source.

    Args:
        network: Trained encoder-decoder.
        source: Source ids.
        lengths: Source lengths.
        masked_positions: Source positions that attention must ignore, in every source; empty if there is none.
        characters: Characters of the source words; None, the default, for a network that reads none.

    Raises:
        InputError: The network is not an encoder-decoder.
    """
    return initialize_from_memory(network, network.encoder(source, lengths, characters), masked_positions)


def initialize_from_memory(
    network: Network, memory: Memory, masked_positions: Sequence[int] = ()
) -> SingleModelInference:
    """Return one empty hypothesis per source of an encoded memory.

    Args:
        network: Trained encoder-decoder.
        memory: Encoder output.
        masked_positions: Source positions that attention must ignore, in every source; empty if there is none.

    Raises:
        InputError: The network is not an encoder-decoder.
    """
    if masked_positions:
        ignored = torch.zeros(memory.states.shape[:2], dtype=torch.bool, device=memory.states.device)
        ignored[:, list(masked_positions)] = True
        memory = memory._replace(ignored=ignored)
    decoder = require_encoder_decoder(network).decoder
    return SingleModelInference(decoder, decoder.init_state(memory), decoder.build_cache(memory))


def _map_ids(symbols: Int[Tensor, "*shape"], id_map: Int[Tensor, " V"]) -> Int[Tensor, "*shape"]:
    """Map ids; ids beyond the map stay unchanged."""
    return torch.where(symbols < len(id_map), id_map[symbols.clamp(max=len(id_map) - 1)], symbols)


def log_mean_exp(log_probabilities: Float[Tensor, "M *shape"]) -> Float[Tensor, "*shape"]:
    """Return the logarithm of the mean probability over M members; where all are zero, the gradient is zero.

    Args:
        log_probabilities: Logarithms of the probabilities of each member.
    """
    num_members = len(log_probabilities)
    if not log_probabilities.requires_grad:
        return log_probabilities.logsumexp(dim=0) - math.log(num_members)
    # The gradient of logsumexp is not a number where all terms are zero. Decoding needs no gradient, and returns above.
    is_zero = (log_probabilities == -torch.inf).all(dim=0)
    mean = log_probabilities.masked_fill(is_zero, 0.0).logsumexp(dim=0) - math.log(num_members)
    return mean.masked_fill(is_zero, -torch.inf)


def _normalize_writable(logits: Float[Tensor, "R V"], suppressed: Bool[Tensor, " V"]) -> Float[Tensor, "R V"]:
    """Return logits normalized over the symbols that can be written; other symbols keep their odds against them."""
    return logits - logits.masked_fill(suppressed, -torch.inf).logsumexp(dim=-1, keepdim=True)


class EnsembleMembers(NamedTuple):
    """Networks of an ensemble, with the id maps of each."""

    networks: tuple[Network, ...]
    source_id_maps: tuple[Int[Tensor, " U"], ...]
    """For each member, its source id of every source id of the ensemble.

    A member that copies has two other kinds of ids, for symbols that only other members know: its copy offset + t for
    one with the target id t, and −V for one that it copies by its first position, as target id V + p.
    """
    copy_offsets: tuple[int, ...]
    """For each member, the number of its source ids. This number + t denotes an unknown symbol with the target id t.

    The ensemble's own number is the length of each of `source_id_maps`.
    """
    target_id_maps: tuple[Int[Tensor, " V"] | None, ...]
    """For each member, its id of every target id of the ensemble; None if they are equal."""
    pair_ngram_weights: tuple[float, ...]
    """For each member, the weight of its pair n-gram model; 0 for a member without one."""
    character_id_maps: tuple[Int[Tensor, " K"], ...]
    """For each member, its id of every character of the ensemble."""

    def initialize(
        self,
        source: Int[Tensor, "B S"],
        lengths: Int[Tensor, " B"],
        masked_positions: Sequence[int] = (),
        characters: WordCharacters | None = None,
    ) -> EnsembleInference:
        """Encode the sources and return one empty hypothesis per source, in every member.

        Args:
            source: Source ids of the ensemble.
            lengths: Source lengths.
            masked_positions: Source positions that attention must ignore, in every source; empty if there is none.
            characters: Characters of the source words, in ids of the ensemble; None, the default, for members that read
                none.

        Raises:
            InputError: A network is not an encoder-decoder.
        """
        members = zip(self.networks, self.map_source_ids(source), self.map_characters(characters), strict=True)
        return self.combine(
            [encode_and_initialize(network, ids, lengths, masked_positions, words) for network, ids, words in members]
        )

    def map_characters(self, characters: WordCharacters | None) -> list[WordCharacters | None]:
        """Translate the ids of characters of the ensemble to those of each member.

        Args:
            characters: Characters of the source words; None for members that read none.
        """
        if characters is None:
            return [None] * len(self.networks)
        return [characters._replace(ids=id_map[characters.ids]) for id_map in self.character_id_maps]

    def combine(self, members: Sequence[SingleModelInference]) -> EnsembleInference:
        """Combine the hypotheses of the networks, reordering the target ids of networks with another order.

        Args:
            members: Hypotheses of each network, in the order of `networks`.
        """
        pairs = zip(members, self.target_id_maps, strict=True)
        return EnsembleInference(
            tuple(member if id_map is None else ReorderedInference(member, id_map) for member, id_map in pairs)
        )

    def map_source_ids(self, source: Int[Tensor, "B S"]) -> list[Int[Tensor, "B S"]]:
        """Translate the source ids of the ensemble to those of each member.

        Args:
            source: Source ids of the ensemble.
        """
        id_maps = zip(self.source_id_maps, self.copy_offsets, self.target_id_maps, strict=True)
        members = [
            (map_source_ids(source, source_id_map, copy_offset, target_id_map), copy_offset)
            for source_id_map, copy_offset, target_id_map in id_maps
        ]
        if not any((ids < 0).any() for ids, _ in members):
            return [ids for ids, _ in members]
        first_position = (source[:, :, None] == source[:, None, :]).int().argmax(dim=2)
        return [torch.where(ids < 0, copy_offset - ids + first_position, ids) for ids, copy_offset in members]


NO_MEMBERS = EnsembleMembers((), (), (), (), (), ())


def check_members(members: object) -> None:
    """Check that an argument is an `EnsembleMembers` whose fields are tuples of equal length.

    Args:
        members: The argument.

    Raises:
        ArgumentError: It is of another type, a field is not a tuple, the fields differ in length, or an item of
            `networks` is not a `Network`.
    """
    hint = "; pellucid.load([...]) makes an ensemble of run folders"
    if not issubclass(type(members), EnsembleMembers):
        raise ArgumentError(f"members: expected EnsembleMembers, got {describe_value(members)}{hint}")
    fields = cast(EnsembleMembers, members)
    if not all(issubclass(type(field), tuple) for field in fields) or len({len(field) for field in fields}) > 1:
        raise ArgumentError(f"members: expected three id maps, an offset and a weight for each network{hint}")
    for index, network in enumerate(fields.networks):
        convert_argument(f"members.networks[{index}]", network, Network)


def map_source_ids(
    source: Int[Tensor, "*shape"],
    source_id_map: Int[Tensor, " U"],
    copy_offset: int,
    target_id_map: Int[Tensor, " V"] | None,
) -> Int[Tensor, "*shape"]:
    """Return one member's ids of source ids.

    Args:
        source: Source ids of the ensemble. Negative ones are not changed.
        source_id_map: The member's id of each of them (`EnsembleMembers.source_id_maps`). U + t denotes an unknown
            symbol with the target id t.
        copy_offset: Number of source ids of the member.
        target_id_map: The member's id of every target id; None if they are equal.
    """
    num_known = len(source_id_map)
    target_ids = (source - num_known).clamp(min=0)
    target_ids = target_ids if target_id_map is None else _map_ids(target_ids, target_id_map)
    ids = torch.where(source < num_known, source_id_map[source.clamp(0, num_known - 1)], target_ids + copy_offset)
    return torch.where(source < 0, source, ids)
