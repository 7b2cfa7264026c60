"""A package with an attention, a cell, a task, a metric, an optimizer and a callback, installed for some processes.

The classes are those of the pages on extensions; Pellucid itself is not changed. The package is its modules and the
metadata that an installation writes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandResult, build_command, build_environment
from extension_pages import install_extensions
from trained_runs import make_small_config, read_tensors, write_copy_files

import pellucid
from pellucid.config.toml import to_toml

NAMES = (
    *("--task", "spell", "--attention", "cosine", "--cell", "mgu", "--metric", "prefix_accuracy"),
    *("--optimizer", "lion", "--weight-decay", 0.01, "--callbacks", "validation-table"),
)


def run_command(*arguments: object, package: Path | None = None) -> CommandResult:
    """Run a subcommand in a new process in which a package is installed."""
    folders = [*sys.path, *([str(package)] if package is not None else [])]
    environment = build_environment({"PYTHONPATH": os.pathsep.join(folders)})
    process = subprocess.run(build_command(*arguments), capture_output=True, text=True, env=environment, check=False)
    return CommandResult(process.returncode, process.stdout, process.stderr)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package."""
    return install_extensions(tmp_path_factory.mktemp("package"))


@pytest.mark.slow
def test_all_subcommands_use_the_extensions_of_an_installed_package(package: Path, tmp_path: Path) -> None:
    files, run = write_copy_files(tmp_path), tmp_path / "run"
    (tmp_path / "my.toml").write_text(to_toml(make_small_config({"epochs": 2})), "utf-8")
    train = ("train", files.train, "--valid", files.valid, "--config", tmp_path / "my.toml", *NAMES)
    trained = run_command(*train, "--run", run, package=package)
    assert trained.code == 0 and "prefix_accuracy" in trained.err, trained.err
    assert (tmp_path / "run.csv").read_text("utf-8").startswith("update,exact_match,symbol_error_rate")
    started = next(
        record
        for record in map(json.loads, (run / "log.jsonl").read_text("utf-8").splitlines())
        if record["event"] == "started"
    )
    assert started["versions"] == f"pellucid {pellucid.__version__}, my-extensions 1"

    assert len(run_command("predict", run, files.valid, package=package).out.splitlines()) == 10
    evaluated = run_command("evaluate", run, files.valid, "--json", package=package)
    metric = json.loads(evaluated.out)["metrics"]["prefix_accuracy"]
    assert metric["unit"] == "%" and metric["ci95"][0] <= metric["value"] <= metric["ci95"][1]
    table = run_command("evaluate", run, files.valid, "--metrics", "prefix_accuracy", package=package)
    assert "prefix_accuracy" in table.out and "higher is better" in " ".join(table.out.split()), table.out + table.err
    refused = run_command("predict", run, files.valid)
    assert refused.code == 2 and refused.out == "" and "Traceback" not in refused.err
    assert "task = 'spell' is neither built in nor installed: install the package" in refused.err
    assert "the model was trained with 'my-extensions 1'" in " ".join(refused.err.split())
    unknown = run_command("evaluate", run, files.valid, "--metrics", "prefix_acuracy", package=package)
    assert unknown.code == 2 and "did you mean 'prefix_accuracy'?" in " ".join(unknown.err.split())


@pytest.mark.slow
def test_an_ensemble_of_workers_and_a_resumed_training_use_them(package: Path, tmp_path: Path) -> None:
    files, run = write_copy_files(tmp_path), tmp_path / "both"
    (tmp_path / "my.toml").write_text(to_toml(make_small_config({"epochs": 2})), "utf-8")
    train = ("train", files.train, "--valid", files.valid, "--config", tmp_path / "my.toml", *NAMES)
    trained = run_command(*train, "--run", run, "--ensemble", 2, "--jobs", 2, package=package)
    assert trained.code == 0, trained.err
    assert {path.name for path in run.glob("*.csv")} == {"seed-1.csv", "seed-2.csv"}
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from pellucid.config.toml import load_config\n"
        "from pellucid.training.session import train_run\n"
        "from pellucid.training.training_data import TrainingFiles\n"
        "train, valid, run, config = map(Path, sys.argv[1:])\n"
        "events = train_run(TrainingFiles(train, valid, None, None), run, load_config(config))\n"
        "for number, event in enumerate(events):\n"
        "    if type(event).__name__ == 'UpdateCompleted' and event.progress.update == 7:\n"
        "        events.close()\n"
    )
    single, environment = (
        tmp_path / "single",
        build_environment({"PYTHONPATH": os.pathsep.join([*sys.path, str(package)])}),
    )
    arguments = (files.train, files.valid, single, run / "seed-1" / "config.toml")
    stopped = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert stopped.returncode == 0, stopped.stderr
    assert '"stopped"' not in (single / "log.jsonl").read_text("utf-8")
    resumed = run_command(*train, "--run", single, package=package)
    assert resumed.code == 0 and "resumed" in resumed.err, resumed.err
    assert read_tensors(single / "training.safetensors")[0] == read_tensors(run / "seed-1" / "training.safetensors")[0]
