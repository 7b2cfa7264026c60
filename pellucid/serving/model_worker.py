"""A worker process as the event loop sees it."""

import asyncio
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pellucid.errors import InputError
from pellucid.serving.decoding_worker import BatchJob, LoadedModel, LoadJob, ModelRunner
from pellucid.serving.options import ServiceOptions
from pellucid.serving.schema import OperationName
from pellucid.worker_pool import JobFailure, JobResult, Worker, WorkerDiedError

LOAD_SECONDS = 300.0
"""Time limit of loading a model."""


class ModelWorker:
    """A worker process with a loaded model. A thread of its own waits for the process."""

    def __init__(self, folder: Path, options: ServiceOptions) -> None:
        """Initialize without starting the process.

        Args:
            folder: Run folder.
            options: Options of the service.
        """
        self.folder = folder
        self.options = options
        self.task = ""
        self.operations: list[OperationName] = []
        self._executor = ThreadPoolExecutor(1, "pellucid-worker")
        self._worker: Worker | None = None
        self._job_lock = asyncio.Lock()
        self._is_closed = False
        self._is_late = False
        self.batch_lock = asyncio.Lock()
        """Held while a batch is decoded, which may take several jobs."""

    @property
    def is_alive(self) -> bool:
        """True if the process runs."""
        return self._worker is not None and self._worker.process.is_alive()

    @property
    def process_id(self) -> int | None:
        """Identity of the process; None before it is started."""
        return None if self._worker is None else self._worker.process.pid

    async def start(self) -> None:
        """Start the process and load the model.

        Raises:
            InputError: The run folder cannot be loaded, or the process ended.
            WorkerError: Loading failed by an error of this program.
        """
        await self._in_thread(self._start_process)
        job = LoadJob(self.folder, self.options.threads, self.options.max_symbols)
        loaded: LoadedModel = await self.run(job, LOAD_SECONDS)
        self.task, self.operations = loaded

    def _start_process(self) -> None:
        """Start the process. `close` ends it even if nobody waits for the start any more."""
        self._worker = Worker(ModelRunner())

    async def run(self, job: LoadJob | BatchJob, timeout: float) -> Any:  # noqa: ANN401 (as `ModelRunner`)
        """Run a job in the process, and return its result.

        Args:
            job: Job.
            timeout: Seconds after which the process is killed.

        Raises:
            InputError: The job failed by a user's mistake.
            WorkerDiedError: The process ended, or was killed because of its time.
            WorkerError: The job failed by an error of this program.
        """
        async with self._job_lock:
            if self._is_closed:
                raise WorkerDiedError("the worker process has ended")
            self._is_late = False
            timer = asyncio.get_running_loop().call_later(timeout, self._kill_late)
            try:
                event = await self._in_thread(self._run, job)
            finally:
                timer.cancel()
        if not isinstance(event, JobFailure):
            return event.value
        if self._is_late and isinstance(event.error, WorkerDiedError):
            raise WorkerDiedError(f"the worker process did not answer within {timeout:g} seconds, and was ended")
        raise event.error

    def _run(self, job: LoadJob | BatchJob) -> JobResult | JobFailure:
        """Send a job to the process, and wait for its last event."""
        if self._worker is None or self._worker.connection.closed:
            return JobFailure(0, WorkerDiedError("the worker process has ended"))
        self._worker.submit(0, job)
        event = self._worker.receive(0)
        assert isinstance(event, JobResult | JobFailure), "jobs of the service report no progress"
        return event

    def _kill_late(self) -> None:
        """Kill the process after the time limit of its job."""
        self._is_late = True
        self.kill()

    def kill(self) -> None:
        """Kill the process; the job that it runs fails."""
        if self._worker is not None:
            self._worker.process.kill()

    async def abort(self) -> None:
        """Kill the process and wait for its end; the job that it runs fails."""
        self.kill()
        await self.close()

    async def close(self) -> None:
        """Wait for the running job, then end the process. A second call does nothing."""
        async with self._job_lock:
            if self._is_closed:
                return
            await self._in_thread(self._end_process)
            self._is_closed = True
        self._executor.shutdown(wait=False)

    def _end_process(self) -> None:
        """End the process, if it was started and is not ended."""
        if self._worker is not None and not self._worker.connection.closed:
            self._worker.close()

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 (any function)
        """Call a function in the thread of this worker."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


async def start_workers(folder: Path, options: ServiceOptions) -> list[ModelWorker]:
    """Start all worker processes of a model.

    Args:
        folder: Run folder.
        options: Options of the service.

    Returns:
        Workers with a loaded model.

    Raises:
        InputError: A process cannot load the model; the others are ended.
    """
    workers = [ModelWorker(folder, options) for _ in range(options.workers)]
    try:
        await run_together(worker.start() for worker in workers)
    except BaseException:
        await abort_workers(workers)
        raise
    return workers


async def abort_workers(workers: Iterable[ModelWorker]) -> None:
    """Kill the processes of workers and wait for their end.

    Args:
        workers: Workers.
    """
    await asyncio.gather(*(worker.abort() for worker in workers))


async def run_together(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines concurrently.

    Args:
        coroutines: Coroutines.

    Raises:
        Exception: The first error of a coroutine. The others are cancelled, and have ended.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def describe_worker_error(error: Exception) -> str:
    """Return the reason of an error as one line; an error of this program is named by the last line of its traceback.

    Args:
        error: Error of `start_workers` or of a job.
    """
    if isinstance(error, InputError):
        return str(error)
    return f"internal error: {str(error).strip().splitlines()[-1]}" if str(error) else type(error).__name__
