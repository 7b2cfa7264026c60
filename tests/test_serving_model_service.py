"""A batch is decoded in parts, and given up as soon as nobody waits for it."""

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from service_process import run_coroutine

from pellucid.errors import InputError
from pellucid.serving import model_service, model_worker
from pellucid.serving.batch_queue import PendingRequest
from pellucid.serving.decoding_worker import BatchJob, LoadJob, OptionsError
from pellucid.serving.metrics import ServiceMetrics
from pellucid.serving.model_service import Fingerprint, ModelService, WorkerFailedError, divide_batch, fingerprint_run
from pellucid.serving.model_worker import ModelWorker
from pellucid.serving.options import ServiceOptions
from pellucid.serving.schema import NBestRequest, PredictRequest, SourceRow
from pellucid.worker_pool import WorkerDiedError, WorkerError

CHANGED = (("config.toml", 1, 1, 1),)
"""State of files that are not there any more."""


class RecordingWorker(ModelWorker):
    """Worker that answers with the source of each row, and gives requests up after some jobs."""

    def __init__(self, given_up: list[PendingRequest], after: int) -> None:
        super().__init__(Path("run"), ServiceOptions())
        self.given_up, self.after, self.jobs = given_up, after, list[BatchJob]()

    async def run(self, job: LoadJob | BatchJob, timeout: float) -> list[bytes]:
        assert isinstance(job, BatchJob)
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

    async def run(self, job: LoadJob | BatchJob, timeout: float) -> list[bytes]:
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
        service.workers, service.loaded_files = [earlier], CHANGED
        new: Any = SlowWorker()

        async def start(folder: Path, options: ServiceOptions) -> list[Any]:
            return [new]

        monkeypatch.setattr(model_service, "start_workers", start)
        request = make_request(["a" * 200] * 100)
        batch = asyncio.create_task(service._decode(earlier, [request]))
        await asyncio.sleep(0.015)
        await service._reload()
        assert not earlier.is_closed and service.workers == [new] and service.loaded_at
        await asyncio.gather(*service._tasks)
        assert earlier.is_closed and not service._old_workers and len(request.results.result()) == 100
        await batch

    run_coroutine(run())


def test_a_stop_ends_workers_that_a_reload_has_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        earlier, new = SlowWorker(), SlowWorker()
        service.workers, service.loaded_files = [earlier], CHANGED

        async def start(folder: Path, options: ServiceOptions) -> list[Any]:
            return [new]

        monkeypatch.setattr(model_service, "start_workers", start)
        async with earlier.batch_lock:
            await service._reload()
            await asyncio.sleep(0.01)
            assert not earlier.is_closed
            await service.stop()
        assert earlier.is_closed and new.is_closed

    run_coroutine(run())


def test_a_reload_whose_process_was_killed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").touch()

    async def run() -> None:
        service = ModelService("m", tmp_path, ServiceOptions(reload_interval=0.01), ServiceMetrics())
        service.loaded_files = CHANGED
        service.attempted_files = service.loaded_files
        attempts = list[int]()

        async def start(folder: Path, options: ServiceOptions) -> list[Any]:
            attempts.append(1)
            raise WorkerDiedError("killed")

        monkeypatch.setattr(model_service, "start_workers", start)
        monkeypatch.setattr(model_service, "RELOAD_PAUSE_SECONDS", 0.0)
        watching = asyncio.create_task(service._watch())
        async with asyncio.timeout(20):
            while len(attempts) < 3:
                await asyncio.sleep(0.01)
        assert service.reload_error == "killed" and not watching.done()
        watching.cancel()

    run_coroutine(run())


def test_pauses_between_attempts_to_reload_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: a model that does not fit into the memory was loaded, and killed, every few seconds."""
    clock, files = [0.0], [CHANGED]

    async def read_state(service: ModelService) -> Fingerprint:
        clock[0] += 1  # a second passes
        return files[0]

    async def run() -> None:
        service = ModelService("m", tmp_path, ServiceOptions(reload_interval=0.0001), ServiceMetrics())
        attempts = list[float]()

        async def start(folder: Path, options: ServiceOptions) -> list[Any]:
            attempts.append(clock[0])
            raise WorkerDiedError("killed")

        async def attempts_until(count: int) -> list[float]:
            async with asyncio.timeout(20):
                while len(attempts) < count:
                    await asyncio.sleep(0.001)
            return [later - earlier for earlier, later in itertools.pairwise(attempts)]

        monkeypatch.setattr(model_service, "start_workers", start)
        monkeypatch.setattr(model_service, "RELOAD_PAUSE_SECONDS", 20.0)
        monkeypatch.setattr(model_service, "MAX_RELOAD_PAUSE_SECONDS", 80.0)
        monkeypatch.setattr(model_service, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        monkeypatch.setattr(ModelService, "_fingerprint", read_state)
        watching = asyncio.create_task(service._watch())
        pauses = await attempts_until(5)
        for pause, expected in zip(pauses, (20, 40, 80, 80), strict=True):
            assert expected <= pause <= expected + 10
        files[0] = (("run/config.toml", 2, 2, 2),)  # other files are loaded at once, and begin with a short pause
        assert (await attempts_until(6))[-1] < 20
        assert 20 <= (await attempts_until(7))[-1] <= 30
        watching.cancel()

    run_coroutine(run())


class LoadingWorker(ModelWorker):
    """Worker that never finishes loading."""

    loading: "list[LoadingWorker]"

    def __init__(self, folder: Path, options: ServiceOptions) -> None:
        super().__init__(folder, options)
        self.was_started, self.is_closed = False, False
        self.loading.append(self)

    @property
    def is_alive(self) -> bool:
        return self.was_started

    async def start(self) -> None:
        await asyncio.sleep(1000)

    async def abort(self) -> None:
        self.is_closed = True

    async def close(self) -> None:
        self.is_closed = True


def test_a_reload_ends_the_restart_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadingWorker, "loading", [], raising=False)

    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        ended, alive = LoadingWorker(Path(), ServiceOptions()), LoadingWorker(Path(), ServiceOptions())
        alive.was_started = True
        service.workers = [ended]
        monkeypatch.setattr(model_service, "ModelWorker", LoadingWorker)
        replacement = asyncio.create_task(service._replace_worker(0))
        await asyncio.sleep(0.1)
        service.workers = [alive]
        await asyncio.wait_for(replacement, 20)
        started = LoadingWorker.loading[2:]
        assert [each.is_closed for each in started] == [True] and not alive.is_closed

    run_coroutine(run())


def test_files_of_an_ensemble_are_watched_whatever_its_members_are_called(tmp_path: Path) -> None:
    for folder in ("seed-1", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.toml").touch()
    before = fingerprint_run(tmp_path)
    (tmp_path / "other" / "config.toml").write_text("changed")
    assert len(before) == 2 and fingerprint_run(tmp_path) != before


class VersionWorker(LoadingWorker):
    """Worker that loads the content of a file at once."""

    version = ""

    async def start(self) -> None:
        await asyncio.sleep(0)
        self.version = (Path("config.toml")).read_text()
        self.was_started = True


def test_a_worker_that_is_restarted_after_a_change_replaces_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: without reloading, two models answered."""

    async def run() -> None:
        service = ModelService("m", tmp_path, ServiceOptions(workers=2, reload_interval=0.0), ServiceMetrics())
        service._set_workers(await service._start_workers())
        first: Any = service.workers[0]
        first.was_started = False
        await service._restart(0)
        assert service.workers[0] is not first and not service.reload_error
        before: list[Any] = list(service.workers)
        (tmp_path / "config.toml").write_text("later")
        before[1].was_started = False
        await service._restart(1)
        await asyncio.gather(*service._tasks)
        after: list[Any] = service.workers
        assert [each.version for each in after] == ["later", "later"] and all(each.is_closed for each in before)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LoadingWorker, "loading", [], raising=False)
    monkeypatch.setattr(model_service, "ModelWorker", VersionWorker)
    monkeypatch.setattr(model_worker, "ModelWorker", VersionWorker)
    (tmp_path / "config.toml").write_text("earlier")
    run_coroutine(run())


def test_workers_that_load_changing_files_are_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        service = ModelService("m", tmp_path, ServiceOptions(workers=2), ServiceMetrics())
        workers: list[Any] = await service._start_workers()
        assert [each.version for each in workers] == ["later", "later"]
        assert [each.is_closed for each in LoadingWorker.loading] == [True, True, False, False]

    class ChangedFileWorker(VersionWorker):
        """Worker during whose load the file is changed once."""

        async def start(self) -> None:
            await super().start()
            (tmp_path / "config.toml").write_text("later")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LoadingWorker, "loading", [], raising=False)
    monkeypatch.setattr(model_worker, "ModelWorker", ChangedFileWorker)
    (tmp_path / "config.toml").write_text("earlier")
    monkeypatch.setattr(  # the times of two changes may be equal
        model_service, "fingerprint_run", lambda folder: (((folder / "config.toml").read_text(), 0, 0, 0),)
    )
    run_coroutine(run())


class FailingWorker(RecordingWorker):
    """Worker that fails in a way that no user caused, or by an option, if a batch has the source "bad"."""

    def __init__(self, error: Exception) -> None:
        super().__init__([], 0)
        self.error = error

    async def run(self, job: LoadJob | BatchJob, timeout: float) -> list[bytes]:
        results = await super().run(job, timeout)
        if b"bad" in results:
            raise self.error
        return results


def test_an_error_of_one_request_does_not_fail_the_others_of_its_batch() -> None:
    """Regression test: an unexpected error in one row gave all clients of the batch status 500."""

    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        bad, good = make_request(["bad"]), make_request(["good"])
        worker: Any = FailingWorker(WorkerError("ValueError: wrong"))
        await service._decode(worker, [bad, good])
        while service.queue.num_rows:
            await service._decode(worker, await service.queue.take_batch())
        assert good.results.result() == [b"good"] and isinstance(bad.results.exception(), WorkerFailedError)
        assert [len(job.rows) for job in worker.jobs] == [2, 1, 1]

    run_coroutine(run())


def test_a_wrong_option_fails_its_requests_at_once() -> None:
    async def run() -> None:
        service = ModelService("m", Path("run"), ServiceOptions(), ServiceMetrics())
        requests = [make_request(["bad"]), make_request(["good"])]
        worker: Any = FailingWorker(OptionsError("beam_size: wrong"))
        await service._decode(worker, requests)
        assert all(isinstance(each.results.exception(), OptionsError) for each in requests)
        assert len(worker.jobs) == 1 and not service.queue.num_rows

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


@pytest.mark.slow
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


def test_a_worker_that_exceeds_its_time_is_said_to_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the message named a lack of memory."""

    async def run() -> None:
        worker = ModelWorker(Path("run"), ServiceOptions())
        try:
            with pytest.raises(WorkerDiedError, match=r"did not answer within 0\.05 seconds"):
                await worker.start()
        finally:
            await worker.abort()

    monkeypatch.setattr(model_worker, "LOAD_SECONDS", 0.05)
    run_coroutine(run())


def test_models_are_loaded_together_and_the_first_error_ends_the_others() -> None:
    ended = list[str]()

    async def wait(name: str) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(name)

    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise InputError("no model")

    async def run() -> None:
        with pytest.raises(InputError, match="no model"):
            await model_worker.run_together([wait("a"), fail(), wait("b")])
        assert sorted(ended) == ["a", "b"]

    run_coroutine(run())
