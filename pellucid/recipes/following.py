"""What a person sees while a recipe trains: which training of how many, and how far it is."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pellucid.config.settings import Config
from pellucid.recipes.recipe import Request
from pellucid.reporting.progress import MultiProgress
from pellucid.training.ensemble_training import throttle
from pellucid.training.session import Files, train_run
from pellucid.worker_pool import ProgressCallback, parallel_map

Job = TypeVar("Job")
Result = TypeVar("Result")


class Reached(NamedTuple):
    """How far a training of a lesson is."""

    samples: int
    total: int
    state: str


def followed(
    task: Callable[[Job, ProgressCallback], Result], jobs: Sequence[tuple[str, Job]], request: Request
) -> Iterator[Result]:
    """The results of jobs side by side, in their order; what each says on its way is told under its name."""
    names = [f"{name} ({place} of {len(jobs)})" if len(jobs) > 1 else name for place, (name, _) in enumerate(jobs, 1)]
    return parallel_map(task, [job for _, job in jobs], partial(_hear, request.seen, names))


def train_telling(files: Files, folder: Path, config: Config, tell: ProgressCallback) -> None:
    """Train on one thread, or go on, or find it finished; its events are told, of the updates some."""
    for _, told in throttle(train_run(files, folder, config)):
        if told is not None:
            tell(told)


def teller(request: Request, name: str) -> ProgressCallback:
    """What tells of a training that runs right here."""
    return partial(_hear, request.seen, [name], 0)


def _hear(seen: MultiProgress | None, names: Sequence[str], job: int, what: Any) -> None:  # noqa: ANN401 (as it was told)
    """ProgressCallback of one job."""
    if seen is None:
        return
    match what:
        case Reached():
            seen.update_samples(names[job], what.samples, what.total, what.state)
        case str():
            seen.print_line(f"{names[job]}: {what}")
        case _:
            seen.report(names[job], what)
