"""Ensembles: several trained networks that decode one output with the mean of their probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, NamedTuple

import msgspec
import torch
from jaxtyping import Int
from torch import Tensor

from pellucid.argument_checks import check_arguments, check_lengths
from pellucid.config.settings import Config, has_source_features
from pellucid.data.vocabulary import UNK, Vocabularies, Vocabulary
from pellucid.decoding.inference import EnsembleInference, EnsembleMembers, SingleModelInference, map_source_ids
from pellucid.decoding.pair_ngram_member import PairNgramMember
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import SourceBatch
from pellucid.decoding.transducer import Transducer, require_transducer
from pellucid.errors import ArgumentError, RunError, quote
from pellucid.model.network import Network

TOKENIZATION_SETTINGS = (
    *("source_symbols", "target_symbols", "features_symbols"),
    *("source_normalization", "target_normalization"),
)
"""Data settings that define tokenization. All members must agree on them."""


@dataclass(frozen=True)
class Ensemble(Transducer):
    """Predictor that decodes with several encoder-decoders; `combine_transducers` combines their predictors.

    `config` and `network` are those of the first member, and `config` controls the search. The source vocabulary is the
    union of the members' vocabularies. A member reads a symbol that it lacks as unknown.

    Raises:
        ArgumentError: A field has a wrong type, or `members` is empty.
    """

    combines_networks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the types of the fields, and that there is at least one model."""
        super().__post_init__()
        if not self.members.networks:
            raise ArgumentError("members: expected one model at least, got none")

    def combine(self, member_inferences: Sequence[SingleModelInference]) -> EnsembleInference:
        """Return the hypotheses of all members as one `Inference`, which averages their probabilities.

        Args:
            member_inferences: Hypotheses of each member, in the order of the members.
        """
        return self.members.combine(member_inferences)

    def _initialize(self, batch: SourceBatch) -> EnsembleInference:
        """Return all members before their first step."""
        return self.members.initialize(batch.source, batch.lengths, self.options.masked)


class JoinedPredictors(NamedTuple):
    """Fields of the predictor that combines several predictors."""

    config: Config
    """Configuration of the first member."""
    vocabularies: Vocabularies
    """Vocabularies of the first member, with the source symbols and features of all, and the longest target of all."""
    network: Network
    """Network of the first member."""
    name: str
    """Names of the members, joined by " with "."""
    members: EnsembleMembers
    pair_ngram: PairNgramMember | None = None
    """Pair n-gram model of the first member, with the mean weight of all; None if it has none."""


@check_arguments
def combine_transducers(members: Sequence[Predictor], names: Sequence[str]) -> Ensemble:
    """Combine sequence predictors into an ensemble; see `join_members`.

    Args:
        members: Predictors of the members, the first of which controls the search. Of a predictor that is an ensemble,
            all networks become members.
        names: Name of each member, for error messages.

    Raises:
        ArgumentError: An argument has a wrong type, or there is not one name for each member.
        ConfigError: The task of the members does not decode symbol by symbol.
        RunError: There is no member, or two members differ in task, target symbols or tokenization.
    """
    for member in members:
        require_transducer(member, "members")
    return ensemble_of_joined(join_members(members, names))


def ensemble_of_joined(joined: JoinedPredictors) -> Ensemble:
    """Return the ensemble of combined sequence predictors.

    Args:
        joined: Fields of the combined predictor.
    """
    config, vocabularies, network, name, members, pair_ngram = joined
    return Ensemble(config, vocabularies, network, name=name, members=members, pair_ngram=pair_ngram)


@check_arguments
def join_members(members: Sequence[Predictor], names: Sequence[str]) -> JoinedPredictors:
    """Combine predictors of one task that share their target symbols and tokenization.

    Target symbols may be in different orders; counts of source symbols are summed.

    Args:
        members: Predictors of the members. Of a predictor that is an ensemble, all networks become members.
        names: Name of each member, for error messages.

    Returns:
        The fields of the combined predictor.

    Raises:
        ArgumentError: An argument has a wrong type, or there is not one name for each member.
        RunError: There is no member; or two differ in their target symbols, task, tokenization (`TOKENIZATION_SETTINGS`
            or subwords), whether they read features, encoder.features, or whether they copy. The message names both.
    """
    check_lengths({"members": members, "names": names})
    if not members:
        raise RunError("an ensemble has one model at least")
    first = members[0]
    for member, name in zip(members, names, strict=True):
        _check_symbols((first, names[0]), (member, name))
        difference = _difference(first.config, member.config)
        if difference:
            raise RunError(f"{names[0]} and {name} differ in {difference}: members of an ensemble need equal settings")
        if first.vocabularies.pieces != member.vocabularies.pieces:
            raise RunError(f"{names[0]} and {name} have different subwords: members of an ensemble need equal ones")
    source = _union([member.vocabularies.source for member in members])
    features = _union([member.vocabularies.features for member in members])
    longest_target = max(member.vocabularies.longest_target for member in members)
    vocabularies = msgspec.structs.replace(
        first.vocabularies, source=source, features=features, longest_target=longest_target
    )
    groups = [_members_of(first, vocabularies, member) for member in members]
    joined = EnsembleMembers(*(tuple(chain.from_iterable(column)) for column in zip(*groups, strict=True)))
    name, pair_ngram = " with ".join(names), _joined_pair_ngram(first, joined)
    return JoinedPredictors(first.config, vocabularies, first.network, name, joined, pair_ngram)


def _joined_pair_ngram(first: Predictor, members: EnsembleMembers) -> PairNgramMember | None:
    """Return the pair n-gram model of the first member with the mean weight of all members, 0 for those without one."""
    model = first.pair_ngram if isinstance(first, Transducer) else None
    weights = members.pair_ngram_weights
    return None if model is None else model._replace(weight=sum(weights) / len(weights))


def _pair_ngram_weights(predictor: Predictor) -> tuple[float, ...]:
    """Return the weight of the pair n-gram model of each network of a predictor, 0 for those without one.

    The model of an ensemble that a program has replaced has its weight for each network.
    """
    pair_ngram = predictor.pair_ngram if isinstance(predictor, Transducer) else None
    weight, weights = 0.0 if pair_ngram is None else pair_ngram.weight, predictor.members.pair_ngram_weights
    if not weights:
        return (weight,)
    return weights if pair_ngram is None or weight == sum(weights) / len(weights) else (weight,) * len(weights)


def _members_of(first: Predictor, vocabularies: Vocabularies, predictor: Predictor) -> EnsembleMembers:
    """Return the networks of one predictor, with their maps from the ids of the whole ensemble.

    The networks of an ensemble are all members. Their ids follow from those of their ensemble by its own maps.
    """
    source_id_map, target_id_map = _source_id_map(vocabularies, predictor), _target_id_map(first, predictor)
    members = predictor.members
    if not members.networks:
        copy_offsets, weights = (_copy_offset(predictor.vocabularies),), _pair_ngram_weights(predictor)
        return EnsembleMembers((predictor.network,), (source_id_map,), copy_offsets, (target_id_map,), weights)
    target_id_maps = tuple(
        id_map if target_id_map is None else target_id_map if id_map is None else id_map[target_id_map]
        for id_map in members.target_id_maps
    )
    return members._replace(
        source_id_maps=tuple(
            map_source_ids(source_id_map, *maps)
            for maps in zip(members.source_id_maps, members.copy_offsets, members.target_id_maps, strict=True)
        ),
        target_id_maps=target_id_maps,
        pair_ngram_weights=_pair_ngram_weights(predictor),
    )


def _check_symbols(*pair: tuple[Predictor, str]) -> None:
    """Raise `RunError` if two models do not have the same target symbols, in any order."""
    for (one, name), (other, other_name) in (pair, pair[::-1]):
        missing = [symbol for symbol in one.vocabularies.target.symbols if symbol not in other.vocabularies.target.ids]
        if missing:
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            raise RunError(
                f"{name} writes the symbol {quote(missing[0])}{more}, which {other_name} does not: members "
                "of an ensemble have the same target symbols"
            )


def _difference(one: Config, other: Config) -> str:
    """Return the first setting in which two models differ though members must agree; "" if there is none."""
    if one.task != other.task:
        return "task"
    for key in TOKENIZATION_SETTINGS:
        if getattr(one.data, key) != getattr(other.data, key):
            return f"data.{key}"
    if bool(one.data.features_column) != bool(other.data.features_column):
        return "data.features_column"
    if one.encoder.features != other.encoder.features:
        return "encoder.features"
    return "" if one.decoder.pointer_generator == other.decoder.pointer_generator else "decoder.pointer_generator"


def _target_id_map(first: Predictor, member: Predictor) -> Int[Tensor, " V"] | None:
    """Return the member's id of each target id of the first model; None if the ids are equal."""
    ensemble_target, member_target = first.vocabularies.target, member.vocabularies.target
    if ensemble_target.symbols == member_target.symbols:
        return None
    ids = [*range(UNK + 1), *member_target.encode(ensemble_target.symbols)]
    return torch.tensor(ids, device=next(member.network.parameters()).device)


def _union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Return the union of vocabularies, with summed counts."""
    counts: dict[str, int] = {}
    for vocabulary in vocabularies:
        for symbol, count in zip(vocabulary.symbols, vocabulary.counts, strict=True):
            counts[symbol] = counts.get(symbol, 0) + count
    return Vocabulary(tuple(counts), tuple(counts.values()))


def _copy_offset(vocabularies: Vocabularies) -> int:
    """Return the number of source ids of a model, features included (`EnsembleMembers.copy_offsets`)."""
    return len(vocabularies.source) + len(vocabularies.features)


def _source_id_map(vocabularies: Vocabularies, member: Predictor) -> Int[Tensor, " U"]:
    """Return the member's id of every id of the ensemble; ids of features follow those of source symbols."""
    known = member.vocabularies
    source, features, target, special = known.source, known.features, known.target, list(range(UNK + 1))
    source_ids = [*special, *source.encode(vocabularies.source.symbols)]
    if member.config.decoder.pointer_generator:
        for index, symbol in enumerate(vocabularies.source.symbols, len(special)):
            if symbol not in source.ids:
                is_target = symbol in target.ids
                source_ids[index] = _copy_offset(known) + target.ids[symbol] if is_target else -len(target)
    feature_ids = [len(source) + index for index in [*special, *features.encode(vocabularies.features.symbols)]]
    if not has_source_features(member.config):
        feature_ids = [UNK] * len(feature_ids)
    return torch.tensor([*source_ids, *feature_ids], device=next(member.network.parameters()).device)
