"""Messages about the blocks of a command on a cluster, and the CPUs of its processes, without Ray."""

import time
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from pellucid.cli import block_progress
from pellucid.cli.block_progress import BlockProgress, RayMessages, process_on_cluster
from pellucid.cluster import block_pool
from pellucid.cluster.block_folder import BlockFolder
from pellucid.cluster.block_pool import BlockJob, BlockProcessor, fit_resources
from pellucid.cluster.ray_connection import ClusterError, RayCluster
from pellucid.cluster.ray_pool import JobResources


class Machines:
    """CPUs of the machines of a cluster, of which jobs need some."""

    def __init__(self, *cpus: int) -> None:
        self.cpus = cpus

    def count_slots(self, resources: JobResources) -> int:
        return 0 if resources.gpus else sum(cpus // resources.cpus for cpus in self.cpus)


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    """A cluster with a head without CPUs and two machines with three CPUs each."""
    result = Machines(0, 3, 3)
    for module in (block_pool, block_progress):
        monkeypatch.setattr(module, "count_slots", result.count_slots)
    return result


def make_processor(threads: int) -> BlockProcessor:
    """Return a processor, which is not called."""
    return bytes.upper


def test_a_process_has_at_most_the_cpus_of_the_largest_machine(machines: Machines) -> None:
    assert fit_resources(JobResources(2)) == JobResources(2)
    assert fit_resources(JobResources(8)) == JobResources(3)
    with pytest.raises(ClusterError, match=r"no machine of the Ray cluster has a CPU and GPU \(--device cuda\)"):
        fit_resources(JobResources(1, 1))
    machines.cpus = (0,)
    with pytest.raises(ClusterError, match="no machine of the Ray cluster has a CPU, which each process needs"):
        fit_resources(JobResources(2))


def test_messages_tell_what_blocks_wait_for(machines: Machines, tmp_path: Path) -> None:
    folder = BlockFolder(tmp_path)
    progress = BlockProgress(BlockJob(folder, make_processor, JobResources(2)), 8, 3)
    assert progress.describe_wait() == "waiting for the first process to start on the cluster: it needs 2 CPUs"
    folder.count_attempt(5)
    assert progress.describe_wait() == ""
    folder.reset_attempts(5)
    assert progress.describe_wait() == ""
    machines.cpus = (0,)
    assert progress.describe_wait() == "no machine with 2 CPUs is left in the Ray cluster; waiting until one joins"


def test_progress_is_printed_by_time(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while no block is finished; the thread that prints ends with the blocks."""
    printed = list[str]()

    def process_blocks(job: BlockJob, numbers: Collection[int], num_processes: int) -> Iterator[int]:
        for number in numbers:
            yield number
            for _ in range(3000):
                if "--on ray: 7 of 9 blocks are finished" in printed:
                    break
                time.sleep(0.01)

    monkeypatch.setattr(block_progress, "WAITING_SECONDS", 0.01)
    monkeypatch.setattr(block_progress, "PROGRESS_SECONDS", 0.02)
    monkeypatch.setattr(block_progress, "print_message", printed.append)
    monkeypatch.setattr(block_progress, "process_blocks", process_blocks)
    cluster = RayCluster("local", 6, 0, 3)
    monkeypatch.setattr(block_progress, "ray_connection", lambda operation: nullcontext(cluster))
    job = BlockJob(BlockFolder(tmp_path), make_processor, JobResources(4))
    process_on_cluster(job, "cpu", [6, 7, 8], 9)
    assert printed[0] == "--on ray: 9 blocks, 6 of them finished earlier; 2 processes on a cluster of 3 machines"
    assert "--on ray: 7 of 9 blocks are finished" in printed
    assert capsys.readouterr() == ("", "")


def test_blocks_wait_if_the_last_machine_dies_at_the_start(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: Ray refused zero processes with a traceback."""
    counts = list[int]()

    def process_blocks(job: BlockJob, numbers: Collection[int], num_processes: int) -> Iterator[int]:
        counts.append(num_processes)
        yield from numbers

    monkeypatch.setattr(block_progress, "process_blocks", process_blocks)
    monkeypatch.setattr(block_progress, "count_slots", lambda resources: 0)  # block_pool still found the machines
    monkeypatch.setattr(block_progress, "ray_connection", lambda operation: nullcontext(RayCluster("local", 6, 0, 3)))
    process_on_cluster(BlockJob(BlockFolder(tmp_path), make_processor, JobResources(2)), "cpu", [0, 1], 2)
    assert counts == [1]


def test_long_messages_of_ray_become_a_short_one(capsys: pytest.CaptureFixture[str]) -> None:
    stream = RayMessages()
    print("(raylet) some advice, before the deadline", file=stream)
    assert capsys.readouterr() == ("", "")
    print("(raylet) A worker died or was killed\n(raylet) Raylet is terminated.", file=stream)
    message = "pellucid: --on ray: a process or a machine of the cluster has died; Ray repeats its blocks\n"
    assert capsys.readouterr() == ("", message)
