"""pellucid audit: a worklist, a page, decisions that are applied, and proposals."""

import csv
import io
import json
from pathlib import Path

import pytest
from audited_pairs import spelled_pairs
from command_line import CommandResult, run_pellucid, usage_error_message

FLAGS = ("--source-column", "word", "--target-column", "ipa", "--target-symbols", "words")


def write_words(tmp_path: Path) -> Path:
    """Write a dictionary with one wrong target and one bad line."""
    path = tmp_path / "words.csv"
    rows = [f"P-{number},{pair.source},{pair.target}\n" for number, pair in enumerate(spelled_pairs(100))]
    rows[4] = f"P-4,{spelled_pairs(100)[4].source},G G G\n"
    path.write_text("id,word,ipa\n" + "".join(rows) + "P-100,abc\n", "utf-8-sig")
    return path


def audit(*arguments: object, stdin: str = "") -> CommandResult:
    return run_pellucid("audit", *arguments, stdin=stdin.encode())


def test_the_worklist_has_every_row_with_line_and_id_and_names_bad_lines(tmp_path: Path) -> None:
    path, page = write_words(tmp_path), tmp_path / "worklist.html"
    result = audit(path, *FLAGS, "--html", page, "--page-rows", 10)
    assert result.code == 0, result
    assert result.out.startswith("\ufeffrank,")
    rows = list(csv.DictReader(io.StringIO(result.out.removeprefix("\ufeff"))))
    assert len(rows) == 100 and (rows[0]["line"], rows[0]["id"], rows[0]["target"]) == ("6", "P-4", "G G G")
    assert "1 bad line, not in the worklist:" in result.err and f"{path}:102: expected 3 columns" in result.err
    assert "fold 5 of 5" in result.err and "rows by reason: " in result.err
    assert f"{page}: the 10 most suspicious of 100 rows" in result.err and page.stat().st_size > 5_000
    assert audit(path, *FLAGS).out == audit(path, *FLAGS, "--jobs", 2).out == result.out


def test_a_file_with_semicolons_keeps_its_columns_and_open_rows_are_counted(tmp_path: Path) -> None:
    path, worklist, page = tmp_path / "words.csv", tmp_path / "worklist.csv", tmp_path / "worklist.html"
    rows = [f'P-{n};{pair.source};{pair.target};"a;{n}";x\n' for n, pair in enumerate(spelled_pairs(60))]
    path.write_text("id;word;ipa;source;note\n" + "".join(rows) + "P-60;abc;;y;x\nP-61;abd;;y;x\n", "utf-8")
    result = audit(path, *FLAGS, "--output", worklist, "--html", page)
    assert result.code == 0, result
    assert "2 rows without a target: not audited" in result.err and "bad line" not in result.err
    listed = list(csv.DictReader(io.StringIO(worklist.read_text("utf-8")), delimiter=";"))
    assert list(listed[0])[-4:] == ["decision", "new_target", "input_source", "note"] and len(listed) == 60
    assert all(row["input_source"] == f"a;{int(row['line']) - 2}" and row["note"] == "x" for row in listed)
    assert '"delimiter":";"' in page.read_text("utf-8")
    result = audit(path, *FLAGS, "--apply", worklist, "--output", tmp_path / "corrected.csv")
    assert "62 without a decision" in result.err


def test_decisions_in_the_worklist_are_applied(tmp_path: Path) -> None:
    path, worklist, corrected = write_words(tmp_path), tmp_path / "worklist.csv", tmp_path / "corrected.csv"
    assert audit(path, *FLAGS, "--output", worklist).code == 0
    result = audit(path, *FLAGS, "--apply", worklist, "--output", corrected)
    assert result.code == 0 and corrected.read_bytes() == path.read_bytes()
    rows = list(csv.reader(io.StringIO(worklist.read_text("utf-8-sig"))))
    rows[1][-2:] = ["replace", rows[1][rows[0].index("output")]]
    with worklist.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    result = audit(path, *FLAGS, "--apply", worklist, "--output", corrected)
    assert "1 target replaced, 0 rows removed, 0 marked as right, 99 without a decision" in result.err
    source = spelled_pairs(100)[4]
    assert corrected.read_text("utf-8") == path.read_text("utf-8").replace(
        f"{source.source},G G G", f"{source.source},{source.target}"
    )
    again = usage_error_message(audit(corrected, *FLAGS, "--apply", worklist, "--output", path))
    assert f"{corrected}:6: the decision is on {source.source!r} with the target 'G G G', but the line has" in again


def test_other_files_are_compared(tmp_path: Path) -> None:
    path, test = write_words(tmp_path), tmp_path / "test.csv"
    test.write_text(f"word,ipa\n{spelled_pairs(100)[9].source},X\n")
    result = audit(path, *FLAGS, "--compare", test)
    rows = list(csv.DictReader(io.StringIO(result.out.removeprefix("\ufeff"))))
    assert [row["id"] for row in rows if "other_file" in row["kinds"]] == ["P-9"]


def test_sources_are_proposed(tmp_path: Path) -> None:
    path, unlabeled = write_words(tmp_path), tmp_path / "new.txt"
    unlabeled.write_text("word\nxyz\ngfed\nwvu\n")
    result = audit(path, *FLAGS, "--next", 2, "--unlabeled", unlabeled)
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert result.code == 0 and {row["source"] for row in rows} == {"xyz", "wvu"}
    assert "only 3 sources" in audit(path, *FLAGS, "--next", 9, "--unlabeled", unlabeled).err


def test_json_lines_are_audited(tmp_path: Path) -> None:
    path = tmp_path / "words.jsonl"
    path.write_text("".join(json.dumps({"s": pair.source, "t": pair.target}) + "\n" for pair in spelled_pairs(40)))
    result = audit(path, "--target-symbols", "words")
    assert result.code == 0 and len(result.out.splitlines()) == 41


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--apply", "d.csv"], "--apply needs --output"),
        (["--apply", "d.csv", "--output", "o.csv", "--html", "p.html"], "--apply trains no model"),
        (["--next", "5"], "--next N and --unlabeled FILE belong together"),
        (["--unlabeled", "u.txt"], "--next N and --unlabeled FILE belong together"),
        (["--next", "5", "--unlabeled", "u.txt", "--compare", "t.tsv"], "--next proposes sources"),
        (["--input-format", "text"], "--input-format text has no targets"),
        (["--group-column", "3"], "--group-column, --ignored-tag and --class-column have no effect"),
        (["--time", "1m"], "--time, --epochs and --run are for networks"),
        (["--folds", "1"], "--folds: expected"),
        (["--models", "ngram"], "--models: expected pair-ngram, network or both"),
    ],
)
def test_contradicting_flags_are_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in usage_error_message(audit(write_words(tmp_path), *arguments))
