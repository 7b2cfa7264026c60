"""Input of predict and score: sources, prefixes, and messages about them."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pellucid.cli.messages import say
from pellucid.config.settings import DataConfig
from pellucid.data.examples import BadLine, Example, Input
from pellucid.data.headers import of_another_file
from pellucid.data.lines import ArrivingLines, RecordError, file_lines, line_text
from pellucid.decoding.streaming import PartSize, characters_of, chunked
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError, InputError, quote

if TYPE_CHECKING:
    from pellucid.decoding.predictor import Predictor


class Prefixes:
    """Prefixes handed out in the order of the input, one for each of its lines, whatever that holds."""

    def __init__(self, path: Path, transducer: "Predictor") -> None:
        """Read all; `InputError` names the line of one that no output can begin with."""
        self.path = path
        self.texts = [_text(line, path, number) for number, line in enumerate(file_lines(path), 1)]
        self.taken = 0
        first = {text: number for number, text in reversed(list(enumerate(self.texts, 1)))}
        for text, number in first.items():
            _check(text, transducer, f"{path}:{number}")

    def take(self, count: int) -> list[str]:
        """The next ones; `DataError` where there are not so many."""
        taken = self.texts[self.taken : self.taken + count]
        self.taken += len(taken)
        if len(taken) < count:
            raise DataError(f"{self.path} ends after {self.taken} lines: source {self.taken + 1} has no prefix")
        return taken

    def end(self) -> None:
        """`DataError` where some are left when all sources are answered."""
        if self.taken < len(self.texts):
            raise DataError(f"{self.path}:{self.taken + 1}: there is no source {self.taken + 1} that could begin so")


def _text(line: bytes, path: Path, number: int) -> str:
    """One line; `DataError` for one that is no text."""
    try:
        return line_text(line)
    except RecordError as error:
        raise DataError(f"{path}:{number}: {error}") from error


def _check(text: str, transducer: "Predictor", where: str) -> None:
    """`InputError` with its place for a prefix that the options or the model rule out."""
    from pellucid.decoding.options import constraints_of

    target = transducer.vocabularies.target
    if transducer.config.decoder.pointer_generator:
        return  # what can be copied is known with the source
    try:
        asked = constraints_of(transducer.options, [text], transducer.segmenters.target, target)
    except InputError as error:
        raise type(error)(f"{where}: {error}") from error
    if asked.least(0) > transducer.max_length:
        raise InputError(
            f"{where}: the prefix and the required symbols take {asked.least(0)} symbols, but search.max_length "
            f"is {transducer.max_length}"
        )


LISTED = 5
LONGEST = 40
"""Characters of a symbol that are told."""
STANDARD_INPUT = "standard input"
"""What stands for the path in messages."""
ESCAPES = {code: ascii(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
"""What is written in place of characters that end a line, or act on a terminal."""
ESCAPES_BUT_TABS = {code: escape for code, escape in ESCAPES.items() if chr(code) != "\t"}
MARKS = ("config.toml", "ensemble.json")
"""Files that only folders of runs and of ensembles hold."""
Item = Example | BadLine
Reader = Callable[[Path, DataConfig, Input], Iterator[Item]]
Parser = Callable[[Iterable[bytes], str, DataConfig, Input], Iterator[Item]]


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


def standard_input() -> ArrivingLines:
    """The lines of standard input; `DataError` where it is closed."""
    if sys.stdin is None:
        raise DataError("standard input is closed: give a file of sources")
    return ArrivingLines(cast(BufferedIOBase, sys.stdin.buffer), STANDARD_INPUT)


def chunks(
    file: Path, trained: DataConfig, known: Input, how: tuple[Reader, Parser], outputs: int = 1
) -> Iterator[list[Item]]:
    """The input in pieces as a stream is decoded, `outputs` of each wanted; standard input by what has arrived.

    `trained` is how the training file was read, `known` what is known of the input beside that.
    """
    (read, parse), size, data = how, PartSize(outputs), of_another_file(trained, known.header)
    if str(file) != "-":
        yield from chunked(read(file, data, known), outputs, _characters)
        return
    arriving = standard_input()
    chunk = []
    for item in parse(arriving, STANDARD_INPUT, data, known):
        chunk.append(item)
        if size.is_filled_by(_characters(item)) or not arriving.waiting:
            yield chunk
            chunk, size = [], PartSize(outputs)
    if chunk:
        yield chunk


def _characters(item: Item) -> int:
    """Return the number of characters of an item that is decoded; 0 of a bad line."""
    return characters_of(item) if isinstance(item, Example) else 0


def refused(items: Sequence[Item]) -> int | None:
    """Where the first unreadable line stands, if there is one: what comes before it is still answered."""
    return next((at for at, item in enumerate(items) if isinstance(item, BadLine)), None)


def escaped(text: str, tabs: bool = True) -> str:
    r"""Return a text that stays on its line and in its column, and does not act on a terminal.

    Args:
        text: An output or a source; what a vocabulary or a separator put into it may be any character.
        tabs: Whether tabs are escaped as well: where they separate columns.

    Returns:
        The text with control characters (U+0000 to U+001F, U+007F to U+009F) and the separators of lines and
        paragraphs (U+2028, U+2029) as Python escapes them: \n, \t, \x1b, \u2028. All other characters stay.
    """
    if text.isprintable():
        return text
    return text.translate(ESCAPES if tabs else ESCAPES_BUT_TABS)


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


def _tell_unknown(found: "Counter[str]", what: str, how: str) -> None:
    """Say which unknown symbols were met most, if any were."""
    if found:
        most = ", ".join(f"{quote(symbol, LONGEST)} × {count:,}" for symbol, count in found.most_common(LISTED))
        say(f"{counted(found.total(), what)} ({len(found):,} different) {how}: {most}")
