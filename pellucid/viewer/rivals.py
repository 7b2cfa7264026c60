"""Another run beside the first, on the same sources: shown examples, and what holds for the whole file."""

from collections.abc import Sequence

from pellucid.evaluation.assessment import Assessment
from pellucid.training.run import members, read_log
from pellucid.viewer.contents import Item, Rival
from pellucid.viewer.corpus import assessed, intervals, scores
from pellucid.viewer.models import Model, card
from pellucid.viewer.sources import Sources


def rival(model: Model, sources: Sources, items: list[Item], first: Assessment | None) -> Rival:
    """A run beside one that is assessed: where the file has targets, its outputs for all examples are judged too."""
    log = read_log(model.folder) if members(model.folder) == [model.folder] else []
    if first is None:
        return Rival(card=card(model), items=items, log=log)
    own = assessed(model, sources, model.ready.trace(sources.examples))
    positions, lengths = intervals(own, {})
    return Rival(
        card=card(model),
        items=items,
        outcomes=outcomes([each.exact for each in first.scored], [each.exact for each in own.scored]),
        scores=scores(own),
        positions=positions,
        lengths=lengths,
        log=log,
    )


def outcomes(first: Sequence[bool], other: Sequence[bool]) -> tuple[int, int, int, int]:
    """How many examples both have right, the first alone, the other alone, and neither."""
    both = sum(one and two for one, two in zip(first, other, strict=True))
    return both, sum(first) - both, sum(other) - both, len(first) - sum(first) - sum(other) + both
