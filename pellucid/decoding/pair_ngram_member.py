"""Interpolation of a network with a pair n-gram model: the outputs of both are ranked by both.

For a source x, the candidates y are the outputs of the network's search and of the pair n-gram model, ranked by

    s(y) = (1 − w) log p_network(y|x) + w log p_pair(x, y),

where w is the weight of the pair n-gram model, chosen on the validation set at the end of the training. Outputs that
were truncated at the maximum length follow the finished ones.

B sources, K candidates.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.decoding.hypothesis import Hypothesis
from pellucid.decoding.outputs import LengthLimits
from pellucid.pair_ngram.pair_ngram import PairNgram
from pellucid.shapes import Bool, Float, Int

NUM_OUTPUTS = 5
"""Number of outputs of the pair n-gram model that are candidates."""
ALIGNMENT_PENALTY = 10.0
"""Difference between the score of an output without an alignment and the lowest score of the others, in nats."""
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))
"""Weights from which the best is chosen: 0 to 1. After a short training, the network may be much the worse model."""

Weight = Annotated[float, Meta(ge=0.0, le=1.0)]
TargetIds = tuple[int, ...]
"""Target ids of an output, without EOS."""


class PairNgramMember(NamedTuple):
    """A pair n-gram model that takes part in predictions."""

    model: PairNgram
    weight: Weight
    """Weight w of its scores, 0 to 1; that of the network is 1 − w."""
    network: Annotated[int, Meta(ge=0)]
    """Number of the network to whose ids the model was fitted: 0 in the predictor of one run. Ids of another network
    name other symbols, so there is no default."""


class NetworkIds(NamedTuple):
    """Ids of a network of an ensemble."""

    source: Int[np.ndarray, " U"] | None = None
    """The network's id of each source id of the ensemble; None if they are equal."""
    target: Int[np.ndarray, " V"] | None = None
    """The network's id of each target id of the ensemble; None if they are equal."""

    def map_source(self, ids: Sequence[int]) -> list[int]:
        """Return the network's ids of source ids of the ensemble, without ids of copied symbols.

        Args:
            ids: Source ids.
        """
        if self.source is None:
            return list(ids)
        known = np.array([identity for identity in ids if 0 <= identity < len(self.source)], np.int64)
        mapped: list[int] = self.source[known].tolist()
        return mapped

    def map_target(self, ids: Sequence[int]) -> TargetIds:
        """Return the network's ids of target ids of the ensemble.

        Args:
            ids: Target ids.
        """
        return tuple(ids) if self.target is None else tuple(self.target[np.array(ids, np.int64)].tolist())

    def unmap_target(self, ids: Sequence[int]) -> TargetIds:
        """Return the ensemble's ids of target ids of the network.

        Args:
            ids: Target ids.
        """
        if self.target is None:
            return tuple(ids)
        return tuple(np.argsort(self.target)[np.array(ids, np.int64)].tolist())


class CandidateScores(NamedTuple):
    """Candidates of one source, with the scores of both models."""

    network: Float[np.ndarray, " K"]
    """Log-probability of each candidate by the network."""
    pair_ngram: Float[np.ndarray, " K"]
    """Joint log-probability of source and candidate by the pair n-gram model; finite (`finite_scores`)."""
    finished: Bool[np.ndarray, " K"]
    """False for a candidate that was truncated at the maximum length."""

    def ranking(self, weight: float) -> Int[np.ndarray, " K"]:
        """Return the numbers of the candidates, the best first; truncated ones follow all finished ones.

        Args:
            weight: Weight of the pair n-gram model.
        """
        return np.lexsort((-interpolate(self.network, self.pair_ngram, weight), ~self.finished))

    def best(self, weight: float) -> int:
        """Return the number of the best candidate; of equal ones the first.

        Args:
            weight: Weight of the pair n-gram model.
        """
        return int(self.ranking(weight)[0])


def interpolate(
    network: Float[np.ndarray, " K"], pair_ngram: Float[np.ndarray, " K"], weight: float
) -> Float[np.ndarray, " K"]:
    """Return (1 − w) log p_network + w log p_pair; −∞ where the network gives probability 0.

    Args:
        network: Log-probabilities by the network; −∞ is one.
        pair_ngram: Log-probabilities by the pair n-gram model; finite.
        weight: Weight w of the pair n-gram model.
    """
    finite = np.where(np.isneginf(network), 0.0, network)
    return np.where(np.isneginf(network), -np.inf, (1 - weight) * finite + weight * pair_ngram)


def finite_scores(scores: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """Return log-probabilities in which −∞, of outputs without an alignment, is `ALIGNMENT_PENALTY` below the lowest.

    Args:
        scores: Log-probabilities of the candidates of one source by the pair n-gram model.
    """
    finite = scores[np.isfinite(scores)]
    lowest = float(finite.min()) - ALIGNMENT_PENALTY if len(finite) else 0.0
    return np.where(np.isfinite(scores), scores, lowest)


def output_ids(hypothesis: Hypothesis) -> TargetIds:
    """Return the target ids of a hypothesis, without EOS.

    Args:
        hypothesis: Any hypothesis, finished or not.
    """
    ids = hypothesis.decoded.ids.tolist()
    return tuple(ids[:-1] if hypothesis.decoded.is_finished else ids)


def missing_outputs(
    model: PairNgram, source: Sequence[int], found: Collection[TargetIds], limits: LengthLimits
) -> list[TargetIds]:
    """Return the best outputs of a pair n-gram model that a search has not found.

    Args:
        model: Pair n-gram model.
        source: Source ids.
        found: Outputs of the search.
        limits: Minimum and maximum output length.
    """
    return [
        output.target
        for output in model.search(source, NUM_OUTPUTS)
        if output.target not in found and limits.minimum <= len(output.target) <= limits.maximum
    ]


def rank_by_both(
    hypotheses: Sequence[Hypothesis], pair_ngram: Sequence[float], weight: float, nbest: int
) -> list[Hypothesis]:
    """Return the best hypotheses of one source by both models, the best first; truncated ones follow the finished ones.

    Args:
        hypotheses: Candidates, with their log-probabilities as scores.
        pair_ngram: Their log-probabilities by the pair n-gram model.
        weight: Weight of the pair n-gram model.
        nbest: Maximum number of hypotheses to return.
    """
    candidates = CandidateScores(
        np.array([hypothesis.score for hypothesis in hypotheses]),
        finite_scores(np.array(pair_ngram)),
        np.array([hypothesis.decoded.is_finished for hypothesis in hypotheses], np.bool_),
    )
    scores = interpolate(candidates.network, candidates.pair_ngram, weight)
    return [
        hypotheses[number]._replace(score=float(scores[number]), pair_ngram_score=pair_ngram[number])
        for number in candidates.ranking(weight)[:nbest].tolist()
    ]


def best_are_right(candidates: Sequence[CandidateScores], right: Sequence[Sequence[bool]], weight: float) -> list[bool]:
    """Return, for each source, whether the best candidate by both models is correct.

    Args:
        candidates: Candidates of each source; at least one.
        right: For each candidate, whether it is correct.
        weight: Weight of the pair n-gram model.
    """
    return [flags[scores.best(weight)] for scores, flags in zip(candidates, right, strict=True)]


def choose_weight(candidates: Sequence[CandidateScores], right: Sequence[Sequence[bool]]) -> float:
    """Return the weight in `WEIGHTS` with the most correct best candidates, a mean over neighbors in `WEIGHTS`.

    The mean makes the choice less dependent on single examples. Among equal weights it is the smallest. The weight is 0
    unless it gives more correct best candidates than weight 0.

    Args:
        candidates: Candidates of each validation source; without a source the weight is 0.
        right: For each candidate, whether it is correct.
    """
    counts = [sum(best_are_right(candidates, right, weight)) for weight in WEIGHTS]
    padded = np.pad(np.array(counts), 1, mode="edge")
    chosen = int(np.argmax(padded[:-2] + padded[1:-1] + padded[2:]))
    return WEIGHTS[chosen] if counts[chosen] > counts[0] else 0.0
