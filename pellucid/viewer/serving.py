"""The service on a port of this machine, until somebody ends it."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread, main_thread
from threading import enumerate as enumerate_threads

import uvicorn
from starlette.applications import Starlette

from pellucid.errors import InputError
from pellucid.files import reason

ADDRESS = "127.0.0.1"
"""Nobody but this machine reaches it."""
PATIENCE = 20
"""Seconds for a service beside to end well, and then to end at all: the thread is a daemon, and is left then."""


def listening(port: int) -> socket.socket:
    """A socket of this machine's own; port 0 takes one that is free. `InputError` where the port is in use."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((ADDRESS, port))
    except (OSError, OverflowError) as error:
        opened.close()
        words = reason(error) if isinstance(error, OSError) else "ports go from 0 to 65535"
        raise InputError(f"--port {port}: {words}") from error
    opened.listen(128)
    return opened


def address(opened: socket.socket) -> str:
    """Where a browser finds it."""
    return f"http://{ADDRESS}:{opened.getsockname()[1]}/"


def serve(app: Starlette, opened: socket.socket) -> None:
    """Answer until Ctrl-C."""
    with suppress(KeyboardInterrupt):  # the server has ended well, and hands on what it was ended by
        _server(app).run(sockets=[opened])


def abandon() -> None:
    """End the process at once where an answer is still being computed, for nobody: Python would wait for its thread."""
    if any(not each.daemon for each in enumerate_threads() if each is not main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """The address of a service that runs beside, in a thread, within the block."""
    opened, server = listening(0), _server(app)
    thread = Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    try:
        yield address(opened)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        server.force_exit = True
        thread.join(PATIENCE)
        opened.close()


def _server(app: Starlette) -> uvicorn.Server:
    """Quiet, and quick to end though a page listens to a training."""
    config = uvicorn.Config(
        app, log_level="critical", lifespan="off", ws="none", loop="asyncio", timeout_graceful_shutdown=1
    )
    return uvicorn.Server(config)
