"""Description of the machine and peak memory of the process."""

import os
import platform
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from pellucid.run_folder.environment import package_version, processor_name
from pellucid.version import __version__

MIB = 2**20
PACKAGES = ("torch", "numba", "numpy")


class MachineInfo(msgspec.Struct, frozen=True):
    """Hardware, software and time of a measurement."""

    processor: str
    """Name of the processor."""
    cores: int
    """Number of logical CPU cores of the machine."""
    system: str
    """Operating system and its release."""
    load: float
    """Load average over the last minute; 0 on Windows, which has none."""
    versions: dict[str, str]
    """Versions of Pellucid, Python and `PACKAGES` by name; "none" for a package that is not installed."""
    date: str
    """Local time with its offset from UTC: 2026-01-31T12:00:00+0100."""


def describe_machine() -> MachineInfo:
    """Return the description of this machine now, without importing torch.

    Returns:
        Hardware, software, load and time.
    """
    versions = {"pellucid": __version__, "python": platform.python_version()}
    return MachineInfo(
        processor=processor_name(),
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.release()}",
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
        versions={**versions, **{name: package_version(name) for name in PACKAGES}},
        date=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )


def peak_memory_mib() -> float:
    """Return the peak resident memory of this process so far, in MiB; 0 on Windows, where it is not measured.

    On Linux it is that of the current program only (VmHWM): `ru_maxrss`, which other systems use, also includes the
    parent process before exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    with suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (MIB if sys.platform == "darwin" else 1024)
    return 0.0
