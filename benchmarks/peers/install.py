"""A virtual environment for each peer."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.measure import FailedError, tail
from benchmarks.peers.systems.system import System

ROOT = Path(__file__).parents[2]
STAMP = "complete.json"
NEEDED_BYTES = 3 * 2**30
"""Free disk space that an installation may need."""
LIMIT_SECONDS = 1800


def install(system: System, environments: Path) -> Path:
    """The interpreter of the system's environment, made unless it is complete. `FailedError` says why there is none."""
    if not system.pip:
        return Path(sys.executable)
    folder = environments / system.name
    steps, python = [torch_version(), *map(list, system.pip)], folder / "bin" / "python"
    stamp = folder / STAMP
    if stamp.exists() and json.loads(stamp.read_text("utf-8")) == steps:
        return python
    environments.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(environments).free) < NEEDED_BYTES:
        raise FailedError(f"{environments} has {free / 2**30:.1f} GiB left; an environment takes up to 3")
    shutil.rmtree(folder, ignore_errors=True)
    log = environments / f"{system.name}.log"
    log.write_text("", "utf-8")
    _run([sys.executable, "-m", "venv", str(folder)], log)
    (folder / "constraints.txt").write_text(f"{torch_version()}\n", "utf-8")
    for verb, *arguments in system.pip:
        constraint = ["--constraint", str(folder / "constraints.txt")] if verb == "install" else []
        _run([str(python), "-m", "pip", verb, *constraint, *arguments], log)
    _run(list(system.probe(python)), log)
    stamp.write_text(json.dumps(steps), "utf-8")
    return python


def torch_version() -> str:
    """The line of constraints.txt that says which PyTorch Pellucid is tested with: every system gets the same."""
    found = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert found, "constraints.txt names no version of torch"
    return found[0]


def _run(arguments: list[str], log: Path) -> None:
    """Run one step of an installation, its output appended to the log."""
    with log.open("a", encoding="utf-8") as output:
        output.write(f"$ {' '.join(arguments)}\n")
        output.flush()
        try:
            done = subprocess.run(arguments, stdout=output, stderr=subprocess.STDOUT, timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise FailedError(f"not installed: {arguments[1:4]} took more than {LIMIT_SECONDS} s") from None
    if done.returncode:
        raise FailedError(f"not installed: {tail(log.read_text('utf-8'))}")
