"""What the environment says of kernels."""

import os


def plain_is_asked() -> bool:
    """Whether PELLUCID_PLAIN asks for plain PyTorch."""
    return os.environ.get("PELLUCID_PLAIN", "0") not in ("", "0")
