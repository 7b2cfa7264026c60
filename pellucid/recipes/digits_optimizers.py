""" "Experiment with other optimisers": the first network with six of them."""

from collections.abc import Iterator, Mapping

from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.report import Group, Lesson, conducted, write_lesson
from pellucid.recipes.digits.study import Plan, Study
from pellucid.recipes.recipe import Request
from pellucid.viewer.report_schema import ReportTable

INTRODUCTION = """The notebook uses Adam with a rate of 0.005 and suggests to try others. Here is its network without
attention under six of them. Each is tried with three rates over a third of the samples; the rate that got furthest is
given all of them. Gradients are clipped in the same way for all.

What to look for: the gradients of the encoder and of the output differ in size by orders of magnitude (lesson 1).
Rules that divide each gradient by the size of its own past do not mind; plain steps must serve both with one rate."""
RATES: Mapping[str, tuple[float, float, float]] = {
    "adam": (0.015, 0.005, 0.002),
    "rmsprop": (0.02, 0.01, 0.005),
    "adagrad": (0.2, 0.1, 0.05),
    "adadelta": (10.0, 3.0, 30.0),
    "momentum": (0.1, 0.03, 0.3),
    "sgd": (1.0, 0.3, 3.0),
}
"""The rates tried, the one that is best with seed 1 first."""
SHARE = 3
"""A rate is tried over one in so many of the samples."""


def run(request: Request) -> Iterator[str]:
    """Try the rates, then train the network with the best rate of each."""
    tried: dict[str, list[tuple[float, Group]]] = {}
    samples = request.samples or Plan().samples
    short = request._replace(samples=max(samples // SHARE, 1))
    for name, rates in RATES.items():
        groups = yield from conducted([study(name, rate) for rate in rates], short)
        tried[name] = list(zip(rates, groups, strict=True))
    best = {name: max(each, key=lambda pair: pair[1].median.accuracy)[0] for name, each in tried.items()}
    groups = yield from conducted([study(name, rate) for name, rate in best.items()], request)
    heads = ("optimiser", *("rate, symbols right" for _ in range(3)))
    rows = [
        (name, *(f"{rate:g}: {100 * group.median.accuracy:.2f} %" for rate, group in sorted(each, key=lambda p: p[0])))
        for name, each in tried.items()
    ]
    table = ReportTable("The rates tried", f"After {short.samples:,} samples; the median of the seeds.", heads, rows)
    lesson = Lesson("digits-optimizers", "Other optimisers", INTRODUCTION, groups, parts=[table])
    accuracies = {name: {str(rate): group.median.accuracy for rate, group in each} for name, each in tried.items()}
    yield write_lesson(request, lesson._replace(numbers={"rates_tried": accuracies}))


def study(name: str, rate: float) -> Study:
    """The notebook's network without attention, with another optimiser."""
    return Study(f"{name}, rate {rate:g}", Design(), Plan(optimizer=name, rate=rate), 1)
