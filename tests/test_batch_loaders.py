"""Batch loaders: the same batches in the same order, at most one ahead, and no thread left."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice

import numpy as np
import pytest
import torch

from pellucid.data.batch_loaders import BatchLoader, LoadedBatch, PrefetchLoader, SynchronousLoader, iterate_batches
from pellucid.data.batches import Batch
from pellucid.errors import RunError

KINDS = pytest.mark.parametrize("kind", [SynchronousLoader, PrefetchLoader])


def batch(number: int) -> Batch:
    ids = torch.full((1, 1), number)
    return Batch(ids, torch.ones(1), ids, torch.ones(1))


def numbers(made: list[int], last: int = 1000) -> Iterator[LoadedBatch]:
    for number in range(last):
        made.append(number)
        yield LoadedBatch(batch(number), last)


def workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pellucid-ahead")]


def load_all(feed: BatchLoader, count: int) -> list[int]:
    return [int(feed.next().batch.source) for _ in range(count)]


def wait_until(true: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not true() and time.monotonic() - began < 10:
        time.sleep(0.001)
    assert true()


def test_epochs_follow_each_other_from_any_batch() -> None:
    plans = [[np.array([1]), np.array([2, 3]), np.array([4])], [np.array([5])], [np.array([6]), np.array([7])]]
    told = [
        (int(u.batch.source[0, 0]), u.num_batches) for u in iterate_batches(plans, 1, lambda rows: batch(int(rows[-1])))
    ]
    assert told == [(3, 3), (4, 3), (5, 1), (6, 2), (7, 2)]
    assert [u.num_batches for u in iterate_batches(plans, 3, lambda rows: batch(0))] == [1, 2, 2]


@KINDS
def test_all_batches_arrive_in_order(kind: type[SynchronousLoader] | type[PrefetchLoader]) -> None:
    with closing(kind(numbers([], last=20))) as feed:
        assert load_all(feed, 20) == list(range(20))
        with pytest.raises(StopIteration):
            feed.next()
    assert workers() == []


def test_at_most_one_batch_is_prepared_ahead() -> None:
    made: list[int] = []
    with closing(PrefetchLoader(numbers(made))) as feed:
        for number in range(5):
            wait_until(lambda: len(made) == number + 1)  # noqa: B023 (called at once)
            time.sleep(0.005)
            assert made[-1] == number
            assert load_all(feed, 1) == [number]
    assert made == list(range(6)) or made == list(range(5))


def test_batches_are_prepared_in_the_background() -> None:
    def slow() -> Iterator[LoadedBatch]:
        for upcoming in numbers([]):
            time.sleep(0.05)
            yield upcoming

    with closing(PrefetchLoader(slow())) as feed:
        feed.next()
        time.sleep(0.2)
        began = time.perf_counter()
        feed.next()
        assert time.perf_counter() - began < 0.04


@pytest.mark.parametrize("error", [RunError("no such page"), MemoryError(), KeyboardInterrupt()])
@KINDS
def test_an_error_is_raised_at_its_batch(
    kind: type[SynchronousLoader] | type[PrefetchLoader], error: BaseException
) -> None:
    def failing() -> Iterator[LoadedBatch]:
        yield from islice(numbers([]), 3)
        raise error

    with closing(kind(failing())) as feed:
        assert load_all(feed, 3) == [0, 1, 2]
        with pytest.raises(type(error)) as caught:
            feed.next()
        assert caught.value is error
    assert workers() == []


@KINDS
def test_closing_early_leaves_no_thread(kind: type[SynchronousLoader] | type[PrefetchLoader]) -> None:
    feed = kind(numbers([]))
    load_all(feed, 2)
    feed.close()
    assert workers() == []
