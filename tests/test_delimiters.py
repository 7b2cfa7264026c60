"""Delimiters of CSV: detected only where they are clear, given by a flag, kept in outputs."""

import csv
import io
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow
import pytest
from command_line import run_pellucid, usage_error_message
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import write_table
from trained_runs import DataFiles, make_copy_examples, make_small_config, train_to_end

import pellucid
from pellucid.config.settings import DataConfig, Delimiter
from pellucid.data import delimiters
from pellucid.data.delimiters import DELIMITERS, ExpectedColumns, describe_delimiter, detect_delimiter, format_csv
from pellucid.data.examples import (
    Example,
    InputFormat,
    count_columns,
    describe_used_columns,
    parse_pairs,
    parse_sources,
    read_examples,
    read_lexicon_examples,
    read_row_ids,
    read_sources,
)
from pellucid.data.lines import MAX_COLUMNS
from pellucid.data.readers import BadLine
from pellucid.errors import ConfigError, DataError

NAMED = DataConfig(source_column="Headword", target_column="Pronunciation")
HEADER = ["Id", "Headword", "Pronunciation", "Source"]
ROWS = [["1", "ab", "A B", "field notes, 2024"], ["2", "c;d", "C", "web"], ["3", 'e"f', "E", "a, b, c"]]
PAIRS = [("ab", "A B"), ("c;d", "C"), ('e"f', "E")]


def to_csv(rows: list[list[str]], delimiter: str, bom: bool = False) -> str:
    """Return rows as CSV, as spreadsheets write it."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerows(rows)
    return "\ufeff" * bom + text.getvalue()


def write(path: Path, content: str) -> Path:
    path.write_text(content, "utf-8", newline="")
    return path


def pairs_of(path: Path, config: DataConfig) -> list[tuple[str, ...]]:
    return [example[:2] for example in read_examples(path, config).examples]


PAIR_COLUMNS = ExpectedColumns(min_columns=2)


def detect(text: str, expected: ExpectedColumns = PAIR_COLUMNS) -> Delimiter:
    return detect_delimiter(text.encode().splitlines(keepends=True), expected, "x.csv")


@pytest.mark.parametrize("character", DELIMITERS.values())
def test_a_line_of_very_many_delimiters_is_not_divided(character: str) -> None:
    """Regression test: such a line of 23 MiB took 733 MiB, and the longest possible one would have taken 8 GB."""
    line = ("ab" + character).encode() * (MAX_COLUMNS + 1)
    tracemalloc.start()
    try:
        assert detect_delimiter([line, b"a,b\n"], PAIR_COLUMNS, "x.csv") == ","
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * len(line)  # with one long cell for each other delimiter, decoded


def test_lines_before_one_of_very_many_delimiters_tell_the_delimiter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimiters, "MAX_COLUMNS", 10)
    rows = "a;b\nd;e\n"
    assert detect(rows + "g;" + "h, " * 20 + "\n") == detect(rows + '"i;' * 20) == ";"


@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_every_delimiter_is_detected(tmp_path: Path, delimiter: Delimiter) -> None:
    """By the names of the columns, by their number, and given by a setting."""
    character = DELIMITERS[delimiter]
    path = write(tmp_path / "a.csv", to_csv([HEADER, *ROWS], character, bom=True))
    assert pairs_of(path, NAMED) == PAIRS
    assert pairs_of(path, DataConfig(header=True, source_column="2", target_column="3")) == PAIRS
    assert pairs_of(path, msgspec.structs.replace(NAMED, delimiter=delimiter)) == PAIRS
    assert count_columns(path, NAMED) == 4 and read_row_ids(path, NAMED) == {2: "1", 3: "2", 4: "3"}
    used = "the file has 4 columns; used are 'Headword' as source, 'Pronunciation' as target"
    note = describe_delimiter(delimiter)
    assert describe_used_columns(path, NAMED) == "; ".join(filter(None, [note, used]))
    assert (note == "") == (delimiter == ",")
    assert describe_used_columns(path, msgspec.structs.replace(NAMED, delimiter=delimiter)) == used
    headless = write(tmp_path / "b.csv", to_csv([row[1:3] for row in ROWS], character))
    assert pairs_of(headless, DataConfig()) == PAIRS
    assert describe_used_columns(headless, DataConfig()) == note
    other = write(tmp_path / "c.txt", to_csv([row[1:3] for row in ROWS], character))
    assert pairs_of(other, DataConfig(delimiter=delimiter)) == PAIRS


CELLS = st.text(st.sampled_from('ab";,|\t é'), min_size=1, max_size=5).map(lambda text: f"x{text}x")


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=2, max_size=8), st.sampled_from([*DELIMITERS]))
@settings(deadline=None)
def test_named_columns_are_found_with_any_cells(rows: list[list[str]], delimiter: Delimiter) -> None:
    content = to_csv([["n", "w", "p"], *rows], DELIMITERS[delimiter])
    assert detect(content, ExpectedColumns(frozenset({"w", "p"}), has_header=True)) == delimiter


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\nc,d\n", ","),
        ("a\nb\n", ","),
        ("", ","),
        ("\n\n", ","),
        ("a,b,V;PL\nc,d,V;SG\n", ","),  # features, as many in every line
        ("a;b,c\nd;e\nf;g,h\n", ";"),
        ("a;1,5\nb;2\n", ";"),
        ("a\tb, c\nd\te\n", "tab"),
        ("a,1;b\nc;d\ne;f\n", ";"),
        ('"a;b";c\n"d\ne";f\n', ";"),
        ("a,b\nc\nd,e\n", ","),  # a bad line
        ('a;b\nc;"d\n', ";"),  # the sample ends within a record
    ],
)
def test_the_comma_is_the_default(text: str, expected: str) -> None:
    assert detect(text) == expected


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("a;b\nc\nd\n", "--delimiter ';' or --delimiter ','"),
        ("a;b|c\nd;e|f\n", "--delimiter ';' or --delimiter '|' or --delimiter ','"),
        ("1,5;one\n2,5;two\n", "--delimiter ';' or --delimiter ','"),
        ("a,N;PL;1\nb,V;SG;2\n", "--delimiter ';' or --delimiter ','"),
        ("a,1;b\n" + "c;d\n" * 18 + "e\n", "--delimiter ';' or --delimiter ','"),
    ],
)
def test_an_unclear_delimiter_is_not_guessed(text: str, flag: str) -> None:
    with pytest.raises(DataError, match=r"^x\.csv: it is not clear whether commas or semicolons") as raised:
        detect(text)
    assert str(raised.value).endswith(f": give {flag} (data.delimiter)")


def source_items(path: Path, config: DataConfig, columns: int = 0) -> list[str]:
    """Return the sources of a file, and the reasons of its bad lines."""
    items = read_sources(path, config, InputFormat(columns=columns))
    return [item.reason if isinstance(item, BadLine) else item.source for item in items]


def test_a_list_of_sources_is_no_table(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ab\nc;d\n|e\n")
    assert source_items(path, NAMED) == source_items(path, DataConfig(), 2) == ["ab", "c;d", "|e"]
    assert source_items(write(path, "Headword\nab\nc;d\n"), NAMED) == ["ab", "c;d"]
    assert source_items(write(path, "a;b\nc\nd\n"), DataConfig(), 2) == ["a;b", "c", "d"]
    separated = DataConfig(source_symbols=";")
    assert source_items(write(path, "a;b\nc;d\n"), separated, 2) == ["a;b", "c;d"]


def test_a_table_of_sources_is_refused_if_its_columns_are_unknown(tmp_path: Path) -> None:
    """Each line as a whole would be decoded as a word."""
    path, columns = tmp_path / "a.csv", "'Id', 'Word'; line 1 is read as the names of the columns"
    for lines in ("T0;ab\nT1;b\n", "T0;ab\nT1\n", ""):
        write(path, f"Id;Word\n{lines}")
        with pytest.raises(DataError, match=rf"no column 'Headword' \(--source-column.* among {columns}"):
            source_items(path, NAMED)
    write(path, "Id;Headword\nT0;ab\n")
    for delimiter in (",", "|"):  # as recorded by the training, or given
        with pytest.raises(DataError, match="semicolons seem to separate its columns: give --delimiter ';'"):
            source_items(path, msgspec.structs.replace(NAMED, delimiter=delimiter))
    with pytest.raises(
        ConfigError, match=r"^the column 'Headword' .* is a name, but .*a\.csv has no header: give a num"
    ):
        source_items(path, msgspec.structs.replace(NAMED, header=False))
    assert source_items(path, DataConfig(source_column="2", header=True), 2) == ["ab"]
    for columns_of_training in (0, 3):
        with pytest.raises(DataError, match=r"each line is one source, or has 2 columns .*give --delimiter ';'"):
            source_items(path, DataConfig(), columns_of_training)
    for first in ("headword", " Headword"):
        with pytest.raises(DataError, match=f"no column 'Headword' .* among '{first}'"):
            source_items(write(path, f"{first}\nab\n"), NAMED)


def test_the_first_line_of_a_stream_decides() -> None:
    read = list[int]()

    def stream() -> Iterator[bytes]:
        for number, line in enumerate([b"\n", b"Id;Headword\n", b"1;ab\n"]):
            read.append(number)
            yield line

    config = msgspec.structs.replace(NAMED, input_format="csv", header=True)
    items = parse_sources(stream(), "x", config, InputFormat())
    assert next(items) == Example("", "") and read == [0, 1]
    assert next(items) == Example("ab", "")
    pair = parse_pairs([b"Pronunciation|Headword\n", b"A|a\n"], "x", config, InputFormat())
    assert list(pair) == [Example("a", "A")]


def test_a_lexicon_may_have_another_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", to_csv([HEADER, *ROWS], ";", bom=True))
    assert [example[:2] for example in read_lexicon_examples(path, NAMED).pairs.examples] == PAIRS
    write(path, to_csv([row[1:3] for row in ROWS], "\t"))
    assert [example[:2] for example in read_lexicon_examples(path, NAMED).pairs.examples] == PAIRS
    write(path, "a;b\nc\nd\n")
    expected = r"not clear .*: save the lexicon with commas, or with tabs under a name that ends"
    with pytest.raises(DataError, match=expected):
        read_lexicon_examples(path, DataConfig())


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.tsv"])
def test_source_and_target_are_two_columns(tmp_path: Path, name: str) -> None:
    path, config = tmp_path / name, DataConfig(source_column="Headword")
    if name.endswith("jsonl"):
        write(path, '{"Id": "1", "Headword": "ab"}\n')
    elif name.endswith("parquet"):
        write_table(pyarrow.table({"Id": ["1"], "Headword": ["ab"]}), path)
    else:
        write(path, to_csv([["Id", "Headword"], ["1", "ab"]], "," if name == "a.csv" else "\t"))
    expected = "source and target are both column 'Headword': give --target-column (data.target_column)"
    with pytest.raises(DataError, match=rf"^.*{name}(:1)?: {re.escape(expected)}$"):
        read_examples(path, config)
    twice = msgspec.structs.replace(config, target_column="Headword")
    assert pairs_of(path, twice) == [("ab", "ab")]


def test_source_and_target_by_number_are_two_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a,b,c\nd,e,f\n")
    for column, source, target in (("2", "2", "2"), ("1", "1", "1")):
        with pytest.raises(DataError, match=rf"^.*a\.csv: .* both column {column}: give --target-column"):
            read_examples(path, DataConfig(source_column=source, target_column=target))
    assert pairs_of(path, DataConfig(source_column="3", target_column="3")) == [("c", "c"), ("f", "f")]
    rows = [{"id": "1", "word": "ab"}] * 3
    with pytest.raises(DataError, match="both column 'word': give --target-column"):
        pellucid.train(rows, None, tmp_path / "run", config={"data": {"source_column": "word"}})


# ---- The command line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was trained on a semicolon file with columns that have names."""
    folder = tmp_path_factory.mktemp("semicolons")
    files = DataFiles(folder / "train.csv", folder / "valid.csv")
    for path, seed in ((files.train, 1), (files.valid, 2)):
        examples = make_copy_examples(30, seed=seed)
        rows = [[str(number), *example[:2], "notes, 2024"] for number, example in enumerate(examples)]
        write(path, to_csv([HEADER, *rows], ";", bom=True))
    config = make_small_config({"epochs": 3}, data={"source_column": "Headword", "target_column": "Pronunciation"})
    train_to_end(files, folder / "run", config)
    return folder / "run"


def test_the_setting_is_recorded_as_it_was_given(run: Path) -> None:
    assert 'delimiter = "auto"' in (run / "config.toml").read_text("utf-8")


@pytest.mark.parametrize("delimiter", [";", "tab", ","])
@pytest.mark.parametrize("subcommand", ["predict", "score"])
def test_outputs_have_the_delimiter_of_the_input(
    run: Path, tmp_path: Path, subcommand: str, delimiter: Delimiter
) -> None:
    rows = [HEADER, ["1", "ab", "ab", "notes, 2024"], ["2", "ba", "ba", "a;b"]]
    path, flag = write(tmp_path / "new.csv", to_csv(rows, DELIMITERS[delimiter], bom=True)), ("--delimiter", delimiter)
    note = f"note: {path}: {describe_delimiter(delimiter)}"
    for file, flags in (("new.csv", ()), ("new.csv", flag), ("-", ()), ("-", flag)):
        source = path if file == "new.csv" else "-"
        content = path.read_bytes() if source == "-" else b""
        result = run_pellucid(subcommand, run, source, "-f", "csv", *flags, stdin=content)
        assert result.code == 0 and result.out.startswith("\ufeffId" if source == path else "Id")
        if source == path:
            assert (note in result.err) == (flags == () and delimiter != ",")
        found = list(csv.reader(io.StringIO(result.out.removeprefix("\ufeff")), delimiter=DELIMITERS[delimiter]))
        assert [row[:4] for row in found] == rows and len(found[0]) > 6


def test_lines_of_a_table_are_not_decoded_as_sources(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "new.csv", "Id;Word\nT0;ab\n")
    for flags in ((), ("--header",), ("--on-bad-line", "skip")):
        result = run_pellucid("predict", run, path, "-f", "csv", *flags)
        assert result.code == 2 and not result.out
        assert "no column 'Headword' (--source-column, data.source_column) among 'Id', 'Word'" in result.err
    assert run_pellucid("predict", run, path, "--source-column", "Word").out.count("\n") == 1
    expected = f"the column 'Headword' (--source-column, data.source_column) is a name, but {path} has no header: give"
    for content in ("Id;Word\nT0;ab\n", "T0,ab\nT1,b\n"):
        write(path, content)
        for subcommand in ("predict", "evaluate"):
            result = run_pellucid(subcommand, run, path, "--no-header")
            assert result.code == 2 and not result.out
            assert result.err.splitlines()[-1].startswith(f"pellucid: {expected}")


@pytest.mark.slow
def test_evaluate_and_look_read_semicolons_and_say_so(run: Path, tmp_path: Path) -> None:
    path = run.parent / "valid.csv"
    note = f"note: {path}: semicolons separate the columns; the file has 4 columns; used are 'Headword' as source, "
    assert note in run_pellucid("evaluate", run, path).err
    for flags in ((), ("--delimiter", ";")):
        result = run_pellucid("look", run, path, "--export", tmp_path / "page.html", *flags)
        assert result.code == 0 and ("semicolons separate the columns" in result.err) == (flags == ())


@pytest.mark.slow
def test_the_flag_is_refused_where_it_has_no_effect(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "Headword\tPronunciation\nab\tab\n")
    flag = ("--delimiter", ";")
    for subcommand in ("predict", "score", "evaluate", "look"):
        message = usage_error_message(run_pellucid(subcommand, run, path, *flag))
        expected = f"--delimiter applies to CSV, but the name of {path} means tsv: give --input-format csv"
        assert message.startswith(expected) or (subcommand == "look" and "--delimiter applies to CSV" in message)
    message = usage_error_message(run_pellucid("score", run, path, "--input-format", "jsonl", *flag))
    assert message == "--delimiter applies to CSV: it excludes --input-format jsonl"
    assert run_pellucid("score", run, path, "--delimiter", "tab").code == 0
    message = usage_error_message(run_pellucid("look", run, *flag))
    assert message == "--delimiter separates the columns of FILE: pellucid look RUN FILE"
    message = usage_error_message(run_pellucid("evaluate", run, path, "--target", path, *flag))
    assert message.startswith("--delimiter applies to a file of pairs; with --target, FILE has one source per line")
    message = usage_error_message(run_pellucid("predict", run, path, "--text", *flag))
    assert message.endswith("it excludes --delimiter")


def test_training_without_columns_reads_semicolons(run: Path, tmp_path: Path) -> None:
    """The first line names the columns; the message lists them."""
    train = ("train", run.parent / "train.csv", "--run", tmp_path / "run", "--size", "tiny")
    assert "columns named 'Id', 'Headword', 'Pronunciation', 'Source'" in usage_error_message(run_pellucid(*train))
    message = "source and target are both column 'Headword': give --target-column (data.target_column)"
    assert usage_error_message(run_pellucid(*train, "--source-column", "Headword")).endswith(message)


def test_python_reads_semicolons(run: Path, tmp_path: Path) -> None:
    path = run.parent / "valid.csv"
    assert len(pellucid.predict(run, path)) == len(pellucid.score(run, path)) == 30
    write(tmp_path / "new.csv", "T0;ab\n")
    with pytest.raises(DataError, match="no column 'Headword'"):
        pellucid.predict(run, tmp_path / "new.csv")


@given(
    st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=3), min_size=1),
    st.sampled_from([*DELIMITERS]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_rows_are_read_as_they_are_written(rows: list[list[str]], delimiter: Delimiter, line_end: str) -> None:
    text = format_csv(rows, delimiter, line_end)
    assert [*csv.reader(io.StringIO(text, newline=""), delimiter=DELIMITERS[delimiter], strict=True)] == rows
    assert text.endswith(line_end)


def test_a_carriage_return_in_a_cell_is_quoted() -> None:
    assert format_csv([["a\rb", "c"]]) == '"a\rb",c\n'
