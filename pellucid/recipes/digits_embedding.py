"""The notebook's line that freezes the embedding, taken away: one-hot symbols against trained ones."""

from collections.abc import Iterator

from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.report import Lesson, conducted, write_lesson
from pellucid.recipes.digits.study import BUDGETS, Plan, Study
from pellucid.recipes.recipe import Request

INTRODUCTION = """"You can experiment with removing this line", says the notebook of the one that freezes its
embedding at the identity. Without it the 27 × 27 numbers are trained, from the same start. A matrix before a matrix
can say nothing new (W x with x one-hot is any table already), so what changes is the path that training takes:
products of two matrices move faster where both grow."""


def run(request: Request) -> Iterator[str]:
    """Train both embeddings, without attention and with it."""
    studies = [
        Study(f"{embedding}; {decoder}", Design(decoder, embedding=embedding), Plan(samples), 1)
        for decoder, samples in BUDGETS.items()
        for embedding in ("learned", "one-hot")
    ]
    groups = yield from conducted(studies, request)
    title = "Symbols: given or learned"
    yield write_lesson(request, Lesson("digits-embedding", title, INTRODUCTION, groups))
