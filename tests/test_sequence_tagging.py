"""The recipes of sequence tagging read their data sets."""

from pathlib import Path

import pytest
from recipe_data import write_lines, write_snips

from pellucid.data.examples import Example
from pellucid.errors import DataError
from pellucid.recipes import sequence_tagging as tagging


def test_requests_begin_with_the_word_of_the_intent(tmp_path: Path) -> None:
    write_snips(tmp_path)
    write_lines(tmp_path / "train" / "seq.in", ["play paris", "play xylophone", "play 1984", "rain paris"])
    write_lines(tmp_path / "train" / "seq.out", ["O B-city"] * 4)
    write_lines(tmp_path / "train" / "label", ["Play"] * 3 + ["Rain"])
    splits = tagging.read_snips(tmp_path)
    sources = [example.source for example in splits.train]
    assert sources == ["play paris", "play xylophone", "play 1984", "rain paris"]
    assert splits.train[0].target == "Play O B-city"
    assert any("berlin" in example.source for example in (*splits.dev, *splits.test))


def test_mismatched_lines_raise_data_error(tmp_path: Path) -> None:
    write_snips(tmp_path)
    write_lines(tmp_path / "valid" / "label", ["Play"])
    with pytest.raises(DataError, match=r"valid: seq\.in, seq\.out and label have 8, 8, 1 lines"):
        tagging.read_snips(tmp_path)
    write_lines(tmp_path / "valid" / "label", ["Play"] * 7 + ["Play Rain"])
    with pytest.raises(DataError, match=r"valid, line 8: expected a tag .* got 4 words, 4 tags and 2 labels"):
        tagging.read_snips(tmp_path)
    (tmp_path / "valid" / "label").write_bytes(b"\xff\n" * 8)
    with pytest.raises(DataError, match=r"valid: seq\.in, seq\.out and label must be UTF-8"):
        tagging.read_snips(tmp_path)


def test_unresolved_residues_are_not_scored(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv.gz"
    write_lines(path, ["a\tMKL\tCHE\t011", "b\tMK\tCH\t00", "c\tM\tC\t1"])
    assert list(tagging.read_structure_split(path)) == [Example("MKL", "-HE"), Example("M", "C")]
    write_lines(path, ["a\tMKL\tCH\t011"])
    with pytest.raises(DataError, match=r"x\.tsv\.gz, line 1: expected id, residues, structure and mask"):
        list(tagging.read_structure_split(path))
    path.write_bytes(b"plain")
    with pytest.raises(DataError, match="is not a table with gzip compression"):
        list(tagging.read_structure_split(path))
