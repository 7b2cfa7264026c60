"""Clock of updates: Python imports this module at start if its folder is in PYTHONPATH.

The clock writes a line per parameter update: the monotonic clock, and the CPU seconds of the process and its children.
The hook is PyTorch's `register_optimizer_step_post_hook`; for a system with its own optimizer, PEERS_UPDATES names a
"module:Class.method" that is called once per update.
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
"""Path of the file with the times of the updates."""
HOOKED_MODULE, _, HOOKED_METHOD = os.environ.get("PEERS_UPDATES", "torch.optim.optimizer").partition(":")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def child_seconds() -> float:
    """Return the CPU seconds of the running child processes."""
    ticks = 0
    try:
        for children in Path("/proc/self/task").glob("*/children"):
            for child in children.read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    except OSError:  # a child has just ended
        pass
    return ticks / TICKS_PER_SECOND


class Clock:
    """Clock that writes the time of each update to a file."""

    def __init__(self, path: str) -> None:
        """Create the clock; the file is opened at the first update.

        Args:
            path: File of the times.
        """
        self.path = path
        self.file: Any = None

    def tick(self, *_: object) -> None:
        """Write the time of an update."""
        if self.file is None:
            self.file = open(self.path, "a", buffering=1)  # noqa: SIM115
        times = os.times()
        ended_children = times.children_user + times.children_system
        self.file.write(f"{time.monotonic():.6f} {time.process_time() + ended_children + child_seconds():.6f}\n")


def hook(module: ModuleType, clock: Clock) -> None:
    """Call the clock after each update.

    Args:
        module: The module that `HOOKED_MODULE` names.
        clock: The clock.
    """
    if not HOOKED_METHOD:
        vars(module)["register_optimizer_step_post_hook"](clock.tick)
        return
    name, _, method = HOOKED_METHOD.partition(".")
    owner = vars(module)[name]
    original = getattr(owner, method)

    def _call_and_tick(*arguments: object, **keywords: object) -> object:
        result = original(*arguments, **keywords)
        clock.tick()
        return result

    setattr(owner, method, _call_and_tick)


class ClockFinder(importlib.abc.MetaPathFinder):
    """Import hook that attaches the clock to `HOOKED_MODULE` when it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module specification of the standard finder, with the clock attached after loading.

        Args:
            name: Full name of the module.
            path: Search path of the parent package.
            target: Module to reload.
        """
        if name != HOOKED_MODULE or TICKS is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader: Any = spec.loader if spec else None
        if loader is None:
            return None
        execute = loader.exec_module

        def _execute_and_hook(module: ModuleType) -> None:
            execute(module)
            hook(module, Clock(TICKS))

        loader.exec_module = _execute_and_hook
        return spec


if TICKS is not None:
    sys.meta_path.insert(0, ClockFinder())
