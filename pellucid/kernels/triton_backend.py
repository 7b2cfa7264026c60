"""The computations of the Triton kernels: additive attention on a GPU, in float32 or bfloat16."""

from functools import cache

from pellucid.kernels.backend import ANYTHING, Backend, compiles

MAX_POSITIONS = 8192
"""Largest number of source positions of the kernel for GPUs: one program holds them all."""


@cache
def is_triton_available() -> bool:
    """Return whether Triton is installed and can compile for this GPU."""
    return compiles(_warm_up, "attention runs without its kernel for GPUs")


def _warm_up() -> None:
    """Compile the kernels for the GPU."""
    from pellucid.kernels.triton_attention import warm_up  # Triton is an extra

    warm_up()


TRITON = Backend(
    "Triton",
    {
        "attention": {
            "device": {"cuda"},
            "dtype": {"float32", "bfloat16"},
            "gradients": ANYTHING,
            "attention.kind": {"additive"},
            "attention.override": {False},
            "attention.differentiated_queries": {0, 1},  # queries of a source that gradients flow to
            "attention.positions": range(1, MAX_POSITIONS + 1),
            "memory.source": ANYTHING,
            "memory.masked": {False},
        }
    },
    lambda: is_triton_available(),
)
