"""Environment of a process that torchrun has started as one of several workers of a training."""

import os

from pellucid.errors import ConfigError, parse_whole_number, quote

RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDRESS = "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"
"""Environment variables that torchrun sets."""


def launched_workers() -> int:
    """Return the number of processes that torchrun has started together with this one; 1 without torchrun.

    Raises:
        ConfigError: A variable of torchrun is not a whole number.
    """
    is_launched = all(name in os.environ for name in (RANK, WORLD_SIZE, MASTER_ADDRESS))
    return read_launch_variable(WORLD_SIZE) if is_launched else 1


def worker_rank() -> int:
    """Return the number of this process among the workers of torchrun, from 0; 0 without torchrun.

    Raises:
        ConfigError: A variable of torchrun is not a whole number.
    """
    return read_launch_variable(RANK) if launched_workers() > 1 else 0


def read_launch_variable(name: str) -> int:
    """Return the whole number in an environment variable of torchrun.

    Args:
        name: Name of the variable.

    Raises:
        ConfigError: It is missing or not a whole number.
    """
    value = os.environ.get(name, "")
    number = parse_whole_number(value)
    if number is None:
        raise ConfigError(
            f"the environment variable {name}: expected a whole number, as torchrun sets it, got {quote(value)}"
        )
    return number


def refuse_launched_workers() -> None:
    """Raise an error if torchrun has started several workers, for a command that starts processes of its own.

    Raises:
        ConfigError: There are several workers.
    """
    if (count := launched_workers()) > 1:
        raise ConfigError(
            f"this command starts processes of its own, and torchrun has started {count} workers for one training: "
            "start the command without torchrun"
        )
