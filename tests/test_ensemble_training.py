"""Training of ensembles: runs of one configuration with several seeds, in parallel."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Generator, Iterator
from functools import cache
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch
from command_line import run_pellucid, send_interrupt, start_command, usage_error_message, wait_for_exit, wait_until
from trained_runs import (
    assert_runs_identical,
    comparable_log_records,
    copy_run_folder,
    copy_task_run,
    make_small_config,
    read_folder_state,
    shared_folder,
    train_to_end,
    training_flags,
    write_copy_files,
)

from pellucid.cli.arguments import default_settings
from pellucid.cli.train import TrainArguments, TrainingPlan, _train_on_cluster
from pellucid.cluster.ray_pool import JobResources
from pellucid.config.settings import Config
from pellucid.config.toml import override_settings
from pellucid.config.training_types import OPTIMIZER_TYPES
from pellucid.decoding.predictor import Predictor
from pellucid.errors import ConfigError, RunError
from pellucid.run_folder import predictor_loader
from pellucid.run_folder.identity import ModelIdentity
from pellucid.run_folder.lock import lock_run_folder
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.run_files import ENSEMBLE, member_folders
from pellucid.training import ensemble_training
from pellucid.training.ensemble_training import TrainingJob, plan_ensemble, run_job, train_ensemble
from pellucid.training.events import ModelBuilt, RunEvent, SizeChosen, SizeOrigin
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles
from pellucid.worker_pool import WorkerChannel


def train_arguments(run: Path, size: int) -> list[object]:
    """Return the command that trains an ensemble with the settings of the shared small run."""
    files = copy_task_run().files
    return [
        "train",
        files.train,
        "--valid",
        files.valid,
        "--run",
        run,
        *training_flags(copy_task_run().config),
        "--ensemble",
        size,
    ]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Train an ensemble of three; return its folder and the standard error of the command."""
    folder = tmp_path_factory.mktemp("ensemble") / "run"
    result = run_pellucid(*train_arguments(folder, 3), "--jobs", "2")
    assert result.code == 0, result
    return folder, result.err


def test_each_member_equals_the_run_of_its_seed_bit_for_bit(ensemble: tuple[Path, str], tmp_path: Path) -> None:
    folder, stderr = ensemble
    assert "3 runs, seeds 1 to 3, 2 in parallel; --jobs 1 trains one at a time" in stderr
    assert [path.name for path in member_folders(folder)] == ["seed-1", "seed-2", "seed-3"]
    assert_runs_identical(folder / "seed-1", copy_task_run().run)
    plan = plan_ensemble(copy_task_run().files, folder, copy_task_run().config, 3)
    train_to_end(copy_task_run().files, tmp_path / "alone", plan[2].config)
    assert_runs_identical(folder / "seed-3", tmp_path / "alone")


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0"), (1001, "1001"), pytest.param(10**5000, "a number with thousands of digits", id="huge")],
)
def test_an_invalid_ensemble_size_is_refused(tmp_path: Path, size: int, shown: str) -> None:
    with pytest.raises(ConfigError, match=f"^ensemble: expected 1 to 1,000 runs, got {shown}$"):
        plan_ensemble(copy_task_run().files, tmp_path / "runs", copy_task_run().config, size)


def test_members_share_vocabularies_but_not_parameters(ensemble: tuple[Path, str]) -> None:
    loaded = [load(folder) for folder in member_folders(ensemble[0])]
    assert all(transducer.vocabularies == loaded[0].vocabularies for transducer in loaded)
    models = {(folder / "model.safetensors").read_bytes() for folder in member_folders(ensemble[0])}
    assert len(models) == 3


def test_a_finished_ensemble_is_unchanged_and_can_get_more_members(ensemble: tuple[Path, str], tmp_path: Path) -> None:
    folder = copy_run_folder(ensemble[0], tmp_path / "run")
    before = read_folder_state(folder / "seed-2")
    assert run_pellucid(*train_arguments(folder, 4)).code == 0
    assert read_folder_state(folder / "seed-2") == before
    assert len(member_folders(folder)) == 4 and member_folders(folder)[3].name == "seed-4"


def test_an_error_of_one_training_is_raised_and_stops_all(ensemble: tuple[Path, str], tmp_path: Path) -> None:
    message = usage_error_message(run_pellucid(*train_arguments(ensemble[0], 3), "--training.clip-norm", "2"))
    assert "different configuration" in message and "training.clip_norm: 1.0 in the run, 2.0 now" in message
    (tmp_path / "dev.tsv").write_text("one column\n")
    files = copy_task_run().files
    arguments = ("train", files.train, "--valid", tmp_path / "dev.tsv", "--run", tmp_path / "run", "--ensemble", "2")
    assert "dev.tsv:1" in usage_error_message(run_pellucid(*arguments))
    assert not (tmp_path / "run").exists()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    assert usage_error_message(run_pellucid(*train_arguments(run, 2))).startswith(
        f"{run} holds a single run; name a new folder"
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("Dear")
    assert "(letter.txt)" in usage_error_message(run_pellucid(*train_arguments(tmp_path / "other", 2)))


@pytest.mark.slow
def test_closing_the_generator_stops_all_trainings(tmp_path: Path) -> None:
    config = make_small_config({"epochs": 2000, "eval_interval": 50})
    files = write_copy_files(tmp_path)
    trainings = plan_ensemble(files, tmp_path / "run", config, 2)
    events = train_ensemble(trainings, tmp_path / "run", 2)
    while not all((training.folder / "log.jsonl").exists() for training in trainings):
        next(events)
    events.close()
    for training in trainings:
        assert (training.folder / "training.safetensors").exists()
        assert comparable_log_records(training.folder)[-1]["event"] != "stopped"


LONG_CONFIG = make_small_config({"epochs": 60, "eval_interval": 0.9}, dropout=0.3)


@cache
def train_uninterrupted_members() -> tuple[TrainingFiles, dict[str, Path]]:
    """Train each member of an ensemble without interruption; return the data files and the run folders by name."""
    folder = shared_folder() / "trained-without-stop"
    folder.mkdir()
    files = write_copy_files(folder)
    trainings = plan_ensemble(files, folder / "run", LONG_CONFIG, 2)
    for training in trainings:
        train_to_end(files, training.folder, training.config)
    return files, {training.folder.name: training.folder for training in trainings}


@pytest.mark.slow
@pytest.mark.parametrize("interruption", ["Ctrl-C", "SIGTERM", "SIGTERM to all", "SIGHUP to all", "kill -9"])
def test_a_stopped_ensemble_resumes_bit_for_bit(tmp_path: Path, interruption: str) -> None:
    (files, uninterrupted), run = train_uninterrupted_members(), tmp_path / "run"
    data = ["train", files.train, "--valid", files.valid]
    command = [*data, "--run", run, *training_flags(LONG_CONFIG), "--ensemble", 2, "--jobs", 2]
    with start_command(*command) as process:
        wait_until(lambda: all((run / name / "model.safetensors").exists() for name in ("seed-1", "seed-2")), process)
        if interruption == "Ctrl-C":
            send_interrupt(process)
            result = wait_for_exit(process)
            assert result.code == 130 and "Traceback" not in result.err
            assert f"pellucid: interrupted; the same command resumes from {run}" in result.err
        elif interruption.startswith("SIG"):
            number = signal.Signals[interruption.split()[0]]
            os.killpg(process.pid, number) if "all" in interruption else process.send_signal(number)
            result = wait_for_exit(process)
            assert result.code == 128 + number and "Traceback" not in result.err
            assert f"pellucid: stopped by {number.name}; the same command resumes from {run}" in result.err
        else:
            process.kill()
    assert any(comparable_log_records(run / name)[-1]["event"] != "stopped" for name in ("seed-1", "seed-2"))
    assert run_pellucid(*command).code == 0
    for name, expected in uninterrupted.items():
        assert_runs_identical(run / name, expected)


@pytest.mark.slow
def test_a_member_killed_at_its_first_validation_resumes_without_leftovers(
    ensemble: tuple[Path, str], tmp_path: Path
) -> None:
    """The kill precedes the member list and the first model file; the second member has not started."""
    run = copy_run_folder(ensemble[0], tmp_path / "run")
    for path in (run / ENSEMBLE, *(run / "seed-1" / name for name in ("model.safetensors", "card.md"))):
        path.unlink()
    shutil.rmtree(run / "seed-2")
    temporaries = [run / f".{ENSEMBLE}.abcdefgh.tmp", run / "seed-1" / ".model.safetensors.abcdefgh.tmp"]
    for path in temporaries:
        path.write_bytes(b"part")
    events = list(train_ensemble(plan_ensemble(copy_task_run().files, run, copy_task_run().config, 3), run, 1))
    resumed = [each.event.resumed for each in events if each is not None and isinstance(each.event, ModelBuilt)]
    assert resumed == [True, False, True]
    assert not any(path.exists() for path in temporaries)
    for name in ("seed-1", "seed-2", "seed-3"):
        assert_runs_identical(run / name, ensemble[0] / name)
    assert member_folders(run) == [run / name for name in ("seed-1", "seed-2", "seed-3")]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX renames a folder with open files")
def test_a_folder_replaced_by_a_file_ends_an_ensemble_with_one_message(tmp_path: Path) -> None:
    files, run = write_copy_files(tmp_path), tmp_path / "run"
    config = make_small_config({"epochs": 100000, "eval_interval": 1})
    command = ["train", files.train, "--valid", files.valid, "--run", run, *training_flags(config)]
    with start_command(*command, "--ensemble", 2, "--jobs", 2) as process:
        wait_until(lambda: all((run / name / "model.safetensors").exists() for name in ("seed-1", "seed-2")), process)
        run.rename(tmp_path / "moved")
        run.touch()
        message = usage_error_message(wait_for_exit(process))
    assert re.search(
        rf"{run}/seed-[12] was removed, moved or replaced during training; nothing more is written", message
    )
    assert run.read_bytes() == b""


def test_two_trainings_of_one_ensemble_at_once_are_refused(ensemble: tuple[Path, str]) -> None:
    with lock_run_folder(ensemble[0], ()):
        assert usage_error_message(run_pellucid(*train_arguments(ensemble[0], 3))) == (
            f"{ensemble[0]} is in use: another process is writing to it"
        )


def test_a_single_run_is_its_own_member(tmp_path: Path) -> None:
    assert member_folders(copy_task_run().run) == [copy_task_run().run]
    assert member_folders(tmp_path / "nothing") == [tmp_path / "nothing"]


@pytest.mark.parametrize("content", ["", "[]", '{"members": []}', '{"members": ["../a"]}', '{"members": [1]}', "null"])
def test_an_invalid_member_list_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / ENSEMBLE).write_text(content)
    with pytest.raises(RunError, match="does not list the members"):
        member_folders(tmp_path)


def test_a_list_that_cannot_be_read_is_reported_before_a_training(ensemble: tuple[Path, str], tmp_path: Path) -> None:
    """A damaged list is written anew."""
    folder = copy_run_folder(ensemble[0], tmp_path / "run")
    (folder / ENSEMBLE).write_text('{"members": [')
    assert run_pellucid(*train_arguments(folder, 3)).code == 0 and len(member_folders(folder)) == 3
    (folder / ENSEMBLE).unlink()
    (folder / ENSEMBLE).mkdir()
    result = run_pellucid(*train_arguments(folder, 4))
    assert str(folder / ENSEMBLE) in result.err and "update" not in result.err and not (folder / "seed-4").exists()
    assert result.code == 2


def test_a_single_run_with_a_list_of_members_is_refused_before_its_training(tmp_path: Path) -> None:
    """Loading the folder would load the members, not the run that was trained."""
    trained = copy_task_run()
    run = copy_run_folder(trained.run, tmp_path / "run")
    for content in ("", '{"members": ["seed-1"]}'):
        (run / ENSEMBLE).write_text(content)
        with pytest.raises(
            RunError, match=r"ensemble\.json lists .*holds a single run: remove the file, or name another"
        ):
            next(train_run(trained.files, run, trained.config))


def test_a_member_that_several_links_lead_to_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"link-{number}" for number in range(50)]
    for name in names:
        (tmp_path / name).symlink_to(copy_task_run().run)
    (tmp_path / ENSEMBLE).write_text(json.dumps({"members": names}))
    loaded, load_one = list[Path](), predictor_loader._load

    def count(
        folder: Path, device: torch.device, requirements: predictor_loader.LoadRequirements
    ) -> tuple[Predictor, ModelIdentity]:
        """Load a run, and record that."""
        loaded.append(folder)
        return load_one(folder, device, requirements)

    monkeypatch.setattr(predictor_loader, "_load", count)
    predictor = load(tmp_path)
    assert loaded == [tmp_path / "link-0"] and len(predictor.networks) == 50
    one, all_links = load(copy_task_run().run).predict(["abc"])[0], predictor.predict(["abc"])[0]
    assert all_links.output == one.output and all_links.score == pytest.approx(one.score, abs=1e-4)


def test_seeds_beyond_the_maximum_are_refused(tmp_path: Path) -> None:
    message = usage_error_message(run_pellucid(*train_arguments(tmp_path / "run", 2), "--seed", 2**32 - 1))
    assert "leaves no room for the seeds of 2 runs" in message
    assert not (tmp_path / "run").exists()


def test_a_single_training_needs_no_parallel_jobs(tmp_path: Path) -> None:
    message = usage_error_message(
        run_pellucid("train", tmp_path / "a", "--valid", tmp_path / "b", "--run", tmp_path / "c", "--jobs", 2)
    )
    assert "--jobs requires --ensemble" in message


def test_a_class_that_only_this_process_knows_needs_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIMIZER_TYPES.registered, "local", torch.optim.RAdam)
    run = copy_task_run()
    config = override_settings(run.config, {"training": {"optimizer": "local"}})
    plan = plan_ensemble(run.files, tmp_path / "run", config, 2)
    message = "'local'.*; it is registered in this process only: .* declares as an entry point"
    with pytest.raises(ConfigError, match=message):
        for _ in train_ensemble(plan, tmp_path / "run", 1):
            pass


def test_the_time_before_a_job_is_a_part_of_its_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regression test: with --on, the measurement of the size was not a part of the time limit."""
    trained, starts = copy_task_run(), list[float]()

    def start(
        files: TrainingFiles, folder: Path, config: Config, started_at: float, choice: SizeChosen | None
    ) -> Iterator[RunEvent]:
        """Record the start of the time limit."""
        starts.append(started_at - time.monotonic())
        yield from ()

    monkeypatch.setattr(ensemble_training, "train_run", start)
    channel = WorkerChannel(Pipe()[1], 0, None)
    assert run_job(TrainingJob(trained.files, tmp_path, trained.config), channel)
    assert run_job(TrainingJob(trained.files, tmp_path, trained.config, seconds_spent=30.0), channel)
    # The checkpoint of a worker that starts again has counted them.
    assert run_job(TrainingJob(trained.files, trained.run, trained.config, seconds_spent=30.0), channel)
    assert starts == pytest.approx([0.0, -30.0, 0.0], abs=10.0)


def test_a_command_tells_a_cluster_how_much_of_the_time_is_spent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files, jobs = copy_task_run().files, list[TrainingJob]()

    def run_in_group(tasks: object, job: TrainingJob, *_: object) -> Generator[None]:
        """Record the job."""
        jobs.append(job)
        yield None

    monkeypatch.setattr("pellucid.cluster.ray_group.run_in_group", run_in_group)
    # Another test of this process may have compiled kernels in the last 30 seconds.
    monkeypatch.setattr("pellucid.kernels.kernel_loader.compilation_seconds", lambda _: 0.0)
    defaults = default_settings({}, "a test")
    args = TrainArguments(train=files.train, valid=files.valid, run=tmp_path / "run", **defaults)
    choice = SizeChosen("small", "1m", 9.4, 30.0, 500.0, "8 examples", "base", 5000.0)
    plan = TrainingPlan(args, copy_task_run().config, time.monotonic() - 30, SizeOrigin(measured=choice))
    assert list(_train_on_cluster(plan, JobResources())) == [None]
    assert jobs[0].folder == tmp_path / "run" and jobs[0].size_origin.measured == choice
    assert 30 <= jobs[0].seconds_spent <= time.monotonic() - plan.started_at
