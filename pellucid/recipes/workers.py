"""Independent jobs side by side, each in a process of its own with one thread."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from os import cpu_count
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_parallel(task: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
    """The results in the order of the jobs, as many at once as there are cores; a single job runs right here."""
    if len(jobs) == 1:
        yield task(jobs[0])
        return
    with ProcessPoolExecutor(min(len(jobs), cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        yield from pool.map(task, jobs)
