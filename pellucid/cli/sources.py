"""Input lines of predict and score, target prefixes, and remarks about them."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pellucid.cli.messages import say
from pellucid.config.settings import DataConfig
from pellucid.data.examples import STANDARD_INPUT, BadLine, Example, InputFormat, check_first_line
from pellucid.data.headers import config_for_file
from pellucid.data.lines import LineStream, RecordError, line_text, read_lines
from pellucid.decoding.streaming import ChunkSize, chunked, count_characters
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError, InputError, quote

if TYPE_CHECKING:
    from pellucid.decoding.predictor import Predictor


class PrefixFile:
    """File of target prefixes, one per input line."""

    def __init__(self, path: Path, predictor: "Predictor") -> None:
        """Read all prefixes; `InputError` with the line number for an impossible prefix."""
        self.path = path
        self.texts = [_decode_line(line, path, number) for number, line in enumerate(read_lines(path), 1)]
        self.taken = 0
        first = {text: number for number, text in reversed(list(enumerate(self.texts, 1)))}
        for text, number in first.items():
            _check_prefix(text, predictor, f"{path}:{number}")

    def take(self, count: int) -> list[str]:
        """Return the next prefixes.

        Args:
            count: Number of prefixes.

        Returns:
            That many prefixes.

        Raises:
            DataError: The file has fewer lines.
        """
        taken = self.texts[self.taken : self.taken + count]
        self.taken += len(taken)
        if len(taken) < count:
            raise DataError(f"{self.path} ends after {self.taken} lines: input line {self.taken + 1} has no prefix")
        return taken

    def check_exhausted(self) -> None:
        """Raise `DataError` if prefixes remain after the last source."""
        if self.taken < len(self.texts):
            raise DataError(f"{self.path}:{self.taken + 1}: there is no input line {self.taken + 1} for this prefix")


def _decode_line(line: bytes, path: Path, number: int) -> str:
    """Return a line as text; `DataError` if it is not valid."""
    try:
        return line_text(line)
    except RecordError as error:
        raise DataError(f"{path}:{number}: {error}") from error


def _check_prefix(text: str, predictor: "Predictor", where: str) -> None:
    """Raise `InputError` with its location for a prefix that the options or the model exclude."""
    from pellucid.decoding.options import build_constraints

    target = predictor.vocabularies.target
    if predictor.config.decoder.pointer_generator:
        return  # the source determines what can be copied
    try:
        asked = build_constraints(predictor.options, [text], predictor.tokenizers.target, target)
    except InputError as error:
        raise type(error)(f"{where}: {error}") from error
    if asked.min_length(0) > predictor.max_length:
        raise InputError(
            f"{where}: the prefix and the required symbols take {asked.min_length(0)} symbols, but search.max_length "
            f"is {predictor.max_length}"
        )


MAX_LISTED = 5
MAX_SYMBOL_LENGTH = 40
"""Maximum number of characters of a symbol in messages."""
ESCAPES = {code: ascii(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
"""Escapes of line separators and control characters."""
ESCAPES_EXCEPT_TABS = {code: escape for code, escape in ESCAPES.items() if chr(code) != "\t"}
RUN_FILES = ("config.toml", "ensemble.json")
"""Files that identify the folder of a run or an ensemble."""
InputLine = Example | BadLine
FileReader = Callable[[Path, DataConfig, InputFormat], Iterator[InputLine]]
StreamParser = Callable[[Iterable[bytes], str, DataConfig, InputFormat], Iterator[InputLine]]


def is_run(path: Path) -> bool:
    """Return whether a path is the folder of a run or of an ensemble.

    Args:
        path: Path of the command line.

    Returns:
        True for a run folder.
    """
    return any((path / mark).is_file() for mark in RUN_FILES)


def check_order(paths: Sequence[Path], verb: str) -> None:
    """Raise `InputError` if a file precedes a run folder.

    Args:
        paths: Paths of the command line.
        verb: Name of the subcommand.
    """
    folder = next((path for path in paths[1:] if is_run(path)), None)
    if folder is not None and paths[0].is_file():
        raise InputError(
            f"{paths[0]} is a file and {folder} is a run folder: run folders precede the file (pellucid "
            f"{verb} {folder} {paths[0]})"
        )


def split_paths(first: Path, rest: Sequence[Path], verb: str) -> tuple[list[Path], Path]:
    """Split the paths of a command line into run folders and the input.

    Args:
        first: First path.
        rest: Further paths.
        verb: Name of the subcommand.

    Returns:
        Run folders, and the last path if it is no run folder, else - for standard input.

    Raises:
        InputError: The input precedes a run folder.
    """
    check_order([first, *rest], verb)
    if rest and not is_run(rest[-1]):
        return [first, *rest[:-1]], rest[-1]
    return [first, *rest], Path("-")


def standard_input() -> LineStream:
    """Return the lines of standard input.

    Returns:
        Lines, read as they arrive.

    Raises:
        DataError: Standard input is closed.
    """
    if sys.stdin is None:
        raise DataError("standard input is closed: give a file of sources")
    return LineStream(cast(BufferedIOBase, sys.stdin.buffer), STANDARD_INPUT)


def read_chunks(
    file: Path, trained: DataConfig, known: InputFormat, how: tuple[FileReader, StreamParser], outputs: int = 1
) -> Iterator[list[InputLine]]:
    """Yield the input in chunks of suitable size for decoding; standard input as it arrives.

    Args:
        file: Input file, or -.
        trained: Data configuration of training.
        known: Format and columns of the input.
        how: Functions that read a file and a stream.
        outputs: Number of outputs per source.

    Yields:
        Lists of examples and bad lines.
    """
    (read, parse), size, data = how, ChunkSize(outputs), config_for_file(trained, known.header)
    known = known._replace(report=_report_first_line)
    if str(file) != "-":
        for number, chunk in enumerate(chunked(read(file, data, known), outputs, _characters)):
            if not number:
                _report_first_line(check_first_line(chunk, file, data, known))
            yield chunk
        return
    arriving = standard_input()
    chunk, first = [], not sys.stdin.isatty()
    for item in parse(arriving, STANDARD_INPUT, data, known):
        chunk.append(item)
        if size.add(_characters(item)) or not arriving.arrived_lines:
            if first:
                _report_first_line(check_first_line(chunk, None, data, known))
            yield chunk
            chunk, size, first = [], ChunkSize(outputs), False
    if chunk:
        yield chunk


def _report_first_line(note: str) -> None:
    """Print a note about the first line, if there is one."""
    if note:
        say(f"note: {note}")


def _characters(item: InputLine) -> int:
    """Return the number of characters of an example; 0 for a bad line."""
    return count_characters(item) if isinstance(item, Example) else 0


def first_bad_line(items: Sequence[InputLine]) -> int | None:
    """Return the index of the first bad line, or None. The lines before it are still decoded.

    Args:
        items: Lines of a chunk.

    Returns:
        Index, or None.
    """
    return next((at for at, item in enumerate(items) if isinstance(item, BadLine)), None)


def escape_text(text: str, tabs: bool = True) -> str:
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
    return text.translate(ESCAPES if tabs else ESCAPES_EXCEPT_TABS)


class DecodingNotes:
    """Counts of remarkable lines, reported once after decoding."""

    def __init__(self, required: Sequence[str] = ()) -> None:
        """Initialize the counts; every output should contain the `required` symbols."""
        self.lines = 0
        self.required = set(required)
        self.bad: list[BadLine] = []
        self.unknown: Counter[str] = Counter()
        self.unknown_targets: Counter[str] = Counter()
        self.cut = 0
        self.untagged = 0
        self.known = 0
        self.lacking = 0

    def count_line(self, item: InputLine, trace: Trace | None) -> None:
        """Count one line.

        Args:
            item: Input line.
            trace: Its best output, or None for a bad line.
        """
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

    def report(self, tagged: bool) -> None:
        """Report the counts on standard error.

        Args:
            tagged: Whether the model was trained with features.
        """
        if not self.lines:
            say("the input is empty")
        for line in self.bad[:MAX_LISTED]:
            say(f"no output for {line}")
        if len(self.bad) > MAX_LISTED:
            say(f"no output for {count_noun(len(self.bad) - MAX_LISTED, 'more bad line')}")
        if self.known:
            say(f"{count_noun(self.known, 'source')} decoded by the lexicon")
        _report_unknown(self.unknown, "source symbol", "not in the vocabulary (read as the unknown symbol)")
        _report_unknown(self.unknown_targets, "target symbol", "not in the vocabulary (scored as the unknown symbol)")
        if tagged and self.untagged:
            say(f"{count_noun(self.untagged, 'source')} without features; the model expects them")
        if self.cut:
            say(f"{count_noun(self.cut, 'output')} truncated at the maximum length")
        if self.lacking:
            say(f"{count_noun(self.lacking, 'output')} without a symbol required by --require")


def count_noun(number: int, noun: str) -> str:
    """Return a count with its noun: "1 output", "1,200 outputs".

    Args:
        number: Count.
        noun: Singular.

    Returns:
        Text.
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _report_unknown(found: "Counter[str]", what: str, how: str) -> None:
    """Report the most frequent unknown symbols, if there are any."""
    if found:
        most = ", ".join(
            f"{quote(symbol, MAX_SYMBOL_LENGTH)} × {count:,}" for symbol, count in found.most_common(MAX_LISTED)
        )
        say(f"{count_noun(found.total(), what)} ({len(found):,} different) {how}: {most}")
