"""What the page asks the service, and what it is answered, beside its contents.

T target positions, S source positions.
"""

from typing import Literal

from msgspec import field

from pellucid.search.trace_schema import EncodedArray
from pellucid.viewer.contents import Item, PageTrace, Point, Struct


class Painted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of attention that a person gives."""

    step: int
    weights: list[float]
    """S shares; they are scaled to sum to one."""


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source to decode, and what is given of its output and its attention."""

    text: str
    features: list[str] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)
    """Symbols that the output begins with."""
    painted: list[Painted] = field(default_factory=list)
    masked: list[int] = field(default_factory=list)
    """Source positions hidden from attention."""
    beam_width: int = 1
    outputs: int = 1
    lattice: bool = False
    evidence: bool = False
    states: bool = False
    gates: bool = False
    rival: int = -1
    """Which run is asked: −1 this one, else a place in `Contents.rivals`."""


class Changed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A what-if: two questions of one model."""

    before: Asked
    after: Asked


class Difference(Struct, frozen=True, kw_only=True):
    """What became of it."""

    before: Item
    after: Item
    along: Literal["before", "after"]
    """Which output the distributions after go along.

    The one before: what the change does to it. The one after, where another beginning was forced: along the output
    before nothing would differ, so each goes along its own, and steps pair by their number, as far as both go.
    """
    same: PageTrace
    """That output under the change: the first output before (what it would now cost to say it), or the one after.

    Where the changed source cannot have those tags or that position, the first output after, and no divergence.
    """
    divergence: EncodedArray
    """T: KL(before ‖ after), in bits, of each step's distribution; as many steps as pair."""


class Nearby(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A state, to find those nearest to it."""

    text: str
    features: list[str] = field(default_factory=list)
    target: list[str]
    """The symbols written, the end included where it was."""
    side: Literal["encoder", "decoder"]
    position: int
    count: int = 20


class Wish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question that its address says whole."""


class Renewed(Struct, frozen=True, kw_only=True):
    """The newest model of the run is shown: whoever loads the page anew sees it."""

    update: int | None
    """Of that model, where training goes on."""


class Kept(Struct, frozen=True, kw_only=True):
    """The first items with all that a page in a file holds of them: it has nobody who could be asked."""

    items: list[Item]


class Neighbour(Struct, frozen=True, kw_only=True):
    """A state of the corpus near to the one asked for."""

    point: Point
    similarity: float
    """Cosine."""
    following: str
    """The symbol written (decoder) or read (encoder) next."""


class Neighbours(Struct, frozen=True, kw_only=True):
    """The nearest, nearest first, and what follows them."""

    searched: int
    """Among so many states."""
    neighbours: list[Neighbour]
    following: list[tuple[str, int]]
