"""A model of the service: its queue, its worker processes, their restart, and the reload of a changed run folder."""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pellucid.decoding.streaming import chunked
from pellucid.errors import RunError
from pellucid.run_folder.unfinished_training import find_unfinished
from pellucid.serving.batch_queue import BatchQueue, PendingRequest, options_without_rows
from pellucid.serving.decoding_worker import BatchJob, OptionsError, Row
from pellucid.serving.metrics import ServiceMetrics
from pellucid.serving.model_worker import ModelWorker, abort_workers, describe_worker_error, start_workers
from pellucid.serving.options import ServiceOptions
from pellucid.serving.schema import DecodingRequest, ModelInfo, OperationName, PairRow
from pellucid.worker_pool import WorkerDiedError

LOGGER = logging.getLogger("pellucid.serving")
MAX_LOADS = 5
"""Number of attempts to load a model whose files change while several workers load it."""
MAX_RESTART_SECONDS = 30.0
"""Maximum pause before the next attempt to start a worker."""
RELOAD_PAUSE_SECONDS = 5.0
"""Pause before the next attempt to load a changed folder, if the process that loaded it was killed; it doubles with
each attempt."""
MAX_RELOAD_PAUSE_SECONDS = 600.0
"""Maximum pause before the next attempt."""
DEFAULT_BEAM_SIZE = 5
"""Assumed beam size of a request that gives none."""
JOB_DIVISOR = 4
"""A job has a quarter of the sources that a stream decodes together, for the same number of outputs."""
WATCHED_FILES = ("config.toml", "vocabulary.json", "model.safetensors", "pair_ngram.safetensors", "confidence.json")
Fingerprint = tuple[tuple[str, int, int, int], ...]
"""Path, time of change, size and inode of each file that a model is loaded from."""


class WorkerFailedError(RuntimeError):
    """A request that ended its worker process, or failed by an error of this program."""


def fingerprint_run(folder: Path) -> Fingerprint:
    """Return the state of the files of a run folder, or of an ensemble's members, from which a model is loaded.

    Args:
        folder: Run folder. Files that are missing have no entry.
    """
    entries = []
    for pattern in ("ensemble.json", *WATCHED_FILES, *(f"*/{name}" for name in WATCHED_FILES)):
        for path in sorted(folder.glob(pattern)):
            try:
                status = path.stat()
            except OSError:
                continue
            entries.append((str(path), status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(entries)


def divide_batch(batch: Sequence[PendingRequest]) -> Iterator[BatchJob]:
    """Yield the rows of a batch in jobs of a few seconds at most, so that a batch for which nobody waits ends early.

    Batches of words are one job. Rows with many symbols, or with a large beam, are divided.

    Args:
        batch: Requests with the same operation and options.
    """
    operation, options = batch[0].operation, batch[0].options
    sizes = [getattr(options, name, None) or DEFAULT_BEAM_SIZE for name in ("beam_size", "count")]
    numbered = [(row, number) for request in batch for number, row in enumerate(request.rows)]
    for part in chunked(numbered, JOB_DIVISOR * max(sizes), lambda item: count_row_characters(item[0])):
        rows, numbers = zip(*part, strict=True)
        yield BatchJob(operation, options, rows, numbers)


def count_row_characters(row: Row) -> int:
    """Return the number of characters of a row.

    Args:
        row: Row of a request.
    """
    return len(row.source) + len(row.features) + (len(row.target) if isinstance(row, PairRow) else 0)


@dataclass(eq=False)
class ModelService:
    """A named model that answers requests."""

    name: str
    folder: Path
    options: ServiceOptions
    metrics: ServiceMetrics
    workers: list[ModelWorker] = field(default_factory=list)
    loaded_at: str = ""
    reload_error: str = ""
    loaded_files: Fingerprint = ()
    """State of the files of the model that answers."""
    attempted_files: Fingerprint = ()
    """State of the files at the last attempt to load them."""
    _old_workers: list[ModelWorker] = field(default_factory=list)
    """Workers of an earlier model that end after their batch."""
    _reload_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create the queue."""
        self.queue = BatchQueue(self.options.max_queued_rows, self.options.max_rows)

    async def start(self) -> None:
        """Load the model and begin to answer.

        Raises:
            InputError: The model cannot be loaded.
        """
        self._set_workers(await self._start_workers())
        await self._report_missing_validations()
        self._tasks = [asyncio.create_task(self._serve(slot)) for slot in range(self.options.workers)]
        if self.options.reload_interval:
            self._tasks.append(asyncio.create_task(self._watch()))

    async def _start_workers(self) -> list[ModelWorker]:
        """Start all workers; again if the files have changed meanwhile, so that all of them have the same model."""
        for _ in range(MAX_LOADS):
            self.attempted_files = await self._fingerprint()
            workers = await start_workers(self.folder, self.options)
            try:
                is_same = len(workers) == 1 or self.attempted_files == await self._fingerprint()
            except BaseException:  # the service stops
                await abort_workers(workers)
                raise
            if is_same:
                return workers
            await abort_workers(workers)
        raise RunError(f"{self.folder}: the files changed while they were loaded; copy the run before it is served")

    async def _fingerprint(self) -> Fingerprint:
        """Return the state of the files now."""
        return await asyncio.to_thread(fingerprint_run, self.folder)

    def _set_workers(self, workers: list[ModelWorker]) -> None:
        """Answer by these workers from now on."""
        self.workers, self.loaded_files, self.reload_error = workers, self.attempted_files, ""
        self.loaded_at = datetime.now(UTC).isoformat(timespec="seconds")

    @property
    def num_ready(self) -> int:
        """Number of workers whose process runs with a loaded model."""
        return sum(worker.is_alive and bool(worker.task) for worker in self.workers)

    @property
    def task(self) -> str:
        """Task of the model."""
        return next((worker.task for worker in self.workers if worker.task), "")

    @property
    def info(self) -> ModelInfo:
        """Description of the model."""
        return ModelInfo(
            name=self.name,
            task=self.task,
            operations=next((worker.operations for worker in self.workers if worker.task), []),
            ready=self.num_ready > 0,
            loaded_at=self.loaded_at,
            reload_error=self.reload_error,
        )

    async def _serve(self, slot: int) -> None:
        """Decode batch after batch by one worker."""
        while True:
            if not self.workers[slot].is_alive:
                await self._replace_worker(slot)
            take = asyncio.ensure_future(self.queue.take_batch())
            await asyncio.wait({take}, timeout=1.0)  # an idle worker that is killed is noticed within a second
            if not take.done():
                take.cancel()
            elif self.workers[slot].is_alive:
                await self._decode(self.workers[slot], take.result())
            else:  # the worker ended while it was idle, which is not a failure of these requests
                self.queue.put_back(take.result())

    async def _decode(self, worker: ModelWorker, batch: Sequence[PendingRequest]) -> None:
        """Decode a batch, and give each request its results or an error."""
        started = time.monotonic()
        try:
            async with worker.batch_lock:
                results = await self._run_parts(worker, batch)
        except OptionsError as error:
            self._fail(batch, error)
            return
        except WorkerDiedError as error:
            LOGGER.warning("%s: a worker process ended during a batch of %d requests: %s", self.name, len(batch), error)
            self._retry(batch)
            return
        except Exception as error:
            reason = describe_worker_error(error)
            LOGGER.error("%s: a batch of %d requests failed: %s", self.name, len(batch), reason)
            self._retry(batch)
            return
        if results:
            self._deliver(batch, results, started)

    async def _run_parts(self, worker: ModelWorker, batch: Sequence[PendingRequest]) -> list[bytes]:
        """Return the results of a batch; none if nobody waits any more, which is checked before each part."""
        results = list[bytes]()
        for part in divide_batch(batch):
            if all(request.results.done() for request in batch):
                LOGGER.info("%s: a batch was given up, because nobody waits for it any more", self.name)
                return []
            results += await worker.run(part, 2 * self.options.timeout)
        return results

    def _deliver(self, batch: Sequence[PendingRequest], results: list[bytes], started: float) -> None:
        """Give each request its results, and record the batch."""
        self.queue.record_time(started, len(results))
        self.metrics.observe("pellucid_batch_rows", {"model": self.name}, float(len(results)))
        self.metrics.count("pellucid_rows_total", {"model": self.name}, len(results))
        for request in batch:
            part, results = results[: len(request.rows)], results[len(request.rows) :]
            if not request.results.done():
                request.results.set_result(part)

    def _retry(self, batch: Sequence[PendingRequest]) -> None:
        """Put the requests of a failed batch back, each to be decoded alone.

        A request fails after one failure more than there are workers: all of them may have been killed just before.
        """
        for request in batch:
            request.failures += 1
        failed = [request for request in batch if request.failures > self.options.workers]
        self._fail(failed, WorkerFailedError("the worker failed on this request"))
        self.queue.put_back([request for request in batch if not request.results.done()])

    @staticmethod
    def _fail(batch: Sequence[PendingRequest], error: Exception) -> None:
        """Give requests an error."""
        for request in batch:
            if not request.results.done():
                request.results.set_exception(error)

    async def _replace_worker(self, slot: int) -> None:
        """Restart an ended worker, or wait until a reload replaces it, whichever is first."""
        restart = asyncio.ensure_future(self._restart(slot))
        try:
            while not restart.done() and not self.workers[slot].is_alive:
                await asyncio.wait({restart}, timeout=0.5)
        finally:
            restart.cancel()
            (result,) = await asyncio.gather(restart, return_exceptions=True)
            if isinstance(result, Exception):  # an error of this program; the next attempt follows
                LOGGER.error("%s: the restart of a worker failed: %s", self.name, describe_worker_error(result))

    async def _restart(self, slot: int) -> None:
        """Replace an ended worker; try again until the model can be loaded."""
        pause = 0.5
        while not self.workers[slot].is_alive:
            await self.workers[slot].close()
            try:
                await self._load_again(slot)
            except Exception as error:
                LOGGER.error("%s: a worker process cannot be started: %s", self.name, describe_worker_error(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_RESTART_SECONDS)

    async def _load_again(self, slot: int) -> None:
        """Load the model in place of an ended worker; if its files have changed, load it in all workers."""
        before = await self._fingerprint()
        if before != self.loaded_files:
            await self._reload()
            return
        worker = ModelWorker(self.folder, self.options)
        try:
            await worker.start()
            is_same = self.loaded_files == before == await self._fingerprint()
        except BaseException:  # also if the service stops, which would wait for the process forever
            await worker.abort()
            raise
        if self.workers[slot].is_alive or not is_same:  # a reload has replaced all workers, or will
            await worker.abort()
            return
        self.workers[slot], self.attempted_files, self.reload_error = worker, before, ""
        self.metrics.count("pellucid_worker_restarts_total", {"model": self.name})
        LOGGER.warning("%s: a worker process was restarted", self.name)

    async def _watch(self) -> None:
        """Load the run folder again when its files have changed and stay the same for one interval.

        If the process that loads them is killed, they may be right, and are loaded again after pauses that grow.
        """
        killed: Fingerprint | None = None  # the files whose loading was killed
        pause = next_attempt = 0.0
        while True:
            before = await self._fingerprint()
            await asyncio.sleep(self.options.reload_interval)
            is_due = before != self.attempted_files or (before == killed and time.monotonic() >= next_attempt)
            if is_due and before == await self._fingerprint():
                killed_before, killed = killed, None
                try:
                    await self._reload()
                except WorkerDiedError:
                    is_again = killed_before == self.attempted_files
                    pause = min(2 * pause, MAX_RELOAD_PAUSE_SECONDS) if is_again else RELOAD_PAUSE_SECONDS
                    killed, next_attempt = self.attempted_files, time.monotonic() + pause
                except Exception:
                    LOGGER.debug("%s: the error of the reload is in the log", self.name)

    async def _reload(self) -> None:
        """Load the changed model; the earlier one answers meanwhile, and stays if the new one cannot be loaded."""
        async with self._reload_lock:
            if self.loaded_files == await self._fingerprint():  # another call has loaded it, or the files are restored
                self.attempted_files, self.reload_error = self.loaded_files, ""
                return
            try:
                workers = await self._start_workers()
            except Exception as error:
                self.reload_error = describe_worker_error(error)
                self.metrics.count("pellucid_reloads_total", {"model": self.name, "result": "error"})
                LOGGER.error("%s: the changed run folder cannot be loaded: %s", self.name, self.reload_error)
                raise
            self._old_workers += self.workers
            self._set_workers(workers)
        self.metrics.count("pellucid_reloads_total", {"model": self.name, "result": "ok"})
        LOGGER.info("%s: the changed run folder was loaded", self.name)
        await self._report_missing_validations()
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.create_task(self._close_old_workers()))

    async def _report_missing_validations(self) -> None:
        """Log a warning for each training without a validation, whose pair n-gram model predicts alone."""
        with suppress(RunError):  # the folder is being replaced; the next reload reports it
            for unfinished in await asyncio.to_thread(find_unfinished, self.folder):
                if not unfinished.validated:
                    is_member = Path(unfinished.run) != self.folder
                    member = f"{Path(unfinished.run).name}: " if is_member else ""
                    LOGGER.warning("%s: %s%s", self.name, member, unfinished.description)

    async def _close_old_workers(self) -> None:
        """End the workers of an earlier model after their batch."""
        for worker in list(self._old_workers):
            async with worker.batch_lock:
                await worker.close()
            if worker in self._old_workers:
                self._old_workers.remove(worker)

    @staticmethod
    def make_pending_request(operation: OperationName, request: DecodingRequest) -> PendingRequest:
        """Return a request that can be put in the queue.

        Args:
            operation: Name of the operation.
            request: Parsed request.
        """
        future = asyncio.get_running_loop().create_future()
        return PendingRequest(operation, options_without_rows(request), request.rows, future)

    async def stop(self) -> None:
        """End the workers. Requests that are still queued get an error."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.queue.fail_all(WorkerFailedError("the service stops"))
        await abort_workers((*self.workers, *self._old_workers))
