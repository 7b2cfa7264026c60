"""The step interface of all searches, for one network or an ensemble.

B sources, b active sources, R hypotheses (a multiple of b; those of one source are adjacent), S source positions, V
symbols that can be written (with copying, source positions follow the vocabulary), U source symbols.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.arguments import convert_argument
from pellucid.decoding.outputs import suppressed_symbols
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, RunError
from pellucid.model.decoder import Decoder
from pellucid.model.memory import AttentionCache, Memory, State
from pellucid.model.network import Network, require_seq2seq


class StepOutput(NamedTuple):
    """Output of one decoder step of all hypotheses."""

    logits: Float[Tensor, "R V"]
    weights: Float[Tensor, "R S"]
    after: "Inference"
    heads: Float[Tensor, "R N S"] | None = None
    """Attention weights of each head, for one network with several heads."""


@runtime_checkable
class Inference(Protocol):
    """Active hypotheses with their sources: an immutable value."""

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Run one decoder step on the previous symbols. `override` replaces the attention weights."""

    def take(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "Inference":
        """Select hypotheses, and sources (None: all of them), in the given order."""


class SingleModelInference(NamedTuple):
    """Hypotheses of one network."""

    decoder: Decoder
    state: State
    attendable: AttentionCache

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Run one decoder step, in a kernel if the memory was prepared for one and no weights are forced."""
        step = self.decoder.step(symbols, self.state, self.attendable, override)
        return StepOutput(step.logits, step.attention.weights, self._replace(state=step.state), step.attention.heads)

    def take(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "SingleModelInference":
        """Select rows of the state and of the memory."""
        attendable = self.attendable if sources is None else self.attendable.index_select(sources)
        return SingleModelInference(self.decoder, self.state.index_select(hypotheses), attendable)


class ReorderedInference(NamedTuple):
    """Hypotheses of a network whose target ids are in a different order from those of the ensemble."""

    own: Inference
    table: Int[Tensor, " V"]
    """The network's id of each target id; copy positions follow V in both."""

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Run the network's step, and reorder its logits."""
        seen = self.own.step(_translated(symbols, self.table), override)
        places = torch.arange(len(self.table), seen.logits.shape[1], device=symbols.device)
        return seen._replace(
            logits=seen.logits[:, torch.cat([self.table, places])], after=self._replace(own=seen.after)
        )

    def take(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "ReorderedInference":
        """Select hypotheses of the network."""
        return self._replace(own=self.own.take(hypotheses, sources))


class EnsembleInference(NamedTuple):
    """Hypotheses in several networks. Probabilities and attention weights are the means of the members'."""

    members: tuple[Inference, ...]

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> StepOutput:
        """Return the log of the mean probability, each member normalized over the symbols that can be written.

        Raises:
            RunError: The members have different numbers of symbols.
        """
        seen = [member.step(symbols, override) for member in self.members]
        if len({each.logits.shape[1] for each in seen}) > 1:
            raise RunError("the models do not choose among the same symbols: some copy from the source, others do not")
        never = suppressed_symbols(seen[0].logits.shape[1], seen[0].logits.device).after
        likely = torch.stack([_over_open(each.logits, never) for each in seen])
        weights = torch.stack([each.weights for each in seen]).mean(dim=0)
        after = EnsembleInference(tuple(each.after for each in seen))
        return StepOutput(likely.logsumexp(dim=0) - math.log(len(seen)), weights, after)

    def take(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "EnsembleInference":
        """Select rows of every member."""
        return EnsembleInference(tuple(member.take(hypotheses, sources) for member in self.members))


def encode_and_initialize(
    network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], masked: Sequence[int] = ()
) -> SingleModelInference:
    """Encode the sources and return one empty hypothesis per source.

    Args:
        network: Trained network.
        source: Source ids.
        lengths: Source lengths.
        masked: Source positions that attention must ignore.
    """
    return initialize_from_memory(network, network.encoder(source, lengths), masked)


def initialize_from_memory(network: Network, memory: Memory, masked: Sequence[int] = ()) -> SingleModelInference:
    """Return one empty hypothesis per source of an encoded memory; `masked` as for `encode_and_initialize`."""
    if masked:
        hidden = torch.zeros(memory.states.shape[:2], dtype=torch.bool, device=memory.states.device)
        hidden[:, list(masked)] = True
        memory = memory._replace(masked=hidden)
    decoder = require_seq2seq(network).decoder
    return SingleModelInference(decoder, decoder.init_hidden(memory), decoder.prepare(memory))


def _translated(symbols: Int[Tensor, "*shape"], table: Int[Tensor, " V"]) -> Int[Tensor, "*shape"]:
    """Map ids through a table; ids beyond the table stay unchanged."""
    return torch.where(symbols < len(table), table[symbols.clamp(max=len(table) - 1)], symbols)


def _over_open(logits: Float[Tensor, "R V"], never: Bool[Tensor, " V"]) -> Float[Tensor, "R V"]:
    """Return logits normalized over the symbols that can be written; other symbols keep their odds against them."""
    return logits - logits.masked_fill(never, -torch.inf).logsumexp(dim=-1, keepdim=True)


class EnsembleMembers(NamedTuple):
    """Networks of an ensemble, with the id tables of each."""

    networks: tuple[Network, ...]
    tables: tuple[Int[Tensor, " U"], ...]
    """For each member, its source id of every source id of the ensemble."""
    beyond: tuple[int, ...]
    """For each member, the first source id that denotes a symbol to copy; for the ensemble it is the table size."""
    orders: tuple[Int[Tensor, " V"] | None, ...]
    """For each member, its id of every target id of the ensemble; None if they are equal."""

    def begin(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], masked: Sequence[int] = ()
    ) -> EnsembleInference:
        """Return one empty hypothesis per source, in every member."""
        members = zip(self.networks, self.own(source), strict=True)
        return self.joined([encode_and_initialize(network, ids, lengths, masked) for network, ids in members])

    def joined(self, members: Sequence[SingleModelInference]) -> EnsembleInference:
        """Combine the hypotheses of the networks, reordering target ids where needed."""
        ordered = zip(members, self.orders, strict=True)
        return EnsembleInference(
            tuple(each if order is None else ReorderedInference(each, order) for each, order in ordered)
        )

    def own(self, source: Int[Tensor, "B S"]) -> list[Int[Tensor, "B S"]]:
        """Return each member's source ids."""
        members = zip(self.tables, self.beyond, self.orders, strict=True)
        return [_own(source, table, beyond, order) for table, beyond, order in members]


NO_MEMBERS = EnsembleMembers((), (), (), ())


def check_members(members: object) -> None:
    """Raise an `ArgumentError` for what is no `EnsembleMembers`, and for parts that are not of one length."""
    hint = "; pellucid.load([...]) makes an ensemble of run folders"
    if not issubclass(type(members), EnsembleMembers):
        raise ArgumentError(f"members: expected Members, got {describe_value(members)}{hint}")
    parts = cast(EnsembleMembers, members)
    if not all(issubclass(type(part), tuple) for part in parts) or len({len(part) for part in parts}) > 1:
        raise ArgumentError(f"members: expected a table, an order and an id of each network{hint}")
    for at, network in enumerate(parts.networks):
        convert_argument(f"members.networks[{at}]", network, Network)


def _own(
    source: Int[Tensor, "B S"], table: Int[Tensor, " U"], beyond: int, order: Int[Tensor, " V"] | None
) -> Int[Tensor, "B S"]:
    """Return one member's source ids."""
    known = len(table)
    told = (source - known).clamp(min=0)
    told = told if order is None else _translated(told, order)
    return torch.where(source < known, table[source.clamp(max=known - 1)], told + beyond)


@contextmanager
def evaluation_mode(network: Network) -> Iterator[None]:
    """Keep a network in evaluation mode inside the context, and restore its mode afterwards."""
    if not network.training:
        yield
        return
    network.eval()
    try:
        yield
    finally:
        network.train()


@contextmanager
def evaluation_modes(networks: Sequence[Network]) -> Iterator[None]:
    """Keep several networks in evaluation mode inside the context, and restore their modes afterwards."""
    with ExitStack() as stack:
        for network in networks:
            stack.enter_context(evaluation_mode(network))
        yield
