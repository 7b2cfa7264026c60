"""Pretrained vectors are read from a text file, and a training starts from them."""

import gzip
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import make_vocabulary
from test_progress import report_to_file
from trained_runs import train_to_end, write_copy_files

from pellucid.config.toml import build_config, load_config
from pellucid.data.vectors import PretrainedVectors, read_vectors
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.errors import ConfigError, DataError
from pellucid.files import write_text
from pellucid.model.network import require_encoder_decoder
from pellucid.run_folder.predictor_loader import load
from pellucid.training.events import ModelBuilt

SYMBOLS = make_vocabulary(["a", "é", " ", "two words", "7"])


def read_vector_text(folder: Path, text: str, size: int = 2) -> PretrainedVectors:
    write_text(folder / "v.txt", text)
    return read_vectors(folder / "v.txt", SYMBOLS, size, "encoder.embedding_size")


@pytest.mark.parametrize("header", ["", "5 2\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n", " \n"])
def test_known_symbols_are_found_with_and_without_a_header(tmp_path: Path, header: str, end: str) -> None:
    lines = ["é 1 -2.5", "zz 0 0", "  3 4", "two words 5e-1 6", "7 8 9", "é 7 7"]
    result = read_vector_text(tmp_path, header + "".join(line + end for line in lines))
    assert [SYMBOLS.symbols[identity - NUM_SPECIAL] for identity in result.ids] == ["é", " ", "two words", "7"]
    assert result.values.tolist() == [[1, -2.5], [3, 4], [0.5, 6], [8, 9]]
    assert result.values.dtype == np.float32


def test_a_file_without_known_symbols_is_no_error(tmp_path: Path) -> None:
    assert read_vector_text(tmp_path, "zz 1 2\n\n").values.shape == (0, 2)


@pytest.mark.parametrize("text", ["", "\n\n", "0 2\n"])
def test_a_file_without_a_vector_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="contains no vector: expected lines of a symbol and 2 numbers"):
        read_vector_text(tmp_path, text)


def test_compressed_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(b"a 1 2\n"))
    assert read_vectors(tmp_path / "v.txt.gz", SYMBOLS, 2, "encoder.embedding_size").values.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", "line 2: expected vectors of 2 numbers (encoder.embedding_size), got 1"),
        ("a 1 2 3\n", "line 1: expected vectors of 2 numbers (encoder.embedding_size), got 3"),
        ("9 300\na 1 2\n", "line 1: expected vectors of 2 numbers (encoder.embedding_size), got 300"),
        ("a\t1\t2\n", "line 1: expected vectors of 2 numbers (encoder.embedding_size), got 0"),
        ("zz 1 2\na 1 x\n", "line 2: expected a number, got 'x'"),
        ("a 1 nan\n", "line 1: expected a number, got 'nan'"),
        ("a 1 3.5e38\n", "line 1: expected a number, got '3.5e38'"),
        ("a 1 1_0\n", "line 1: expected a number, got '1_0'"),
        ("a 1 \u0661\n", "line 1: expected a number, got '\u0661'"),
        (
            "a 1 2\ra 3 4\r",
            "line 1: carriage returns without newlines do not end lines (the first is byte 6): save the file with "
            "newlines",
        ),
        ("a" + "b" * 70_000 + " 1 2\n", "line 1: expected a symbol of at most 65,536 characters, got 70,001"),
        ("a 1 \0\n", "line 1: NUL byte at byte 5: is this a binary or UTF-16 file?"),
    ],
)
def test_invalid_vectors_are_reported_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_vector_text(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'v.txt'}, {message}"


def test_invalid_text_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes(b"a 1 2\n\xff 1 2\n")
    with pytest.raises(DataError, match="line 2: invalid UTF-8"):
        read_vectors(tmp_path / "v.txt", SYMBOLS, 2, "encoder.embedding_size")
    with pytest.raises(DataError, match=r"cannot read .*no such file"):
        read_vectors(tmp_path / "none.txt", SYMBOLS, 2, "encoder.embedding_size")


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=5))
def test_numbers_round_trip(tmp_path_factory: pytest.TempPathFactory, numbers: list[float]) -> None:
    text = " ".join(["a", *map(repr, numbers)])
    result = read_vector_text(tmp_path_factory.mktemp("vectors"), f"1 {len(numbers)}\n{text}\n", len(numbers))
    assert result.values.tolist() == [numbers]


@pytest.mark.parametrize("kind", ["learned", "frozen"])
def test_a_run_starts_from_pretrained_vectors_and_needs_the_file_once(tmp_path: Path, kind: str) -> None:
    files, path = write_copy_files(tmp_path), tmp_path / "v.txt"
    write_text(path, "2 6\na 1 2 3 4 5 6\nx 0 0 0 0 0 0\n")
    settings = {"embedding": kind, "embedding_size": 6, "pretrained": str(path)}
    sides = {"encoder": {"hidden_size": 6, **settings}, "decoder": {"hidden_size": 12, **settings}}
    config = build_config({"size": "tiny", **sides, "training": {"epochs": 1, "batch_size": 8}}, "test")
    events = train_to_end(files, tmp_path / "run", config)
    [built] = [event for event in events if isinstance(event, ModelBuilt)]
    assert [(each.side, each.num_found, each.num_symbols) for each in built.coverage] == [
        ("source", 1, 4),
        ("target", 1, 4),
    ]
    assert f"{path}: pretrained vectors for 1 of 4 target symbols" in report_to_file(built)
    path.unlink()
    transducer = load(tmp_path / "run")
    for table, symbols in (
        (transducer.network.encoder.table, transducer.vocabularies.source),
        (require_encoder_decoder(transducer.network).decoder.table, transducer.vocabularies.target),
    ):
        vector, pretrained = table.weight[symbols.ids["a"]], torch.arange(1.0, 7.0)
        assert torch.equal(vector, pretrained) == (kind == "frozen") and torch.allclose(vector, pretrained, atol=0.5)
    again = train_to_end(files, tmp_path / "run", load_config(tmp_path / "run" / "config.toml"))
    assert [event.coverage for event in again if isinstance(event, ModelBuilt)] == [()]


def test_an_invalid_file_leaves_no_run(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    write_text(tmp_path / "v.txt", "a 1 2\n")
    config = build_config({"size": "tiny", "encoder": {"pretrained": str(tmp_path / "v.txt")}}, "test")
    with pytest.raises(DataError, match=r"v\.txt, line 1: expected vectors of 16 numbers \(encoder\.embedding_size\)"):
        train_to_end(files, tmp_path / "run", config)
    assert not (tmp_path / "run" / "config.toml").exists()


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_one_hot_tables_refuse_vectors(side: str) -> None:
    with pytest.raises(ConfigError, match=rf"{side}\.pretrained = .* needs {side}\.embedding = 'learned' or 'frozen'"):
        build_config({side: {"pretrained": "v.txt", "embedding": "one-hot"}}, "test")


def test_the_time_of_a_number_is_no_square_of_its_length(tmp_path: Path) -> None:
    """Eight times the digits take at most eight times the time; a square would grow by 64.

    Other programs only add to a measured time, so the smallest of several is the closest.
    """

    def read_time(digits: int) -> float:
        """Return the CPU time of reading a file with a number of so many digits."""
        start = time.process_time()
        with pytest.raises(DataError, match="expected a number"):
            read_vector_text(tmp_path, f"a 1 2\né 3 {'1' * digits}x\n")
        return time.process_time() - start

    short, long = (min(read_time(digits) for _ in range(3)) for digits in (500, 4_000))
    assert long < 20 * short
