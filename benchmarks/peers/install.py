"""Installation of each system in a virtual environment."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from benchmarks.peers.measure import MeasurementError, last_lines

ROOT = Path(__file__).parents[2]
STAMP = "complete.json"
"""File that marks a complete environment."""
NEEDED_BYTES = 3 * 2**30
"""Free disk space in bytes that an installation requires."""
LIMIT_SECONDS = 1800


class InstallableSystem(Protocol):
    """System that is installed with pip."""

    name: ClassVar[str]
    pip: ClassVar[Sequence[Sequence[str]]]
    """Arguments of each call of pip in the system's environment; empty for the system of this checkout."""

    def probe_command(self, python: Path) -> Sequence[str]:
        """Return a command that succeeds if the system is installed.

        Args:
            python: Python interpreter of the system's environment.
        """


def install(system: InstallableSystem, environments: Path) -> Path:
    """Install a system unless its environment is complete.

    Args:
        system: The system.
        environments: Folder of all environments.

    Returns:
        Python interpreter of the environment.

    Raises:
        MeasurementError: The installation fails, or the disk is nearly full.
    """
    if not system.pip:
        return Path(sys.executable)
    folder = environments / system.name
    steps, python = [torch_version(), *map(list, system.pip)], folder / "bin" / "python"
    stamp = folder / STAMP
    if stamp.exists() and json.loads(stamp.read_text("utf-8")) == steps:
        return python
    environments.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(environments).free) < NEEDED_BYTES:
        raise MeasurementError(f"{environments} has {free / 2**30:.1f} GiB left; an environment takes up to 3 GiB")
    shutil.rmtree(folder, ignore_errors=True)
    log = environments / f"{system.name}.log"
    log.write_text("", "utf-8")
    _run([sys.executable, "-m", "venv", str(folder)], log)
    (folder / "constraints.txt").write_text(f"{torch_version()}\n", "utf-8")
    for verb, *arguments in system.pip:
        constraint = ["--constraint", str(folder / "constraints.txt")] if verb == "install" else []
        _run([str(python), "-m", "pip", verb, *constraint, *arguments], log)
    _run(list(system.probe_command(python)), log)
    stamp.write_text(json.dumps(steps), "utf-8")
    return python


def torch_version() -> str:
    """Return the line of constraints.txt with the version of PyTorch, which all systems share."""
    match = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert match, "constraints.txt has no version of torch"
    return match[0]


def _run(arguments: list[str], log: Path) -> None:
    """Run one step of an installation and append its output to the log."""
    with log.open("a", encoding="utf-8") as output:
        output.write(f"$ {' '.join(arguments)}\n")
        output.flush()
        try:
            process = subprocess.run(arguments, stdout=output, stderr=subprocess.STDOUT, timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"not installed: {arguments[1:4]} took more than {LIMIT_SECONDS} s") from None
    if process.returncode:
        raise MeasurementError(f"not installed: {last_lines(log.read_text('utf-8'))}")
