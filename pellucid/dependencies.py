"""Packages that training needs and prediction does not, and the error that says how to install them."""

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


def missing_dependency(error: ModuleNotFoundError, operation: str) -> MissingDependencyError | None:
    """Return the error for a package of the extra `train` that is not installed; None for any other module.

    Args:
        error: Error of an import.
        operation: Operation that needs the package: "pellucid train".
    """
    package = (error.name or "").split(".")[0]
    if package not in TRAINING_PACKAGES:
        return None
    return MissingDependencyError(f"{operation} needs the package {quote(package)}, which is not installed: {INSTALL}")


def require_pytorch(reason: str) -> MissingDependencyError:
    """Return the error for an option or a run that needs PyTorch where it is not installed; the caller raises it.

    Args:
        reason: Option, or the reason why the runtime does not compute a run.
    """
    return MissingDependencyError(f"{reason}: this needs PyTorch, which is not installed: {INSTALL}")
