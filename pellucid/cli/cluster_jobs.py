"""The flag --on of subcommands that run several trainings: as tasks of a Ray cluster."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from pellucid.cluster.ray_connection import RayCluster, ray_connection
from pellucid.cluster.ray_pool import JobResources, use_ray_pool
from pellucid.config.settings import Device
from pellucid.errors import ConfigError, count_noun

OnFlag = Annotated[Literal["ray"] | None, arg(metavar="ray")]


@contextmanager
def run_jobs_on(on: Literal["ray"] | None, run: Path | None, threads: int, device: Device = "cpu") -> Iterator[str]:
    """Run the jobs of the block on this machine or on a Ray cluster.

    On a cluster, standard output goes to standard error meanwhile, because Ray prints messages there.

    Args:
        on: "ray" for a cluster; None for processes of this machine.
        run: Folder that the jobs write to, which all machines of a cluster must share; None for jobs without files.
        threads: CPU threads of each job.
        device: Device of each job; "auto" is a GPU if the cluster has one.

    Yields:
        Description of the cluster for messages: "a Ray cluster (3 machines, 4 CPUs)"; "" for this machine.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: The number of threads is 0, or no machine has that number of CPUs.
        InputError: The cluster does not answer, or the folder cannot be written to.
    """
    with connected_cluster(on, threads) as cluster:
        if cluster is None:
            yield ""
            return
        with use_ray_pool(job_resources(cluster, threads, device), run):
            counts = [count_noun(cluster.num_nodes, "machine"), count_noun(cluster.num_cpus, "CPU")]
            counts += [count_noun(cluster.num_gpus, "GPU")] if cluster.num_gpus else []
            yield f"a Ray cluster ({', '.join(counts)})"


@contextmanager
def connected_cluster(on: Literal["ray"] | None, threads: int) -> Iterator[RayCluster | None]:
    """Connect to a Ray cluster for a block, whose standard output goes to standard error, because Ray prints messages.

    Args:
        on: "ray" for a cluster; None for processes of this machine.
        threads: CPU threads of each job.

    Yields:
        The cluster; None for processes of this machine.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: The number of threads is 0.
        InputError: The cluster does not answer.
    """
    if on is None:
        yield None
        return
    if not threads:
        raise ConfigError("--on ray needs the number of CPUs of each job: give --threads N instead of 0")
    with redirect_stdout(sys.stderr), ray_connection("--on ray") as cluster:
        yield cluster


def job_resources(cluster: RayCluster, threads: int, device: Device) -> JobResources:
    """Return what a job needs on its machine.

    Args:
        cluster: The cluster.
        threads: CPU threads of the job.
        device: Its device; "auto" is a GPU if the cluster has one.
    """
    return JobResources(threads, int(cluster.uses_gpu(device)))
