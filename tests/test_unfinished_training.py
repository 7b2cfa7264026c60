"""Unfinished trainings: every command that uses one says so, once."""

import json
from functools import cache
from pathlib import Path

import msgspec
import pytest
from command_line import run_pellucid
from page_data import make_interrupted_run
from trained_runs import copy_run_folder, digits_run, shared_folder

import pellucid
from pellucid import api
from pellucid.config.toml import to_toml
from pellucid.reporting.tables import timed_updates_note
from pellucid.run_folder import unfinished_training
from pellucid.run_folder.lock import lock_run_folder
from pellucid.run_folder.log import read_log
from pellucid.run_folder.progress import read_progress
from pellucid.run_folder.run_files import load_run_config
from pellucid.run_folder.unfinished_training import FinalUpdates, find_unfinished, read_final_updates


@cache
def unfinished_run() -> Path:
    return make_interrupted_run(shared_folder() / "unfinished")


def expected_message(run: Path) -> str:
    update = read_progress(run / "training.safetensors").update
    (updates,) = {record["updates"] for record in read_log(run) if record["event"] == "started"}
    assert 0 < update < updates
    return f"{run}: the training is unfinished (update {update:,} of {updates:,}); the training command resumes it"


def test_finished_runs_and_copies_for_prediction_are_not_reported(tmp_path: Path) -> None:
    assert find_unfinished(digits_run().run) == []
    copy = copy_run_folder(unfinished_run(), tmp_path / "copy")
    (copy / "training.safetensors").unlink()
    assert find_unfinished(copy) == []


def test_damaged_checkpoint_and_missing_log_hinder_no_prediction(tmp_path: Path) -> None:
    copy = copy_run_folder(unfinished_run(), tmp_path / "copy")
    (copy / "log.jsonl").unlink()
    (unfinished,) = find_unfinished(copy)
    assert unfinished.max_updates is None and f"(update {unfinished.update})" in str(unfinished)
    (copy / "training.safetensors").write_bytes(b"damaged")
    assert find_unfinished(copy) == []


def test_updates_are_counted_of_trainings_that_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: trainings with a time limit counted as ended by it, although their epochs ended them."""
    copy = copy_run_folder(unfinished_run(), tmp_path / "ensemble" / "seed-1")
    progress = read_progress(copy / "training.safetensors")
    for cause, stopped_by_time_limit in (("", None), ("epochs", False), ("time_limit", True)):
        finished = msgspec.structs.replace(progress, stop_cause=cause)
        monkeypatch.setattr(unfinished_training, "read_progress", lambda path, finished=finished: finished)
        assert read_final_updates(copy) == (
            None if stopped_by_time_limit is None else FinalUpdates(progress.update, stopped_by_time_limit)
        )
    copy_run_folder(unfinished_run(), copy.parent / "seed-2")
    (copy.parent / "ensemble.json").write_text('{"members": ["seed-1", "seed-2"]}')
    assert read_final_updates(copy.parent) is None
    monkeypatch.undo()
    (copy / "training.safetensors").write_bytes(b"damaged")
    assert read_final_updates(copy) is None
    (copy / "training.safetensors").unlink()
    assert read_final_updates(copy) is None


def test_running_training_is_told_from_an_interrupted_one(tmp_path: Path) -> None:
    copy = copy_run_folder(unfinished_run(), tmp_path / "copy")
    with lock_run_folder(copy):
        (unfinished,) = find_unfinished(copy)
    assert unfinished.running and str(unfinished).endswith("and still runs")


def test_load_warns_of_each_unfinished_member() -> None:
    with pytest.warns(UserWarning) as caught:
        pellucid.load([digits_run().run, unfinished_run()])
    assert [str(warning.message) for warning in caught] == [expected_message(unfinished_run())]


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "finished", "unfinished", "file"),
        ("score", "unfinished", "file"),
        ("evaluate", "unfinished", "finished", "file"),
        ("look", "unfinished", "file", "--terminal"),
        ("look", "unfinished", "file", "--export", "page.html"),
    ],
)
def test_commands_report_an_unfinished_run_once(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    places = {"finished": digits_run().run, "unfinished": unfinished_run(), "file": digits_run().files.valid}
    result = run_pellucid(*(places.get(word, word) for word in arguments), folder=tmp_path)
    assert result.code == 0 and result.err.count(expected_message(unfinished_run())) == 1, result


@cache
def seed_runs() -> tuple[Path, Path]:
    """Return a finished and an unfinished run that differ in their seeds only, by their settings."""
    other = copy_run_folder(unfinished_run(), shared_folder() / "unfinished-seed-2")
    config = load_run_config(other)
    (other / "config.toml").write_text(to_toml(msgspec.structs.replace(config, seed=config.seed + 1)), "utf-8")
    return digits_run().run, other


def test_mean_over_seeds_warns_of_an_unfinished_run() -> None:
    result = run_pellucid("evaluate", *seed_runs(), digits_run().files.valid)
    text = " ".join(result.out.split())
    assert result.code == 0 and "2 seeds: " in text, result
    assert f"WARNING: the training of {seed_runs()[1].name} is unfinished, and mean and deviation contain it" in text


def test_json_and_page_name_unfinished_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run_pellucid("evaluate", *seed_runs(), digits_run().files.valid, "--json", "--html", page)
    values = json.loads(result.out)
    finished, other = values["runs"]
    assert finished["unfinished_trainings"] == []
    (training,) = other["unfinished_trainings"]
    assert training["run"] == str(seed_runs()[1]) and 0 < training["update"] < training["max_updates"]
    assert training["running"] is False
    assert values["seeds"][0]["unfinished_runs"] == [other["name"]]
    assert "the training is unfinished" in page.read_text("utf-8")


def test_python_functions_name_unfinished_runs() -> None:
    with pytest.warns(UserWarning, match="the training is unfinished"):
        comparisons = pellucid.compare(list(seed_runs()), digits_run().files.valid)
    finished, other = comparisons.evaluations
    assert finished.unfinished == () and [training.run for training in other.unfinished] == [str(seed_runs()[1])]
    assert comparisons.unfinished_names == [other.assessment.name]
    assert comparisons.to_dict()["seeds"][0]["timed_updates"] == {}


def test_updates_are_compared_if_a_time_limit_ended_one_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: one seed that --time ended was compared with none; in Python, no updates were known at all."""
    runs = list(seed_runs())
    ends = {
        str(runs[0]): FinalUpdates(500, stopped_by_time_limit=True),
        str(runs[1]): FinalUpdates(900, stopped_by_time_limit=False),
    }
    monkeypatch.setattr(api, "read_final_updates", lambda run: ends[str(run)])
    with pytest.warns(UserWarning, match="the training is unfinished"):
        comparisons = pellucid.compare(runs, digits_run().files.valid)
    assert list(comparisons.to_dict()["seeds"][0]["timed_updates"].values()) == [500, 900]
    (group,) = comparisons.seeds
    assert "which made 500 to 900 updates" in timed_updates_note(group, comparisons.timed_updates)
    ends = {run: end._replace(stopped_by_time_limit=False) for run, end in ends.items()}
    with pytest.warns(UserWarning, match="the training is unfinished"):
        comparisons = pellucid.compare(runs, digits_run().files.valid)
    assert comparisons.timed_updates == {} and timed_updates_note(group, {}) == ""
