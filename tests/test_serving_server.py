"""Connections of the service: slow clients, clients that do not read, too many connections, and malformed requests."""

import asyncio
import logging
import socket
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvicorn
from hostile_requests import CHUNKED, GET, exchange
from service_process import run_coroutine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pellucid.errors import InputError
from pellucid.http_requests import open_tcp_socket
from pellucid.serving import server
from pellucid.serving.server import FileIdentity, TimedProtocol, open_unix_socket, remove_socket

LARGE = b"x" * 20_000_000
POST = b"POST /early HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.4)
    monkeypatch.setattr(server, "SEND_SECONDS", 0.4)
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)


async def respond_early(request: Request) -> Response:
    """Respond without the body."""
    return Response(b"early")


async def respond_slowly(request: Request) -> Response:
    """Respond after two seconds."""
    await asyncio.sleep(2)
    return Response(b"slow")


async def respond_at_length(request: Request) -> Response:
    """Respond with many bytes."""
    return Response(LARGE)


ROUTES = [
    Route("/health", respond_early),
    Route("/early", respond_early, methods=["POST"]),
    Route("/slow", respond_slowly),
    Route("/large", respond_at_length),
]


@asynccontextmanager
async def running_server() -> AsyncIterator[int]:
    """Run a server with the protocol of the service in this event loop; return its port."""
    errors = list[dict[str, object]]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    config = uvicorn.Config(
        Starlette(routes=ROUTES),
        http=TimedProtocol,
        log_level="critical",
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=10,
        timeout_keep_alive=1,
    )
    with open_tcp_socket("127.0.0.1", 0) as listening:
        running = uvicorn.Server(config)
        task = asyncio.create_task(running.serve([listening]))
        yield listening.getsockname()[1]
        running.should_exit = True
        started = time.monotonic()
        await task
    assert not errors and time.monotonic() - started < 8 and not running.server_state.connections


def run_client(client: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        async with running_server() as port:
            await client(port)

    run_coroutine(run())


async def send_bytes(port: int, head: bytes, rest: bytes) -> float:
    """Send bytes one by one until the server closes the connection, and return the seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started, writer_error = time.monotonic(), suppress(ConnectionError)
    writer.write(head)
    with writer_error:
        for index in range(len(rest)):
            writer.write(rest[index : index + 1])
            await asyncio.sleep(0.05)
            if writer.transport.is_closing() or reader.at_eof() or time.monotonic() > started + 8:
                break
    writer.transport.abort()
    return time.monotonic() - started


def test_responses_on_an_open_connection_are_sent_at_once() -> None:
    """Regression test: the body of each waited 40 ms for the acknowledgement of its headers."""

    async def client(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        seconds = list[float]()
        for _ in range(50):
            started = time.perf_counter()
            writer.write(GET + b"\r\n")
            await reader.readuntil(b"early")
            seconds.append(time.perf_counter() - started)
        writer.close()
        assert statistics.median(seconds) < 0.03

    run_client(client)


@pytest.mark.slow
def test_slow_headers_and_bodies_that_nobody_needs_are_disconnected() -> None:
    async def client(port: int) -> None:
        assert await send_bytes(port, b"", GET * 50) < 4
        assert await send_bytes(port, GET + b"\r\n", GET * 50) < 4
        head = POST + b"Content-Length: 500\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"a")
        assert (await asyncio.wait_for(reader.read(), 4)).endswith(b"early")  # silence after the response
        writer.close()
        started = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        with suppress(ConnectionError):
            while not writer.transport.is_closing() and time.monotonic() < started + 8:
                writer.write(b"a")
                await asyncio.sleep(0.05)
        assert time.monotonic() < started + 4
        writer.transport.abort()

    run_client(client)


def test_a_body_that_arrives_after_the_response_does_not_end_the_connection() -> None:
    async def client(port: int) -> None:
        content = POST + b"Content-Length: 5\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(content)
            assert (await reader.readuntil(b"early")).startswith(b"HTTP/1.1 200")
            writer.write(b"12345")
        writer.close()

    run_client(client)


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected_and_a_slow_one_is_not() -> None:
    async def client(port: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", port)) as stalled, socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            await loop.sock_connect(slow, ("127.0.0.1", port))
            stalled.sendall(GET.replace(b"/health", b"/large") + b"\r\n")
            await loop.sock_sendall(slow, GET.replace(b"/health", b"/large") + b"Connection: close\r\n\r\n")
            received = 0
            while piece := await loop.sock_recv(slow, 1_000_000):
                received += len(piece)
                await asyncio.sleep(0.001)
            assert received > len(LARGE)
            await asyncio.sleep(1)
            stalled.setblocking(False)
            received = 0
            with suppress(ConnectionError):
                while piece := await loop.sock_recv(stalled, 1_000_000):
                    received += len(piece)
            assert received < len(LARGE)

    run_client(client)


@pytest.mark.slow
def test_a_new_connection_replaces_the_one_that_has_waited_longest() -> None:
    async def client(port: int) -> None:
        connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert await exchange(port, GET + b"Connection: close\r\n\r\n", 5) == [200]
        with suppress(ConnectionError):
            assert await asyncio.wait_for(connections[0][0].read(), 1) == b""
        for _, writer in connections:
            writer.transport.abort()
        await asyncio.sleep(0.1)
        slow = [exchange(port, GET.replace(b"/health", b"/slow") + b"Connection: close\r\n\r\n", 5) for _ in range(4)]
        answers = asyncio.gather(*slow)
        await asyncio.sleep(0.3)
        assert await exchange(port, GET + b"Connection: close\r\n\r\n", 5) == [503]
        assert await answers == [[200]] * 4

    run_client(client)


def test_a_connection_whose_request_has_arrived_is_not_replaced() -> None:
    async def client(port: int) -> None:
        address = ("127.0.0.1", port)  # the server accepts all of them before it reads
        clients = [socket.create_connection(address) for _ in range(2)]
        with socket.create_connection(address) as ordinary:
            ordinary.sendall(GET + b"Connection: close\r\n\r\n")
            clients += [socket.create_connection(address) for _ in range(8)]
            ordinary.setblocking(False)
            assert (await asyncio.get_running_loop().sock_recv(ordinary, 1000)).startswith(b"HTTP/1.1 200")
        for each in clients:
            each.close()

    run_client(client)


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_a_malformed_body_is_refused_before_and_after_the_response(
    pause: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def client(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST + CHUNKED)
        await asyncio.sleep(pause)
        writer.write(b"xyz\r\n")
        received = await asyncio.wait_for(reader.read(), 4)
        assert received.count(b"HTTP/1.1 ") == 1
        writer.close()

    run_client(client)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_the_server_stops_while_a_client_does_not_read() -> None:
    async def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as stalled:
            stalled.sendall(GET.replace(b"/health", b"/large") + b"\r\n")
            await asyncio.sleep(0.1)
            kept.append(socket.socket(fileno=stalled.detach()))  # open while the server stops

    kept = list[socket.socket]()
    run_client(client)
    for each in kept:
        each.close()


def test_a_socket_that_another_server_has_opened_is_not_removed(tmp_path: Path) -> None:
    """Regression test: a server that was stopped removed the socket of its successor."""
    path = tmp_path / "socket"
    with open_unix_socket(path):
        identity = FileIdentity.of(path)
        with pytest.raises(InputError, match="a server is listening"):
            open_unix_socket(path)
    time.sleep(0.02)
    with open_unix_socket(path):  # the new file may have the number of the removed one
        remove_socket(path, identity)
        assert path.exists()
        remove_socket(path, FileIdentity.of(path))
        assert not path.exists()


def test_a_socket_whose_server_is_busy_is_in_use(tmp_path: Path) -> None:
    """Regression test: the start waited for the other server forever."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as busy, ExitStack() as clients:
        busy.bind(str(path))
        busy.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(path))
        with pytest.raises(InputError, match="a server is listening"):
            open_unix_socket(path)
