"""Ensembles: several trained networks that decode one output with the mean of their probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import msgspec
import torch
from jaxtyping import Int
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.data.vocabulary import UNK, Vocabularies, Vocabulary
from pellucid.decoding.beam_search import BeamConfig, Hypothesis, stepwise
from pellucid.decoding.inference import EnsembleInference, EnsembleMembers, SingleModelInference
from pellucid.decoding.outputs import LengthLimits, batch_length_limits
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import InferenceBatch
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, RunError, quote
from pellucid.model.network import Network, has_source_tags

CUTS = (
    *("source_symbols", "target_symbols", "features_symbols"),
    *("source_normalization", "target_normalization"),
)
"""Data settings that define tokenization. All members must agree on them."""


@dataclass(frozen=True)
class Ensemble(Transducer):
    """Ensemble of sequence predictors. `network` is the first member, whose configuration controls the search.

    The source vocabulary is the union of the members' vocabularies. A member reads a symbol that it lacks as unknown.
    """

    combines_networks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the types of the fields, and that there is at least one model."""
        super().__post_init__()
        if not self.members.networks:
            raise ArgumentError("members: expected one model at least, got none")

    def joined(self, members: Sequence[SingleModelInference]) -> EnsembleInference:
        """Return the hypotheses of all members as one `Inference`."""
        return self.members.joined(members)

    def _begin(self, work: InferenceBatch) -> EnsembleInference:
        """Return all members before their first step."""
        return self.members.begin(work.source, work.lengths, self.options.masked)

    def _search_plainly(self, work: InferenceBatch, width: int, best: int) -> list[list[Hypothesis]]:
        """Search one batch by log-probability; each member runs its steps in a kernel if one supports it."""
        limits = LengthLimits(self.config.search.min_length, self.max_length)
        wanted = BeamConfig(batch_length_limits(limits, len(work.rows)), width, best)
        return stepwise(self._begin(work), work.positions, wanted)


class JoinedPredictors(NamedTuple):
    """The shared parts of several predictors."""

    config: Config
    vocabularies: Vocabularies
    network: Network
    name: str
    members: EnsembleMembers


def ensemble(members: Sequence[Predictor], names: Sequence[str]) -> Ensemble:
    """Combine sequence predictors into an ensemble; see `join_members`."""
    config, vocabularies, network, name, joined = join_members(members, names)
    return Ensemble(config, vocabularies, network, name=name, members=joined)


def join_members(members: Sequence[Predictor], names: Sequence[str]) -> JoinedPredictors:
    """Combine predictors that share their target symbols and tokenization.

    Raises:
        RunError: Two members differ in them. The message names both.
    """
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
    together = EnsembleMembers(tuple(each.network for each in members), tables, beyond, orders)
    return JoinedPredictors(first.config, known, first.network, " with ".join(names), together)


def _check_symbols(*pair: tuple[Predictor, str]) -> None:
    """Raise `RunError` if two models do not have the same target symbols, in any order."""
    for (one, name), (other, its) in (pair, pair[::-1]):
        lacking = [each for each in one.vocabularies.target.symbols if each not in other.vocabularies.target.ids]
        if lacking:
            more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
            raise RunError(
                f"{name} writes the symbol {quote(lacking[0])}{more}, which {its} does not: models that write together "
                "have the same target symbols"
            )


def _difference(one: Config, other: Config) -> str:
    """Return the first tokenization setting in which two models differ; "" if there is none."""
    if one.task != other.task:
        return "task"
    for key in CUTS:
        if getattr(one.data, key) != getattr(other.data, key):
            return f"data.{key}"
    if bool(one.data.features_column) != bool(other.data.features_column):
        return "data.features_column"
    return "" if one.encoder.features == other.encoder.features else "encoder.features"


def _order(first: Predictor, member: Predictor) -> Int[Tensor, " V"] | None:
    """Return the member's id of each target id of the first model; None if the ids are equal."""
    written, own = first.vocabularies.target, member.vocabularies.target
    if written.symbols == own.symbols:
        return None
    ids = [*range(UNK + 1), *own.encode(written.symbols)]
    return torch.tensor(ids, device=next(member.network.parameters()).device)


def _union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Return the union of vocabularies, with summed counts."""
    counts: dict[str, int] = {}
    for vocabulary in vocabularies:
        for symbol, count in zip(vocabulary.symbols, vocabulary.counts, strict=True):
            counts[symbol] = counts.get(symbol, 0) + count
    return Vocabulary(tuple(counts), tuple(counts.values()))


def _table(known: Vocabularies, member: Predictor) -> Int[Tensor, " U"]:
    """Return the member's id of every id of the ensemble; ids of features follow those of source symbols."""
    own = member.vocabularies
    special = list(range(UNK + 1))
    offset = len(own.source)
    read = [*special, *own.source.encode(known.source.symbols)]
    beside = [offset + each for each in [*special, *own.features.encode(known.features.symbols)]]
    if not has_source_tags(member.config):
        beside = [UNK] * len(beside)
    return torch.tensor([*read, *beside], device=next(member.network.parameters()).device)
