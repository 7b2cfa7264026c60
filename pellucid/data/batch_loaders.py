"""The batches of a training in their order: each prepared when it is wanted, or the next one while one is used."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from jaxtyping import Int
from numpy import ndarray

from pellucid.data.batches import Batch

EpochBatches = Sequence[Int[ndarray, " B"]]
"""The rows of each batch of an epoch."""


class LoadedBatch(NamedTuple):
    """A batch, ready to be used."""

    batch: Batch
    batches: int
    """How many its epoch has."""


def iterate_batches(
    plans: Iterable[EpochBatches], start: int, prepare: Callable[[ndarray], Batch]
) -> Iterator[LoadedBatch]:
    """The batches of these epochs, without the first `start` of the first."""
    for plan in plans:
        for rows in islice(plan, start, None):
            yield LoadedBatch(prepare(rows), len(plan))
        start = 0


class SynchronousLoader:
    """Each batch is prepared when it is asked for, by whoever asks."""

    def __init__(self, batches: Iterator[LoadedBatch]) -> None:
        """Nothing is prepared yet."""
        self.batches = batches

    def next(self) -> LoadedBatch:
        """The next batch; `StopIteration` after the last."""
        return next(self.batches)

    def close(self) -> None:
        """Nothing is under way."""


class PrefetchLoader:
    """The next batch is prepared by a thread of its own while its forerunner is used; never more than that one."""

    def __init__(self, batches: Iterator[LoadedBatch]) -> None:
        """The first batch is begun at once."""
        self.batches = batches
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="pellucid-ahead")
        self.next_batch: Future[LoadedBatch] = self._prepare_next()

    def next(self) -> LoadedBatch:
        """The next batch; `StopIteration` after the last, and whatever error its preparation ended in."""
        batch = self.next_batch.result()
        self.next_batch = self._prepare_next()
        return batch

    def close(self) -> None:
        """Wait for what is under way, and end the thread."""
        self.worker.shutdown(cancel_futures=True)

    def _prepare_next(self) -> Future[LoadedBatch]:
        """The preparation of one more batch."""
        return self.worker.submit(next, self.batches)


BatchLoader = SynchronousLoader | PrefetchLoader
