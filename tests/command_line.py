"""Runs of the command line in separate processes: fast ones, forked from a server, and freshly started ones."""

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
from pellucid.kernels.dispatch import load_enabled_kernels

load_enabled_kernels()
for subcommand in SUBCOMMANDS:
    with suppress(InputError):
        import_module(f"pellucid.cli.{subcommand}").main(["--no-such-flag"])  # builds the argument parser once
pellucid.worker_pool.START_METHOD = "fork"  # workers then import nothing again; this process has one thread

listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
gc.freeze()
while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:  # standard input closes when the tests end
    connection, _ = listener.accept()
    message, streams, _, _ = socket.recv_fds(connection, 65536, 3)
    while part := connection.recv(65536):
        message += part
    request = json.loads(message)
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
        except SystemExit as error:
            code = error.code
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
"""Server process: it imports the package once, which takes seconds, and runs each command in a fork of itself."""


TIMEOUT_SECONDS = 200
"""Time limit of a forked command. After it the command prints its stack to standard error and exits with code 1."""


CLIENT_PROGRAM = """#!{python} -ISE
import json, os, socket, sys
if sys.argv[1:2] == ["serve"]:  # runs until a signal, which must reach it
    os.execv(sys.executable, [sys.executable, "-m", "pellucid", *sys.argv[1:]])
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "limit": 0, "seconds": {seconds}}}
socket.send_fds(connection, [b" "], [0, 1, 2])
connection.sendall(json.dumps(request).encode())
connection.shutdown(socket.SHUT_WR)
sys.exit(int(connection.recv(16)))
"""
"""Executable for shell scripts that sends its command line to the server."""


class CommandResult(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


@cache
def start_server() -> str:
    """Start the server of forked commands once; return the address of its socket."""
    address = tempfile.mkdtemp() + "/socket"
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER_PROGRAM, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=shared_folder(),
        env=build_environment(),
    )
    atexit.register(shutil.rmtree, Path(address).parent)
    atexit.register(process.wait)
    atexit.register(process.kill)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return address


def run_pellucid(
    *arguments: object,
    stdin: bytes = b"",
    folder: Path | None = None,
    stdout: Path | None = None,
    max_file_size: int = 0,
) -> CommandResult:
    """Run a command in a fork of the server. `max_file_size` limits the size of every file, in bytes."""
    with tempfile.TemporaryDirectory() as streams, ExitStack() as stack:
        stdin_path, stdout_path, stderr_path = (Path(streams) / name for name in ("stdin", "stdout", "stderr"))
        stdin_path.write_bytes(stdin)
        files: list[BinaryIO] = [stack.enter_context(stdin_path.open("rb"))]
        files += [stack.enter_context(path.open("wb")) for path in (stdout or stdout_path, stderr_path)]
        request = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(folder or shared_folder()),
            "limit": max_file_size,
            "seconds": TIMEOUT_SECONDS,
        }
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.connect(start_server())
        socket.send_fds(connection, [b" "], [file.fileno() for file in files])
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        code = int(connection.recv(16))
        output = "" if stdout else stdout_path.read_bytes().decode()
        return CommandResult(code, output, stderr_path.read_bytes().decode())


@contextmanager
def fast_command_environment() -> Iterator[Mapping[str, str]]:
    """Yield an environment in which the command `pellucid` of a script runs in a fork of the server."""
    with tempfile.TemporaryDirectory() as folder:
        client = Path(folder) / "pellucid"
        client.write_text(
            CLIENT_PROGRAM.format(python=sys.executable, address=start_server(), seconds=TIMEOUT_SECONDS), "utf-8"
        )
        client.chmod(0o755)
        yield build_environment({"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})


def build_command(*arguments: object) -> list[str]:
    """Return the command line of a new process."""
    return [sys.executable, "-m", "pellucid", *map(str, arguments)]


def build_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command: one thread and unbuffered output, plus the changes."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **(changes or {})}


def run_shell(script: str, *arguments: object) -> CommandResult:
    """Run a shell script in which "$@" is the command line of a new process of pellucid."""
    process = subprocess.run(
        ["sh", "-c", script, "sh", *build_command(*arguments)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        cwd=shared_folder(),
        env=build_environment(),
        timeout=100,
        check=False,
    )
    return CommandResult(process.returncode, process.stdout.decode(), process.stderr.decode())


def usage_error_message(result: CommandResult) -> str:
    """Return the only error message of a command, and assert that it ended with exit code 2 and no traceback."""
    assert result.code == 2 and "Traceback" not in result.err + result.out, result
    assert result.err.count("pellucid: ") == 1, result
    return result.err.partition("pellucid: ")[2].strip()


def output_lines(text: str) -> Sequence[str]:
    """Return the lines of an output that ends with a newline."""
    assert text.endswith("\n")
    return text.removesuffix("\n").split("\n")


@contextmanager
def start_command(*arguments: object) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command in a session of its own, as a terminal does; it is killed at the end of the block."""
    process = subprocess.Popen(
        build_command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=shared_folder(),
        env=build_environment(),
        start_new_session=True,
        preexec_fn=_restore_interrupt_handler,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _restore_interrupt_handler() -> None:
    """Restore the default handler of Ctrl-C, because child processes of background jobs ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Wait until a condition holds, and fail if the process ends before."""
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("the condition does not hold after a minute")


def send_interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Send Ctrl-C to the process and its children."""
    os.killpg(process.pid, signal.SIGINT)


def wait_for_exit(process: "subprocess.Popen[bytes]") -> CommandResult:
    """Wait until a process ends; return its result."""
    out, err = process.communicate(timeout=60)
    return CommandResult(process.returncode, out.decode(), err.decode())
