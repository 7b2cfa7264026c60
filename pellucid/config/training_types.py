"""Optimizers, validation metrics and callbacks by name, which a training needs, and later commands do not.

Those of other packages are classes declared as an entry point of the groups `pellucid.optimizers`, `pellucid.metrics`
and `pellucid.callbacks`, or registered with `pellucid.register_optimizer`, `register_metric` and `register_callback`.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from pellucid.config.extensions import ExtensionRegistry, is_class
from pellucid.config.settings import MetricName, OptimizerName


@runtime_checkable  # for the checks of types in tests
class MetricProperties(Protocol):
    """Properties of a built-in metric, or of a class derived from `Metric`: the class itself has them."""

    @property
    def higher_is_better(self) -> bool:
        """True if greater values are better."""

    @property
    def unit(self) -> str:
        """Unit behind the value, such as "%"; empty if there is none."""

    @property
    def best_value(self) -> float | None:
        """The best possible value; None if there is none."""


class BuiltInMetric(NamedTuple):
    """Properties of a built-in metric."""

    higher_is_better: bool = True
    unit: str = "%"
    best_value: float | None = 100.0


BUILT_IN_METRICS: Mapping[MetricName, BuiltInMetric] = {
    "exact_match": BuiltInMetric(),
    "symbol_error_rate": BuiltInMetric(higher_is_better=False, best_value=0.0),
    "symbol_accuracy": BuiltInMetric(),
    "loss": BuiltInMetric(higher_is_better=False, unit="", best_value=None),
}
"""Validation metrics that Pellucid has."""
BUILT_IN_OPTIMIZERS: tuple[OptimizerName, ...] = ("adam", "adamw")
"""Optimizers that Pellucid has."""
BUILT_IN_CALLBACKS = ("tensorboard", "mlflow")
"""Callbacks that Pellucid has; their classes are in training/loggers.py."""


def _has_metric_properties(value: object) -> bool:
    """Return whether a value is a class with the properties of a metric."""
    return is_class(value) and isinstance(getattr(value, "higher_is_better", None), bool)


def _has_events(value: object) -> bool:
    """Return whether a value is a class whose objects receive events."""
    return is_class(value) and callable(getattr(value, "on_event", None))


METRIC_TYPES = ExtensionRegistry[MetricProperties](
    kind="metric",
    group="pellucid.metrics",
    register_call="pellucid.register_metric(name, class)",
    built_in=BUILT_IN_METRICS,
    provided="a subclass of pellucid.Metric or pellucid.RatioMetric",
    is_extension=_has_metric_properties,
    is_training_only=True,
)
"""All values of the setting `training.metric`."""
OPTIMIZER_TYPES = ExtensionRegistry[type](
    kind="optimizer",
    group="pellucid.optimizers",
    register_call="pellucid.register_optimizer(name, class)",
    built_in=BUILT_IN_OPTIMIZERS,
    provided="a subclass of torch.optim.Optimizer",
    is_extension=is_class,
    is_training_only=True,
)
"""All values of the setting `training.optimizer`."""
CALLBACK_TYPES = ExtensionRegistry[type](
    kind="callback",
    group="pellucid.callbacks",
    register_call="pellucid.register_callback(name, class)",
    built_in=BUILT_IN_CALLBACKS,
    provided="a class with the method on_event(folder, event)",
    is_extension=_has_events,
    is_training_only=True,
)
"""All items of the setting `training.callbacks`."""


def metric_properties(metric: MetricName) -> MetricProperties:
    """Return the properties of a metric.

    Args:
        metric: Value of the setting `training.metric`.

    Raises:
        ConfigError: There is no such metric, or its entry point does not provide it.
    """
    return BUILT_IN_METRICS.get(metric) or METRIC_TYPES.get(metric)


def is_custom_metric(metric: MetricName) -> bool:
    """Return whether a metric is not built in.

    Args:
        metric: Value of the setting `training.metric`.
    """
    return metric not in BUILT_IN_METRICS


def metric_sign(metric: MetricName) -> float:
    """Return 1 if greater values of a metric are better, else −1.

    Args:
        metric: Value of the setting `training.metric`.
    """
    return 1.0 if metric_properties(metric).higher_is_better else -1.0


def best_signed_value(metric: MetricName) -> float:
    """Return the best possible value of a metric times its sign; infinite if there is none.

    Args:
        metric: Value of the setting `training.metric`.
    """
    best = metric_properties(metric).best_value
    return math.inf if best is None else metric_sign(metric) * best


def format_metric(metric: MetricName, value: float) -> str:
    """Return a value of a metric with its unit: "93.10 %", "0.123".

    Args:
        metric: Name of the metric.
        value: The value.
    """
    unit = metric_properties(metric).unit
    return f"{value:.2f} {unit}" if unit else f"{value:.3f}"
