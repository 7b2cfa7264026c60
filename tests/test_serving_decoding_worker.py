"""A batch has one result per row, in order; bad rows have an error and change no other result."""

import json
import signal
from collections.abc import Sequence
from multiprocessing import Pipe
from typing import Any

import pytest
from small_networks import make_config
from trained_runs import copy_task_run

from pellucid.data.tokenizers import Tokenizer
from pellucid.data.vocabulary import Vocabularies, Vocabulary
from pellucid.errors import DataError
from pellucid.kernels import dispatch
from pellucid.run_folder.predictor_loader import load_without_warnings
from pellucid.serving import decoding_worker
from pellucid.serving.decoding_worker import BatchJob, ModelRunner, OptionsError, Row
from pellucid.serving.schema import (
    AlignRequest,
    DecodingRequest,
    NBestRequest,
    OperationName,
    PairRow,
    PredictRequest,
    ScoreRequest,
    SourceRow,
)
from pellucid.tasks.registry import build_network, get_task
from pellucid.worker_pool import WorkerChannel

CHANNEL = WorkerChannel(Pipe()[0], 0, None)
"""Connection of a job, which batches do not use."""


@pytest.fixture(scope="module")
def state() -> ModelRunner:
    return ModelRunner(load_without_warnings(copy_task_run().run), 10)


def test_disabled_kernels_are_not_compiled_for_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: with PELLUCID_PLAIN=1, on a computer without compiled kernels, the worker compiled them, and a
    service did not start within its limit on a busy one."""
    monkeypatch.setenv("PELLUCID_PLAIN", "1")
    monkeypatch.setattr(dispatch, "is_cache_complete", lambda: False)
    monkeypatch.setattr(dispatch, "load_kernels", lambda: pytest.fail("the kernels are loaded or compiled"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    job = decoding_worker.LoadJob(copy_task_run().run, 1, 10)
    loaded = ModelRunner()(job, CHANNEL)
    assert loaded == ("transduce", ["predict", "nbest", "score", "attention", "align"])


def decode_pairs(state: ModelRunner, rows: Sequence[Row]) -> list[Any]:
    job = BatchJob("score", ScoreRequest(rows=[]), rows, range(len(rows)))
    return [json.loads(result) for result in state(job, CHANNEL)]


def test_one_bad_row_costs_a_few_batches_and_changes_no_other_result(
    state: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict(rows: list[Row]) -> list[Any]:
        job = BatchJob("predict", PredictRequest(rows=[]), rows, range(len(rows)))
        return [json.loads(result) for result in state(job, CHANNEL)]

    rows: list[Row] = [SourceRow(source="abc"[: 1 + i % 3], prefix="a") for i in range(64)]
    expected, sizes = predict(rows), list[int]()
    decode_rows = decoding_worker.decode_rows

    def count_rows(*arguments: Any) -> Any:  # noqa: ANN401
        sizes.append(len(arguments[-1]))
        return decode_rows(*arguments)

    monkeypatch.setattr(decoding_worker, "decode_rows", count_rows)
    rows[37] = SourceRow(source="ab", prefix="é")
    results = predict(rows)
    assert 2 < len(sizes) <= 13 and sum(sizes) < 4 * len(rows)
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


def test_many_bad_rows_are_not_decoded(state: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: 256 rows, of which every second source was empty, were decoded as 2,304 rows."""
    sizes, decode_rows = list[int](), decoding_worker.decode_rows

    def count_rows(*arguments: Any) -> Any:  # noqa: ANN401
        sizes.append(len(arguments[-1]))
        return decode_rows(*arguments)

    monkeypatch.setattr(decoding_worker, "decode_rows", count_rows)
    bad = [PairRow(source="", target="a"), PairRow(source="a" * 11, target="a"), PairRow(source="a", target="a" * 11)]
    bad.append(PairRow(source="a", target="a", features="x"))
    rows = [row for each in bad for row in (each, PairRow(source="a", target="b"))] * 8
    results = decode_pairs(state, rows)
    assert sizes == [32] and [("error" in result) for result in results] == [True, False] * 32
    assert results[0]["error"]["message"].startswith("rows[0]: source: expected at least one symbol")
    assert "rows[6]: the source has features" in results[6]["error"]["message"]
    assert decode_pairs(state, [bad[0]])[0]["error"] and sizes == [32]


def test_symbols_are_counted_after_normalization(state: ModelRunner) -> None:
    """Regression test: a text of as many characters as the limit has symbols was not counted."""
    tokenizer = Tokenizer("characters", normalization="nfc")
    with pytest.raises(DataError, match="at most 10 symbols, got 30"):
        state._check_length("source", "\U0001d160" * 10, tokenizer)


def make_runner(task: str) -> ModelRunner:
    """Return a runner with a new model of a task."""
    config = make_config({"task": task})
    vocabulary = Vocabulary(tuple("xyz"), (3, 2, 1))
    vocabularies = Vocabularies(Vocabulary(tuple("abc"), (3, 2, 1)), vocabulary, Vocabulary((), ()), 5, 6)
    network = build_network(config, vocabularies).eval()
    return ModelRunner(get_task(task).build_predictor(config, vocabularies, network, task), 10)


@pytest.mark.parametrize(
    ("task", "operation", "options", "text"),
    [
        ("classify", "predict", PredictRequest(rows=[], beam_size=7), "beam_size: "),
        ("tag", "nbest", NBestRequest(rows=[], count=3), "count: expected 1, because"),
        ("tag", "align", AlignRequest(rows=[]), "align: "),
    ],
)
def test_an_option_that_the_model_does_not_support_is_an_error_of_the_request(
    task: str, operation: OperationName, options: DecodingRequest, text: str
) -> None:
    """Regression test: each row had the error, after many attempts to decode it."""
    rows = [PairRow(source="ab", target="xy")] if operation == "align" else [SourceRow(source="ab")] * 256
    with pytest.raises(OptionsError) as caught:
        make_runner(task)(BatchJob(operation, options, rows, range(len(rows))), CHANNEL)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_bad_rows_of_labels_are_named(task: str) -> None:
    runner = make_runner(task)
    rows: list[Row] = [PairRow(source="ab", target=""), PairRow(source="ab", target="xy" if task == "tag" else "x")]
    bad, good = decode_pairs(runner, rows)
    assert bad["error"]["message"] == "rows[0]: the target is empty" and "score" in good
    job = BatchJob("predict", PredictRequest(rows=[]), [SourceRow(source="ab", prefix="x")], [0])
    (prefix,) = map(json.loads, runner(job, CHANNEL))
    assert prefix["error"]["message"].startswith("rows[0]: prefix: ")


def test_a_long_prefix_is_refused_before_it_is_decoded(state: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_worker, "decode_rows", lambda *_: pytest.fail("the row is decoded"))
    job = BatchJob("predict", PredictRequest(rows=[]), [SourceRow(source="abc", prefix="a" * 11)], [0])
    [result] = map(json.loads, state(job, CHANNEL))
    assert result["error"]["message"] == "rows[0]: prefix: expected at most 10 symbols, got 11; divide the row"
