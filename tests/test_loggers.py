"""The callbacks for TensorBoard and MLflow, whose files are read back; each test needs the package of its extra."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import build_environment
from guide_examples import ROOT
from trained_runs import make_small_config, train_to_end, write_copy_files

import pellucid
from pellucid.config.settings import Config
from pellucid.config.toml import override_settings
from pellucid.errors import DivergenceError, InputError
from pellucid.training import loggers
from pellucid.training.events import RunEvent, TrainingCallback, TrainingStarted, UpdateCompleted, ValidationCompleted
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


class TrackingServer:
    """Runs of a server of MLflow, with the methods of its client that the callback calls."""

    def __init__(self) -> None:
        self.runs = list[SimpleNamespace]()

    def get_experiment_by_name(self, name: str) -> SimpleNamespace:
        """Return the only experiment."""
        return SimpleNamespace(experiment_id="1")

    def create_run(self, experiment: str, tags: dict[str, str], run_name: str) -> SimpleNamespace:
        """Append a run."""
        info = SimpleNamespace(run_id=str(len(self.runs)), status="RUNNING")
        self.runs.append(SimpleNamespace(info=info, data=SimpleNamespace(params={}, tags=tags)))
        return self.runs[-1]

    def search_runs(self, experiments: list[str], condition: str, max_results: int) -> list[SimpleNamespace]:
        """Return the last run of a folder."""
        return [run for run in reversed(self.runs) if condition.endswith(f'"{run.data.tags[FOLDER_TAG]}"')][:1]

    def update_run(self, run: str, status: str) -> None:
        """Change the status of a run."""
        self.runs[int(run)].info.status = status

    set_terminated = update_run

    def log_batch(self, run: str, params: Any = (), metrics: Any = ()) -> None:  # noqa: ANN401
        """Store parameters, which cannot be changed, as on a server of MLflow."""
        stored = self.runs[int(run)].data.params
        for key, value in params:
            assert stored.setdefault(key, value) == value


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> TrackingServer:
    """Install a package of the name of MLflow, whose clients write to one server."""
    server = TrackingServer()
    entities = SimpleNamespace(Param=lambda key, value: (key, value), Metric=lambda *values: values)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda address: server, entities=entities))
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setattr(loggers, "require_package", lambda *names: None)
    return server


class FailsAtUpdate:
    """A callback that raises an exception at an update."""

    def __init__(self, update: int, error: BaseException) -> None:
        self.update, self.error = update, error

    def on_event(self, folder: Path, event: RunEvent) -> None:
        """Raise the exception."""
        if isinstance(event, TrainingStarted | UpdateCompleted) and event.progress.update == self.update:
            raise self.error


@pytest.mark.parametrize(
    ("error", "status"), [(DivergenceError("the loss is not finite"), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_an_object_marks_how_its_training_ended(
    server: TrackingServer, tmp_path: Path, error: BaseException, status: str
) -> None:
    """Regression test: the run of a training with a callback object remained in the state RUNNING."""
    files, run, config = write_copy_files(tmp_path), tmp_path / "run", make_logged_config()
    with pytest.raises(type(error)):
        callbacks: list[TrainingCallback] = [MLflowCallback(), FailsAtUpdate(7, error)]
        pellucid.train(files.train, files.valid, run, config, progress=False, callbacks=callbacks)
    assert [each.info.status for each in server.runs] == [status]
    pellucid.train(files.train, files.valid, run, config, progress=False, callbacks=[MLflowCallback()])
    assert [each.info.status for each in server.runs] == ["FINISHED"]


def test_a_training_that_diverges_is_marked_as_failed(server: TrackingServer, tmp_path: Path) -> None:
    """Regression test: it was marked as killed."""
    config = override_settings(make_logged_config("mlflow"), {"training": {"learning_rate": 1e30, "clip_norm": 0.0}})
    with pytest.raises(DivergenceError):
        train_to_end(write_copy_files(tmp_path), tmp_path / "run", config)
    assert [each.info.status for each in server.runs] == ["FAILED"]


def test_a_training_that_is_interrupted_before_its_first_update_continues_its_run(
    server: TrackingServer, tmp_path: Path
) -> None:
    """Regression test: it had two runs."""
    files, run, config = write_copy_files(tmp_path), tmp_path / "run", make_logged_config("mlflow")
    for _ in range(2):
        events = train_run(files, run, config)
        next(event for event in events if isinstance(event, TrainingStarted))
        events.close()
    assert [each.info.status for each in server.runs] == ["KILLED"]
    shutil.rmtree(run)
    train_to_end(files, run, override_settings(config, {"seed": 5}))
    assert [each.info.status for each in server.runs] == ["KILLED", "FINISHED"]
    shutil.rmtree(run)
    train_to_end(files, run, config)
    assert [each.data.params["seed"] for each in server.runs] == ["1", "5", "1"]
