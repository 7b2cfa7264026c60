"""Trainings on a Ray cluster of three machines (namespaces of this one), of which some die or lose their network."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from trained_runs import (
    assert_runs_identical,
    make_small_config,
    read_folder_state,
    train_to_end,
    training_flags,
    write_copy_files,
)

from benchmarks.ray_cluster import NamespaceCluster
from pellucid.run_folder.log import load_run_log
from pellucid.training.ensemble_training import TrainingJob, plan_ensemble
from pellucid.training.training_data import TrainingFiles

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux")
    or os.geteuid() != 0
    or find_spec("ray") is None
    or not all(map(shutil.which, ("ip", "unshare", "nsenter"))),
    reason="needs Linux, root, iproute2, util-linux and Ray",
)
HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "4",
}
"""Settings by which Ray takes a machine for dead after about 16 seconds of silence, instead of a minute."""
PROGRAM = """
import sys
import time
from pellucid.cluster import ray_pool
ray_pool.MAX_SILENCE = 6.0
from pellucid.cli import main
sys.exit(main())
"""
CONFIG = make_small_config({"epochs": 300, "eval_interval": 10}, dropout=0.3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceCluster]:
    """Start a head without CPUs and two machines with one CPU each."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in HEALTH.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        with NamespaceCluster((0, 1, 1), folder=tmp_path_factory.mktemp("cluster"), number=9) as started:
            yield started


def start(cluster: NamespaceCluster, *arguments: object) -> "subprocess.Popen[str]":
    """Start a command on the head of the cluster."""
    command = cluster.command(0, [sys.executable, "-c", PROGRAM, *map(str, arguments)])
    return subprocess.Popen(
        command,
        env=cluster.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: "subprocess.Popen[str]") -> str:
    """Wait for a command; return its output after checking its exit code."""
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output[-5000:]
    return output


def run(cluster: NamespaceCluster, *arguments: object) -> str:
    """Run a command on the head of the cluster; return its output."""
    return finish(start(cluster, *arguments))


def ensemble_command(folder: Path, size: int) -> tuple[list[object], Sequence[TrainingJob]]:
    """Return the command that trains an ensemble on the cluster, and its members."""
    files = write_copy_files(folder)
    command = ["train", files.train, "--valid", files.valid, "--run", folder / "run", *training_flags(CONFIG)]
    return [*command, "--ensemble", size, "--on", "ray"], plan_ensemble(files, folder / "run", CONFIG, size)


def count_starts(folder: Path) -> int:
    """Return how often a training was started or resumed."""
    return len(list(load_run_log(folder).all("started")))


def assert_undisturbed(jobs: Sequence[TrainingJob], folder: Path) -> None:
    """Assert that every member equals a training without faults bit for bit."""
    for job in jobs:
        files = TrainingFiles(folder / "train.tsv", folder / "dev.tsv")
        train_to_end(files, folder / "undisturbed" / job.folder.name, job.config)
        assert_runs_identical(job.folder, folder / "undisturbed" / job.folder.name)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait until a condition holds, and fail if the process ends before. Imports take long on a busy machine."""
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the condition does not hold after five minutes"
        time.sleep(0.05)


def wait_for_models(jobs: Sequence[TrainingJob], process: "subprocess.Popen[str]") -> None:
    """Wait until all members have a model file."""
    wait_until(lambda: all((job.folder / "model.safetensors").exists() for job in jobs), process)


@contextmanager
def restored(cluster: NamespaceCluster, number: int) -> Iterator[None]:
    """Restore the network of a machine and start it again at the end of the block, also if a test has failed."""
    try:
        yield
    finally:
        cluster.set_network(number, connected=True)
        cluster.kill(number)
        cluster.start_node(number)


@pytest.mark.parametrize("fault", ["kill", "cut"])
def test_an_ensemble_survives_the_loss_of_a_machine(cluster: NamespaceCluster, tmp_path: Path, fault: str) -> None:
    command, jobs = ensemble_command(tmp_path, 2)
    with restored(cluster, 2):
        process = start(cluster, *command)
        wait_for_models(jobs, process)
        if fault == "kill":
            cluster.kill(2)
        else:
            cluster.set_network(2, connected=False)
        output = finish(process)
    assert "2 runs, seeds 1 to 2, on a Ray cluster (3 machines, 2 CPUs)" in output
    assert sorted(count_starts(job.folder) for job in jobs) == [1, 2]
    assert_undisturbed(jobs, tmp_path)


def test_a_training_in_several_processes_survives_the_loss_of_a_machine(
    cluster: NamespaceCluster, tmp_path: Path
) -> None:
    """It begins again as soon as the machine has joined again: the cluster has no other CPU for the second process."""
    files = write_copy_files(tmp_path)
    command = ["train", files.train, "--valid", files.valid, *training_flags(CONFIG), "--workers", 2]
    process = start(cluster, *command, "--run", tmp_path / "run", "--on", "ray")
    wait_until((tmp_path / "run" / "training.safetensors").exists, process)
    with restored(cluster, 2):
        cluster.kill(2)
    finish(process)
    assert count_starts(tmp_path / "run") == 2
    arguments = [sys.executable, "-m", "pellucid", *map(str, command), "--run", str(tmp_path / "undisturbed")]
    subprocess.run(arguments, check=True, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    assert_runs_identical(tmp_path / "run", tmp_path / "undisturbed")


def test_a_command_that_was_killed_continues_and_leaves_finished_members(
    cluster: NamespaceCluster, tmp_path: Path
) -> None:
    command, jobs = ensemble_command(tmp_path, 3)
    process = start(cluster, *command)
    wait_until(lambda: any((job.folder / "confidence.json").exists() for job in jobs[:2]), process)
    finished = next(job.folder for job in jobs if (job.folder / "confidence.json").exists())
    wait_until(lambda: load_run_log(finished).all("stopped") != [], process)
    os.killpg(process.pid, 9)
    process.communicate()
    before = read_folder_state(finished)
    run(cluster, *command)
    assert read_folder_state(finished) == before
    assert_undisturbed(jobs, tmp_path)


def test_the_folds_of_an_audit_have_the_same_worklist_as_on_one_machine(
    cluster: NamespaceCluster, tmp_path: Path
) -> None:
    files = write_copy_files(tmp_path)
    command = ["audit", files.train, "--models", "both", "--folds", 2, "--size", "tiny", "--epochs", 1]
    run(cluster, *command, "--run", tmp_path / "a", "--output", tmp_path / "ray.csv", "--on", "ray")
    run(cluster, *command, "--run", tmp_path / "b", "--output", tmp_path / "here.csv")
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


def test_a_search_survives_the_loss_of_a_machine(cluster: NamespaceCluster, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    files = write_copy_files(tmp_path)
    (tmp_path / "space.toml").write_text("[training]\nlearning_rate = { choices = [0.005, 0.01, 0.02] }\n")
    data = ["tune", files.train, "--valid", files.valid, "--run", tmp_path / "run", "--space", tmp_path / "space.toml"]
    command = [*data, *training_flags(CONFIG), "--trials", 3, "--prune", "none", "--on", "ray"]
    process = start(cluster, *command)
    trials = [tmp_path / "run" / "trials" / f"000{number}" for number in range(2)]
    wait_until(lambda: all((trial / "model.safetensors").exists() for trial in trials), process)
    with restored(cluster, 1):
        cluster.kill(1)
        output = finish(process)
    assert "3 trials in total on a Ray cluster (3 machines, 2 CPUs)" in output
    ended = json.loads((tmp_path / "run" / "trials.json").read_text("utf-8"))["trials"]
    assert [trial["state"] for trial in ended] == ["finished"] * 3
