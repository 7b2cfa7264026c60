"""Batch loaders: prepare the batches of a training in order, synchronously or one batch ahead."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from jaxtyping import Int
from numpy import ndarray

from pellucid.data.batches import Batch

EpochBatches = Sequence[Int[ndarray, " B"]]
"""Indices of the examples (rows) of each batch of an epoch."""


class LoadedBatch(NamedTuple):
    """A batch that is ready for use."""

    batch: Batch
    num_batches: int
    """Number of batches in its epoch."""


def iterate_batches(
    plans: Iterable[EpochBatches], start: int, load_batch: Callable[[ndarray], Batch]
) -> Iterator[LoadedBatch]:
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


class SynchronousLoader:
    """Loader that prepares each batch when it is requested, in the calling thread."""

    def __init__(self, batches: Iterator[LoadedBatch]) -> None:
        """Store the iterator of batches.

        Args:
            batches: Iterator that prepares each batch.
        """
        self.batches = batches

    def next(self) -> LoadedBatch:
        """Prepare and return the next batch; raise `StopIteration` after the last, or the error of its preparation."""
        return next(self.batches)

    def close(self) -> None:
        """Do nothing: there is no thread to stop."""


class PrefetchLoader:
    """Loader that prepares the next batch in a background thread while the current one is used."""

    def __init__(self, batches: Iterator[LoadedBatch]) -> None:
        """Start the thread and the preparation of the first batch.

        Args:
            batches: Iterator that prepares each batch; it runs in the thread.
        """
        self.batches = batches
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="pellucid-ahead")
        self.next_batch: Future[LoadedBatch] = self._prepare_next()

    def next(self) -> LoadedBatch:
        """Return the next batch; raise `StopIteration` after the last, or the error of its preparation."""
        batch = self.next_batch.result()
        self.next_batch = self._prepare_next()
        return batch

    def close(self) -> None:
        """Wait for the batch in preparation and stop the thread."""
        self.worker.shutdown(cancel_futures=True)

    def _prepare_next(self) -> Future[LoadedBatch]:
        """Start the preparation of the next batch."""
        return self.worker.submit(next, self.batches)


BatchLoader = SynchronousLoader | PrefetchLoader
