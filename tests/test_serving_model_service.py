"""A batch is decoded in parts, and given up as soon as nobody waits for it."""

import asyncio
from pathlib import Path
from typing import Any

from service_process import run_coroutine

from pellucid.serving.batch_queue import PendingRequest
from pellucid.serving.decoding_worker import BatchJob
from pellucid.serving.metrics import ServiceMetrics
from pellucid.serving.model_service import ModelService, divide_batch
from pellucid.serving.options import ServiceOptions
from pellucid.serving.schema import NBestRequest, PredictRequest, SourceRow


class RecordingWorker:
    """Worker that answers with the source of each row, and gives requests up after some jobs."""

    def __init__(self, given_up: list[PendingRequest], after: int) -> None:
        self.given_up, self.after, self.jobs = given_up, after, list[BatchJob]()

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
