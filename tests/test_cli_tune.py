"""pellucid tune: results, errors, and resuming."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import (
    build_command,
    build_environment,
    run_pellucid,
    send_interrupt,
    start_command,
    usage_error_message,
    wait_for_exit,
    wait_until,
)
from report_documents import read_report, select_parts
from trained_runs import (
    TrainedRun,
    copy_run_folder,
    copy_task_run,
    make_small_config,
    read_folder_state,
    training_flags,
    write_copy_files,
)

from pellucid import cli
from pellucid.config.toml import flatten_config, load_config
from pellucid.training.run_folder import load, read_log
from pellucid.viewer.report_schema import ReportTable

pytest.importorskip("optuna")
SPACE = """
[encoder]
dropout = { choices = [0.0, 0.2] }
[training]
learning_rate = { from = 0.001, to = 0.05, scale = "log" }
"""


def given(trained: TrainedRun, out: Path, trials: int) -> list[object]:
    """The command that searches around a small configuration."""
    space = out.parent / "space.toml"
    space.write_text(SPACE)
    files = ("tune", trained.files.train, "--valid", trained.files.valid, "--run", out, "--space", space)
    return [*files, *training_flags(trained.config), "--trials", trials]


def trials_of(out: Path) -> list[dict[str, Any]]:
    """The trials of a search, by number, without the time they took."""
    told = json.loads((out / "trials.json").read_text())["trials"]
    return sorted(({**trial, "seconds": 0} for trial in told), key=lambda trial: trial["number"])


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A search of four trials, one after the other, and what it said."""
    out = tmp_path_factory.mktemp("search") / "out"
    done = run_pellucid(*given(copy_task_run(), out, 4), "--jobs", 1)
    assert done.code == 0, done
    return out, done.out, done.err


def test_search_writes_the_best_settings_and_all_trials(searched: tuple[Path, str, str]) -> None:
    out, said, told = searched
    trials = trials_of(out)
    assert [trial["number"] for trial in trials] == [0, 1, 2, 3]
    best = max((trial for trial in trials if trial["state"] == "finished"), key=lambda trial: trial["score"])
    config = flatten_config(load_config(out / "best.toml"))
    assert {key: config[key] for key in best["values"]} == best["values"]
    assert said.strip().startswith(f"{best['score']:.2f} %  trial {best['number']}: ")
    assert "4 trials in total, 1 in parallel" in told and "encoder.dropout: 0.0, 0.2" in told
    (table,) = select_parts(read_report(out / "report.html"), ReportTable, "Trials")
    assert len(table.rows) == 4 and str(out / "best.toml") in said


def test_first_trial_has_the_given_settings_and_logged_scores(searched: tuple[Path, str, str]) -> None:
    out = searched[0]
    config = copy_task_run().config
    first = trials_of(out)[0]
    assert first["values"]["training.learning_rate"] == config.training.learning_rate
    for trial in trials_of(out):
        log = read_log(out / "trials" / f"{trial['number']:04d}")
        assert trial["score"] == [record for record in log if record.get("best")][-1]["exact_match"]


def test_only_the_best_trial_keeps_its_model(searched: tuple[Path, str, str]) -> None:
    out, said, _ = searched
    kept = [path.parent for path in (out / "trials").glob("*/model.safetensors")]
    assert len(kept) == 1 and f"trial {int(kept[0].name)}: " in said.splitlines()[0]
    assert len(load(kept[0]).predict(["ab"])) == 1


def test_best_settings_can_be_trained(searched: tuple[Path, str, str], tmp_path: Path) -> None:
    files = copy_task_run().files
    asked = ("train", files.train, "--valid", files.valid, "--run", tmp_path / "run", "--config")
    assert run_pellucid(*asked, searched[0] / "best.toml").code == 0
    assert (tmp_path / "run" / "config.toml").read_text() == (searched[0] / "best.toml").read_text()


def test_finished_search_repeats_no_trial_and_can_be_extended(searched: tuple[Path, str, str], tmp_path: Path) -> None:
    out = copy_run_folder(searched[0], tmp_path / "out")
    before = read_folder_state(out / "trials")
    assert run_pellucid(*given(copy_task_run(), out, 4)).code == 0
    assert read_folder_state(out / "trials") == before and trials_of(out) == trials_of(searched[0])
    with (out / "study.journal").open("ab") as journal:
        journal.write(b'{"op_code": 8, "trial')  # as a crash may cut a line
    done = run_pellucid(*given(copy_task_run(), out, 5))
    assert done.code == 0 and "4 ended, 0 to resume; 5 trials in total" in done.err
    assert len(trials_of(out)) == 5 and trials_of(out)[:4] == trials_of(searched[0])


def test_same_seed_gives_the_same_trials(searched: tuple[Path, str, str], tmp_path: Path) -> None:
    assert run_pellucid(*given(copy_task_run(), tmp_path / "out", 2), "--jobs", 1).code == 0
    assert run_pellucid(*given(copy_task_run(), tmp_path / "out", 3), "--jobs", 1).code == 0
    assert trials_of(tmp_path / "out") == trials_of(searched[0])[:3]


def test_different_study_is_refused_with_the_differences(searched: tuple[Path, str, str], tmp_path: Path) -> None:
    out = copy_run_folder(searched[0], tmp_path / "out")
    before = read_folder_state(out)
    message = usage_error_message(run_pellucid(*given(copy_task_run(), out, 5), "--seed", 3))
    assert message == f"{out} holds a study with other settings (seed); name a new folder"
    message = usage_error_message(
        run_pellucid("tune", *_files(tmp_path), "--run", out, *training_flags(copy_task_run().config))
    )
    assert message == f"{out} holds a study with other data and space; name a new folder"
    assert read_folder_state(out) == before


def _files(folder: Path) -> tuple[Path, str, Path]:
    (folder / "a.tsv").write_text("a\tb\nc\td\n")
    (folder / "b.tsv").write_text("a\td\n")
    return folder / "a.tsv", "--valid", folder / "b.tsv"


@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9"])
def test_stopped_search_resumes(tmp_path: Path, how: str) -> None:
    config = make_small_config({"epochs": 15, "eval_interval": 1.5}, dropout=0.2)
    trained = TrainedRun(write_copy_files(tmp_path), tmp_path, config)
    out = tmp_path / "out"
    asked = [*given(trained, out, 3), "--jobs", 1, "--prune", "none"]
    with start_command(*asked) as process:
        wait_until(lambda: (out / "trials" / "0001" / "training.safetensors").exists(), process)
        if how == "Ctrl-C":
            send_interrupt(process)
            done = wait_for_exit(process)
            assert done.code == 130 and "Traceback" not in done.err
            assert f"the same command resumes from {out}" in done.err
        else:
            process.kill()
    first = read_folder_state(out / "trials" / "0000")
    done = run_pellucid(*asked)
    assert done.code == 0 and "to resume; 3 trials in total" in done.err
    assert {name: first[name] for name in ("log.jsonl", "card.md")} == {
        name: read_folder_state(out / "trials" / "0000")[name] for name in ("log.jsonl", "card.md")
    }
    assert run_pellucid(*given(trained, tmp_path / "whole", 3), "--jobs", 1, "--prune", "none").code == 0
    assert trials_of(out) == trials_of(tmp_path / "whole")
    starts = [record for record in read_log(out / "trials" / "0001") if record["event"] == "started"]
    assert len(starts) == 2 and starts[1]["update"] > 0


def test_time_limit_stops_trials_until_the_next_call(tmp_path: Path) -> None:
    config = make_small_config({"epochs": 100000, "eval_interval": 1000})
    trained = TrainedRun(write_copy_files(tmp_path), tmp_path, config)
    done = run_pellucid(*given(trained, tmp_path / "out", 2), "--minutes", 0.05, "--jobs", 1)
    assert done.code == 0 and "1 trial unfinished" in done.out and "no trial has finished yet" in done.out
    assert not (tmp_path / "out" / "best.toml").exists()


def test_diverging_trials_fail_and_the_search_stops_after_several(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("[training]\nlearning_rate = { choices = [1e30, 2e30, 3e30] }\n")
    files = copy_task_run().files
    space = ("--space", tmp_path / "space.toml")
    asked = (
        "tune",
        files.train,
        "--valid",
        files.valid,
        "--run",
        tmp_path / "out",
        *space,
        *training_flags(copy_task_run().config),
    )
    asked = (*asked, "--training.warmup-ratio", 0, "--jobs", 1, "--trials")
    done = run_pellucid(*asked, 5)
    assert done.code == 1 and "Traceback" not in done.err and done.out == ""
    assert done.err.splitlines()[-1].startswith(
        "pellucid: no result: 3 trials failed; the first: training diverged at update "
    )
    assert [trial["state"] for trial in trials_of(tmp_path / "out")] == ["failed"] * 3


def test_failed_trials_are_retried_and_counted_once(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("[training]\nlearning_rate = { choices = [0.01, 1e30] }\n")
    files, out = copy_task_run().files, tmp_path / "out"
    config = (*training_flags(copy_task_run().config), "--training.warmup-ratio", 0, "--training.learning-rate", 1e30)
    asked = (
        "tune",
        files.train,
        "--valid",
        files.valid,
        "--run",
        out,
        "--space",
        tmp_path / "space.toml",
        *config,
        "--jobs",
        1,
    )
    for tries in (1, 2, 3):
        done = run_pellucid(*asked, "--trials", 1)
        assert done.code == 1 and "no result: 1 trial failed; the first: training diverged" in done.err
        assert ("1 failed and retried; 1 trial in total" in done.err) == (tries > 1)
        assert [(trial["number"], trial["tries"]) for trial in trials_of(out)] == [(tries - 1, tries)]
    before = read_folder_state(out / "trials")
    done = run_pellucid(*asked, "--trials", 1)  # enough is enough
    assert done.code == 1 and "tried again;" not in done.err and read_folder_state(out / "trials") == before
    done = run_pellucid(*asked, "--trials", 6)
    assert done.code == 0 and {trial["state"] for trial in trials_of(out)} == {"failed", "finished"}
    assert len(trials_of(out)) == 6


def test_invalid_searches_are_refused(tmp_path: Path) -> None:
    files = copy_task_run().files
    asked = ("tune", files.train, "--valid", files.valid, "--run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("Dear")
    assert "(letter.txt)" in usage_error_message(run_pellucid(*asked, tmp_path / "other"))
    assert "nothing.tsv" in usage_error_message(
        run_pellucid("tune", tmp_path / "nothing.tsv", "--valid", files.valid, "--run", tmp_path / "out")
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.journal").write_text("no journal\n")
    assert "study.journal" in usage_error_message(run_pellucid(*asked, tmp_path / "out"))


def test_missing_optuna_is_an_error_with_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'optuna' else found(name, *rest)\n"
    )
    asked = build_command("tune", *_files(tmp_path), "--run", tmp_path / "out")
    path = os.pathsep.join([str(tmp_path / "without"), str(Path(cli.__file__).parents[2])])
    done = subprocess.run(
        asked, env=build_environment({"PYTHONPATH": path}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "pip install 'pellucid[tune]'" in done.stderr and not (tmp_path / "out").exists()
