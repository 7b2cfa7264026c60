"""Bounded queue of requests from which batches are formed."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from pellucid.serving.decoding_worker import Row
from pellucid.serving.schema import DecodingRequest, OperationName

MAX_RETRY_SECONDS = 60
"""Maximum value of the Retry-After header."""


@dataclass(eq=False)
class PendingRequest:
    """A request that waits for its results."""

    operation: OperationName
    options: DecodingRequest
    """The request without its rows and its model."""
    rows: Sequence[Row]
    results: "asyncio.Future[list[bytes]]"
    """JSON text of the result of each row; cancelled if nobody waits for it any more."""
    failures: int = 0
    """Number of batches with this request that failed, or whose worker process ended."""

    def can_batch_with(self, other: "PendingRequest") -> bool:
        """Return whether two requests may be decoded in one batch. A request whose batch failed is decoded alone.

        Args:
            other: Other request.
        """
        same = (self.operation, self.options) == (other.operation, other.options)
        return same and not self.failures and not other.failures


class QueueFullError(RuntimeError):
    """A request that would exceed the maximum number of queued rows."""

    def __init__(self, retry_seconds: int) -> None:
        """Initialize with the number of seconds after which the client may try again.

        Args:
            retry_seconds: Value of the Retry-After header.
        """
        super().__init__("too many rows are waiting")
        self.retry_seconds = retry_seconds


@dataclass
class BatchQueue:
    """Queue of the requests of one model. It is used by the event loop only."""

    max_rows: int
    """Maximum number of queued rows."""
    max_batch_rows: int
    """Maximum number of rows of a batch."""
    num_rows: int = 0
    """Number of queued rows."""
    seconds_per_row: float = 0.01
    """Moving average of the time that a row takes."""
    _requests: deque[PendingRequest] = field(default_factory=deque)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, request: PendingRequest) -> None:
        """Append a request.

        Args:
            request: The request.

        Raises:
            QueueFullError: Its rows exceed the maximum number of queued rows.
        """
        if self.num_rows + len(request.rows) > self.max_rows:
            seconds = 1 + int(self.num_rows * self.seconds_per_row)
            raise QueueFullError(min(seconds, MAX_RETRY_SECONDS))
        self._insert(len(self._requests), request)

    def put_back(self, requests: Sequence[PendingRequest]) -> None:
        """Insert requests at the front, after their batch has failed.

        Args:
            requests: Requests in their order.
        """
        for request in reversed(requests):
            self._insert(0, request)

    def _insert(self, index: int, request: PendingRequest) -> None:
        """Insert a request, and wake a worker."""
        self._requests.insert(index, request)
        self.num_rows += len(request.rows)
        self._arrived.set()

    def drop(self, request: PendingRequest) -> bool:
        """Remove a request for which nobody waits any more; return whether it was still queued.

        Args:
            request: The request.
        """
        request.results.cancel()
        if request not in self._requests:
            return False
        self._remove(request)
        return True

    def _remove(self, request: PendingRequest) -> None:
        """Remove a queued request."""
        self._requests.remove(request)
        self.num_rows -= len(request.rows)

    async def take_batch(self) -> list[PendingRequest]:
        """Wait for a request, and remove it from the queue together with all others that fit it."""
        while not self._requests:
            self._arrived.clear()
            await self._arrived.wait()
        first, rows, batch = self._requests[0], 0, list[PendingRequest]()
        for request in list(self._requests):
            if request is first or (first.can_batch_with(request) and rows + len(request.rows) <= self.max_batch_rows):
                batch.append(request)
                rows += len(request.rows)
                self._remove(request)
        return batch

    def record_time(self, started: float, num_rows: int) -> None:
        """Update the time per row after a batch.

        Args:
            started: Value of `time.monotonic` at the beginning of the batch.
            num_rows: Number of rows of the batch.
        """
        self.seconds_per_row += 0.1 * ((time.monotonic() - started) / num_rows - self.seconds_per_row)

    def fail_all(self, error: Exception) -> None:
        """Remove all requests, and give them an error.

        Args:
            error: Error that their clients receive.
        """
        for request in list(self._requests):
            self._remove(request)
            if not request.results.done():
                request.results.set_exception(error)


def options_without_rows(request: DecodingRequest) -> DecodingRequest:
    """Return the options of a request, without its rows and its model.

    Args:
        request: Parsed request.
    """
    return msgspec.structs.replace(request, rows=[], model="")
