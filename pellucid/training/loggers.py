"""Callbacks that write a training to TensorBoard and to MLflow; each needs the extra of its name.

They are also values of the setting `training.callbacks`: "tensorboard" and "mlflow".
"""

import os
import re
import time
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

EXPERIMENT = "pellucid"
"""Name of the experiment of MLflow, unless another is given."""
FOLDER_TAG, VERSION_TAG = "pellucid.folder", "pellucid.version"
"""Tags of a run of MLflow: the run folder, by which a resumed training finds its run, and the version."""
MAX_PARAMS = 100
"""Maximum number of parameters of a request to MLflow."""
MAX_VALUE = 500
"""Maximum number of characters of the value of a parameter, which all versions of MLflow accept."""


class TensorBoardCallback:
    """Writer of the curves of a training for TensorBoard, by default into the folder `tensorboard` of the run.

    Scalars are the loss, the learning rate and the gradient norm of each update (`training/...`), and the metrics of
    each validation (`validation/...`); a text has the settings. Steps are updates. After a training is resumed,
    TensorBoard leaves out the updates that are repeated.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        """Check that the package is installed; nothing is written yet.

        Args:
            folder: Folder of the event files, which then has a subfolder for each run; None for the run folder.

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
                self._open(folder, event)
            case UpdateCompleted() if folder in self.writers:
                values = {
                    "loss": event.loss,
                    "learning_rate": event.learning_rate,
                    "gradient_norm": event.gradient_norm,
                }
                self._write(folder, "training", values, event.progress.update)
            case ValidationCompleted() if folder in self.writers:
                self._write(folder, "validation", event.metrics, event.progress.update)
                self.writers[folder].flush()
            case TrainingStopped() if folder in self.writers:
                self.writers.pop(folder).close()

    def close(self) -> None:
        """Close all event files."""
        while self.writers:
            self.writers.popitem()[1].close()

    def _open(self, folder: Path, event: TrainingStarted) -> None:
        """Open the event file of a training, and write its settings."""
        from torch.utils.tensorboard import SummaryWriter

        place = folder / TENSORBOARD if self.folder is None else self.folder / folder.name
        update = event.progress.update
        writer: Any = SummaryWriter(str(place), purge_step=update + 1 if update else 0)
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
        self.experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
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
                self._open(folder, event)
            case UpdateCompleted() if folder in self.runs and event.progress.update % LOSS_WINDOW == 0:
                values = {
                    "loss": event.progress.training_loss,
                    "learning_rate": event.learning_rate,
                    "gradient_norm": event.gradient_norm,
                }
                self._write(folder, "training", values, event.progress.update)
            case ValidationCompleted() if folder in self.runs:
                self._write(folder, "validation", event.metrics, event.progress.update)
            case TrainingStopped() if folder in self.runs:
                self.client.set_terminated(self.runs.pop(folder), "FINISHED")

    def close(self) -> None:
        """Mark the runs of trainings that have not ended as killed; a resumed training continues them."""
        while self.runs:
            self.client.set_terminated(self.runs.popitem()[1], "KILLED")

    def _open(self, folder: Path, event: TrainingStarted) -> None:
        """Create the run of a new training, with its settings, or find that of a resumed one."""
        from mlflow import MlflowClient

        if self.client is None:
            self.client = MlflowClient(self.tracking_uri)
        found = self.client.get_experiment_by_name(self.experiment)
        experiment = self.client.create_experiment(self.experiment) if found is None else found.experiment_id
        tag = str(folder.resolve())
        if event.progress.update and (run := self._find_run(experiment, tag)):
            self.client.update_run(run, status="RUNNING")
        else:
            tags = {FOLDER_TAG: tag, VERSION_TAG: __version__}
            run = self.client.create_run(experiment, tags=tags, run_name=folder.name).info.run_id
            self._write_settings(run, load_run_config(folder))
        self.runs[folder] = run

    def _find_run(self, experiment: str, tag: str) -> str:
        """Return the last run of a folder; "" if there is none."""
        mark = "'" if '"' in tag else '"'  # a text of MLflow has either, and no escapes
        runs = self.client.search_runs([experiment], f"tags.`{FOLDER_TAG}` = {mark}{tag}{mark}", max_results=1)
        return str(runs[0].info.run_id) if runs else ""

    def _write_settings(self, run: str, config: Config) -> None:
        """Write all settings that are not empty as parameters."""
        from mlflow.entities import Param

        settings = {key: str(value)[:MAX_VALUE] for key, value in flatten_config(config).items()}
        params = [Param(key, value) for key, value in settings.items() if value]
        for start in range(0, len(params), MAX_PARAMS):
            self.client.log_batch(run, params=params[start : start + MAX_PARAMS])

    def _write(self, folder: Path, group: str, values: dict[str, float], step: int) -> None:
        """Write some metrics of one step."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [
            Metric(re.sub(r"[^\w\-. /:]", "_", f"{group}/{name}"), value, now, step) for name, value in values.items()
        ]
        self.client.log_batch(self.runs[folder], metrics=metrics)
