"""The default size of a network: counted pairs, on the command line, in Python and in recipes."""

import gzip
import json
import os
import subprocess
import sys
from collections import deque
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import build_environment

from pellucid.config.presets import LARGE_DATA, PRESETS, default_size
from pellucid.config.toml import load_config, load_saved_config, size_preset, to_toml
from pellucid.data.examples import count_examples, count_table_examples, training_columns
from pellucid.data.in_memory import read_table
from pellucid.data.size_choice import build_sized_config, size_for_file
from pellucid.errors import ConfigError
from pellucid.recipes.recipe import load_recipe_config
from pellucid.training.preparation import prepare_data
from pellucid.training.training_data import TrainingFiles, count_pairs, read_training_data, resolve_auto_settings

DATA = size_preset("base").data
COLUMNS = training_columns(DATA)


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the fewest pairs of a large training set."""
    path = tmp_path_factory.mktemp("large") / "train.tsv"
    path.write_text("a\tb\n" * LARGE_DATA)
    return path


def test_pairs_are_counted_as_a_training_reads_them(tmp_path: Path) -> None:
    contents = {
        "pairs.tsv": "a\tb\n" * 3,
        "unfinished.tsv": "a\tb\nc\td\ne\tf",
        "blank.tsv": "a\tb\n\n\nc\td\n\ne\tf\n",
        "bad.tsv": "a\tb\nc\n\td\ne\tf\ng\th\n",
        "header.csv": "source,target,note\n" + 'a,b,"of\nthree\nlines"\n' * 3,
        "lines.jsonl": '{"source": "a", "target": "b"}\n' * 3,
    }
    for name, content in contents.items():
        (path := tmp_path / name).write_text(content)
        data = msgspec.structs.replace(DATA, on_bad_line="skip", header=name == "header.csv")
        assert [count_examples(path, data, limit) for limit in (2, 3, 4)] == [2, 3, 3], name
        path.write_bytes(gzip.compress(content.encode()))
        packed = msgspec.structs.replace(data, input_format=path.suffix.removeprefix("."))
        assert count_examples(path, packed, 4) == 3, name
    grouped = msgspec.structs.replace(DATA, header=True, group_column="note")
    assert count_examples(tmp_path / "header.csv", grouped, 4) == 3
    assert count_examples(tmp_path / "bad.tsv", DATA, 4) is None
    assert count_examples(tmp_path / "bad.tsv", DATA, 1) == 1


def test_pairs_of_parallel_files_and_of_tables_are_counted(tmp_path: Path) -> None:
    (sources := tmp_path / "sources.txt").write_text("a\n\nb\n")
    (targets := tmp_path / "targets.txt").write_text("c\n\nd\n")
    data = msgspec.structs.replace(DATA, on_bad_line="skip")
    assert count_examples(sources, data, 5, targets) == 2
    assert count_examples(sources, data, 5) is None, "a file of pairs has two columns"
    os.mkfifo(tmp_path / "pipe")
    assert count_examples(sources, data, 5, tmp_path / "pipe") is None
    table = read_table("train", [("a", "b"), ("", ""), ("c", ""), ("d", "e"), ("f", "g")], "training", COLUMNS)
    assert [count_table_examples(table, data, limit) for limit in (2, 4)] == [2, 3]
    assert count_table_examples(table, DATA, 4) is None


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
    (tmp_path / "empty.tsv").touch()
    for name in ("pipe", "missing.tsv", "empty.tsv", "damaged.parquet", "damaged.tsv.gz", "."):
        assert count_examples(tmp_path / name, DATA, 10) is None, name


@pytest.mark.slow
def test_pairs_held_out_by_preparation_count(tmp_path: Path) -> None:
    config = size_preset("base")
    sources = "".join(f"{number}\tb\n" for number in range(LARGE_DATA))
    (train := tmp_path / "train.tsv").write_text(sources)
    (valid := tmp_path / "valid.tsv").write_text("x\ty\n")
    for files, num_held_out in ((TrainingFiles(train, None), LARGE_DATA // 10), (TrainingFiles(train, valid), 0)):
        folder = tmp_path / f"prepared-{num_held_out}"
        deque(prepare_data(files, folder, config), maxlen=0)
        assert size_for_file(folder, DATA, "transduce") == size_for_file(train, DATA, "transduce") == "large"
        prepared = TrainingFiles(folder, None)
        resolved = msgspec.structs.replace(config, data=resolve_auto_settings(prepared, DATA))
        counts = count_pairs(prepared, read_training_data(prepared, resolved, DATA).file_events)
        assert counts == (LARGE_DATA, num_held_out, True)


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
    kind = ARGUMENT_CLASSES[subcommand]
    args = TrainingFlagParser(kind, subcommand, arguments, measures_size=subcommand == "train").parse()
    print(json.dumps([args.size, args.encoder.hidden_size, args.encoder.dropout]))
"""
"""Program that parses command lines without type checks, and prints size, hidden size and dropout of each."""


@pytest.mark.slow
def test_training_file_determines_the_size_on_the_command_line(large_file: Path, tmp_path: Path) -> None:
    small, missing = tmp_path / "small.tsv", tmp_path / "missing.tsv"
    small.write_text("a\tb\n")
    (sized := tmp_path / "sized.toml").write_text('size = "base"\n')
    (unsized := tmp_path / "unsized.toml").write_text("encoder.dropout = 0.25\n")
    (complete := tmp_path / "complete.toml").write_text(to_toml(size_preset("small")))
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
        (["train", small, "--config", complete, "--size", "large"], large),
        (["train", large_file, "--config", complete, "--size", "auto"], large),
        (["train", large_file, "--time", "1h"], base),  # not counted: the size is measured
        (["tune", large_file, "--time", "1h"], large),
        (["tune", small, "--config", complete, "-s", "base"], base),
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


@pytest.mark.parametrize(
    "argument",
    [
        ["-"],
        ["a.tsv", "--valid", "-"],
        ["a.txt", "--train-target", "-"],
        ["a.txt", "--train-target", "b.txt", "--valid", "c.txt", "--valid-target", "-"],
        ["a.tsv", "--mix-in", "-"],
    ],
)
def test_a_minus_in_place_of_a_file_names_the_standard_input(argument: list[str], tmp_path: Path) -> None:
    """Regression test: the message said only that there is no such file."""
    command = ["train", *argument, "--run", str(tmp_path / "run"), "--size", "tiny"]
    process = subprocess.run(
        [sys.executable, "-m", "pellucid", *command], capture_output=True, text=True, env=build_environment()
    )
    assert process.returncode == 2
    assert "train reads no file named -: give /dev/stdin for the standard input" in process.stderr
