"""The README's own commands, run as they stand, in a folder that holds nothing but the example pairs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"<!-- run -->\n```(\w+)\n(.*?)```", re.DOTALL)


def marked_blocks() -> list[tuple[str, str]]:
    """The (language, text) of each code block that is marked to be run."""
    return MARKED.findall((ROOT / "README.md").read_text("utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with the examples beside it, as in a checkout."""
    path = tmp_path_factory.mktemp("readme")
    (path / "examples").symlink_to(ROOT / "examples")
    return path


def run(command: list[str], text: str, folder: Path) -> str:
    """Standard output of a program that is given a script on its standard input."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, input=text, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_shell_commands_train_predict_evaluate_and_look(folder: Path) -> None:
    (script,) = [text for language, text in marked_blocks() if language == "sh"]
    shown = run(["bash", "-e", "-u", "-o", "pipefail"], script, folder)
    assert shown.splitlines()[0] == "MCMLXXXIV"
    (exact,) = re.findall(r"exact match +(\d+\.\d+) %", shown)
    assert float(exact) > 95
    assert "source" in shown and "output" in shown


def test_the_python_example_prints_the_numeral_its_score_and_its_attention(folder: Path) -> None:
    (script,) = [text for language, text in marked_blocks() if language == "python"]
    output, score, symbols, shape = run([sys.executable, "-"], script, folder).splitlines()
    assert output == "MCMLXXXIV"
    assert -1.5 < float(score) <= 0
    assert symbols == "('M', 'C', 'M', 'L', 'X', 'X', 'X', 'I', 'V', '⟨end⟩')"
    assert shape == "(10, 4)"
