"""Detection of a first line that names the columns, if the user does not say whether there is a header."""

import json
import random
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from command_line import Done, complaint, outputs, pellucid
from published import DATA
from trained_runs import copies_run, copy_files, flags, small_config

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
    config_for_file,
    header_note,
    is_column_name,
)
from pellucid.data.lines import read_lines
from pellucid.data.readers import BadLine, ColumnSelection, Record, tsv_records
from pellucid.training.run_folder import CONFIG
from pellucid.training.training_data import TrainingFiles

ROOT = Path(__file__).parents[1]
AUTO = DataConfig()
WORDS = """amo amas amat porta portae portam rex regis regem dux ducis ducem lex legis legem pax pacis pacem vox vocis
vocem nox noctis noctem"""
PAIRS = [(word, word[::-1]) for word in WORDS.split()]
"""First lines that are no headers."""


def refused(cells: Sequence[tuple[str, ...]]) -> bool:
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
    ("header", "below"),
    [
        (("source", "target"), PAIRS),
        (("src", "tgt"), PAIRS),
        (("Input", "Output"), PAIRS),
        (("lemma", "form", "features"), PAIRS),
        (("id", "word", "ipa"), PAIRS),
        (("source_text", "target_text"), PAIRS),
        (("text", "label"), [(word, "positive") for word, _ in PAIRS]),
        (("Wort", "ipa"), [("ХУЛИОРТ", each) for _, each in PAIRS]),
        (("latin", "year"), [(word, "1984") for word, _ in PAIRS]),
        (("λέξη", "слово"), PAIRS),
        (("λέξη", "my_column"), PAIRS),
    ],
)
def test_a_header_is_detected(header: tuple[str, ...], below: list[tuple[str, ...]]) -> None:
    assert refused([header, *below])


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
    assert not refused([first, *PAIRS])


def test_a_note_names_a_possible_header() -> None:
    assert header_note([("word", "wort"), *PAIRS]).startswith(
        "the first line may be a header: the source 'word' is a usual column name; it is read as an ex"
    )
    assert "no character of the target 'слово' occurs in the 24 cells below it" in header_note(
        [("rex", "слово"), *PAIRS]
    )
    assert "only the source 'a_b' has an underscore" in header_note([("a_b", "ab"), *PAIRS])
    assert header_note(PAIRS) == "" and header_note([("a_b", "слово"), *PAIRS[:10]]) == ""


def test_a_first_line_of_both_files_is_detected() -> None:
    first, training, validation = ("Wort", "Aussprache"), PAIRS, [(a, a) for a, _ in PAIRS]
    with pytest.raises(HeaderError, match=r"^dev\.tsv: the first .* begin with 'Wort', 'Aussprache', w"):
        check_shared_header([first, *training], [first, *validation], "dev.tsv")
    note = check_shared_header([first, *training], [first, *training[:25]], "dev.tsv")
    assert note.startswith("the first line may be a header: both files begin with 'Wort', 'Aussprache', which")
    assert check_shared_header([first, *training, first], [first, *validation], "dev.tsv") == ""
    assert check_shared_header([first, *training[:5]], [first, *validation], "dev.tsv") == ""
    assert check_shared_header(training, validation, "dev.tsv") == ""


def written(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    separator = "," if path.suffix == ".csv" else "\t"
    path.write_text("".join(separator.join(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt"])
def test_the_header_setting_decides_and_auto_refuses_headers(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, [("word", "pronunciation"), *PAIRS])
    with pytest.raises(HeaderError, match=rf"{name}:1: .* named 'word' and 'pronunciation': give --header \("):
        read_examples(path, AUTO)
    with pytest.raises(HeaderError):
        next(read_sources(path, AUTO))
    assert len(read_examples(path, DataConfig(header=True)).examples) == len(PAIRS)
    assert len(read_examples(path, DataConfig(header=False)).examples) == len(PAIRS) + 1
    plain = written(tmp_path / name, PAIRS)
    assert read_examples(plain, AUTO).examples == read_examples(plain, DataConfig(header=False)).examples


def test_the_line_of_a_header_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", [("",), ("input", "label"), *PAIRS])
    with pytest.raises(HeaderError, match=r"a\.tsv:2: "):
        read_examples(path, AUTO)
    unlike = written(tmp_path / "b.tsv", [("",), ("λέξη", "слово"), *PAIRS])
    with pytest.raises(
        HeaderError, match=r"b\.tsv:2: .*no character of the source 'λέξη' occurs in the 24 cells below"
    ):
        read_examples(unlike, AUTO)


def test_other_formats_have_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"s": "source", "t": "target"}\n{"s": "a", "t": "b"}\n')
    assert len(read_examples(tmp_path / "a.jsonl", AUTO).examples) == 2
    for name in ("source", "target"):
        (tmp_path / name).write_text(f"{name}\na\n")
    assert len(read_examples(tmp_path / "source", AUTO, tmp_path / "target").examples) == 2


def test_a_group_column_by_name_implies_a_header(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", [("s", "t", "kind"), ("a", "b", "x"), ("c", "d", "y")])
    reading, groups = read_grouped_examples(path, config_for_file(DataConfig(header=False)), "kind")
    assert reading.examples == [Example("a", "b"), Example("c", "d")] and groups == ["x", "y"]


def test_other_files_are_read_as_set_or_like_the_training_file() -> None:
    for trained in (True, False, "auto"):
        for said in (True, False):
            assert config_for_file(DataConfig(header=trained), said).header is said
    assert config_for_file(DataConfig(header=True)).header is True
    assert config_for_file(DataConfig(header=False)).header == "auto"


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
    named = DataConfig(header=True, source_column="word", target_column="pronunciation")
    assert [item[:2] for item in parse_sources(lines, "<stdin>", named, InputFormat(header=True))] == [
        ("a", ""),
        ("c", ""),
    ]


# ---- no more columns than the training file


@pytest.mark.parametrize("separator", ["\t", ","])
def test_a_line_to_predict_with_more_columns_than_the_training_file_is_bad(tmp_path: Path, separator: str) -> None:
    path = tmp_path / ("a.csv" if separator == "," else "a.tsv")
    path.write_text("a\nb,c\nd,e,f\n\ng\n".replace(",", separator))
    known, what = FILE_FORMAT._replace(columns=2), "commas" if separator == "," else "tabs"
    expected = f"expected at most 2 columns, got 3 ({what} separate columns)"
    lines = path.read_bytes().splitlines(keepends=True)
    config = DataConfig(input_format="csv" if separator == "," else "tsv", header=False)
    for items in (
        list(read_sources(path, config, known)),
        list(parse_sources(lines, str(path), config, known._replace(header=False))),
    ):
        assert [item if isinstance(item, BadLine) else item.source for item in items] == [
            *("a", "b", BadLine(str(path), 3, expected), "", "g")
        ]
    (bad,) = [item for item in parse_pairs(lines[2:3], "x", config, known._replace(header=False))]
    assert isinstance(bad, BadLine) and bad.reason == expected


def test_a_header_determines_the_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", [("id", "sound", "word"), ("1", "x", "a")])
    named = DataConfig(header=True, source_column="word", target_column="sound")
    assert [item[:2] for item in read_sources(path, named, FILE_FORMAT._replace(columns=2))] == [("a", "")]


def test_text_with_features_has_at_most_two_columns() -> None:
    config = DataConfig(input_format="text", features_column="3")
    items = list(parse_sources([b"a\tN\tx\n", b"b\tV\n", b"c\n"], "<stdin>", config))
    assert [isinstance(item, BadLine) for item in items] == [True, False, False]


# ---- the command line


HEADER = "word\tpronunciation\n"


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory) -> TrainingFiles:
    """Write pairs of equal texts below a header."""
    files = copy_files(tmp_path_factory.mktemp("headed"))
    for path in (files.train, files.valid):
        path.write_text(HEADER + path.read_text())
    return files


@pytest.fixture(scope="module")
def run(headed: TrainingFiles) -> Path:
    """Return a run trained on these files."""
    folder = headed.train.parent / "run"
    assert train(headed.train, headed.valid, folder, "--header").code == 0
    return folder


def train(training: Path, dev: Path, run: Path, *given: object) -> Done:
    return pellucid("train", training, "--valid", dev, "--run", run, *flags(small_config({"epochs": 1})), *given)


def test_training_asks_once_and_saves_the_answer(headed: TrainingFiles, run: Path, tmp_path: Path) -> None:
    message = complaint(train(headed.train, headed.valid, tmp_path / "a"))
    assert message.startswith(f"{headed.train}:1: the first line looks like a header") and "--no-header" in message
    assert "\n" not in message and not (tmp_path / "a").exists()
    assert train(headed.train, headed.valid, tmp_path / "a", "--no-header").code == 0
    assert load_config(tmp_path / "a" / CONFIG).data.header is False
    assert load_config(run / CONFIG).data.header is True and load_config(copies_run().run / CONFIG).data.header is False
    with pytest.raises(HeaderError):
        pellucid_train(headed.train, headed.valid, tmp_path / "b", small_config({"epochs": 1}))
    named = pellucid_train(
        headed.train,
        headed.valid,
        tmp_path / "b",
        small_config({"epochs": 1}, data={"source_column": "word", "target_column": "pronunciation"}),
    )
    assert named.config.data.header is True and named.vocabularies.columns == 2


def test_a_header_of_the_validation_file_only_is_reported(headed: TrainingFiles, tmp_path: Path) -> None:
    message = complaint(train(copies_run().files.train, headed.valid, tmp_path / "a"))
    assert message.startswith(f"{headed.valid}:1: the first line looks like a header")
    assert message.endswith(f"; {copies_run().files.train}, which is read in the same way, seems to have none")


def test_training_notes_a_possible_header(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("word\tabc\n" + copies_run().files.train.read_text())
    done = train(path, copies_run().files.valid, tmp_path / "run")
    assert done.code == 0 and "the source 'word' is a usual column name; it is read as an example" in done.err
    done = pellucid("evaluate", copies_run().run, "-", stdin=path.read_bytes())
    assert "pellucid: note: standard input: the first line may be a header: the source 'word' " in done.err


def counted(run: Path, *given: object) -> object:
    done = pellucid("evaluate", run, "--json", *given)
    assert done.code == 0, done
    return json.loads(done.out)["lines"]


def test_evaluation_reads_like_training_and_asks_if_unclear(headed: TrainingFiles, run: Path) -> None:
    plain = copies_run()
    assert counted(run, headed.valid) == 10 and counted(run, headed.valid, "--no-header") == 11
    message = complaint(pellucid("evaluate", plain.run, headed.valid))
    assert message.startswith(f"{headed.valid}:1: the first line looks like a header")
    assert counted(plain.run, headed.valid, "--header") == 10 and counted(plain.run, headed.valid, "--no-header") == 11
    assert counted(plain.run, plain.files.valid) == 10


@pytest.mark.parametrize("verb", ["predict", "score"])
def test_prediction_reads_like_training_and_asks_if_unclear(headed: TrainingFiles, run: Path, verb: str) -> None:
    plain, lines = copies_run().run, headed.valid.read_bytes()
    assert len(outputs(pellucid(verb, run, headed.valid).out)) == 10
    assert len(outputs(pellucid(verb, run, headed.valid, "--no-header").out)) == 11
    assert len(outputs(pellucid(verb, plain, headed.valid, "--header").out)) == 10
    for given, stdin in (([headed.valid], b""), (["-"], lines)):
        done = pellucid(verb, plain, *given, stdin=stdin)
        assert ":1: the first line looks like a header" in complaint(done) and done.out == ""
    assert len(outputs(pellucid(verb, plain, "-", "--header", stdin=lines).out)) == 10
    assert len(outputs(pellucid(verb, plain, "-", "--no-header", stdin=lines).out)) == 11


def test_look_reads_like_training_and_asks_if_unclear(headed: TrainingFiles, run: Path, tmp_path: Path) -> None:
    shown, told = tmp_path / "a.html", "the first line looks like a header"
    assert told in complaint(pellucid("look", copies_run().run, headed.valid, "--terminal"))
    assert told in complaint(pellucid("look", copies_run().run, headed.valid, "--export", shown))
    assert "word →" not in pellucid("look", copies_run().run, headed.valid, "--terminal", "--header").out
    assert "word →" in pellucid("look", copies_run().run, headed.valid, "--terminal", "--no-header").out
    for given in ([], [headed.valid]):
        done = pellucid("look", run, *given, "--terminal")
        assert done.code == 0 and done.out.count(" → ") == 10 and "word →" not in done.out


def test_the_header_flags_accept_a_value() -> None:
    pairs, run = copies_run().files.valid, copies_run().run
    for given, count in ((["--header=auto"], 10), (["--header", "false"], 10), (["--header", "true"], 9)):
        assert counted(run, *given, pairs) == count
    assert counted(run, "--header", pairs) == 9 and counted(run, "--no-header", pairs) == 10
    message = complaint(pellucid("evaluate", run, pairs, "--header=maybe"))
    assert message.startswith("--header: expected auto, true or false, got 'maybe'")


def test_a_line_with_too_many_columns_stops_a_prediction(tmp_path: Path) -> None:
    path, run = tmp_path / "a.tsv", copies_run().run
    path.write_text("a\nb\tb\nc\tc\tc\nd\n")
    for given, stdin in (([path], b""), (["-"], path.read_bytes())):
        done = pellucid("predict", run, *given, stdin=stdin)
        message = complaint(done)
        assert ":3: expected at most 2 columns, got 3 (tabs separate columns) (--on-bad-line skip" in message
        assert done.out.count("\n") == 2
        done = pellucid("predict", run, *given, "--on-bad-line", "skip", stdin=stdin)
        assert done.code == 0 and len(outputs(done.out)) == 4 and outputs(done.out)[2] == ""
    assert len(outputs(pellucid("predict", run, path, "--input-format", "text").out)) == 4


# ---- files without a header, as they are and with any line first


def tables() -> list[Path]:
    """Published files of pairs, none of which has a header."""
    paths = [path for root in (DATA, ROOT / "examples") for path in root.rglob("*") if path.is_file()]
    return sorted(path for path in paths if path.suffix in (".tsv", ".txt", ".train", ".dev", ".test"))


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data in {DATA}: set PELLUCID_DATA")
def test_no_published_file_is_refused() -> None:
    draws, files, lines, noted = random.Random(1), 0, 0, 0
    for path in tables():
        records = tsv_records(islice(read_lines(path), 300), ColumnSelection({"source": "1", "target": "2"}), str(path))
        rows = [tuple(row.fields) for row in records if isinstance(row, Record) and row.fields]
        if len(rows) < 20:
            continue
        assert not refused(rows) and header_note(rows) == "", path
        files += 1
        for at in draws.sample(range(len(rows)), 5):
            moved = [rows[at], *rows[:at], *rows[at + 1 :]]
            assert not refused(moved), (path, rows[at])
            lines, noted = lines + 1, noted + bool(header_note(moved))
        assert refused([("word", "pronunciation"), *rows])
    assert files > 200 and noted < lines / 300


def test_prediction_notes_a_possible_header_and_predicts_it(run: Path, tmp_path: Path) -> None:
    """Every input line has an output line: a list of sources may begin with a usual column name."""
    plain, path = copies_run().run, tmp_path / "a.tsv"
    path.write_text("word\n" + "ab\ncd\n")
    told = "the first line may be a header: the source 'word' is a usual column name; it is read as an example ("
    for trained in (plain, run):
        done = pellucid("predict", trained, path)
        assert len(outputs(done.out)) == 3 and f"note: {path}:1: {told}" in done.err
        assert len(outputs(pellucid("predict", trained, path, "--header").out)) == 2
        done = pellucid("predict", trained, path, "--no-header")
        assert len(outputs(done.out)) == 3 and "header" not in done.err
        done = pellucid("predict", trained, "-", stdin=path.read_bytes())
        assert len(outputs(done.out)) == 3 and f"standard input:1: {told}" in done.err
    path.write_text("\n日本\n" + "ab\ncd\n" * 15)
    done = pellucid("predict", plain, path)
    assert len(outputs(done.out)) == 32
    assert f"{path}:2: the first line may be a header: no character of the source '日本' occurs in the 30 " in done.err


def test_a_skipped_first_line_is_reported(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("ab\tab\ncd\tcd\n")
    for verb in ("predict", "score"):
        done = pellucid(verb, run, path)
        assert len(outputs(done.out)) == 1 and done.code == 0
        assert (
            f"{path}:1: the first line is read as the names of the columns, as in the training file, but 'ab' is not "
            "what columns are usually named by; --no-header reads it as an example"
        ) in done.err
        for flag, count in (("--header", 1), ("--no-header", 2)):
            done = pellucid(verb, run, path, flag)
            assert len(outputs(done.out)) == count and "header" not in done.err and "names" not in done.err


@pytest.mark.parametrize("stdin", [False, True])
def test_scoring_stops_at_a_header_that_evaluation_stops_at(stdin: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("Wort\tLohn\n" + "ab\tab\ncd\tcd\n" * 15)
    messages = [
        complaint(pellucid(verb, copies_run().run, *(["-"] if stdin else [path]), stdin=path.read_bytes()))
        for verb in ("evaluate", "score")
    ]
    assert messages[0] == messages[1] and "the first line looks like a header: no character of the " in messages[0]
