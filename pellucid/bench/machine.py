"""The machine a measurement was made on, and the memory it took."""

import os
import platform
import resource
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from pellucid.version import __version__

MIB = 2**20
PACKAGES = ("torch", "numba", "numpy")


class MachineInfo(msgspec.Struct, frozen=True):
    """Where and when."""

    processor: str
    cores: int
    system: str
    load: float
    """Processes that were running at the start, on average over a minute."""
    versions: dict[str, str]
    date: str


def describe_machine() -> MachineInfo:
    """What can be known without importing anything heavy."""
    versions = {"pellucid": __version__, "python": platform.python_version()}
    return MachineInfo(
        processor=_processor_name(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()}",
        load=os.getloadavg()[0],
        versions={**versions, **{name: _package_version(name) for name in PACKAGES}},
        date=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def peak_memory_mib() -> float:
    """The most memory this process had at once, in MiB.

    Linux says it for the program that runs now; the usual figure includes the process it was started from.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (MIB if sys.platform == "darwin" else 1024)


def _processor_name() -> str:
    """The processor's name as the system tells it."""
    told = Path("/proc/cpuinfo")
    if told.exists():
        for line in told.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _package_version(name: str) -> str:
    """The installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
