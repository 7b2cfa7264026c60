"""Metrics of a task: those of the validation log, of groups and of comparisons, with their display names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pellucid.argument_checks import check_arguments
from pellucid.evaluation.label_metrics import LabelCounter
from pellucid.evaluation.metrics import ConfidenceInterval, ScoredExample, ValidationMetric
from pellucid.evaluation.outcomes import MeanRates


class GroupScores(NamedTuple):
    """Rates of one group in percent, with 95 % intervals in percent."""

    group: str
    """Name of the group."""
    examples: int
    """Number of examples."""
    exact_match: float
    exact_match_ci95: ConfidenceInterval
    """Wilson interval."""
    symbol_error_rate: float
    symbol_error_rate_ci95: ConfidenceInterval
    """Bootstrap interval."""

    @property
    def sequence_error_rate(self) -> float:
        """Percentage of wrong outputs, 100 − exact match."""
        return 100 - self.exact_match

    @property
    def sequence_error_rate_ci95(self) -> ConfidenceInterval:
        """Interval of the percentage of wrong outputs."""
        return self.exact_match_ci95.complement

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        intervals = {name: list(getattr(self, name)) for name in ("exact_match_ci95", "symbol_error_rate_ci95")}
        return {
            **self._asdict(),
            **intervals,
            "sequence_error_rate": self.sequence_error_rate,
            "sequence_error_rate_ci95": list(self.sequence_error_rate_ci95),
        }


class NamedRate(NamedTuple):
    """A rate in percent, of a group or of the macro average, with its JSON key and its display name."""

    key: str
    """JSON key."""
    name: str
    """Display name."""
    value: float
    interval: ConfidenceInterval


RateFunction = Callable[[GroupScores | MeanRates], list[NamedRate]]
"""Function that returns the rates of a group or of the macro average, most important first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskMetrics:
    """Metrics of a task and their names. Each task has one, in `Task.metrics`."""

    validation_metrics: tuple[ValidationMetric, ...]
    """Metrics of the validation set, most important first. The log contains those that could be computed."""
    other_metrics: tuple[ValidationMetric, ...] = ()
    """Further metrics of the log, which the page shows, and a line of the progress does not."""
    summary_key: str = "exact_match"
    """Key of the metric by which the page describes the best validation; one of the metrics above."""
    compared_rates: tuple[tuple[str, str], ...]
    """JSON keys and display names of the differences in comparison tables."""
    rates: RateFunction
    """Function that returns the rates of a group or of the macro average, most important first."""
    labels: Callable[[], LabelCounter] | None = None
    """Class that counts the outputs, and computes label metrics from the counts; None for tasks with error rates."""
    validation_scores: Callable[[Sequence[ScoredExample]], dict[str, float]] = lambda scored: {}
    """Function that computes further validation metrics, by their keys in the log."""

    @property
    def names(self) -> dict[str, str | None]:
        """Display names of metrics of the log by their keys; None hides a redundant metric of tasks with labels."""
        hidden = {} if self.has_error_rates else dict.fromkeys(("symbol_error_rate", "symbol_accuracy"))
        return {**hidden, **{metric.key: metric.name for metric in (*self.validation_metrics, *self.other_metrics)}}

    @property
    def exact_match_name(self) -> str:
        """Display name of the exact match."""
        return self.names.get("exact_match") or "exact match"

    @property
    def summary_metric(self) -> ValidationMetric:
        """Metric by which the page describes the best validation."""
        return ValidationMetric(self.summary_key, self.names.get(self.summary_key) or self.summary_key)

    @property
    def has_error_rates(self) -> bool:
        """True if outputs are sequences that are compared by edit distance; False for labels."""
        return self.labels is None


@check_arguments
def error_rates(row: GroupScores | MeanRates) -> list[NamedRate]:
    """Return the sequence error rate (percentage of wrong outputs) and the symbol error rate of sequences.

    Args:
        row: Rates of a group, or the macro average.

    Raises:
        ArgumentError: The argument is neither.
    """
    errors = NamedRate("symbol_error_rate", "symbol error rate", row.symbol_error_rate, row.symbol_error_rate_ci95)
    return [
        NamedRate("sequence_error_rate", "sequence error rate", row.sequence_error_rate, row.sequence_error_rate_ci95),
        errors,
    ]


@check_arguments
def tag_rates(row: GroupScores | MeanRates) -> list[NamedRate]:
    """Return the tag accuracy, and the sequence accuracy: the percentage of outputs whose tags are all correct.

    Args:
        row: Rates of a group, or the macro average.

    Raises:
        ArgumentError: The argument is neither.
    """
    accuracy = NamedRate("accuracy", "tag accuracy", 100 - row.symbol_error_rate, row.symbol_error_rate_ci95.complement)
    return [accuracy, NamedRate("exact_match", "sequence accuracy", row.exact_match, row.exact_match_ci95)]


@check_arguments
def accuracy_rates(row: GroupScores | MeanRates) -> list[NamedRate]:
    """Return the accuracy of classes or positions: the percentage of correct outputs.

    Args:
        row: Rates of a group, or the macro average.

    Raises:
        ArgumentError: The argument is neither.
    """
    return [NamedRate("accuracy", "accuracy", row.exact_match, row.exact_match_ci95)]


@check_arguments
def class_and_tag_rates(row: GroupScores | MeanRates) -> list[NamedRate]:
    """Return the label accuracy, over classes and tags, and the percentage of outputs whose labels are all correct.

    Args:
        row: Rates of a group, or the macro average.

    Raises:
        ArgumentError: The argument is neither.
    """
    accuracy, exact = tag_rates(row)
    return [accuracy._replace(name="label accuracy"), exact]


ERROR_RATE_METRICS = TaskMetrics(
    validation_metrics=(
        ValidationMetric("exact_match", "exact match"),
        ValidationMetric("symbol_error_rate", "symbol error rate"),
    ),
    compared_rates=(("exact_match", "exact match"), ("symbol_error_rate", "symbol error rate")),
    rates=error_rates,
)
"""Metrics of sequences."""
