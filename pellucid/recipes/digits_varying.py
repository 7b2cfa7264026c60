"""The notebook's fourth exercise: targets of unequal length, and a cost that leaves their padding out."""

from collections.abc import Iterator

from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.report import Lesson, conducted, write_lesson
from pellucid.recipes.digits.study import BUDGETS, Plan, Study
from pellucid.recipes.recipe import Request

INTRODUCTION = """Inputs of one to twenty digits. Targets are padded with 0, which is also the digit 0: a cost that
counts the padding teaches the network to write zeros behind the end, and spends its effort there. With the mask in
the cost only symbols that are there count. Accuracies here count only those in any case.

The attention of 2016 looks at padding, too, and of inputs of one to twenty digits half is padding. The last network
is blind to it."""
BLIND = Design("attention", attends_padding=False)


def run(request: Request) -> Iterator[str]:
    """Train with the mask in the cost and without, without attention and with it."""
    studies = [
        Study(
            f"{decoder}; {'masked' if masked else 'unmasked'} cost",
            Design(decoder),
            Plan(samples, digits=(1, 20), masked=masked),
            1,
        )
        for decoder, samples in BUDGETS.items()
        for masked in (True, False)
    ]
    blind = Plan(BUDGETS["attention"], digits=(1, 20), masked=True)
    studies.append(Study("attention, padding masked; masked cost", BLIND, blind, 1))
    groups = yield from conducted(studies, request)
    title = "One to twenty digits"
    yield write_lesson(request, Lesson("digits-varying", title, INTRODUCTION, groups))
