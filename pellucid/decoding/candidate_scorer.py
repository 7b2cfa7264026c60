"""What a beam ranks whole outputs by: ln p, over a measure of their length, and what of the source they left unseen.

B sources, K hypotheses of each, S source positions. |Y| counts the steps of an output, the one that wrote EOS included.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.config.settings import SearchConfig

UNSEEN = 1e-6
"""What a position that was never looked at counts as, so that its logarithm is finite."""

GREATEST = np.finfo(np.float32).max
"""What a power that is too great for single precision counts as: −∞ over infinity would be no number."""


class Score(NamedTuple):
    """s(Y, X) = ln p(Y|X) / lp(Y) + cp(X; Y). Wu et al. 2016, section 7, equation 14."""

    normalization: Literal["none", "average", "gnmt"] = "none"
    power: float = 0.0
    """α of "gnmt"."""
    coverage: float = 0.0
    """β."""

    @property
    def plain(self) -> bool:
        """Whether it is ln p itself, which no further symbol can raise."""
        return self.normalization == "none" and not self.coverage

    def divisor(self, steps: Int[np.ndarray, " B"]) -> Float[np.ndarray, " B"]:
        """lp(Y): 1, |Y|, or ((5 + |Y|) / 6)^α; never less for a longer output."""
        length: Float[np.ndarray, " B"] = np.maximum(steps, 1).astype(np.float32)
        match self.normalization:
            case "none":
                return np.ones_like(length)
            case "average":
                return length
            case "gnmt":
                with np.errstate(over="ignore"):
                    grown: Float[np.ndarray, " B"] = ((5 + length) / 6) ** np.float32(self.power)
                np.minimum(grown, GREATEST, out=grown)
                return grown

    def of(
        self, sums: Float[np.ndarray, "B K"], steps: int, covered: Float[np.ndarray, "B K S"]
    ) -> Float[np.ndarray, "B K"]:
        """The score of outputs of so many steps: `sums` of ln p, `covered` the sums of their attention weights.

        cp = β Σ_s ln min(Σ_t α_ts, 1) over the source's positions, `UNSEEN` at least; beyond a source's length
        `covered` is 1, and so it is everywhere for models that do not attend.
        """
        score: Float[np.ndarray, "B K"] = sums / self.divisor(np.array([steps]))
        if self.coverage:
            score = score + np.float32(self.coverage) * np.log(np.clip(covered, UNSEEN, 1)).sum(axis=2)
        return score

    def bound(self, sums: Float[np.ndarray, " B"], longest: Int[np.ndarray, " B"]) -> Float[np.ndarray, " B"]:
        """No output of at most `longest` steps that a hypothesis of this sum can become scores higher.

        ln p is at most 0 and only falls, lp only grows, and cp is at most 0.
        """
        bound: Float[np.ndarray, " B"] = sums / self.divisor(longest)
        return bound


PLAIN = Score()


def score_of(config: SearchConfig) -> Score:
    """The score that a configuration asks for."""
    return Score(config.length_normalization, config.length_penalty_alpha, config.coverage_penalty)
