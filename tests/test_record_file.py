"""Records in a temporary file: equal to a list in any order of reading, with the message of a full disk."""

import tempfile
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid import record_file
from pellucid.data.examples import Example
from pellucid.errors import RunError
from pellucid.record_file import RecordFile


@given(
    st.lists(st.lists(st.builds(Example, st.text(), st.text()))),
    st.integers(0, 40),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
def test_records_equal_a_list(blocks: list[list[Example]], limit: int, read_bytes: int, random: Random) -> None:
    with patch.multiple(record_file, MAX_BYTES_IN_MEMORY=limit, READ_BYTES=read_bytes):
        records, expected = RecordFile(Example), [example for block in blocks for example in block]
        for block in blocks:
            if len(block) == 1:
                records.append(block[0])
            else:
                records.extend(block)
        assert list(records) == expected and len(records) == len(expected)
        order = list(range(len(expected)))
        random.shuffle(order)
        assert [records[index] for index in order] == [expected[index] for index in order]


def test_records_in_their_order_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    records, counts = RecordFile[str](str), list[int]()
    records.extend(map(str, range(1000)))
    read = records._file.read

    def read_and_count(count: int) -> bytes:
        counts.append(count)
        return read(count)

    monkeypatch.setattr(records._file, "read", read_and_count)
    assert list(records) == [str(number) for number in range(1000)]
    assert counts == [record_file.READ_BYTES]


def test_a_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    records = RecordFile[str](str)

    def fail(content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records._file, "write", fail)
    with pytest.raises(
        RunError, match=rf"^cannot write a temporary file in {tempfile.gettempdir()}: no space left on device$"
    ):
        records.append("text")
