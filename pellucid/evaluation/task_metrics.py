"""How the outputs of a task are scored: which rates matter, what they are called, and which are compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pellucid.decoding.trace import Trace
from pellucid.evaluation.label_metrics import LabelMetrics
from pellucid.evaluation.metrics import ConfidenceInterval, ScoredExample, ValidationMetric
from pellucid.evaluation.outcomes import MeanRates


class GroupScores(NamedTuple):
    """One row of the table by group: rates in per cent with their 95 % intervals."""

    group: str
    examples: int
    exact_match: float
    exact_match_ci95: ConfidenceInterval
    symbol_error_rate: float
    symbol_error_rate_ci95: ConfidenceInterval

    @property
    def wer(self) -> float:
        """Share of wrong outputs: the rest of the exact match."""
        return 100 - self.exact_match

    @property
    def wer_ci95(self) -> ConfidenceInterval:
        """Its interval."""
        return self.exact_match_ci95.complement

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        intervals = {name: list(getattr(self, name)) for name in ("exact_match_ci95", "symbol_error_rate_ci95")}
        return {**self._asdict(), **intervals, "wer": self.wer, "wer_ci95": list(self.wer_ci95)}


class NamedRate(NamedTuple):
    """One of the scores that a group, or the mean over groups, is told by."""

    key: str
    """Its name in JSON."""
    name: str
    """What people call it."""
    value: float
    interval: ConfidenceInterval


RateFunction = Callable[[GroupScores | MeanRates], list[NamedRate]]
"""The scores of a group or of a mean, the most telling first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskMetrics:
    """The scores of a task. A task defines one; assessments and comparisons are given it."""

    validation_metrics: tuple[ValidationMetric, ...]
    """What a validation is told by, the most telling first; a log has of these what there was to count."""
    exact_match_name: str
    """What the share of outputs that are right as a whole is called in comparisons."""
    compared_rates: tuple[tuple[str, str], ...]
    """Differences that tables list: their names in JSON, and what people call them."""
    rates: RateFunction
    """The scores of a group."""
    labels: Callable[[Sequence[ScoredExample], Sequence[Trace]], LabelMetrics] | None = None
    """Scores of labels; None where outputs have error rates instead."""
    validation_scores: Callable[[Sequence[ScoredExample]], dict[str, float]] = lambda scored: {}
    """Further scores of a validation, by their names in the log."""

    @property
    def has_error_rates(self) -> bool:
        """Whether outputs are compared by the edits between their symbols."""
        return self.labels is None


def error_rates(row: GroupScores | MeanRates) -> list[NamedRate]:
    """Return the error rates of outputs that are written symbol by symbol."""
    errors = NamedRate("symbol_error_rate", "symbol error rate", row.symbol_error_rate, row.symbol_error_rate_ci95)
    return [NamedRate("wer", "word error rate", row.wer, row.wer_ci95), errors]


def position_rates(row: GroupScores | MeanRates) -> list[NamedRate]:
    """Return the share of right tags, and of outputs in which all are right."""
    right = NamedRate("accuracy", "tags right", 100 - row.symbol_error_rate, row.symbol_error_rate_ci95.complement)
    return [right, NamedRate("exact_match", "all tags right", row.exact_match, row.exact_match_ci95)]


def accuracy_rates(row: GroupScores | MeanRates) -> list[NamedRate]:
    """Return the share of right outputs."""
    return [NamedRate("accuracy", "accuracy", row.exact_match, row.exact_match_ci95)]


ERROR_RATE_METRICS = TaskMetrics(
    validation_metrics=(
        ValidationMetric("exact_match", "exact match"),
        ValidationMetric("symbol_error_rate", "symbol error rate"),
    ),
    exact_match_name="exact match",
    compared_rates=(("exact_match", "exact match"), ("symbol_error_rate", "symbol error rate")),
    rates=error_rates,
)
"""The metrics of outputs that are written symbol by symbol."""
