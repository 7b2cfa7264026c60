"""The notebook's second exercise: why does the validation curve of a long run look like a jig-saw?"""

from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean

from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.report import Group, Lesson, conducted, curves, write_lesson
from pellucid.recipes.digits.study import Outcome, Plan, Study
from pellucid.recipes.recipe import Request
from pellucid.viewer.report_schema import ReportText

SAMPLES = 900_000
INTRODUCTION = """After some hundred thousand samples the accuracy of the first network no longer rises but jumps up
and down (the stored run between 0.185 and 0.26). The 5,000 validation samples are the same each time, 105,000
symbols, so chance in judging them accounts for a thousandth. What moves is the network: at a rate of 0.005 an update
overshoots, and the accuracy falls by more than hundreds of updates before it had won.

The evidence is the same run, same seed, same samples, with a rate that falls along half a cosine to zero: if the rate
is the cause, the teeth must shrink with it."""


def run(request: Request) -> Iterator[str]:
    """Train with a constant and with a falling rate, and measure how rough the last third of each curve is."""
    references = curves(request.data, "repeat")
    studies = [
        Study("constant rate", Design(), Plan(SAMPLES), 1),
        Study("falling rate", Design(), Plan(SAMPLES, decay="cosine"), 1),
    ]
    groups = yield from conducted(studies, request)
    rough = {group.name: fmean(map(roughness, group.outcomes)) for group in groups}
    lines = [_words(group, rough[group.name]) for group in groups]
    yield from lines
    parts = [ReportText("How rough is the last third?", "\n\n".join(lines))]
    lesson = Lesson("digits-jigsaw", "The jig-saw", INTRODUCTION, groups, references, parts=parts)
    yield write_lesson(request, lesson._replace(numbers={"roughness": rough}))


def roughness(outcome: Outcome) -> float:
    """Mean change of accuracy, up or down, from one validation to the next, over the last third of the run."""
    values = [point.symbol_accuracy for point in outcome.curve]
    last = values[-max(2, len(values) // 3) :]
    return fmean(abs(after - before) for before, after in pairwise(last))


def _words(group: Group, rough: float) -> str:
    """The roughness in words."""
    return f"{group.name}: from one validation to the next the accuracy changes by {rough:.4f} on average"
