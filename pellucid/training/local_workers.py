"""Start of the workers of a data-parallel training on this machine, by the launcher of torchrun."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from pellucid.errors import RunError

STOP_SECONDS = 3600
"""Seconds for which the launcher waits after Ctrl-C before it kills the workers. Worker 0 may have to end a validation
and to write a checkpoint. A second Ctrl-C ends them at once.
"""
STOP_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""Environment variable of this time; torchrun waits 30 seconds without it."""
SIGNAL_CODE = 128
"""Exit code of a command that a signal has ended, without the number of the signal: 130 after Ctrl-C."""


def train_in_workers(arguments: Sequence[str], num_workers: int) -> int:
    """Run `pellucid train` in several processes of this machine, which train one network together, until they end.

    Args:
        arguments: Command line of the subcommand, which each process gets.
        num_workers: Number of processes, at least 2.

    Returns:
        Exit code of the training: 128 and the number of the signal that has ended this process, 130 after Ctrl-C.

    Raises:
        RunError: A worker was killed.
    """
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed.elastic")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # the workers report errors themselves
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault(STOP_VARIABLE, str(STOP_SECONDS))
    try:
        with TemporaryDirectory(prefix="pellucid-") as log_folder:  # the launcher would leave its folder there
            plan = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=num_workers,
                logs_specs=DefaultLogsSpecs(log_folder),
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",
                run_id=str(os.getpid()),
                max_restarts=0,
                monitor_interval=0.1,
            )
            elastic_launch(plan, sys.executable)("-m", "pellucid", "train", *arguments)
    except SignalException as error:
        return SIGNAL_CODE + error.sigval
    except ChildFailedError as error:
        codes = [failure.exitcode for failure in error.failures.values()]
        if killed := killing_signal(codes):
            raise RunError(
                f"a worker process was killed by signal {killed}; the same command resumes the training"
            ) from error
        return max(codes)
    return 0


def killing_signal(codes: Sequence[int]) -> int:
    """Return the signal that has killed a worker, and so ended the training; 0 if an error has ended it.

    Once a worker has failed, the launcher ends the others by SIGTERM, and reports them as failed, too.

    Args:
        codes: Exit codes of the workers that failed; that of a killed worker is the negative number of its signal.
    """
    signals = [-code for code in codes if code < 0]
    causes = [number for number in signals if number != signal.SIGTERM]
    return next(iter(causes or signals), 0) if causes or len(signals) == len(codes) else 0
