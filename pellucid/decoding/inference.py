"""What a search needs to know of what writes: a step, and a choice of rows. One network, or several that write as one.

B sources, b of them that still run, R hypotheses (a multiple of b: those of a source one after the other), S source
positions, V symbols that can be written (with copying, positions of the source after the vocabulary), U symbols read.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.arguments import convert_argument
from pellucid.decoding.outputs import closed_symbols
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, RunError
from pellucid.model.decoder import Decoder
from pellucid.model.memory import AttentionCache, Memory, State
from pellucid.model.network import Network, require_seq2seq


class Seen(NamedTuple):
    """What one step of all hypotheses gives."""

    logits: Float[Tensor, "R V"]
    weights: Float[Tensor, "R S"]
    after: "Running"
    heads: Float[Tensor, "R N S"] | None = None
    """The weights of each head, of one network with several."""


@runtime_checkable
class Running(Protocol):
    """Hypotheses under way with the sources they are of: a value, which a step does not change."""

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> Seen:
        """One step from the symbols written last; `override` forces its attention weights."""

    def take(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "Running":
        """The chosen hypotheses, in their order, of the chosen sources (None: of all of them)."""


class Alone(NamedTuple):
    """Hypotheses of one network."""

    decoder: Decoder
    state: State
    attendable: AttentionCache

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> Seen:
        """The decoder's own step, by a kernel where the memory was laid out for one and no weights are forced."""
        step = self.decoder.step(symbols, self.state, self.attendable, override)
        return Seen(step.logits, step.attended.weights, self._replace(state=step.state), step.attended.heads)

    def take(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "Alone":
        """The rows of the state, and those of the memory."""
        attendable = self.attendable if sources is None else self.attendable.index_select(sources)
        return Alone(self.decoder, self.state.index_select(hypotheses), attendable)


class Reordered(NamedTuple):
    """Hypotheses of one network whose target symbols stand in another order than those that are written."""

    own: Running
    table: Int[Tensor, " V"]
    """The network's own id of each id that is written; places to copy from follow V in both."""

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> Seen:
        """The network's own step, its logits in the order of what is written."""
        seen = self.own.step(_translated(symbols, self.table), override)
        places = torch.arange(len(self.table), seen.logits.shape[1], device=symbols.device)
        return seen._replace(
            logits=seen.logits[:, torch.cat([self.table, places])], after=self._replace(own=seen.after)
        )

    def take(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "Reordered":
        """The network's own."""
        return self._replace(own=self.own.take(hypotheses, sources))


class Together(NamedTuple):
    """The same hypotheses in several networks: p = mean of the members' p, and attention the mean of theirs."""

    members: tuple[Running, ...]

    def step(self, symbols: Int[Tensor, " R"], override: Float[Tensor, "R S"] | None = None) -> Seen:
        """ln of the mean of the members' p over what can be written at all, each a distribution of its own.

        Forced weights are the same for all of them. `RunError` where they do not choose among the same symbols.
        """
        seen = [member.step(symbols, override) for member in self.members]
        if len({each.logits.shape[1] for each in seen}) > 1:
            raise RunError("the models do not choose among the same symbols: some copy from the source, others do not")
        never = closed_symbols(seen[0].logits.shape[1], seen[0].logits.device).after
        likely = torch.stack([_over_open(each.logits, never) for each in seen])
        weights = torch.stack([each.weights for each in seen]).mean(dim=0)
        after = Together(tuple(each.after for each in seen))
        return Seen(likely.logsumexp(dim=0) - math.log(len(seen)), weights, after)

    def take(self, hypotheses: Int[Tensor, " R"], sources: Int[Tensor, " b"] | None = None) -> "Together":
        """The rows of every member."""
        return Together(tuple(member.take(hypotheses, sources) for member in self.members))


def begin(
    network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], masked: Sequence[int] = ()
) -> Alone:
    """One empty hypothesis a source: the memory, some of its positions hidden, and the decoder's first state."""
    return over(network, network.encoder(source, lengths), masked)


def over(network: Network, memory: Memory, masked: Sequence[int] = ()) -> Alone:
    """The same over a memory."""
    if masked:
        hidden = torch.zeros(memory.states.shape[:2], dtype=torch.bool, device=memory.states.device)
        hidden[:, list(masked)] = True
        memory = memory._replace(masked=hidden)
    decoder = require_seq2seq(network).decoder
    return Alone(decoder, decoder.init_hidden(memory), decoder.prepare(memory))


def _translated(symbols: Int[Tensor, "*shape"], table: Int[Tensor, " V"]) -> Int[Tensor, "*shape"]:
    """The table's id of each symbol; what is beyond the table stays as it is."""
    return torch.where(symbols < len(table), table[symbols.clamp(max=len(table) - 1)], symbols)


def _over_open(logits: Float[Tensor, "R V"], never: Bool[Tensor, " V"]) -> Float[Tensor, "R V"]:
    """ln p of what can be written; the other symbols keep their odds against it, for targets that hold unknown ones."""
    return logits - logits.masked_fill(never, -torch.inf).logsumexp(dim=-1, keepdim=True)


class Members(NamedTuple):
    """Networks that write together, each reading with ids of its own."""

    networks: tuple[Network, ...]
    tables: tuple[Int[Tensor, " U"], ...]
    """For each member, its own id of every id that the ensemble reads."""
    beyond: tuple[int, ...]
    """For each member, the id from which on its ids tell what to copy; the ensemble's own is the size of a table."""
    orders: tuple[Int[Tensor, " V"] | None, ...]
    """For each member, its own id of every target id that the ensemble writes; None where these are the same."""

    def begin(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], masked: Sequence[int] = ()) -> Together:
        """One empty hypothesis a source, in every member."""
        members = zip(self.networks, self.own(source), strict=True)
        return self.joined([begin(network, ids, lengths, masked) for network, ids in members])

    def joined(self, members: Sequence[Alone]) -> Together:
        """Each network's hypotheses as those of all, whatever order its target symbols stand in."""
        ordered = zip(members, self.orders, strict=True)
        return Together(tuple(each if order is None else Reordered(each, order) for each, order in ordered))

    def own(self, source: Int[Tensor, "B S"]) -> list[Int[Tensor, "B S"]]:
        """Each member's own ids of what the ensemble reads."""
        members = zip(self.tables, self.beyond, self.orders, strict=True)
        return [_own(source, table, beyond, order) for table, beyond, order in members]


NO_MEMBERS = Members((), (), (), ())


def check_members(members: object) -> None:
    """Raise an `ArgumentError` for what is no `Members`, and for parts that are not of one length."""
    hint = "; pellucid.load([...]) makes an ensemble of run folders"
    if not issubclass(type(members), Members):
        raise ArgumentError(f"members: expected Members, got {describe_value(members)}{hint}")
    parts = cast(Members, members)
    if not all(issubclass(type(part), tuple) for part in parts) or len({len(part) for part in parts}) > 1:
        raise ArgumentError(f"members: expected a table, an order and an id of each network{hint}")
    for at, network in enumerate(parts.networks):
        convert_argument(f"members.networks[{at}]", network, Network)


def _own(
    source: Int[Tensor, "B S"], table: Int[Tensor, " U"], beyond: int, order: Int[Tensor, " V"] | None
) -> Int[Tensor, "B S"]:
    """A member's own ids of what the ensemble reads."""
    known = len(table)
    told = (source - known).clamp(min=0)
    told = told if order is None else _translated(told, order)
    return torch.where(source < known, table[source.clamp(max=known - 1)], told + beyond)


@contextmanager
def evaluating(network: Network) -> Iterator[None]:
    """Within, the network is in evaluation mode; afterwards in the one it was in. Most often there is nothing to do."""
    if not network.training:
        yield
        return
    network.eval()
    try:
        yield
    finally:
        network.train()


@contextmanager
def all_evaluating(networks: Sequence[Network]) -> Iterator[None]:
    """Within, all networks are in evaluation mode; afterwards each in the one it was in."""
    with ExitStack() as stack:
        for network in networks:
            stack.enter_context(evaluating(network))
        yield
