"""pellucid audit: a worklist, a page, decisions that are applied, and proposals."""

import csv
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audited_pairs import spelled_pairs
from command_line import CommandResult, run_pellucid, usage_error_message
from test_audit_decisions import background_writer

from pellucid.cli.arguments import parse_arguments
from pellucid.cli.audit import AuditArguments, _options

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


@pytest.mark.parametrize(
    ("flags", "jobs"),
    [([], 1), (["--on", "ray"], 0), (["--on", "ray", "--jobs", "1"], 1), (["--jobs", "0"], 0), (["--jobs", "3"], 3)],
)
def test_folds_are_computed_one_by_one_here_and_in_parallel_on_a_cluster(flags: list[str], jobs: int) -> None:
    args = parse_arguments(AuditArguments, "audit", ["words.csv", *flags])
    assert _options(args).jobs == jobs


def test_the_worklist_has_every_row_with_line_and_id_and_names_bad_lines(tmp_path: Path) -> None:
    path, page = write_words(tmp_path), tmp_path / "worklist.html"
    result = audit(path, *FLAGS, "--html", page, "--page-rows", 10)
    assert result.code == 0, result
    assert result.out.startswith("\ufeffrank,")
    rows = list(csv.DictReader(io.StringIO(result.out.removeprefix("\ufeff"))))
    assert len(rows) == 101 and (rows[1]["line"], rows[1]["id"], rows[1]["target"]) == ("6", "P-4", "G G G")
    assert (rows[0]["line"], rows[0]["kinds"], rows[0]["source"]) == ("102", "bad_row", "")
    assert "expected 3 columns as in line 1, got 2" in rows[0]["reasons"] and "'P-100,abc'" in rows[0]["reasons"]
    assert (
        "bad_row 1" in result.err
        and "1 bad line, not audited:" in result.err
        and f"{path}:102: expected 3 columns" in result.err
    )
    assert "fold 5 of 5" in result.err and "rows by reason: " in result.err
    assert f"{page}: the 10 most suspicious of 101 rows" in result.err and page.stat().st_size > 5_000
    assert audit(path, *FLAGS).out == audit(path, *FLAGS, "--jobs", 2).out == result.out


def test_a_file_with_semicolons_keeps_its_columns_and_open_rows_are_counted(tmp_path: Path) -> None:
    path, worklist, page = tmp_path / "words.csv", tmp_path / "worklist.csv", tmp_path / "worklist.html"
    rows = [f'P-{n};{pair.source};{pair.target};"a;{n}";x\n' for n, pair in enumerate(spelled_pairs(60))]
    path.write_text("id;word;ipa;source;note\n" + "".join(rows) + "P-60;abc;;y;x\nP-61;abd;;y;x\n", "utf-8")
    result = audit(path, *FLAGS, "--output", worklist, "--html", page)
    assert result.code == 0, result
    assert f"{path}: 2 rows without a target: not audited (lines 62 and 63)" in result.err
    assert "bad line" not in result.err and "no_target 2" in result.err
    listed = list(csv.DictReader(io.StringIO(worklist.read_text("utf-8")), delimiter=";"))
    assert list(listed[0])[-5:] == ["decision", "new_target", "new_source", "input_source", "note"]
    assert len(listed) == 62 and [row["kinds"] for row in listed[60:]] == ["no_target"] * 2
    assert [(row["line"], row["id"], row["source"], row["target"]) for row in listed[60:]] == [
        ("62", "P-60", "abc", ""),
        ("63", "P-61", "abd", ""),
    ]
    assert all(row["input_source"] == f"a;{int(row['line']) - 2}" and row["note"] == "x" for row in listed[:60])
    assert '"delimiter":";"' in page.read_text("utf-8") and '"others":["a;0","x"]' in page.read_text("utf-8")
    result = audit(path, *FLAGS, "--apply", worklist, "--output", tmp_path / "corrected.csv")
    assert "62 without a decision" in result.err


def test_decisions_in_the_worklist_are_applied(tmp_path: Path) -> None:
    path, worklist, corrected = write_words(tmp_path), tmp_path / "worklist.csv", tmp_path / "corrected.csv"
    assert audit(path, *FLAGS, "--output", worklist).code == 0
    result = audit(path, *FLAGS, "--apply", worklist, "--output", corrected)
    assert result.code == 0 and corrected.read_bytes() == path.read_bytes()
    rows = list(csv.reader(io.StringIO(worklist.read_text("utf-8-sig"))))
    rows[2][-3:] = ["replace", rows[2][rows[0].index("output")], ""]
    with worklist.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    result = audit(path, *FLAGS, "--apply", worklist, "--output", corrected)
    assert "1 target replaced, 0 rows removed, 0 rows kept, 99 without a decision" in result.err
    source = spelled_pairs(100)[4]
    assert corrected.read_text("utf-8") == path.read_text("utf-8").replace(
        f"{source.source},G G G", f"{source.source},{source.target}"
    )
    rows[2][-2:], rows[3][-3:] = [f"{rows[2][-2]} ", "Q"], ["keep", "", ""]
    with worklist.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    result = audit(path, *FLAGS, "--apply", worklist, "--output", corrected)
    assert "1 target replaced, 1 source replaced, 0 rows removed, 1 row kept, 98 without" in result.err
    assert f"warning: {path}: new target with a space at the beginning or the end, in line 6" in result.err
    assert f"warning: {path}: new source with 'Q', a symbol that no other row has, in line 6" in result.err
    again = usage_error_message(audit(corrected, *FLAGS, "--apply", worklist, "--output", path))
    assert f"{corrected}:6: the decision is on {source.source!r} with the target 'G G G', but the line has" in again


def test_rows_that_were_kept_are_left_out(tmp_path: Path) -> None:
    path, decided = write_words(tmp_path), tmp_path / "decisions.csv"
    decided.write_text(f"line,source,target,decision,new_target\n999,{spelled_pairs(100)[4].source},G G G,keep,\n")
    result = audit(path, *FLAGS, "--decided", decided)
    assert len(result.out.splitlines()) == 101 and "P-4," not in result.out
    assert "1 row left out, kept or corrected by earlier decisions" in result.err


def test_targets_that_seem_to_be_symbols_between_spaces_are_reported(tmp_path: Path) -> None:
    path = write_words(tmp_path)
    warning = "seem to be symbols between spaces"
    assert warning in audit(path, *FLAGS[:4]).err and warning not in audit(path, *FLAGS).err


def test_other_files_are_compared(tmp_path: Path) -> None:
    path, test = write_words(tmp_path), tmp_path / "test.csv"
    test.write_text(f"word,ipa\n{spelled_pairs(100)[9].source},X\n")
    result = audit(path, *FLAGS, "--compare", test)
    rows = list(csv.DictReader(io.StringIO(result.out.removeprefix("\ufeff"))))
    assert [row["id"] for row in rows if "other_file" in row["kinds"]] == ["P-9"]


def test_sources_are_proposed(tmp_path: Path) -> None:
    path, unlabeled = write_words(tmp_path), tmp_path / "new.txt"
    unlabeled.write_text(f"word\nxyz\ngfed\nwvu\n{spelled_pairs(100)[4].source}\n")
    path.write_text(path.read_text("utf-8").replace(",", ";"), "utf-8")
    result = audit(path, *FLAGS, "--next", 2, "--unlabeled", unlabeled)
    assert f"{unlabeled}: 1 source left out, which has a target in {path} already" in result.err
    assert result.out.startswith("\ufeffrank;source;")
    rows = list(csv.DictReader(io.StringIO(result.out), delimiter=";"))
    assert result.code == 0 and {row["source"] for row in rows} == {"xyz", "wvu"}
    assert "only 3 sources" in audit(path, *FLAGS, "--next", 9, "--unlabeled", unlabeled).err


def test_sources_to_label_that_are_left_out_are_counted(tmp_path: Path) -> None:
    """Regression test: repeated and empty sources of --unlabeled were left out without a message."""
    path, unlabeled = write_words(tmp_path), tmp_path / "new.txt"
    unlabeled.write_text("xyz\n\ngfed\nxyz\n  \nxyz\n")
    result = audit(path, *FLAGS, "--next", 9, "--unlabeled", unlabeled)
    assert f"note: {unlabeled}: 2 empty rows and 2 repeated sources left out\n" in result.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX systems only")
def test_a_pipe_has_no_ids_which_is_said(tmp_path: Path) -> None:
    """Regression test: of a pipe, the worklist lacked the ids and the other columns without a message."""
    path, pipe = write_words(tmp_path), tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with background_writer(pipe, path.read_bytes()):
        result = audit(pipe, *FLAGS)
    assert f"note: {pipe} can be read only once: the worklist has neither its ids nor its other columns" in result.err
    assert "only once" not in audit(path, *FLAGS).err


def test_a_file_without_decisions_is_named(tmp_path: Path) -> None:
    path, decisions = write_words(tmp_path), tmp_path / "empty.csv"
    decisions.write_text("")
    result = audit(path, *FLAGS[:4], "--apply", decisions, "--output", tmp_path / "new.csv")
    assert result.code == 0 and f"note: there is no decision in {decisions}" in result.err


def test_json_lines_are_audited(tmp_path: Path) -> None:
    path = tmp_path / "words.jsonl"
    path.write_text("".join(json.dumps({"s": pair.source, "t": pair.target}) + "\n" for pair in spelled_pairs(40)))
    result = audit(path, "--target-symbols", "words")
    assert result.code == 0 and len(result.out.splitlines()) == 41


def test_targets_in_ipa_are_audited_by_phones(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    phones = {"a": "aː", "b": "b", "c": "t͡ʃ", "d": "d͡ʒ", "e": "ɪ", "f": "f", "g": "ɡ"}
    words = [pair.source for pair in spelled_pairs(100)]
    rows = [f"{word}\t{''.join(map(phones.__getitem__, word))}\n" for word in words]
    wrong = next(index for index, word in enumerate(words) if word.count("c") == 1)
    rows[wrong] = rows[wrong].replace("t͡ʃ", "d͡ʒ")
    path.write_text("".join(rows), "utf-8")
    advice = "warning: the targets look like IPA: --target-symbols ipa keeps "
    assert advice in audit(path).err
    result = audit(path, "--target-symbols", "ipa")
    assert result.code == 0 and advice not in result.err
    first = next(csv.DictReader(io.StringIO(result.out)))
    assert (first["line"], first["given"], first["expected"]) == (str(wrong + 1), "d͡ʒ", "t͡ʃ")
    assert first["source_symbols"] == "c" and first["position"] == str(words[wrong].index("c") + 1)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_null_targets_are_rows_without_a_target(tmp_path: Path, suffix: str) -> None:
    """Regression test: they were bad lines, and with --on-bad-line stop any row without a target was one."""
    rows = [{"s": pair.source, "t": pair.target} for pair in spelled_pairs(40)] + [{"s": "abc", "t": None}]
    path = tmp_path / f"words.{suffix}"
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    result = audit(path, "--target-symbols", "words", "--on-bad-line", "stop")
    assert result.code == 0 and f"{path}: 1 row without a target: not audited (line 41)" in result.err
    (row,) = [row for row in csv.DictReader(io.StringIO(result.out)) if row["kinds"] == "no_target"]
    assert (row["line"], row["source"], row["target"]) == ("41", "abc", "")


def test_another_bad_line_stops_the_audit_on_request(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("ab\tA B\nabc\t\ncd\n")
    message = usage_error_message(audit(path, "--on-bad-line", "stop"))
    assert message.startswith(f"{path}:3: expected") and "--on-bad-line skip" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--apply", "d.csv"], "--apply needs --output"),
        (["--apply", "d.csv", "--output", "o.csv", "--html", "p.html"], "--apply trains no model"),
        (["--next", "5"], "--next N and --unlabeled FILE belong together"),
        (["--unlabeled", "u.txt"], "--next N and --unlabeled FILE belong together"),
        (["--next", "5", "--unlabeled", "u.txt", "--compare", "t.tsv"], "--next proposes sources"),
        (["--input-format", "text"], "--input-format text has no targets"),
        (["--group-column", "3"], "data.group_column (--group-column) has no effect"),
        (["--time", "1m", "--size", "large", "--device", "cuda"], "--size, --time and --device: only for networks"),
        (["--apply", "d.csv", "--output", "o.csv", "--folds", "7", "--seed", "3"], "leave out --folds and --seed"),
        (["--next", "5", "--unlabeled", "u.txt", "--jobs", "2"], "--next proposes sources and makes no worklist"),
        (["--next", "5", "--unlabeled", "u.txt", "--seed", "2"], "--seed has no effect: --next draws random numbers"),
        (["--page-rows", "5"], "--page-rows is for the page: give --html"),
        (["--output", "r.html", "--html", "r.html"], "--output and --html are one file, r.html"),
        (["--output", "r.html", "--html", "./r.html"], "--output and --html are one file, r.html"),
        (["--folds", "1"], "--folds: expected"),
        (["--models", "ngram"], "--models: expected pair-ngram, network or both"),
    ],
)
def test_contradicting_flags_are_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in usage_error_message(audit(write_words(tmp_path), *arguments))


def test_a_header_of_more_than_two_columns_needs_a_choice(tmp_path: Path) -> None:
    """Regression test: with --header alone, the audit took the number of a row for its source, and ran on."""
    path = write_words(tmp_path)
    message = usage_error_message(audit(path, "--header"))
    assert f"{path}:1: the header has 3 columns, named 'id', 'word', 'ipa': choose two of them with" in message
    assert audit(path, "--header", "--symbols", "--source-column", "2", "--target-column", "3").code == 0


def test_symbols_are_listed_without_an_audit(tmp_path: Path) -> None:
    path, listed = write_words(tmp_path), tmp_path / "symbols.csv"
    result = audit(path, *FLAGS, "--symbols")
    assert result.code == 0 and "fold" not in result.err
    rows = list(csv.DictReader(io.StringIO(result.out.removeprefix("\ufeff"))))
    counts = [(row["column"], int(row["rows"])) for row in rows]
    assert len(rows) == 14 and counts == sorted(counts) and {row["symbol"] for row in rows} == set("abcdefgABCDEFG")
    result = audit(path, *FLAGS, "--symbols", "--output", listed)
    assert f"{listed}: 14 symbols, the rarest of each column first" in result.err and listed.stat().st_size > 100
    message = usage_error_message(audit(path, *FLAGS, "--symbols", "--html", tmp_path / "p.html"))
    assert "--symbols lists symbols and makes no worklist: leave out --html" in message


def test_line_ends_are_those_of_the_file_and_invisible_characters_are_visible(tmp_path: Path) -> None:
    path = write_words(tmp_path)
    text = path.read_text("utf-8-sig").replace("P-5,", "P-5,\xa0").replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    worklist = tmp_path / "worklist.csv"
    assert audit(path, *FLAGS, "--output", worklist).code == 0
    content = worklist.read_bytes()
    assert content.count(b"\r\n") == content.count(b"\n") == 102
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    shown = [row["reasons"] + row["neighbors"] for row in rows]
    assert not any("\\xa0" in text or "\xa0" in text for text in shown)


def test_decisions_on_bad_rows_are_refused_with_advice(tmp_path: Path) -> None:
    path, decided = write_words(tmp_path), tmp_path / "decisions.csv"
    decided.write_text("line,source,target,decision,new_target\n102,,,remove,\n")
    message = usage_error_message(audit(path, *FLAGS, "--apply", decided, "--output", tmp_path / "out.csv"))
    assert f"{path}:102: this line is bad" in message and "change the line in an editor" in message
