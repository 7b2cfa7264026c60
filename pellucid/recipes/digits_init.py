"""Spelled digits without attention, the second way that the notebook names and never built: the code as first state."""

from collections.abc import Iterator

from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.report import Lesson, conducted, curves, write_lesson
from pellucid.recipes.digits.study import Plan, Study
from pellucid.recipes.recipe import Request

INTRODUCTION = """The notebook names two ways to hand the code to the decoder and builds the first, the code as the
input of every step. Here is the second beside it: the decoder starts from the code and then runs without any input.
It has 300 parameters fewer, and nothing reminds it of the code: what it writes last has passed through twenty of its
own steps."""


def run(request: Request) -> Iterator[str]:
    """Train both ways with the same samples and seeds."""
    references = curves(request.data, "repeat")
    studies = [
        Study("code as first state", Design("initialize"), Plan(), 1),
        Study("code at every step", Design("repeat"), Plan(), 1),
    ]
    groups = yield from conducted(studies, request)
    title = "The code as the decoder's first state"
    yield write_lesson(request, Lesson("digits-init", title, INTRODUCTION, groups, references))
