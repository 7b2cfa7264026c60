"""Rows of numbers in a temporary file: equal to an array, whatever the limits are, with the messages of a full disk."""

import mmap
import tempfile
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid import row_file
from pellucid.errors import RunError
from pellucid.row_file import RowFile, close_temporary_file

PAIR_TYPE = np.dtype([("first", ">u4"), ("second", ">u8")])
LIMITS = ("MAX_BYTES_IN_MEMORY", "WRITE_BYTES", "BLOCK_ROWS")


@given(st.lists(st.lists(st.integers(-(2**40), 2**40))), st.integers(0, 100), st.integers(1, 9))
def test_rows_equal_an_array_in_memory_and_in_a_file(blocks: list[list[int]], limit: int, block_rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(LIMITS, (limit, 16, block_rows), strict=True):
            patch.setattr(row_file, name, value)
        rows, expected = RowFile(np.int64), list[int]()
        for block in blocks:
            rows.extend(block)
            expected += block
            assert rows.rows.tolist() == expected and len(rows) == len(expected)  # rows are also read in between
        assert [number for part in rows.blocks() for number in part.tolist()] == expected
        assert all(len(part) <= block_rows for part in rows.blocks())
        indices = np.arange(len(expected))[::-2]
        assert rows.take(indices).tolist() == expected[::-1][::2]
        rows.sort()
        assert rows.rows.tolist() == sorted(expected)
        rows.extend([7])
        assert rows.rows.tolist() == [*sorted(expected), 7]


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)), min_size=1), st.sampled_from([0, 1000])
)
def test_records_are_sorted_by_their_fields(pairs: list[tuple[int, int]], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_file, "MAX_BYTES_IN_MEMORY", limit)
        rows = RowFile(PAIR_TYPE)
        rows.extend([first for first, _ in pairs], np.array([second for _, second in pairs], np.uint64))
        rows.sort()
        assert [tuple(row) for row in rows.rows.tolist()] == sorted(pairs)


def test_rows_stay_as_they_were_read_when_others_follow() -> None:
    rows = RowFile(np.int32)
    rows.extend([1, 2])
    before = rows.rows
    rows.extend([3])
    assert before.tolist() == [1, 2] and rows.rows.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        before[0] = 5


def fail(*args: object, **kwargs: object) -> int:
    """Fail as a full disk does."""
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("verb", "module", "name", "read"),
    [
        ("write", tempfile, "TemporaryFile", lambda rows: rows.extend([1, 2, 3])),
        ("read", mmap, "mmap", lambda rows: rows.rows),
    ],
)
def test_a_failing_temporary_file_is_named(
    verb: str, module: object, name: str, read: Callable[[RowFile], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_file, "MAX_BYTES_IN_MEMORY", 20)
    rows = RowFile(np.int64)
    rows.extend([1, 2])
    if verb == "read":
        rows.extend([3])
    monkeypatch.setattr(module, name, fail)
    with pytest.raises(
        RunError, match=rf"^cannot {verb} a temporary file in {tempfile.gettempdir()}: no space left on device$"
    ):
        read(rows)


def test_a_missing_temporary_folder_is_an_error_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_file, "MAX_BYTES_IN_MEMORY", 20)
    monkeypatch.setattr(tempfile, "gettempdir", fail)
    monkeypatch.setenv("TMPDIR", "/missing")
    with pytest.raises(RunError, match=r"^cannot write a temporary file in /missing: no space left on device$"):
        RowFile(np.int64).extend([1, 2, 3])


def test_a_temporary_file_that_cannot_be_written_to_its_end_is_closed_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.SpooledTemporaryFile() as file:
        with monkeypatch.context() as patch:
            patch.setattr(file, "close", fail)
            close_temporary_file(file)
        assert not file.closed
        close_temporary_file(file)
        assert file.closed
