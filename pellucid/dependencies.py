"""Optional packages, by the extra that installs them, and the error that says how to install a missing one."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

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
Extra = Literal["train", "data", "hub", "onnx", "tune", "postgresql", "tensorboard", "mlflow", "ray"]
"""Extra of the distribution, of which optional packages are installed."""


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


def require_package(name: str, extra: Extra, operation: str) -> None:
    """Check that a package is installed, without importing it.

    Args:
        name: Name under which the package is imported.
        extra: Extra that installs it.
        operation: Operation that needs the package: "pellucid tune".

    Raises:
        MissingDependencyError: It is not installed; the message has the command that installs it.
    """
    if not has_package(name):
        raise _missing_package_error(name, extra, operation)


def _missing_package_error(name: str, extra: Extra, operation: str) -> MissingDependencyError:
    """Return the error for an operation that needs a package."""
    return MissingDependencyError(
        f"{operation} needs the package {quote(name)}, which is not installed: {install_command(extra)}"
    )


def install_command(extra: Extra) -> str:
    """Return the command that installs an extra.

    Args:
        extra: The extra.
    """
    return f"pip install 'pellucid[{extra}]'"


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
        if package in DATA_PACKAGES:
            raise _missing_package_error(package, "data", operation) from None
        name = package if has_package("torch") else "torch"  # the one that users know
        raise _missing_package_error(name, "train", operation) from None


def require_pytorch(reason: str) -> MissingDependencyError:
    """Return the error for an option or a run that needs PyTorch where it is not installed; the caller raises it.

    Args:
        reason: Option, or the reason why the runtime does not compute a run.
    """
    return MissingDependencyError(f"{reason}: this needs PyTorch, which is not installed: {install_command('train')}")
