from pathlib import Path

import pytest
from task_cases import make_task_config

from pellucid.config.settings import DataConfig, TaskName
from pellucid.data.examples import pair_error, read_examples
from pellucid.data.tokenizers import build_tokenizers
from pellucid.errors import DataError


def find_pair_error(config: DataConfig, source: str, target: str) -> str:
    return pair_error(source, target, build_tokenizers(config), config)


@pytest.mark.parametrize(
    ("task", "source", "target", "reason"),
    [
        ("tag", "abc", "VCV", ""),
        ("tag", "abc", "V--", ""),
        ("tag", "abc", "VC", "the source has 3 symbols and the target has 2: data.equal_length needs equal numbers"),
        ("tag", "abc", "---", "no symbol of the target is scored: all equal data.ignored_tag = '-'"),
        ("tag", "", "", "the source is empty"),
        ("tag-and-classify", "abc", "NVCV", ""),
        ("tag-and-classify", "abc", "N---", ""),
        (
            *("tag-and-classify", "abc", "VCV"),
            "the source has 3 symbols and the target has 3: data.class_first needs a class, and a tag for each source "
            "symbol",
        ),
        ("tag-and-classify", "abc", "-VCV", "the class equals data.ignored_tag = '-', which is a tag"),
        ("classify", "abc", "two words", ""),
        ("classify", "abc", "", "the target is empty"),
        ("point", "abc", "1", ""),
        ("point", "abc", "3", ""),
        *(
            (
                "point",
                "abc",
                target,
                f"the target is not a source position: expected a number from 1 to 3, got '{target}'",
            )
            for target in ("0", "4", "-1", "01", "x", "1.0", "٣", " 1", "1" * 19)
        ),
        (
            "point",
            "abc",
            "1" * 5000,
            f"the target is not a source position: expected a number from 1 to 3, got '{'1' * 79}…'",
        ),
    ],
)
def test_the_error_of_a_pair_states_its_reason(task: TaskName, source: str, target: str, reason: str) -> None:
    assert find_pair_error(make_task_config(task).data, source, target) == reason


def test_lengths_count_words() -> None:
    data = make_task_config("tag", data={"source_symbols": "words", "target_symbols": "words"}).data
    assert find_pair_error(data, "play  some jazz", "O O B-genre") == ""
    assert "3 symbols and the target has 2" in find_pair_error(data, "play some jazz", "O O")


def test_the_error_of_texts_with_spaces_advises_words_where_they_agree() -> None:
    """Regression test: nothing said that the tags between spaces were split into characters."""
    advice = "; with --target-symbols words (data.target_symbols) they agree"
    data = make_task_config("tag-and-classify", data={"source_symbols": "words"}).data
    assert find_pair_error(data, "play jazz", "Play O B-genre").endswith("for each source symbol" + advice)
    assert not find_pair_error(data, "play jazz", "Play O B-genre I-genre").endswith("agree")
    both = (
        "with --source-symbols words (data.source_symbols) and --target-symbols words (data.target_symbols) they agree"
    )
    assert find_pair_error(make_task_config("tag").data, "play some jazz", "O O B-genre").endswith(both)


def test_a_bad_line_is_reported_with_file_and_number(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("ab\tCC\nabc\tCC\n")
    with pytest.raises(DataError, match=r"pairs\.tsv:2: the source has 3 symbols and the target has 2"):
        read_examples(path, make_task_config("tag").data)


def test_a_position_with_thousands_of_digits_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(f"abc\t1\nabc\t{'2' * 5000}\n")
    reading = read_examples(path, make_task_config("point", data={"on_bad_line": "skip"}).data)
    assert len(reading.examples) == 1 and [line.line for line in reading.bad_lines] == [2]
    assert len(str(reading.bad_lines[0])) < 300
