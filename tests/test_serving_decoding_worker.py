"""A batch has one result per row, in order; bad rows have an error and change no other result."""

import json
from multiprocessing import Pipe
from typing import Any

import pytest
from trained_runs import copy_task_run

from pellucid.run_folder.predictor_loader import load_unwarned
from pellucid.serving import decoding_worker
from pellucid.serving.decoding_worker import BatchJob, ModelRunner, Row
from pellucid.serving.schema import PairRow, PredictRequest, ScoreRequest, SourceRow
from pellucid.worker_pool import WorkerChannel

CHANNEL = WorkerChannel(Pipe()[0], 0, None)
"""Connection of a job, which batches do not use."""


@pytest.fixture(scope="module")
def state() -> ModelRunner:
    return ModelRunner(load_unwarned(copy_task_run().run), 10)


def decode_pairs(state: ModelRunner, rows: list[Row]) -> list[Any]:
    job = BatchJob("score", ScoreRequest(rows=[]), rows, range(len(rows)))
    return [json.loads(result) for result in state(job, CHANNEL)]


def test_one_bad_row_costs_a_few_batches_and_changes_no_other_result(
    state: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Row] = [PairRow(source="abc"[: 1 + i % 3], target="ab") for i in range(64)]
    expected, sizes = decode_pairs(state, rows), list[int]()
    decode_rows = decoding_worker.decode_rows

    def count_rows(*arguments: Any) -> Any:  # noqa: ANN401
        sizes.append(len(arguments[-1]))
        return decode_rows(*arguments)

    monkeypatch.setattr(decoding_worker, "decode_rows", count_rows)
    rows[37] = PairRow(source="", target="a")
    results = decode_pairs(state, rows)
    assert len(sizes) <= 13 and sum(sizes) < 4 * len(rows)
    assert results[37]["error"]["message"].startswith("rows[37]: ")
    for index in {*range(64)} - {37}:
        assert results[index]["score"] == pytest.approx(expected[index]["score"], abs=1e-5)


def test_bad_rows_are_named_by_their_number_in_their_own_request(state: ModelRunner) -> None:
    rows = [SourceRow(source="a"), SourceRow(source="a" * 11), SourceRow(source="b"), SourceRow(source="b" * 12)]
    job = BatchJob("predict", PredictRequest(rows=[]), rows, [0, 1, 0, 1])
    first, second, third, fourth = map(json.loads, state(job, CHANNEL))
    assert "output" in first and "output" in third
    assert second["error"]["message"].startswith("rows[1]: source: expected at most 10 symbols, got 11")
    assert fourth["error"]["message"].startswith("rows[1]: source: expected at most 10 symbols, got 12")


def test_rows_with_and_without_prefix_keep_their_order(state: ModelRunner) -> None:
    rows = [SourceRow(source="abc", prefix="ca"), SourceRow(source="abc"), SourceRow(source="b", prefix="c")]
    results = [
        json.loads(each) for each in state(BatchJob("predict", PredictRequest(rows=[]), rows, range(3)), CHANNEL)
    ]
    assert results[0]["output"].startswith("ca") and results[2]["output"].startswith("c")
    assert state.predictor is not None and results[1]["output"] == state.predictor.predict(["abc"])[0].output


def test_a_symbol_that_the_model_cannot_write_is_an_error_of_its_row(state: ModelRunner) -> None:
    rows = [SourceRow(source="abc", prefix="é"), SourceRow(source="abc")]
    bad, good = [
        json.loads(each) for each in state(BatchJob("predict", PredictRequest(rows=[]), rows, range(2)), CHANNEL)
    ]
    assert "output" in good and "rows[0]: prefix of the source" in bad["error"]["message"]
