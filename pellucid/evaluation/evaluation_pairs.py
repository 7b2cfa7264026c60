"""Pairs of an evaluation in the order in which they are decoded; their texts are on disk."""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from pellucid.data.examples import Example, ExampleFile, check_bad_lines
from pellucid.data.readers import BadLine
from pellucid.decoding.streaming import chunked, count_characters
from pellucid.evaluation.assessment import DecodedExamples
from pellucid.record_file import RecordFile
from pellucid.shapes import Int

ReportNote = Callable[[str], None]
"""Function that receives notes for the user."""
OptionName = Callable[[str], str]
"""Function that returns the name of an option as the user writes it: "texts", or "--texts" on the command line."""
KEY_BYTES = 16
"""Bytes of the hash of a source with its features, by which pairs are merged; so long that it identifies them."""
KEY_TYPE = np.dtype([("high", ">u8"), ("low", ">u8")])
"""Type of such a hash in an array."""


class StoredPair(NamedTuple):
    """A pair of a file."""

    example: Example
    line: int
    """Number of its line, from 1."""
    id: str
    """Its cell of the column "id"; "" without such a column."""


class RowIds:
    """Cells of the column "id" of a file, which is read along with its pairs."""

    def __init__(self, rows: Iterator[tuple[int, str]]) -> None:
        """Begin before the first row.

        Args:
            rows: Number of the line and cell of each row, in their order.
        """
        self._rows = rows
        self._line, self._cell = 0, ""

    def find(self, line: int) -> str:
        """Return the cell of a line, "" if it has none.

        Args:
            line: Number of the line; greater than that of the call before.
        """
        while self._line < line:
            self._line, self._cell = next(self._rows, (line + 1, ""))
        return self._cell if self._line == line else ""


class EvaluationPairs:
    """Pairs with their references and groups, which are read in blocks, and then yielded in chunks.

    Examples of one group follow each other; groups have the order of their first examples. Memory holds 28 bytes for
    each pair, and further 8 if there are groups or merged references.
    """

    def __init__(self, multi_reference: bool, description: str) -> None:
        """Begin without pairs.

        Args:
            multi_reference: Whether pairs of a group with the same source and features are merged into one example with
                several references. Its line and id are those of the first.
            description: Name of the file or the pair of files, for messages.
        """
        self.multi_reference, self.description = multi_reference, description
        self.bad_lines, self.num_blank_lines, self.has_ids = list[BadLine](), 0, False
        self._pairs = RecordFile(StoredPair)
        self._groups, self._group_numbers = array("i"), dict[str, int]()
        self._keys = bytearray()
        self._source_hashes, self._pair_hashes = array("q"), array("q")
        self._order: Int[np.ndarray, " n"] | None = None
        self._starts: Int[np.ndarray, " m"] | None = None

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self._pairs)

    @property
    def num_rows(self) -> int:
        """Number of rows of the file, without the header: pairs, bad lines and blank lines."""
        return len(self) + len(self.bad_lines) + self.num_blank_lines

    def add(self, reading: ExampleFile, groups: Sequence[str], ids: RowIds | None = None) -> None:
        """Add a block of pairs.

        Args:
            reading: The pairs, with bad lines and the number of blank lines.
            groups: Group of each pair; "" without groups.
            ids: Cells of the column "id"; None without one.

        Raises:
            DataError: Too many lines are bad.
            RunError: A temporary file cannot be written.
        """
        self.has_ids = ids is not None
        for example, line, group in zip(reading.examples, reading.line_numbers, groups, strict=True):
            self._pairs.append(StoredPair(example, line, "" if ids is None else ids.find(line)))
            self._groups.append(self._group_numbers.setdefault(group, len(self._group_numbers)))
            source = (example.source, example.features)
            if self.multi_reference:
                content = msgspec.msgpack.encode(source)
                self._keys += hashlib.blake2b(content, digest_size=KEY_BYTES).digest()
            else:
                self._source_hashes.append(hash(source))
                self._pair_hashes.append(hash((*source, example.target)))
        self.bad_lines += reading.bad_lines
        self.num_blank_lines += reading.num_blank_lines
        check_bad_lines(self.bad_lines, len(self), self.description)

    def arrange(self, report: ReportNote, option: OptionName) -> None:
        """Determine the order of the examples, when all pairs are added.

        Args:
            report: Function that receives a note about sources with several targets.
            option: Function that returns the name of an option in the note.
        """
        groups = np.asarray(self._groups)
        if self.multi_reference:
            self._merge(groups, np.frombuffer(self._keys, KEY_TYPE))
            self._keys = bytearray()
            return
        if len(self._group_numbers) > 1:
            self._order = np.argsort(groups, kind="stable")
        num_sources, num_pairs = (len(np.unique(hashes)) for hashes in (self._source_hashes, self._pair_hashes))
        self._source_hashes, self._pair_hashes = array("q"), array("q")
        if several := num_pairs - num_sources:
            report(
                f"note: {several:,} further targets repeat the source of an earlier pair; each pair is scored against "
                f"its own target ({option('multi_reference')} accepts any of them), and intervals and p-values treat "
                "the pairs as independent"
            )

    def chunks(self) -> Iterator[DecodedExamples]:
        """Yield the examples that are decoded together, without outputs.

        Raises:
            RunError: A temporary file cannot be read.
        """
        for chunk in chunked(self._rows(), 1, lambda row: count_characters(row[0])):
            examples, references, groups, lines, ids = map(list, zip(*chunk, strict=True))
            yield DecodedExamples(examples, references, groups, [], lines, ids if self.has_ids else ())

    def example_chunks(self) -> Iterator[list[Example]]:
        """Yield the examples of `chunks`.

        Raises:
            RunError: A temporary file cannot be read.
        """
        for chunk in self.chunks():
            yield chunk.examples

    def _merge(self, groups: Int[np.ndarray, " n"], keys: np.ndarray) -> None:
        """Order the pairs so that those of each example follow each other, in the order of the first of each."""
        by_key = np.lexsort((keys["low"], keys["high"], groups))
        columns = [column[by_key] for column in (keys["low"], keys["high"], groups)]
        is_new = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        starts = np.flatnonzero(np.concatenate([[True], is_new]))
        first = np.empty_like(by_key)
        first[by_key] = np.repeat(by_key[starts], np.diff(starts, append=len(by_key)))
        self._order = np.lexsort((first, groups))
        self._starts = np.flatnonzero(self._order == first[self._order])

    def _rows(self) -> Iterator[tuple[Example, tuple[str, ...], str, int, str]]:
        """Yield each example with its references, its group, its line and its id."""
        names, order = list(self._group_numbers), range(len(self)) if self._order is None else self._order
        starts = range(len(self)) if self._starts is None else self._starts
        for start, end in pairwise(chain(starts, [len(self)])):
            numbers = [int(order[place]) for place in range(start, end)]
            pairs = [self._pairs[number] for number in numbers]
            first, references = pairs[0], tuple(dict.fromkeys(pair.example.target for pair in pairs))
            yield first.example, references, names[self._groups[numbers[0]]], first.line, first.id
