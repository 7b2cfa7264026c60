"""The server of the service: sockets, slow clients, log, signals and shutdown."""

import asyncio
import logging
import os
import signal
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from pellucid.errors import InputError
from pellucid.files import os_error_text
from pellucid.serving.access import JsonFormatter, PlainFormatter
from pellucid.serving.application import PredictionService

HEADER_SECONDS = 10.0
"""Time limit for the arrival of the headers of a request."""
KEEP_ALIVE_SECONDS = 75
"""Time for which an idle connection stays open: longer than the 60 seconds of nginx, which otherwise may send a request
on a connection that is being closed."""
MAX_CONNECTIONS = 1000
"""Maximum number of open connections; further ones receive status 503."""


class TimedProtocol(H11Protocol):
    """HTTP protocol that closes connections whose next request does not arrive in time."""

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 (as in the base class)
        """Begin to wait for the first request.

        Args:
            transport: Connection.
        """
        super().connection_made(transport)
        self._watch_headers()

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the client.

        Args:
            data: The bytes.
        """
        super().data_received(data)
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait for headers.

        Args:
            exc: Error of the connection.
        """
        self._cancel_timer()
        super().connection_lost(exc)

    def _watch_headers(self) -> None:
        """Start the timer if the headers of a request are incomplete, stop it if they are complete."""
        if self.conn.their_state is not h11.IDLE:
            self._cancel_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._close_waiting)

    def _cancel_timer(self) -> None:
        """Stop the timer."""
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _close_waiting(self) -> None:
        """Close the connection, if the headers are still incomplete."""
        self._header_timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


class ServiceServer(uvicorn.Server):
    """Server that reports itself as stopping from the first signal on."""

    service: PredictionService

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ANN401 (as in the base class)
        """Stop accepting; a second SIGINT ends the server at once.

        Args:
            sig: Number of the signal.
            frame: Interrupted frame.
        """
        self.service.state = "stopping"
        logging.getLogger("pellucid.serving").info("stopping: queued requests are answered")
        super().handle_exit(sig, frame)


def open_unix_socket(path: Path) -> socket.socket:
    """Open a listening socket at a path, in place of a socket that an ended server left there.

    Args:
        path: Path of the socket.

    Raises:
        InputError: The path is taken by another file or a running server, or cannot be written.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise InputError("--unix-socket: this system has no unix sockets; give --port")
    server_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale_socket(path)
        server_socket.bind(str(path))
    except OSError as error:
        server_socket.close()
        raise InputError(f"--unix-socket {path}: {os_error_text(error)}") from error
    server_socket.listen(1024)
    return server_socket


def _remove_stale_socket(path: Path) -> None:
    """Remove a socket at which no server listens; `InputError` for one that is in use, or another file."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise InputError(f"--unix-socket {path}: there is another file; give another path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                return
        raise InputError(f"--unix-socket {path}: a server is listening there; stop it, or give another path")


def configure_log(json_lines: bool) -> None:
    """Write the log of the service on standard error.

    Args:
        json_lines: Write each record, and each request, as a line of JSON; otherwise messages only.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if json_lines else PlainFormatter())
    logger = logging.getLogger("pellucid.serving")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    logging.getLogger("pellucid.serving.access").setLevel(logging.INFO if json_lines else logging.WARNING)


def serve(app: Starlette, service: PredictionService, server_socket: socket.socket, drain_timeout: float) -> bool:
    """Serve until SIGTERM or SIGINT, then answer what is queued and return.

    Args:
        app: Application.
        service: Models of the application.
        server_socket: Listening socket.
        drain_timeout: Maximum number of seconds to wait for open requests after the signal.

    Returns:
        Whether the service was started; else the log holds the reason.
    """
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        log_level="critical",
        lifespan="on",
        ws="none",
        loop="asyncio",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain_timeout)),
        server_header=False,
        proxy_headers=False,
        backlog=1024,
    )
    server = ServiceServer(config)
    server.service = service
    former = {number: signal.signal(number, _ignore_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with suppress(SystemExit):  # of uvicorn, if a model could not be loaded
            server.run(sockets=[server_socket])
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    return server.started


def _ignore_signal(number: int, frame: Any) -> None:  # noqa: ANN401 (a frame)
    """Ignore a signal: uvicorn raises it again after the shutdown."""


def remove_socket(path: Path) -> None:
    """Remove the file of a unix socket.

    Args:
        path: Path of the socket.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)
