"""Input of the subcommands that decode: chunks of lines, and notes on the input afterwards.

Also the paths of run folders and texts for the terminal, which other subcommands use as well.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from glob import escape, glob
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeGuard, cast

import msgspec

from pellucid.cli.messages import print_message
from pellucid.config.settings import DataConfig
from pellucid.data.examples import STANDARD_INPUT, Example, InputFormat, check_first_line
from pellucid.data.headers import with_header
from pellucid.data.lines import LineStream, WaitingStream
from pellucid.data.readers import BadLine, TableCells
from pellucid.decoding.confidence import reaches_confidence
from pellucid.decoding.streaming import Item, chunked, count_characters
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError, InputError, count_noun, quote

if TYPE_CHECKING:
    from pellucid.decoding.lexicon import Lexicon
    from pellucid.decoding.text_decoder import WordOutput

MAX_LISTED_PER_NOTE = 5
"""Maximum number of bad lines, unknown symbols or words that a note lists."""
MAX_SYMBOL_LENGTH = 40
"""Maximum number of characters of a symbol in messages."""
ESCAPES = {code: ascii(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
"""Python escapes of control characters and line separators, by code point."""
ESCAPES_EXCEPT_TABS = {code: escape for code, escape in ESCAPES.items() if chr(code) != "\t"}
RUN_FILES = ("config.toml", "ensemble.json")
"""Files that identify the folder of a run or an ensemble."""
PLACEHOLDER = "{}"
"""Placeholder for the name of a group in the path of a file or run."""
InputLine = Example | BadLine
FileReader = Callable[[Path, DataConfig, InputFormat], Iterator[InputLine]]
"""Function that reads a file (`read_sources`, `read_pairs`)."""
StreamParser = Callable[[Iterable[bytes], str, DataConfig, InputFormat], Iterator[InputLine]]
"""Function that parses lines (`parse_sources`, `parse_pairs`)."""


def read_chunks(
    file: Path,
    run_data: DataConfig,
    input_format: InputFormat,
    read_file: FileReader,
    parse_stream: StreamParser,
    outputs: int = 1,
) -> Iterator[list[InputLine]]:
    """Yield the input in chunks of suitable size for decoding. Notes on the first line are printed on standard error.

    A chunk of standard input ends where no further line has arrived, so that each line can be answered at once.

    Args:
        file: Input file, or "-" for standard input.
        run_data: Data settings of the run.
        input_format: Format, header and maximum number of columns of the input.
        read_file: Function that reads a file.
        parse_stream: Function that parses the lines of a stream.
        outputs: Number of outputs per source; more of them make smaller chunks.

    Yields:
        Lists of examples and bad lines, in order; shorter ones where the cells that the input format keeps are long.

    Raises:
        DataError: The input cannot be read, its header lacks a configured column, or standard input is closed.
        HeaderError: The first line looks like a header, and the user has not said whether it is one.
        ConfigError: A column is selected by name, but the input has no header.
    """
    data = with_header(run_data, input_format.header)
    input_format = input_format._replace(report=_report_first_line)
    cells = TableCells(has_rows=False) if input_format.cells is None else input_format.cells
    if str(file) != "-":
        items = read_file(file, data, input_format)
        for number, chunk in enumerate(chunked(items, outputs, _characters, cells.is_full)):
            if not number:
                _report_first_line(check_first_line(chunk, file, data, input_format))
            cells.begin_chunk()
            yield chunk
        return
    stream, is_first = standard_input(), not sys.stdin.isatty()
    items = parse_stream(stream, STANDARD_INPUT, data, input_format)
    for chunk in arrived_chunks(stream, items, outputs, _characters, cells.is_full):
        if is_first:
            _report_first_line(check_first_line(chunk, None, data, input_format))
        cells.begin_chunk()
        yield chunk
        is_first = False


def arrived_chunks(
    stream: LineStream,
    items: Iterable[Item],
    outputs: int,
    characters: Callable[[Item], int],
    is_full: Callable[[], bool] = lambda: False,
) -> Iterator[list[Item]]:
    """Return the items of a stream in chunks of suitable size for decoding, each at once where no line has arrived.

    Items before an error of the stream are in a chunk of their own, as those of a file are.

    Args:
        stream: Lines of the stream.
        items: Items that are parsed from these lines, one from each.
        outputs: Number of outputs per item; more of them make smaller chunks.
        characters: Function that returns the number of characters of an item.
        is_full: Function that returns true if a chunk ends for another reason; by default, none does.
    """
    return chunked(items, outputs, characters, lambda: is_full() or not stream.arrived_lines)


def standard_input() -> LineStream:
    """Return the lines of standard input.

    Returns:
        Iterable of the lines, each available as it arrives.

    Raises:
        DataError: Standard input is closed.
    """
    return LineStream(open_standard_input("sources"), STANDARD_INPUT)


def open_standard_input(content: str) -> BufferedIOBase:
    """Return standard input as bytes; reading waits for the writer, also of a pipe that another program set not to
    block.

    Args:
        content: Noun of what is read, for the message.

    Raises:
        DataError: Standard input is closed.
    """
    if sys.stdin is None:
        raise DataError(f"standard input is closed: give a file of {content}")
    raw = getattr(sys.stdin.buffer, "raw", None)  # a stream in memory has none
    return cast(BufferedIOBase, sys.stdin.buffer) if raw is None else BufferedReader(WaitingStream(raw, STANDARD_INPUT))


def _report_first_line(note: str) -> None:
    """Print a note about the first line, if there is one."""
    if note:
        print_message(f"note: {note}")


def _characters(item: InputLine) -> int:
    """Return the number of characters of an example; 0 for a bad line."""
    return count_characters(item) if isinstance(item, Example) else 0


def is_pair(item: InputLine) -> TypeGuard[Example]:
    """Return whether a line holds a pair: neither bad nor blank.

    Args:
        item: The line.
    """
    return isinstance(item, Example) and bool(item.source)


def is_run(path: Path) -> bool:
    """Return whether a path is the folder of a run or of an ensemble.

    Args:
        path: Path of the command line.

    Returns:
        True if it contains one of `RUN_FILES`.
    """
    return any(os.path.isfile(path / mark) for mark in RUN_FILES)  # Path.is_file raises for a long name


def matching_names(path: Path) -> list[str]:
    """Return the sorted names that fill the placeholder of a path so that it exists.

    Args:
        path: Path of the command line with `PLACEHOLDER`, which any one name may replace.
    """
    first, *rest = (re.escape(piece) for piece in str(path).split(PLACEHOLDER))
    matching = re.compile(first + "([^/]+)" + r"\1".join(rest))
    paths = glob("*".join(escape(piece) for piece in str(path).split(PLACEHOLDER)))
    return sorted(match[1] for match in map(matching.fullmatch, paths) if match)


def fill_placeholder(path: Path, name: str) -> Path:
    """Return a path with a name in place of the placeholder.

    Args:
        path: Path of the command line.
        name: The name.
    """
    return Path(str(path).replace(PLACEHOLDER, name))


def expand_placeholder(path: Path) -> list[Path]:
    """Return the paths that a path of the command line means: itself, and those of `matching_names`.

    Args:
        path: Path of the command line.
    """
    names = matching_names(path) if PLACEHOLDER in str(path) else []
    return [path, *(fill_placeholder(path, name) for name in names)]


def check_path_order(paths: Sequence[Path], verb: str) -> None:
    """Raise `InputError` if the first path is a file and a later one is a run folder.

    Args:
        paths: Paths of the command line.
        verb: Name of the subcommand, for the message.
    """
    folder = next((path for path in paths[1:] if is_run(path)), None)
    if folder is not None and paths[0].is_file():
        raise InputError(
            f"{paths[0]} is a file and {folder} is a run folder: run folders precede the file (pellucid "
            f"{verb} {folder} {paths[0]})"
        )


def split_paths(first: Path, others: Sequence[Path], verb: str) -> tuple[list[Path], Path]:
    """Split the paths of a command line into run folders and the input.

    Args:
        first: First path.
        others: Further paths.
        verb: Name of the subcommand, for messages.

    Returns:
        The run folders, and the input: the last of several paths if it is not a run folder, else "-", standard input.
        Other paths count as run folders without a check.

    Raises:
        InputError: The first path is a file and a later one is a run folder.
    """
    check_path_order([first, *others], verb)
    if others and not is_run(others[-1]):
        return [first, *others[:-1]], others[-1]
    return [first, *others], Path("-")


def first_bad_line(items: Sequence[InputLine]) -> int | None:
    """Return the index of the first bad line of a chunk; None if there is none.

    Args:
        items: Lines of a chunk.
    """
    return next((index for index, item in enumerate(items) if isinstance(item, BadLine)), None)


def escape_text(text: str, tabs: bool = True) -> str:
    r"""Escape control characters and line separators, so that a text stays on its line and does not control a terminal.

    Args:
        text: An output or a source, which may contain any character.
        tabs: Whether to escape tabs as well, because they separate columns; True by default.

    Returns:
        The text with control characters (U+0000 to U+001F, U+007F to U+009F) and line and paragraph separators
        (U+2028, U+2029) as Python escapes: \n, \t, \x1b, \u2028.
    """
    if text.isprintable():
        return text
    return text.translate(ESCAPES if tabs else ESCAPES_EXCEPT_TABS)


def print_result(*lines: str) -> None:
    """Write lines that name files on standard output, and flush it.

    Args:
        *lines: Lines, whose control characters are escaped: a name of a file may have any.
    """
    print("\n".join(map(escape_text, lines)), flush=True)


class LineChunk(NamedTuple):
    """Lines of an input that are decoded together."""

    items: list[InputLine]
    first_line: int = 0
    """Number of lines before the first one."""
    first_source: int = 0
    """Number of examples in these lines, blank ones included."""
    prefixes: list[str] | None = None
    """Target prefix of each example; None for none of their own."""

    @property
    def examples(self) -> list[Example]:
        """Lines that can be read, blank ones included."""
        return [item for item in self.items if isinstance(item, Example)]


def number_chunks(chunks: Iterable[list[InputLine]], on_bad_line: Literal["stop", "skip"]) -> Iterator[LineChunk]:
    """Yield chunks of lines with their numbers.

    Args:
        chunks: Lines in their order.
        on_bad_line: "stop" ends with an error at the first bad line, after a chunk of the lines before it.

    Raises:
        DataError: A line is bad, and `on_bad_line` is "stop".
    """
    first_line = first_source = 0
    for items in chunks:
        bad_index = first_bad_line(items) if on_bad_line == "stop" else None
        chunk = LineChunk(items[:bad_index], first_line, first_source)
        yield chunk
        first_line, first_source = first_line + len(chunk.items), first_source + len(chunk.examples)
        if bad_index is not None:
            raise DataError(f"{items[bad_index]} (--on-bad-line skip writes an empty output for such lines)")


class Acceptance:
    """Threshold of --min-confidence, with the number of outputs that it accepted."""

    def __init__(self, min_confidence: float) -> None:
        """Set the threshold.

        Args:
            min_confidence: Lowest confidence of an accepted output, 0 to 1.
        """
        self.min_confidence = min_confidence
        self.total = 0
        self.accepted = 0

    def count_and_check(self, trace: Trace) -> bool:
        """Return whether an output is accepted, and count it; to be called once per output.

        Args:
            trace: Best output of a source.
        """
        is_accepted = reaches_confidence(trace, self.min_confidence)
        self.total += 1
        self.accepted += is_accepted
        return is_accepted

    def describe(self, leaves_lines_empty: bool) -> str:
        """Return a message with the number of accepted outputs.

        Args:
            leaves_lines_empty: Whether other outputs are empty lines.
        """
        rest = self.total - self.accepted
        other = ""
        if rest:
            other = f"; the lines of the other {rest:,} are empty" if leaves_lines_empty else f"; {rest:,} are not"
        return (
            f"{self.accepted:,} of {self.total:,} outputs are accepted, with a confidence of at least "
            f"{self.min_confidence:g}{other}"
        )


class NoteCounts(msgspec.Struct, frozen=True):
    """Counts of `DecodingNotes` as plain values, which a file can hold."""

    num_lines: int
    num_bad_lines: int
    bad_lines: list[BadLine]
    unknown: dict[str, int]
    unknown_targets: dict[str, int]
    num_truncated: int
    num_without_features: int
    num_from_lexicon: int
    num_without_required: int
    num_other_unknown: int = 0
    """Number of unknown source symbols beyond the first `MAX_UNKNOWN_SYMBOLS` different ones."""
    num_other_unknown_targets: int = 0


MAX_UNKNOWN_SYMBOLS = 100_000
"""Maximum number of different unknown symbols that are counted: those of a stream of words have no end."""


def _count_symbols(counts: "Counter[str]", symbols: Iterable[str] | Mapping[str, int]) -> int:
    """Count symbols, or add their counts; return the number of those beyond `MAX_UNKNOWN_SYMBOLS` different ones."""
    num_others = 0
    for symbol in symbols:
        number = symbols[symbol] if isinstance(symbols, Mapping) else 1
        if symbol in counts or len(counts) < MAX_UNKNOWN_SYMBOLS:
            counts[symbol] += number
        else:
            num_others += number
    return num_others


class DecodingNotes:
    """Counts of input lines and outputs that deserve a note, such as unknown symbols; reported once after decoding."""

    def __init__(self, required: Sequence[str] = ()) -> None:
        """Start all counts at zero.

        Args:
            required: Symbols of --require, which every output should contain; none by default.
        """
        self.num_lines = 0
        self.required = set(required)
        self.num_bad_lines = 0
        self.bad_lines: list[BadLine] = []
        """The first `MAX_LISTED_PER_NOTE` ones: a stream may have any number of them."""
        self.unknown: Counter[str] = Counter()
        self.unknown_targets: Counter[str] = Counter()
        self.num_other_unknown = 0
        self.num_other_unknown_targets = 0
        self.num_truncated = 0
        self.num_without_features = 0
        self.num_from_lexicon = 0
        self.num_without_required = 0

    def count_line(self, item: InputLine, trace: Trace | None, others: Sequence[Trace] = ()) -> None:
        """Count one input line.

        Args:
            item: Input line.
            trace: Its best output; None for a line without output.
            others: Its other outputs; none by default.
        """
        self.num_lines += 1
        if isinstance(item, BadLine):
            self._count_bad_line(item)
        if trace is None:
            return
        self.num_from_lexicon += trace.origin == "lexicon"
        if trace.origin != "lexicon":
            self.num_other_unknown += _count_symbols(self.unknown, (trace.source[index] for index in trace.unknown))
            self.num_other_unknown_targets += _count_symbols(
                self.unknown_targets, (trace.target[index] for index in trace.unknown_target)
            )
            self.num_without_features += bool(trace.source) and not (trace.num_features or trace.summed_features)
        self.num_truncated += sum(not each.finished for each in (trace, *others))
        self.num_without_required += bool(trace.source) and not self.required <= set(trace.target)

    def count_text(self, bad_line: BadLine | None, outputs: "Sequence[WordOutput]") -> None:
        """Count one line of running text.

        Args:
            bad_line: Reason why the line cannot be used; None for other lines.
            outputs: Outputs of its words.
        """
        self.num_lines += 1
        if bad_line is not None:
            self._count_bad_line(bad_line)
        for output in outputs:
            self.num_from_lexicon += output.origin == "lexicon"
            self.num_other_unknown += _count_symbols(self.unknown, output.unknown)
            self.num_truncated += not output.finished
            self.num_without_required += not self.required <= set(output.symbols)

    def _count_bad_line(self, line: BadLine) -> None:
        """Count a bad line, and store it if it is one of the first."""
        self.num_bad_lines += 1
        if len(self.bad_lines) < MAX_LISTED_PER_NOTE:
            self.bad_lines.append(line)

    def counts(self) -> NoteCounts:
        """Return the counts as plain values."""
        return NoteCounts(**{name: getattr(self, name) for name in NoteCounts.__struct_fields__})

    def add(self, counts: NoteCounts) -> None:
        """Add the counts of further lines, which follow those that are counted.

        Args:
            counts: Counts of these lines.
        """
        for name in NoteCounts.__struct_fields__:
            before, added = getattr(self, name), getattr(counts, name)
            if isinstance(before, Counter):
                others = f"num_other_{name}"
                setattr(self, others, getattr(self, others) + _count_symbols(before, added))
            else:
                setattr(self, name, before + added)
        del self.bad_lines[MAX_LISTED_PER_NOTE:]

    def report(self, has_features: bool, known_symbols: Container[str] = ()) -> None:
        """Print a message on standard error for each count above zero, for the first bad lines, and for an empty input.

        Args:
            has_features: Whether the model was trained with features; only then sources without features are reported.
            known_symbols: Symbols of the source vocabulary. If it has the lower-case form of an unknown symbol, the
                message advises lower case; it does not by default.
        """
        if not self.num_lines:
            print_message("the input is empty")
        for line in self.bad_lines:
            print_message(f"no output for {line}")
        if self.num_bad_lines > MAX_LISTED_PER_NOTE:
            print_message(f"no output for {count_noun(self.num_bad_lines - MAX_LISTED_PER_NOTE, 'more bad line')}")
        treatment = "not in the vocabulary (encoded as the unknown symbol)"
        _report_unknown(self.unknown, self.num_other_unknown, "source symbol", treatment)
        if advice := _lower_case_advice(self.unknown, known_symbols):
            print_message(advice if has_features else f"{advice}, or use --text, which does so for such words")
        treatment = "not in the vocabulary (scored as the unknown symbol)"
        _report_unknown(self.unknown_targets, self.num_other_unknown_targets, "target symbol", treatment)
        if has_features and self.num_without_features:
            print_message(f"{count_noun(self.num_without_features, 'source')} without features; the model expects them")
        if self.num_truncated:
            print_message(f"{count_noun(self.num_truncated, 'output')} truncated at the maximum length")
        if self.num_without_required:
            print_message(f"{count_noun(self.num_without_required, 'output')} without a symbol required by --require")


def lexicon_count_message(count: int, lexicon: "Lexicon", path: Path | None) -> str:
    """Return the message with the number of sources that the lexicon decoded, with a hint if it is 0.

    Args:
        count: Number of sources.
        lexicon: Lexicon.
        path: Its file.
    """
    message = f"{count_noun(count, 'source')} decoded by the lexicon"
    if count:
        return message
    first = quote(next(iter(lexicon.targets), ""))
    return (
        f"{message}: none equals a source of {path} with an allowed target; the file has "
        f"{count_noun(len(lexicon.targets), 'source')}, the first is {first}"
    )


def _lower_case_advice(unknown: "Counter[str]", known_symbols: Container[str]) -> str:
    """Return the advice to write sources in lower case; "" if it makes no unknown symbol known."""
    upper = [symbol for symbol in unknown if symbol.lower() != symbol and symbol.lower() in known_symbols]
    if not upper:
        return ""
    example = quote(max(upper, key=lambda symbol: unknown[symbol]).lower(), MAX_SYMBOL_LENGTH)
    return (
        f"the vocabulary has the lower-case form of {len(upper):,} of these symbols, such as {example}: give the "
        "sources in lower case"
    )


def _report_unknown(counts: "Counter[str]", num_others: int, noun: str, treatment: str) -> None:
    """Report the most frequent unknown symbols, if there are any, and the number of all."""
    if counts:
        listed = ", ".join(
            f"{quote(symbol, MAX_SYMBOL_LENGTH)} × {count:,}"
            for symbol, count in counts.most_common(MAX_LISTED_PER_NOTE)
        )
        different = f"{'more than ' * bool(num_others)}{len(counts):,} different"
        print_message(f"{count_noun(counts.total() + num_others, noun)} ({different}) {treatment}: {listed}")
