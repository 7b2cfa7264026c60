"""Run the trainings of a recipe in parallel and report their progress."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pellucid.config.settings import Config
from pellucid.recipes.recipe import RecipeRequest
from pellucid.reporting.progress import MultiProgress
from pellucid.training.ensemble_training import throttle
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles
from pellucid.worker_pool import ProgressCallback, parallel_map

Job = TypeVar("Job")
Result = TypeVar("Result")


class SampleProgress(NamedTuple):
    """Progress message of a training that is counted in samples."""

    samples: int
    """Samples seen so far."""
    total: int
    """Samples of the whole training."""
    state: str
    """Text beside the progress bar, such as the last accuracy."""


def run_jobs(
    task: Callable[[Job, ProgressCallback], Result], jobs: Sequence[tuple[str, Job]], request: RecipeRequest
) -> Iterator[Result]:
    """Run jobs in parallel worker processes; a single job runs in this process.

    Args:
        task: Function of a job and a progress callback, at the top level of a module.
        jobs: Name and job; the name labels the progress of the job.
        request: The recipe's request, which holds the progress display.

    Yields:
        The result of each job, in the order of the jobs.

    Raises:
        InputError: A job raised it; the first error of a job ends all others. Other errors of a single job are raised
            as they are.
        WorkerError: A job in a worker process raised an error that is not an `InputError`.
        WorkerDiedError: A worker process was killed.
    """
    names = [f"{name} ({number} of {len(jobs)})" if len(jobs) > 1 else name for number, (name, _) in enumerate(jobs, 1)]
    return parallel_map(task, [job for _, job in jobs], partial(_show_progress, request.progress, names))


def train_with_progress(files: TrainingFiles, folder: Path, config: Config, on_progress: ProgressCallback) -> None:
    """Train a run and report progress; resume an unfinished run, and train nothing if it is finished.

    Args:
        files: Training and validation file.
        folder: Run folder.
        config: Configuration of the run, with the number of threads.
        on_progress: Progress callback; it receives the events of the training. It receives only some of the updates,
            and validations without their traces.

    Raises:
        DataError: A data file cannot be read.
        RunError: The run folder holds other files or a run with other settings, is in use, or cannot be written; or the
            training diverges.
        ConfigError: The settings do not fit the data or the machine.
    """
    for _, event in throttle(train_run(files, folder, config)):
        if event is not None:
            on_progress(event)


def progress_callback(request: RecipeRequest, name: str) -> ProgressCallback:
    """Return the progress callback of a training that runs in this process.

    Args:
        request: The recipe's request, which holds the progress display.
        name: Label of the training.
    """
    return partial(_show_progress, request.progress, [name], 0)


def _show_progress(progress: MultiProgress | None, names: Sequence[str], job: int, event: Any) -> None:  # noqa: ANN401 (any event)
    """Show an event, a message or a sample count of a job."""
    if progress is None:
        return
    match event:
        case SampleProgress():
            progress.update_samples(names[job], event.samples, event.total, event.state)
        case str():
            progress.print_line(f"{names[job]}: {event}")
        case _:
            progress.report(names[job], event)
