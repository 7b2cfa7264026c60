"""Another run beside the first, on the same sources: shown examples, and what holds for the whole file."""

from collections.abc import Sequence

from pellucid.evaluation.assessment import Assessment
from pellucid.training.run import members, read_log
from pellucid.viewer.contents import Item, Rival
from pellucid.viewer.corpus import intervals, scores
from pellucid.viewer.models import Model, card


def rival(model: Model, items: list[Item], judged: Assessment | None, first: Assessment | None) -> Rival:
    """A run beside the first: where the file has targets, both are judged on all its examples."""
    log = read_log(model.folder) if members(model.folder) == [model.folder] else []
    if first is None or judged is None:
        return Rival(card=card(model), items=items, log=log)
    positions, lengths = intervals(judged, {})
    return Rival(
        card=card(model),
        items=items,
        outcomes=outcomes([each.exact for each in first.scored], [each.exact for each in judged.scored]),
        differing=sum(one.output != two.output for one, two in zip(first.traces, judged.traces, strict=True)),
        scores=scores(judged),
        positions=positions,
        lengths=lengths,
        log=log,
    )


def outcomes(first: Sequence[bool], other: Sequence[bool]) -> tuple[int, int, int, int]:
    """How many examples both have right, the first alone, the other alone, and neither."""
    both = sum(one and two for one, two in zip(first, other, strict=True))
    return both, sum(first) - both, sum(other) - both, len(first) - sum(first) - sum(other) + both
