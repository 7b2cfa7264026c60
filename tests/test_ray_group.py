"""One job of several connected workers of a Ray cluster, of one node in these tests."""

import importlib.util
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("needs Ray", allow_module_level=True)

import torch
from safetensors.numpy import load_file
from torch import distributed
from trained_runs import make_small_config, write_copy_files

from pellucid.cluster import ray_connection as connections
from pellucid.cluster import ray_group
from pellucid.cluster.mailbox import DriverMailbox
from pellucid.cluster.ray_connection import ray_connection
from pellucid.cluster.ray_group import GroupTasks, TrainingThread, run_in_group
from pellucid.cluster.ray_job import MAX_JOB_STARTS, LockedProbe, Submission
from pellucid.cluster.ray_pool import JobResources, count_slots
from pellucid.errors import ConfigError, DataError, FolderInUseError, InputError, RunError, WorkerLostError
from pellucid.training.data_parallel import serve_connected
from pellucid.training.ensemble_training import TrainingJob, run_job
from pellucid.training.events import TrainingStopped, ValidationCompleted
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles
from pellucid.worker_pool import JobFailure, WorkerChannel

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, about its own functions


@pytest.fixture(autouse=True)
def cluster() -> Iterator[None]:
    """Connect to a new cluster of this machine alone with two CPUs, however many cores this process may use.

    Workers can import this module. Those that a failed training has left end with the cluster.
    """
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.setattr(connections, "available_cores", lambda: 2)
        with ray_connection("test", "local"):
            yield


def sum_and_report(job: Path, channel: WorkerChannel) -> str:
    """Kill this process at the first attempt; at the second, sum a number with the other worker and report it."""
    if not job.exists():
        job.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    number = torch.tensor([1.0])
    distributed.all_reduce(number)
    channel.send_progress(f"the sum is {float(number)}")
    return "end"


def add_two() -> None:
    """Add the number of the other worker."""
    distributed.all_reduce(torch.tensor([2.0]))


def fail(job: Path, channel: WorkerChannel) -> None:
    """Raise a user's mistake, after counting the attempt."""
    with job.open("a") as file:
        file.write("attempt\n")
    raise DataError(f"line 3 of {job.name} is bad")


def fail_at_stop(job: None, channel: WorkerChannel) -> None:
    """Report the start, and fail while saving after a request to stop."""
    channel.send_progress("begun")
    while not channel.stop_requested:
        time.sleep(0.05)
    raise RunError("cannot write training.safetensors: no space left on device")


def wait(job: object = None, channel: WorkerChannel | None = None) -> None:
    """Wait for another worker for hours, as a collective call does."""
    time.sleep(3600)


def refuse() -> None:
    """Raise a mistake that concerns one machine."""
    raise ConfigError("device: expected cpu on this machine")


def do_nothing() -> None:
    """End at once."""


def test_all_workers_start_again_after_one_was_killed(tmp_path: Path) -> None:
    group = run_in_group(GroupTasks(sum_and_report, add_two), tmp_path / "first", tmp_path / "run", 2, JobResources())
    assert [message for message in group if message is not None] == ["the sum is 3.0"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first"]


def test_a_mistake_of_worker_0_ends_the_others_that_wait_for_it(tmp_path: Path) -> None:
    group = run_in_group(GroupTasks(fail, wait), tmp_path / "tries", tmp_path / "run", 2, JobResources())
    with pytest.raises(DataError, match="line 3 of tries is bad"):
        list(group)
    assert (tmp_path / "tries").read_text("utf-8") == "attempt\n"
    assert [path.name for path in tmp_path.iterdir()] == ["tries"]


def test_a_mistake_on_another_machine_ends_worker_0_and_names_the_machine(tmp_path: Path) -> None:
    group = run_in_group(GroupTasks(wait, refuse), None, tmp_path / "run", 2, JobResources())
    with pytest.raises(ConfigError) as error:
        list(group)
    place = f"(worker 1, on the machine {socket.gethostname()})"
    assert str(error.value) == f"device: expected cpu on this machine\n{place}"


def test_a_folder_that_is_not_shared_ends_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def missing_probe(run: Path) -> Iterator[LockedProbe]:
        yield LockedProbe(tmp_path / "missing", run)

    monkeypatch.setattr(ray_group, "locked_probe", missing_probe)
    group = run_in_group(GroupTasks(wait, wait), None, tmp_path / "run", 2, JobResources())
    with pytest.raises(RunError, match="does not see the files of the machine"):
        list(group)


def test_a_group_that_has_not_begun_ends_at_once(tmp_path: Path) -> None:
    import ray

    slots = count_slots(JobResources())
    busy = ray.remote(wait).remote()
    group = run_in_group(GroupTasks(fail, wait), tmp_path / "tries", tmp_path / "run", slots, JobResources())
    for _ in range(10):
        assert next(group) is None
    started = time.monotonic()
    group.close()
    ray.cancel(busy, force=True)
    assert time.monotonic() - started < 10
    assert list(tmp_path.iterdir()) == []


def test_worker_0_stops_on_request_and_its_failure_is_raised(tmp_path: Path) -> None:
    group = run_in_group(GroupTasks(fail_at_stop, wait), None, tmp_path / "run", 2, JobResources())
    assert next(message for message in group if message is not None) == "begun"
    with pytest.raises(RunError, match="no space left"):
        group.close()


@pytest.mark.parametrize(
    ("error", "attempt", "is_raised"),
    [
        (FolderInUseError("in use"), 1, True),
        (FolderInUseError("in use"), MAX_JOB_STARTS, False),
        (WorkerLostError("lost"), MAX_JOB_STARTS, True),
        (DataError("bad"), 1, False),
    ],
)
def test_only_errors_that_another_attempt_may_not_have_start_the_workers_again(
    monkeypatch: pytest.MonkeyPatch, error: InputError, attempt: int, is_raised: bool
) -> None:
    import ray
    from ray import train

    failures = list[bytes]()
    mailbox = SimpleNamespace(report_failure=SimpleNamespace(remote=failures.append))
    monkeypatch.setattr(train, "get_context", lambda: SimpleNamespace(get_world_rank=lambda: 0))
    monkeypatch.setattr(ray, "get", lambda reference: None)
    monkeypatch.setattr(ray_group, "LOCK_PAUSE", 0)
    monkeypatch.setattr(ray_group, "_run_first", lambda *arguments: (JobFailure(0, error), attempt))
    submission = Submission(0, 0, None, "", None, 9.0)
    settings = ray_group.GroupSettings(GroupTasks(wait, wait), submission, mailbox)
    with pytest.raises(type(error)) if is_raised else nullcontext():
        ray_group._run_worker({"settings": settings})
    assert [ForkingPickler.loads(content).error.args for content in failures] == ([] if is_raised else [error.args])


def test_the_end_of_a_training_is_explained() -> None:
    from ray.exceptions import ActorDiedError, RayTaskError
    from ray.train import ControllerError, WorkerGroupError

    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'pellucid'"
    missing = RayTaskError("run_train_fn", text, ModuleNotFoundError(), "ray::worker", 5, "10.0.0.3")
    for error, message in (
        (
            ControllerError(missing),
            r"cannot start \(ModuleNotFoundError: No module named 'pellucid'\): all machines need",
        ),
        (
            ControllerError(RuntimeError("timed out")),
            r"cannot connect to each other \(timed out\): check that the mach",
        ),
        (
            WorkerGroupError("killed", {0: RuntimeError()}),
            r"^a process of the training was killed 10 times, .* \(killed\)",
        ),
        (ActorDiedError(), "run the same command again; it continues"),
    ):
        training = TrainingThread(SimpleNamespace(fit=partial(_raise, error)))
        while training.is_running:
            time.sleep(0.01)
        with pytest.raises(InputError, match=message):
            training.raise_error()


def _raise(error: Exception) -> None:
    """Raise an error."""
    raise error


def test_a_mailbox_is_on_the_machine_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    options = dict[str, Any]()
    remote = ray.remote

    def record(actor: type) -> Any:  # noqa: ANN401 (an actor of Ray)
        made = remote(actor)
        return SimpleNamespace(options=lambda **given: options.update(given) or made.options(**given))

    monkeypatch.setattr(ray, "remote", record)
    with DriverMailbox():
        assert options["scheduling_strategy"].node_id == ray.get_runtime_context().get_node_id()
        assert not options["scheduling_strategy"].soft and options["max_task_retries"] == -1


def test_more_workers_than_cpus_are_refused(tmp_path: Path) -> None:
    group = run_in_group(GroupTasks(fail, do_nothing), None, tmp_path / "run", 1000, JobResources())
    with pytest.raises(ConfigError, match=r"--workers 1000: the Ray cluster has room for \d+ process(es)? of 1 CPU$"):
        list(group)


def test_two_workers_of_a_cluster_train_as_one_process(tmp_path: Path) -> None:
    files, config = write_copy_files(tmp_path), make_small_config({"epochs": 2, "batch_size": 15})
    inputs = TrainingFiles(files.train, files.valid)
    list(train_run(inputs, tmp_path / "one", config))
    job = TrainingJob(inputs, tmp_path / "two", config)
    group = run_in_group(GroupTasks(run_job, serve_connected), job, job.folder, 2, JobResources())
    events = [type(event) for event in group if event is not None]
    assert events[-1] is TrainingStopped and ValidationCompleted in events
    one, two = (load_file(tmp_path / name / "training.safetensors") for name in ("one", "two"))
    for name in one:
        if name.startswith("network."):
            np.testing.assert_allclose(one[name], two[name], rtol=0, atol=1e-5)
