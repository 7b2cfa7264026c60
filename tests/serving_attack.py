"""Attack on a running service: hostile clients, killed workers and broken run folders, beside ordinary clients.

    python tests/serving_attack.py RUN SOURCES [--seconds 3600] [--seed 1] [--pause 2]

The service serves a copy of RUN; SOURCES is a file whose first column has words. A random mix of attacks is drawn with
the seed: the requests of `hostile_requests.py`, the same with changed bytes, clients that send slowly, never read,
leave early or stay idle, workers that are killed or stopped, and run folders that are cut, removed or replaced.
Ordinary clients compare each output with that of `Predictor.predict`, and `/health` is asked once a second. The program
prints one line of JSON a minute, and at the end each unexpected answer, the memory, the open files and the processes.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from hostile_requests import GET, POST, ROW, STATUS, all_requests, exchange, mutate, post

import pellucid

Attack = tuple[Callable[[], Awaitable[None]], int]
"""Function that attacks the service, and its weight in the random choice."""
ALLOWED = {200, 400, 403, 404, 405, 413, 415, 501, 503, 504}
"""Statuses of requests with changed bytes."""
TIMEOUT = 30
"""Time limit of a request of the service, in seconds."""
FOLDER_SECONDS = 60.0
"""Mean time between two attacks on workers or the run folder."""
OPTIONS = ["--timeout", f"{TIMEOUT}", "--max-symbols", "40", "--reload-interval", "1", "--log-format", "json"]


@dataclass
class AttackReport:
    """Counts of what happened."""

    attacks: Counter[str] = field(default_factory=Counter)
    ordinary: Counter[str] = field(default_factory=Counter)
    """Ordinary requests by their result."""
    unexpected: list[str] = field(default_factory=list)
    health_seconds: list[float] = field(default_factory=list)
    request_seconds: list[float] = field(default_factory=list)
    """Seconds of ordinary requests outside attacks on workers and folders."""
    memory: list[int] = field(default_factory=list)
    """Memory of the server and of its workers together, in MiB."""


@dataclass
class ServiceAttack:
    """A service, its attackers, and its ordinary clients."""

    port: int
    process: "subprocess.Popen[str]"
    run: Path
    original: Path
    expected: dict[str, str]
    chance: random.Random
    report: AttackReport = field(default_factory=AttackReport)
    disturbed_until: float = 0.0
    """Time until which a worker may be missing, so that ordinary requests may fail."""
    flooded_until: float = 0.0
    """Time until which a connection may be replaced by another one before its request arrives."""

    async def request(self, name: str, content: bytes, allowed: Sequence[Sequence[int]]) -> None:
        """Send bytes, and record statuses that are not allowed."""
        statuses = await exchange(self.port, content, TIMEOUT + 5)
        is_disturbed = time.monotonic() < self.disturbed_until and {*statuses} & {503, 504}
        is_replaced = not statuses and time.monotonic() < self.flooded_until
        if statuses not in [list(each) for each in allowed] and not is_disturbed and not is_replaced:
            self.record_unexpected(f"{name}: {statuses} in place of {allowed}")

    async def send_known_request(self) -> None:
        """Send one of the requests with known statuses."""
        chosen = self.chance.choice(REQUESTS)
        await self.request(chosen.name, chosen.content, chosen.statuses)

    async def send_changed_request(self) -> None:
        """Send a request with changed bytes; the answer must not be an internal error."""
        content = mutate(self.chance.choice(REQUESTS).content, self.chance)
        statuses = await exchange(self.port, content, TIMEOUT + 5)
        if not {*statuses} <= ALLOWED:
            self.record_unexpected(f"changed bytes: {statuses}: {content[:300]!r}")

    async def send_slowly(self) -> None:
        """Send headers or a body byte by byte; the service must close the connection in time."""
        slow_body = POST + b"Content-Length: 50\r\n\r\n" + b" " * 50
        content = self.chance.choice([GET * 20, post(ROW % b'"abcdefgh"'), slow_body])
        start = self.chance.choice([0, content.find(b"\r\n\r\n") + 4])
        await self._trickle(content[:start], content[start:], 0.7)

    async def trickle_after_answer(self) -> None:
        """Send a body byte by byte to a path that needs none."""
        await self._trickle(POST.replace(b"/v1/predict", b"/none") + b"Content-Length: 1000\r\n\r\n", b"a" * 1000, 0.5)

    async def _trickle(self, head: bytes, rest: bytes, pause: float) -> None:
        """Send bytes one by one until the service closes the connection; record one that stays open too long."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(head)
        started, end = time.monotonic(), asyncio.ensure_future(read_all(reader))
        with suppress(ConnectionError):
            for index in range(len(rest)):
                await asyncio.wait({end}, timeout=pause)
                if end.done() or time.monotonic() > started + 60:
                    break
                writer.write(rest[index : index + 1])
        if not end.done() and time.monotonic() > started + 60:
            self.record_unexpected("a slow client was not disconnected in 60 seconds")
        end.cancel()
        writer.transport.abort()

    async def never_read(self) -> None:
        """Ask for many large answers on one connection, and read nothing; the service must end the connection."""
        loop, num_answers, received = asyncio.get_running_loop(), 800, 0
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", self.port))
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(75):
                    await loop.sock_sendall(client, (GET.replace(b"/health", b"/openapi.json") + b"\r\n") * num_answers)
                    await asyncio.sleep(75)
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(10):
                    while piece := await loop.sock_recv(client, 1 << 20):
                        received += len(STATUS.findall(piece))
        if received > num_answers // 2:
            self.report.unexpected.append(
                f"a client that read nothing for 75 seconds still received {received} answers"
            )

    async def leave_early(self) -> None:
        """Leave in the middle of a request, before its answer, or in the middle of the answer."""
        rows = json.dumps({"rows": [{"source": word} for word in self.chance.sample([*self.expected], 8)]}).encode()
        content = post(rows).replace(b"predict", self.chance.choice([b"predict", b"nbest", b"attention"]))
        part = content[: self.chance.randrange(1, 2 * len(content))]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(part)
        await asyncio.sleep(self.chance.random() * 0.3)
        with suppress(ConnectionError, TimeoutError):
            if self.chance.random() < 0.5 and len(part) == len(content):
                await asyncio.wait_for(reader.read(100), 2)
            if self.chance.random() < 0.3:
                writer.write_eof()  # half closed
                await asyncio.wait_for(read_all(reader), TIMEOUT)
        writer.transport.abort()

    async def stay_idle(self) -> None:
        """Open many connections and send nothing, or a part of the headers."""
        count = self.chance.choice([50, 200, 1300])
        start, writers = self.chance.choice([b"", b"POST /v1/pre", GET + b"\r\n"]), list[asyncio.StreamWriter]()
        for _ in range(count):
            if count > 1000:
                self.flooded_until = time.monotonic() + TIMEOUT + 10
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(start)
                writers.append(writer)
        await asyncio.sleep(self.chance.choice([1, 5, 15]))
        for writer in writers:
            writer.transport.abort()

    async def disturb_workers(self) -> None:
        """Kill or stop the worker, or damage the run folder, and restore everything."""
        model = self.run / "model.safetensors"
        action = self.chance.choice(["kill", "stop", "cut", "remove", "replace", "touch"])
        self.report.attacks[f"worker: {action}"] += 1
        self.disturbed_until = time.monotonic() + 300
        if action in ("kill", "stop"):
            self._signal_workers(signal.SIGKILL if action == "kill" else signal.SIGSTOP)
        elif action == "cut":
            model.write_bytes(model.read_bytes()[: self.chance.choice([0, 7, 1000, 100_000])])
        elif action == "remove":
            shutil.rmtree(self.run)
        elif action == "touch":
            model.touch()
        if action in ("cut", "remove") and self.chance.random() < 0.7:
            await asyncio.sleep(self.chance.random() * 3)
            self._signal_workers(signal.SIGKILL)  # it must be restarted from a broken folder
        await asyncio.sleep(self.chance.random() * 6)
        if action in ("cut", "remove", "replace"):
            self._restore()
        await self._wait_until_ready()

    def _restore(self) -> None:
        """Put a complete copy of the run folder in place."""
        copy = self.run.with_name("copy")
        shutil.copytree(self.original, copy)
        shutil.rmtree(self.run, ignore_errors=True)
        copy.rename(self.run)

    def _signal_workers(self, number: signal.Signals) -> None:
        """Send a signal to the workers."""
        for process_id in worker_processes(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(process_id, number)

    async def _wait_until_ready(self) -> None:
        """Wait until ordinary requests are answered again."""
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            word = self.chance.choice([*self.expected])
            if await exchange(self.port, post(json.dumps({"rows": [{"source": word}]}).encode()), TIMEOUT + 5) == [200]:
                break
            await asyncio.sleep(1)
        else:
            self.record_unexpected("the service was not ready 120 seconds after an attack on its worker")
        self.disturbed_until = time.monotonic() + 5

    async def serve_ordinary_client(self, seconds: float, end: float) -> None:
        """Send ordinary requests, and compare the outputs."""
        chance = random.Random(self.chance.random())
        while time.monotonic() < end:
            await asyncio.sleep(chance.expovariate(1 / seconds))
            words = chance.sample([*self.expected], chance.randint(1, 4))
            began_disturbed, started = time.monotonic() < self.disturbed_until, time.monotonic()
            try:
                status, content = await ask(self.port, "/v1/predict", {"rows": [{"source": word} for word in words]})
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                status, content = 0, type(error).__name__.encode()
            is_disturbed = began_disturbed or time.monotonic() < self.disturbed_until
            if status == 200:
                outputs = [result["output"] for result in json.loads(content)["results"]]
                result = "correct" if outputs == [self.expected[word] for word in words] else "wrong output"
                if not is_disturbed:
                    self.report.request_seconds.append(time.monotonic() - started)
            else:
                result = f"status {status}"
            self.report.ordinary[result + (", during an attack on the worker" if is_disturbed else "")] += 1
            if result == "wrong output" or (result != "correct" and not is_disturbed):
                self.record_unexpected(f"ordinary client: {result}: {content[:200]!r}")

    async def watch_health(self, end: float) -> None:
        """Ask for the health once a second, and sample the memory."""
        while time.monotonic() < end:
            started = time.monotonic()
            try:
                status, _ = await ask(self.port, "/health", None)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                self.record_unexpected(f"health: {type(error).__name__}")
            else:
                self.report.health_seconds.append(time.monotonic() - started)
                if status != 200:
                    self.record_unexpected(f"health: status {status}")
            processes = [self.process.pid, *worker_processes(self.process.pid)]
            self.report.memory.append(sum(map(resident_memory, processes)))
            await asyncio.sleep(1)

    async def repeat(self, attacks: Sequence[Attack], pause: float, end: float) -> None:
        """Begin a random attack after each pause, and wait for those that run at the end."""
        running = set[asyncio.Task[None]]()
        functions, weights = [each for each, _ in attacks], [weight for _, weight in attacks]
        while time.monotonic() < end:
            await asyncio.sleep(self.chance.expovariate(1 / pause))
            (attack,) = self.chance.choices(functions, weights)
            self.report.attacks[attack.__name__] += 1
            task = asyncio.ensure_future(self._record_error(attack))
            running.add(task)
            task.add_done_callback(running.discard)
            if attack.__name__ == "disturb_workers":
                await task
        await asyncio.gather(*running)

    async def _record_error(self, attack: Callable[[], Awaitable[None]]) -> None:
        """Run an attack; an error other than a closed connection is unexpected."""
        try:
            await attack()
        except ConnectionError:
            pass
        except Exception as error:
            self.record_unexpected(f"{attack.__name__}: {error!r}")

    def record_unexpected(self, text: str) -> None:
        """Count something unexpected, and print it."""
        self.report.unexpected.append(text)
        print(json.dumps({"case": "unexpected", "time": time.strftime("%H:%M:%S"), "text": text}), flush=True)

    async def print_progress(self, end: float) -> None:
        """Print one line a minute."""
        while time.monotonic() < end:
            await asyncio.sleep(60)
            print(json.dumps(self.describe()), flush=True)

    def describe(self) -> dict[str, object]:
        """Return the counts so far."""
        report = self.report
        health, requests = sorted(report.health_seconds or [0.0]), sorted(report.request_seconds or [0.0])
        return {
            "time": time.strftime("%H:%M:%S"),
            "attacks": report.attacks.total(),
            "ordinary": dict(report.ordinary),
            "unexpected": len(report.unexpected),
            "health_max_seconds": round(health[-1], 2),
            "health_p99_seconds": round(health[int(len(health) * 0.99)], 3),
            "request_p50_seconds": round(requests[len(requests) // 2], 3),
            "request_p99_seconds": round(requests[int(len(requests) * 0.99)], 3),
            "memory": report.memory[-1:],
            "memory_max": max(report.memory, default=0),
            "files": open_files(self.process.pid),
            "cpu_seconds": round(cpu_seconds(self.process.pid) + time.process_time(), 1),
        }

    async def attack(self, seconds: float, pause: float) -> None:
        """Run all attacks and ordinary clients, and print the report."""
        end = time.monotonic() + seconds
        requests = [
            (self.send_known_request, 20),
            (self.send_changed_request, 20),
            (self.send_slowly, 3),
            (self.trickle_after_answer, 2),
            (self.never_read, 2),
            (self.leave_early, 8),
            (self.stay_idle, 1),
        ]
        await asyncio.gather(
            self.repeat(requests, pause, end),
            self.repeat([(self.disturb_workers, 1)], FOLDER_SECONDS, end),
            self.serve_ordinary_client(2.0, end),
            self.serve_ordinary_client(4.0, end),
            self.watch_health(end),
            self.print_progress(end),
        )
        await asyncio.sleep(15)  # connections that the attackers left are closed


REQUESTS = all_requests()


async def read_all(reader: asyncio.StreamReader) -> None:
    """Read until the end of the connection."""
    with suppress(ConnectionError):
        while await reader.read(65536):
            pass


async def ask(port: int, path: str, content: object) -> tuple[int, bytes]:
    """Send an ordinary request on a new connection, and return the status and the body of the response."""
    async with asyncio.timeout(TIMEOUT + 20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b"" if content is None else json.dumps(content).encode()
        line = b"GET" if content is None else b"POST"
        head = line + b" %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % path.encode()
        writer.write(head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        received = await reader.readexactly(length)
        writer.close()
    return int(head.split(b" ")[1]), received


def worker_processes(process_id: int) -> list[int]:
    """Return the identities of the worker processes of a service."""
    children = list[int]()
    for path in Path(f"/proc/{process_id}/task").glob("*/children"):
        with suppress(OSError):
            children += map(int, path.read_text().split())
    return [each for each in children if "spawn_main" in read_file(f"/proc/{each}/cmdline")]


def read_file(path: str) -> str:
    """Return a file of /proc; "" if the process has ended."""
    try:
        return Path(path).read_text("latin-1")
    except OSError:
        return ""


def resident_memory(process_id: int) -> int:
    """Return the resident memory of a process in MiB."""
    words = read_file(f"/proc/{process_id}/status").partition("VmRSS:")[2].split()
    return int(words[0]) // 1024 if words else 0


def open_files(process_id: int) -> int:
    """Return the number of open files of a process."""
    return len(os.listdir(f"/proc/{process_id}/fd"))


def cpu_seconds(process_id: int) -> float:
    """Return the CPU time of a service, its workers, and those that have ended."""
    total = 0
    for index, each in enumerate([process_id, *worker_processes(process_id)]):
        fields = read_file(f"/proc/{each}/stat").rpartition(")")[2].split()
        total += sum(map(int, fields[11 : 15 if index == 0 else 13]))
    return total / os.sysconf("SC_CLK_TCK")


def print_end(attack: ServiceAttack, files_before: int, log: Path) -> None:
    """Stop the service, and print all that was unexpected."""
    server, files = attack.process.pid, open_files(attack.process.pid)
    processes = worker_processes(server)
    print(json.dumps({"case": "attacks", **dict(attack.report.attacks)}))
    print(json.dumps({"case": "end", **attack.describe(), "files_before": files_before, "workers": len(processes)}))
    started = time.monotonic()
    attack.process.send_signal(signal.SIGTERM)
    code = attack.process.wait(60)
    left = [each for each in processes if Path(f"/proc/{each}").exists()]
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    other = [line for line in text.splitlines() if not line.startswith("{")]
    levels = Counter(line["level"] for line in lines)
    stop = {"code": code, "seconds": round(time.monotonic() - started, 1), "processes_left": len(left), "files": files}
    print(json.dumps({"case": "stop", **stop, "tracebacks": text.lower().count("traceback")}))
    statuses = Counter(f"{line.get('status', 'message')}" for line in lines)
    print(json.dumps({"case": "log", "levels": levels, "other": other, "statuses": statuses}))


def main() -> None:
    """Start the service, and attack it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds between two attacks")
    parser.add_argument("--log", type=Path, help="file of the log of the service")
    args = parser.parse_args()
    lines = args.sources.read_text("utf-8").splitlines()[1:61]
    words = [line.replace("\t", ",").partition(",")[0] for line in lines]
    expected = {word: trace.output for word, trace in zip(words, pellucid.load(args.run).predict(words), strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        run, log = Path(folder) / "run", args.log or Path(folder) / "service.log"
        shutil.copytree(args.run, run)
        command = [sys.executable, "-m", "pellucid", "serve", str(run), "--port", "0", *OPTIONS]
        with log.open("w") as stderr:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert process.stdout is not None
        try:
            port = urlsplit(process.stdout.readline().strip()).port
            assert port, "the service did not start"
            attack = ServiceAttack(port, process, run, args.run, expected, random.Random(args.seed))
            asyncio.run(run_attack(attack, args.seconds, args.pause, log))
        finally:
            process.kill()
            process.wait()


async def run_attack(attack: ServiceAttack, seconds: float, pause: float, log: Path) -> None:
    """Wait for the service, attack it, and print the report."""
    await attack._wait_until_ready()
    attack.disturbed_until = 0.0
    files_before = open_files(attack.process.pid)
    await attack.attack(seconds, pause)
    await asyncio.to_thread(print_end, attack, files_before, log)


if __name__ == "__main__":
    main()
