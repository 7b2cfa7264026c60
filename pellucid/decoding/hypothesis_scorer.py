"""Scores that rank finished outputs: log-probability, length normalization and coverage penalty.

B sources, K hypotheses of each, S source positions. |Y| is the number of steps of an output, including EOS.
"""

from typing import Literal, NamedTuple

import numpy as np

from pellucid.config.settings import SearchConfig
from pellucid.shapes import Float, Int

MIN_COVERAGE = 1e-6
"""Minimum coverage of a position, which keeps its logarithm finite."""

MAX_FLOAT32 = np.finfo(np.float32).max
"""Maximum of a power in single precision; −∞ divided by infinity would be NaN."""


class HypothesisScorer(NamedTuple):
    """Score s(Y, X) = log p(Y|X) / lp(Y) + cp(X; Y).

    References:
        Wu et al. 2016, "Google's Neural Machine Translation System", section 7, equation 14.
    """

    length_normalization: Literal["none", "average", "gnmt"] = "none"
    """Length penalty lp(Y): 1, |Y|, or ((5 + |Y|) / 6)^α."""
    length_penalty_alpha: float = 0.0
    """Exponent α of the "gnmt" length penalty."""
    coverage_penalty: float = 0.0
    """Weight β of the coverage penalty."""

    @property
    def is_log_probability(self) -> bool:
        """True without normalization and coverage penalty: the score is the log-probability, which only falls."""
        return self.length_normalization == "none" and not self.coverage_penalty

    def length_penalty(self, steps: Int[np.ndarray, " B"]) -> Float[np.ndarray, " B"]:
        """Return the length penalty lp(Y): 1, |Y|, or ((5 + |Y|) / 6)^α; at most the largest float32.

        It does not decrease with the length.

        Args:
            steps: Number of steps |Y| of each output, including EOS; 0 counts as 1.
        """
        length: Float[np.ndarray, " B"] = np.maximum(steps, 1).astype(np.float32)
        match self.length_normalization:
            case "none":
                return np.ones_like(length)
            case "average":
                return length
            case "gnmt":
                with np.errstate(over="ignore"):
                    penalty: Float[np.ndarray, " B"] = ((5 + length) / 6) ** np.float32(self.length_penalty_alpha)
                np.minimum(penalty, MAX_FLOAT32, out=penalty)
                return penalty

    def score(
        self, cumulative_log_probs: Float[np.ndarray, "B K"], steps: int, coverage: Float[np.ndarray, "B K S"]
    ) -> Float[np.ndarray, "B K"]:
        """Return the scores of outputs of one length.

        cp = β Σ_s log min(Σ_t α_ts, 1) over the source positions; a sum below `MIN_COVERAGE` counts as `MIN_COVERAGE`.

        Args:
            cumulative_log_probs: Log-probability of each output.
            steps: Number of steps |Y| of all outputs, including EOS.
            coverage: Sums of attention weights over the steps; 1 beyond a source's length, and everywhere without
                attention. Not read if β is 0.
        """
        score: Float[np.ndarray, "B K"] = cumulative_log_probs / self.length_penalty(np.array([steps]))
        if self.coverage_penalty:
            score = score + np.float32(self.coverage_penalty) * np.log(np.clip(coverage, MIN_COVERAGE, 1)).sum(axis=2)
        return score

    def bound(
        self, cumulative_log_probs: Float[np.ndarray, " B"], max_steps: Int[np.ndarray, " B"]
    ) -> Float[np.ndarray, " B"]:
        """Return an upper bound of the scores of all outputs of at most `max_steps` steps that extend a hypothesis.

        It is the hypothesis' log-probability / lp(max_steps): the log-probability only falls, lp only grows, and cp is
        at most 0.

        Args:
            cumulative_log_probs: Log-probability of each hypothesis.
            max_steps: Maximum number of steps of each source's outputs, including EOS.
        """
        bound: Float[np.ndarray, " B"] = cumulative_log_probs / self.length_penalty(max_steps)
        return bound


LOG_PROBABILITY = HypothesisScorer()


def hypothesis_scorer(config: SearchConfig) -> HypothesisScorer:
    """Return the scorer of a search configuration.

    Args:
        config: Length normalization, its exponent, and the weight of the coverage penalty.
    """
    return HypothesisScorer(config.length_normalization, config.length_penalty_alpha, config.coverage_penalty)


def allows_pair_ngram_ranking(config: SearchConfig) -> bool:
    """Return whether a search ranks outputs by the network and by the pair n-gram model, if the run has one.

    The pair n-gram model has log-probabilities of whole outputs, so it takes no part in a search by other scores.

    Args:
        config: Search settings.
    """
    return config.pair_ngram and hypothesis_scorer(config).is_log_probability
