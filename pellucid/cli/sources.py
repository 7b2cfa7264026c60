"""Lines of input for the verbs that answer each with lines of output, and what is told of them at the end."""

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from pellucid.config import DataConfig, Format
from pellucid.data.examples import BadLine, Example
from pellucid.errors import DataError, InputError
from pellucid.search.trace import Trace

CHUNK = 1024
"""Lines decoded together at most: they bound the memory, whatever the length of the file."""
OUTPUTS = 2**14
"""Outputs held at a time at most, where lines have many of them."""
LISTED = 5
LONGEST = 40
"""Characters of a symbol that are told."""
MARKS = ("config.toml", "ensemble.json")
"""Files that only folders of runs and of ensembles hold."""
Item = Example | BadLine
Reader = Callable[[Path, DataConfig, Format], Iterator[Item]]
Parser = Callable[[Iterable[bytes], str, DataConfig], Iterator[Item]]


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run or of an ensemble."""
    return any((path / mark).is_file() for mark in MARKS)


def check_order(paths: Sequence[Path], verb: str) -> None:
    """`InputError` where a file stands before the folder of a run."""
    folder = next((path for path in paths[1:] if is_run(path)), None)
    if folder is not None and paths[0].is_file():
        raise InputError(
            f"{paths[0]} is a file, and {folder} the folder of a run: folders come first, then the file (pellucid "
            f"{verb} {folder} {paths[0]})"
        )


def apart(first: Path, rest: Sequence[Path], verb: str) -> tuple[list[Path], Path]:
    """The run folders and the input among the places of a command line: a last one that is no run is the input.

    Without one, standard input is: "-". `InputError` where the input stands before a run.
    """
    check_order([first, *rest], verb)
    if rest and not is_run(rest[-1]):
        return [first, *rest[:-1]], rest[-1]
    return [first, *rest], Path("-")


def standard_input() -> BinaryIO:
    """The bytes of standard input; `DataError` where it is closed."""
    if sys.stdin is None:
        raise DataError("standard input is closed: give a file of sources")
    return sys.stdin.buffer


def chunks(
    file: Path, data: DataConfig, format: Format, how: tuple[Reader, Parser], outputs: int = 1
) -> Iterator[list[Item]]:
    """The input in pieces of at most `CHUNK` records, `outputs` of each wanted; standard input by what has arrived."""
    (read, parse), most = how, max(1, min(CHUNK, OUTPUTS // outputs))
    if str(file) != "-":
        items = iter(read(file, data, format))
        while chunk := list(islice(items, most)):
            yield chunk
        return
    if format != "auto":
        data = msgspec.structs.replace(data, format=format)
    arriving = Arriving(standard_input())
    chunk = []
    for item in parse(arriving, "standard input", data):
        chunk.append(item)
        if len(chunk) == most or not arriving.waiting:
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


def refused(items: Sequence[Item]) -> int | None:
    """Where the first unreadable line stands, if there is one: what comes before it is still answered."""
    return next((at for at, item in enumerate(items) if isinstance(item, BadLine)), None)


def escaped(text: str, tabs: bool = True) -> str:
    r"""A text that stays on its line, and in its column: line breaks as \n, tabs as \t."""
    text = text.replace("\n", "\\n")
    return text.replace("\t", "\\t") if tabs else text


class Notes:
    """What is counted while decoding, and told once at its end."""

    def __init__(self, required: Sequence[str] = ()) -> None:
        """Nothing yet; every output was asked to hold the `required` symbols."""
        self.lines = 0
        self.required = set(required)
        self.bad: list[BadLine] = []
        self.unknown: Counter[str] = Counter()
        self.unknown_targets: Counter[str] = Counter()
        self.cut = 0
        self.untagged = 0
        self.known = 0
        self.lacking = 0

    def note(self, item: Item, trace: Trace | None) -> None:
        """Count what one line brought."""
        self.lines += 1
        if isinstance(item, BadLine):
            self.bad.append(item)
        if trace is None:
            return
        self.known += trace.origin == "lexicon"
        if trace.origin != "lexicon":
            self.unknown.update(trace.source[at] for at in trace.unknown)
            self.unknown_targets.update(trace.target[at] for at in trace.unknown_target)
            self.untagged += bool(trace.source) and not (trace.features or trace.added)
        self.cut += not trace.finished
        self.lacking += bool(trace.source) and not self.required <= set(trace.target)

    def tell(self, tagged: bool) -> None:
        """Say it, on standard error; `tagged` says that the model was trained with features."""
        if not self.lines:
            say("no line came in, so none went out")
        for line in self.bad[:LISTED]:
            say(f"no output for {line}")
        if len(self.bad) > LISTED:
            say(f"no output for {counted(len(self.bad) - LISTED, 'more bad line')}")
        if self.known:
            say(f"{counted(self.known, 'source')} answered by the lexicon")
        _tell_unknown(self.unknown, "source symbol", "not in the training data and read as unknown")
        _tell_unknown(self.unknown_targets, "target symbol", "not in the training data and counted as unknown")
        if tagged and self.untagged:
            say(f"{counted(self.untagged, 'source')} without features; the model expects them")
        if self.cut:
            say(f"{counted(self.cut, 'output')} cut at the greatest length")
        if self.lacking:
            say(f"{counted(self.lacking, 'output')} without a symbol that --require asks for: the search found none")


def counted(number: int, noun: str) -> str:
    """How many there are of something: "1 output", "1,200 outputs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def say(message: str) -> None:
    """One line on standard error."""
    print(f"pellucid: {message}", file=sys.stderr)


def _short(symbol: str) -> str:
    """A symbol, or the beginning of one that is longer than any line."""
    return symbol if len(symbol) <= LONGEST else f"{symbol[: LONGEST - 1]}…"


def _tell_unknown(found: "Counter[str]", what: str, how: str) -> None:
    """Say which unknown symbols were met most, if any were."""
    if found:
        most = ", ".join(f"{_short(symbol)!r} × {count:,}" for symbol, count in found.most_common(LISTED))
        say(f"{counted(found.total(), what)} ({len(found):,} different) {how}: {most}")
