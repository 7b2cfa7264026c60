"""Software and processor of a training, which its log records.

Results are equal bit for bit only if these are equal, since another version or processor may round sums differently.
"""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RECORDED_PACKAGES = ("torch", "numpy", "numba", "llvmlite")
"""Packages whose arithmetic or compiler determines the last bits of a result."""


def processor_name() -> str:
    """Return the model of the processor: "AMD EPYC 7763 64-Core Processor"; the architecture if it is unknown."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def package_version(name: str) -> str:
    """Return the installed version of a package, or "none".

    Args:
        name: Name of the package.
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def describe_environment(threads: int, gpu: str = "") -> dict[str, str | int]:
    """Return the software, the processor and the number of threads, for the log.

    Args:
        threads: Number of threads of the training.
        gpu: Name of the GPU; empty by default, for a training on the processor.
    """
    packages = {name: package_version(name) for name in RECORDED_PACKAGES}
    graphics = {"gpu": gpu} if gpu else {}
    return {
        "python": platform.python_version(),
        **packages,
        "processor": processor_name(),
        **graphics,
        "threads": threads,
    }
