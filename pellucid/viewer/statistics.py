"""How attention lies over a corpus, as the page lists it."""

from collections.abc import Sequence
from typing import NamedTuple

from pellucid.search.trace import Trace
from pellucid.viewer.contents import Block, Distribution, Statistic


class Lying(NamedTuple):
    """What is known of the attention of a corpus."""

    statistics: list[Statistic]
    distributions: list[Distribution]
    mean: Block | None


def alignment(traces: Sequence[Trace]) -> Lying:
    """Of the outputs of a corpus."""
    return Lying([], [], None)
