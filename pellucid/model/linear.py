"""Linear projections: in training by the CPU kernel where it supports the request, otherwise by PyTorch.

K inputs, N outputs.
"""

from torch import Tensor, nn

from pellucid.kernels.dispatch import use_kernel
from pellucid.model.requests import request_of
from pellucid.shapes import Float


def linear(inputs: Float[Tensor, "*shape K"], weight: Float[Tensor, "N K"], bias: Tensor | None = None) -> Tensor:
    """Return W x + b, of shape (*shape, N), as `nn.functional.linear` does.

    Args:
        inputs: Vectors x.
        weight: W.
        bias: b; default none.
    """
    if use_kernel(request_of("linear", inputs)):
        from pellucid.kernels import tensor_functions  # Numba takes a second to import

        return tensor_functions.linear(inputs, weight, bias)
    return nn.functional.linear(inputs, weight, bias)
