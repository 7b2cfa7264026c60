"""Tables in memory: every kind of object gives the examples, the corpus and the model of a file with the same rows.

The tests with pandas, polars and datasets need these packages, and are skipped without them.
"""

import json
import random
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trained_runs import SMALL_SIZES, make_copy_examples, write_pairs

import pellucid
from pellucid.config.settings import DataConfig
from pellucid.data import readers
from pellucid.data.examples import Example, config_for_rows, read_examples, read_table_examples, training_columns
from pellucid.data.in_memory import InMemoryTable, read_table
from pellucid.errors import ArgumentError, BadLineError, ConfigError, DataError, RunError
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.run_files import LOG, MODEL, VALIDATION

TRAIN, DEV = make_copy_examples(60, seed=1), make_copy_examples(10, seed=2)
SETTINGS = {"size": "tiny", **SMALL_SIZES, "training": {"epochs": 1, "batch_size": 8}}
Pair = namedtuple("Pair", "word sound")
Rows = list[tuple[str, str]]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def import_package(name: str) -> ModuleType:
    """Return an optional package, or skip the test."""
    module: ModuleType = pytest.importorskip(name)
    return module


def pandas_frame(rows: Rows) -> Any:  # noqa: ANN401
    return import_package("pandas").DataFrame(rows, columns=["word", "sound"])


def pandas_without_arrow(rows: Rows) -> Any:  # noqa: ANN401
    """Return a data frame as those of pandas before 2.2, without the Arrow interface."""
    frame = pandas_frame(rows)

    class OldFrame:
        columns, shape = frame.columns, frame.shape

        def __getitem__(self, name: str) -> Any:  # noqa: ANN401
            return frame[name]

    return OldFrame()


def pandas_categories(rows: Rows) -> Any:  # noqa: ANN401
    return pandas_frame(rows).astype("category")


def pandas_filtered(rows: Rows) -> Any:  # noqa: ANN401
    """Return a data frame with an index that is not a range, as after a selection of rows."""
    frame = pandas_frame([row for pair in rows for row in (pair, ("x", "y"))])
    return frame[[index % 2 == 0 for index in range(len(frame))]]


def polars_frame(rows: Rows) -> Any:  # noqa: ANN401
    polars = import_package("polars")
    return polars.DataFrame(rows, schema={"word": polars.String, "sound": polars.String}, orient="row")


def polars_categories(rows: Rows) -> Any:  # noqa: ANN401
    polars = import_package("polars")
    return polars_frame(rows).with_columns(polars.all().cast(polars.Categorical))


def dataset(rows: Rows) -> Any:  # noqa: ANN401
    return import_package("datasets").Dataset.from_dict(arrow_columns(rows))


def selected_dataset(rows: Rows) -> Any:  # noqa: ANN401
    """Return a dataset with a mapping of indices, in whose Arrow table the rows have another order."""
    return dataset([("x", "y"), *reversed(rows)]).select(range(len(rows), 0, -1))


def filtered_dataset(rows: Rows) -> Any:  # noqa: ANN401
    every_second = dataset([row for pair in rows for row in (pair, ("x", "y"))])
    return every_second.select(range(0, 2 * len(rows), 2))


def iterable_dataset(rows: Rows) -> Any:  # noqa: ANN401
    return dataset(rows).to_iterable_dataset()


def arrow_columns(rows: Rows) -> dict[str, list[str]]:
    return {"word": [source for source, _ in rows], "sound": [target for _, target in rows]}


def arrow_table(rows: Rows) -> pa.Table:
    return pa.table(arrow_columns(rows), schema=pa.schema({"word": pa.string(), "sound": pa.string()}))


def arrow_reader(rows: Rows) -> pa.RecordBatchReader:
    return arrow_table(rows).to_reader(max_chunksize=3)


NAMED: list[Callable[[Rows], Any]] = [
    lambda rows: [{"word": source, "sound": target} for source, target in rows],
    lambda rows: ({"sound": target, "id": 1, "word": source} for source, target in rows),
    lambda rows: [Pair(*row) for row in rows],
    arrow_table,
    arrow_reader,
    lambda rows: arrow_table(rows).slice(0),
    pandas_frame,
    pandas_without_arrow,
    pandas_categories,
    pandas_filtered,
    polars_frame,
    polars_categories,
    dataset,
    selected_dataset,
    filtered_dataset,
    iterable_dataset,
]
"""Objects with the columns "word" and "sound"."""
UNNAMED: list[Callable[[Rows], Any]] = [
    list,
    iter,
    tuple,
    lambda rows: [list(row) for row in rows],
    lambda rows: (Example(*row) for row in rows),
    lambda rows: np.array(rows, dtype=object).reshape(-1, 2),
    lambda rows: [tuple(map(np.str_, row)) for row in rows],
    lambda rows: [tuple(text.encode() for text in row) for row in rows],
]
"""Objects whose rows have no names."""
NAMED_COLUMNS = DataConfig(source_column="word", target_column="sound")
BY_NAME = {"data": {"source_column": "word", "target_column": "sound"}}


def read(value: object, config: DataConfig, purpose: str = "training") -> InMemoryTable:
    return read_table("train", value, purpose, training_columns(config))


@pytest.mark.parametrize("make", [*NAMED, *UNNAMED])
@pytest.mark.parametrize("rows", [[("a", "b")], [("é", "e\u0301"), ("a\tb", "\n'\""), ("nan", "None"), ("a", "😀")]])
def test_every_object_gives_the_examples_of_its_rows(make: Callable[[Rows], Any], rows: Rows) -> None:
    config = NAMED_COLUMNS if make in NAMED else DataConfig()
    table = read(make(rows), config)
    reading, groups = read_table_examples(table, config)
    assert reading.examples == [Example(*row) for row in rows] and groups == []
    assert reading.line_numbers == list(range(1, len(rows) + 1)) and not reading.bad_lines
    expected = read(rows, DataConfig()).digest(training_columns(DataConfig()))
    assert table.digest(training_columns(config)) == expected and table.num_rows == len(rows)


@pytest.mark.parametrize("make", [*NAMED, *UNNAMED])
def test_a_run_reads_rows_without_names_as_source_and_target(make: Callable[[Rows], Any]) -> None:
    table = read(make([("a", "b")]), NAMED_COLUMNS)
    config = config_for_rows(table, NAMED_COLUMNS)
    assert read_table_examples(table, config)[0].examples == [Example("a", "b")]
    assert (config == NAMED_COLUMNS) is (make in NAMED)


@pytest.mark.parametrize("row", [("a", "b", "c"), ["a", "b", "c"], Example("a", "b", "c")])
def test_a_run_with_features_reads_rows_of_three(row: object) -> None:
    config = msgspec.structs.replace(NAMED_COLUMNS, features_column="tags")
    table = read([row], config)
    assert read_table_examples(table, config_for_rows(table, config))[0].examples == [Example("a", "b", "c")]
    with pytest.raises(BadLineError, match="expected 3 items, got 2"):
        read_table_examples(table := read([("a", "b")], config), config_for_rows(table, config))


@pytest.mark.parametrize(
    "columns", [{"source_column": "2", "target_column": "sound"}, {"target_column": "3"}, {"class_column": "kind"}]
)
def test_a_run_whose_columns_have_no_clear_order_keeps_them(columns: Mapping[str, str]) -> None:
    config = msgspec.structs.replace(NAMED_COLUMNS, **columns)
    assert config_for_rows(read([("a", "b", "c")], config), config) == config


@pytest.mark.slow
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_objects_and_files_give_the_same_good_and_bad_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows, shuffle: random.Random
) -> None:
    path = tmp_path_factory.mktemp("rows") / "pairs.jsonl"
    path.write_text("".join(json.dumps({"word": source, "sound": target}) + "\n" for source, target in rows))
    config = msgspec.structs.replace(NAMED_COLUMNS, on_bad_line="skip", max_sequence_length=4)
    try:
        expected = read_examples(path, config)
    except DataError:
        expected = None
    make = shuffle.choice([NAMED[0], NAMED[1], arrow_table, arrow_reader])
    try:
        reading, _ = read_table_examples(read(make(rows), config), config)
    except DataError:
        assert expected is None
        return
    assert expected is not None and reading[:2] == expected[:2]
    assert [(line.line, line.reason) for line in reading.bad_lines] == [
        (line.line, line.reason) for line in expected.bad_lines
    ]


def train_from(train: object, valid: object, run: Path, settings: dict[str, Any]) -> bytes:
    """Return the model file of a training."""
    pellucid.train(train, valid, run, {**SETTINGS, **settings})  # type: ignore[arg-type]
    return (run / MODEL).read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("files")
    return write_pairs(folder / "train.tsv", TRAIN), write_pairs(folder / "dev.tsv", DEV)


def pairs(examples: list[Example]) -> Rows:
    return [(example.source, example.target) for example in examples]


@pytest.mark.slow
def test_a_list_trains_the_model_of_the_file_to_the_bit(tmp_path: Path, files: tuple[Path, Path]) -> None:
    expected = train_from(*files, tmp_path / "files", {})
    assert train_from(iter(pairs(TRAIN)), pairs(DEV), tmp_path / "lists", {}) == expected
    assert train_from(pairs(TRAIN), files[1], tmp_path / "mixed", {}) == expected
    held_out = train_from(files[0], None, tmp_path / "held-out", {})
    assert train_from(pairs(TRAIN), None, tmp_path / "held-out-list", {}) == held_out != expected
    assert (tmp_path / "held-out" / VALIDATION).read_bytes() == (tmp_path / "held-out-list" / VALIDATION).read_bytes()
    # A run from a file resumes from the same rows in memory, because it depends on the examples only.
    assert train_from(pairs(TRAIN), pairs(DEV), tmp_path / "files", {}) == expected


@pytest.mark.slow
@pytest.mark.parametrize("make", [arrow_table, pandas_frame, polars_frame, selected_dataset])
def test_a_table_trains_the_model_of_the_csv_file_with_the_same_columns(
    tmp_path: Path, make: Callable[[Rows], Any]
) -> None:
    (path := tmp_path / "train.jsonl").write_text(
        "".join(json.dumps({"word": source, "sound": target}) + "\n" for source, target in pairs(TRAIN))
    )
    settings = {"data": {**BY_NAME["data"], "input_format": "jsonl"}}
    expected = train_from(path, None, tmp_path / "file", settings)
    assert train_from(make(pairs(TRAIN)), None, tmp_path / "table", settings) == expected


@pytest.mark.slow
def test_features_tags_and_positions_are_read_as_from_files(tmp_path: Path, files: tuple[Path, Path]) -> None:
    for name, target, settings in (
        ("features", "b", {"data": {"features_column": "3"}}),
        ("tag", "xy", {"task": "tag", "data": {"target_symbols": "characters"}}),
        ("point", "2", {"task": "point"}),
    ):
        rows = [(f"{letter}b", target, f"N;{letter}") for letter in "abcdefghijklmnopqrstuvwxyz"]
        (path := tmp_path / f"{name}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
        expected = train_from(path, None, tmp_path / f"{name}-file", settings)
        assert train_from(rows, None, tmp_path / f"{name}-list", settings) == expected, name


@pytest.mark.slow
def test_a_validation_set_in_memory_is_stored_with_the_run(tmp_path: Path) -> None:
    pellucid.train(pairs(TRAIN), pairs(DEV), tmp_path / "run", SETTINGS)
    records = load_run_log(tmp_path / "run").all("read")
    assert [record["path"] for record in records] == ["the training list of pairs", str(tmp_path / "run" / VALIDATION)]
    stored = [json.loads(line) for line in (tmp_path / "run" / VALIDATION).read_text().splitlines()]
    assert [(each["source"], each["target"]) for each in stored] == pairs(DEV)


@pytest.mark.slow
def test_other_rows_do_not_resume_a_training(tmp_path: Path) -> None:
    pellucid.train(pairs(TRAIN), pairs(DEV), tmp_path / "run", SETTINGS)
    with pytest.raises(RunError, match=r"the training file differs: 'the training list of pairs' with 60 examples"):
        pellucid.train(pairs(TRAIN[1:]), pairs(DEV), tmp_path / "run", SETTINGS)
    with pytest.raises(RunError, match=r"the validation file differs"):
        pellucid.train(pairs(TRAIN), pairs(DEV[1:]), tmp_path / "run", SETTINGS)


@pytest.mark.slow
def test_a_large_corpus_is_mapped_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.training.corpus_cache.MIN_CORPUS_SYMBOLS", 1)
    expected = train_from(pairs(TRAIN), pairs(DEV), tmp_path / "run", {"training": {"epochs": 4, "batch_size": 8}})
    events = iter_events(tmp_path / "again", 2)
    assert any("corpus" in path.name for path in (tmp_path / "again").iterdir())
    assert events
    settings = {"training": {"epochs": 4, "batch_size": 8}}
    assert train_from(pairs(TRAIN), pairs(DEV), tmp_path / "again", settings) == expected


def iter_events(run: Path, count: int) -> list[object]:
    """Return the first events of a training after its first updates, which is then interrupted."""
    from pellucid.config.toml import build_config
    from pellucid.training.events import UpdateCompleted
    from pellucid.training.session import train_run
    from pellucid.training.training_data import TrainingSets

    config = build_config({**SETTINGS, "training": {"epochs": 4, "batch_size": 8}}, "config")
    tables = (read(pairs(TRAIN), config.data), read(pairs(DEV), config.data, "validation"))
    events, seen = train_run(TrainingSets(*tables), run, config), list[object]()
    for event in events:
        seen.append(event)
        if isinstance(event, UpdateCompleted) and event.progress.update == count:
            events.close()
    return seen


@pytest.mark.slow
def test_members_of_an_ensemble_are_trained_from_rows(tmp_path: Path) -> None:
    rows = [{"word": source, "sound": target} for source, target in pairs(DEV)]
    model = pellucid.train(
        arrow_table(pairs(TRAIN)), iter(rows[:9]), tmp_path / "run", {**SETTINGS, **BY_NAME}, ensemble=2
    )
    assert len(model.predict(["ab"])) == 1
    assert (tmp_path / "run" / "seed-2" / LOG).exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", None), "the value of the target is None, not a string"),
        ((float("nan"), "a"), "the value of the source is nan, not a string"),
        (("a", 5), r"the value of the target is 5, not a string: convert it with str\(\)"),
        (("a", ""), "the target is empty"),
        (("a",), "expected 2 items as in pair 1, got 1"),
        (("a", "b", "c"), "expected 2 items as in pair 1, got 3"),
        ("ab", "expected a source and a target, got 'ab'"),
        (None, "expected a source and a target, got None"),
        ({"source": "a"}, r"no column 2 \(--target-column, data.target_column\) among 'source'"),
        (("a", "\ud800"), "has an unpaired surrogate, which UTF-8 cannot encode"),
        (("a", b"\xff"), r"the value of the target invalid UTF-8 at byte 1"),
    ],
)
def test_bad_rows_are_named(row: object, message: str) -> None:
    rows = [("a", "b"), row, ("c", "d")]
    location = r"^pair 2 of the training list of pairs: .*"
    with pytest.raises(DataError, match=location + message):
        read_table_examples(read(rows, DataConfig()), DataConfig())
    reading, _ = read_table_examples(read(iter(rows), DataConfig()), DataConfig(on_bad_line="skip"))
    assert reading.line_numbers == [1, 3] and len(reading.bad_lines) == 1


MISSING: list[Callable[[], Any]] = [
    lambda: pa.table({"word": ["a", None, "c"], "sound": ["x", "y", "z"]}),
    lambda: [{"word": "a", "sound": "x"}, {"word": None, "sound": "y"}, {"word": "c", "sound": "z"}],
    lambda: import_package("pandas").DataFrame({"word": ["a", None, "c"], "sound": ["x", "y", "z"]}),
    lambda: import_package("pandas").DataFrame({"word": ["a", float("nan"), "c"], "sound": ["x", "y", "z"]}),
    lambda: import_package("pandas").DataFrame({"word": ["a", import_package("pandas").NA, "c"], "sound": list("xyz")}),
    lambda: import_package("pandas").DataFrame({"word": ["a", 5, "c"], "sound": ["x", "y", "z"]}, dtype=object),
    lambda: import_package("polars").DataFrame({"word": ["a", None, "c"], "sound": ["x", "y", "z"]}),
    lambda: import_package("datasets").Dataset.from_dict({"word": ["a", None, "c"], "sound": ["x", "y", "z"]}),
]


@pytest.mark.parametrize("make", MISSING)
def test_missing_values_are_bad_rows(make: Callable[[], Any]) -> None:
    config = NAMED_COLUMNS
    with pytest.raises(
        DataError,
        match=r"^(row|pair) 2 of the training .*: the value of 'word' is (null|None|nan|<NA>|5), not a string",
    ):
        read_table_examples(read(make(), config), config)
    config = msgspec.structs.replace(config, on_bad_line="skip")
    assert read_table_examples(read(make(), config), config)[0].line_numbers == [1, 3]


def test_missing_columns_and_other_types_are_errors() -> None:
    table = pa.table({"word": ["a"], "sounds": ["b"], "number": [1]})
    for config, message in (
        (NAMED_COLUMNS, "the training Arrow table: no column 'sound' .* did you mean 'sounds'?"),
        (DataConfig(target_column="3"), "column 'number' holds int64, not strings: convert the column to strings"),
        (
            DataConfig(target_column="4"),
            r"no column 4 \(--target-column, data.target_column\) among 'word', 'sounds', 'number'",
        ),
    ):
        with pytest.raises(DataError, match=message):
            read_table_examples(read(table, config), config)
    with pytest.raises(DataError, match="2 columns are named 'a'"):
        read_table_examples(read(pa.table([["a"], ["b"]], names=["a", "a"]), DataConfig()), DataConfig())
    named = NAMED_COLUMNS
    with pytest.raises(ConfigError, match=r"data.source_column = 'word' is a name, but the rows of .* have no names"):
        read_table_examples(read([("a", "b")], named), named)
    with pytest.raises(DataError, match=r"^the training list of pairs contains no example: it is empty"):
        read_table_examples(read([], DataConfig()), DataConfig())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "train: expected a path, or rows: a list or iterable, a data frame, an Arrow table or a dataset, got 5"),
        ({"a": ["b"]}, r"train: expected rows, got .*: give pairs, as in list\(zip\(sources, targets\)\)"),
        (pa.chunked_array([["a"], ["b"]]), "train: expected columns of a source and a target, got ChunkedArray"),
    ],
)
def test_other_objects_are_argument_errors(value: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}"):
        read(value, DataConfig())


def test_splits_of_a_dataset_are_an_error(tmp_path: Path) -> None:
    splits = import_package("datasets").DatasetDict({"train": dataset([("a", "b")])})
    with pytest.raises(
        ArgumentError, match=r"expected one dataset, got the splits 'train': choose one, as in data\['t"
    ):
        pellucid.train(splits, None, tmp_path / "run", SETTINGS)


def test_an_error_of_an_iterator_is_passed_on(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[str, str]]:
        yield "a", "b"
        raise LookupError("of the caller")

    with pytest.raises(LookupError, match="of the caller"):
        pellucid.train(broken(), None, tmp_path / "run", SETTINGS)


def test_notes_name_the_columns_and_a_first_pair_of_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = arrow_table(pairs(TRAIN)).append_column("id", pa.array(range(60)))
    pellucid.train(table, None, tmp_path / "a", SETTINGS)
    assert "note: it has 3 columns; used are 'word' as source, 'sound' as target" in capsys.readouterr().err
    pellucid.train([("source", "target"), *pairs(TRAIN)], None, tmp_path / "b", SETTINGS)
    assert "pair 1 holds 'source' and 'target', which may be names of columns" in capsys.readouterr().err


def test_numbers_select_the_names_of_the_first_dict() -> None:
    """Regression test: the numbers were those of each dict, so that a dict with another order was swapped."""
    rows = [{"a": "1", "b": "2"}, {"b": "4", "a": "3"}, Pair("5", "6"), {"b": "7", "c": "8"}, ("9", "10")]
    config = DataConfig(on_bad_line="skip")
    table = read_table("train", rows, "training", training_columns(config))
    reading, _ = read_table_examples(table, config)
    assert reading.examples == [("1", "2", ""), ("3", "4", ""), ("9", "10", "")]
    assert [str(line) for line in reading.bad_lines] == [
        f"pair {number} of the training list of pairs: expected 'a', which is column 1 (--source-column, "
        f"data.source_column) of pair 1, among {names}; pair 1 has 'a', 'b'"
        for number, names in ((3, "'word', 'sound'"), (4, "'b', 'c'"))
    ]


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_is_refused_and_the_views_of_a_dict_are_read(kind: type[set[object]]) -> None:
    """Regression test: the order of a set, and so the training, depends on the process."""
    columns = training_columns(DataConfig())
    with pytest.raises(ArgumentError, match=r"^train: expected rows, got .*: a set has no order$"):
        read_table("train", kind([("a", "b")]), "training", columns)
    assert read_table("train", {"a": "b", "c": "d"}.items(), "training", columns).rows == [("a", "b"), ("c", "d")]


def test_the_index_of_a_data_frame_is_no_column_unless_it_is_selected() -> None:
    rows = [("ab", "a b"), ("cd", "c d")]
    frame = pandas_frame(rows).set_index("word")
    with pytest.raises(DataError, match="the columns are 'sound'; 'word' is the index, no column: select it by its"):
        read(frame, DataConfig())
    reading, _ = read_table_examples(read(frame, NAMED_COLUMNS), NAMED_COLUMNS)
    assert pairs(reading.examples) == rows


def test_damage_of_a_table_is_not_that_of_a_parquet_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: a table in memory could not be read "as Parquet", and a row was named as a line of a file."""
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a"]), safe=False)
    columns = training_columns(DataConfig(source_column="s", target_column="t"))
    damaged = read_table("train", pa.table({"s": dictionary, "t": ["A", "B"]}), "training", columns)
    with pytest.raises(DataError, match=r"^cannot read the training Arrow table: it is damaged: a value refers beyond"):
        list(damaged.records(columns))
    monkeypatch.setattr(readers, "MAX_LINE_BYTES", 3)
    long = read_table("train", pa.table({"s": ["a", "bbbb"], "t": ["A", "B"]}), "training", columns)
    with pytest.raises(DataError, match=r"^row 2 of the training Arrow table: the value of 's' has more than 3 bytes"):
        list(long.records(columns))
