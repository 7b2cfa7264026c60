"""Batch loaders: generators of the batches of a training, each prepared when it is requested or one batch ahead."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from numpy import ndarray

from pellucid.data.batches import Batch
from pellucid.shapes import Int

EpochBatches = Sequence[Int[ndarray, " B"]]
"""Indices of the examples (rows) of each batch of an epoch."""


class LoadedBatch(NamedTuple):
    """A batch that is ready for use."""

    batch: Batch
    num_batches: int
    """Number of batches in its epoch."""


def iterate_batches(
    plans: Iterable[EpochBatches], start: int, load_batch: Callable[[ndarray], Batch]
) -> Generator[LoadedBatch]:
    """Yield the batches of all epochs in order; each is prepared when it is requested.

    Args:
        plans: Rows of the batches of each epoch.
        start: Number of batches to skip in the first epoch, when a training resumes.
        load_batch: Function that returns the batch of some rows.
    """
    for plan in plans:
        for rows in islice(plan, start, None):
            yield LoadedBatch(load_batch(rows), len(plan))
        start = 0


def prefetch(batches: Iterator[LoadedBatch]) -> Generator[LoadedBatch]:
    """Yield batches; while one is used, the next is prepared in a background thread.

    Closing the generator waits for the batch in preparation, and stops the thread.

    Args:
        batches: Iterator that prepares each batch; it runs in the thread, from the first request on.

    Yields:
        The batches in order. An error of the preparation is raised where its batch would be yielded.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="pellucid-ahead") as worker:
        next_batch = worker.submit(next, batches, None)
        while (batch := next_batch.result()) is not None:
            next_batch = worker.submit(next, batches, None)
            yield batch
