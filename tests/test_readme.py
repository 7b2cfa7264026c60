"""The commands of the README run unchanged in a folder that contains only the examples."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MARKED_BLOCK = re.compile(r"<!-- run -->\n```(\w+)\n(.*?)```", re.DOTALL)


def read_marked_blocks() -> list[tuple[str, str]]:
    """Return the language and the text of each code block that is marked to be run."""
    return MARKED_BLOCK.findall((ROOT / "README.md").read_text("utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a working folder with a link to the examples, as in a clone."""
    path = tmp_path_factory.mktemp("readme")
    (path / "examples").symlink_to(ROOT / "examples")
    write_dictionary(path)
    return path


def write_dictionary(folder: Path) -> None:
    """Write the parts of a dictionary with a header: words, and their symbols between spaces."""
    words = ["".join(letters) for letters in itertools.product("bklmp", "aiou", "nrst", "aeiou")]
    rows = [f"{word},{' '.join(word.upper())}" for word in words]
    parts = {"lexicon": [row for number, row in enumerate(rows) if number % 8 != 4], "test": rows[4::8]}
    for name, part in parts.items():
        (folder / f"{name}.csv").write_text("\n".join(["word,pronunciation", *part, ""]), "utf-8")


def run_script(command: list[str], text: str, folder: Path) -> str:
    """Return the standard output of a program that reads a script from its standard input."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        command, input=text, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert "Traceback" not in process.stderr
    return process.stdout


def test_the_commands_for_a_dictionary_with_a_header_run(folder: Path) -> None:
    _, script = [text for language, text in read_marked_blocks() if language == "sh"]
    printed = run_script(["bash", "-e", "-u", "-o", "pipefail"], script, folder)
    assert re.fullmatch(r"[A-Z]( [A-Z])+", printed.splitlines()[0]), "the symbols of the output, between spaces"
    (exact,) = re.findall(r"exact match +(\d+\.\d+) %", printed)
    assert float(exact) > 50


def test_the_shell_commands_train_predict_evaluate_and_look(folder: Path) -> None:
    script, _ = [text for language, text in read_marked_blocks() if language == "sh"]
    printed = run_script(["bash", "-e", "-u", "-o", "pipefail"], script, folder)
    first, names, row, *_ = printed.splitlines()
    assert first == "MCMLXXXIV" and names == "id,number,note,output,log_probability,probability,confidence"
    assert row.startswith('P-17,1984,"a year, and a novel",MCMLXXXIV,-')
    (exact,) = re.findall(r"exact match +(\d+\.\d+) %", printed)
    assert float(exact) > 95
    assert "source" in printed and "output" in printed


def test_the_python_example_prints_the_numeral_its_score_and_its_attention(folder: Path) -> None:
    (script,) = [text for language, text in read_marked_blocks() if language == "python"]
    output, score, symbols, shape = run_script([sys.executable, "-"], script, folder).splitlines()
    assert output == "MCMLXXXIV"
    assert -1.5 < float(score) <= 0
    assert symbols == "('M', 'C', 'M', 'L', 'X', 'X', 'X', 'I', 'V', '⟨end⟩')"
    assert shape == "(10, 4)"
