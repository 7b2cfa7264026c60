"""Detection of a header line if the setting `data.header` is "auto"."""

import json
import random
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from command_line import CommandResult, output_lines, run_pellucid, usage_error_message
from published_data import PUBLISHED_DATA
from trained_runs import (
    DataFiles,
    copy_task_run,
    make_copy_examples,
    make_small_config,
    training_flags,
    write_copy_files,
)

from pellucid.api import train as pellucid_train
from pellucid.config.settings import DataConfig
from pellucid.config.toml import load_config
from pellucid.data.examples import (
    FILE_FORMAT,
    Example,
    InputFormat,
    parse_pairs,
    parse_sources,
    read_examples,
    read_grouped_examples,
    read_sources,
)
from pellucid.data.headers import (
    HeaderError,
    check_header_cells,
    check_header_names,
    check_shared_header,
    header_note,
    is_column_name,
    with_header,
)
from pellucid.data.lines import read_lines
from pellucid.data.readers import BadLine, ColumnSelection, Record, tsv_records
from pellucid.run_folder.run_files import CONFIG

ROOT = Path(__file__).parents[1]
AUTO = DataConfig()
WORDS = """amo amas amat porta portae portam rex regis regem dux ducis ducem lex legis legem pax pacis pacem vox vocis
vocem nox noctis noctem"""
EXAMPLE_PAIRS = [(word, word[::-1]) for word in WORDS.split()]
"""Examples that do not look like headers."""


def looks_like_header(cells: Sequence[tuple[str, ...]]) -> bool:
    try:
        check_header_names(cells[0], "a.tsv:1")
        check_header_cells(cells, "a.tsv:1")
    except HeaderError as error:
        assert re.match(r"a\.tsv:1: the first line looks like a header[:,] .*--header .*--no-header ", str(error))
        return True
    return False


@pytest.mark.parametrize(
    "cell",
    [
        "source",
        "Target",
        "WORD",
        "target_text",
        "srcText",
        "Input 1",
        "source.text",
        "phoneme-sequence",
        "text (german)",
    ],
)
def test_usual_column_names_are_recognized(cell: str) -> None:
    assert is_column_name(cell)


@pytest.mark.parametrize(
    "cell",
    ["", "1984", "hund", "a word of my own that is long", "word?", "sources of", "wörd", "w", "_", "word\n", "12 3"],
)
def test_data_is_no_column_name(cell: str) -> None:
    assert not is_column_name(cell)


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        (("source", "target"), EXAMPLE_PAIRS),
        (("src", "tgt"), EXAMPLE_PAIRS),
        (("Input", "Output"), EXAMPLE_PAIRS),
        (("lemma", "form", "features"), EXAMPLE_PAIRS),
        (("id", "word", "ipa"), EXAMPLE_PAIRS),
        (("source_text", "target_text"), EXAMPLE_PAIRS),
        (("text", "label"), [(word, "positive") for word, _ in EXAMPLE_PAIRS]),
        (("Wort", "ipa"), [("ХУЛИОРТ", each) for _, each in EXAMPLE_PAIRS]),
        (("latin", "year"), [(word, "1984") for word, _ in EXAMPLE_PAIRS]),
        (("λέξη", "слово"), EXAMPLE_PAIRS),
        (("λέξη", "my_column"), EXAMPLE_PAIRS),
        (("number", "obama"), [(str(index), word) for index, (word, _) in enumerate(EXAMPLE_PAIRS)]),
        (("amabo", "nr"), [(word, str(index)) for index, (word, _) in enumerate(EXAMPLE_PAIRS)]),
    ],
)
def test_a_header_is_detected(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    assert looks_like_header([header, *rows])


@pytest.mark.parametrize(
    "first",
    [
        ("amabo", "obama"),
        ("word", "wort"),
        ("pos", "pos"),
        ("my_word", "my_other"),
        ("text", "words of a text"),
        ("λέξη", "rex"),
    ],
)
def test_possible_examples_are_not_refused(first: tuple[str, str]) -> None:
    assert not looks_like_header([first, *EXAMPLE_PAIRS])


def test_a_note_names_a_possible_header() -> None:
    assert header_note([("word", "wort"), *EXAMPLE_PAIRS]).startswith(
        "the first line may be a header: the source 'word' is a usual column name; it is read as an ex"
    )
    assert "no character of the target 'слово' occurs in the 24 cells below it" in header_note(
        [("rex", "слово"), *EXAMPLE_PAIRS]
    )
    assert "only the source 'a_b' has an underscore" in header_note([("a_b", "ab"), *EXAMPLE_PAIRS])
    assert header_note(EXAMPLE_PAIRS) == "" and header_note([("a_b", "слово"), *EXAMPLE_PAIRS[:10]]) == ""


def test_a_first_line_of_both_files_is_detected() -> None:
    first, training, validation = ("Wort", "Aussprache"), EXAMPLE_PAIRS, [(a, a) for a, _ in EXAMPLE_PAIRS]
    with pytest.raises(HeaderError, match=r"^dev\.tsv: the first .* begin with 'Wort', 'Aussprache', w"):
        check_shared_header([first, *training], [first, *validation], "dev.tsv")
    note = check_shared_header([first, *training], [first, *training[:25]], "dev.tsv")
    assert note.startswith("the first line may be a header: both files begin with 'Wort', 'Aussprache', which")
    assert check_shared_header([first, *training, first], [first, *validation], "dev.tsv") == ""
    assert check_shared_header([first, *training[:5]], [first, *validation], "dev.tsv") == ""
    assert check_shared_header(training, validation, "dev.tsv") == ""


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    separator = "," if path.suffix == ".csv" else "\t"
    path.write_text("".join(separator.join(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt"])
def test_the_header_setting_decides_and_auto_refuses_headers(tmp_path: Path, name: str) -> None:
    path = write_table(tmp_path / name, [("word", "pronunciation"), *EXAMPLE_PAIRS])
    with pytest.raises(HeaderError, match=rf"{name}:1: .* named 'word', 'pronunciation': give --header \("):
        read_examples(path, AUTO)
    with pytest.raises(HeaderError):
        next(read_sources(path, AUTO))
    assert len(read_examples(path, DataConfig(header=True)).examples) == len(EXAMPLE_PAIRS)
    assert len(read_examples(path, DataConfig(header=False)).examples) == len(EXAMPLE_PAIRS) + 1
    without_header = write_table(tmp_path / name, EXAMPLE_PAIRS)
    assert (
        read_examples(without_header, AUTO).examples == read_examples(without_header, DataConfig(header=False)).examples
    )


def test_the_line_of_a_header_is_reported(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.tsv", [("",), ("input", "label"), *EXAMPLE_PAIRS])
    with pytest.raises(HeaderError, match=r"a\.tsv:2: "):
        read_examples(path, AUTO)
    other_script = write_table(tmp_path / "b.tsv", [("",), ("λέξη", "слово"), *EXAMPLE_PAIRS])
    with pytest.raises(
        HeaderError, match=r"b\.tsv:2: .*no character of the source 'λέξη' occurs in the 24 cells below"
    ):
        read_examples(other_script, AUTO)


def test_other_formats_have_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"s": "source", "t": "target"}\n{"s": "a", "t": "b"}\n')
    assert len(read_examples(tmp_path / "a.jsonl", AUTO).examples) == 2
    for name in ("source", "target"):
        (tmp_path / name).write_text(f"{name}\na\n")
    assert len(read_examples(tmp_path / "source", AUTO, tmp_path / "target").examples) == 2


def test_a_group_column_by_name_implies_a_header(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.tsv", [("s", "t", "kind"), ("a", "b", "x"), ("c", "d", "y")])
    reading, groups = read_grouped_examples(path, with_header(DataConfig(header=False)), "kind")
    assert reading.examples == [Example("a", "b"), Example("c", "d")] and groups == ["x", "y"]


def test_other_files_are_read_as_set_or_like_the_training_file() -> None:
    for training_header in (True, False, "auto"):
        for flag in (True, False):
            assert with_header(DataConfig(header=training_header), flag).header is flag
    assert with_header(DataConfig(header=True)).header is True
    assert with_header(DataConfig(header=False)).header == "auto"


def test_lines_have_a_header_only_if_it_is_set() -> None:
    lines = [b"word\tpronunciation\n", b"a\tb\n", b"c\n"]
    assert [item[:2] for item in parse_sources(lines, "<stdin>", AUTO, InputFormat(header=True))] == [
        ("a", ""),
        ("c", ""),
    ]
    assert next(parse_sources(lines, "<stdin>", AUTO, InputFormat(header=False))) == ("word", "", "")
    for parse in (parse_sources, parse_pairs):
        with pytest.raises(HeaderError, match=r"^<stdin>:1: "):
            next(parse(lines, "<stdin>", AUTO, InputFormat()))
    config = DataConfig(header=True, source_column="word", target_column="pronunciation")
    assert [item[:2] for item in parse_sources(lines, "<stdin>", config, InputFormat(header=True))] == [
        ("a", ""),
        ("c", ""),
    ]


# ---- no more columns than the training file


@pytest.mark.parametrize("separator", ["\t", ","])
def test_a_line_to_predict_with_more_columns_than_the_training_file_is_bad(tmp_path: Path, separator: str) -> None:
    path = tmp_path / ("a.csv" if separator == "," else "a.tsv")
    path.write_text("a\nb,c\nd,e,f\n\ng\n".replace(",", separator))
    file_format, separators = FILE_FORMAT._replace(columns=2), "commas" if separator == "," else "tabs"
    expected = f"expected at most 2 columns, got 3 ({separators} separate columns)"
    lines = path.read_bytes().splitlines(keepends=True)
    config = DataConfig(input_format="csv" if separator == "," else "tsv", header=False)
    for items in (
        list(read_sources(path, config, file_format)),
        list(parse_sources(lines, str(path), config, file_format._replace(header=False))),
    ):
        assert [item if isinstance(item, BadLine) else item.source for item in items] == [
            *("a", "b", BadLine(str(path), 3, expected), "", "g")
        ]
    (bad,) = [item for item in parse_pairs(lines[2:3], "x", config, file_format._replace(header=False))]
    assert isinstance(bad, BadLine) and bad.reason == expected


def test_a_header_determines_the_columns(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.tsv", [("id", "sound", "word"), ("1", "x", "a")])
    config = DataConfig(header=True, source_column="word", target_column="sound")
    assert [item[:2] for item in read_sources(path, config, FILE_FORMAT._replace(columns=2))] == [("a", "")]


def test_text_with_features_has_at_most_two_columns() -> None:
    config = DataConfig(input_format="text", features_column="3")
    items = list(parse_sources([b"a\tN\tx\n", b"b\tV\n", b"c\n"], "<stdin>", config))
    assert [isinstance(item, BadLine) for item in items] == [True, False, False]


# ---- the command line


HEADER = "word\tpronunciation\n"


@pytest.fixture(scope="module")
def files_with_header(tmp_path_factory: pytest.TempPathFactory) -> DataFiles:
    """Write training and validation files that begin with a header."""
    files = write_copy_files(tmp_path_factory.mktemp("headed"))
    for path in (files.train, files.valid):
        path.write_text(HEADER + path.read_text())
    return files


@pytest.fixture(scope="module")
def run(files_with_header: DataFiles) -> Path:
    """Train a run on files with a header."""
    folder = files_with_header.train.parent / "run"
    assert run_training(files_with_header.train, files_with_header.valid, folder, "--header").code == 0
    return folder


def run_training(training: Path, valid: Path, run: Path, *arguments: object) -> CommandResult:
    return run_pellucid(
        "train", training, "--valid", valid, "--run", run, *training_flags(make_small_config({"epochs": 1})), *arguments
    )


@pytest.mark.slow
def test_training_requires_a_header_flag_and_saves_it(files_with_header: DataFiles, run: Path, tmp_path: Path) -> None:
    message = usage_error_message(run_training(files_with_header.train, files_with_header.valid, tmp_path / "a"))
    assert (
        message.startswith(f"{files_with_header.train}:1: the first line looks like a header")
        and "--no-header" in message
    )
    assert "\n" not in message and not (tmp_path / "a").exists()
    assert run_training(files_with_header.train, files_with_header.valid, tmp_path / "a", "--no-header").code == 0
    assert load_config(tmp_path / "a" / CONFIG).data.header is False
    assert (
        load_config(run / CONFIG).data.header is True and load_config(copy_task_run().run / CONFIG).data.header is False
    )
    with pytest.raises(HeaderError):
        pellucid_train(
            files_with_header.train, files_with_header.valid, tmp_path / "b", make_small_config({"epochs": 1})
        )
    model = pellucid_train(
        files_with_header.train,
        files_with_header.valid,
        tmp_path / "b",
        make_small_config({"epochs": 1}, data={"source_column": "word", "target_column": "pronunciation"}),
    )
    assert model.config.data.header is True and model.vocabularies.columns == 2


@pytest.mark.slow
def test_a_file_with_more_columns_names_all_of_them_and_then_those_that_are_read(tmp_path: Path) -> None:
    """A word list with a column before the word: neither the error nor the training leaves the choice unsaid."""
    files = DataFiles(tmp_path / "train.csv", tmp_path / "valid.csv")
    for path, examples in ((files.train, make_copy_examples(30, 1)), (files.valid, make_copy_examples(8, 2))):
        rows = [f"{number},{example.source},x,{example.target}\n" for number, example in enumerate(examples)]
        path.write_text("id,word,note,pronunciation\n" + "".join(rows), "utf-8")
    message = usage_error_message(run_training(files.train, files.valid, tmp_path / "a"))
    assert "with columns named 'id', 'word', 'note', 'pronunciation': choose two of these columns" in message
    assert "--source-column NAME and --target-column NAME" in message and "train reads the first two" in message
    named = ("--source-column", "word", "--target-column", "pronunciation")
    note = "the file has 4 columns; used are 'word' as source, 'pronunciation' as target"
    assert f"note: {note}\n" in run_training(files.train, files.valid, tmp_path / "a", *named).err
    evaluated = run_pellucid("evaluate", tmp_path / "a", files.valid)
    assert evaluated.code == 0 and f"pellucid: note: {files.valid}: {note}\n" in evaluated.err
    unnamed = run_training(files.train, files.valid, tmp_path / "b", "--header")
    assert "note: the file has 4 columns; used are 'id' as source, 'word' as target\n" in unnamed.err


def test_a_header_of_the_validation_file_only_is_reported(files_with_header: DataFiles, tmp_path: Path) -> None:
    message = usage_error_message(run_training(copy_task_run().files.train, files_with_header.valid, tmp_path / "a"))
    assert message.startswith(f"{files_with_header.valid}:1: the first line looks like a header")
    assert message.endswith(f"; {copy_task_run().files.train}, which is read in the same way, seems to have none")


def test_training_notes_a_possible_header(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("word\tabc\n" + copy_task_run().files.train.read_text())
    result = run_training(path, copy_task_run().files.valid, tmp_path / "run")
    assert result.code == 0 and "the source 'word' is a usual column name; it is read as an example" in result.err
    result = run_pellucid("evaluate", copy_task_run().run, "-", stdin=path.read_bytes())
    assert "pellucid: note: standard input: the first line may be a header: the source 'word' " in result.err


def count_lines(run: Path, *arguments: object) -> object:
    result = run_pellucid("evaluate", run, "--json", *arguments)
    assert result.code == 0, result
    return json.loads(result.out)["lines"]


@pytest.mark.slow
def test_evaluation_reads_headers_like_training_and_refuses_unclear_files(
    files_with_header: DataFiles, run: Path
) -> None:
    run_without_header = copy_task_run()
    assert (
        count_lines(run, files_with_header.valid) == 10
        and count_lines(run, files_with_header.valid, "--no-header") == 11
    )
    message = usage_error_message(run_pellucid("evaluate", run_without_header.run, files_with_header.valid))
    assert message.startswith(f"{files_with_header.valid}:1: the first line looks like a header")
    assert (
        count_lines(run_without_header.run, files_with_header.valid, "--header") == 10
        and count_lines(run_without_header.run, files_with_header.valid, "--no-header") == 11
    )
    assert count_lines(run_without_header.run, run_without_header.files.valid) == 10


@pytest.mark.slow
@pytest.mark.parametrize("subcommand", ["predict", "score"])
def test_prediction_reads_headers_like_training_and_refuses_unclear_files(
    files_with_header: DataFiles, run: Path, subcommand: str
) -> None:
    run_without_header, lines = copy_task_run().run, files_with_header.valid.read_bytes()
    assert len(output_lines(run_pellucid(subcommand, run, files_with_header.valid).out)) == 10
    assert len(output_lines(run_pellucid(subcommand, run, files_with_header.valid, "--no-header").out)) == 11
    assert (
        len(output_lines(run_pellucid(subcommand, run_without_header, files_with_header.valid, "--header").out)) == 10
    )
    for arguments, stdin in (([files_with_header.valid], b""), (["-"], lines)):
        result = run_pellucid(subcommand, run_without_header, *arguments, stdin=stdin)
        assert ":1: the first line looks like a header" in usage_error_message(result) and result.out == ""
    assert len(output_lines(run_pellucid(subcommand, run_without_header, "-", "--header", stdin=lines).out)) == 10
    assert len(output_lines(run_pellucid(subcommand, run_without_header, "-", "--no-header", stdin=lines).out)) == 11


@pytest.mark.slow
def test_look_reads_headers_like_training_and_refuses_unclear_files(
    files_with_header: DataFiles, run: Path, tmp_path: Path
) -> None:
    page, message = tmp_path / "a.html", "the first line looks like a header"
    assert message in usage_error_message(
        run_pellucid("look", copy_task_run().run, files_with_header.valid, "--terminal")
    )
    assert message in usage_error_message(
        run_pellucid("look", copy_task_run().run, files_with_header.valid, "--export", page)
    )
    assert (
        "word →" not in run_pellucid("look", copy_task_run().run, files_with_header.valid, "--terminal", "--header").out
    )
    assert (
        "word →" in run_pellucid("look", copy_task_run().run, files_with_header.valid, "--terminal", "--no-header").out
    )
    for arguments in ([], [files_with_header.valid]):
        result = run_pellucid("look", run, *arguments, "--terminal")
        assert result.code == 0 and result.out.count(" → ") == 10 and "word →" not in result.out


@pytest.mark.slow
def test_the_header_flags_accept_a_value() -> None:
    valid_file, run = copy_task_run().files.valid, copy_task_run().run
    for arguments, count in ((["--header=auto"], 10), (["--header", "false"], 10), (["--header", "true"], 9)):
        assert count_lines(run, *arguments, valid_file) == count
    assert count_lines(run, "--header", valid_file) == 9 and count_lines(run, "--no-header", valid_file) == 10
    message = usage_error_message(run_pellucid("evaluate", run, valid_file, "--header=maybe"))
    assert message.startswith("--header: expected auto, true or false, got 'maybe'")


@pytest.mark.slow
def test_a_line_with_too_many_columns_stops_a_prediction(tmp_path: Path) -> None:
    path, run = tmp_path / "a.tsv", copy_task_run().run
    path.write_text("a\nb\tb\nc\tc\tc\nd\n")
    for arguments, stdin in (([path], b""), (["-"], path.read_bytes())):
        result = run_pellucid("predict", run, *arguments, stdin=stdin)
        message = usage_error_message(result)
        assert ":3: expected at most 2 columns, got 3 (tabs separate columns) (--on-bad-line skip" in message
        assert result.out.count("\n") == 2
        result = run_pellucid("predict", run, *arguments, "--on-bad-line", "skip", stdin=stdin)
        assert result.code == 0 and len(output_lines(result.out)) == 4 and output_lines(result.out)[2] == ""
    assert len(output_lines(run_pellucid("predict", run, path, "--input-format", "text").out)) == 4


# ---- published files without a header, in their own order and with other first lines


def find_published_tables() -> list[Path]:
    """Return the published files of pairs, which have no headers."""
    paths = [path for root in (PUBLISHED_DATA, ROOT / "examples") for path in root.rglob("*") if path.is_file()]
    return sorted(path for path in paths if path.suffix in (".tsv", ".txt", ".train", ".dev", ".test"))


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED_DATA.is_dir(), reason=f"no data in {PUBLISHED_DATA}: set PELLUCID_DATA")
def test_no_published_file_is_refused() -> None:
    generator, files, lines, notes = random.Random(1), 0, 0, 0
    for path in find_published_tables():
        records = tsv_records(islice(read_lines(path), 300), ColumnSelection({"source": "1", "target": "2"}), str(path))
        rows = [tuple(row.fields) for row in records if isinstance(row, Record) and row.fields]
        if len(rows) < 20:
            continue
        assert not looks_like_header(rows) and header_note(rows) == "", path
        files += 1
        for index in generator.sample(range(len(rows)), 5):
            reordered = [rows[index], *rows[:index], *rows[index + 1 :]]
            assert not looks_like_header(reordered), (path, rows[index])
            lines, notes = lines + 1, notes + bool(header_note(reordered))
        assert looks_like_header([("word", "pronunciation"), *rows])
    assert files > 200 and notes < lines / 300


@pytest.mark.slow
def test_prediction_notes_a_possible_header_and_predicts_it(run: Path, tmp_path: Path) -> None:
    """Every input line has an output line, because a list of sources may begin with a usual column name."""
    run_without_header, path = copy_task_run().run, tmp_path / "a.tsv"
    path.write_text("word\n" + "ab\ncd\n")
    note = "the first line may be a header: the source 'word' is a usual column name; it is read as an example ("
    for each_run in (run_without_header, run):
        result = run_pellucid("predict", each_run, path)
        assert len(output_lines(result.out)) == 3 and f"note: {path}:1: {note}" in result.err
        assert len(output_lines(run_pellucid("predict", each_run, path, "--header").out)) == 2
        result = run_pellucid("predict", each_run, path, "--no-header")
        assert len(output_lines(result.out)) == 3 and "header" not in result.err
        result = run_pellucid("predict", each_run, "-", stdin=path.read_bytes())
        assert len(output_lines(result.out)) == 3 and f"standard input:1: {note}" in result.err
    path.write_text("\n日本\n" + "ab\ncd\n" * 15)
    result = run_pellucid("predict", run_without_header, path)
    assert len(output_lines(result.out)) == 32
    assert (
        f"{path}:2: the first line may be a header: no character of the source '日本' occurs in the 30 " in result.err
    )


@pytest.mark.slow
def test_a_skipped_first_line_is_reported(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("ab\tab\ncd\tcd\n")
    for subcommand in ("predict", "score"):
        result = run_pellucid(subcommand, run, path)
        assert len(output_lines(result.out)) == 1 and result.code == 0
        assert (
            f"{path}:1: the first line is read as the names of the columns, as in the training file, but 'ab' is not "
            "what columns are usually named by; --no-header reads it as an example"
        ) in result.err
        for flag, count in (("--header", 1), ("--no-header", 2)):
            result = run_pellucid(subcommand, run, path, flag)
            assert len(output_lines(result.out)) == count and "header" not in result.err and "names" not in result.err


@pytest.mark.parametrize("stdin", [False, True])
def test_scoring_and_evaluation_refuse_the_same_header(stdin: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("Wort\tLohn\n" + "ab\tab\ncd\tcd\n" * 15)
    messages = [
        usage_error_message(
            run_pellucid(subcommand, copy_task_run().run, *(["-"] if stdin else [path]), stdin=path.read_bytes())
        )
        for subcommand in ("evaluate", "score")
    ]
    assert messages[0] == messages[1] and "the first line looks like a header: no character of the " in messages[0]


def test_the_columns_are_listed_where_only_cells_tell_that_a_line_is_a_header(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("sku,product_label,price\n" + "".join(f"{n},{n + 1},{n + 2}\n" for n in range(40)), "utf-8")
    message = usage_error_message(run_training(path, path, tmp_path / "run"))
    assert "its columns are 'sku', 'product_label', 'price': choose two of these columns" in message


@pytest.mark.slow
def test_sources_that_do_not_have_the_columns_are_told_how_to_be_read(run: Path, tmp_path: Path) -> None:
    """A line with a comma, for a run that was trained on a CSV file with named columns."""
    files = DataFiles(tmp_path / "train.csv", tmp_path / "valid.csv")
    for path, seed in ((files.train, 1), (files.valid, 2)):
        rows = [f"{example.source},{example.target}\n" for example in make_copy_examples(30, seed)]
        path.write_text("word,copy\n" + "".join(rows), "utf-8")
    named = ("--source-column", "word", "--target-column", "copy", "--epochs", "1")
    assert run_training(files.train, files.valid, tmp_path / "run", *named).code == 0
    result = run_pellucid("predict", tmp_path / "run", stdin=b"ab, c\nd\n")
    assert "--source-column selects another one, and --input-format text reads each line" in usage_error_message(result)
    as_text = run_pellucid("predict", tmp_path / "run", "--input-format", "text", stdin=b"ab, c\nd\n")
    assert as_text.code == 0 and len(output_lines(as_text.out)) == 2
    (tmp_path / "new.csv").write_text("id,title\n1,ab\n2,cd\n", "utf-8")
    renamed = run_pellucid("predict", tmp_path / "run", tmp_path / "new.csv", "--source-column", "title")
    assert renamed.out == run_pellucid("predict", tmp_path / "run", "-i", "text", stdin=b"ab\ncd\n").out
    assert "the first line of the input names the columns, so it has no output; --output-format csv" in renamed.err


@pytest.mark.slow
def test_a_file_with_other_columns_is_read_as_the_flags_say(run: Path, tmp_path: Path) -> None:
    """score, evaluate and look select the columns of FILE as predict does."""
    pairs = make_copy_examples(8, seed=3)
    pairs_file, other_file = tmp_path / "pairs.tsv", tmp_path / "other.csv"
    lines = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
    pairs_file.write_text(f"source\ttarget\n{lines}", "utf-8")
    rows = "".join(f"{number},{pair.target},{pair.source}\n" for number, pair in enumerate(pairs))
    other_file.write_text(f"id,goal,title\n{rows}", "utf-8")
    columns = ("--source-column", "title", "--target-column", 2)
    scores = [run_pellucid("score", run, *arguments) for arguments in ([pairs_file], [other_file, *columns])]
    assert scores[0].code == 0 and scores[0].out == scores[1].out and len(output_lines(scores[0].out)) == 8
    reports = [
        json.loads(run_pellucid("evaluate", run, *arguments, "--json").out)
        for arguments in ([pairs_file], [other_file, *columns])
    ]
    assert reports[0]["errors"] == reports[1]["errors"] and reports[0]["examples"] == reports[1]["examples"] == 8
    pages = [
        run_pellucid("look", run, *arguments, "--terminal") for arguments in ([pairs_file], [other_file, *columns])
    ]
    assert pages[0].code == 0 and pages[0].out == pages[1].out
    assert "the file has 3 columns; used are 'title' as source, 'goal' as target" in pages[1].err
    for subcommand in ("score", "evaluate"):
        message = usage_error_message(run_pellucid(subcommand, run, other_file, "--source-column", "titel"))
        assert "no column 'titel' (--source-column, data.source_column) among 'id', 'goal', 'title'" in message


@pytest.mark.parametrize("subcommand", ["evaluate", "look"])
def test_columns_are_not_selected_in_a_file_of_sources(run: Path, tmp_path: Path, subcommand: str) -> None:
    flags = ("--target", tmp_path / "targets", "--target-column", "word")
    message = usage_error_message(run_pellucid(subcommand, run, tmp_path / "sources", *flags))
    assert message.startswith("--target-column selects a column of a file of pairs; with --target, FILE has one source")


def test_columns_of_look_are_those_of_its_file(run: Path) -> None:
    message = usage_error_message(run_pellucid("look", run, "--source-column", "word", "--terminal"))
    assert message == "--source-column selects a column of FILE: pellucid look RUN FILE"


def test_semicolons_as_separators_are_named(tmp_path: Path) -> None:
    """In CSV they are read; in TSV the message says how."""
    (tmp_path / "train.tsv").write_text("id;word;copy\n" + "1;ab;ab\n" * 20, "utf-8")
    named = ("--source-column", "word", "--target-column", "copy")
    result = run_training(tmp_path / "train.tsv", tmp_path / "train.tsv", tmp_path / "run", *named)
    expected = ": if semicolons separate the columns, give --input-format csv --delimiter ';'"
    assert expected in usage_error_message(result)
