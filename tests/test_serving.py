"""`pellucid serve` in a process of its own: results, limits, hostile clients, restart, reload, shutdown."""

import json
import math
import os
import random
import shutil
import signal
import socket
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_process import ServiceProcess, running_service, wait_until
from small_networks import make_config
from trained_runs import copy_task_run

from pellucid.data.examples import Example
from pellucid.data.vocabulary import Vocabularies, Vocabulary
from pellucid.decoding.predictor import Predictor
from pellucid.run_folder.predictor_loader import load_without_warnings
from pellucid.run_folder.predictor_saver import save
from pellucid.tasks.registry import build_network, get_task

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    run = copy_task_run().run
    arguments = [f"copy={run}", f"other={run}", "--port", "0", "--log-format", "json", "--max-rows", "40"]
    with running_service(tmp_path_factory.mktemp("service"), *arguments, "--max-symbols", "50") as running:
        yield running


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return load_without_warnings(copy_task_run().run)


def make_sources(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices("abc", k=chance.randint(1, 8))) for _ in range(count)]


def make_label_predictor(task: str, folder: Path) -> Predictor:
    """Write a new model of a task to a folder, and load it."""
    config, counts = make_config({"task": task}), (3, 2, 1)
    source, target = Vocabulary(tuple("abc"), counts), Vocabulary(tuple("xyz"), counts)
    vocabularies = Vocabularies(source, target, Vocabulary((), ()), 5, 6)
    network = build_network(config, vocabularies).eval()
    save(get_task(task).build_predictor(config, vocabularies, network, task), folder)
    return load_without_warnings(folder)


def as_rows(sources: list[str]) -> list[dict[str, str]]:
    return [{"source": source} for source in sources]


def test_results_equal_those_of_predict_one_by_one_in_order(service: ServiceProcess, predictor: Predictor) -> None:
    sources = make_sources(200)
    with ThreadPoolExecutor(16) as executor:
        parts = [sources[first : first + 5] for first in range(0, 200, 5)]
        replies = list(executor.map(lambda part: service.post("predict", rows=as_rows(part)), parts))
    results = [result for reply in replies for result in reply.json["results"]]
    for source, result in zip(sources, results, strict=True):
        (trace,) = predictor.predict([source])
        assert result["output"] == trace.output
        assert result["score"] == pytest.approx(trace.score, abs=1e-5)


def test_nbest_score_attention_and_align_equal_the_predictor(service: ServiceProcess, predictor: Predictor) -> None:
    (expected,) = predictor.nbest(["abc"], 3)
    (nbest,) = service.post("nbest", rows=as_rows(["abc"]), count=3, model="other").json["results"]
    assert [output["output"] for output in nbest["outputs"]] == [trace.output for trace in expected]
    (attention,) = service.post("attention", rows=as_rows(["abc"])).json["results"]
    assert attention["output"] == expected[0].output and len(attention["attention"]) == len(expected[0].target)
    pair = {"source": "abc", "target": "abc"}
    (score,) = service.post("score", rows=[pair]).json["results"]
    (trace,) = predictor.score_examples([Example("abc", "abc")])
    assert score["score"] == pytest.approx(trace.score, abs=1e-5) and score["symbols"] == list(trace.target)
    (aligned,) = service.post("align", rows=[pair]).json["results"]
    (alignment,) = predictor.align([Example("abc", "abc")])
    assert alignment is not None and aligned["chunks"] == [list(chunk) for chunk in alignment.chunks]


def test_a_number_without_a_fraction_is_an_integer(service: ServiceProcess) -> None:
    first, second = [service.post("nbest", rows=as_rows(["abc"]), count=count, beam_size=count) for count in (3, 3.0)]
    assert first.status == 200 and first.json == second.json


def test_a_bad_row_has_an_error_and_the_others_have_results(service: ServiceProcess) -> None:
    rows = [{"source": "ab", "target": "ab"}, {"source": "", "target": "a"}, {"source": "a" * 51, "target": "a"}]
    reply = service.post("score", rows=rows)
    assert reply.status == 200
    first, second, third = reply.json["results"]
    assert "score" in first
    assert second["error"]["message"].startswith("rows[1]: ") and second["error"]["status"] == 422
    assert "rows[2]: source: expected at most 50 symbols, got 51" in third["error"]["message"]


@pytest.mark.parametrize(
    ("operation", "content", "status", "text"),
    [
        ("predict", {}, 400, "rows"),
        ("predict", {"rows": []}, 400, "$.rows"),
        ("predict", {"rows": [{"source": "a"}, {"source": 1}]}, 400, "$.rows[1].source"),
        ("predict", {"rows": [{"source": "a"}], "beam": 3}, 400, "beam"),
        ("predict", {"rows": [{"source": "a"}], "beam_size": 65}, 400, "$.beam_size"),
        ("predict", {"rows": [{"source": "a"}], "beam_size": 65.0}, 400, "$.beam_size"),
        ("predict", {"rows": [{"source": "a"}], "beam_size": 2.5}, 400, "$.beam_size"),
        ("predict", {"rows": [{"source": "a"}], "model": "coppy"}, 404, "copy"),
        ("predict", {"rows": [{"source": "a"}] * 41}, 413, "at most 40"),
        ("tag", {"rows": [{"source": "a"}]}, 409, "task tag"),
        ("score", {"rows": [{"source": "a"}]}, 400, "target"),
    ],
)
def test_errors_name_the_field_and_what_was_expected(
    service: ServiceProcess, operation: str, content: dict[str, Any], status: int, text: str
) -> None:
    reply = service.post(operation, **content)
    error = reply.json["error"]
    assert (reply.status, error["status"]) == (status, status)
    assert text in error["message"] and error["code"] and error["request_id"] == reply.headers["x-request-id"]


ROW = b'{"rows": [{"source": %s}]}'


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff\xfe", b"[]", b"null", ROW % b'"\xff"', ROW % b'"\\ud800"', ROW % b"NaN", ROW % b"1e999"),
        ROW % (b"[" * 100_000),
        b'{"beam_size": 1' + b"0" * 5000 + b', "rows": [{"source": "a"}]}',
        b'{"beam_size": NaN, "rows": [{"source": "a"}]}',
    ],
)
def test_malformed_bodies_are_refused(service: ServiceProcess, body: bytes) -> None:
    reply = service.send("/v1/predict", body)
    assert reply.status == 400 and reply.json["error"]["message"]


def test_half_of_a_surrogate_pair_is_named(service: ServiceProcess) -> None:
    """Regression test: the message said that the input was truncated."""
    assert "half of a surrogate pair" in service.send("/v1/predict", ROW % b'"\\ud83d"').json["error"]["message"]
    assert service.send("/v1/predict", ROW % b'"\\uD83D\\uDE00"').status == 200


def test_large_bodies_are_refused_also_without_a_length(service: ServiceProcess) -> None:
    assert service.send("/v1/predict", ROW % (b'"' + b"a" * (1 << 20) + b'"')).status == 413
    connection = service.connect()
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    chunks = (b" " * (1 << 18) for _ in range(8))
    connection.request("POST", "/v1/predict", chunks, headers, encode_chunked=True)
    response = connection.getresponse()
    assert response.status == 413 and response.read()
    connection.close()
    assert service.send("/health").status == 200


def test_other_content_types_hosts_and_origins_are_refused(service: ServiceProcess) -> None:
    body = ROW % b'"a"'
    assert service.send("/v1/predict", body, {"Content-Type": "text/plain"}).status == 415
    assert service.send("/v1/models", headers={"Host": "evil.example"}).json["error"]["code"] == "host_refused"
    assert service.send("/v1/predict", body, {"Origin": "http://evil.example"}).status == 403
    assert service.send("/v1/predict").status == 405 and service.send("/none").status == 404


def test_pipelined_requests_are_answered_in_order(service: ServiceProcess) -> None:
    lines = (b"POST /v1/predict HTTP/1.1", b"Host: localhost", b"Content-Type: application/json", b"Content-Length: %d")
    request = b"\r\n".join((*lines, b"", b"%s"))
    bodies = [ROW % b'"a"', ROW % b'"b"', b"{"]
    with socket.create_connection(("127.0.0.1", service.port), 30) as client:
        client.sendall(b"".join(request % (len(body), body) for body in bodies))
        received = b""
        while received.count(b"HTTP/1.1 ") < 3 or not received.endswith(b"}}"):
            received += client.recv(65536)
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"400"]


def test_pages_and_metrics(service: ServiceProcess) -> None:
    assert b"curl" in service.send("/").body and service.send("/health").json == {"status": "ok"}
    models = service.send("/v1/models").json["models"]
    assert [model["name"] for model in models] == ["copy", "other"] and "align" in models[0]["operations"]
    service.post("predict", rows=as_rows(["ab"]))
    metrics = service.send("/metrics").body.decode()
    assert 'pellucid_ready_workers{model="copy"} 1' in metrics
    assert 'pellucid_batch_rows_bucket{model="copy",le="+Inf"}' in metrics
    reply = service.send("/health", headers={"X-Request-ID": "mine-1"})
    assert reply.headers["x-request-id"] == "mine-1"
    wait_until(lambda: "mine-1" in service.log.read_text())
    assert all(json.loads(line)["level"] for line in service.log.read_text().splitlines())


@pytest.mark.slow
def test_a_killed_worker_is_restarted_and_its_requests_are_answered(service: ServiceProcess) -> None:
    (before, *_), rows = service.worker_ids(), as_rows(make_sources(40))
    with ThreadPoolExecutor(8) as executor:
        replies = [executor.submit(service.post, "predict", rows=rows) for _ in range(16)]
        os.kill(before, signal.SIGKILL)
        assert {reply.result().status for reply in replies} == {200}
    wait_until(lambda: before not in service.worker_ids() and service.send("/ready").status == 200)
    assert service.post("predict", rows=rows).status == 200


@pytest.mark.slow
def test_a_changed_run_is_reloaded_and_a_broken_one_reported(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(copy_task_run().run, run)
    with running_service(tmp_path, str(run), "--port", "0", "--reload-interval", "0.2") as service:
        (before,) = service.send("/v1/models").json["models"]
        time.sleep(1.1)
        (run / "config.toml").touch()
        wait_until(lambda: service.send("/v1/models").json["models"][0]["loaded_at"] != before["loaded_at"])
        content = (run / "model.safetensors").read_bytes()
        (run / "model.safetensors").write_bytes(content[:100])
        wait_until(lambda: bool(service.send("/v1/models").json["models"][0]["reload_error"]))
        assert service.post("predict", rows=as_rows(["ab"])).status == 200
        (run / "model.safetensors").write_bytes(content)
        wait_until(lambda: not service.send("/v1/models").json["models"][0]["reload_error"])


@pytest.mark.slow
def test_no_answer_is_lost_on_sigterm(tmp_path: Path) -> None:
    rows = as_rows(make_sources(200))
    with running_service(tmp_path, str(copy_task_run().run), "--port", "0", "--max-queued-rows", "10000") as service:
        with ThreadPoolExecutor(16) as executor:
            replies = [executor.submit(service.post, "predict", rows=rows) for _ in range(16)]
            wait_until(lambda: 'path="/v1/predict"' in service.send("/metrics").body.decode())
            service.process.send_signal(signal.SIGTERM)
            assert [len(reply.result().json["results"]) for reply in replies] == [200] * 16
        assert service.process.wait(30) == 0
    assert "service stopped" in service.log.read_text()


@pytest.mark.slow
def test_unix_socket_and_token(tmp_path: Path) -> None:
    path, token = tmp_path / "socket", tmp_path / "token"
    token.write_text(TOKEN + "\n")
    arguments = [str(copy_task_run().run), "--unix-socket", str(path), "--token-file", str(token)]
    with running_service(tmp_path, *arguments, "--allow-origin", "https://page.example") as service:
        assert service.address == str(path) and service.send("/health").status == 200
        for header in ("", "Bearer wrong", f"Basic {TOKEN}", "Bearer é"):
            assert (
                service.send("/v1/models", headers={"Authorization": header.encode().decode("latin-1")}).status == 401
            )
        own = {"Authorization": f"Bearer {TOKEN}", "Origin": "https://page.example"}
        reply = service.send("/v1/predict", ROW % b'"ab"', own)
        assert reply.status == 200 and reply.headers["access-control-allow-origin"] == "https://page.example"
        metrics = service.send("/metrics", headers=own).body.decode()
        assert 'pellucid_requests_total{path="/v1/models",status="401"} 4' in metrics
    assert not path.exists()


@pytest.mark.slow
def test_a_missing_run_and_an_open_address_are_errors_of_the_user(tmp_path: Path) -> None:
    cases = (([f"{tmp_path / 'none'}", "--port", "0"], "no such folder"), (["a", "--host", "::"], "--token-file"))
    for arguments, text in cases:
        command = [sys.executable, "-m", "pellucid", "serve", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert result.returncode == 2 and text in result.stderr and "Traceback" not in result.stderr


@pytest.mark.slow
def test_two_workers_answer_and_each_is_restarted(tmp_path: Path, predictor: Predictor) -> None:
    sources = make_sources(60)
    expected = [trace.output for trace in predictor.predict(sources)]
    with running_service(tmp_path, str(copy_task_run().run), "--port", "0", "--workers", "2") as service:
        before = service.worker_ids()
        assert len(before) == 2
        with ThreadPoolExecutor(8) as executor:
            replies = executor.map(lambda source: service.post("predict", rows=as_rows([source])), sources)
            assert [reply.json["results"][0]["output"] for reply in replies] == expected
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        assert service.post("predict", rows=as_rows(sources)).status == 200
        ready = 'pellucid_ready_workers{model="run"} 2'
        wait_until(lambda: ready in service.send("/metrics").body.decode())
        assert len(service.worker_ids()) == 2 and not {*before} & {*service.worker_ids()}


@pytest.mark.slow
def test_tag_and_classify_equal_the_predictor(tmp_path: Path) -> None:
    predictors = {task: make_label_predictor(task, tmp_path / task) for task in ("tag", "classify")}
    arguments = [f"{task}={tmp_path / task}" for task in predictors]
    with running_service(tmp_path, *arguments, "--port", "0") as service:
        (tagged, empty) = service.post("tag", model="tag", rows=as_rows(["abc", ""])).json["results"]
        (trace,) = predictors["tag"].predict(["abc"])
        assert tagged["symbols"] == ["a", "b", "c"] and tagged["tags"] == list(trace.target)
        assert tagged["probabilities"] == pytest.approx(np.exp(trace.log_probabilities).tolist(), abs=1e-5)
        assert empty == {"symbols": [], "tags": [], "probabilities": []}
        (label, empty) = service.post("classify", model="classify", rows=as_rows(["abc", ""])).json["results"]
        (trace,) = predictors["classify"].predict(["abc"])
        assert label["label"] == trace.output and label["probability"] == pytest.approx(math.exp(trace.score), abs=1e-5)
        assert dict(label["top"])[label["label"]] == pytest.approx(label["probability"], abs=1e-5)
        assert "expected at least one symbol" in empty["error"]["message"]
        wrong = service.post("predict", model="classify", rows=as_rows(["abc"]), beam_size=7)
        assert wrong.status == 400 and wrong.json["error"]["message"].startswith("beam_size: ")
        assert service.post("tag", model="classify", rows=as_rows(["abc"])).status == 409


@pytest.mark.slow
def test_full_queue_and_timeout(tmp_path: Path) -> None:
    arguments = [str(copy_task_run().run), "--port", "0", "--max-queued-rows", "60", "--max-rows", "60"]
    rows = as_rows(["".join(random.Random(1).choices(string.ascii_lowercase[:3], k=40))] * 60)
    with running_service(tmp_path, *arguments) as service, ThreadPoolExecutor(8) as executor:
        replies = list(executor.map(lambda _: service.post("predict", rows=rows), range(8)))
        assert {reply.status for reply in replies} == {200, 503}
        full = next(reply for reply in replies if reply.status == 503)
        assert full.json["error"]["code"] == "queue_full" and int(full.headers["retry-after"]) >= 1
    with running_service(tmp_path, *arguments, "--timeout", "0.001") as service:
        assert service.post("predict", rows=rows).status == 504
        assert service.send("/health").status == 200
