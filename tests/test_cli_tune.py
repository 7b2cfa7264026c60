"""pellucid tune: results, errors, and resuming."""

import json
import os
import subprocess
from collections.abc import Iterator
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
from pellucid.config.settings import Config, DataConfig
from pellucid.config.toml import flatten_config, load_config
from pellucid.errors import OutOfMemoryError, RunError
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.training.ensemble_training import TrainingJob
from pellucid.training.preparation import prepare_data
from pellucid.training.training_data import TrainingData, TrainingFiles, read_training_data
from pellucid.viewer.report_schema import ReportTable
from pellucid.worker_pool import WorkerChannel

pytest.importorskip("optuna")

from pellucid.tuning import search as search_module
from pellucid.tuning.search import HyperparameterSearch, StudyFinished, StudyRequest, resolve_config, tune
from pellucid.tuning.space import ChoiceDimension, SearchSpace
from pellucid.tuning.storage import FolderStorage

SPACE = """
[encoder]
dropout = { choices = [0.0, 0.2] }
[training]
learning_rate = { from = 0.001, to = 0.05, scale = "log" }
"""


def tune_command(trained: TrainedRun, out: Path, trials: int) -> list[object]:
    """Return the command that searches around a small configuration."""
    space = out.parent / "space.toml"
    space.write_text(SPACE)
    files = ("tune", trained.files.train, "--valid", trained.files.valid, "--run", out, "--space", space)
    return [*files, *training_flags(trained.config), "--trials", trials]


def read_trials(out: Path) -> list[dict[str, Any]]:
    """Return the trials of a search in order of number, without their duration."""
    trials = json.loads((out / "trials.json").read_text())["trials"]
    return sorted(({**trial, "seconds": 0} for trial in trials), key=lambda trial: trial["number"])


@pytest.fixture(scope="module")
def finished_search(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Run a search of four sequential trials. Return its folder, standard output and standard error."""
    out = tmp_path_factory.mktemp("search") / "out"
    result = run_pellucid(*tune_command(copy_task_run(), out, 4), "--jobs", 1)
    assert result.code == 0, result
    return out, result.out, result.err


def test_search_writes_the_best_settings_and_all_trials(finished_search: tuple[Path, str, str]) -> None:
    out, stdout, stderr = finished_search
    trials = read_trials(out)
    assert [trial["number"] for trial in trials] == [0, 1, 2, 3]
    best = max((trial for trial in trials if trial["state"] == "finished"), key=lambda trial: trial["score"])
    config = flatten_config(load_config(out / "best.toml"))
    assert {key: config[key] for key in best["values"]} == best["values"]
    assert stdout.strip().startswith(f"{best['score']:.2f} %  trial {best['number']}: ")
    assert "4 trials in total, 1 in parallel" in stderr and "encoder.dropout: 0.0, 0.2" in stderr
    (table,) = select_parts(read_report(out / "report.html"), ReportTable, "Trials")
    assert len(table.rows) == 4 and str(out / "best.toml") in stdout


def test_first_trial_has_the_given_settings_and_logged_scores(finished_search: tuple[Path, str, str]) -> None:
    out = finished_search[0]
    config = copy_task_run().config
    first = read_trials(out)[0]
    assert first["values"]["training.learning_rate"] == config.training.learning_rate
    for trial in read_trials(out):
        log = read_log(out / "trials" / f"{trial['number']:04d}")
        assert trial["score"] == [record for record in log if record.get("best")][-1]["exact_match"]


def test_only_the_best_trial_keeps_its_model(finished_search: tuple[Path, str, str]) -> None:
    out, stdout, _ = finished_search
    with_model = [path.parent for path in (out / "trials").glob("*/model.safetensors")]
    assert len(with_model) == 1 and f"trial {int(with_model[0].name)}: " in stdout.splitlines()[0]
    assert len(load(with_model[0]).predict(["ab"])) == 1


def test_best_settings_can_be_trained(finished_search: tuple[Path, str, str], tmp_path: Path) -> None:
    files = copy_task_run().files
    command = ("train", files.train, "--valid", files.valid, "--run", tmp_path / "run", "--config")
    assert run_pellucid(*command, finished_search[0] / "best.toml").code == 0
    assert (tmp_path / "run" / "config.toml").read_text() == (finished_search[0] / "best.toml").read_text()


def test_finished_search_repeats_no_trial_and_can_be_extended(
    finished_search: tuple[Path, str, str], tmp_path: Path
) -> None:
    out = copy_run_folder(finished_search[0], tmp_path / "out")
    before = read_folder_state(out / "trials")
    assert run_pellucid(*tune_command(copy_task_run(), out, 4)).code == 0
    assert read_folder_state(out / "trials") == before and read_trials(out) == read_trials(finished_search[0])
    with (out / "study.journal").open("ab") as journal:
        journal.write(b'{"op_code": 8, "trial')  # a crash may truncate a line
    result = run_pellucid(*tune_command(copy_task_run(), out, 5))
    assert result.code == 0 and "4 ended, 0 to resume; 5 trials in total" in result.err
    assert len(read_trials(out)) == 5 and read_trials(out)[:4] == read_trials(finished_search[0])


def test_temporary_files_of_killed_trials_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are removed when a search resumes, and at its end: a killed trial is tried again in another folder."""
    trained, trial = copy_task_run(), tmp_path / "out" / "trials" / "0000"
    space = SearchSpace((ChoiceDimension("encoder.dropout", (0.0, 0.2)),), ())
    config, _ = resolve_config(trained.config, trained.files)
    request = StudyRequest(trained.files, tmp_path / "out", config, space, 1, 0.0, 1, "none")
    names = (".training.safetensors.abcdefgh.tmp", "snapshots/.000001-00000005.safetensors.abcdefgh.tmp")
    temporaries, foreign = [trial / name for name in names], trial / ".notes.txt.abcdefgh.tmp"
    num_calls = 0

    def write_temporaries() -> None:
        (trial / "snapshots").mkdir(parents=True, exist_ok=True)
        for path in (*temporaries, foreign):
            path.write_bytes(b"part")

    def start_and_kill_trial(search: HyperparameterSearch) -> Iterator[None]:
        nonlocal num_calls
        num_calls += 1
        assert not any(path.exists() for path in temporaries)
        write_temporaries()
        yield None

    monkeypatch.setattr(HyperparameterSearch, "events", start_and_kill_trial)
    for expected_calls in (1, 2):
        assert isinstance(list(tune(request))[-1], StudyFinished) and num_calls == expected_calls
        assert foreign.exists() and not any(path.exists() for path in temporaries)
        write_temporaries()  # by a search that was killed together with its trial


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no shared locks")
def test_search_of_one_shared_command_is_that_of_a_command_alone(
    finished_search: tuple[Path, str, str], tmp_path: Path
) -> None:
    """test_tuning_processes.py has searches of several commands."""
    command = [*tune_command(copy_task_run(), tmp_path / "out", 4), "--jobs", 1]
    result = run_pellucid(*command, "--shared")
    assert result.code == 0 and result.out.replace(str(tmp_path / "out"), str(finished_search[0])) == finished_search[1]
    assert read_trials(tmp_path / "out") == read_trials(finished_search[0])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        path.name for path in finished_search[0].iterdir()
    )


@pytest.mark.slow
def test_same_seed_gives_the_same_trials(finished_search: tuple[Path, str, str], tmp_path: Path) -> None:
    assert run_pellucid(*tune_command(copy_task_run(), tmp_path / "out", 2), "--jobs", 1).code == 0
    assert run_pellucid(*tune_command(copy_task_run(), tmp_path / "out", 3), "--jobs", 1).code == 0
    assert read_trials(tmp_path / "out") == read_trials(finished_search[0])[:3]


def test_different_study_is_refused_with_the_differences(
    finished_search: tuple[Path, str, str], tmp_path: Path
) -> None:
    out = copy_run_folder(finished_search[0], tmp_path / "out")
    before = read_folder_state(out)
    message = usage_error_message(run_pellucid(*tune_command(copy_task_run(), out, 5), "--seed", 3))
    assert message == f"{out} holds a study with other settings (seed); name a new folder"
    message = usage_error_message(
        run_pellucid("tune", *_write_pair_files(tmp_path), "--run", out, *training_flags(copy_task_run().config))
    )
    assert message == f"{out} holds a study with other data and space; name a new folder"
    assert read_folder_state(out) == before


def _write_pair_files(folder: Path) -> tuple[Path, str, Path]:
    (folder / "a.tsv").write_text("a\tb\nc\td\n")
    (folder / "b.tsv").write_text("a\td\n")
    return folder / "a.tsv", "--valid", folder / "b.tsv"


@pytest.mark.slow
@pytest.mark.parametrize("signal_kind", ["Ctrl-C", "kill -9"])
def test_stopped_search_resumes(tmp_path: Path, signal_kind: str) -> None:
    config = make_small_config({"epochs": 15, "eval_interval": 1.5}, dropout=0.2)
    trained = TrainedRun(write_copy_files(tmp_path), tmp_path, config)
    out = tmp_path / "out"
    command = [*tune_command(trained, out, 3), "--jobs", 1, "--prune", "none"]
    with start_command(*command) as process:
        wait_until(lambda: (out / "trials" / "0001" / "training.safetensors").exists(), process)
        if signal_kind == "Ctrl-C":
            send_interrupt(process)
            result = wait_for_exit(process)
            assert result.code == 130 and "Traceback" not in result.err
            assert f"the same command resumes from {out}" in result.err
        else:
            process.kill()
    first = read_folder_state(out / "trials" / "0000")
    result = run_pellucid(*command)
    assert result.code == 0 and "to resume; 3 trials in total" in result.err
    assert {name: first[name] for name in ("log.jsonl", "card.md")} == {
        name: read_folder_state(out / "trials" / "0000")[name] for name in ("log.jsonl", "card.md")
    }
    assert run_pellucid(*tune_command(trained, tmp_path / "whole", 3), "--jobs", 1, "--prune", "none").code == 0
    assert read_trials(out) == read_trials(tmp_path / "whole")
    starts = [record for record in read_log(out / "trials" / "0001") if record["event"] == "started"]
    assert len(starts) == 2 and starts[1]["update"] > 0


@pytest.mark.slow
def test_time_limit_stops_trials_until_the_next_call(tmp_path: Path) -> None:
    config = make_small_config({"epochs": 100000, "eval_interval": 1000})
    trained = TrainedRun(write_copy_files(tmp_path), tmp_path, config)
    result = run_pellucid(*tune_command(trained, tmp_path / "out", 2), "--study-time", "3s", "--jobs", 1)
    assert result.code == 0 and "1 trial unfinished" in result.out and "no trial has finished yet" in result.out
    assert not (tmp_path / "out" / "best.toml").exists()


def test_diverging_trials_fail_and_the_search_stops_after_several(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("[training]\nlearning_rate = { choices = [1e30, 2e30, 3e30] }\n")
    files = copy_task_run().files
    space = ("--space", tmp_path / "space.toml")
    command = (
        "tune",
        files.train,
        "--valid",
        files.valid,
        "--run",
        tmp_path / "out",
        *space,
        *training_flags(copy_task_run().config),
    )
    command = (*command, "--training.warmup-ratio", 0, "--jobs", 1, "--trials")
    result = run_pellucid(*command, 5)
    assert result.code == 1 and "Traceback" not in result.err and result.out == ""
    assert result.err.splitlines()[-1].startswith(
        "pellucid: no result: 3 trials failed; the first: training diverged at update "
    )
    assert [trial["state"] for trial in read_trials(tmp_path / "out")] == ["failed"] * 3


def run_out_of_memory(job: TrainingJob, channel: WorkerChannel) -> bool:
    raise OutOfMemoryError("out of memory; reduce size")


@pytest.mark.slow
def test_a_trial_without_enough_memory_fails_and_the_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = copy_task_run()
    space = SearchSpace((ChoiceDimension("encoder.dropout", (0.0, 0.2)),), ())
    config, _ = resolve_config(trained.config, trained.files)
    monkeypatch.setattr(search_module, "run_job", run_out_of_memory)
    request = StudyRequest(trained.files, tmp_path / "out", config, space, 2, 0.0, 1, "none")
    assert isinstance(list(tune(request))[-1], StudyFinished)
    found = [(trial["state"], trial["reason"]) for trial in read_trials(tmp_path / "out")]
    assert found == [("failed", "out of memory; reduce size")] * 2


@pytest.mark.slow
def test_failed_trials_are_retried_and_counted_once(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("[training]\nlearning_rate = { choices = [0.01, 1e30] }\n")
    files, out = copy_task_run().files, tmp_path / "out"
    config = (*training_flags(copy_task_run().config), "--training.warmup-ratio", 0, "--training.learning-rate", 1e30)
    command = (
        "tune",
        files.train,
        "--valid",
        files.valid,
        "--run",
        out,
        "--space",
        tmp_path / "space.toml",
        *config,
        "--seed",
        2,
        "--jobs",
        1,
    )
    for tries in (1, 2, 3):
        result = run_pellucid(*command, "--trials", 1)
        assert result.code == 1 and "no result: 1 trial failed; the first: training diverged" in result.err
        assert ("1 failed and retried; 1 trial in total" in result.err) == (tries > 1)
        assert [(trial["number"], trial["tries"]) for trial in read_trials(out)] == [(tries - 1, tries)]
    before = read_folder_state(out / "trials")
    result = run_pellucid(*command, "--trials", 1)  # the trial has failed three times and is not retried
    assert result.code == 1 and "failed and retried" not in result.err and read_folder_state(out / "trials") == before
    result = run_pellucid(*command, "--trials", 6)
    assert result.code == 0 and {trial["state"] for trial in read_trials(out)} == {"failed", "finished"}
    assert len(read_trials(out)) == 6


def test_invalid_searches_are_refused(tmp_path: Path) -> None:
    files = copy_task_run().files
    command = ("tune", files.train, "--valid", files.valid, "--run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("Dear")
    assert "(letter.txt)" in usage_error_message(run_pellucid(*command, tmp_path / "other"))
    assert "nothing.tsv" in usage_error_message(
        run_pellucid("tune", tmp_path / "nothing.tsv", "--valid", files.valid, "--run", tmp_path / "out")
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.journal").write_text("no journal\n")
    assert "study.journal" in usage_error_message(run_pellucid(*command, tmp_path / "out"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--shared", "--storage", "postgresql:///a"], "--storage is for several commands already: leave out --shared"),
        (["--shared", "--on", "ray"], "leave out --shared"),
        (["--study-name", "a"], "give --storage, too"),
        (["--storage", "postgresql:///a", "--study-name", ""], "--study-name: expected 1 to 512 characters"),
    ],
)
def test_flags_of_several_commands_that_contradict_each_other_are_refused(
    tmp_path: Path, flags: list[str], message: str
) -> None:
    files = copy_task_run().files
    result = run_pellucid("tune", files.train, "--valid", files.valid, "--run", tmp_path / "out", *flags)
    assert message in usage_error_message(result) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("package", "extra"), [("optuna", "tune"), ("psycopg", "postgresql")])
def test_missing_package_is_an_error_with_the_install_command(tmp_path: Path, package: str, extra: str) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        f"u.find_spec = lambda name, *rest: None if name == '{package}' else found(name, *rest)\n"
    )
    storage = ("--storage", "postgresql:///name") if package == "psycopg" else ()
    arguments = build_command("tune", *_write_pair_files(tmp_path), "--run", tmp_path / "out", *storage)
    path = os.pathsep.join([str(tmp_path / "without"), str(Path(cli.__file__).parents[2])])
    result = subprocess.run(
        arguments, env=build_environment({"PYTHONPATH": path}), capture_output=True, text=True, check=False
    )
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert f"pip install 'pellucid[{extra}]'" in result.stderr and not (tmp_path / "out").exists()


@pytest.mark.skipif(os.name == "nt", reason="symbolic links require a privilege")
@pytest.mark.parametrize("linked", ["trials", "a trial", ".lock"])
def test_links_in_the_folder_of_a_search_are_refused(
    finished_search: tuple[Path, str, str], tmp_path: Path, linked: str
) -> None:
    out, target = copy_run_folder(finished_search[0], tmp_path / "out"), tmp_path / "elsewhere"
    best = next((out / "trials").glob("*/model.safetensors")).parent.name
    other = next(path.name for path in sorted((out / "trials").iterdir()) if path.name != best)
    link = {"trials": out / "trials", "a trial": out / "trials" / other, ".lock": out / ".lock"}[linked]
    if linked == ".lock":
        link.unlink(missing_ok=True)
        target.write_text("my notes\n")
    else:
        link.rename(target)
        trial = target / other if linked == "trials" else target
        (trial / "model.safetensors").write_text("a model of the user")
    link.symlink_to(target)
    before = read_folder_state(tmp_path)
    message = usage_error_message(run_pellucid(*tune_command(copy_task_run(), out, 4)))
    assert message.startswith(f"{link} is a symbolic link, and a training writes only into its own folder")
    after = read_folder_state(tmp_path)
    assert {**before, "space.toml": after["space.toml"]} == after


@pytest.mark.skipif(os.name == "nt", reason="symbolic links require a privilege")
@pytest.mark.parametrize("kind", ["link to a file", "link to nothing", "link to itself", "pipe", "folder"])
def test_journal_that_is_no_regular_file_is_refused_before_any_write(tmp_path: Path, kind: str) -> None:
    out, notes = tmp_path / "out", tmp_path / "notes.txt"
    out.mkdir()
    journal = out / "study.journal"
    match kind:
        case "link to a file":
            notes.write_text("my notes\n")
            journal.symlink_to(notes)
        case "link to nothing":
            journal.symlink_to(notes)
        case "link to itself":
            journal.symlink_to(journal)
        case "pipe":
            os.mkfifo(journal)
        case "folder":
            journal.mkdir()
    message = usage_error_message(run_pellucid(*tune_command(copy_task_run(), out, 1)))
    expected = {"pipe": "is a named pipe, not a regular file", "folder": "is a directory"}
    assert expected.get(kind, "is a symbolic link") in message and str(journal) in message
    assert [path.name for path in out.iterdir()] == ["study.journal"]
    assert notes.read_text() == "my notes\n" if kind == "link to a file" else not notes.exists()


@pytest.fixture(scope="module")
def pruned_search(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object]]:
    """Run a search of two trials, of which successive halving prunes the second; return its folder and command."""
    folder = tmp_path_factory.mktemp("pruned")
    config = make_small_config({"epochs": 15, "eval_interval": 1.0})
    trained = TrainedRun(write_copy_files(folder), folder, config)
    command = tune_command(trained, folder / "out", 2)
    rates = f'from = 1e-6, to = {config.training.learning_rate}, scale = "log"'  # the first trial is the best
    (folder / "space.toml").write_text(f"[training]\nlearning_rate = {{ {rates} }}\n")
    command += ["--jobs", 1, "--prune", "halving", "--metric", "loss"]
    assert run_pellucid(*command).code == 0
    assert [trial["state"] for trial in read_trials(folder / "out")] == ["finished", "pruned"]
    return folder / "out", command


@pytest.mark.slow
@pytest.mark.parametrize("last_line", ["the validation before", "the decision to prune", "the validation", "the score"])
def test_pruned_trial_is_not_trained_on_after_an_interruption(
    pruned_search: tuple[Path, list[object]], tmp_path: Path, last_line: str
) -> None:
    whole, command = pruned_search
    out = copy_run_folder(whole, tmp_path / "out")
    lines = (out / "study.journal").read_bytes().splitlines(keepends=True)
    decision = next(index for index, line in enumerate(lines) if b'"prune"' in line)
    count = {"the validation before": 0, "the decision to prune": 1, "the validation": 2, "the score": 5}[last_line]
    (out / "study.journal").write_bytes(b"".join(lines[: decision + count]))
    before = (out / "trials" / "0001" / "log.jsonl").read_bytes()
    result = run_pellucid(*(out if argument == whole else argument for argument in command))
    assert result.code == 0 and "1 ended, 1 to resume" in result.err
    assert (out / "trials" / "0001" / "log.jsonl").read_bytes() == before
    assert read_trials(out) == read_trials(whole)


def test_score_of_a_pruned_trial_is_that_of_the_validations_up_to_the_decision(
    pruned_search: tuple[Path, list[object]], tmp_path: Path
) -> None:
    whole, command = pruned_search
    out = copy_run_folder(whole, tmp_path / "out")
    lines = (out / "study.journal").read_bytes().splitlines(keepends=True)
    decision = next(index for index, line in enumerate(lines) if b'"prune"' in line)
    (out / "study.journal").write_bytes(b"".join(lines[:decision]))
    log = out / "trials" / "0001" / "log.jsonl"
    later = [record for record in read_log(log.parent) if record["event"] == "validated"][-1]
    with log.open("a") as file:
        file.write(json.dumps({**later, "loss": 0.0, "validation": later["validation"] + 1, "best": True}) + "\n")
    assert run_pellucid(*(out if argument == whole else argument for argument in command)).code == 0
    assert read_trials(out) == read_trials(whole)


@pytest.mark.parametrize("damage", ["not JSON", "infinite value", "unknown operation"])
def test_damaged_journal_is_an_error_with_its_line(
    finished_search: tuple[Path, str, str], tmp_path: Path, damage: str
) -> None:
    out = copy_run_folder(finished_search[0], tmp_path / "out")
    journal = out / "study.journal"
    lines = journal.read_text().splitlines()
    index = next(index for index, line in enumerate(lines) if '"op_code":5' in line)
    entry = json.loads(lines[index])
    lines[index] = {
        "not JSON": lines[index][:-9],
        "infinite value": json.dumps({**entry, "param_value_internal": float("inf")}),
        "unknown operation": json.dumps({**entry, "op_code": 99}),
    }[damage]
    journal.write_text("\n".join([*lines, ""]))
    before = read_folder_state(out)
    message = usage_error_message(run_pellucid(*tune_command(copy_task_run(), out, 5)))
    assert message.startswith(f"{journal}:{index + 1}: the line is damaged") and read_folder_state(out) == before


def test_data_of_a_search_are_read_without_a_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pellucid.tuning import search

    paths = list[Path | None]()

    def recorded_read(
        files: TrainingFiles, config: Config, unresolved: DataConfig, corpus: Path | None = None
    ) -> TrainingData:
        paths.append(corpus)
        return read_training_data(files, config, unresolved, corpus)

    monkeypatch.setattr(search, "read_training_data", recorded_read)
    search.resolve_config(copy_task_run().config, write_copy_files(tmp_path))
    assert paths == [None]


def test_search_of_prepared_data_continues_and_refuses_others(tmp_path: Path) -> None:
    out, config = tmp_path / "out", make_small_config({"epochs": 3})
    out.mkdir()
    for number in range(2):
        (tmp_path / "train.tsv").write_text("".join(f"a{index}\tb{index}\n" for index in range(20 + number)))
        list(prepare_data(TrainingFiles(tmp_path / "train.tsv", None), tmp_path / f"prepared{number}", config))

    def open_search(number: int) -> HyperparameterSearch:
        prepared = TrainingFiles(tmp_path / f"prepared{number}", None)
        space = SearchSpace((ChoiceDimension("encoder.dropout", (0.0, 0.2)),), ())
        resolved, _ = resolve_config(config, prepared)
        return HyperparameterSearch(StudyRequest(prepared, out, resolved, space, 1, 0.0, 1, "none"), FolderStorage(out))

    for _ in range(2):
        assert open_search(0).study.num_trials == 1
    with pytest.raises(RunError, match="holds a study with other data"):
        open_search(1)


@pytest.mark.slow
def test_trials_of_a_fine_tuning_have_the_network_of_the_initial_run(tmp_path: Path) -> None:
    base = copy_task_run()
    command = ["tune", base.files.train, "--valid", base.files.valid, "--run", tmp_path / "out"]
    command += ["--init-from", base.run]
    flags = ["--trials", 2, "--epochs", 1, "--batch-size", 8, "--no-pair-ngram", "--jobs", 1]
    result = run_pellucid(*command, *flags)
    assert result.code == 0, result.err
    best = load_config(tmp_path / "out" / "best.toml")
    assert best.encoder.hidden_size == base.config.encoder.hidden_size
    assert best.training.init_from == str(base.run)
    searched = (tmp_path / "out" / "space.txt").read_text("utf-8")
    assert "training.learning_rate" in searched and "hidden_size" not in searched
    space = tmp_path / "space.toml"
    space.write_text("[encoder]\nhidden_size = { choices = [6, 8] }\n")
    other = [tmp_path / "other" if argument == tmp_path / "out" else argument for argument in command]
    message = usage_error_message(run_pellucid(*other, *flags, "--space", space))
    assert "--space: encoder.hidden_size: the network and symbols of" in message
