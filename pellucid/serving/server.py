"""The server of the service: sockets, slow clients, signals and shutdown."""

import asyncio
import logging
import select
import signal
import socket
import stat
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from pellucid.errors import InputError
from pellucid.files import os_error_text
from pellucid.serving.application import PredictionService

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

HEADER_SECONDS = 10.0
"""Time limit for the arrival of the headers of a request, and of the rest of a body after its response."""
KEEP_ALIVE_SECONDS = 75
"""Time for which an idle connection stays open: longer than the 60 seconds of nginx, which otherwise may send a request
on a connection that is being closed."""
SEND_SECONDS = 30.0
"""Time after which a connection is ended whose client takes nothing of its response."""
MAX_UNSENT_BYTES = 1 << 17
"""Maximum number of bytes that wait in the system for a client that reads slowly, so that its progress is visible."""
MAX_CONNECTIONS = 1000
"""Maximum number of open connections. Further ones replace those that have waited longest for a request."""
RESERVED_FILES = 512
"""Number of open files for connections that are being closed, worker processes and run folders."""
Phase = Literal["", "headers", "body", "send"]
"""Part of a request for whose end a connection waits: its headers, the rest of its body after the response, or the
reading of the response by the client; "" if there is none."""
CONNECTIONS_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
)


class TimedProtocol(H11Protocol):
    """HTTP protocol that closes connections whose client sends too slowly, or does not read."""

    _timer: asyncio.TimerHandle | None = None
    _phase: Phase = ""
    _waits_since: float | None = None
    """Time since which the connection waits for a request; None during a request."""
    _num_unsent: int = 0
    """Number of unsent bytes at the start of the timer."""

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 (as in the base class)
        """Begin to wait for the first request.

        Args:
            transport: Connection.
        """
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if connection.family != getattr(socket, "AF_UNIX", None) and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            with suppress(OSError):  # the client has left
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
        if len(self.connections) > MAX_CONNECTIONS:
            self._close_idle_connections()
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the client.

        Args:
            data: The bytes.
        """
        super().data_received(data)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waiting.

        Args:
            exc: Error of the connection.
        """
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # the base class leaves it after an error
        self._start_timer("")

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request, which the application may have begun to answer.

        Args:
            msg: Reason.
        """
        if self.cycle is not None:
            self.cycle.disconnected = True  # otherwise it would send a second response
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the rest of the body, if the response did not need it, or for the next request."""
        super().on_response_complete()
        self._update_timer()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        super().timeout_keep_alive_handler()
        self._update_timer()

    def shutdown(self) -> None:
        """Close the connection after the current request. One that is being closed is in a state without messages."""
        with suppress(h11.LocalProtocolError):
            super().shutdown()
        self._update_timer()

    def pause_writing(self) -> None:
        """Wait until the client reads."""
        super().pause_writing()
        self._update_timer()

    def resume_writing(self) -> None:
        """End the wait for the client."""
        super().resume_writing()
        self._update_timer()

    def _find_phase(self) -> Phase:
        """Return the part of a request that has a time limit here; an idle connection has that of the base class."""
        if self.flow.write_paused or self.transport.is_closing():
            return "send"
        if self.timeout_keep_alive_task is not None and self.conn.their_state is h11.IDLE:
            return ""
        if self.conn.their_state is h11.IDLE:
            return "headers"
        is_answered = self.cycle is not None and self.cycle.response_complete
        return "body" if is_answered and self.conn.their_state is h11.SEND_BODY else ""

    def _update_timer(self) -> None:
        """Start or stop the timer, if another part of a request has begun."""
        phase = self._find_phase()
        if self.conn.their_state is not h11.IDLE:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = self.loop.time()
        if phase != self._phase:
            self._start_timer(phase)

    def _start_timer(self, phase: Phase) -> None:
        """Start the timer of a phase, in place of that of another one."""
        if self._timer is not None:
            self._timer.cancel()
        self._phase, self._timer = phase, None
        if phase:
            self._num_unsent = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(SEND_SECONDS if phase == "send" else HEADER_SECONDS, self._end_phase)

    def _end_phase(self) -> None:
        """Close the connection after the time of its phase; go on if the client reads."""
        if self._phase == "send" and self.transport.get_write_buffer_size() < self._num_unsent:
            self._start_timer("send")
        elif self._phase == "send":
            self.transport.abort()
        else:
            self.transport.close()
            self._start_timer("send")

    def _close_idle_connections(self) -> None:
        """Close the connections that have waited longest for a request, or this one if all others are in a request.

        Those that have never sent a request are closed first. Several are closed at once, since the search takes time.
        """
        waiting = sorted(
            (each.cycle is not None, each._waits_since, id(each), each)
            for each in self.connections
            if isinstance(each, TimedProtocol) and each._waits_since is not None and not each.transport.is_closing()
        )
        number = max(1, MAX_CONNECTIONS // 20)
        idle = list(islice((each for *_, each in waiting if not _has_arrived(each.transport)), number))
        for each in idle:
            each.transport.abort()
            self.connections.discard(each)
        if not idle:
            self.transport.write(CONNECTIONS_FULL)
            self.transport.close()


def _has_arrived(transport: asyncio.Transport) -> bool:
    """Return whether bytes of the client have arrived that the event loop has not read yet."""
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


class ServiceServer(uvicorn.Server):
    """Server that reports itself as stopping from the first signal on."""

    service: PredictionService

    def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ANN401 (as in the base class)
        """Stop accepting; a second SIGINT ends the server at once.

        Args:
            sig: Number of the signal.
            frame: Interrupted frame.
        """
        self.service.request_stop()
        logging.getLogger("pellucid.serving").info("stopping: queued requests are answered")
        super().handle_exit(sig, frame)

    def handle_early_exit(self, sig: int, frame: Any) -> None:  # noqa: ANN401 (as in the base class)
        """Handle a signal before uvicorn does, and those that it raises again after the shutdown.

        Args:
            sig: Number of the signal.
            frame: Interrupted frame.
        """
        self.should_exit = True
        self.service.request_stop()


class FileIdentity(NamedTuple):
    """Identity of the file at a path. A later file may reuse the inode of a removed one, but not its `modified_ns`."""

    device: int
    inode: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> "FileIdentity":
        """Return the identity of the file that is at a path now.

        Args:
            path: Path.
        """
        status = path.lstat()
        return cls(status.st_dev, status.st_ino, status.st_mtime_ns)


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
    except InputError:
        server_socket.close()
        raise
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
                probe.setblocking(False)  # a server whose queue is full would let it wait
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                return
            except BlockingIOError:
                pass
        raise InputError(f"--unix-socket {path}: a server is listening there; stop it, or give another path")


def raise_file_limit() -> None:
    """Allow this process to open the files of all connections, as far as the system permits it."""
    if resource is None:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MAX_CONNECTIONS + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def serve(app: Starlette, service: PredictionService, server_socket: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then answer what is queued and return.

    If the service cannot be started, `PredictionService.start_error` has the reason.

    Args:
        app: Application.
        service: Models of the application.
        server_socket: Listening socket.
    """
    config = uvicorn.Config(
        app,
        http=TimedProtocol,
        log_level="critical",
        lifespan="on",
        ws="none",
        loop="asyncio",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(service.options.drain_timeout)),
        server_header=False,
        proxy_headers=False,
        backlog=1024,
    )
    raise_file_limit()
    server = ServiceServer(config)
    server.service = service
    former = {number: signal.signal(number, server.handle_early_exit) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with suppress(SystemExit):  # of uvicorn, if a model could not be loaded
            server.run(sockets=[server_socket])
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def remove_socket(path: Path, identity: FileIdentity) -> None:
    """Remove the file of a unix socket, unless another server has replaced it.

    Args:
        path: Path of the socket.
        identity: Identity of the file after the socket was opened.
    """
    with suppress(FileNotFoundError):
        if FileIdentity.of(path) == identity:
            path.unlink()
