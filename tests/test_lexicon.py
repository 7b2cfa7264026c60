"""Lexicons: known sources get their entries, and the model decodes the others."""

import copy
import gzip
import json
import os
import pickle
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_transducer import transducer_of

from pellucid.config.settings import DataConfig
from pellucid.data.tokenizers import Tokenizer
from pellucid.decoding.lexicon import Lexicon, load_lexicon
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.trace import END
from pellucid.errors import ConfigError, DataError

TRANSDUCER = transducer_of({"search": {"max_length": 6}})


@pytest.fixture
def lexicon_file(tmp_path: Path) -> Path:
    path = tmp_path / "lexicon.tsv"
    path.write_text("abc\tOne\nb\tx\nabc\tTwo\nabc\tOne\ncafe\u0301\ty\n", "utf-8")
    return path


def test_a_source_of_the_lexicon_has_its_entry_and_no_attention(lexicon_file: Path) -> None:
    model = TRANSDUCER.with_options(DecodingOptions(lexicon=load_lexicon(lexicon_file, TRANSDUCER.config.data)))
    from_lexicon, from_search, empty, composed = model.predict(["abc", "ab", "", "caf\u00e9"])
    assert (from_lexicon.output, from_lexicon.target, from_lexicon.origin, from_lexicon.score) == (
        "One",
        ("O", "n", "e", END),
        "lexicon",
        0,
    )
    assert from_lexicon.attention.shape == (4, 3) and not from_lexicon.attention.any() and from_lexicon.finished
    assert json.loads(from_lexicon.to_json())["origin"] == "lexicon"
    without_lexicon = TRANSDUCER.predict(["ab"])[0]
    assert (from_search.output, from_search.origin) == (without_lexicon.output, "search") and empty.output == ""
    np.testing.assert_allclose(from_search.log_probabilities, without_lexicon.log_probabilities, atol=1e-5)
    assert composed.output == "y", "sources are compared in the normal form that the model uses"


@pytest.mark.parametrize("name", ["known.tsv", "known.csv", "known.parquet"])
def test_rows_without_a_target_and_surrounding_spaces_are_noted(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / name, [("abc", "One"), ("b", ""), (" ab", "x"), ("cab", "y"), ("ca ", "z")]
    if name.endswith(".parquet"):
        sources, targets = zip(*rows, strict=True)
        pq.write_table(pa.table({"source": sources, "target": targets}), path)
    else:
        path.write_text("".join("\t,"[name.endswith(".csv")].join(row) + "\n" for row in rows), "utf-8")
    lexicon = load_lexicon(path, TRANSDUCER.config.data)
    assert lexicon.targets == {"abc": ("One",), " ab": ("x",), "cab": ("y",), "ca ": ("z",)} and not lexicon.bad_lines
    assert lexicon.notes == (
        f"{path}: rows without a target, which are not used: 1",
        f"{path}: sources that begin or end with a space, and match inputs with the same spaces only: 2, such as ' ab'",
    )
    assert pickle.loads(pickle.dumps(lexicon)) == lexicon


def test_sources_with_several_targets_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "known.tsv"
    path.write_text("a\tx\nb\ty\na\tz\na\tx\nb\ty\n", "utf-8")
    assert load_lexicon(path, TRANSDUCER.config.data).notes == (
        f"{path}: sources with several targets, of which the first one is the output: 1, such as 'a'",
    )


def test_several_targets_are_a_list(lexicon_file: Path) -> None:
    model = TRANSDUCER.with_options(DecodingOptions(lexicon=load_lexicon(lexicon_file, TRANSDUCER.config.data)))
    traces = model.nbest(["abc"], 5)[0]
    assert [(t.output, t.rank, t.nbest_probability) for t in traces] == [("One", 1, 0.5), ("Two", 2, 0.5)]
    assert len(model.nbest(["abc"], 1)[0]) == 1 and len(model.nbest(["abc"], 5, top_mass=0.5)[0]) == 1
    assert {t.output for t in model.sample(["abc"], SamplingConfig(samples=9))[0]} == {"One", "Two"}


def test_constraints_apply_to_lexicon_entries(lexicon_file: Path) -> None:
    lexicon_file.write_text("abc\tvw\nabc\tx?\nb\tz\n", "utf-8")
    lexicon = load_lexicon(lexicon_file, TRANSDUCER.config.data)
    cases = [
        (DecodingOptions(forbidden=("v",), lexicon=lexicon), None, "x?"),
        (DecodingOptions(required=("x",), lexicon=lexicon), None, "x?"),
        (DecodingOptions(prefix="x", lexicon=lexicon), None, "x?"),
        (DecodingOptions(lexicon=lexicon), ["x", "z"], "x?"),
        (DecodingOptions(lexicon=lexicon), ["vw", "z"], "vw"),
    ]
    for options, prefixes, output in cases:
        first, second = TRANSDUCER.with_options(options).predict(["abc", "b"], prefixes=prefixes)
        assert (first.output, first.origin, first.rank) == (output, "lexicon", 1)
        assert second.origin == ("search" if options.required or options.prefix else "lexicon")
    without_valid_entry = DecodingOptions(forbidden=("v", "x"), lexicon=lexicon)
    expected = TRANSDUCER.with_options(DecodingOptions(forbidden=("v", "x"))).predict(["abc"])[0]
    actual = TRANSDUCER.with_options(without_valid_entry).predict(["abc"])[0]
    assert (actual.origin, actual.output) == ("search", expected.output)
    traces = TRANSDUCER.with_options(without_valid_entry).nbest(["abc"], 2)[0]
    assert len(traces) == 2 and {trace.origin for trace in traces} == {"search"}


def test_malformed_lines_are_handled_like_those_of_a_training_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.tsv"
    path.write_text("a\tx\nb\n\nc\ty\n")
    with pytest.raises(DataError, match=r"bad\.tsv:2: expected 2 columns, got 1"):
        load_lexicon(path, TRANSDUCER.config.data)
    data = transducer_of({"data": {"on_bad_line": "skip", "source_column": "word", "header": True}}).config.data
    lexicon = load_lexicon(path, data)
    assert lexicon.targets == {"a": ("x",), "c": ("y",)} and [line.line for line in lexicon.bad_lines] == [2]


def test_samples_of_a_known_source_are_drawn_from_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "known.tsv"
    path.write_text("one\ta\none\tb\ntwo\tc\n")
    model = TRANSDUCER.with_options(DecodingOptions(lexicon=load_lexicon(path, TRANSDUCER.config.data)))
    one, two, nine = model.sample(["one", "two", "nine"], SamplingConfig(samples=40))
    assert [len(each) for each in (one, two, nine)] == [40] * 3
    assert {trace.output for trace in one} == {"a", "b"} and {trace.nbest_probability for trace in one} == {0.5}
    assert [trace.rank for trace in one] == list(range(1, 41)) and {trace.origin for trace in one} == {"lexicon"}
    assert {trace.output for trace in two} == {"c"} and {trace.nbest_probability for trace in two} == {1.0}
    repeated = model.sample(["one"], SamplingConfig(samples=40))[0]
    assert [trace.output for trace in repeated] == [trace.output for trace in one]
    single = model.sample(["one"], SamplingConfig(samples=1, seed=3))[0]
    assert len(single) == 1 and single[0].nbest_probability == 0.5


def test_the_targets_of_a_lexicon_do_not_change() -> None:
    targets = {"a": ("b",)}
    lexicon = Lexicon(targets)
    targets["a"] = ("c",)
    with pytest.raises(TypeError):
        lexicon.targets["a"] = ("c",)  # type: ignore[index]
    assert lexicon.targets == {"a": ("b",)}
    for copied in (pickle.loads(pickle.dumps(lexicon)), copy.deepcopy(lexicon), replace(lexicon)):
        assert copied == lexicon and hash(copied) == hash(lexicon)


def test_a_duplicate_target_counts_once() -> None:
    lexicon = Lexicon({"a": ("Q", "R", "Q")})
    assert lexicon.targets["a"] == ("Q", "R") and lexicon == Lexicon({"a": ("Q", "R")})


def test_the_unknown_symbols_of_a_source_are_listed_with_its_entry() -> None:
    model = transducer_of({})
    (expected,) = model.predict(["a?"])
    (trace,) = model.with_options(DecodingOptions(lexicon=Lexicon({"a?": ("vw",)}))).predict(["a?"])
    assert (trace.origin, trace.unknown) == ("lexicon", (1,))
    assert trace.unknown == expected.unknown


def test_an_entry_has_no_heads() -> None:
    model = transducer_of({"search": {"max_length": 6}, "attention": {"num_heads": 2}})
    known, searched = model.with_options(DecodingOptions(lexicon=Lexicon({"a": ("b",)}))).predict(["a", "b"])
    assert known.heads is None and searched.heads is not None and len(searched.heads) == 2


NAMED = DataConfig(source_column="word", target_column="pron")
BY_NUMBER = DataConfig(source_column="2", target_column="3")


@pytest.mark.parametrize(
    ("data", "num_columns", "name", "text", "expected"),
    [
        (NAMED, 4, "a.csv", "id,word,pron,source\n1,a,x,s\n", {"a": ("x",)}),
        (NAMED, 4, "a.tsv", "pron\tword\nx\ta\n", {"a": ("x",)}),
        (NAMED, 4, "a.txt", "a\tx\nword\tpron\n", {"a": ("x",), "word": ("pron",)}),
        (NAMED, 4, "a.csv", '"a, b",x\n', {"a, b": ("x",)}),
        (NAMED, 0, "a.jsonl", '{"id": 1, "pron": "x", "word": "a"}\n', {"a": ("x",)}),
        (NAMED, 0, "a.jsonl", '{"source": "a", "target": "x"}\n', {"a": ("x",)}),
        (DataConfig(), 2, "a.tsv", "word\tpron\na\tx\n", {"word": ("pron",), "a": ("x",)}),
        (DataConfig(header=True), 2, "a.tsv", "word\tpron\na\tx\n", {"a": ("x",)}),
        (DataConfig(header=True), 2, "a.tsv", "b\ty\na\tx\n", {"b": ("y",), "a": ("x",)}),
        (BY_NUMBER, 4, "a.csv", "1,a,x,s\n", {"a": ("x",)}),
        (BY_NUMBER, 4, "a.csv", "a,x\n", {"a": ("x",)}),
        (BY_NUMBER, 0, "a.csv", "1,a,x\n", {"a": ("x",)}),
        (DataConfig(source_column="2", target_column="1", header=True), 2, "a.csv", "pron,word\nx,a\n", {"a": ("x",)}),
        (DataConfig(input_format="text"), 0, "a.txt", "a\tx\n", {"a": ("x",)}),
    ],
)
def test_the_first_line_decides_the_columns(
    tmp_path: Path, data: DataConfig, num_columns: int, name: str, text: str, expected: dict[str, tuple[str, ...]]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert dict(load_lexicon(path, data, num_columns).targets) == expected
    with gzip.open(tmp_path / f"{name}.gz", "wt") as file:
        file.write(text)
    assert dict(load_lexicon(tmp_path / f"{name}.gz", data, num_columns).targets) == expected


@pytest.mark.parametrize(
    ("data", "num_columns", "text", "message"),
    [
        (NAMED, 4, "1,a,x,s\n", r"has 4 columns, .* names the columns of the training file, 'word' .* and 'pron'"),
        (DataConfig(), 2, "1,a,x,s\n", r"expected 2 columns as in the training file, .* source in column 1"),
        (BY_NUMBER, 4, "a,x,s\n", r"has 3 columns, and its first line is 'a', 'x', 's'; expected 4 columns"),
        (
            DataConfig(source_column="2", target_column="5"),
            0,
            "1,a,x\n",
            "expected the columns as in the training file",
        ),
        (NAMED, 4, "word,word,pron\n1,a,x\n", "2 columns are named 'word'"),
        (NAMED, 4, "a\nb\n", "expected 2 columns, got 1"),
        (NAMED, 4, "", "it is empty"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, data: DataConfig, num_columns: int, text: str, message: str) -> None:
    path = tmp_path / "known.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as error:
        load_lexicon(path, data, num_columns)
    assert str(path) in str(error.value)


def test_the_names_of_a_parquet_lexicon_decide_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "known.parquet"
    pq.write_table(pa.table({"id": [1], "pron": ["x"], "word": ["a"]}), path)
    assert load_lexicon(path, NAMED).targets == {"a": ("x",)}
    with pytest.raises(DataError, match="has 3 columns"):
        load_lexicon(path, DataConfig(source_column="form", target_column="pron"))
    pq.write_table(pa.table({"known": ["a"], "answer": ["x"]}), path)
    assert load_lexicon(path, NAMED).targets == {"a": ("x",)}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_lexicon_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "known.csv"
    os.mkfifo(path)
    threading.Thread(target=path.write_text, args=("id,word,pron\n1,a,x\n2,b,y\n",), daemon=True).start()
    assert load_lexicon(path, NAMED, 4).targets == {"a": ("x",), "b": ("y",)}


def test_a_model_with_a_column_of_classes_has_no_lexicon(lexicon_file: Path) -> None:
    """Regression test: a `TypeError`."""
    with pytest.raises(ConfigError, match=r"a lexicon holds pairs .* this model predicts classes and tags"):
        load_lexicon(lexicon_file, DataConfig(class_column="3"))


def test_no_more_targets_of_a_source_are_split_than_are_needed(
    lexicon_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: a hundred thousand lines with a source of a hundred thousand targets took days."""
    lexicon_file.write_text("".join(f"abc\tx{'y' * number}\n" for number in range(50)), "utf-8")
    model = TRANSDUCER.with_options(DecodingOptions(lexicon=load_lexicon(lexicon_file, TRANSDUCER.config.data)))
    split, texts = Tokenizer.split, list[str]()

    def count_split(tokenizer: Tokenizer, text: str) -> list[str]:
        texts.append(text)
        return split(tokenizer, text)

    monkeypatch.setattr(Tokenizer, "split", count_split)
    assert [trace.output for trace in model.nbest(["abc"], 2)[0]] == ["x", "xy"]
    assert len([text for text in texts if text.startswith("x")]) == 2
