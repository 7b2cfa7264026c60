"""Running text as the input of predict: pellucid predict RUN FILE --text"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pellucid.cli.messages import print_message
from pellucid.cli.sources import MAX_LISTED_PER_NOTE, DecodingNotes, arrived_chunks, escape_text, standard_input
from pellucid.data.delimiters import format_csv
from pellucid.data.examples import STANDARD_INPUT
from pellucid.data.lines import (
    BYTE_ORDER_MARK,
    RecordError,
    check_lines,
    decode_line,
    read_raw_lines,
    strip_newline,
)
from pellucid.data.readers import BadLine
from pellucid.decoding.streaming import chunked
from pellucid.decoding.trace_schema import encode_json
from pellucid.errors import DataError, count_noun, quote

if TYPE_CHECKING:
    from pellucid.decoding.text_decoder import DecodedText, TextDecoder, TextWord

OutputFormat = Literal["text", "csv", "tsv", "jsonl"]
TextLine = str | BadLine
LineFormatter = Callable[[int, "DecodedText | BadLine"], str]
"""Function that returns the output lines of a line of text: of its number and the decoded text."""
WORD_FIELDS = ("start", "end", "output_start", "output_end", "word", "source", "output", "log_probability")
SKIPPED_LINES: Mapping[OutputFormat, str] = {
    "text": "an empty line",
    "jsonl": "its error",
    "csv": "no row",
    "tsv": "no row",
}
"""Output of a bad line with `--on-bad-line skip`."""
FURTHER_FIELDS = ("probability", "confidence", "origin")
"""Fields of a word in csv, tsv and jsonl; with --min-confidence, "accepted" follows."""


def write_decoded_text(
    decoder: "TextDecoder",
    file: Path,
    output_format: OutputFormat,
    on_bad_line: Literal["stop", "skip"],
    notes: DecodingNotes,
) -> None:
    """Decode the words of a text, and write one line per line (text, jsonl) or one row per word (csv, tsv).

    Args:
        decoder: Decoder of the words.
        file: Text file, or "-" for standard input.
        output_format: Output format.
        on_bad_line: Action at a line that is not UTF-8, or has a word of too many symbols: stop, or write an empty line
            for it (text), its error (jsonl), or no row (csv, tsv).
        notes: Counts of the input, which this function increases.

    Raises:
        DataError: The file cannot be read, or a line is bad and the action is "stop". The lines before it are written.
    """
    format_line = _line_formatter(output_format, decoder.min_confidence is not None)
    text, line_number, counts = TextInput(file, decoder.line_error), 0, WordCounts()
    for group in text.groups():
        if output_format == "text" and not line_number:
            sys.stdout.write(text.byte_order_mark)
        bad_index = next((index for index, line in enumerate(group) if isinstance(line, BadLine)), None)
        lines = group if on_bad_line == "skip" else group[:bad_index]
        decoded = iter(decoder.decode([line for line in lines if isinstance(line, str)]))
        for line in lines:
            line_number += 1
            item = line if isinstance(line, BadLine) else next(decoded)
            words = () if isinstance(item, BadLine) else item.words
            notes.count_text(item if isinstance(item, BadLine) else None, [word.output for word in words])
            counts.add(words)
            sys.stdout.write(format_line(line_number, item))
        sys.stdout.flush()
        if bad_index is not None and on_bad_line == "stop":
            effect = SKIPPED_LINES[output_format]
            raise DataError(f"{group[bad_index]} (--on-bad-line skip continues, and writes {effect} for such a line)")
    if not line_number:  # the loop has not written what precedes the first line
        names = format_csv([_column_names(decoder.min_confidence is not None)])
        sys.stdout.write({"text": text.byte_order_mark, "csv": names}.get(output_format, ""))
    print_message(f"{count_noun(counts.num_words, 'word')} in {count_noun(line_number, 'line')}")
    counts.report(decoder.min_confidence)


class WordCounts:
    """Counts of the words of a text."""

    def __init__(self) -> None:
        """Start all counts at zero."""
        self.num_words = self.num_accepted = self.num_empty = 0
        self.empty_words = list[str]()
        """The first different words whose outputs are empty, at most `MAX_LISTED_PER_NOTE`."""

    def add(self, words: "Iterable[TextWord]") -> None:
        """Count words.

        Args:
            words: Words of a line, with their outputs.
        """
        for word in words:
            self.num_words += 1
            self.num_accepted += word.output.is_accepted
            if word.output.is_accepted and not word.output.output:
                self.num_empty += 1
                if word.text not in self.empty_words and len(self.empty_words) < MAX_LISTED_PER_NOTE:
                    self.empty_words.append(word.text)

    def report(self, min_confidence: float | None) -> None:
        """Print how many words have empty outputs, and with which words, and how many are accepted.

        Args:
            min_confidence: Lowest confidence of an accepted output; None accepts all.
        """
        if self.num_empty:
            have = "has an empty output" if self.num_empty == 1 else "have empty outputs"
            more = ", ..." if self.num_empty > len(self.empty_words) == MAX_LISTED_PER_NOTE else ""
            print_message(
                f"{count_noun(self.num_empty, 'word')} {have}, for which nothing is written: "
                f"{', '.join(map(quote, self.empty_words))}{more}"
            )
        if min_confidence is not None:
            rest = self.num_words - self.num_accepted
            stay = f"{rest:,} stay as they are" if rest > 1 else "one stays as it is"
            print_message(
                f"{self.num_accepted:,} of {count_noun(self.num_words, 'word')} are accepted, with a confidence of at "
                f"least {min_confidence:g}" + (f"; the other {stay}" if rest else "")
            )


class TextInput:
    """Lines of a text."""

    def __init__(self, file: Path, line_error: Callable[[str], str]) -> None:
        """Initialize without reading.

        Args:
            file: Text file, or "-" for standard input.
            line_error: Function that returns why a line cannot be decoded, or "".
        """
        self.file = file
        self.line_error = line_error
        self.byte_order_mark = ""
        """Byte order mark before the first line, once it is read; "" if there is none."""

    def groups(self) -> Iterator[list[TextLine]]:
        """Return lines in groups that are decoded together.

        On standard input, a group ends where no line has arrived.

        Raises:
            DataError: The text cannot be read.
        """
        if str(self.file) == "-":
            stream = standard_input()
            return arrived_chunks(stream, self._lines(stream, STANDARD_INPUT), 1, _count_characters)
        return chunked(self._lines(read_raw_lines(self.file), str(self.file)), 1, _count_characters)

    def _lines(self, lines: Iterable[bytes], name: str) -> Iterator[TextLine]:
        """Return the decoded lines of a stream."""
        return _decode_lines(check_lines(self._keep_mark(lines), name), name, self.line_error)

    def _keep_mark(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield lines, and keep the byte order mark of the first one."""
        for number, line in enumerate(lines):
            if not number and line.startswith(BYTE_ORDER_MARK):
                self.byte_order_mark = BYTE_ORDER_MARK.decode()
            yield line


def _decode_lines(lines: Iterable[bytes], name: str, line_error: Callable[[str], str]) -> Iterator[TextLine]:
    """Yield lines as text, with their ends; one that is not UTF-8 or has too long a word as a bad line."""
    for number, line in enumerate(lines, 1):
        try:
            text = decode_line(line)
        except RecordError as error:
            yield BadLine(name, number, str(error))
            continue
        reason = line_error(text)
        yield BadLine(name, number, reason) if reason else text


def _count_characters(line: TextLine) -> int:
    """Return the number of characters of a line; 0 for a bad line."""
    return len(line) if isinstance(line, str) else 0


def _line_formatter(output_format: OutputFormat, has_acceptance: bool) -> LineFormatter:
    """Return the function that formats a line; `has_acceptance` is True with --min-confidence."""
    match output_format:
        case "text":
            return lambda _, item: "\n" if isinstance(item, BadLine) else item.output
        case "jsonl":
            return lambda number, item: encode_json(_line_record(number, item, has_acceptance)).decode() + "\n"
        case _:
            table = _WordTable(output_format, has_acceptance)
            return table.rows


def _line_record(number: int, item: "DecodedText | BadLine", has_acceptance: bool) -> dict[str, object]:
    """Return a line and its words as JSON values."""
    if isinstance(item, BadLine):
        return {"line": number, "text": None, "output": None, "error": str(item)}
    words = [_word_record(word, has_acceptance) for word in item.words]
    return {"line": number, "text": strip_newline(item.text), "output": strip_newline(item.output), "words": words}


def _word_record(word: "TextWord", has_acceptance: bool) -> dict[str, object]:
    """Return a word as JSON values; the positions are characters of the line."""
    output = word.output
    values = (*word.span, *word.output_span, word.text, output.source, output.output, output.log_probability)
    probability = None if output.log_probability is None else exp(output.log_probability)
    further = (probability, output.confidence, output.origin)
    record: dict[str, object] = dict(zip((*WORD_FIELDS, *FURTHER_FIELDS), (*values, *further), strict=True))
    return {**record, "accepted": output.is_accepted} if has_acceptance else record


def _column_names(has_acceptance: bool) -> list[str]:
    """Return the names of the columns of a table of words."""
    return ["line", *WORD_FIELDS, *FURTHER_FIELDS, *(["accepted"] if has_acceptance else [])]


class _WordTable:
    """Rows of words for csv, with a row of names, and for tsv."""

    def __init__(self, output_format: OutputFormat, has_acceptance: bool) -> None:
        """Set the format.

        Args:
            output_format: "csv" or "tsv".
            has_acceptance: Whether rows have the column "accepted".
        """
        self.is_csv = output_format == "csv"
        self.has_acceptance = has_acceptance
        self.has_names = False
        """Whether the row of names is written."""

    def rows(self, number: int, item: "DecodedText | BadLine") -> str:
        """Return the rows of a line: one for each word, and none for a line without words.

        Args:
            number: Number of the line, from 1.
            item: Decoded line.
        """
        words = () if isinstance(item, BadLine) else item.words
        records = [{"line": number, **_word_record(word, self.has_acceptance)} for word in words]
        rows = [[_format_cell(value) for value in record.values()] for record in records]
        if not self.is_csv:
            return "".join("\t".join(map(escape_text, row)) + "\n" for row in rows)
        if not self.has_names:
            rows.insert(0, _column_names(self.has_acceptance))
            self.has_names = True
        return format_csv(rows)


def _format_cell(value: object) -> str:
    """Return a value of a table: numbers with six digits, true and false as in JSON, and nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
