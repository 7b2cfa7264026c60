"""How often a right output is among the first k of a source."""

from collections.abc import Sequence
from typing import NamedTuple

from pellucid.evaluation.intervals import Interval, wilson
from pellucid.evaluation.metrics import Scored


class Oracle(NamedTuple):
    """The share of examples, in per cent, of which one of the first k outputs is right."""

    k: int
    accuracy: float
    ci95: Interval


def oracle(candidates: Sequence[Sequence[Scored]], count: int) -> list[Oracle]:
    """Oracle accuracy for k from 1 to `count`: an example is right where any of its first k outputs is a reference.

    Transliteration reports it as 1-, 2- and 3-best accuracy. Interval: Wilson's.
    """
    ranks = _ranks(candidates)
    right = [sum(rank is not None and rank <= k for rank in ranks) for k in range(1, count + 1)]
    total = max(1, len(ranks))
    return [Oracle(k, 100 * hits / total, wilson(hits, total).percent) for k, hits in enumerate(right, start=1)]


def reciprocal_rank(candidates: Sequence[Sequence[Scored]]) -> float:
    """Mean over examples of 1 / (place of the first right output), 0 where none is right; a share of 1.

    Source: E. M. Voorhees (1999), "The TREC-8 question answering track report"; MRR of the NEWS transliteration tasks.
    """
    ranks = _ranks(candidates)
    return sum(1 / rank for rank in ranks if rank is not None) / max(1, len(ranks))


def _ranks(candidates: Sequence[Sequence[Scored]]) -> list[int | None]:
    """The place, from 1, of each example's first right output; None where there is none."""
    return [next((place for place, each in enumerate(own, start=1) if each.exact), None) for own in candidates]
