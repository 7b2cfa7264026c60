"""Ensemble: several trained networks that write one output, p of each symbol the mean of theirs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import torch
from jaxtyping import Int
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.data.vocabulary import UNK, Vocabularies, Vocabulary
from pellucid.decoding.beam_search import Found, Wanted, stepwise
from pellucid.decoding.inference import NO_MEMBERS, Alone, Members, Together
from pellucid.decoding.outputs import Limits, spans_of
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import Work
from pellucid.decoding.transducer import Transducer
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, RunError, quote
from pellucid.model.network import Network, tagged

CUTS = (
    *("source_symbols", "target_symbols", "features_symbols"),
    *("source_normalization", "target_normalization"),
)
"""Settings of the data by which texts become symbols: the members must agree on them."""


@dataclass(frozen=True)
class Ensemble(Transducer):
    """A transducer of several networks. `network` is the first of them, whose configuration searches.

    It reads every symbol that some member knows; a member reads what it does not know itself as unknown.
    """

    def __post_init__(self) -> None:
        """Refuse fields of another type, and an ensemble of no models; `pellucid.load` makes one of runs."""
        super().__post_init__()
        if not issubclass(type(self.members), Members) or not self.members.networks:
            shown = describe_value(self.members) if self.members is not NO_MEMBERS else "none"
            raise ArgumentError(f"members: expected one model at least, got {shown}")

    def joined(self, members: Sequence[Alone]) -> Together:
        """All members' hypotheses as one."""
        return self.members.joined(members)

    def _begin(self, work: Work) -> Together:
        """All members, before their first step."""
        return self.members.begin(work.source, work.lengths, self.options.masked)

    def _search_plainly(self, work: Work, width: int, best: int) -> list[list[Found]]:
        """One batch by ln p; each member's steps by a kernel where there is one."""
        limits = Limits(self.config.search.min_length, self.max_length)
        wanted = Wanted(spans_of(limits, len(work.rows)), width, best)
        return stepwise(self._begin(work), work.positions, wanted)


class Joined(NamedTuple):
    """What several predictors are as one."""

    config: Config
    vocabularies: Vocabularies
    network: Network
    name: str
    members: Members


def ensemble(members: Sequence[Predictor], names: Sequence[str]) -> Ensemble:
    """Transducers as one, as `join_members` does."""
    config, vocabularies, network, name, joined = join_members(members, names)
    return Ensemble(config, vocabularies, network, name=name, members=joined)


def join_members(members: Sequence[Predictor], names: Sequence[str]) -> Joined:
    """Predictors as one; `RunError` names those that do not write the same symbols, or cut texts in other ways."""
    if not members:
        raise RunError("an ensemble has one model at least")
    first = members[0]
    for member, name in zip(members, names, strict=True):
        _check_symbols((first, names[0]), (member, name))
        other = _difference(first.config, member.config)
        if other:
            raise RunError(f"{names[0]} and {name} differ in {other}: models that write together read the same")
        if first.vocabularies.pieces != member.vocabularies.pieces:
            raise RunError(f"{names[0]} and {name} have other subwords: models that write together read the same")
    source = _union([member.vocabularies.source for member in members])
    features = _union([member.vocabularies.features for member in members])
    longest = max(member.vocabularies.longest_target for member in members)
    known = msgspec.structs.replace(first.vocabularies, source=source, features=features, longest_target=longest)
    tables = tuple(_table(known, member) for member in members)
    beyond = tuple(len(each.vocabularies.source) + len(each.vocabularies.features) for each in members)
    orders = tuple(_order(first, each) for each in members)
    together = Members(tuple(each.network for each in members), tables, beyond, orders)
    return Joined(first.config, known, first.network, " with ".join(names), together)


def _check_symbols(*pair: tuple[Predictor, str]) -> None:
    """`RunError` where one of two models writes a symbol that the other does not; their order is no matter."""
    for (one, name), (other, its) in (pair, pair[::-1]):
        lacking = [each for each in one.vocabularies.target.symbols if each not in other.vocabularies.target.ids]
        if lacking:
            more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
            raise RunError(
                f"{name} writes the symbol {quote(lacking[0])}{more}, which {its} does not: models that write together "
                "have the same target symbols"
            )


def _difference(one: Config, other: Config) -> str:
    """The first setting by which two models read the same text differently; "" where there is none."""
    if one.task != other.task:
        return "task"
    for key in CUTS:
        if getattr(one.data, key) != getattr(other.data, key):
            return f"data.{key}"
    if bool(one.data.features_column) != bool(other.data.features_column):
        return "data.features_column"
    return "" if one.encoder.features == other.encoder.features else "encoder.features"


def _order(first: Predictor, member: Predictor) -> Int[Tensor, " V"] | None:
    """The member's own id of each target id of the first; None where these are the same."""
    written, own = first.vocabularies.target, member.vocabularies.target
    if written.symbols == own.symbols:
        return None
    ids = [*range(UNK + 1), *own.encode(written.symbols)]
    return torch.tensor(ids, device=next(member.network.parameters()).device)


def _union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Every symbol that one of them holds, with its counts summed."""
    counts: dict[str, int] = {}
    for vocabulary in vocabularies:
        for symbol, count in zip(vocabulary.symbols, vocabulary.counts, strict=True):
            counts[symbol] = counts.get(symbol, 0) + count
    return Vocabulary(tuple(counts), tuple(counts.values()))


def _table(known: Vocabularies, member: Predictor) -> Int[Tensor, " U"]:
    """The member's own id of every id that the ensemble reads; those of features follow those of sources."""
    own = member.vocabularies
    special = list(range(UNK + 1))
    offset = len(own.source)
    read = [*special, *own.source.encode(known.source.symbols)]
    beside = [offset + each for each in [*special, *own.features.encode(known.features.symbols)]]
    if not tagged(member.config):
        beside = [UNK] * len(beside)
    return torch.tensor([*read, *beside], device=next(member.network.parameters()).device)
