"""Pairs of an evaluation in the order in which they are decoded; their texts are on disk."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, starmap
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np

from pellucid.data.examples import Example, ExampleFile, check_bad_lines
from pellucid.data.readers import BadLine
from pellucid.decoding.streaming import chunked, count_characters
from pellucid.evaluation.assessment import DecodedExamples
from pellucid.record_file import RecordFile
from pellucid.row_file import RowFile

ReportNote = Callable[[str], None]
"""Function that receives notes for the user."""
OptionName = Callable[[str], str]
"""Function that returns the name of an option as the user writes it: "texts", or "--texts" on the command line."""
KEY_BYTES = 16
"""Bytes of the hash of a source with its features and group, by which pairs are merged; so long that it identifies
them."""
KEY_TYPE = np.dtype([("key", f"S{KEY_BYTES}"), ("number", ">u8")])
"""Type of such a hash, with the number of the pair; it is sorted by its bytes."""
ORDER_TYPE = np.dtype([("group", ">u4"), ("first", ">u8"), ("number", ">u8")])
"""Type of the place of a pair: its group, the first pair of its example, and its own number; sorted by its bytes."""


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

    Examples of one group follow each other; groups have the order of their first examples. Pairs, hashes and orders of
    many pairs are in temporary files, which are sorted there, so that memory does not grow with the pairs.
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
        self._groups, self._group_numbers = RowFile(np.int32), dict[str, int]()
        self._keys, self._source_hashes, self._pair_hashes = RowFile(KEY_TYPE), RowFile(np.int64), RowFile(np.int64)
        self._order: RowFile | None = None

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
        self.has_ids, first = ids is not None, len(self)
        lines = reading.line_numbers
        cells = [""] * len(lines) if ids is None else map(ids.find, lines)
        self._pairs.extend(starmap(StoredPair, zip(reading.examples, lines, cells, strict=True)))
        numbers = [self._group_numbers.setdefault(group, len(self._group_numbers)) for group in groups]
        self._groups.extend(numbers)
        sources = [(example.source, example.features) for example in reading.examples]
        if self.multi_reference:
            keys = [_hash_source(number, *source) for number, source in zip(numbers, sources, strict=True)]
            self._keys.extend(keys, np.arange(first, len(self)))
        else:
            self._source_hashes.extend([hash(source) for source in sources])
            targets = (example.target for example in reading.examples)
            self._pair_hashes.extend([hash((*pair[0], pair[1])) for pair in zip(sources, targets, strict=True)])
        self.bad_lines += reading.bad_lines
        self.num_blank_lines += reading.num_blank_lines
        check_bad_lines(self.bad_lines, len(self), self.description)

    def arrange(self, report: ReportNote, option: OptionName) -> None:
        """Determine the order of the examples, when all pairs are added.

        Args:
            report: Function that receives a note about sources with several targets.
            option: Function that returns the name of an option in the note.

        Raises:
            RunError: A temporary file cannot be written or read.
        """
        if self.multi_reference:
            self._order = self._merge()
            self._keys = RowFile(KEY_TYPE)
            return
        if len(self._group_numbers) > 1:
            self._order = RowFile(ORDER_TYPE)
            first = 0
            for groups in self._groups.blocks():
                numbers = np.arange(first, first + len(groups))
                self._order.extend(groups, numbers, numbers)
                first += len(groups)
            self._order.sort()
        several = _count_distinct(self._pair_hashes) - _count_distinct(self._source_hashes)
        self._source_hashes, self._pair_hashes = RowFile(np.int64), RowFile(np.int64)
        if several:
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

    def _merge(self) -> RowFile:
        """Return the order in which the pairs of each example follow each other, in the order of the first of each."""
        self._keys.sort()
        order, groups = RowFile(ORDER_TYPE), self._groups.rows
        last_key, last_first = b"", 0
        for block in self._keys.blocks():
            if not len(block):
                continue
            keys, numbers = block["key"], block["number"].astype(np.int64)
            is_new = np.append([keys[0] != last_key or not len(order)], keys[1:] != keys[:-1])
            # Of equal keys, the first pair is first; the last example of a block may continue in the next one.
            firsts = np.append([last_first], numbers[is_new])[np.cumsum(is_new)]
            order.extend(groups[numbers], firsts, numbers)
            last_key, last_first = keys[-1], firsts[-1]
        order.sort()
        return order

    def _numbers(self) -> Iterator[tuple[int, int]]:
        """Yield, in the order of the examples, the number of the first pair of each example, and that of each pair."""
        if self._order is None:
            yield from zip(range(len(self)), range(len(self)), strict=True)
            return
        for block in self._order.blocks():
            yield from zip(block["first"].tolist(), block["number"].tolist(), strict=True)

    def _rows(self) -> Iterator[tuple[Example, tuple[str, ...], str, int, str]]:
        """Yield each example with its references, its group, its line and its id."""
        names, groups = list(self._group_numbers), self._groups.rows
        for number, places in groupby(self._numbers(), itemgetter(0)):
            pairs = [self._pairs[place] for _, place in places]
            first, references = pairs[0], tuple(dict.fromkeys(pair.example.target for pair in pairs))
            yield first.example, references, names[groups[number]], first.line, first.id


def _hash_source(group: int, source: str, features: str) -> bytes:
    """Return the hash of a source with its features and the number of its group."""
    return hashlib.blake2b(msgspec.msgpack.encode((group, source, features)), digest_size=KEY_BYTES).digest()


def _count_distinct(values: RowFile) -> int:
    """Return the number of distinct numbers; they are sorted in place."""
    values.sort()
    count, last = 0, None
    for block in values.blocks():
        if len(block):
            count += int(np.count_nonzero(block[1:] != block[:-1])) + (last is None or block[0] != last)
            last = block[-1]
    return count
