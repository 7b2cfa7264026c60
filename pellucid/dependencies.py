"""Packages that training and downloads need and prediction does not, and the error that says how to install them."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from pellucid.errors import InputError, quote

TRAINING_PACKAGES = (
    "torch",
    "numba",
    "llvmlite",
    "scipy",
    "matplotlib",
    "sacrebleu",
    "rapidfuzz",
    "pyarrow",
    "starlette",
    "uvicorn",
)
"""Packages of the extra `train`, by the names under which they are imported, and those that they install."""
DATA_PACKAGES = ("pooch", "requests")
"""Package of the extra `data`, and one that it installs."""
INSTALL = "pip install 'pellucid[train]'"


def has_package(name: str) -> bool:
    """Return whether a package can be imported, without importing it.

    Args:
        name: Name of the package.
    """
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # hidden by a finder, or None in sys.modules
        return False


class MissingDependencyError(InputError):
    """A package is not installed that an operation needs."""


@contextmanager
def missing_packages_as_errors(operation: str) -> Iterator[None]:
    """Name what to install if a package of the extras `train` and `data` cannot be imported inside the block.

    Args:
        operation: Operation that needs the package: "pellucid train".

    Raises:
        MissingDependencyError: A package of these extras is not installed. Other missing modules raise as usual.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in (*TRAINING_PACKAGES, *DATA_PACKAGES):
            raise
        install = "pip install 'pellucid[data]'" if package in DATA_PACKAGES else INSTALL
        message = f"{operation} needs the package {quote(package)}, which is not installed: {install}"
        raise MissingDependencyError(message) from None


def require_pytorch(reason: str) -> MissingDependencyError:
    """Return the error for an option or a run that needs PyTorch where it is not installed; the caller raises it.

    Args:
        reason: Option, or the reason why the runtime does not compute a run.
    """
    return MissingDependencyError(f"{reason}: this needs PyTorch, which is not installed: {INSTALL}")
