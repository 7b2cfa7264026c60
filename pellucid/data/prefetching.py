"""The batches of a training in their order: each prepared when it is wanted, or the next one while one is used."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from jaxtyping import Int
from numpy import ndarray

from pellucid.data.batches import Batch

Plan = Sequence[Int[ndarray, " B"]]
"""The rows of each batch of an epoch."""


class Upcoming(NamedTuple):
    """A batch, ready to be used."""

    batch: Batch
    batches: int
    """How many its epoch has."""


def in_order(plans: Iterable[Plan], start: int, prepare: Callable[[ndarray], Batch]) -> Iterator[Upcoming]:
    """The batches of these epochs, without the first `start` of the first."""
    for plan in plans:
        for rows in islice(plan, start, None):
            yield Upcoming(prepare(rows), len(plan))
        start = 0


class Prompt:
    """Each batch is prepared when it is asked for, by whoever asks."""

    def __init__(self, batches: Iterator[Upcoming]) -> None:
        """Nothing is prepared yet."""
        self.batches = batches

    def next(self) -> Upcoming:
        """The next batch; `StopIteration` after the last."""
        return next(self.batches)

    def close(self) -> None:
        """Nothing is under way."""


class Ahead:
    """The next batch is prepared by a thread of its own while its forerunner is used; never more than that one."""

    def __init__(self, batches: Iterator[Upcoming]) -> None:
        """The first batch is begun at once."""
        self.batches = batches
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="pellucid-ahead")
        self.coming: Future[Upcoming] = self._begun()

    def next(self) -> Upcoming:
        """The next batch; `StopIteration` after the last, and whatever error its preparation ended in."""
        batch = self.coming.result()
        self.coming = self._begun()
        return batch

    def close(self) -> None:
        """Wait for what is under way, and end the thread."""
        self.worker.shutdown(cancel_futures=True)

    def _begun(self) -> Future[Upcoming]:
        """The preparation of one more batch."""
        return self.worker.submit(next, self.batches)


Feed = Prompt | Ahead
