"""pellucid look: the terminal view, pictures and the report."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from command_line import Done, complaint, pellucid
from trained_runs import contents, digits_run

from pellucid.look.terminal import CAPTION
from pellucid.training.run import load


def look(*arguments: object, stdin: bytes = b"") -> Done:
    return pellucid("look", digits_run().run, *arguments, stdin=stdin)


def test_the_terminal_view_shows_every_source_its_output_and_the_caution() -> None:
    done = look(stdin=b"one\nnine two\n")
    assert done.code == 0 and done.err == "" and "\x1b" not in done.out
    for trace in load(digits_run().run).predict(["one", "nine two"]):
        assert f"{trace.text} → {trace.output}" in done.out
    assert done.out.endswith(f"{CAPTION}\n")


def test_the_view_keeps_to_its_width_and_to_ascii() -> None:
    done = look("--width", "50", "--ascii", stdin="nine nine nine nine é\n".encode())
    assert done.code == 0 and done.out.isascii()
    assert max(map(len, done.out.split(CAPTION)[0].splitlines()[:-1])) <= 50


def test_as_many_are_shown_as_asked() -> None:
    assert look("--most", "2", stdin=b"one\n" * 5).out.count("one →") == 2
    assert look(digits_run().files.dev).out.count("→") >= 10


@pytest.mark.parametrize("most", [0, -1])
def test_showing_none_is_refused(most: int) -> None:
    assert "most" in complaint(look("--most", most, stdin=b"one\n"))


def test_a_png_and_an_svg_of_the_first_source(tmp_path: Path) -> None:
    for name in ("a.png", "a.svg"):
        done = look("--export", tmp_path / name, stdin=b"nine two\n\xff\n")
        assert (done.code, done.out, done.err) == (0, f"{tmp_path / name}\n", "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert ElementTree.fromstring((tmp_path / "a.svg").read_text("utf-8")).tag.endswith("svg")
    assert sorted(contents(tmp_path)) == ["a.png", "a.svg"]


def test_a_report_of_a_whole_file(tmp_path: Path) -> None:
    done = look(digits_run().files.dev, "--export", tmp_path / "report.html")
    assert (done.code, done.out, done.err) == (0, f"{tmp_path / 'report.html'}\n", "")
    text = (tmp_path / "report.html").read_text("utf-8")
    card = (digits_run().run / "card.md").read_text("utf-8")
    exact = re.search(r"exact match (\d+\.\d\d) %", card)
    assert exact is not None and f"{exact[1]} %" in text
    assert text.startswith("<!doctype html>") or text.startswith("<!DOCTYPE html>")
    assert not re.search(r"<script|<link|src=[\"']?http", text)


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.html.txt"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    message = complaint(look("--export", tmp_path / name, stdin=b"one\n"))
    assert message.startswith("--export takes a file that ends with .html, .png or .svg, got ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.html"])
def test_a_folder_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    message = complaint(look(digits_run().files.dev, "--export", tmp_path / "none" / name))
    assert message == f"cannot write {tmp_path / 'none' / name}: no such file or directory"


def test_a_report_needs_pairs(tmp_path: Path) -> None:
    assert "pellucid look DIR FILE --export" in complaint(look("--export", tmp_path / "a.html", stdin=b"one\n"))
    (tmp_path / "sources.txt").write_text("one\ntwo\n")
    message = complaint(look(tmp_path / "sources.txt", "--export", tmp_path / "a.html"))
    assert "sources.txt:1: expected 2 columns, got 1" in message and not (tmp_path / "a.html").exists()


def test_nothing_to_show_is_told() -> None:
    assert "no source" in complaint(look(stdin=b""))
    assert "standard input:1: invalid UTF-8" in complaint(look(stdin=b"\xff\n"))
