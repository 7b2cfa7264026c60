""" "Experiment with other optimisers": the first network with six of them."""

from collections.abc import Iterator, Mapping

from pellucid.recipes.digits.lesson import Lesson, conducted, write_lesson
from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.study import Plan, Study
from pellucid.recipes.recipe import Request

INTRODUCTION = """The notebook uses Adam with a rate of 0.005 and suggests to try others. Here is its network without
attention under six of them, each with the better of the rates tried. Gradients are clipped in the same way for all."""
RATES: Mapping[str, float] = {
    "adam": 0.005,
    "rmsprop": 0.005,
    "adagrad": 0.05,
    "adadelta": 1.0,
    "momentum": 0.3,
    "sgd": 3.0,
}


def run(request: Request) -> Iterator[str]:
    """Train the network once with each."""
    studies = [
        Study(f"{name}, rate {rate}", Design(), Plan(optimizer=name, rate=rate), 1) for name, rate in RATES.items()
    ]
    groups = yield from conducted(studies, request)
    yield write_lesson(request, Lesson("digits-optimizers", "Other optimisers", INTRODUCTION, groups))
