"""The floor: the least time that the counted work takes one thread of this machine, at the rates just measured.

    floor = products + bends + look + softmax + update

    products   2 × multiply-adds / (operations a second of the fastest product of matrices)
    bends      tanh and σ of the cells × the time of one
    look       the longer of two: computing (energies × the time of one, and the multiply-adds of attention at the
               speed of a product), and reading keys and memory; a processor may do both at a time
    softmax    exponentials × the time of one
    update     bytes of parameters, gradients and moments / the speed of reading as many

Keys and memory count as read from the cache that holds those of one row: whatever order the rows are computed in, a
row's step has to pass over them. All of these are lower bounds, and none counts what another counts. So the floor is a
lower bound too: no implementation that keeps and computes the same things in float32 can be faster, and a ratio of 1
cannot be reached, because steps wait for each other and products of a step are small.
"""

import msgspec

from pellucid.bench.work import Work

MILLI = 1e3


class Rates(msgspec.Struct, frozen=True):
    """What one thread does in a second, or how long one of them takes."""

    operations: float
    """Multiplications and additions of float32 products, a second."""
    bend_seconds: float
    """Of one tanh, which a σ is made of."""
    energy_seconds: float
    """Of one tanh of a sum whose summands' exponentials are known, as attention has them."""
    exponential_seconds: float
    row_bytes: float
    """Read a second, again and again as many as one row's keys and memory have."""
    update_bytes: float
    """Read a second, again and again as many as parameters, gradients and moments have."""


class Floor(msgspec.Struct, frozen=True):
    """The parts of the floor of one step, in milliseconds."""

    products_ms: float
    bends_ms: float
    look_ms: float
    softmax_ms: float
    update_ms: float

    @property
    def total_ms(self) -> float:
        """All of it."""
        return self.products_ms + self.bends_ms + self.look_ms + self.softmax_ms + self.update_ms


def floor_of(work: Work, rates: Rates) -> Floor:
    """The floor of a step's work."""
    computing = work.energies * rates.energy_seconds + 2 * work.look_multiply_adds / rates.operations
    return Floor(
        products_ms=MILLI * 2 * work.multiply_adds / rates.operations,
        bends_ms=MILLI * work.bends * rates.bend_seconds,
        look_ms=MILLI * max(computing, work.look_bytes / rates.row_bytes),
        softmax_ms=MILLI * work.exponentials * rates.exponential_seconds,
        update_ms=MILLI * work.update_bytes / rates.update_bytes,
    )
