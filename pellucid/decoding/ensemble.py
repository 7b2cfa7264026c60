"""Ensembles: several trained networks that decode one output with the mean of their probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, NamedTuple

import torch

from pellucid.argument_checks import check_arguments, check_lengths
from pellucid.config.settings import Config
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding import member_ids
from pellucid.decoding.inference import EnsembleInference, EnsembleMembers, SingleModelInference, map_source_ids
from pellucid.decoding.pair_ngram_interpolation import InterpolatedPairNgram
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import SourceBatch
from pellucid.decoding.transducer import Transducer, require_transducer
from pellucid.errors import ArgumentError
from pellucid.model.network import Network


@dataclass(frozen=True)
class Ensemble(Transducer):
    """Predictor that decodes with several encoder-decoders; `combine_transducers` combines their predictors.

    `config` and `network` are those of the first member, and `config` controls the search. The source vocabulary is the
    union of the members' vocabularies. A member reads a symbol that it lacks as unknown.

    Raises:
        ArgumentError: A field has a wrong type, or `members` is empty.
    """

    class_is_ensemble: ClassVar[bool] = True

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
        return self.members.initialize(batch.source, batch.lengths, self.options.masked_positions, batch.characters)


class EnsembleParts(NamedTuple):
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
    pair_ngram: InterpolatedPairNgram | None = None
    """Pair n-gram model of the first member that has one, with the mean weight of all; None if no member has one."""


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
    return ensemble_of_parts(join_members(members, names))


def ensemble_of_parts(parts: EnsembleParts) -> Ensemble:
    """Return the ensemble of combined sequence predictors.

    Args:
        parts: Fields of the combined predictor.
    """
    config, vocabularies, network, name, members, pair_ngram = parts
    return Ensemble(config, vocabularies, network, name=name, members=members, pair_ngram=pair_ngram)


@check_arguments
def join_members(members: Sequence[Predictor], names: Sequence[str]) -> EnsembleParts:
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
            or subwords), whether they read features or characters, encoder.feature_merge, or whether they copy. The
            message names both.
    """
    check_lengths({"members": members, "names": names})
    member_ids.check_members_agree(members, names)
    first = members[0]
    vocabularies = member_ids.join_vocabularies(members)
    groups = [_members_of(first, vocabularies, member) for member in members]
    joined = EnsembleMembers(*(tuple(chain.from_iterable(column)) for column in zip(*groups, strict=True)))
    name = " with ".join(names)
    pair_ngram = _joined_pair_ngram(members, joined)
    return EnsembleParts(first.config, vocabularies, first.network, name, joined, pair_ngram)


def _joined_pair_ngram(members: Sequence[Predictor], joined: EnsembleMembers) -> InterpolatedPairNgram | None:
    """Return the first pair n-gram model of the members, with the mean weight of all networks."""
    weights = joined.pair_ngram_weights
    num_before = 0
    for member in members:
        model = member.pair_ngram if isinstance(member, Transducer) else None
        if model is not None:
            return model._replace(weight=sum(weights) / len(weights), network_index=num_before + model.network_index)
        num_before += member.num_networks
    return None


def _pair_ngram_weights(predictor: Predictor) -> tuple[float, ...]:
    """Return the weight of the pair n-gram model of each network of a predictor, 0 for those without one.

    If a program has set another pair n-gram model for an ensemble, its weight holds for every network.
    """
    pair_ngram = predictor.pair_ngram if isinstance(predictor, Transducer) else None
    weight = 0.0 if pair_ngram is None else pair_ngram.weight
    weights = predictor.members.pair_ngram_weights
    if not weights:
        return (weight,)
    return weights if weight == sum(weights) / len(weights) else (weight,) * len(weights)


def _members_of(first: Predictor, vocabularies: Vocabularies, predictor: Predictor) -> EnsembleMembers:
    """Return the networks of one predictor, with their maps from the ids of the whole ensemble.

    The networks of an ensemble are all members. Their ids follow from those of their ensemble by its own maps.
    """
    device = next(predictor.network.parameters()).device
    source_id_map = torch.from_numpy(member_ids.source_id_map(vocabularies, predictor)).to(device)
    target_ids = member_ids.target_id_map(first, predictor)
    target_id_map = None if target_ids is None else torch.from_numpy(target_ids).to(device)
    members = predictor.members
    character_ids = torch.from_numpy(member_ids.character_id_map(vocabularies, predictor)).to(device)
    if not members.networks:
        copy_offsets = (member_ids.copy_offset(predictor.vocabularies),)
        weights = _pair_ngram_weights(predictor)
        return EnsembleMembers(
            (predictor.network,), (source_id_map,), copy_offsets, (target_id_map,), weights, (character_ids,)
        )
    target_id_maps = tuple(
        id_map if target_id_map is None else target_id_map if id_map is None else id_map[target_id_map]
        for id_map in members.target_id_maps
    )
    return members._replace(
        source_id_maps=tuple(
            map_source_ids(source_id_map, member_source_map, copy_offset, member_target_map)
            for member_source_map, copy_offset, member_target_map in zip(
                members.source_id_maps, members.copy_offsets, members.target_id_maps, strict=True
            )
        ),
        target_id_maps=target_id_maps,
        pair_ngram_weights=_pair_ngram_weights(predictor),
        character_id_maps=tuple(id_map[character_ids] for id_map in members.character_id_maps),
    )
