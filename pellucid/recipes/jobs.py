"""Run the trainings of a recipe in parallel and report their progress."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pellucid.config.settings import Config
from pellucid.recipes.recipe import RecipeRequest
from pellucid.reporting.progress import MultiProgress
from pellucid.training.ensemble_training import throttle
from pellucid.training.session import TrainingFiles, train_run
from pellucid.worker_pool import ProgressCallback, parallel_map

Job = TypeVar("Job")
Result = TypeVar("Result")


class SampleProgress(NamedTuple):
    """Progress of a training that is counted in samples."""

    samples: int
    total: int
    state: str


def run_jobs(
    task: Callable[[Job, ProgressCallback], Result], jobs: Sequence[tuple[str, Job]], request: RecipeRequest
) -> Iterator[Result]:
    """Run jobs in parallel worker processes.

    Args:
        task: Function of a job and a progress callback; it runs in a worker process.
        jobs: Name and job; the name labels the progress of the job.
        request: The recipe's request, which holds the progress display.

    Yields:
        The result of each job, in the order of the jobs.
    """
    names = [f"{name} ({number} of {len(jobs)})" if len(jobs) > 1 else name for number, (name, _) in enumerate(jobs, 1)]
    return parallel_map(task, [job for _, job in jobs], partial(_show_progress, request.progress, names))


def train_with_progress(files: TrainingFiles, folder: Path, config: Config, tell: ProgressCallback) -> None:
    """Train on one thread and report progress; resume an unfinished run and skip a finished one.

    Args:
        files: Training and validation file.
        folder: Run folder.
        config: Configuration of the run.
        tell: Progress callback; it receives every event except most update events.
    """
    for _, event in throttle(train_run(files, folder, config)):
        if event is not None:
            tell(event)


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
