"""Connection to a Ray cluster: one that runs already, or one of this machine alone, for the time of a command.

Ray is imported inside functions only, because it is an optional package (the extra `ray`).
"""

import logging
import os
import re
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pellucid.dependencies import MissingDependencyError, install_command, require_package
from pellucid.errors import InputError, RunError, abbreviate_reason, parse_whole_number, quote
from pellucid.files import read_bytes
from pellucid.worker_pool import available_cores

ADDRESS_VARIABLE = "RAY_ADDRESS"
"""Environment variable with the address of a cluster, as Ray reads it; `ray job submit` sets it for its jobs."""
LOG_LEVEL_VARIABLE = "RAY_BACKEND_LOG_LEVEL"
"""Environment variable with the level from which the core of Ray writes to standard error."""
STATISTICS_VARIABLE = "RAY_USAGE_STATS_ENABLED"
"""Environment variable that permits a new cluster to send statistics of its use to the makers of Ray ("1"), or not."""
LOCAL = "local"
"""Address that stands for a new cluster of this machine alone, as in Ray."""
CONNECT_TIMEOUT = 20.0
"""Seconds within which the head of a cluster must answer."""
PORT = 6379
"""Port of the head of a cluster, if an address has none: the default of `ray start`."""
MAX_ADDRESS_BYTES = 2**12
"""Maximum size of the file with the address of a cluster, in bytes."""

ENVIRONMENT_ERROR = re.compile(
    r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError|UnpicklingError|AttributeError: Can't get attribute)\b.*",
    re.MULTILINE,
)
"""Line of a traceback that states that a package is missing on a machine, or has another version there."""


class ClusterError(InputError):
    """A Ray cluster that does not answer, has another version, cannot be started, or has failed."""


class RayCluster(NamedTuple):
    """A Ray cluster to which this process is connected."""

    address: str
    """Host and port of its head; `LOCAL` for a cluster that ends with the connection."""
    num_cpus: int
    """Number of CPUs of all its nodes."""
    num_gpus: int
    """Number of GPUs of all its nodes."""
    num_nodes: int
    """Number of its living nodes."""

    def uses_gpu(self, device: str) -> bool:
        """Return whether a job uses a GPU.

        Args:
            device: Device of the job; "auto" is a GPU if the cluster has one.
        """
        return device == "cuda" or (device == "auto" and self.num_gpus > 0)


@contextmanager
def ray_connection(operation: str, address: str = "") -> Iterator[RayCluster]:
    """Connect to a Ray cluster within the block.

    The cluster is that of `address`, else that of the variable RAY_ADDRESS, else the last one that `ray start` has
    started on this machine, else a new one of this machine alone, which is stopped at the end of the block. If this
    process is connected already, that connection is used and stays open.

    Messages of Ray below the level of errors, and the output of its workers, do not reach the terminal. A new cluster
    sends no statistics of its use, unless the variable RAY_USAGE_STATS_ENABLED is "1".

    Args:
        operation: Operation that needs Ray, for messages: "--on ray".
        address: HOST:PORT of the head of a cluster (the port of `ray start`), or "local" for a new cluster of this
            machine alone; "" to look for a cluster.

    Yields:
        The cluster.

    Raises:
        MissingDependencyError: Ray is not installed.
        ClusterError: The cluster does not answer within `CONNECT_TIMEOUT` seconds, refuses the connection, or cannot be
            started.
    """
    require_package("ray", "ray", operation)
    import ray

    if ray.is_initialized():
        yield _describe_cluster(ray.get_runtime_context().gcs_address)
        return
    address = address or find_cluster_address() or LOCAL
    settings = {LOG_LEVEL_VARIABLE: "fatal", **({STATISTICS_VARIABLE: "0"} if address == LOCAL else {})}
    with _default_environment(settings):
        _connect(address)
        try:
            with ray_errors_as_messages():
                cluster = _describe_cluster(address)
            yield cluster
        finally:
            ray.shutdown()


@contextmanager
def ray_errors_as_messages() -> Iterator[None]:
    """Convert the errors of Ray inside the block to errors that a user can correct.

    An unexpected exception in a process of the cluster is a bug; it is raised as it is, with its traceback.

    Raises:
        ClusterError: The connection to the cluster is lost, or a machine lacks a package or has another version of it.
        MissingDependencyError: Ray is installed here without the packages of its extras.
    """
    try:
        yield
    except Exception as error:
        converted = convert_ray_error(error)
        if converted is None:
            raise
        raise converted from error


def convert_ray_error(error: Exception) -> InputError | None:
    """Return the error that a user can correct for one that Ray has raised; None for a bug, and for errors of others.

    Args:
        error: The error.
    """
    if "ray" not in sys.modules:
        return None
    from ray import exceptions

    is_task_error = isinstance(error, exceptions.RayTaskError)
    is_failed_start = isinstance(error, exceptions.RayActorError) and getattr(error, "actor_init_failed", False)
    if is_task_error or is_failed_start:  # the message holds the traceback of the process
        lines = ENVIRONMENT_ERROR.findall(str(error))
        if not lines:
            return None
        return ClusterError(
            f"a process of the Ray cluster cannot start ({abbreviate_reason(RuntimeError(lines[-1]))}): all machines "
            "need the same versions of Python, of Pellucid and of its packages"
        )
    if isinstance(error, InputError | BrokenPipeError):
        return None
    if isinstance(error, exceptions.RayError | ConnectionError):
        return ClusterError(
            f"the Ray cluster or one of its processes is lost ({abbreviate_reason(error)}): run the same command "
            "again; it continues"
        )
    if isinstance(error, ImportError) and _is_raised_in_ray(error):
        return MissingDependencyError(
            f"Ray is installed without packages that it needs ({abbreviate_reason(error)}): {install_command('ray')}"
        )
    return None


def _is_raised_in_ray(error: ImportError) -> bool:
    """Return whether a module of Ray has failed to import another one."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__", "").split(".")[0] == "ray":
            return True
        traceback = traceback.tb_next
    return False


def find_cluster_address() -> str:
    """Return the address in the variable RAY_ADDRESS, or of the last cluster that `ray start` has started here; else
    "".
    """
    if (address := os.environ.get(ADDRESS_VARIABLE, "auto")) not in ("auto", ""):
        return address
    default = tempfile.gettempdir() if os.name == "nt" else "/tmp"
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or default
    with suppress(RunError, UnicodeDecodeError):  # no cluster was started, or another user's file
        return read_bytes(Path(folder) / "ray" / "ray_current_cluster", RunError, MAX_ADDRESS_BYTES).decode().strip()
    return ""


def _connect(address: str) -> None:
    """Connect this process to the cluster of an address, or to a new one of this machine alone."""
    import ray

    if address != LOCAL:
        _check_answer(address)
    # Ray refuses a number of CPUs for a cluster that runs; a new one has the cores that this process may use.
    num_cpus = available_cores() if address == LOCAL else None
    try:
        with warnings.catch_warnings(action="ignore"), _discarded_stderr():
            ray.init(
                address=address,
                num_cpus=num_cpus,
                include_dashboard=False if address == LOCAL else None,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
    except Exception as error:  # ConnectionError, RuntimeError and others, depending on the version
        if address == LOCAL:
            raise ClusterError(f"Ray cannot start on this machine: {abbreviate_reason(error)}") from error
        raise ClusterError(
            f"cannot use the Ray cluster at {address}: {abbreviate_reason(error)}; this machine must be one of its "
            "nodes (ray start), with the same versions of Python and Ray"
        ) from error


@contextmanager
def _default_environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that have no value within the block."""
    missing = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


@contextmanager
def _discarded_stderr() -> Iterator[None]:
    """Discard the output of the core of Ray, a compiled program, to standard error within the block."""
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _check_answer(address: str) -> None:
    """Raise `ClusterError` if an address is not an address of a head, or nothing answers there."""
    if "://" in address:
        raise ClusterError(
            f"{ADDRESS_VARIABLE}: Pellucid does not support addresses of Ray Client such as {quote(address)}: run the "
            "command on a machine of the cluster, with HOST:PORT of its head, or submit it by ray job submit"
        )
    host, port = _split_address(address)
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT).close()
    except (OSError, ValueError) as error:  # a ValueError for a host that cannot be one, such as "a..b"
        raise ClusterError(
            f"no Ray cluster answers at {address} within {CONNECT_TIMEOUT:g} seconds ({abbreviate_reason(error)}): "
            f"start it (ray start --head), give its address by the variable {ADDRESS_VARIABLE}, or set "
            f"{ADDRESS_VARIABLE} to {LOCAL} for this machine alone"
        ) from error


def _split_address(address: str) -> tuple[str, int]:
    """Return the host and the port of an address; the default port if it has none."""
    host, separator, digits = address.rpartition(":")
    if not separator:
        return address, PORT
    port = parse_whole_number(digits)
    if not host or port is None or not 0 < port < 2**16:
        raise ClusterError(f"expected HOST:PORT as the address of a Ray cluster, got {quote(address)}")
    return host.strip("[]"), port


def _describe_cluster(address: str) -> RayCluster:
    """Return the size of the cluster to which this process is connected."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    num_cpus, num_gpus = (sum(int(resources.get(name, 0)) for resources in nodes) for name in ("CPU", "GPU"))
    return RayCluster(address, num_cpus, num_gpus, len(nodes))
