"""The commands of docs/get-started.md, and those of the guides that use the run that they train."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MARKED_BLOCK = re.compile(r"<!-- run -->\n```(\w+)\n(.*?)```", re.DOTALL)


def read_script(page: str, language: str) -> str:
    """Return the blocks of a page in a language that are marked to be run, as one script."""
    blocks = MARKED_BLOCK.findall((ROOT / "docs" / page).read_text("utf-8"))
    return "".join(text for name, text in blocks if name == language)


def run_script(page: str, language: str, folder: Path) -> str:
    """Run the marked blocks of a page in a folder; return their standard output."""
    program = ["bash", "-e", "-u", "-o", "pipefail"] if language == "sh" else [sys.executable, "-W", "error", "-"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        program,
        input=read_script(page, language),
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0 and "Traceback" not in process.stderr, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a link to the examples, as in a clone, in which the commands of the page were run."""
    path = tmp_path_factory.mktemp("get-started")
    (path / "examples").symlink_to(ROOT / "examples")
    (path / "printed.txt").write_text(run_script("get-started.md", "sh", path), "utf-8")
    return path


@pytest.mark.slow
def test_the_commands_train_predict_evaluate_and_look(folder: Path) -> None:
    printed = (folder / "printed.txt").read_text("utf-8")
    first, names, row, *_ = printed.splitlines()
    assert first == "MCMLXXXIV" and names == "id,number,note,output,log_probability,probability,confidence"
    assert row.startswith('P-17,1984,"a year, and a novel",MCMLXXXIV,-')
    (exact,) = re.findall(r"exact match +(\d+\.\d+) %", printed)
    assert float(exact) > 95
    assert "source" in printed and "output" in printed


@pytest.mark.slow
def test_the_python_example_prints_the_numeral_its_score_and_its_attention(folder: Path) -> None:
    output, score, symbols, shape = run_script("get-started.md", "python", folder).splitlines()
    assert output == "MCMLXXXIV"
    assert -1.5 < float(score) <= 0
    assert symbols == "('M', 'C', 'M', 'L', 'X', 'X', 'X', 'I', 'V', '⟨end⟩')"
    assert shape == "(10, 4)"
    assert (folder / "1984.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_commands_of_the_guide_to_running_text_print_what_it_shows(folder: Path) -> None:
    first, second, *table, in_context = run_script("guides/running-text.md", "sh", folder).splitlines()
    assert in_context == "ðeɪ mʌst rid ɪt, ðeɪ hæd rɛd ɪt."
    assert first == "Founded in MLXVI (see p. XII), lost in MCDLIII." and second == "Founded in 1066 (MLXVI)."
    (row,) = csv.DictReader(table)
    assert (row["start"], row["end"], row["output_start"], row["output_end"]) == ("11", "15", "11", "16")
    assert (row["word"], row["output"], row["origin"]) == ("1066", "MLXVI", "search")


@pytest.mark.slow
def test_the_python_example_of_the_guide_to_running_text_prints_positions(folder: Path) -> None:
    line, *words = run_script("guides/running-text.md", "python", folder).splitlines()
    assert line == "Founded in [MLXVI], lost in [MCDLIII]."
    assert [word.split()[0] for word in words] == ["1066", "1453"] and "MLXVI" in words[0] and "MCDLIII" in words[1]


@pytest.mark.slow
def test_the_commands_of_the_guide_to_confidence_run(folder: Path) -> None:
    row, accepted, *report = run_script("guides/confidence.md", "sh", folder).splitlines()
    source, output, log_probability, confidence = row.split("\t")
    assert (source, output, accepted) == ("1984", "MCMLXXXIV", "MCMLXXXIV")
    assert float(log_probability) < 0 and 0.95 < float(confidence) < 1
    assert any("automatic acceptance by confidence" in line for line in report)


@pytest.mark.slow
def test_the_examples_of_the_guide_to_prediction_without_pytorch_run(folder: Path) -> None:
    best, first, *_, score, trace = run_script("guides/runtime.md", "sh", folder).splitlines()
    assert best == "MLXVI" and first.split("\t")[4] == "MLXVI"
    assert float(score) <= 0 and '"attention"' in trace
    output, nbest, greedy, shapes = run_script("guides/runtime.md", "python", folder).splitlines()
    assert output.startswith("MLXVI (6, 4)") and "'MLXVI'" in nbest and greedy == "MLXVI"
    assert shapes.startswith("gru (")
