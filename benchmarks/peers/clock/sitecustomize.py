"""Imported by Python itself where this folder is on PYTHONPATH: writes one line a parameter update.

The line tells the monotonic clock and the processor seconds so far of the process and of its children. The hook is
PyTorch's own (`register_optimizer_step_post_hook`); where a system has an optimiser of its own, PEERS_UPDATES names a
"module:Class.method" that is called once an update.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

TICKS = os.environ.get("PEERS_TICKS")
"""The file to write to."""
HOOKED, _, CALLED = os.environ.get("PEERS_UPDATES", "torch.optim.optimizer").partition(":")
CLOCK = os.sysconf("SC_CLK_TCK")


def child_seconds() -> float:
    """Processor seconds of the processes that this one has started and not ended."""
    total = 0
    try:
        for children in Path("/proc/self/task").glob("*/children"):
            for child in children.read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
    except OSError:  # one of them has just ended
        pass
    return total / CLOCK


class Clock:
    """Writes the time of each update."""

    def __init__(self, path: str) -> None:
        """Nothing is open before the first update."""
        self.path = path
        self.file: Any = None

    def tick(self, *_: object) -> None:
        """One update was made."""
        if self.file is None:
            self.file = open(self.path, "a", buffering=1)  # noqa: SIM115
        times = os.times()
        ended = times.children_user + times.children_system
        self.file.write(f"{time.monotonic():.6f} {time.process_time() + ended + child_seconds():.6f}\n")


def hook(module: ModuleType, clock: Clock) -> None:
    """Have the clock tick after each update."""
    if not CALLED:
        vars(module)["register_optimizer_step_post_hook"](clock.tick)
        return
    name, _, method = CALLED.partition(".")
    owner = vars(module)[name]
    own = getattr(owner, method)

    def ticking(*arguments: object, **named: object) -> object:
        made = own(*arguments, **named)
        clock.tick()
        return made

    setattr(owner, method, ticking)


class Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself; hooks the one module when somebody imports it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """What the usual finder finds, with the hook set after loading."""
        if name != HOOKED or TICKS is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader: Any = spec.loader if spec else None
        if loader is None:
            return None
        execute = loader.exec_module

        def hooked(module: ModuleType) -> None:
            execute(module)
            hook(module, Clock(TICKS))

        loader.exec_module = hooked
        return spec


if TICKS is not None:
    sys.meta_path.insert(0, Finder())
