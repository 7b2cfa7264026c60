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

from pellucid.argument_checks import argument_error
from pellucid.config.extensions import ClassRequirement, convert_name, takes_arguments
from pellucid.config.settings import MetricName
from pellucid.config.training_types import METRIC_TYPES
from pellucid.decoding.trace import Trace
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, ConfigError, InputError, abbreviate_reason, quote
from pellucid.evaluation.metrics import ConfidenceInterval, ScoredExample, bootstrap_sums

ResultT = TypeVar("ResultT")
RESERVED_NAMES = frozenset(
    {
        *("event", "update", "samples", "epoch", "seconds", "validation", "best", "training_loss"),
        *("span_f1", "class_accuracy", "tag_accuracy"),  # metrics of built-in tasks
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
    """Unit printed after the value, such as "%"; the value is not scaled. An empty string: no unit."""
    best_value: ClassVar[float | None] = None
    """The best possible value, at which a training may end early (`training.perfect_patience`); None if there is none.
    """

    @abstractmethod
    def compute(self, examples: Sequence[EvaluatedExample]) -> float | None:
        """Return the value over all examples; None if it is undefined for them.

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

    def compute(self, examples: Sequence[EvaluatedExample]) -> float | None:
        """Return Σ numerators / Σ denominators; None if all denominators are 0.

        Args:
            examples: The examples, at least one.
        """
        numerators, denominators = zip(*map(self._checked_terms, examples), strict=True)
        total = math.fsum(denominators)
        return math.fsum(numerators) / total if total else None

    def interval(self, examples: Sequence[EvaluatedExample]) -> ConfidenceInterval | None:
        """Return the percentile bootstrap interval of the ratio, with examples drawn with replacement.

        Resamples whose denominators are all 0 have no ratio, and are left out.

        Args:
            examples: The examples, at least one.
        """
        sums = bootstrap_sums(np.array([self._checked_terms(example) for example in examples], dtype=np.float64))
        defined = sums[sums[:, 1] > 0]
        if not len(defined):
            return None
        low, high = np.percentile(defined[:, 0] / defined[:, 1], [2.5, 97.5])
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
    value: float | None
    """The value; None if it is undefined for the examples, such as a ratio whose denominators are all 0."""
    interval: ConfidenceInterval | None
    """95 % interval; None if the metric has none."""
    unit: str
    """Unit behind the value; empty if there is none."""
    higher_is_better: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "value": self.value,
            "ci95": None if self.interval is None else list(self.interval),
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
        }


def _is_metric_class(value: type) -> bool:
    """Return whether a class is a metric with all methods and properties, built without arguments."""
    if not issubclass(value, Metric) or inspect.isabstract(value):
        return False
    has_types = isinstance(value.higher_is_better, bool) and isinstance(value.unit, str)
    has_best = value.best_value is None or isinstance(value.best_value, int | float)
    return has_types and has_best and takes_arguments(value, 0)


def _find_fault(value: Any) -> str:  # noqa: ANN401 (a class whose attributes are read)
    """Return a property of a class of metrics that has a wrong type, in words; "" if there is none."""
    if not issubclass(value, Metric):
        return ""
    if not isinstance(value.higher_is_better, bool):
        return f"higher_is_better must be True or False, not {describe_value(value.higher_is_better)}"
    if not isinstance(value.unit, str):
        return f"unit must be a string, not {describe_value(value.unit)}"
    if not (value.best_value is None or isinstance(value.best_value, int | float)):
        return f"best_value must be a number or None, not {describe_value(value.best_value)}"
    return ""


METRIC_REQUIREMENT = ClassRequirement(
    "a subclass of pellucid.Metric or pellucid.RatioMetric without arguments", _is_metric_class, _find_fault
)
"""Requirement of the classes of other packages."""


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
    name = convert_name("name", name)
    if name in RESERVED_NAMES:
        raise argument_error("name", "a name that no other field of the training log has", name)
    METRIC_TYPES.register_class("metric_class", name, metric_class, METRIC_REQUIREMENT)


def build_metric(name: MetricName) -> Metric:
    """Return the metric of a name that is not built in.

    Args:
        name: Name of the metric.

    Raises:
        ConfigError: There is no such metric, or its entry point does not provide a class as `register_metric` accepts.
    """
    metric_class = METRIC_TYPES.get_class(name, METRIC_REQUIREMENT)
    if name in RESERVED_NAMES:
        raise ConfigError(f"the metric {quote(name)} has the name of another field of the training log")
    return _call(name, cast(Callable[[], Metric], metric_class))


def _call(name: MetricName, function: Callable[[], ResultT]) -> ResultT:
    """Return the result of the code of another package; any of its errors becomes `ConfigError`."""
    try:
        return function()
    except InputError as error:
        raise ConfigError(f"the metric {quote(name)}: {error}") from error
    except (Exception, SystemExit) as error:  # the code of another package may raise anything
        kind = "" if isinstance(error, SystemExit) else f"{type(error).__name__}: "
        reason = kind + abbreviate_reason(error)
        raise ConfigError(f"the metric {quote(name)} cannot be computed: {reason}") from error


def compute_metric(name: MetricName, examples: Sequence[EvaluatedExample]) -> float:
    """Return the value of a metric of another package, which must be defined.

    Args:
        name: Name of the metric.
        examples: The examples, at least one.

    Raises:
        ConfigError: The metric is unknown or fails, or the value is not a finite number, or undefined.
    """
    value = _compute_value(name, build_metric(name), examples)
    if value is None:
        raise ConfigError(
            f"the metric {quote(name)} is undefined for the {len(examples):,} validation examples (all denominators "
            "are 0, or compute() returned None), so it cannot select a model: use validation examples that it counts, "
            "or another metric"
        )
    return value


def _compute_value(name: MetricName, metric: Metric, examples: Sequence[EvaluatedExample]) -> float | None:
    """Return the value of a metric, None if it is undefined; raise `ConfigError` if it fails or is not finite."""
    value = _call(name, lambda: metric.compute(examples))
    if value is None:
        return None
    is_number = not isinstance(value, bool | np.bool_ | str | bytes)
    try:
        number = float(value) if is_number else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(
            f"the metric {quote(name)}: {type(metric).__name__}.compute returned {describe_value(value)}; "
            "expected a finite number, or None for an undefined value"
        )
    return number


def score_metric(name: MetricName, examples: Sequence[EvaluatedExample]) -> MetricScore:
    """Return the value of a metric of another package with its interval.

    Args:
        name: Name of the metric.
        examples: The examples, at least one.

    Raises:
        ConfigError: The metric is unknown or fails, or the value is not a finite number.
    """
    metric = build_metric(name)
    value = _compute_value(name, metric, examples)
    interval = None if value is None else _call(name, lambda: metric.interval(examples))
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
