"""A service in a process of its own, and requests to it."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]


class Reply(NamedTuple):
    """Status, headers and body of a response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 (any JSON)
        return json.loads(self.body)


class UnixConnection(http.client.HTTPConnection):
    """HTTP connection over a unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.host)


class ServiceProcess(NamedTuple):
    """A running service."""

    process: "subprocess.Popen[str]"
    address: str
    log: Path

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port
        return port

    def connect(self) -> http.client.HTTPConnection:
        if self.address.startswith("http"):
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        return UnixConnection(self.address)

    def send(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        connection = self.connect()
        own = {"Host": "127.0.0.1"} | ({} if body is None else {"Content-Type": "application/json"})
        connection.request("GET" if body is None else "POST", path, body, {**own, **(headers or {})})
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        reply = Reply(response.status, names, response.read())
        connection.close()
        return reply

    def post(self, operation: str, **content: object) -> Reply:
        return self.send(f"/v1/{operation}", json.dumps(content).encode())

    def worker_ids(self) -> list[int]:
        """Return the ids of the worker processes."""
        ids = list[int]()
        for path in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for word in path.read_text().split():
                with suppress(OSError):  # it has ended
                    ids += [int(word)] if b"spawn_main" in Path(f"/proc/{word}/cmdline").read_bytes() else []
        return ids


@contextmanager
def running_service(folder: Path, *arguments: str) -> Iterator[ServiceProcess]:
    """Run `pellucid serve` until the end of the block, and wait until its models are loaded."""
    command = [sys.executable, "-m", "pellucid", "serve", *arguments]
    log, environment = folder / "service.log", {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
    with process:
        assert process.stdout is not None
        try:
            service = ServiceProcess(process, process.stdout.readline().strip(), log)
            assert service.address, log.read_text()
            assert service.send("/ready").status == 200
            yield service
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"the service did not stop: {log.read_text()}") from None


def run_coroutine(coroutine: Coroutine[object, object, None]) -> None:
    """Run a coroutine to its end in a thread of its own: the tests of pages leave an event loop in the main thread."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, coroutine).result()


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.05)
