"""Callbacks that write a training to TensorBoard and to MLflow; each needs the extra of its name.

They are also values of the setting `training.callbacks`: "tensorboard" and "mlflow".
"""

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pellucid.config.settings import Config
from pellucid.config.toml import flatten_config, to_toml
from pellucid.dependencies import require_package
from pellucid.run_folder.progress import LOSS_WINDOW
from pellucid.run_folder.run_files import TENSORBOARD, load_run_config
from pellucid.training.events import (
    RunEvent,
    TrainingStarted,
    TrainingStopped,
    UpdateCompleted,
    ValidationCompleted,
)
from pellucid.version import __version__

DEFAULT_EXPERIMENT = "pellucid"
"""Name of the experiment of MLflow, unless another is given."""
FOLDER_TAG, VERSION_TAG = "pellucid.folder", "pellucid.version"
"""Tags of a run of MLflow: the run folder, by which a resumed training finds its run, and the version."""
MAX_PARAMS_PER_REQUEST = 100
"""Maximum number of parameters of a request to MLflow."""
MAX_VALUE_LENGTH = 500
"""Maximum number of characters of the value of a parameter, which all versions of MLflow accept."""
RUN_PATH = "run_folder.txt"
"""File in a folder of event files outside of the run folder: the path of the run folder."""


def _update_values(event: UpdateCompleted, loss: float) -> dict[str, float]:
    """Return the values of an update by name."""
    return {"loss": loss, "learning_rate": event.learning_rate, "gradient_norm": event.gradient_norm}


def find_log_dir(folder: Path, run: Path) -> Path:
    """Return the folder of the event files of a run: that with the name of the run folder, or with a number behind it.

    Runs whose folders have the same name, such as the members `seed-1` of two ensembles, have folders of their own. A
    file with the path of the run folder, by which a resumed training finds its event files, is written into a new one.

    Args:
        folder: Folder of the event files of all runs.
        run: Run folder.
    """
    run = run.absolute()
    owner = os.fsencode(run.resolve())
    number = 1
    while True:
        log_dir = folder / (run.name if number == 1 else f"{run.name}-{number}")
        log_dir.mkdir(parents=True, exist_ok=True)
        try:
            with (log_dir / RUN_PATH).open("xb") as file:
                file.write(owner)
            return log_dir
        except FileExistsError:
            if (log_dir / RUN_PATH).read_bytes() == owner:
                return log_dir
        number += 1


class TensorBoardCallback:
    """Writer of the curves of a training for TensorBoard, by default into the folder `tensorboard` of the run.

    Scalars are the loss, the learning rate and the gradient norm of each update (`training/...`), and the metrics of
    each validation (`validation/...`); a text has the settings. Steps are updates. After a training is resumed,
    TensorBoard leaves out the updates that are repeated.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        """Check that the package is installed; nothing is written yet.

        Args:
            folder: Folder of the event files, which then has a subfolder for each run (`find_log_dir`); None for the
                run folder.

        Raises:
            MissingDependencyError: TensorBoard is not installed.
        """
        require_package("tensorboard", "tensorboard", "the callback 'tensorboard'")
        self.folder = None if folder is None else Path(folder)
        self.writers: dict[Path, Any] = {}

    def on_event(self, folder: Path, event: RunEvent) -> None:
        """Write an event of a training.

        Args:
            folder: Run folder.
            event: The event.
        """
        match event:
            case TrainingStarted():
                self._start(folder, event)
            case UpdateCompleted() if folder in self.writers:
                self._write(folder, "training", _update_values(event, event.loss), event.progress.update)
            case ValidationCompleted() if folder in self.writers:
                self._write(folder, "validation", event.metrics, event.progress.update)
                self.writers[folder].flush()
            case TrainingStopped() if folder in self.writers:
                self.writers.pop(folder).close()

    def close(self) -> None:
        """Close all event files."""
        while self.writers:
            self.writers.popitem()[1].close()

    def _start(self, folder: Path, event: TrainingStarted) -> None:
        """Open the event file of a training, and write its settings."""
        from torch.utils.tensorboard import SummaryWriter

        log_dir = folder / TENSORBOARD if self.folder is None else find_log_dir(self.folder, folder)
        update = event.progress.update
        writer: Any = SummaryWriter(str(log_dir), purge_step=update + 1 if update else 0)
        if not update:
            lines = to_toml(load_run_config(folder)).splitlines()
            writer.add_text("settings", "\n".join(f"    {line}" for line in lines), 0)
        self.writers[folder] = writer

    def _write(self, folder: Path, group: str, values: dict[str, float], step: int) -> None:
        """Write some scalars of one step."""
        for name, value in values.items():
            self.writers[folder].add_scalar(f"{group}/{name}", value, step)


class MLflowCallback:
    """Writer of a training into a run of MLflow.

    Parameters are all settings; metrics are the mean training loss, the learning rate and the gradient norm at every
    50th update (`training/...`), as in `log.jsonl`, and those of each validation (`validation/...`). Steps are updates.
    A resumed training continues its run, which it finds by the tag `pellucid.folder`.
    """

    def __init__(self, tracking_uri: str | None = None, experiment: str | None = None) -> None:
        """Check that the package is installed; nothing is written yet.

        Args:
            tracking_uri: Address or folder of the tracking server; None for `MLFLOW_TRACKING_URI` of the environment,
                or else the default of MLflow.
            experiment: Name of the experiment, which is created if it is missing; None for `MLFLOW_EXPERIMENT_NAME` of
                the environment, or else "pellucid".

        Raises:
            MissingDependencyError: MLflow is not installed.
        """
        require_package("mlflow", "mlflow", "the callback 'mlflow'")
        self.tracking_uri = tracking_uri
        self.experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT
        self.client: Any = None
        self.runs: dict[Path, str] = {}

    def on_event(self, folder: Path, event: RunEvent) -> None:
        """Write an event of a training.

        Args:
            folder: Run folder.
            event: The event.
        """
        match event:
            case TrainingStarted():
                self._start(folder, event)
            case UpdateCompleted() if folder in self.runs and event.progress.update % LOSS_WINDOW == 0:
                values = _update_values(event, event.progress.training_loss)
                self._write(folder, "training", values, event.progress.update)
            case ValidationCompleted() if folder in self.runs:
                self._write(folder, "validation", event.metrics, event.progress.update)
            case TrainingStopped() if folder in self.runs:
                self.client.set_terminated(self.runs.pop(folder), "FINISHED")

    def close(self) -> None:
        """Mark the runs of trainings that have not ended as killed; as failed while an error is handled.

        Ctrl-C and an interruption by a callback are no errors. A resumed training continues its run.
        """
        status = "FAILED" if isinstance(sys.exception(), Exception) else "KILLED"
        while self.runs:
            self.client.set_terminated(self.runs.popitem()[1], status)

    def _start(self, folder: Path, event: TrainingStarted) -> None:
        """Create the run of a new training, with its settings, or find that of a resumed one."""
        from mlflow import MlflowClient

        if self.client is None:
            self.client = MlflowClient(self.tracking_uri)
        experiment = _find_experiment(self.client, self.experiment)
        tag = str(folder.resolve())
        settings = _run_settings(load_run_config(folder))
        last = self._find_run(experiment, tag)
        if last is not None and (event.progress.update or _was_interrupted_at_once(last, settings)):
            run = str(last.info.run_id)
            self.client.update_run(run, status="RUNNING")
        else:
            tags = {FOLDER_TAG: tag, VERSION_TAG: __version__}
            run = self.client.create_run(experiment, tags=tags, run_name=folder.name).info.run_id
        if not event.progress.update:
            self._write_settings(run, settings)
        self.runs[folder] = run

    def _find_run(self, experiment: str, tag: str) -> Any | None:  # noqa: ANN401 (a class of MLflow)
        """Return the last run of a folder; None if there is none."""
        mark = "'" if '"' in tag else '"'  # a text of MLflow has either, and no escapes
        runs = self.client.search_runs([experiment], f"tags.`{FOLDER_TAG}` = {mark}{tag}{mark}", max_results=1)
        return runs[0] if runs else None

    def _write_settings(self, run: str, settings: Mapping[str, str]) -> None:
        """Write settings as parameters."""
        from mlflow.entities import Param

        params = [Param(key, value) for key, value in settings.items()]
        for start in range(0, len(params), MAX_PARAMS_PER_REQUEST):
            self.client.log_batch(run, params=params[start : start + MAX_PARAMS_PER_REQUEST])

    def _write(self, folder: Path, group: str, values: dict[str, float], step: int) -> None:
        """Write some metrics of one step."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [
            Metric(re.sub(r"[^\w\-. /:]", "_", f"{group}/{name}"), value, now, step) for name, value in values.items()
        ]
        self.client.log_batch(self.runs[folder], metrics=metrics)


def _run_settings(config: Config) -> dict[str, str]:
    """Return all settings that are not empty, as values of parameters."""
    settings = {key: str(value)[:MAX_VALUE_LENGTH] for key, value in flatten_config(config).items()}
    return {key: value for key, value in settings.items() if value}


def _was_interrupted_at_once(run: Any, settings: Mapping[str, str]) -> bool:  # noqa: ANN401 (a class of MLflow)
    """Return whether a training without an update continues a run: the run is unfinished, with the same settings.

    A run of another training, whose folder was removed, is not continued.
    """
    return bool(run.info.status != "FINISHED" and run.data.params.items() <= settings.items())


def _find_experiment(client: Any, name: str) -> str:  # noqa: ANN401 (a class of MLflow)
    """Return the identifier of an experiment of MLflow, which is created if it is missing."""
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name))
        except Exception:
            found = client.get_experiment_by_name(name)  # a training that runs in parallel may have created it
            if found is None:
                raise
    return str(found.experiment_id)
