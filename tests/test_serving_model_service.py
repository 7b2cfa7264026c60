"""A batch is decoded in parts, and given up as soon as nobody waits for it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from service_process import run_coroutine

from pellucid.errors import InputError
from pellucid.serving import model_service
from pellucid.serving.batch_queue import PendingRequest
from pellucid.serving.decoding_worker import BatchJob
from pellucid.serving.metrics import ServiceMetrics
from pellucid.serving.model_service import ModelService, divide_batch
from pellucid.serving.model_worker import ModelWorker
from pellucid.serving.options import ServiceOptions
from pellucid.serving.schema import NBestRequest, PredictRequest, SourceRow
from pellucid.worker_pool import WorkerDiedError


class RecordingWorker:
    """Worker that answers with the source of each row, and gives requests up after some jobs."""

    def __init__(self, given_up: list[PendingRequest], after: int) -> None:
        self.given_up, self.after, self.jobs = given_up, after, list[BatchJob]()
        self.in_use = asyncio.Lock()

    async def run(self, job: BatchJob, timeout: float) -> list[bytes]:
        self.jobs.append(job)
        if len(self.jobs) == self.after:
            for request in self.given_up:
                request.results.cancel()
        return [row.source.encode() for row in job.rows]


def make_request(sources: list[str], options: Any = None) -> PendingRequest:  # noqa: ANN401
    rows = [SourceRow(source=source) for source in sources]
    request = options or PredictRequest(rows=[])
    return PendingRequest("predict", request, rows, asyncio.get_running_loop().create_future())


def test_batches_of_words_are_one_job_and_long_rows_are_divided_in_order() -> None:
    async def run() -> None:
        words = [make_request(["word"] * 128), make_request(["other"] * 128)]
        (job,) = divide_batch(words)
        assert len(job.rows) == 256 and job.numbers == (*range(128), *range(128))
        long = make_request(["a" * 200] * 256)
        jobs = list(divide_batch([long]))
        assert len(jobs) > 10 and [number for job in jobs for number in job.numbers] == [*range(256)]
        wide = list(divide_batch([make_request(["a" * 200] * 64, NBestRequest(rows=[], count=64))]))
        assert max(len(job.rows) for job in wide) <= 2

    run_coroutine(run())


def test_a_batch_is_given_up_when_all_its_clients_have_left() -> None:
    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        gone, kept = make_request(["a" * 200] * 100), make_request(["b"])
        worker: Any = RecordingWorker([gone], 1)
        await service._decode(worker, [gone])
        assert len(worker.jobs) == 1 and "pellucid_rows_total" not in service.metrics.counters
        other = make_request(["a" * 200] * 100)
        worker = RecordingWorker([other], 1)
        await service._decode(worker, [other, kept])
        assert len(worker.jobs) > 2 and kept.results.result() == [b"b"]

    run_coroutine(run())


class SlowWorker(RecordingWorker):
    """Worker of which each job takes a moment, and that fails after its end."""

    def __init__(self) -> None:
        super().__init__([], 0)
        self.is_closed = False

    async def run(self, job: BatchJob, timeout: float) -> list[bytes]:
        assert not self.is_closed
        await asyncio.sleep(0.01)
        return await super().run(job, timeout)

    async def abort(self) -> None:
        self.is_closed = True

    async def close(self) -> None:
        self.is_closed = True


def test_a_reload_waits_for_all_parts_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        earlier: Any = SlowWorker()
        service.workers = [earlier]
        new: Any = SlowWorker()

        async def start(folder: Path, options: ServiceOptions) -> list[Any]:
            return [new]

        monkeypatch.setattr(model_service, "start_workers", start)
        monkeypatch.setattr(service, "_use", lambda workers: setattr(service, "workers", workers))
        request = make_request(["a" * 200] * 100)
        batch = asyncio.create_task(service._decode(earlier, [request]))
        await asyncio.sleep(0.015)
        await service._reload()
        assert earlier.is_closed and service.workers == [new] and len(request.results.result()) == 100
        await batch

    run_coroutine(run())


def test_a_stop_ends_workers_that_a_reload_has_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        earlier, new = SlowWorker(), SlowWorker()
        service.workers = [earlier]  # type: ignore[list-item]

        async def start(folder: Path, options: ServiceOptions) -> list[Any]:
            return [new]

        monkeypatch.setattr(model_service, "start_workers", start)
        monkeypatch.setattr(service, "_use", lambda workers: setattr(service, "workers", workers))
        async with earlier.in_use:
            service._tasks = [asyncio.create_task(service._reload())]
            await asyncio.sleep(0.01)
            await service.stop()
        assert earlier.is_closed and new.is_closed

    run_coroutine(run())


def test_a_reload_whose_process_was_killed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        service.fingerprint = (("config.toml", 1, 1, 1),)

        async def start(folder: Path, options: ServiceOptions) -> list[Any]:
            raise WorkerDiedError("killed")

        monkeypatch.setattr(model_service, "start_workers", start)
        monkeypatch.setattr(model_service, "RELOAD_PAUSE_SECONDS", 0.0)
        await service._reload()
        assert service.reload_error == "killed" and not service.fingerprint

    run_coroutine(run())


class LoadingWorker:
    """Worker that never finishes loading."""

    def __init__(self, folder: Path, options: ServiceOptions) -> None:
        self.is_alive, self.is_closed = False, False
        LOADING.append(self)

    async def start(self) -> None:
        await asyncio.sleep(1000)

    async def abort(self) -> None:
        self.is_closed = True

    async def close(self) -> None:
        self.is_closed = True


LOADING = list[LoadingWorker]()


def test_a_reload_ends_the_restart_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        ended, alive = LoadingWorker(Path(), ServiceOptions()), LoadingWorker(Path(), ServiceOptions())
        alive.is_alive = True
        service.workers = [ended]  # type: ignore[list-item]
        monkeypatch.setattr(model_service, "ModelWorker", LoadingWorker)
        replacement = asyncio.create_task(service._replace_worker(0))
        await asyncio.sleep(0.1)
        service.workers = [alive]  # type: ignore[list-item]
        await asyncio.wait_for(replacement, 20)
        assert len(LOADING) == 3 and LOADING[2].is_closed and not alive.is_closed

    run_coroutine(run())


class RestartedWorker(ModelWorker):
    """Worker without a process, whose model cannot be loaded at first."""

    failures = 2

    @property
    def is_alive(self) -> bool:
        return bool(self.task)

    async def start(self) -> None:
        if RestartedWorker.failures:
            RestartedWorker.failures -= 1
            raise InputError("the file is cut")
        self.task = "transduce"


def test_a_worker_is_restarted_after_failed_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the second attempt closed the ended worker once more, which failed, and so all requests did."""

    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        service.workers = [RestartedWorker(Path("run"), ServiceOptions())]
        await service._restart(0)
        assert service.workers[0].is_alive and RestartedWorker.failures == 0

    monkeypatch.setattr(model_service, "ModelWorker", RestartedWorker)
    run_coroutine(run())


def test_a_closed_worker_is_closed_again_and_runs_no_job() -> None:
    async def run() -> None:
        worker = ModelWorker(Path("run"), ServiceOptions())
        await worker.close()
        await worker.close()
        with pytest.raises(WorkerDiedError, match="has ended"):
            await worker.run(BatchJob("predict", PredictRequest(rows=[]), (), ()), 1.0)

    run_coroutine(run())
