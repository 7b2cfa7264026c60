"""What waits while a batch is decoded is the next batch; the queue is bounded and forgets abandoned requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from service_process import run_coroutine

from pellucid.serving.batch_queue import (
    MAX_RETRY_SECONDS,
    BatchQueue,
    PendingRequest,
    QueueFullError,
    options_without_rows,
)
from pellucid.serving.schema import PredictRequest, SourceRow


def make_request(count: int, beam_size: int | None = None) -> PendingRequest:
    rows = [SourceRow(source="a")] * count
    request = PredictRequest(rows=rows, model="m", beam_size=beam_size)
    return PendingRequest("predict", options_without_rows(request), rows, asyncio.get_running_loop().create_future())


def run_queue(check: Callable[[BatchQueue], Awaitable[None]], max_rows: int = 20, max_batch_rows: int = 8) -> None:
    async def run() -> None:
        await check(BatchQueue(max_rows, max_batch_rows))

    run_coroutine(run())


def test_a_batch_holds_all_waiting_requests_with_the_same_options_up_to_its_limit() -> None:
    async def check(queue: BatchQueue) -> None:
        one, other, two, large, three = (
            make_request(2),
            make_request(2, 3),
            make_request(3),
            make_request(4),
            make_request(3),
        )
        for request in (one, other, two, large, three):
            queue.put(request)
        assert await queue.take_batch() == [one, two, three]
        assert await queue.take_batch() == [other]
        assert await queue.take_batch() == [large] and queue.num_rows == 0

    run_queue(check)


def test_an_idle_worker_takes_a_single_request_at_once() -> None:
    async def check(queue: BatchQueue) -> None:
        waiting = asyncio.ensure_future(queue.take_batch())
        await asyncio.sleep(0)
        request, started = make_request(1), time.monotonic()
        queue.put(request)
        assert await waiting == [request] and time.monotonic() - started < 0.1

    run_queue(check)


def test_a_full_queue_refuses_and_says_when_to_try_again() -> None:
    async def check(queue: BatchQueue) -> None:
        queue.put(make_request(20))
        queue.seconds_per_row = 0.5
        with pytest.raises(QueueFullError) as caught:
            queue.put(make_request(1))
        assert caught.value.retry_seconds == 11 and queue.num_rows == 20
        queue.seconds_per_row = 100.0
        with pytest.raises(QueueFullError) as caught:
            queue.put(make_request(1))
        assert caught.value.retry_seconds == MAX_RETRY_SECONDS

    run_queue(check)


def test_a_dropped_request_frees_its_rows_and_is_never_decoded() -> None:
    async def check(queue: BatchQueue) -> None:
        gone, kept = make_request(12), make_request(3)
        queue.put(gone)
        queue.put(kept)
        assert queue.drop(gone) and queue.num_rows == 3 and gone.results.cancelled()
        assert await queue.take_batch() == [kept] and not queue.drop(kept)

    run_queue(check)


def test_a_request_that_ended_a_worker_is_decoded_alone_and_first() -> None:
    async def check(queue: BatchQueue) -> None:
        one, two, later = make_request(1), make_request(1), make_request(1)
        queue.put(later)
        one.failures = two.failures = 1
        queue.put_back([one, two])
        assert [await queue.take_batch() for _ in range(3)] == [[one], [two], [later]]

    run_queue(check)


def test_a_cancelled_wait_takes_no_request() -> None:
    async def check(queue: BatchQueue) -> None:
        waiting = asyncio.ensure_future(queue.take_batch())
        await asyncio.sleep(0)
        queue.put(make_request(1))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() and queue.num_rows == 1 and len(await queue.take_batch()) == 1

    run_queue(check)
