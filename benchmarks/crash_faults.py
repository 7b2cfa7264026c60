"""Commands with faults at their writing system calls, and the comparison of folders, for `benchmarks/crashes.py`.

The library of `write_faults.c` is preloaded. Commands run in forks of this process, which has imported the package.
"""

import ctypes
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

CALL_KINDS = ("open", "write", "rename", "unlink", "mkdir", "rmdir", "fsync", "truncate", "chmod", "link")
"""Kinds of writing system calls, in the order of `enum kind` in write_faults.c."""
ACTIONS = ("none", "kill", "fail", "kill part", "fail part", "stop", "fail always", "fail space", "shift")
"""Faults, in the order of `enum action`."""
PR_SET_CHILD_SUBREAPER = 36
TIMEOUT = 120.0
"""Seconds after which a command is killed and the trial is a failure."""
TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")
SOURCE = Path(__file__).with_name("write_faults.c")


class Orders(ctypes.Structure):
    """Orders to the preloaded library, and its counts (`struct orders`)."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("exempt", "armed", "count", "target", "action", "code", "landed")),
        *((name, ctypes.c_int64) for name in ("process", "met", "shift", "updates", "poisoned")),
        ("kinds", ctypes.c_int64 * len(CALL_KINDS)),
        ("folder", ctypes.c_char * 4096),
        ("record", ctypes.c_char * 4096),
    )


class Fault(NamedTuple):
    """A fault of a command at one of its writing system calls, all processes of the command counted together."""

    action: str = "none"
    """One of `ACTIONS`."""
    call: int = 0
    """Number of the call, from 1; 0 for none."""
    code: int = 0
    """`errno` of a call that fails."""
    shift: int = 0
    """Seconds by which the clock is set."""


class CommandEnd(NamedTuple):
    """End of a command."""

    code: int
    """Exit code; the negative number of the signal that killed the process."""
    message: str
    """Standard error."""


def preload(folder: Path) -> Orders:
    """Compile the library, start this program again with it, and return its orders.

    Args:
        folder: Folder for the library and its orders.
    """
    library, orders_file = folder / "write_faults.so", folder / "orders"
    if os.environ.get("WRITE_FAULTS") != str(orders_file):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None or not sys.platform.startswith("linux"):
            raise SystemExit("faults at system calls need Linux and a C compiler (cc or gcc)")
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
        orders_file.write_bytes(bytes(ctypes.sizeof(Orders)))
        environment = {"LD_PRELOAD": str(library), "WRITE_FAULTS": str(orders_file)}
        threads = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **threads, **environment})
    with orders_file.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), ctypes.sizeof(Orders))
    orders = Orders.from_buffer(memory)
    orders.exempt = os.getpid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the workers of a killed command are waited for
    return orders


class CommandRunner:
    """Runner of commands in forks, with faults."""

    def __init__(self, orders: Orders, output: Path) -> None:
        """Keep the orders.

        Args:
            orders: Orders of the preloaded library.
            output: File for the standard error of the commands.
        """
        self.orders = orders
        self.output = output
        self.processes = 0

    def arm(self, folder: Path, fault: Fault, record: Path | None = None) -> None:
        """Count the calls that write below a folder from now on.

        Args:
            folder: The folder.
            fault: Fault of the next command.
            record: File to which the calls are recorded; None for none.
        """
        orders = self.orders
        orders.armed = 0
        orders.count = orders.landed = orders.process = orders.met = orders.poisoned = 0
        orders.kinds[:] = [0] * len(CALL_KINDS)
        orders.target, orders.code, orders.shift = fault.call, fault.code, fault.shift
        orders.action = ACTIONS.index(fault.action)
        orders.folder, orders.record = str(folder).encode(), str(record or "").encode()
        orders.armed = 1

    def disarm(self) -> None:
        """Count no more calls."""
        self.orders.armed = 0

    def start(self, run: Callable[[], int]) -> int:
        """Fork a process that runs a function in a process group of its own; return its number.

        Args:
            run: The function, which returns the exit code.
        """
        self.processes += 1
        output = Path(f"{self.output}.{self.processes % 4}")
        process = os.fork()
        if process:
            return process
        code = 1
        try:
            os.setsid()
            file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            for descriptor, name in ((1, "stdout"), (2, "stderr")):
                setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 (open to the end)
            code = run()
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def wait(self, process: int, output_number: int | None = None) -> CommandEnd:
        """Wait for the end of a command and of all its processes; kill it after `TIMEOUT` seconds.

        Args:
            process: Number that `start` returned.
            output_number: Number of the command, if others were started after it; the last by default.
        """
        status = self._wait_for(process, 0)
        with suppress(ChildProcessError):  # workers that outlive a killed command end on their own
            deadline = time.monotonic() + TIMEOUT
            while True:
                if os.waitpid(-process, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)
                    if time.monotonic() > deadline:
                        os.killpg(process, signal.SIGKILL)
        number = self.processes if output_number is None else output_number
        output = Path(f"{self.output}.{number % 4}")
        message = output.read_text("utf-8", "replace") if output.exists() else ""
        return CommandEnd(os.waitstatus_to_exitcode(status), message)

    def wait_for_stop(self, process: int) -> bool:
        """Wait until a command stops itself; return False if it ends instead. It can be waited for in both cases.

        Args:
            process: Number that `start` returned.
        """
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            state = _process_state(process)
            if state in "TZ":
                return state == "T"
            time.sleep(0.002)
        os.killpg(process, signal.SIGKILL)
        return False

    def _wait_for(self, process: int, options: int) -> int:
        """Wait for a process, and kill its group after `TIMEOUT` seconds."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            ended, status = os.waitpid(process, options | os.WNOHANG)
            if ended:
                return status
            if time.monotonic() > deadline:
                os.killpg(process, signal.SIGKILL)
            time.sleep(0.003)


def _process_state(process: int) -> str:
    """Return the letter of the state of a process; Z if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(") ")[2][0]
    return "Z"


def read_contents(folder: Path) -> dict[str, bytes]:
    """Return what a folder holds, without times and starts, which differ between equal trainings.

    Args:
        folder: Run folder, or folder of an ensemble or of a search.

    Returns:
        Content of each file by its path; the lock, and a file of which no part is compared, are empty.
    """
    contents = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            # The log of a training without a validation file names the one in its folder.
            content = _comparable(path).replace(str(folder).encode(), b"RUN")
            contents[path.relative_to(folder).as_posix()] = content
    return contents


def _comparable(path: Path) -> bytes:
    """Return the part of a file that is equal in equal trainings."""
    content = path.read_bytes()
    match path.name:
        case "log.jsonl":
            return b"\n".join(filter(None, map(_comparable_record, content.splitlines())))
        case "card.md":
            return re.sub(rb"[\d,]+ seconds?|year    = \{\d+\}|commit [0-9a-f]{40}( with local changes)?", b"", content)
        case "training.safetensors":
            return _comparable_tensors(content, "progress")
        case "study.journal" | "report.html" | "trials.json":
            return b""
    if path.parent.name == "snapshots":
        return _comparable_tensors(content, "snapshot")
    return content


def _comparable_record(line: bytes) -> bytes:
    """Return a line of the log without times; nothing for a start."""
    record = json.loads(line)
    if record["event"] in ("started", "compiling"):
        return b""
    return json.dumps({key: value for key, value in record.items() if key not in ("seconds", "time")}).encode()


def _comparable_tensors(content: bytes, key: str) -> bytes:
    """Return the tensors of a file exactly, and its metadata without times and with numbers of four decimals.

    The last bits of the decoded probes of a snapshot depend on the alignment of arrays in memory.
    """
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size])["__metadata__"]
    metadata.pop("sha256", None)
    text = metadata[key]
    if key == "progress":
        text = json.dumps({name: value for name, value in json.loads(text).items() if "seconds" not in name})
    else:
        text = re.sub(r'(?<=\.\d{4})\d+|"sha256":"[^"]*",', "", text)
    tensors = safetensors.numpy.load(content)
    parts = [
        f"{name} {value.dtype} {value.shape}".encode() + value.tobytes() for name, value in sorted(tensors.items())
    ]
    return json.dumps({**metadata, key: text}, sort_keys=True).encode() + b"".join(parts)


class Difference(NamedTuple):
    """Difference between a folder and that of an undisturbed training."""

    files: list[str]
    """Files that differ, are missing or are not expected."""
    bytes_lost: int
    """Bytes of the undisturbed training that the folder lacks: those of files that are missing or differ."""


def compare(folder: Path, expected: Mapping[str, bytes]) -> Difference:
    """Compare a folder with the contents of an undisturbed training.

    Args:
        folder: The folder.
        expected: Contents of the undisturbed training, from `read_contents`.
    """
    try:
        contents = read_contents(folder)
    except (ValueError, KeyError, OSError) as error:
        return Difference([f"unreadable: {error}"], sum(map(len, expected.values())))
    files = [name for name in sorted({*contents, *expected}) if contents.get(name) != expected.get(name)]
    lost = sum(_bytes_lost(contents.get(name, b""), expected[name]) for name in files if name in expected)
    return Difference(files, lost)


def _bytes_lost(content: bytes, expected: bytes) -> int:
    """Return the number of bytes in which a content falls short of the expected one; at least 1 if they differ."""
    common = min(len(content), len(expected))
    left, right = (np.frombuffer(text, np.uint8, common) for text in (content, expected))
    return max(len(expected) - common + int((left != right).sum()), int(content != expected))


def list_temporaries(folder: Path) -> list[Path]:
    """Return the temporary files below a folder.

    Args:
        folder: The folder.
    """
    return [path for path in folder.rglob("*") if TEMPORARY.fullmatch(path.name)]


def finished_trials(folder: Path) -> list[dict[str, Any]]:
    """Return values and scores of the finished trials of a search, without their numbers and times.

    Args:
        folder: Folder of the search.
    """
    trials: Sequence[dict[str, Any]] = json.loads((folder / "trials.json").read_text("utf-8"))["trials"]
    found = [{"values": trial["values"], "score": trial["score"]} for trial in trials if trial["state"] == "finished"]
    return sorted(found, key=json.dumps)
