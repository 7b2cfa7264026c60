"""pellucid predict DIR [FILE|-] [--format text|tsv|jsonl]"""

import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
import tyro

from pellucid.config import DataConfig, Device, Format
from pellucid.data.examples import BadLine, Example, parse_sources, read_sources
from pellucid.errors import DataError
from pellucid.search.trace import Trace

CHUNK = 1024
"""Lines decoded together at most: they bound the memory, whatever the length of the file."""
LISTED = 5


@dataclass(frozen=True)
class Arguments:
    """Decode sources with a trained model: one line out for every line in, empty lines included."""

    run: tyro.conf.Positional[Path]
    """Folder of a trained run."""
    file: tyro.conf.Positional[Path] = Path("-")
    """Sources: a file like the training file (the target column may be missing), or - for standard input."""
    format: Literal["text", "tsv", "jsonl"] = "text"
    """text: the output alone; tsv: source, output, log-probability; jsonl: the whole trace with its attention."""
    input_format: Format = "auto"
    """Format of the input; auto goes by the file's name, then by the training file's."""
    beam: int | None = None
    """Hypotheses kept for each source at every step, instead of the run's search.beam_width; 1 is greedy."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What an unreadable line does: stop, or give an empty output, counted and listed."""
    device: Device = "cpu"
    """What decodes: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""


def run(arguments: list[str]) -> int:
    """Decode, and say on standard error what a person should know of it."""
    given = tyro.cli(Arguments, prog="pellucid predict", args=arguments)
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.model.threads import use_threads
    from pellucid.training.run import load

    transducer = load(given.run, given.device)
    if given.beam is not None:
        transducer = transducer.with_beam(given.beam)
    use_threads(transducer.config.threads)
    teller = Notes()
    for chunk in _chunks(given.file, transducer.config.data, given.input_format):
        refused = _refused(chunk) if given.on_bad_line == "stop" else None
        traces = iter(transducer.trace([item for item in chunk[:refused] if isinstance(item, Example)]))
        for item in chunk[:refused]:
            trace = next(traces) if isinstance(item, Example) else None
            teller.note(item, trace)
            sys.stdout.write((_line(trace, given.format) if trace else _bad_line(item, given.format)) + "\n")
        sys.stdout.flush()
        if refused is not None:
            raise DataError(f"{chunk[refused]} (--on-bad-line skip gives such lines an empty output)")
    teller.tell(bool(transducer.config.data.features_column))
    return 0


class Notes:
    """What is counted while decoding, and told once at its end."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.bad: list[BadLine] = []
        self.unknown: Counter[str] = Counter()
        self.cut = 0
        self.untagged = 0

    def note(self, item: Example | BadLine, trace: Trace | None) -> None:
        """Count what one line brought."""
        if isinstance(item, BadLine):
            self.bad.append(item)
        if trace is not None:
            self.unknown.update(trace.source[at] for at in trace.unknown)
            self.cut += not trace.finished
            self.untagged += bool(trace.source) and not trace.features

    def tell(self, tagged: bool) -> None:
        """Say it, on standard error; `tagged` says that the model was trained with features."""
        for line in self.bad[:LISTED]:
            print(f"pellucid: no output for {line}", file=sys.stderr)
        if len(self.bad) > LISTED:
            print(f"pellucid: no output for {len(self.bad) - LISTED:,} more bad lines", file=sys.stderr)
        if self.unknown:
            most = ", ".join(f"{symbol!r} × {count:,}" for symbol, count in self.unknown.most_common(LISTED))
            print(
                f"pellucid: {self.unknown.total():,} symbols ({len(self.unknown):,} different) are not in the "
                f"training data and were read as unknown: {most}",
                file=sys.stderr,
            )
        if tagged and self.untagged:
            print(f"pellucid: {self.untagged:,} sources came without features; the model expects them", file=sys.stderr)
        if self.cut:
            print(f"pellucid: {self.cut:,} outputs were cut at the greatest length", file=sys.stderr)


def _chunks(file: Path, data: DataConfig, format: Format) -> Iterator[list[Example | BadLine]]:
    """The input in pieces of at most `CHUNK` records; standard input by what has arrived."""
    if str(file) != "-":
        items = iter(read_sources(file, data, format))
        while chunk := list(islice(items, CHUNK)):
            yield chunk
        return
    if format != "auto":
        data = msgspec.structs.replace(data, format=format)
    if sys.stdin is None:
        raise DataError("standard input is closed: give a file of sources")
    arriving = Arriving(sys.stdin.buffer)
    chunk = []
    for item in parse_sources(arriving, "standard input", data):
        chunk.append(item)
        if len(chunk) == CHUNK or not arriving.waiting:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class Arriving:
    """Lines as they arrive, so that who types or pipes one line gets its answer before the next."""

    def __init__(self, stream: BinaryIO) -> None:
        """Nothing has arrived yet."""
        self.stream = stream
        self.waiting: deque[bytes] = deque()

    def __iter__(self) -> Iterator[bytes]:
        """Whole lines; the last one may lack its end."""
        rest = b""
        while piece := self.stream.read1(1 << 16):  # type: ignore[attr-defined]
            *lines, rest = (rest + piece).split(b"\n")
            self.waiting.extend(line + b"\n" for line in lines)
            while self.waiting:
                yield self.waiting.popleft()
        if rest:
            yield rest


def _refused(items: Sequence[Example | BadLine]) -> int | None:
    """Where the first unreadable line stands, if there is one: what comes before it is still answered."""
    return next((at for at, item in enumerate(items) if isinstance(item, BadLine)), None)


def _line(trace: Trace, kind: Literal["text", "tsv", "jsonl"]) -> str:
    """One output line. A line break inside a text is written as \\n (and a tab as \\t in TSV): lines stay lines."""
    match kind:
        case "text":
            return trace.output.replace("\n", "\\n")
        case "tsv":
            texts = (text.replace("\n", "\\n").replace("\t", "\\t") for text in (trace.text, trace.output))
            return "\t".join([*texts, f"{trace.score:.6f}"])
        case "jsonl":
            return msgspec.json.encode(trace.to_dict()).decode()


def _bad_line(item: Example | BadLine, kind: Literal["text", "tsv", "jsonl"]) -> str:
    """The output line of an unreadable one: empty, or the reason as JSON."""
    if kind == "jsonl":
        return msgspec.json.encode({"output": None, "error": str(item)}).decode()
    return "" if kind == "text" else "\t\t"
