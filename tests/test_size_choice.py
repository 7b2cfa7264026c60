"""The default size of a network: counted lines and rows, on the command line, in Python and in recipes."""

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import build_environment

from pellucid.config.presets import LARGE_DATA, PRESETS, default_size
from pellucid.config.toml import load_config, load_saved_config, size_preset, to_toml
from pellucid.data import lines
from pellucid.data.examples import count_examples
from pellucid.data.size_choice import build_sized_config
from pellucid.errors import ConfigError
from pellucid.recipes.recipe import load_recipe_config

DATA = size_preset("base").data


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the fewest pairs of a large training set."""
    path = tmp_path_factory.mktemp("large") / "train.tsv"
    path.write_text("a\tb\n" * LARGE_DATA)
    return path


@pytest.mark.parametrize(
    ("content", "count"), [(b"", 0), (b"a\tb\n", 1), (b"a\tb\nc\td", 2), (b"a\tb\n\n\nc\td\n", 4), (b"\n" * 7, 5)]
)
@pytest.mark.parametrize("compressed", [False, True])
def test_lines_are_counted_up_to_the_limit(tmp_path: Path, content: bytes, count: int, compressed: bool) -> None:
    path = tmp_path / "train.tsv"
    path.write_bytes(gzip.compress(content) if compressed else content)
    assert count_examples(path, DATA, 5) == count


def test_counting_of_a_long_file_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_COUNTED_BYTES", 10)
    monkeypatch.setattr(lines, "COUNTED_BLOCK", 4)
    assert lines.count_lines(io.BytesIO(b"ab\n" * 1000), 100) == 4


def test_saved_settings_have_a_definite_size(tmp_path: Path) -> None:
    (path := tmp_path / "config.toml").write_text(to_toml(size_preset("base")).replace('"base"', '"auto"', 1))
    assert load_config(path).size == "base"
    with pytest.raises(ConfigError, match="size: expected tiny, small, base or large, got 'auto'"):
        load_saved_config(path)


def test_rows_of_parquet_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"source": ["a", "b\nc"], "target": ["d", "e"]}), path)
    assert count_examples(path, DATA, 10) == 2
    assert count_examples(path, DATA, 1) == 1


def test_a_file_that_cannot_be_counted_has_no_count(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    (tmp_path / "damaged.tsv.gz").write_bytes(gzip.compress(b"a\tb\n" * 1000)[:20])
    for name in ("pipe", "missing.tsv", "damaged.parquet", "damaged.tsv.gz", "."):
        assert count_examples(tmp_path / name, DATA, 10) is None, name


def test_default_size_follows_the_number_of_pairs() -> None:
    assert default_size() == default_size(0) == default_size(LARGE_DATA - 1) == "base"
    assert default_size(LARGE_DATA) == "large"
    assert default_size(LARGE_DATA, "tag") == "base"


PARSER_PROGRAM = """
import json
import sys
from pellucid.cli.arguments import TrainingFlagParser
from pellucid.cli.completion import ARGUMENT_CLASSES
for line in sys.stdin:
    subcommand, file, *flags = json.loads(line)
    arguments = [file, "--valid", "b.tsv", "--run", "c", *flags]
    args = TrainingFlagParser(ARGUMENT_CLASSES[subcommand], subcommand, arguments).parse()
    print(json.dumps([args.size, args.encoder.hidden_size, args.encoder.dropout]))
"""
"""Program that parses command lines without type checks, and prints size, hidden size and dropout of each."""


@pytest.mark.slow
def test_training_file_determines_the_size_on_the_command_line(large_file: Path, tmp_path: Path) -> None:
    small, missing = tmp_path / "small.tsv", tmp_path / "missing.tsv"
    small.write_text("a\tb\n")
    (sized := tmp_path / "sized.toml").write_text('size = "base"\n')
    (unsized := tmp_path / "unsized.toml").write_text("encoder.dropout = 0.25\n")
    base, large = (
        [name, PRESETS[name]["encoder"]["hidden_size"], PRESETS[name]["encoder"]["dropout"]]
        for name in ("base", "large")
    )
    expected: list[tuple[list[object], list[object]]] = [
        (["train", small], base),
        (["train", missing], base),
        (["train", large_file, "--size", "base"], base),
        (["train", large_file, "--task", "tag"], base),
        (["train", large_file, "--config", sized], base),
        (["train", large_file], large),
        (["train", large_file, "--size=auto"], large),
        (["train", small, "-s", "large"], large),
        (["train", large_file, "--encoder.hidden-size", "7"], ["large", 7, large[2]]),
        (["train", large_file, "--config", unsized], ["large", large[1], 0.25]),
        (["train", large_file, "--config", unsized, "--encoder.dropout", "0.5"], ["large", large[1], 0.5]),
        (["tune", small], base),
        (["tune", large_file], large),
    ]
    command_lines = "".join(json.dumps([str(argument) for argument in arguments]) + "\n" for arguments, _ in expected)
    process = subprocess.run(
        [sys.executable, "-c", PARSER_PROGRAM],
        input=command_lines,
        capture_output=True,
        text=True,
        env=build_environment(),
    )
    assert process.returncode == 0, process.stderr
    assert [json.loads(line) for line in process.stdout.splitlines()] == [sizes for _, sizes in expected]


def test_training_file_determines_the_size_in_python_and_in_recipes(large_file: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.tsv"
    small.write_text("a\tb\n")
    assert build_sized_config({}, "config", small) == size_preset("base")
    assert build_sized_config({}, "config", large_file) == size_preset("large")
    assert build_sized_config({"size": "tiny"}, "config", large_file) == size_preset("tiny")
    assert build_sized_config({"encoder": {"dropout": 0.5}}, "config", large_file).encoder.dropout == 0.5
    assert load_recipe_config("g2p-cmudict", {}, large_file).size == "large"
    assert load_recipe_config("g2p-cmudict", {}, small).size == load_recipe_config("g2p-cmudict", {}).size == "base"
