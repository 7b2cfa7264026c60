"""GRU against LSTM, which the lessons chose between by word of mouth: accuracy, and time."""

from collections.abc import Iterator

from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.report import Lesson, conducted, write_lesson
from pellucid.recipes.digits.study import BUDGETS, Plan, Study
from pellucid.recipes.recipe import Request

INTRODUCTION = """The lessons take a GRU because it has one state and is faster. Here are both as encoders of ten
units, without attention and with it. The seconds are those of training alone, on one thread; runs share the machine
two at a time."""


def run(request: Request) -> Iterator[str]:
    """Train both cells, without attention and with it."""
    studies = [
        Study(f"{cell.upper()}; {decoder}", Design(decoder, cell), Plan(samples), 1)
        for decoder, samples in BUDGETS.items()
        for cell in ("gru", "lstm")
    ]
    groups = yield from conducted(studies, request)
    yield write_lesson(request, Lesson("digits-cells", "GRU and LSTM", INTRODUCTION, groups))
