"""The commands of the README run in a folder that contains only the examples, with less time for the training."""

import csv
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
    return path


def run_script(command: list[str], text: str, folder: Path) -> str:
    """Return the standard output of a program that reads a script from its standard input."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        command, input=text, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert "Traceback" not in process.stderr
    return process.stdout


def test_the_commands_train_predict_evaluate_and_export_the_page(folder: Path) -> None:
    (script,) = [text for language, text in read_marked_blocks() if language == "sh"]
    assert "--time 2m" in script
    script = script.replace("--time 2m", "--time 30s")
    printed = run_script(["bash", "-e", "-u", "-o", "pipefail"], script, folder)
    (exact,) = re.findall(r"exact match +(\d+\.\d+) %", printed)
    assert float(exact) > 40
    with (folder / "outputs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["word", "output", "log_probability", "probability", "confidence"]
    assert rows[0]["word"] == "brexit" and 0 < float(rows[0]["confidence"]) < 1
    assert "nietzsche" in (folder / "errors.html").read_text("utf-8")
    shown = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert shown is not None and shown[1].splitlines()[0] == ",".join(rows[0])
    words = [row["word"] for row in rows]
    shown_words = [line.split(",")[0] for line in shown[1].splitlines()[1:]]
    assert len(shown_words) == 3 and shown_words == sorted(shown_words, key=words.index)


def test_the_python_example_prints_outputs_with_their_confidence(folder: Path) -> None:
    """It loads the run that the commands trained."""
    (script,) = [text for language, text in read_marked_blocks() if language == "python"]
    first, second, shape = run_script([sys.executable, "-"], script, folder).splitlines()
    assert re.fullmatch(r"podcast → [A-Z ]+ 0\.\d\d", first) and re.fullmatch(r"selfie → [A-Z ]+ 0\.\d\d", second)
    assert re.fullmatch(r"\(\d+, 6\)", shape)
    assert (folder / "selfie.html").stat().st_size > 10_000
