"""Open-loop load on `pellucid serve` over loopback.

    python benchmarks/serving.py RUN SOURCES [--seconds 60] [--load 0.5 0.8 1.2] [--soak MINUTES] [--soak-load SHARE]
        [--peer PYTHON]

RUN is a run folder; SOURCES is a file of which the first column of each line is sent, one row per request. The
saturation is measured first, by 64 clients that each send a request after the answer to the last one. Then requests
arrive at random times (a Poisson process) at shares of the saturation, whether or not earlier ones are answered, each
on a connection of a pool. Latency counts from the time at which the request was to be sent. At the end requests are
sent while the service gets SIGTERM, and the answers that are missing are counted. Of each answer, the output is
compared with that of `Predictor.predict` for the source alone. One line of JSON is printed per measurement. With
--peer, the same is measured for `benchmarks/litserve_server.py`, run by an interpreter that has LitServe; its shares
are those of its own saturation, and both are measured once more at half of the smaller saturation.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

import pellucid

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HEADERS = (
    b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
Process = subprocess.Popen[str]
NUM_CLIENTS = 64
"""Number of clients that measure the saturation."""


@dataclass
class LoadResult:
    """Answers of one measurement."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    """Number of answers by status; 0 for a connection that ended without an answer."""
    latencies: list[float] = field(default_factory=list)
    """Seconds of each answer with status 200."""
    outputs: dict[str, str] = field(default_factory=dict)
    """The output of each source."""

    def describe(self) -> dict[str, object]:
        """Return the figures of the measurement."""
        quantiles = np.quantile(self.latencies or [0.0], [0.5, 0.99, 0.999]) * 1000
        total = max(1, self.statuses.total())
        return {
            "requests": total,
            "goodput": round(self.statuses[200] / self.seconds, 1),
            **{
                name: round(float(value), 1)
                for name, value in zip(("p50_ms", "p99_ms", "p999_ms"), quantiles, strict=True)
            },
            "share_503": round(self.statuses[503] / total, 4),
            "statuses": dict(self.statuses),
        }


@dataclass
class Client:
    """Client with a pool of connections to the service."""

    port: int
    idle: list[Connection] = field(default_factory=list)
    num_sent: int = 0
    """Number of requests that were written to a connection."""

    def take_idle(self) -> Connection | None:
        """Return the connection that was used last, without those that the service has closed."""
        while self.idle:
            reader, writer = self.idle.pop()
            if not reader.at_eof() and not writer.transport.is_closing():
                return reader, writer
            writer.close()
        return None

    def close_idle(self) -> None:
        """Close all connections."""
        for _, writer in self.idle:
            writer.close()
        self.idle.clear()

    async def send(self, source: str, result: LoadResult, due: float) -> None:
        """Send a source, and record the answer; `due` is the time at which it was to be sent."""
        body = json.dumps({"rows": [{"source": source}]}).encode()
        head = HEADERS % len(body)
        try:
            reader, writer = self.take_idle() or await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(head + body)
            self.num_sent += 1
            status, content = await read_answer(reader)
        except (OSError, asyncio.IncompleteReadError):
            result.statuses[0] += 1
            return
        self.idle.append((reader, writer))
        result.statuses[status] += 1
        if status == 200:
            result.latencies.append(time.monotonic() - due)
            result.outputs[source] = json.loads(content)["results"][0]["output"]


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and the body of a response."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split(" ")[1]), await reader.readexactly(length)


async def measure_saturation(client: Client, sources: Sequence[str], seconds: float) -> LoadResult:
    """Send requests one after the other from several clients."""
    result, started = LoadResult(), time.monotonic()

    async def repeat(generator: random.Random) -> None:
        """Send random sources until the time is over."""
        while time.monotonic() < started + seconds:
            await client.send(generator.choice(sources), result, time.monotonic())

    await asyncio.gather(*(repeat(random.Random(seed)) for seed in range(NUM_CLIENTS)))
    result.seconds = time.monotonic() - started
    return result


async def measure_open_loop(client: Client, sources: Sequence[str], rate: float, seconds: float) -> LoadResult:
    """Send requests at the times of a Poisson process with a rate per second."""
    result, generator, tasks = LoadResult(), random.Random(1), list[asyncio.Task[None]]()
    started = due = time.monotonic()
    while (due := due + generator.expovariate(rate)) < started + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.append(asyncio.create_task(client.send(generator.choice(sources), result, due)))
    await asyncio.gather(*tasks)
    result.seconds = time.monotonic() - started
    return result


async def count_lost_answers(client: Client, sources: Sequence[str], process: Process) -> dict[str, object]:
    """Send 200 requests at once, then SIGTERM.

    The figures are the number of requests that were not answered at the signal, and of those that never were.
    """
    client.idle.clear()
    result = LoadResult()
    tasks = [asyncio.create_task(client.send(source, result, time.monotonic())) for source in sources[:200]]
    while client.num_sent < len(tasks):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)  # the service accepts the last connections
    pending = len(tasks) - result.statuses.total()
    process.send_signal(signal.SIGTERM)
    await asyncio.gather(*tasks)
    figures = {"requests": len(tasks), "pending": pending, "lost": result.statuses[0]}
    return {"case": "SIGTERM", **figures, "statuses": dict(result.statuses)}


def memory_of(process_id: int) -> int:
    """Return the resident memory of a process and its children, in MiB."""
    total, pending = 0, [process_id]
    while pending:
        each = pending.pop()
        status = Path(f"/proc/{each}/status").read_text()
        total += int(status.partition("VmRSS:")[2].split()[0]) // 1024
        pending += [
            int(word) for path in Path(f"/proc/{each}/task").glob("*/children") for word in path.read_text().split()
        ]
    return total


async def batch_totals(port: int) -> tuple[float, float]:
    """Return the number of rows and of batches so far; 0 for a server without these metrics."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    values = {
        line.partition("{")[0]: line.split()[-1] for line in (await reader.read()).decode().splitlines() if "{" in line
    }
    writer.close()
    return float(values.get("pellucid_batch_rows_sum", 0)), float(values.get("pellucid_batch_rows_count", 0))


@dataclass
class MeasuredService:
    """A running service, and what was measured of it."""

    name: str
    process: Process
    port: int
    outputs: dict[str, str] = field(default_factory=dict)
    saturation: float = 0.0
    """Answers per second of the clients that wait for each answer."""

    def print_line(self, **figures: object) -> None:
        """Print a measurement."""
        print(json.dumps({"service": self.name, **figures}), flush=True)


async def measure(args: argparse.Namespace, sources: Sequence[str], services: Sequence[MeasuredService]) -> None:
    """Print all measurements."""
    for service in services:
        client = Client(service.port)
        await wait_until_ready(client, sources)
        await measure_saturation(client, sources, 3)  # warm-up
        result = await measure_saturation(client, sources, args.seconds)
        service.outputs |= result.outputs
        service.saturation = result.statuses[200] / result.seconds
        service.print_line(case="saturation", **result.describe())
        cases = [(share, args.seconds) for share in args.load]
        cases += [(args.soak_load, 60 * args.soak)] if args.soak else []
        for share, seconds in cases:
            await measure_rate(service, client, sources, f"{share:.0%}", share * service.saturation, seconds)
        client.close_idle()
    if len(services) > 1:
        rate = 0.5 * min(service.saturation for service in services)
        for service in services:
            client = Client(service.port)
            await measure_rate(service, client, sources, "same rate", rate, args.seconds)
            client.close_idle()
    for service in services:
        lost = await count_lost_answers(Client(service.port), sources, service.process)
        service.print_line(**lost)


async def measure_rate(
    service: MeasuredService, client: Client, sources: Sequence[str], case: str, rate: float, seconds: float
) -> None:
    """Print the measurement of a rate of requests per second."""
    memory, (rows, batches) = list[int](), await batch_totals(service.port)
    sampling = asyncio.create_task(sample_memory(service.process.pid, memory))
    result = await measure_open_loop(client, sources, rate, seconds)
    sampling.cancel()
    rows_after, batches_after = await batch_totals(service.port)
    service.outputs |= result.outputs
    figures = {"rows_per_batch": round((rows_after - rows) / max(1, batches_after - batches), 1)}
    memory.append(memory_of(service.process.pid))
    service.print_line(case=case, rate=round(rate, 1), seconds=seconds, **result.describe(), **figures, memory=memory)


async def sample_memory(process_id: int, memory: list[int]) -> None:
    """Append the memory of a service to a list, now and once in five minutes."""
    while True:
        memory.append(memory_of(process_id))
        await asyncio.sleep(300)


async def wait_until_ready(client: Client, sources: Sequence[str]) -> None:
    """Send requests until one is answered."""
    result, end = LoadResult(), time.monotonic() + 120
    while not result.statuses[200]:
        assert time.monotonic() < end, "the service did not start"
        await client.send(sources[0], result, time.monotonic())
        await asyncio.sleep(0.2)


def start_service(args: argparse.Namespace) -> MeasuredService:
    """Start `pellucid serve`."""
    command = [sys.executable, "-m", "pellucid", "serve", str(args.run), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--max-queued-rows", args.max_queued_rows], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    port = urlsplit(process.stdout.readline().strip()).port
    assert port, "the service did not start"
    return MeasuredService("pellucid", process, port)


def start_peer(args: argparse.Namespace) -> MeasuredService:
    """Start LitServe at a free port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    program = Path(__file__).with_name("litserve_server.py")
    command = [args.peer, str(program), str(args.run), str(port), "--batch-timeout", args.batch_timeout]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True, start_new_session=True)
    return MeasuredService("litserve", process, port)


def main() -> None:
    """Start the services, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--load", type=float, nargs="*", default=[0.5, 0.8, 1.2])
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--soak-load", type=float, default=0.8, metavar="SHARE", help="share of the saturation")
    parser.add_argument("--max-queued-rows", default="256")
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter that has LitServe and pellucid")
    parser.add_argument("--batch-timeout", default="0.005", help="seconds for which LitServe waits for a batch")
    args = parser.parse_args()
    separator = "," if args.sources.suffix == ".csv" else "\t"
    sources = [line.partition(separator)[0] for line in args.sources.read_text("utf-8").splitlines() if line]
    services = list[MeasuredService]()
    try:
        services.append(start_service(args))
        if args.peer:
            services.append(start_peer(args))
        asyncio.run(measure(args, sources, services))
        predictor = pellucid.load(args.run)
        for service in services:
            different = sum(predictor.predict([source])[0].output != text for source, text in service.outputs.items())
            service.print_line(case="equality", compared=len(service.outputs), different=different)
    finally:
        for service in services:
            service.process.terminate()
            try:
                service.process.wait(30)
            except subprocess.TimeoutExpired:
                service.process.kill()
                service.process.wait()
            if service.name != "pellucid":  # LitServe leaves its worker process
                with suppress(ProcessLookupError):
                    os.killpg(service.process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
