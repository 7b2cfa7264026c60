"""Runs of the command line in separate processes, forked quickly or started from scratch."""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from trained_runs import shared_folder

SERVER_PROGRAM = """
import faulthandler, gc, json, os, resource, select, socket, sys, traceback
from contextlib import suppress
from importlib import import_module
import pellucid.training.ensemble_training, pellucid.worker_pool
import pellucid.reporting.figures, pellucid.viewer.reports, pellucid.training.session, pellucid.viewer.page_contents
import pellucid.viewer.server
from pellucid.cli import main
from pellucid.cli.subcommands import SUBCOMMANDS
from pellucid.errors import InputError
from pellucid.kernels.dispatch import is_numba_available

is_numba_available()
for verb in SUBCOMMANDS:
    with suppress(InputError):
        import_module(f"pellucid.cli.{verb}").main(["--no-such-flag"])  # the arguments of the verb are then known
pellucid.worker_pool.START_METHOD = "fork"  # workers import nothing anew; this process has one thread

listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
gc.freeze()
while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:  # standard input ends with the tests
    connection, _ = listener.accept()
    sent, streams, _, _ = socket.recv_fds(connection, 65536, 3)
    while more := connection.recv(65536):
        sent += more
    request = json.loads(sent)
    child = os.fork()
    if not child:
        os.chdir(request["folder"])
        for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
            os.dup2(streams[descriptor], descriptor)
            setattr(sys, name, open(descriptor, "r" if name == "stdin" else "w", encoding="utf-8"))
        faulthandler.dump_traceback_later(request["seconds"], exit=True, file=sys.stderr)
        if request["limit"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], request["limit"]))
        try:
            code = main(request["arguments"])
        except SystemExit as left:
            code = left.code
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    for descriptor in streams:
        os.close(descriptor)
    _, status = os.waitpid(child, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    connection.close()
"""
"""Does once what takes seconds, then runs each command in a fork of itself."""


TIMEOUT_SECONDS = 200
"""No quick command takes so long: one that serves, or waits, ends with exit code 1 and its stack on standard error."""


CLIENT_PROGRAM = """#!{python} -ISE
import json, os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "limit": 0, "seconds": {seconds}}}
socket.send_fds(connection, [b" "], [0, 1, 2])
connection.sendall(json.dumps(request).encode())
connection.shutdown(socket.SHUT_WR)
sys.exit(int(connection.recv(16)))
"""
"""A program that has the server run its command line, for scripts of the shell."""


class CommandResult(NamedTuple):
    """What a command left: exit code and what it said."""

    code: int
    out: str
    err: str


@cache
def start_server() -> str:
    """The address of the one process that all quick commands are forks of."""
    address = tempfile.mkdtemp() + "/socket"
    served = subprocess.Popen(
        [sys.executable, "-c", SERVER_PROGRAM, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=shared_folder(),
        env=build_environment(),
    )
    atexit.register(shutil.rmtree, Path(address).parent)
    atexit.register(served.wait)
    atexit.register(served.kill)
    assert served.stdout is not None and served.stdout.readline() == "ready\n"
    return address


def run_pellucid(
    *arguments: object,
    stdin: bytes = b"",
    folder: Path | None = None,
    stdout: Path | None = None,
    max_file_size: int = 0,
) -> CommandResult:
    """Run a command quickly. `limit` is the size in bytes beyond which no file can grow."""
    with tempfile.TemporaryDirectory() as streams, ExitStack() as stack:
        read, out, err = (Path(streams) / name for name in ("stdin", "stdout", "stderr"))
        read.write_bytes(stdin)
        opened: list[BinaryIO] = [stack.enter_context(read.open("rb"))]
        opened += [stack.enter_context(path.open("wb")) for path in (stdout or out, err)]
        request = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(folder or shared_folder()),
            "limit": max_file_size,
            "seconds": TIMEOUT_SECONDS,
        }
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.connect(start_server())
        socket.send_fds(connection, [b" "], [file.fileno() for file in opened])
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        code = int(connection.recv(16))
        return CommandResult(code, "" if stdout else out.read_bytes().decode(), err.read_bytes().decode())


@contextmanager
def fast_command_environment() -> Iterator[Mapping[str, str]]:
    """An environment in which `pellucid` in a script is run quickly, as by the function of this name."""
    with tempfile.TemporaryDirectory() as folder:
        client = Path(folder) / "pellucid"
        client.write_text(
            CLIENT_PROGRAM.format(python=sys.executable, address=start_server(), seconds=TIMEOUT_SECONDS), "utf-8"
        )
        client.chmod(0o755)
        yield build_environment({"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})


def build_command(*arguments: object) -> list[str]:
    """The command line as a person starts it."""
    return [sys.executable, "-m", "pellucid", *map(str, arguments)]


def build_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: one thread, and that Python sends what it has at once."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **(changes or {})}


def run_shell(script: str, *arguments: object) -> CommandResult:
    """Run a line of shell in which "$@" is a command of pellucid's, started as a person starts it."""
    done = subprocess.run(
        ["sh", "-c", script, "sh", *build_command(*arguments)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=shared_folder(),
        env=build_environment(),
        timeout=100,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())


def usage_error_message(result: CommandResult) -> str:
    """The one message a refused command must have ended in: exit code 2, no traceback, nothing else complained of."""
    assert result.code == 2 and "Traceback" not in result.err + result.out, result
    assert result.err.count("pellucid: ") == 1, result
    return result.err.partition("pellucid: ")[2].strip()


def output_lines(text: str) -> Sequence[str]:
    """Output lines, the newline at the end not taken for one more."""
    assert text.endswith("\n")
    return text.removesuffix("\n").split("\n")


@contextmanager
def start_command(*arguments: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A command under way in a session of its own, as a terminal has it; it ends with the block."""
    process = subprocess.Popen(
        build_command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=shared_folder(),
        env=build_environment(),
        start_new_session=True,
        preexec_fn=_heed_interrupts,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _heed_interrupts() -> None:
    """Ctrl-C works also where the tests run in the background, whose children would ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Wait for something that a process under way does."""
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("it has not happened in a minute")


def send_interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Press Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


def wait_for_exit(process: "subprocess.Popen[bytes]") -> CommandResult:
    """What a process left, once it has ended."""
    out, err = process.communicate(timeout=60)
    return CommandResult(process.returncode, out.decode(), err.decode())
