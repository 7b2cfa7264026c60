"""The notebook's third exercise: an encoder that reads both ways, its directions merged in three ways."""

from collections.abc import Iterator

from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.report import Lesson, conducted, write_lesson
from pellucid.recipes.digits.study import BUDGETS, Plan, Study
from pellucid.recipes.recipe import Request

INTRODUCTION = """A second GRU reads the input from its end, each input within its own length, and its states join
those of the first: end to end (20 numbers), added, or multiplied (10 numbers each). Without attention the code is
what the forward GRU knows at the end and the backward GRU at the beginning, so both ends of the input are fresh. With
attention (of 2016, but blind to padding) each state knows what stands before its letter and after it.

The notebook's snippet takes the last position of the backward GRU, which has read one letter there; its answer stands
at the first."""
BOTH = {f"both, {merge}": Design(directions="both", merge=merge) for merge in ("concatenate", "sum", "product")}


def run(request: Request) -> Iterator[str]:
    """Train every merge, without attention and with it, beside the encoder that reads forward only."""
    studies = [
        Study(f"{name}; {decoder}", design._replace(decoder=decoder, attends_padding=False), Plan(samples), 1)
        for decoder, samples in BUDGETS.items()
        for name, design in {**BOTH, "forward": Design()}.items()
    ]
    groups = yield from conducted(studies, request)
    title = "Reading both ways"
    yield write_lesson(request, Lesson("digits-bidirectional", title, INTRODUCTION, groups))
