"""Metrics of the service in the text format of Prometheus."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
Labels = tuple[tuple[str, str], ...]
"""Names and values of labels, in order."""


@dataclass
class MetricHistogram:
    """Counts of values by upper bound, and their sum."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        """Begin with zero counts, the last for values above all bounds."""
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value.

        Args:
            value: The value.
        """
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass
class ServiceMetrics:
    """Counters and histograms of the service. The event loop alone changes them."""

    counters: defaultdict[str, defaultdict[Labels, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    histograms: dict[str, dict[Labels, MetricHistogram]] = field(default_factory=dict)

    def count(self, name: str, labels: Mapping[str, str], amount: int = 1) -> None:
        """Increase a counter.

        Args:
            name: A name of `HELP`.
            labels: Labels of the counter.
            amount: Amount.
        """
        self.counters[name][tuple(labels.items())] += amount

    def observe(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Add a value to a histogram.

        Args:
            name: A name of `HELP`.
            labels: Labels of the histogram.
            value: The value.
        """
        bounds = ROWS_BUCKETS if name.endswith("_rows") else SECONDS_BUCKETS
        self.histograms.setdefault(name, {}).setdefault(tuple(labels.items()), MetricHistogram(bounds)).add(value)

    def format(self, gauges: Mapping[str, Mapping[Labels, float]]) -> str:
        """Return all metrics as text.

        Args:
            gauges: Current values by name and labels.
        """
        lines = list[str]()
        for name, values in self.counters.items():
            lines += [*_header(name, "counter"), *(f"{name}{_labels(key)} {value}" for key, value in values.items())]
        for name, current in gauges.items():
            lines += [
                *_header(name, "gauge"),
                *(f"{name}{_labels(key)} {_number(value)}" for key, value in current.items()),
            ]
        for name, histograms in self.histograms.items():
            lines += _header(name, "histogram")
            for key, histogram in histograms.items():
                lines += _histogram_lines(name, key, histogram)
        return "\n".join(lines) + "\n"


HELP: Mapping[str, str] = {
    "pellucid_requests_total": "Answered requests.",
    "pellucid_rows_total": "Rows of decoded batches.",
    "pellucid_abandoned_requests_total": "Requests whose client left, or whose time ended, before the answer.",
    "pellucid_worker_restarts_total": "Worker processes started in place of one that ended.",
    "pellucid_reloads_total": "Loads of a changed run folder.",
    "pellucid_request_seconds": "Time from the arrival of a request to its answer.",
    "pellucid_batch_rows": "Rows decoded together.",
    "pellucid_queued_rows": "Rows that wait in the queue.",
    "pellucid_ready_workers": "Worker processes with a loaded model.",
}
"""Meaning of each metric."""


def _header(name: str, kind: str) -> list[str]:
    """Return the lines before the values of a metric."""
    return [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind}"]


def _number(value: float) -> str:
    """Return a value with all its digits."""
    return f"{int(value)}" if value.is_integer() else str(value)


def _labels(labels: Labels) -> str:
    """Return labels in braces; empty without labels."""
    pairs = []
    for name, value in labels:
        escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _histogram_lines(name: str, labels: Labels, histogram: MetricHistogram) -> list[str]:
    """Return the cumulative counts, the sum and the count of a histogram."""
    lines, cumulative = list[str](), 0
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        cumulative += count
        edge = "+Inf" if bound is None else f"{bound:g}"
        lines.append(f"{name}_bucket{_labels((*labels, ('le', edge)))} {cumulative}")
    return [
        *lines,
        f"{name}_sum{_labels(labels)} {_number(histogram.total)}",
        f"{name}_count{_labels(labels)} {cumulative}",
    ]
