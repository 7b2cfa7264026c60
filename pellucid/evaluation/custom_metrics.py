"""Metrics of other packages: base classes, registration, and the value with its confidence interval.

A metric is a class derived from `Metric`, or from `RatioMetric` where it is a mean or a ratio over examples. It selects
the best validation (`training.metric`), and `evaluate` reports it.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np

from pellucid.argument_checks import argument_error, convert_argument
from pellucid.config.extensions import check_name
from pellucid.config.settings import MetricName
from pellucid.config.training_types import METRIC_TYPES
from pellucid.decoding.trace import Trace
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, ConfigError, InputError, abbreviate_reason, quote
from pellucid.evaluation.metrics import ConfidenceInterval, ScoredExample, bootstrap_sums

ResultT = TypeVar("ResultT")
REQUIREMENT = "a subclass of pellucid.Metric or pellucid.RatioMetric without arguments"
"""Requirement of the classes of other packages, for messages."""
RESERVED_NAMES = frozenset(
    {
        *("event", "update", "samples", "epoch", "seconds", "validation", "best", "training_loss", "span_f1"),
        *("label_smoothing", "time"),
    }
)
"""Names of other fields of a validation in the log, which no metric can have."""


class EvaluatedExample(NamedTuple):
    """An output with its references, from which a metric of another package is computed."""

    source: str
    """Text of the source."""
    output: str
    """Text of the output."""
    references: tuple[str, ...]
    """Correct targets, as texts; one, or several with merged references."""
    output_symbols: tuple[str, ...]
    """Symbols of the output, without EOS, and for tags without ignored positions."""
    reference_symbols: tuple[tuple[str, ...], ...]
    """Symbols of each reference."""
    trace: Trace
    """The output with its log-probabilities, attention weights and further values."""


class Metric(ABC):
    """A metric of outputs compared with references."""

    higher_is_better: ClassVar[bool] = True
    """Whether greater values are better."""
    unit: ClassVar[str] = ""
    """Unit that is printed behind the value, such as "%"; the value is not scaled. Empty for none."""
    best_value: ClassVar[float | None] = None
    """The best possible value, at which a training may end early (`training.perfect_patience`); None if there is none.
    """

    @abstractmethod
    def compute(self, examples: Sequence[EvaluatedExample]) -> float:
        """Return the value over all examples.

        Args:
            examples: The examples, at least one.
        """

    def interval(self, examples: Sequence[EvaluatedExample]) -> ConfidenceInterval | None:
        """Return the 95 % interval of the value; None, as here, if the metric has none.

        Args:
            examples: The examples, at least one.
        """
        return None


class RatioMetric(Metric):
    """A metric that is a ratio of two sums over examples, such as a mean, with a bootstrap interval."""

    @abstractmethod
    def terms(self, example: EvaluatedExample) -> tuple[float, float]:
        """Return the numerator and the denominator of one example; the denominator is 0 or more, and 1 for a mean.

        Args:
            example: The example.
        """

    def compute(self, examples: Sequence[EvaluatedExample]) -> float:
        """Return Σ numerators / Σ denominators; a sum of 0 counts as 1.

        Args:
            examples: The examples, at least one.
        """
        numerators, denominators = zip(*map(self._checked_terms, examples), strict=True)
        return math.fsum(numerators) / (math.fsum(denominators) or 1.0)

    def interval(self, examples: Sequence[EvaluatedExample]) -> ConfidenceInterval | None:
        """Return the percentile bootstrap interval of the ratio, with examples drawn with replacement.

        Args:
            examples: The examples, at least one.
        """
        sums = bootstrap_sums(np.array([self._checked_terms(example) for example in examples], dtype=np.float64))
        ratios = sums[:, 0] / np.where(sums[:, 1] == 0, 1.0, sums[:, 1])
        low, high = np.percentile(ratios, [2.5, 97.5])
        return ConfidenceInterval(float(low), float(high))

    def _checked_terms(self, example: EvaluatedExample) -> tuple[float, float]:
        """Return the terms of an example; raise `ArgumentError` if they are not two finite numbers."""
        values = self.terms(example)
        try:
            numerator, denominator = map(float, values)
            is_valid = math.isfinite(numerator) and math.isfinite(denominator) and denominator >= 0
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise ArgumentError(
                f"{type(self).__name__}.terms returned {describe_value(values)} for the source "
                f"{quote(example.source)}; expected two finite numbers, the second 0 or more"
            )
        return numerator, denominator


class MetricScore(NamedTuple):
    """Value of a metric of another package."""

    name: MetricName
    value: float
    interval: ConfidenceInterval | None
    """95 % interval; None if the metric has none."""
    unit: str
    """Unit behind the value; empty for none."""
    higher_is_better: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "value": self.value,
            "ci95": None if self.interval is None else list(self.interval),
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
        }


def register_metric(name: str, metric_class: type[Metric]) -> None:
    """Register a class of metrics for this process, in place of a registered one of the same name.

    The setting `training.metric` and the option `metrics` of an evaluation then accept the name. The class is built
    without arguments.

    Other processes (workers of an ensemble, other commands) find a metric only as an entry point of the group
    `pellucid.metrics` of an installed package.

    Args:
        name: Name of the metric.
        metric_class: The class.

    Raises:
        ArgumentError: The name is empty, too long or not printable, or another field of the log has it; or the class is
            not a subclass of `Metric`, lacks a method, takes arguments, or a property has a wrong type.
        ConfigError: A built-in metric has this name.
    """
    name = convert_argument("name", name, str)
    check_name("name", name)
    if name in RESERVED_NAMES:
        raise argument_error("name", "a name that no other field of the training log has", name)
    if not _is_buildable(metric_class):
        raise argument_error("metric_class", REQUIREMENT, metric_class)
    METRIC_TYPES.add(name, metric_class)


def _is_buildable(value: object) -> bool:
    """Return whether a value is a class of metrics with all methods and properties, built without arguments."""
    if not issubclass(type(value), type):  # isinstance would read __class__, which may raise anything
        return False
    metric_class = cast(type, value)
    if not issubclass(metric_class, Metric) or inspect.isabstract(metric_class):
        return False
    best = metric_class.best_value
    has_types = isinstance(metric_class.higher_is_better, bool) and isinstance(metric_class.unit, str)
    if not has_types or not (best is None or isinstance(best, int | float)):
        return False
    try:
        inspect.signature(metric_class).bind()
    except (TypeError, ValueError):
        return False
    return True


def build_metric(name: MetricName) -> Metric:
    """Return the metric of a name that is not built in.

    Args:
        name: Name of the metric.

    Raises:
        ConfigError: There is no such metric, or its entry point does not provide a class as `register_metric` accepts.
    """
    metric_class = METRIC_TYPES.get(name)
    if name in RESERVED_NAMES:
        raise ConfigError(f"the metric {quote(name)} has the name of another field of the training log")
    if not _is_buildable(metric_class):
        raise ConfigError(f"the class of the metric {quote(name)} is not {REQUIREMENT}")
    return _call(name, cast(Callable[[], Metric], metric_class))


def _call(name: MetricName, function: Callable[[], ResultT]) -> ResultT:
    """Return the result of the code of another package; any of its errors becomes `ConfigError`."""
    try:
        return function()
    except InputError as error:
        raise ConfigError(f"the metric {quote(name)}: {error}") from error
    except Exception as error:  # the code of another package may raise anything
        raise ConfigError(f"the metric {quote(name)} cannot be computed: {abbreviate_reason(error)}") from error


def compute_metric(name: MetricName, examples: Sequence[EvaluatedExample]) -> float:
    """Return the value of a metric of another package.

    Args:
        name: Name of the metric.
        examples: The examples, at least one.

    Raises:
        ConfigError: The metric is unknown or fails, or the value is no finite number.
    """
    metric = build_metric(name)
    value = _call(name, lambda: metric.compute(examples))
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(
            f"the metric {quote(name)}: {type(metric).__name__}.compute returned {describe_value(value)}; "
            "expected a finite number"
        )
    return number


def score_metric(name: MetricName, examples: Sequence[EvaluatedExample]) -> MetricScore:
    """Return the value of a metric of another package with its interval.

    Args:
        name: Name of the metric.
        examples: The examples, at least one.

    Raises:
        ConfigError: As in `compute_metric`.
    """
    metric, value = build_metric(name), compute_metric(name, examples)
    interval = _call(name, lambda: metric.interval(examples))
    return MetricScore(name, value, interval, metric.unit, metric.higher_is_better)


def evaluated_examples(
    traces: Sequence[Trace], references: Sequence[Sequence[str]], scored: Sequence[ScoredExample]
) -> list[EvaluatedExample]:
    """Return outputs with their references as texts and as symbols.

    Args:
        traces: Best output of each example.
        references: References of each example, as texts.
        scored: The same as symbols.
    """
    return [
        EvaluatedExample(trace.text, trace.output, tuple(texts), example.output, example.references, trace)
        for trace, texts, example in zip(traces, references, scored, strict=True)
    ]
