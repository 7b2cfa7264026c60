"""The work of a step, counted from the shapes of what it computes.

Counted is what every implementation has to do that keeps the states of the recurrences and computes the energies of
attention again on the way back. Each operation is counted once, the cheap ones between the products are left out, and
where a sequence is shorter than its batch its own length counts: so the count is never more than what is done.

B rows, N source positions of all rows together, S = N / B, T steps, K hypotheses, E embedding, H hidden units of the
decoder, h of one direction of the encoder, D = 2 h memory, A attention units, G gates (3 or 4), V and W source and
target symbols, P parameters.
"""

from typing import NamedTuple

import msgspec

FLOAT = 4
"""Bytes of a number."""
ADAM = 7
"""Numbers read or written to update one parameter: its gradient, itself and two moments, the last three both ways."""


class Shape(msgspec.Struct, frozen=True):
    """All sizes that the work of a step follows from."""

    rows: int
    positions: float
    """N, source positions of all rows, padding left out."""
    steps: float
    """T, symbols to write, the end's included where it is written."""
    embedding: int
    hidden: int
    direction: int
    """H of one direction of the encoder; there are two."""
    units: int
    gates: int
    """3 for a GRU, 4 for an LSTM."""
    source_symbols: int
    target_symbols: int
    parameters: int
    beam: int = 1

    @property
    def memory(self) -> int:
        """D."""
        return 2 * self.direction

    @property
    def bends(self) -> int:
        """How many tanh and σ one unit of a cell takes: r, z, n, or i, f, o, g and that of the new cell."""
        return 3 if self.gates == 3 else 5

    @property
    def parts(self) -> int:
        """Of how many parts a state is made: hidden, and the cell of an LSTM."""
        return self.gates - 2


class Work(NamedTuple):
    """What one step has to do."""

    multiply_adds: float
    """Of products of matrices."""
    bends: float
    """Tanh and σ of the cells."""
    energies: float
    """Tanh of additive attention."""
    exponentials: float
    """Of attention's softmax and that over symbols."""
    look_multiply_adds: float
    """Of vᵀ tanh(…) and Σ α h, one query a product."""
    look_bytes: float
    """Of keys and memory, which every step passes over."""
    update_bytes: float
    """Of parameters, gradients and moments."""

    @property
    def operations(self) -> float:
        """Multiplications, additions, and functions taken as one operation each."""
        products = 2 * (self.multiply_adds + self.look_multiply_adds)
        return products + self.bends + self.energies + self.exponentials


def training_work(shape: Shape) -> Work:
    """The work of one update: forward, backward, clip, step.

    Every product of a forward pass calls for two on the way back, one for either factor's gradient. An energy is
    computed twice; of vᵀ tanh(…) the way back has two products a unit, for v and for the argument. Keys and memory are
    read in both passes and the keys' gradient is read and written in the second, while the memory's is one product
    after all steps.
    """
    looks, taken = shape.steps * shape.positions, shape.rows * shape.steps
    return Work(
        multiply_adds=3 * (_encoder_products(shape) + taken * _step_products(shape)),
        bends=_encoder_bends(shape) + taken * shape.hidden * shape.bends,
        energies=2 * looks * shape.units,
        exponentials=looks + taken * shape.target_symbols,
        look_multiply_adds=3 * looks * (shape.units + shape.memory),
        look_bytes=FLOAT * looks * (2 * (shape.units + shape.memory) + 2 * shape.units),
        update_bytes=FLOAT * ADAM * shape.parameters,
    )


def search_work(shape: Shape) -> Work:
    """The work of decoding one batch, greedily (K = 1) or by beam search.

    The first step has one hypothesis a row, the others K. Hypotheses of a row look at the same keys and memory, which
    therefore have to be passed over once a step.
    """
    hypotheses = 1 + shape.beam * (shape.steps - 1)
    looks, taken = hypotheses * shape.positions, hypotheses * shape.rows
    return Work(
        multiply_adds=_encoder_products(shape) + taken * _step_products(shape),
        bends=_encoder_bends(shape) + taken * shape.hidden * shape.bends,
        energies=looks * shape.units,
        exponentials=looks + taken * shape.target_symbols,
        look_multiply_adds=looks * (shape.units + shape.memory),
        look_bytes=FLOAT * shape.steps * shape.positions * (shape.units + shape.memory),
        update_bytes=0.0,
    )


def _encoder_products(shape: Shape) -> float:
    """Multiply-adds once a source: both tables projected, both directions, the decoder's first state, the keys.

    Symbols are projected as a table, V E G h, because there are fewer of them than positions. The first position of a
    row has no state before it, hence N − B.
    """
    cell = shape.gates * shape.direction
    directions = 2 * cell * (shape.source_symbols * shape.embedding + (shape.positions - shape.rows) * shape.direction)
    start = shape.rows * shape.memory * shape.parts * shape.hidden
    table = shape.target_symbols * shape.embedding * shape.gates * shape.hidden
    return directions + start + table + shape.positions * shape.memory * shape.units


def _step_products(shape: Shape) -> int:
    """Multiply-adds of one row's step: the query A H, the gates G H (H + D), the logits W (H + D)."""
    read = shape.hidden + shape.memory
    return shape.units * shape.hidden + shape.gates * shape.hidden * read + shape.target_symbols * read


def _encoder_bends(shape: Shape) -> float:
    """Tanh and σ of both directions, and the tanh of the decoder's first state."""
    return shape.positions * 2 * shape.direction * shape.bends + shape.rows * shape.hidden
