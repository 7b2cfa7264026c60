"""What training makes small.

B batch, T target positions, V vocabulary.
"""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from pellucid.data.vocabulary import PAD
from pellucid.kernels.choice import chosen


def cross_entropy(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"], label_smoothing: float
) -> Float[Tensor, ""]:
    """The mean over real target positions of −Σ_v q_v ln p_v, q = (1 − ε) one-hot + ε / V.

    Padding counts for nothing. Label smoothing: Szegedy et al. 2016, section 7.
    """
    if chosen(logits):
        from pellucid.kernels.loss import CrossEntropy  # Numba takes a second to import

        flat = (logits.flatten(0, 1), target.flatten(), PAD, label_smoothing)
        loss: Tensor = CrossEntropy.apply(*flat)  # type: ignore[no-untyped-call]
        return loss
    return functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=label_smoothing
    )
