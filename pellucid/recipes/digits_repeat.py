"""Spelled digits without attention, as the blog of 2015 and the notebook of 2016 built it: the code at every step."""

from collections.abc import Iterator

from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.report import POSITIONS_REPEAT, Lesson, conducted, curves, write_lesson
from pellucid.recipes.digits.study import Plan, Study
from pellucid.recipes.recipe import Request

INTRODUCTION = """A GRU of 10 units reads twenty spelled digits, some 99 letters, one-hot. Its last state, ten
numbers, is the code: all that a second GRU of 10 units gets to see, as its input at each of 21 steps. No symbol is
fed back.

Ten numbers cannot hold twenty digits. A quarter of the symbols is right after 300,000 samples, of which the end (#)
and the last digits are the largest part; guessing gives a seventh. The authors' stored runs reached 0.242, 0.249 and
0.250 at this point."""


def run(request: Request) -> Iterator[str]:
    """Train one network a seed, judge it as its authors did, and draw their curves beside its own."""
    references = curves(request.data, "repeat")
    groups = yield from conducted([Study("code at every step", Design("repeat"), Plan(), 1)], request)
    title = "Spelled digits to digits through a bottleneck"
    yield write_lesson(request, Lesson("digits-repeat", title, INTRODUCTION, groups, references, POSITIONS_REPEAT))
