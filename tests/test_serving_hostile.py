"""Hostile clients of the service: each receives the right status, or is disconnected, and others are served."""

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from hostile_requests import (
    CHUNKED,
    POST,
    ROW,
    HostileRequest,
    all_requests,
    exchange,
    exchange_until_end,
    mutate,
    post,
)
from service_process import ServiceProcess, run_coroutine, running_service, wait_until
from trained_runs import copy_task_run

REQUESTS = all_requests()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    arguments = [f"copy={copy_task_run().run}", "--port", "0", "--log-format", "json", "--timeout", "5"]
    with running_service(tmp_path_factory.mktemp("service"), *arguments) as running:
        yield running
    text = running.log.read_text()
    assert "Traceback" not in text and "traceback" not in text
    assert all(json.loads(line)["level"] in ("info", "warning") for line in text.splitlines())


@pytest.mark.parametrize("request_", REQUESTS, ids=[each.name for each in REQUESTS])
def test_a_hostile_request_has_its_status(service: ServiceProcess, request_: HostileRequest) -> None:
    async def send() -> None:
        assert await exchange(service.port, request_.content, 8) in request_.statuses

    run_coroutine(send())
    assert service.send("/health").status == 200


@pytest.mark.slow
def test_requests_with_changed_bytes_never_fail_inside(service: ServiceProcess) -> None:
    """Each is answered, or its connection is closed after the time limit of its headers or its body."""
    chance = random.Random(1)
    allowed = {200, 400, 403, 404, 405, 413, 415, 501, 504}

    async def send() -> None:
        contents = [mutate(chance.choice(REQUESTS).content, chance) for _ in range(200)]
        ends = await asyncio.gather(*(exchange_until_end(service.port, each, 20) for each in contents))
        for content, (statuses, is_closed) in zip(contents, ends, strict=True):
            assert {*statuses} <= allowed and (statuses or is_closed), content[:300]
        assert sum(bool(statuses) for statuses, _ in ends) > 150

    run_coroutine(send())
    assert service.send("/health").status == 200


def test_other_clients_are_served_beside_slow_and_idle_ones(service: ServiceProcess) -> None:
    body = ROW % b'"abc"'
    clients = [socket.create_connection(("127.0.0.1", service.port), 30) for _ in range(1100)]
    for index, client in enumerate(clients):
        with suppress(OSError):  # the service has closed the first ones
            client.sendall([b"", b"POST /v1/pre", POST + CHUNKED, post(body, length=100)][index % 4])
    assert service.send("/v1/predict", body).status == 200
    assert len(os.listdir(f"/proc/{service.process.pid}/fd")) < 1050
    for client in clients:
        client.close()
    wait_until(lambda: len(os.listdir(f"/proc/{service.process.pid}/fd")) < 60)


@pytest.mark.slow
def test_a_body_that_does_not_arrive_is_a_timeout(service: ServiceProcess) -> None:
    async def send() -> None:
        assert await exchange(service.port, post(b"{", length=100), 20) == [504]

    run_coroutine(send())


def test_a_client_that_leaves_or_closes_its_side_leaves_nothing_behind(service: ServiceProcess) -> None:
    content = post(json.dumps({"rows": [{"source": "abc" * 10}] * 50}).encode())
    for end in (socket.SHUT_WR, socket.SHUT_RDWR):
        for size in (5, len(content) - 1, len(content)):
            with socket.create_connection(("127.0.0.1", service.port), 30) as client:
                client.sendall(content[:size])
                with suppress(OSError):
                    client.shutdown(end)
    wait_until(lambda: 'pellucid_queued_rows{model="copy"} 0' in service.send("/metrics").body.decode())
    assert service.send("/v1/predict", ROW % b'"abc"').status == 200


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no such signal")
def test_a_stopped_worker_is_replaced_after_twice_the_time_limit(service: ServiceProcess) -> None:
    (before,) = service.worker_ids()
    os.kill(before, signal.SIGSTOP)
    assert service.send("/v1/predict", ROW % b'"abc"').status == 504
    assert service.send("/health").status == 200
    wait_until(lambda: before not in service.worker_ids())
    wait_until(lambda: service.send("/v1/predict", ROW % b'"abc"').status == 200)


@pytest.mark.slow
def test_a_worker_that_is_killed_while_its_folder_is_broken_is_restarted_when_it_is_repaired(tmp_path: Path) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"
    shutil.copytree(copy_task_run().run, run)
    with running_service(tmp_path, str(run), "--port", "0", "--reload-interval", "0.2", "--timeout", "300") as service:
        run.rename(moved)
        os.kill(service.worker_ids()[0], signal.SIGKILL)
        wait_until(lambda: service.send("/ready").status == 503 and "cannot be" in service.log.read_text())
        assert service.send("/health").status == 200
        with ThreadPoolExecutor(1) as executor:
            reply = executor.submit(service.send, "/v1/predict", ROW % b'"abc"')
            time.sleep(0.5)
            moved.rename(run)
            assert reply.result().status == 200
        os.kill(service.worker_ids()[0], signal.SIGKILL)
        run.rename(moved)
        wait_until(lambda: not service.worker_ids() or service.send("/ready").status == 503)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(30) == 0
    assert "Traceback" not in service.log.read_text()


@pytest.mark.slow
def test_a_stop_during_a_reload_leaves_no_process(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(copy_task_run().run, run)
    with running_service(tmp_path, str(run), "--port", "0", "--reload-interval", "0.2") as service:
        (before,) = service.worker_ids()
        (run / "config.toml").touch()
        wait_until(lambda: len(service.worker_ids()) > 1)
        workers = service.worker_ids()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(30) == 0 and before in workers
        assert not [each for each in workers if Path(f"/proc/{each}").exists()]
    assert "Traceback" not in service.log.read_text()
