"""Hypotheses of a search in NumPy, for one network or an ensemble, and scores of given targets.

B sources, b active sources, R hypotheses (a multiple of b; those of one source are adjacent), S source positions, T
steps, V symbols that can be written, U source ids, M members of an ensemble.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pellucid.config.settings import Config
from pellucid.data.vocabulary import BOS, UNK
from pellucid.decoding.beam_steps import SearchStep
from pellucid.decoding.hypothesis import Hypothesis, hypothesis_of
from pellucid.decoding.outputs import Recorder, StepRecord, mixed_copying_error, suppressed_mask
from pellucid.runtime.decoder import DecoderCarry, SourceCache, encode_sources, step_decoder
from pellucid.runtime.parameters import NetworkArrays
from pellucid.runtime.topk import ArrayScores, log_softmax, log_sum_exp, top_symbols
from pellucid.shapes import Float, Int


@dataclass(frozen=True, eq=False)
class MemberIds:
    """Maps from the ids of an ensemble to those of one member, as `EnsembleMembers` describes them."""

    source: Int[np.ndarray, " U"]
    """The member's source id of every source id of the ensemble."""
    copy_offset: int
    """Number of source ids of the member."""
    target: Int[np.ndarray, " V"] | None
    """The member's id of every target id of the ensemble; None if they are equal."""

    def map_source_ids(self, source: Int[np.ndarray, "B S"]) -> Int[np.ndarray, "B S"]:
        """Translate the source ids of the ensemble to those of the member.

        Args:
            source: Source ids of the ensemble.
        """
        known = len(self.source)
        copied = np.maximum(source - known, 0)
        copied = copied if self.target is None else map_ids(copied, self.target)
        ids = np.where(source < known, self.source[np.minimum(source, known - 1)], copied + self.copy_offset)
        if (ids >= 0).all():
            return ids
        first_position = (source[:, :, None] == source[:, None, :]).argmax(axis=2)
        return np.where(ids < 0, self.copy_offset - ids + first_position, ids)


@dataclass(frozen=True, eq=False)
class RuntimeNetwork:
    """One network of a predictor: its settings and parameters, and its ids in an ensemble."""

    config: Config
    arrays: NetworkArrays
    ids: MemberIds | None = None
    """Maps from the ids of the ensemble; None outside an ensemble."""


class ArrayInference(NamedTuple):
    """Hypotheses of one network: the state of its decoder, and what all steps share (see `SearchInference`)."""

    network: RuntimeNetwork
    carry: DecoderCarry
    cache: SourceCache

    def step(self, symbols: Int[np.ndarray, " R"]) -> SearchStep:
        """Run one decoder step.

        Args:
            symbols: Previous symbol of each hypothesis.
        """
        network, target_ids = self.network, None if self.network.ids is None else self.network.ids.target
        if target_ids is not None:
            symbols = map_ids(symbols, target_ids)
        output = step_decoder(network.arrays, network.config, symbols, self.carry, self.cache)
        logits = output.logits
        if target_ids is not None:
            logits = logits[:, np.append(target_ids, np.arange(len(target_ids), logits.shape[1]))]
        after = self._replace(carry=output.carry)
        return SearchStep(ArrayScores(logits), output.attention.weights, after, output.attention.heads)

    def take(self, hypotheses: Int[np.ndarray, " R"], sources: Int[np.ndarray, " b"] | None = None) -> "ArrayInference":
        """Select hypotheses and sources, in the given order.

        Args:
            hypotheses: Rows of the selected hypotheses.
            sources: Rows of the sources that stay; None for all.
        """
        cache = self.cache if sources is None else self.cache.take(sources)
        return ArrayInference(self.network, self.carry.take(hypotheses), cache)


class ArrayEnsembleInference(NamedTuple):
    """Hypotheses of several networks that decode together; probabilities and attention weights are their means."""

    members: tuple[ArrayInference, ...]

    def step(self, symbols: Int[np.ndarray, " R"]) -> SearchStep:
        """Run one decoder step in every member; the logits are the logarithm of the mean of their probabilities.

        Args:
            symbols: Previous symbol of each hypothesis.

        Raises:
            RunError: The members have different numbers of symbols, because only some of them copy from the source.
        """
        outputs = [member.step(symbols) for member in self.members]
        logits = [output.scores.logits for output in outputs if isinstance(output.scores, ArrayScores)]
        if len({each.shape[1] for each in logits}) > 1:
            raise mixed_copying_error()
        suppressed = suppressed_mask(logits[0].shape[1])
        normalized = [each - log_sum_exp(np.where(suppressed, np.float32(-np.inf), each)) for each in logits]
        weights = np.mean([output.weights for output in outputs], axis=0)
        members = tuple(output.after for output in outputs if isinstance(output.after, ArrayInference))
        return SearchStep(ArrayScores(_log_mean_exp(np.stack(normalized))), weights, ArrayEnsembleInference(members))

    def take(
        self, hypotheses: Int[np.ndarray, " R"], sources: Int[np.ndarray, " b"] | None = None
    ) -> "ArrayEnsembleInference":
        """Select rows of every member.

        Args:
            hypotheses: Rows of the selected hypotheses.
            sources: Rows of the sources that stay; None for all.
        """
        return ArrayEnsembleInference(tuple(member.take(hypotheses, sources) for member in self.members))


def map_ids(symbols: Int[np.ndarray, "*shape"], id_map: Int[np.ndarray, " V"]) -> Int[np.ndarray, "*shape"]:
    """Map ids; ids beyond the map stay unchanged.

    Args:
        symbols: Ids of the ensemble.
        id_map: The member's id of each of them.
    """
    return np.where(symbols < len(id_map), id_map[np.minimum(symbols, len(id_map) - 1)], symbols)


def _log_mean_exp(log_probabilities: Float[np.ndarray, "M R V"]) -> Float[np.ndarray, "R V"]:
    """Return the logarithm of the mean probability over M members."""
    greatest = log_probabilities.max(axis=0)
    finite = np.where(np.isneginf(greatest), np.float32(0), greatest)
    total = np.exp(log_probabilities - finite).sum(axis=0)
    mean: Float[np.ndarray, "R V"] = np.log(total) + finite - np.float32(math.log(len(log_probabilities)))
    return mean


def initialize(
    networks: tuple[RuntimeNetwork, ...], source: Int[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"]
) -> ArrayInference | ArrayEnsembleInference:
    """Encode the sources and return one empty hypothesis per source, in every network.

    Args:
        networks: One network; or the members of an ensemble, with their ids.
        source: Source ids.
        lengths: Source lengths.
    """
    members = []
    for network in networks:
        ids = source if network.ids is None else network.ids.map_source_ids(source)
        cache, carry = encode_sources(network.arrays, network.config, ids, lengths)
        members.append(ArrayInference(network, carry, cache))
    return members[0] if networks[0].ids is None else ArrayEnsembleInference(tuple(members))


def score_targets(
    inference: ArrayInference | ArrayEnsembleInference,
    lengths: Int[np.ndarray, " B"],
    targets: Int[np.ndarray, "B T"],
    target_lengths: Int[np.ndarray, " B"],
) -> list[Hypothesis]:
    """Score targets as if they had been decoded, as `pellucid.decoding.forced_decoding.score_targets` does.

    Args:
        inference: One empty hypothesis per source.
        lengths: Number of encoder positions of each source.
        targets: Target ids, each ending with EOS, then padding.
        target_lengths: Target lengths, including EOS.
    """
    symbols, recorder, rows = (
        np.full(len(lengths), BOS),
        Recorder(len(lengths), targets.shape[1]),
        np.arange(len(lengths)),
    )
    current = inference
    for target in targets.T:
        output = current.step(symbols)
        assert isinstance(output.scores, ArrayScores) and isinstance(output.after, type(inference))
        suppressed = np.repeat(suppressed_mask(output.scores.num_symbols)[None], len(rows), axis=0)
        suppressed[target == UNK, UNK] = False
        log_probabilities = log_softmax(output.scores.logits, suppressed)
        scores = log_probabilities[rows, target]
        recorder.add(StepRecord(rows, target, scores, output.weights, top_symbols(log_probabilities), output.heads))
        current, symbols = output.after, target
    sizes = zip(target_lengths.tolist(), lengths.tolist(), strict=True)
    return [hypothesis_of(recorder.output(row, num_steps, length)) for row, (num_steps, length) in enumerate(sizes)]
