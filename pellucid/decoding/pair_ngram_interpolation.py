"""Interpolation of a network with a pair n-gram model: the outputs of both are ranked by both.

For a source x, the candidates y are the outputs of the network's search and of the pair n-gram model, ranked by

    s(y) = (1 − w) log p_network(y|x) + w log p_pair(x, y),

where w is the weight of the pair n-gram model, chosen on the validation set at the end of the training. For an output
without an alignment, log p_pair is the score of unseen pairs of symbols (`PairNgram.score`), so that s(y) never depends
on the other candidates. Outputs that were truncated at the maximum length follow the finished ones. With the weight 0,
the outputs of the network keep the order of its search, and precede the others: the first ones are those without a
pair n-gram model.

B sources, K candidates, U source ids of an ensemble, V target ids.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.decoding.constraints import Constraints
from pellucid.decoding.hypothesis import Hypothesis
from pellucid.decoding.outputs import BatchLengthLimits, LengthLimits
from pellucid.decoding.preprocessing import SourceBatch
from pellucid.errors import RunError
from pellucid.pair_ngram.model import PairNgram, PairOutput
from pellucid.shapes import Bool, Float, Int

NUM_OUTPUTS = 5
"""Number of outputs of the pair n-gram model that are candidates."""
WEIGHTS = tuple(round(0.05 * step, 2) for step in range(21))
"""Weights from which the best is chosen: 0 to 1. After a short training, the network may be much the worse model."""

Weight = Annotated[float, Meta(ge=0.0, le=1.0)]
TargetIds = tuple[int, ...]
"""Target ids of an output, without EOS."""


class InterpolatedPairNgram(NamedTuple):
    """A pair n-gram model that takes part in predictions."""

    model: PairNgram
    weight: Weight
    """Weight w of its scores, 0 to 1; that of the network is 1 − w."""
    network_index: Annotated[int, Meta(ge=0)]
    """Number of the network to whose ids the model was fitted: 0 in the predictor of one run. Ids of another network
    name other symbols, so there is no default."""
    predicts_alone: bool = False
    """Whether outputs keep the order of this model's search, with the weight 1: so before the first validation of a
    training. False, the default, ranks outputs by their scores, which also count alignments outside the beam."""


RESUME_ADVICE = "if it was interrupted, its training command resumes it"
"""What to do about a training without a validation."""


def untrained_network_error(name: str) -> RunError:
    """Return the error for an operation that needs the network, before the first validation of its training.

    Args:
        name: Run folder of the network; "" if it has none.
    """
    return RunError(
        f"{name or 'the predictor'} holds no model yet: its training has not reached a first validation; "
        f"{RESUME_ADVICE}, and predict and evaluate give the outputs of its pair n-gram model until then"
    )


@dataclass(frozen=True, eq=False)
class NetworkIds:
    """Ids of a network of an ensemble."""

    source: Int[np.ndarray, " U"] | None = None
    """The network's id of each source id of the ensemble; None if they are equal."""
    target: Int[np.ndarray, " V"] | None = None
    """The network's id of each target id of the ensemble; None if they are equal."""

    def map_source(self, ids: Sequence[int], num_ids: int) -> list[int]:
        """Return the network's ids of source ids of the ensemble, without those of copied symbols and of features.

        Args:
            ids: Source ids.
            num_ids: Number of source ids of the network without features.
        """
        if self.source is not None:
            known = [source_id for source_id in ids if 0 <= source_id < len(self.source)]
            ids = self.source[np.array(known, np.int64)].tolist()
        return [source_id for source_id in ids if 0 <= source_id < num_ids]

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
        inverse = self._inverse_target
        return tuple(ids) if inverse is None else tuple(inverse[np.array(ids, np.int64)].tolist())

    @cached_property
    def _inverse_target(self) -> Int[np.ndarray, " V"] | None:
        """The ensemble's id of each target id of the network; None if they are equal."""
        return None if self.target is None else np.argsort(self.target)


class CandidateScores(NamedTuple):
    """Candidates of one source, with the scores of both models: those of the network's search first, in its order."""

    network: Float[np.ndarray, " K"]
    """Log-probability of each candidate by the network."""
    pair_ngram: Float[np.ndarray, " K"]
    """Joint log-probability of source and candidate by the pair n-gram model; finite (`PairNgram.score`)."""
    finished: Bool[np.ndarray, " K"]
    """False for a candidate that was truncated at the maximum length."""

    def ranking(self, weight: float) -> Int[np.ndarray, " K"]:
        """Return the numbers of the candidates, the best first; truncated ones follow all finished ones.

        Args:
            weight: Weight of the pair n-gram model; with 0, the candidates keep their order.
        """
        if weight == 0:
            return np.arange(len(self.network))
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
        pair_ngram: Scores by the pair n-gram model; finite.
        weight: Weight w of the pair n-gram model.
    """
    finite = np.where(np.isneginf(network), 0.0, network)
    return np.where(np.isneginf(network), -np.inf, (1 - weight) * finite + weight * pair_ngram)


def output_ids(hypothesis: Hypothesis) -> TargetIds:
    """Return the target ids of a hypothesis, without EOS.

    Args:
        hypothesis: Any hypothesis, finished or not.
    """
    ids = hypothesis.decoded.ids.tolist()
    return tuple(ids[:-1] if hypothesis.decoded.is_finished else ids)


class ProposedOutputs(NamedTuple):
    """Outputs that a pair n-gram model adds to those of a search, and its scores of all."""

    added: list[tuple[int, TargetIds]]
    """Row of the source and target ids of each added output, by row."""
    scores: list[list[float]]
    """For each source, the scores of the outputs of the search, then of the added ones (`PairNgram.score`)."""


def propose_outputs(
    pair_ngram: InterpolatedPairNgram,
    ids: NetworkIds,
    batch: SourceBatch,
    hypotheses: Sequence[Sequence[Hypothesis]],
    limits: BatchLengthLimits,
    constraints: Constraints,
) -> ProposedOutputs:
    """Return outputs of a pair n-gram model that a search has not found, and its scores of all outputs.

    If the model predicts alone, the scores of its own outputs are those of its search, and other scores are lower.

    Args:
        pair_ngram: The model.
        ids: Ids of the network to which the model was fitted, for those of the predictor.
        batch: Sources of the search.
        hypotheses: Outputs of the search, of each source.
        limits: Length limits of the outputs of each source, which added outputs satisfy, too.
        constraints: Constraints of the sources, which added outputs satisfy.
    """
    model = pair_ngram.model
    sources = batch.source.tolist()
    lengths = batch.lengths.tolist()
    proposed = ProposedOutputs([], [])
    for row, of_source in enumerate(hypotheses):
        source = ids.map_source(sources[row][: lengths[row]], model.numbering.source_size)
        targets = [ids.map_target(output_ids(hypothesis)) for hypothesis in of_source]
        found = model.search(source, NUM_OUTPUTS)
        for target in _missing_outputs(found, targets, limits.of_source(row)):
            output = ids.unmap_target(target)
            if constraints.allows(row, output):
                proposed.added.append((row, output))
                targets.append(target)
        scores = [model.score(source, target) for target in targets]
        if pair_ngram.predicts_alone and pair_ngram.weight == 1:
            scores = _scores_of_search(found, targets, scores)
        proposed.scores.append(scores)
    return proposed


def _missing_outputs(
    found: Sequence[PairOutput], known: Collection[TargetIds], limits: LengthLimits
) -> list[TargetIds]:
    """Return the outputs of a pair n-gram model, of an allowed length, that are not among the known ones."""
    return [
        output.target
        for output in found
        if output.target not in known and limits.minimum <= len(output.target) <= limits.maximum
    ]


def _scores_of_search(
    found: Sequence[PairOutput], targets: Sequence[TargetIds], scores: Sequence[float]
) -> list[float]:
    """Return scores by which the outputs of a pair n-gram model's search keep its order, and precede all others."""
    own = {output.target: output.score for output in found}
    below = float(np.nextafter(min(own.values(), default=np.inf), -np.inf))
    return [own.get(target, min(score, below)) for target, score in zip(targets, scores, strict=True)]


def rank_by_interpolation(
    hypotheses: Sequence[Hypothesis], pair_ngram: Sequence[float], weight: float, nbest: int
) -> list[Hypothesis]:
    """Return the best hypotheses of one source by both models, the best first; truncated ones follow the finished ones.

    Args:
        hypotheses: Candidates, with their log-probabilities as scores: those of the network's search first, in its
            order, which they keep with the weight 0.
        pair_ngram: Their scores by the pair n-gram model; finite (`PairNgram.score`).
        weight: Weight of the pair n-gram model.
        nbest: Maximum number of hypotheses to return.
    """
    candidates = CandidateScores(
        np.array([hypothesis.score for hypothesis in hypotheses]),
        np.array(pair_ngram),
        np.array([hypothesis.decoded.is_finished for hypothesis in hypotheses], np.bool_),
    )
    scores = interpolate(candidates.network, candidates.pair_ngram, weight)
    return [
        hypotheses[number]._replace(score=float(scores[number]), pair_ngram_score=pair_ngram[number])
        for number in candidates.ranking(weight)[:nbest].tolist()
    ]


def best_candidate_edits(
    candidates: Sequence[CandidateScores], edits: Sequence[Sequence[int]], weight: float
) -> list[int]:
    """Return, for each source, the edits between the best candidate by both models and the nearest reference.

    Args:
        candidates: Candidates of each source; at least one.
        edits: For each candidate, the edits to the nearest reference: 0 if it is correct.
        weight: Weight of the pair n-gram model.
    """
    return [counts[scores.best(weight)] for scores, counts in zip(candidates, edits, strict=True)]


def choose_weight(candidates: Sequence[CandidateScores], edits: Sequence[Sequence[int]]) -> float:
    """Return the weight in `WEIGHTS` with the most correct best candidates, and of these the fewest edits.

    With the pair q(w) = (number of correct outputs, −edits) of the best candidates by the weight w, it is

        w* = argmax_w q(w⁻) + q(w) + q(w⁺),

    where w⁻ and w⁺ are the neighbors of w in `WEIGHTS`, or w itself at an end; pairs are compared by their first
    number, then by their second. The sums make the choice less dependent on single examples.

    Args:
        candidates: Candidates of each validation source; without a source the weight is 0.
        edits: For each candidate, the edits to the nearest reference.

    Returns:
        w*, the smallest of equally good weights, if q(w*) > q(0): more outputs are correct than by the network alone,
        or as many with fewer edits, which decides if few sources were decoded. Otherwise 0.
    """
    counts = [best_candidate_edits(candidates, edits, weight) for weight in WEIGHTS]
    scores = np.array([(sum(count == 0 for count in row), -sum(row)) for row in counts])
    padded = np.pad(scores, ((1, 1), (0, 0)), mode="edge")
    smoothed = (padded[:-2] + padded[1:-1] + padded[2:]).tolist()
    chosen = max(range(len(WEIGHTS)), key=smoothed.__getitem__)  # of equal ones the first
    return WEIGHTS[chosen] if scores[chosen].tolist() > scores[0].tolist() else 0.0
