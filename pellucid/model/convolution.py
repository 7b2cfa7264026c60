"""Convolutions along a sequence, in front of a recurrent encoder.

B sequences, S positions, E input, F filters of one width, N widths.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class Convolutions(nn.Module):
    """y_s = [ReLU(b_k + Σ_j W_kj x_{s+j}) for each width k], j over the k positions around s (to its right by half).

    Widths stand side by side, as in Sønderby et al. 2015, section 2.1. What stands beyond a sequence is zero, before
    its first position and after its last, so that padding changes nothing.
    """

    def __init__(self, widths: Sequence[int], filters: int, size: int) -> None:
        """`filters` of each width over vectors of `size` numbers."""
        super().__init__()
        self.size = filters * len(widths)
        self.layers = nn.ModuleList(nn.Conv1d(size, filters, width) for width in widths)
        for layer in self.layers:
            assert isinstance(layer, nn.Conv1d)
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias if layer.bias is not None else torch.empty(0))

    def forward(self, vectors: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S NF"]:
        """All filters at every position, zero beyond each row's length."""
        inside = (torch.arange(vectors.shape[1], device=vectors.device) < lengths[:, None])[:, None]
        within = vectors.transpose(1, 2) * inside
        found = [torch.relu(layer(nn.functional.pad(within, _around(layer)))) for layer in self.layers]
        return (torch.cat(found, dim=1) * inside).transpose(1, 2)


def _around(layer: nn.Module) -> tuple[int, int]:
    """Zeros before and after a sequence that keep its length."""
    assert isinstance(layer, nn.Conv1d)
    (width,) = layer.kernel_size
    return (width - 1) // 2, width // 2
