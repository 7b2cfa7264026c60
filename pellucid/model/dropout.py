"""What dropout takes away in training: drawn once for a batch of sequences, and the same at all their steps.

B sequences, L layers, H hidden units, G all gates (3H or 4H), V vocabulary.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import dropout

from pellucid.config import DecoderConfig, EncoderConfig


class CellNoise(NamedTuple):
    """What a cell reads in place of its own: both None outside training, and where nothing is dropped."""

    weight: Float[Tensor, "G H"] | None = None
    """U, some of its numbers dropped: a cell with fewer connexions, which runs as any other (kernels included)."""
    state: Float[Tensor, "B H"] | None = None
    """Multiplies h where U h is computed, at every step by the same numbers."""


SILENCE = CellNoise()


class Noise(NamedTuple):
    """All that is drawn for the sequences of a batch."""

    cells: tuple[CellNoise, ...]
    outputs: tuple[Float[Tensor, "B H"], ...] = ()
    """Multiply the output of each layer, at every step by the same numbers; empty where each step draws anew."""
    missed: Bool[Tensor, "B V"] | None = None
    """Symbols whose vectors are zero wherever they stand in a sequence."""

    def take(self, rows: Int[Tensor, " R"]) -> "Noise":
        """That of the chosen sequences, in their order."""
        cells = tuple(
            cell._replace(state=None if cell.state is None else cell.state.index_select(0, rows)) for cell in self.cells
        )
        outputs = tuple(mask.index_select(0, rows) for mask in self.outputs)
        return Noise(cells, outputs, None if self.missed is None else self.missed.index_select(0, rows))


NO_NOISE = Noise(())


def draw_cells(
    weights: Iterable[Float[Tensor, "G H"]], rows: int, config: EncoderConfig | DecoderConfig
) -> tuple[CellNoise, ...]:
    """Recurrent dropout of cells with these weights U, for so many sequences.

    On weights: Merity et al. 2018, section 2, one mask for the batch. On states: Gal & Ghahramani 2016, section 4.1.
    """
    share = config.recurrent_dropout
    if not share:
        return tuple(SILENCE for _ in weights)
    if config.recurrent_dropout_on == "weights":
        return tuple(CellNoise(weight=dropout(weight, share)) for weight in weights)
    return tuple(CellNoise(state=draw_mask(weight, (rows, weight.shape[1]), share)) for weight in weights)


def draw_mask(like: Tensor, shape: tuple[int, ...], share: float) -> Tensor:
    """Zeros, this share of them, and 1 / (1 − share) elsewhere."""
    return dropout(torch.ones(shape, dtype=like.dtype, device=like.device), share)
