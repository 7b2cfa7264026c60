"""Confidence: the estimated probability that the best output of a source is correct.

The probability of an output by the network is a poor estimate of it: label smoothing takes probability mass from every
symbol, and an output multiplies the probabilities of its symbols. The confidence is Platt scaling of the margin m of
the output,

    confidence = σ(a + b m),  b ≥ 0,    m = −log Σ_t p(y'_t | y_<t, x) / p(y_t | y_<t, x),

where y'_t is the most probable symbol other than y_t at step t. The sum is the odds of the outputs that leave y at one
step for its best alternative. Label smoothing lowers both probabilities of a fraction, so that their ratio, unlike
p(y | x), does not fall with the length of the output. If a pair n-gram model takes part in the ranking, m is the
difference between the scores by which the search ranks the best and the second output; both models take part in them.

a and b are fitted to the outputs of the validation set at the end of a training, as the search of the run finds them
(training/confidence_training.py). They hold for such outputs only: outputs of another search, with constraints or by
several networks have no confidence (`Predictor.no_confidence_reason`). An empty output, and an output for a source with
characters that the network has never seen, has the margin −∞ and the lowest confidence: no target is empty, and the
network is overconfident in outputs for unknown characters. The confidence is a monotone function of one
number that does not depend on the validation targets, so that a threshold on it selects the same outputs as one on m:
conformal risk control (evaluation/risk_control.py) relies on that. docs/guides/confidence.md compares methods on public
data.

n outputs, T steps.

References:
    J. Platt (1999), "Probabilistic outputs for support vector machines and comparisons to regularized likelihood
        methods".
    C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger (2017), "On calibration of modern neural networks".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from pellucid.argument_checks import CheckedFields
from pellucid.config.settings import MAX_BEAM_SIZE, SearchConfig
from pellucid.decoding.trace import END, Trace
from pellucid.errors import ArgumentError, quote
from pellucid.shapes import Float

MAX_MARGIN = 30.0
"""Upper limit of margins, and of their absolute values; also the margin of an output without any alternative."""
WRONG_DECIMALS = 5
"""Decimals of the confidences of wrong validation outputs, and of thresholds."""
MAX_EXAMPLES = 1_000_000
"""Maximum number of outputs to which a confidence is fitted."""
IGNORED_SETTINGS = ("batch_size", "pair_ngram")
"""Search settings that may differ: the first changes no output, and the weight of the pair n-gram model is compared in
place of the second."""

UnitInterval = Annotated[float, Meta(ge=0.0, le=1.0)]
"""A number from 0 to 1."""


@dataclass(frozen=True)
class ConfidenceModel(CheckedFields):
    """A fitted confidence, with what is needed to choose thresholds: the confidences of wrong validation outputs.

    Raises:
        ArgumentError: A field has a wrong type or value.
    """

    intercept: Annotated[float, Meta(ge=-1e9, le=1e9)]
    """Intercept a, in log-odds."""
    slope: Annotated[float, Meta(ge=0.0, le=1e9)]
    """Slope b, in log-odds per nat of margin."""
    num_examples: Annotated[int, Meta(ge=1, le=MAX_EXAMPLES)]
    """Number n of validation outputs to which it was fitted."""
    wrong_confidences: tuple[UnitInterval, ...]
    """Confidences of the wrong ones among them, rounded up to `WRONG_DECIMALS`."""
    search: SearchConfig
    """Search settings of these outputs."""
    pair_ngram_weight: UnitInterval = 0.0
    """Weight of the pair n-gram model in the ranking of these outputs."""
    lowest_confidence_for_unknown: bool = False
    """True if outputs for sources with unknown symbols have the lowest confidence.

    See `Predictor.lowest_confidence_for_unknown`.
    """

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        if (num_wrong := len(self.wrong_confidences)) > self.num_examples:
            raise ArgumentError(f"wrong_confidences: expected at most {self.num_examples} confidences, got {num_wrong}")

    def confidences(self, margins: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the confidence of each output, from 1 / (n + 2) to (n + 1) / (n + 2) for n validation outputs.

        The limits are Laplace's rule of succession for n outputs that were all wrong or all correct: so few outputs
        support no more extreme number.

        Args:
            margins: Margin of each output (`output_margins`), in nats; of −∞, the lower limit.
        """
        limit = 1 / (self.num_examples + 2)
        is_finite = np.isfinite(margins)
        log_odds = self.intercept + self.slope * np.where(is_finite, margins, 0.0)
        log_odds = np.where(is_finite, np.clip(log_odds, -50.0, 50.0), -50.0)
        confidences: Float[np.ndarray, " n"] = np.clip(1 / (1 + np.exp(-log_odds)), limit, 1 - limit)
        return confidences


def output_margins(
    outputs: Sequence[Sequence[Trace]], with_pair_ngram: bool = False, lowest_confidence_for_unknown: bool = False
) -> Float[np.ndarray, " n"]:
    """Return the margin of the best output of each source, in nats, from −`MAX_MARGIN` to `MAX_MARGIN`, or −∞.

    Args:
        outputs: Outputs of each source, the best first: at least one, and with a pair n-gram model the second too.
        with_pair_ngram: True if a pair n-gram model took part in their ranking.
        lowest_confidence_for_unknown: True if outputs have the margin −∞ where the source has unknown symbols.
    """
    margin = _score_margin if with_pair_ngram else _alternative_margin
    margins = np.array([margin(traces) for traces in outputs], np.float64)
    is_overconfident = [
        _is_empty(best) or (lowest_confidence_for_unknown and bool(best.unknown)) for best, *_ in outputs
    ]
    return np.where(np.array(is_overconfident, bool), -np.inf, margins)


def _is_empty(trace: Trace) -> bool:
    """Return whether the output of a source has no symbol."""
    return trace.target in ((), (END,)) and bool(trace.source)


def _score_margin(traces: Sequence[Trace]) -> float:
    """Return the difference between the search scores of the best and the second output."""
    scores = [trace.score if trace.search_score is None else trace.search_score for trace in traces[:2]]
    if len(scores) < 2 or np.isneginf(scores[1]):
        return MAX_MARGIN
    return float(np.clip(scores[0] - scores[1], -MAX_MARGIN, MAX_MARGIN))


def _alternative_margin(traces: Sequence[Trace]) -> float:
    """Return the negative logarithm of the odds of all outputs that leave the best at one step."""
    trace = traces[0]
    top = trace.top_log_probabilities
    if not len(trace.target) or top.shape[1] < 2:
        return MAX_MARGIN
    # The candidates of a step are sorted. The best other symbol is the second if the first was chosen, else the first.
    is_first = np.array([symbols[0] == symbol for symbols, symbol in zip(trace.top_symbols, trace.target, strict=True)])
    others = np.where(is_first, top[:, 1], top[:, 0]).astype(np.float64)
    chosen = trace.log_probabilities.astype(np.float64)
    with np.errstate(invalid="ignore"):  # −∞ − −∞
        differences = np.nan_to_num(others - chosen, nan=0.0)
    return float(np.clip(-np.logaddexp.reduce(np.clip(differences, -MAX_MARGIN, MAX_MARGIN)), -MAX_MARGIN, MAX_MARGIN))


def add_confidences(model: ConfidenceModel, outputs: Sequence[Sequence[Trace]]) -> list[list[Trace]]:
    """Return outputs of which the first of each source has its confidence.

    Outputs of empty sources and entries of a lexicon, which the model did not write, have none.

    Args:
        model: Fitted confidence.
        outputs: Outputs of each source, as for `output_margins`.
    """
    lists = [list(traces) for traces in outputs]
    own = [traces for traces in lists if traces and traces[0].source and traces[0].origin == "search"]
    confidences = model.confidences(
        output_margins(own, model.pair_ngram_weight > 0, model.lowest_confidence_for_unknown)
    ).tolist()
    for traces, confidence in zip(own, confidences, strict=True):
        traces[0] = replace(traces[0], confidence=confidence)
    return lists


def reaches_confidence(trace: Trace, min_confidence: float) -> bool:
    """Return whether the confidence of an output is at least `min_confidence`, or the output has none.

    Entries of a lexicon and the outputs of empty sources, which no model wrote, have none and count as correct.

    Args:
        trace: Best output of a source, by a model with a fitted confidence.
        min_confidence: Lowest confidence of an accepted output, 0 to 1.
    """
    return trace.confidence is None or trace.confidence >= min_confidence


def describe_search_difference(fitted: SearchConfig, used: SearchConfig, nbest: int, autoregressive: bool) -> str:
    """Return the first setting in which a search differs from that to which a confidence was fitted; "" if none does.

    A list of outputs longer than the beam is a search with a beam of that length.

    Args:
        fitted: Search settings of the outputs to which the confidence was fitted.
        used: Search settings of a predictor.
        nbest: Maximum number of outputs per source.
        autoregressive: True if outputs are decoded symbol by symbol; for other tasks nothing is searched.
    """
    if not autoregressive:
        return ""
    if nbest > used.beam_size:
        used = msgspec.structs.replace(used, beam_size=min(nbest, MAX_BEAM_SIZE))
    for field in msgspec.structs.fields(SearchConfig):
        one, other = getattr(fitted, field.name), getattr(used, field.name)
        if field.name not in IGNORED_SETTINGS and one != other:
            return f"search.{field.name} is {quote(other)}, and was {quote(one)} when the confidence was fitted"
    return ""


def describe_weight_difference(fitted: float, other: float) -> str:
    """Return how the weight of the pair n-gram model in a search differs from that of the fit; "" if they are equal.

    Args:
        fitted: Weight when the confidence was fitted; 0 if the network ranked alone.
        other: Weight in another search.
    """
    if fitted == other:
        return ""
    if not other:
        return (
            "the network ranks the outputs alone, and ranked them with the pair n-gram model when the confidence was "
            "fitted"
        )
    if not fitted:
        return (
            "the network ranks the outputs with the pair n-gram model, and ranked them alone when the confidence was "
            "fitted"
        )
    return f"the weight of the pair n-gram model is {other:g}, and was {fitted:g} when the confidence was fitted"
