"""The LSTM whose gates see the cell, in two versions that differ in one gate.

B batch, H hidden units, G all gates (4H).

    i = σ(a_i + p_i ⊙ c)    f = σ(a_f + p_f ⊙ c)    g = tanh(a_g)    c' = f ⊙ c + i ⊙ g
    o = σ(a_o + p_o ⊙ c')                      h' = o ⊙ tanh(c')       Gers et al. 2002, section 2.3
    o = σ(a_o) + p_o ⊙ c'                      h' = o ⊙ tanh(c')       Lasagne until 1 October 2015

The second adds the last peephole after the sigmoid. It was a mistake, but weights exist that were trained with it.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Peepholes(NamedTuple):
    """How much of the cell each gate sees."""

    enter: Float[Tensor, " H"]
    forget: Float[Tensor, " H"]
    leave: Float[Tensor, " H"]


class Cell(NamedTuple):
    """The state of a peephole LSTM."""

    hidden: Float[Tensor, "B H"]
    cell: Float[Tensor, "B H"]


Step = Callable[[Float[Tensor, "B G"], Cell, Peepholes], Cell]


def peephole_step(sums: Float[Tensor, "B G"], before: Cell, peepholes: Peepholes) -> Cell:
    """The state after, from what the gates i, f, g, o are sums of (without the cell) and the state before."""
    cell, leave = _new_cell(sums, before, peepholes)
    return Cell(torch.sigmoid(leave + peepholes.leave * cell) * torch.tanh(cell), cell)


def late_peephole_step(sums: Float[Tensor, "B G"], before: Cell, peepholes: Peepholes) -> Cell:
    """As `peephole_step`, but the output gate's peephole is added after the sigmoid."""
    cell, leave = _new_cell(sums, before, peepholes)
    return Cell((torch.sigmoid(leave) + peepholes.leave * cell) * torch.tanh(cell), cell)


def _new_cell(
    sums: Float[Tensor, "B G"], before: Cell, peepholes: Peepholes
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """c', and what the output gate is a sum of."""
    enter, forget, candidate, leave = sums.chunk(4, dim=-1)
    entered = torch.sigmoid(enter + peepholes.enter * before.cell) * torch.tanh(candidate)
    return torch.sigmoid(forget + peepholes.forget * before.cell) * before.cell + entered, leave
