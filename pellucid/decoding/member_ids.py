"""Ids of the members of an ensemble: what members must agree on, their joint vocabularies, and their id maps.

PyTorch is not needed to import this module. U source ids, K ids of characters and V target ids of the ensemble.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from pellucid.config.settings import Config, has_characters, has_source_features, reads_features
from pellucid.data.vocabulary import UNK, Vocabularies, Vocabulary
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.decoding.base_transducer import BaseTransducer
from pellucid.errors import RunError, quote
from pellucid.shapes import Int

TOKENIZATION_SETTINGS = (
    *("source_symbols", "target_symbols", "features_symbols"),
    *("source_normalization", "target_normalization"),
)
"""Data settings that define tokenization. All members must agree on them."""


def check_members_agree(members: Sequence[BasePredictor], names: Sequence[str]) -> None:
    """Check that predictors can be members of one ensemble.

    Args:
        members: Predictors of the members.
        names: Name of each member, for error messages.

    Raises:
        RunError: There is no member; or two differ in their target symbols, task, tokenization (`TOKENIZATION_SETTINGS`
            or subwords), whether they read features or characters, encoder.feature_merge, or whether they copy. The
            message names both. Or the networks of some members, but not of all, have no validation yet.
    """
    if not members:
        raise RunError("an ensemble has one model at least")
    _check_validations(members, names)
    first = members[0]
    for member, name in zip(members, names, strict=True):
        _check_symbols((first, names[0]), (member, name))
        difference = _difference(first.config, member.config)
        if difference:
            raise RunError(f"{names[0]} and {name} differ in {difference}: members of an ensemble need equal settings")
        for labels in ("classes", "tags"):
            if {*getattr(first.vocabularies, labels)} != {*getattr(member.vocabularies, labels)}:
                raise RunError(f"{names[0]} and {name} have different {labels}: members of an ensemble need equal ones")
        if first.vocabularies.pieces != member.vocabularies.pieces:
            raise RunError(f"{names[0]} and {name} have different subwords: members of an ensemble need equal ones")


def _check_validations(members: Sequence[BasePredictor], names: Sequence[str]) -> None:
    """Raise `RunError` if hardly trained networks would take part beside trained ones.

    Where all members are before their first validation, the pair n-gram model predicts alone.
    """
    is_untrained = [
        isinstance(member, BaseTransducer) and member.pair_ngram is not None and member.pair_ngram.predicts_alone
        for member in members
    ]
    if any(is_untrained) and not all(is_untrained):
        name = names[is_untrained.index(True)]
        raise RunError(
            f"{name} cannot be a member of the ensemble yet: its training has not reached a first validation, and its "
            "network is hardly trained; leave it out, or wait for that validation"
        )


def join_vocabularies(members: Sequence[BasePredictor]) -> Vocabularies:
    """Return the vocabularies of the first member, with the source symbols and features of all, and the longest target.

    Args:
        members: Predictors of the members, at least one.
    """
    return msgspec.structs.replace(
        members[0].vocabularies,
        source=_union([member.vocabularies.source for member in members]),
        features=_union([member.vocabularies.features for member in members]),
        characters=_union([member.vocabularies.characters for member in members]),
        longest_target=max(member.vocabularies.longest_target for member in members),
    )


def target_id_map(first: BasePredictor, member: BasePredictor) -> Int[np.ndarray, " V"] | None:
    """Return the member's id of each target id of the first model; None if the ids are equal.

    Args:
        first: Predictor of the first member.
        member: Predictor of the member.
    """
    ensemble_target, member_target = first.vocabularies.target, member.vocabularies.target
    if ensemble_target.symbols == member_target.symbols:
        return None
    ids = [*range(UNK + 1), *member_target.encode(ensemble_target.symbols)]
    return np.array(ids)


def copy_offset(vocabularies: Vocabularies) -> int:
    """Return the number of source ids of a model, features included (`EnsembleMembers.copy_offsets`).

    Args:
        vocabularies: Vocabularies of the model.
    """
    return len(vocabularies.source) + len(vocabularies.features)


def source_id_map(vocabularies: Vocabularies, member: BasePredictor) -> Int[np.ndarray, " U"]:
    """Return the member's id of every id of the ensemble; ids of features follow those of source symbols.

    Args:
        vocabularies: Vocabularies of the ensemble.
        member: Predictor of the member.
    """
    known = member.vocabularies
    source = known.source
    features = known.features
    target = known.target
    special = list(range(UNK + 1))
    source_ids = [*special, *source.encode(vocabularies.source.symbols)]
    if member.config.decoder.pointer_generator:
        for index, symbol in enumerate(vocabularies.source.symbols, len(special)):
            if symbol not in source.ids:
                is_target = symbol in target.ids
                source_ids[index] = copy_offset(known) + target.ids[symbol] if is_target else -len(target)
    feature_ids = [len(source) + index for index in [*special, *features.encode(vocabularies.features.symbols)]]
    if not has_source_features(member.config):
        feature_ids = [UNK] * len(feature_ids)
    return np.array([*source_ids, *feature_ids])


def character_id_map(vocabularies: Vocabularies, member: BasePredictor) -> Int[np.ndarray, " K"]:
    """Return the member's id of every id of a character.

    Args:
        vocabularies: Vocabularies of the ensemble.
        member: Predictor of the member.
    """
    known = member.vocabularies.characters
    return np.array([*range(UNK + 1), *known.encode(vocabularies.characters.symbols)])


def _check_symbols(*pair: tuple[BasePredictor, str]) -> None:
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
    if one.data.context_words != other.data.context_words:
        return "data.context_words"
    if reads_features(one.data) != reads_features(other.data):
        return "data.features_column"
    if one.encoder.feature_merge != other.encoder.feature_merge:
        return "encoder.feature_merge"
    if has_characters(one) != has_characters(other):
        return "encoder.characters"
    return "" if one.decoder.pointer_generator == other.decoder.pointer_generator else "decoder.pointer_generator"


def _union(vocabularies: Sequence[Vocabulary]) -> Vocabulary:
    """Return the union of vocabularies, with summed counts."""
    counts: dict[str, int] = {}
    for vocabulary in vocabularies:
        for symbol, count in zip(vocabulary.symbols, vocabulary.counts, strict=True):
            counts[symbol] = counts.get(symbol, 0) + count
    return Vocabulary(tuple(counts), tuple(counts.values()))
