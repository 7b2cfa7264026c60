"""The callbacks for TensorBoard and MLflow, whose files are read back; each test needs the package of its extra."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import build_environment
from guide_examples import ROOT
from trained_runs import make_small_config, train_to_end, write_copy_files

from pellucid.config.settings import Config
from pellucid.config.toml import override_settings
from pellucid.errors import InputError
from pellucid.training.events import UpdateCompleted, ValidationCompleted
from pellucid.training.loggers import FOLDER_TAG, MLflowCallback, TensorBoardCallback, _find_experiment, find_log_dir
from pellucid.training.session import train_run

needs_tensorboard = pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="needs TensorBoard")
needs_mlflow = pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs MLflow")
foreign_warnings = pytest.mark.filterwarnings("ignore")  # of these packages


def make_logged_config(*names: str) -> Config:
    """Return a small configuration with callbacks."""
    return override_settings(make_small_config({"epochs": 2}), {"training": {"callbacks": list(names)}})


@pytest.mark.parametrize(("callback", "package"), [(TensorBoardCallback, "tensorboard"), (MLflowCallback, "mlflow")])
def test_a_missing_package_is_named(callback: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"'{package}' needs the package .*pip install 'pellucid\\[{package}\\]'"):
        callback()


def test_runs_whose_folders_have_the_same_name_have_event_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, runs = tmp_path / "logs", [tmp_path / "exp" / name / "seed-1" for name in ("a", "b", "c")]
    names = ["seed-1", "seed-1-2", "seed-1-3"]
    for _ in ("started", "resumed"):
        assert [find_log_dir(logs, run) for run in runs] == [logs / name for name in names]
    (tmp_path / "exp").mkdir()
    monkeypatch.chdir(tmp_path / "exp")
    assert find_log_dir(logs, Path("b/seed-1")) == logs / "seed-1-2"
    assert find_log_dir(logs, tmp_path / "other") == logs / "other"


@needs_tensorboard
@foreign_warnings
def test_tensorboard_reads_the_curves_also_of_a_resumed_training(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    files, config, run = write_copy_files(tmp_path), make_logged_config("tensorboard"), tmp_path / "run"
    events = train_run(files, run, config)
    first = []
    for event in events:
        first.append(event)
        if isinstance(event, UpdateCompleted) and event.progress.update == 7:
            break
    events.close()
    done = [*first, *train_to_end(files, run, config)]
    curves = EventAccumulator(str(run / "tensorboard"))
    curves.Reload()
    updates = [event for event in done if isinstance(event, UpdateCompleted)]
    losses = [(point.step, point.value) for point in curves.Scalars("training/loss")]
    assert losses == [(event.progress.update, pytest.approx(event.loss, rel=1e-6)) for event in updates]
    validations = [event for event in done if isinstance(event, ValidationCompleted)]
    for name in validations[0].metrics:
        points = [(point.step, point.value) for point in curves.Scalars(f"validation/{name}")]
        expected = [(event.progress.update, pytest.approx(event.metrics[name], rel=1e-6)) for event in validations]
        assert points == expected
    (text,) = curves.Tensors("settings/text_summary")
    assert b"callbacks" in text.tensor_proto.string_val[0]


@needs_mlflow
@foreign_warnings
def test_mlflow_has_the_settings_and_metrics_and_a_resumed_training_continues_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    files, config, run = write_copy_files(tmp_path), make_logged_config("mlflow"), tmp_path / "it's"
    events = train_run(files, run, config)
    for event in events:
        if isinstance(event, UpdateCompleted) and event.progress.update == 7:
            break
    events.close()
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("mine").experiment_id
    (stored,) = client.search_runs([experiment])
    assert stored.info.status == "KILLED" and stored.data.tags[FOLDER_TAG] == str(run.resolve())
    done = train_to_end(files, run, config)
    (stored,) = client.search_runs([experiment])
    assert stored.info.status == "FINISHED" and stored.info.run_name == "it's"
    assert stored.data.params["encoder.cell"] == "gru" and stored.data.params["training.callbacks"] == "('mlflow',)"
    last = [event for event in done if isinstance(event, ValidationCompleted)][-1]
    for name, value in last.metrics.items():
        assert stored.data.metrics[f"validation/{name}"] == pytest.approx(value)
    steps = [point.step for point in client.get_metric_history(stored.info.run_id, "validation/loss")]
    assert steps[-1] == last.progress.update


@pytest.mark.parametrize("package", ["tensorboard", "mlflow"])
def test_the_examples_of_the_guide_run(tmp_path: Path, package: str) -> None:
    pytest.importorskip(package)
    page = (ROOT / "docs" / "guides" / "logging.md").read_text("utf-8")
    (program,) = re.findall(rf"<!-- run with {package} -->\n```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = build_environment({"PYTHONPATH": os.pathsep.join(sys.path)})
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"\(200, [\d.]+\), \(400, |FINISHED gru [\d.]+", result.stdout), result.stdout


class RacingClient:
    """A client of MLflow whose experiment another process creates between the search and the creation."""

    def __init__(self, creates: bool) -> None:
        self.experiments, self.creates = dict[str, str](), creates

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        """Return the experiment."""
        return SimpleNamespace(experiment_id=self.experiments[name]) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        """Fail as MLflow does for an experiment that exists."""
        if self.creates:
            self.experiments[name] = "7"
        raise RuntimeError("RESOURCE_ALREADY_EXISTS")


def test_parallel_trainings_share_an_experiment() -> None:
    """Regression test: the slower one of two members of an ensemble received no further events."""
    assert _find_experiment(RacingClient(creates=True), "pellucid") == "7"
    with pytest.raises(RuntimeError, match="RESOURCE_ALREADY_EXISTS"):
        _find_experiment(RacingClient(creates=False), "pellucid")
