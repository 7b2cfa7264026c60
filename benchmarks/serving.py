"""Open-loop load on `pellucid serve` over loopback.

    python benchmarks/serving.py RUN SOURCES [--seconds 60] [--load 0.5 0.8 1.2] [--soak MINUTES]

RUN is a run folder; SOURCES is a file of which the first column of each line is sent, one row per request. The
saturation is measured first, by 64 clients that each send a request after the answer to the last one. Then requests
arrive at random times (a Poisson process) at shares of the saturation, whether or not earlier ones are answered, each
on a connection of a pool. Latency counts from the time at which the request was to be sent. At the end requests are
sent while the service gets SIGTERM, and the answers that are missing are counted. Of each answer, the output is
compared with that of `Predictor.predict` for the source alone. One line of JSON is printed per measurement.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
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

    async def send(self, source: str, result: LoadResult, due: float) -> None:
        """Send a source, and record the answer; `due` is the time at which it was to be sent."""
        body = json.dumps({"rows": [{"source": source}]}).encode()
        head = HEADERS % len(body)
        try:
            self.idle = [each for each in self.idle if not each[0].at_eof()]
            if not self.idle:
                self.idle.append(await asyncio.open_connection("127.0.0.1", self.port))
            reader, writer = self.idle.pop()
            writer.write(head + body)
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

    async def repeat(chance: random.Random) -> None:
        """Send random sources until the time is over."""
        while time.monotonic() < started + seconds:
            await client.send(chance.choice(sources), result, time.monotonic())

    await asyncio.gather(*(repeat(random.Random(seed)) for seed in range(NUM_CLIENTS)))
    result.seconds = time.monotonic() - started
    return result


async def measure_open_loop(client: Client, sources: Sequence[str], rate: float, seconds: float) -> LoadResult:
    """Send requests at the times of a Poisson process with a rate per second."""
    result, chance, tasks = LoadResult(), random.Random(1), list[asyncio.Task[None]]()
    started = due = time.monotonic()
    while (due := due + chance.expovariate(rate)) < started + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.append(asyncio.create_task(client.send(chance.choice(sources), result, due)))
    await asyncio.gather(*tasks)
    result.seconds = time.monotonic() - started
    return result


async def count_lost_answers(client: Client, sources: Sequence[str], process: Process) -> dict[str, object]:
    """Send 200 requests at once, then SIGTERM, and count the requests without an answer."""
    client.idle.clear()
    result = LoadResult()
    tasks = [asyncio.create_task(client.send(source, result, time.monotonic())) for source in sources[:200]]
    await asyncio.sleep(0.3)  # all connections are open, and all requests are sent
    process.send_signal(signal.SIGTERM)
    await asyncio.gather(*tasks)
    return {"case": "SIGTERM", "requests": len(tasks), "lost": result.statuses[0], "statuses": dict(result.statuses)}


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


async def batch_rows(port: int) -> tuple[float, float]:
    """Return the number of rows and of batches so far."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    values = {
        line.partition("{")[0]: line.split()[-1] for line in (await reader.read()).decode().splitlines() if "{" in line
    }
    return float(values.get("pellucid_batch_rows_sum", 0)), float(values.get("pellucid_batch_rows_count", 0))


async def measure(args: argparse.Namespace, sources: Sequence[str], process: Process, port: int) -> None:
    """Print all measurements."""
    client, outputs = Client(port), dict[str, str]()
    await measure_saturation(client, sources, 3)  # warm-up
    saturation = await measure_saturation(client, sources, args.seconds)
    outputs |= saturation.outputs
    rate = saturation.statuses[200] / saturation.seconds
    print(json.dumps({"case": "saturation", **saturation.describe()}), flush=True)
    cases = [(share, args.seconds) for share in args.load] + ([(0.8, 60 * args.soak)] if args.soak else [])
    for share, seconds in cases:
        memory, (rows, batches) = memory_of(process.pid), await batch_rows(port)
        result = await measure_open_loop(client, sources, share * rate, seconds)
        (rows_after, batches_after), outputs = await batch_rows(port), outputs | result.outputs
        figures = {"rows_per_batch": round((rows_after - rows) / max(1, batches_after - batches), 1)}
        figures |= {"memory_begin": memory, "memory_end": memory_of(process.pid)}
        print(json.dumps({"case": f"{share:.0%}", "seconds": seconds, **result.describe(), **figures}), flush=True)
    print(json.dumps(await count_lost_answers(client, sources, process)), flush=True)
    predictor = pellucid.load(args.run)
    different = sum(predictor.predict([source])[0].output != output for source, output in outputs.items())
    print(json.dumps({"case": "equality", "compared": len(outputs), "different": different}), flush=True)


def main() -> None:
    """Start the service, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--load", type=float, nargs="*", default=[0.5, 0.8, 1.2])
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--max-queued-rows", default="256")
    args = parser.parse_args()
    sources = [line.partition("\t")[0] for line in args.sources.read_text("utf-8").splitlines() if line]
    command = [sys.executable, "-m", "pellucid", "serve", str(args.run), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--max-queued-rows", args.max_queued_rows], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert process.stdout is not None
    try:
        port = urlsplit(process.stdout.readline().strip()).port
        assert port, "the service did not start"
        asyncio.run(measure(args, sources, process, port))
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
