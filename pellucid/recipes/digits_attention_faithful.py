"""Spelled digits with the attention decoder of the 2016 notebook, every quirk of it kept."""

from collections.abc import Iterator, Sequence

from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.report import POSITIONS_ATTENTION, Curve, Group, Lesson, conducted, curves, write_lesson
from pellucid.recipes.digits.study import Plan, Study
from pellucid.recipes.recipe import Request
from pellucid.viewer.report_schema import ReportText

INTRODUCTION = """The encoder of the first lesson, and on top of it an LSTM of 10 units that looks at all states of
the encoder at each of 21 steps: additive attention with 20 units, from the LSTM's previous state. Half the samples of
the first lesson bring three times its accuracy.

Kept as they were: padding is looked at like letters; the softmax over symbols reads the context alone; the output
gate's peephole is added after the sigmoid; nothing that is written is fed back. Two complete runs are stored; they
reached 0.731 and 0.892, and no seed was set."""
STEP = 5_000


def run(request: Request) -> Iterator[str]:
    """Train one network a seed, and see whether the seeds' curves enclose those of the authors."""
    references = curves(request.data, "attention")
    groups = yield from conducted([Study("attention of 2016", Design("attention"), Plan(samples=150_000), 1)], request)
    inside = [enclosed(groups[0], reference) for reference in references]
    lines = [_words(reference, share) for reference, share in zip(references, inside, strict=True)]
    yield from lines
    title = "Spelled digits to digits with the attention of 2016"
    parts = [ReportText("Do the seeds enclose the authors' runs?", "\n\n".join(lines))]
    shares = {reference.name: share for reference, share in zip(references, inside, strict=True)}
    lesson = Lesson("digits-attention-faithful", title, INTRODUCTION, groups, references, POSITIONS_ATTENTION, parts)
    yield write_lesson(request, lesson._replace(numbers={"share_enclosed": shares}))


def enclosed(group: Group, reference: Curve) -> float:
    """The share of validations at which the author's accuracy lies between the lowest and the highest seed's."""
    curves = [[point.symbol_accuracy for point in outcome.curve] for outcome in group.outcomes]
    places = [point.samples for point in group.outcomes[0].curve]
    between = [_between(reference.at(max(place, STEP)), at) for place, *at in zip(places, *curves, strict=True)]
    return sum(between) / len(between)


def _between(value: float, values: Sequence[float]) -> bool:
    """Whether a value lies between the least and the greatest."""
    return min(values) <= value <= max(values)


def _words(reference: Curve, share: float) -> str:
    """The share in words."""
    return f"{reference.name}: within the range of the seeds at {100 * share:.0f} % of the validations"
