"""Batch loaders: order of the batches, at most one prefetched batch, and no remaining thread."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice

import numpy as np
import pytest
import torch

from pellucid.data.batch_loaders import LoadedBatch, iterate_batches, prefetch
from pellucid.data.batches import Batch
from pellucid.errors import RunError


def make_batch(number: int) -> Batch:
    ids = torch.full((1, 1), number)
    return Batch(ids, torch.ones(1), ids, torch.ones(1))


def make_batches(produced: list[int], count: int = 1000) -> Iterator[LoadedBatch]:
    for number in range(count):
        produced.append(number)
        yield LoadedBatch(make_batch(number), count)


def worker_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pellucid-ahead")]


def load_all(loader: Iterator[LoadedBatch], count: int) -> list[int]:
    return [int(next(loader).batch.source) for _ in range(count)]


def wait_until(condition: Callable[[], bool]) -> None:
    started = time.monotonic()
    while not condition() and time.monotonic() - started < 10:
        time.sleep(0.001)
    assert condition()


def test_iteration_starts_at_any_batch_and_continues_with_the_next_epochs() -> None:
    plans = [[np.array([1]), np.array([2, 3]), np.array([4])], [np.array([5])], [np.array([6]), np.array([7])]]
    loaded = [
        (int(each.batch.source[0, 0]), each.num_batches)
        for each in iterate_batches(plans, 1, lambda rows: make_batch(int(rows[-1])))
    ]
    assert loaded == [(3, 3), (4, 3), (5, 1), (6, 2), (7, 2)]
    assert [each.num_batches for each in iterate_batches(plans, 3, lambda rows: make_batch(0))] == [1, 2, 2]


def test_batches_are_prefetched_in_order() -> None:
    with closing(prefetch(make_batches([], count=20))) as loader:
        assert load_all(loader, 20) == list(range(20))
        with pytest.raises(StopIteration):
            next(loader)
    assert worker_threads() == []


def test_at_most_one_batch_is_prepared_ahead() -> None:
    produced: list[int] = []
    with closing(prefetch(make_batches(produced))) as loader:
        for number in range(5):
            assert load_all(loader, 1) == [number]
            wait_until(lambda: len(produced) == number + 2)  # noqa: B023 (called at once)
            time.sleep(0.005)
            assert produced[-1] == number + 1
    assert produced == list(range(6))


def test_batches_are_prepared_in_the_background() -> None:
    def slow_batches() -> Iterator[LoadedBatch]:
        for loaded in make_batches([]):
            time.sleep(0.05)
            yield loaded

    with closing(prefetch(slow_batches())) as loader:
        next(loader)
        time.sleep(0.2)
        started = time.perf_counter()
        next(loader)
        assert time.perf_counter() - started < 0.04


@pytest.mark.parametrize("error", [RunError("no such page"), MemoryError(), KeyboardInterrupt()])
def test_error_is_raised_at_its_batch(error: BaseException) -> None:
    def failing_batches() -> Iterator[LoadedBatch]:
        yield from islice(make_batches([]), 3)
        raise error

    with closing(prefetch(failing_batches())) as loader:
        assert load_all(loader, 3) == [0, 1, 2]
        with pytest.raises(type(error)) as caught:
            next(loader)
        assert caught.value is error
    assert worker_threads() == []


def test_loader_closed_early_has_no_remaining_thread() -> None:
    loader = prefetch(make_batches([]))
    load_all(loader, 2)
    loader.close()
    assert worker_threads() == []
