"""The examples of the guides and of the extension pages run as written."""

import csv
import io
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from command_line import build_environment, fast_command_environment
from guide_examples import ROOT, python_blocks
from test_kernels_unroll import build_memory
from trained_runs import train_to_end

from pellucid.config.settings import AttentionConfig
from pellucid.config.toml import build_config
from pellucid.model import cells
from pellucid.training.training_data import TrainingFiles

SHELL_BLOCKS = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)


def run_script(command: list[str], script: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the standard output of a program that reads a script from standard input, in a folder."""
    result = subprocess.run(
        command, input=script, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_python_examples_run(tmp_path: Path) -> None:
    """The process is a user's: jaxtyping and beartype do not check arguments in it."""
    blocks = python_blocks(ROOT / "docs" / "guides" / "python.md")
    assert len(blocks) == 4
    examples = ROOT / "examples" / "roman"
    config = build_config({"size": "tiny", "training": {"epochs": 2, "learning_rate": 0.02}}, "test")
    train_to_end(TrainingFiles(examples / "train.tsv", examples / "dev.tsv"), tmp_path / "runs" / "roman", config)
    assert os.listdir(tmp_path) == ["runs"]
    stdout = run_script([sys.executable, "-W", "error", "-"], "\n".join(blocks), tmp_path)
    assert (
        "(1,)" in stdout
        and "(0, 1)" in stdout
        and "monotonicity: " in stdout
        and "ScoreDecomposition(temporal=" in stdout
    )
    assert "['MC" in stdout and " → " in stdout


def test_the_commands_of_the_task_guide_run(tmp_path: Path) -> None:
    (script,) = SHELL_BLOCKS.findall((ROOT / "docs" / "guides" / "tagging-and-classifying.md").read_text("utf-8"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with fast_command_environment() as environment:
        stdout = run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment)
    for expected in ("+-+++++-+", "even", "5", "sequence accuracy", "top-3 accuracy"):
        assert expected in stdout


def test_the_example_of_features_in_the_data_guide_decodes_a_covered_file(tmp_path: Path) -> None:
    (script,) = SHELL_BLOCKS.findall((ROOT / "docs" / "guides" / "data.md").read_text("utf-8"))
    with fast_command_environment() as environment:
        run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment)
    lines = [(tmp_path / name).read_text("utf-8").count("\n") for name in ("covered.tsv", "predicted.txt")]
    assert lines == [16, 16]


def test_the_examples_of_the_fine_tuning_guide_run(tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "fine-tuning.md"
    (script,), (program,) = SHELL_BLOCKS.findall(page.read_text("utf-8")), python_blocks(page)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with fast_command_environment() as environment:
        assert "exact match" in run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment)
    assert run_script([sys.executable, "-"], program, tmp_path) == "runs/old tiny\n"


def test_the_examples_of_the_alignment_guide_run(tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "alignment.md"
    (script,), (program,) = SHELL_BLOCKS.findall(page.read_text("utf-8")), python_blocks(page)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with fast_command_environment() as environment:
        rows = run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment).splitlines()
    test = (ROOT / "examples" / "roman" / "test.tsv").read_text("utf-8").splitlines()
    assert [row.split("\t")[:2] for row in rows[:3]] == [line.split("\t") for line in test[:3]]
    for name in ("roman.corpus", "roman.jsonl", "roman.links"):
        assert len((tmp_path / name).read_text("utf-8").splitlines()) == len(test)
    printed = run_script([sys.executable, "-"], program, tmp_path)
    assert "[(('5',), ('D',)), (('5',), ('L',)), (('7',), ('V', 'I', 'I'))] [(0, 0), (1, 1), (2, 2)" in printed


def test_the_examples_of_the_audit_guide_run(tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "audit.md"
    (script,), (program,) = SHELL_BLOCKS.findall(page.read_text("utf-8")), python_blocks(page)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with fast_command_environment() as environment:
        rows = run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment).splitlines()
    assert [row.split(",")[:2] for row in rows] == [["rank", "line"], ["1", "40"], ["2", "12"]]
    original = (ROOT / "examples" / "roman" / "train.tsv").read_bytes()
    assert (tmp_path / "corrected.tsv").read_bytes() == original and (tmp_path / "worklist.html").is_file()
    printed = run_script([sys.executable, "-"], program, tmp_path)
    assert printed.startswith("40 890 DCCCXC  → DCCCXC 4.3\n   prediction 7 ") and "12 1543 MMM → MDXLIII" in printed


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_the_path_of_practitioners_ends_with_the_rows_to_review(tmp_path: Path, delimiter: str) -> None:
    """Also for a file of a spreadsheet that writes semicolons."""
    text = (ROOT / "docs" / "users" / "practitioners.md").read_text("utf-8")
    blocks = re.findall(r"<!-- run -->\n```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert [language for language, _ in blocks] == ["sh", "python", "sh", "python"]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed = list[str]()
    with fast_command_environment() as environment:
        for language, script in blocks:
            command = ["bash", "-e", "-u", "-o", "pipefail"] if language == "sh" else [sys.executable, "-"]
            printed.append(run_script(command, script, tmp_path, environment))
            if len(printed) == 1 and delimiter != ",":
                numbers = (tmp_path / "numbers.csv").read_text("utf-8")
                (tmp_path / "numbers.csv").write_text(numbers.replace(",", delimiter), "utf-8-sig")
    exact = float(re.findall(r"exact match +(\d+\.\d+) %", printed[2])[0])
    with (tmp_path / "review.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    assert exact > 90 and len(rows) == 80 and rows[0]["id"].startswith("P-")
    probabilities = [float(row["confidence"]) for row in rows]
    assert probabilities == sorted(probabilities) and len(printed[3].splitlines()) == 3


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_program_that_holds_pairs_out_splits_a_file_with_a_header(tmp_path: Path, delimiter: str) -> None:
    """Cells with commas, quotes and line breaks stay whole; no row is lost."""
    (program,) = python_blocks(ROOT / "docs" / "guides" / "data.md")
    rows = [[str(n), f"w{n // 2 if n < 200 else n}", 'x, "y"\nz' if n % 3 else "x"] for n in range(1600)]
    with (tmp_path / "words.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=delimiter).writerows([["id", "word", "note"], *rows, ["ragged"]])
    contents = []
    for _ in range(2):
        run_script([sys.executable, "-"], program, tmp_path)
        contents.append([(tmp_path / f"{name}.csv").read_text("utf-8") for name in ("train", "valid", "test")])
    assert contents[0] == contents[1]
    parts = [list(csv.reader(io.StringIO(text), delimiter=delimiter)) for text in contents[0]]
    assert {tuple(part[0]) for part in parts} == {("id", "word", "note")}
    assert sorted(row for part in parts for row in part[1:]) == sorted([*rows, ["ragged"]])
    words = [{row[1] for row in part[1:] if len(row) > 1} for part in parts]
    assert [len(part) for part in words] == [700, 400, 400]
    assert not (words[0] & words[1] or words[0] & words[2] or words[1] & words[2])


def exec_guide_code(name: str, module: ModuleType) -> dict[str, Any]:
    """Return the namespace of a module after the marked code of the page that extends it."""
    (code,) = python_blocks(ROOT / "docs" / "extend" / name)
    namespace = dict(vars(module))
    exec(code, namespace)  # the page says to put the code into this module
    return namespace


def test_the_attention_class_of_the_guide_computes_weights() -> None:
    namespace = dict[str, Any]()
    exec(python_blocks(ROOT / "docs" / "extend" / "attention.md")[0], namespace)
    config = AttentionConfig(type="cosine", size=2)
    cosine = namespace["CosineAttention"](config=config, query_size=3, memory_size=4)
    memory = build_memory(torch.randn(2, 5, 4), torch.tensor([5, 3]))
    output = cosine(torch.randn(4, 3), cosine.build_cache(memory), None)
    assert output.weights.shape == (4, 5)
    torch.testing.assert_close(output.weights.sum(dim=1), torch.ones(4))
    assert (output.weights[2:, 3:] == 0).all()


def test_the_program_of_the_attention_guide_trains_its_class(tmp_path: Path) -> None:
    module, program = python_blocks(ROOT / "docs" / "extend" / "attention.md")
    (tmp_path / "my_attention.py").write_text(module, "utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    search_path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = build_environment({"PYTHONPATH": search_path})
    assert " → " in run_script([sys.executable, "-"], program, tmp_path, environment)
    assert 'type = "cosine"' in (tmp_path / "runs" / "cosine" / "config.toml").read_text("utf-8")


def test_the_cell_class_of_the_guide_computes_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = exec_guide_code("cell.md", cells)["MinimalGatedSpec"]()
    monkeypatch.setattr(cells, "CELLS", {"gru": spec})  # "gru" is a name that the settings accept
    cell = cells.RecurrentCell("gru", 3, 4)
    inputs, hidden = torch.randn(2, 3), torch.randn(2, 4)
    state = cell.step(cell.project(inputs), cell.initial_state(hidden))
    forget, candidate = spec.gate_values(*cell.preactivations(cell.project(inputs), hidden))
    torch.testing.assert_close(state.hidden, (1 - forget) * hidden + forget * candidate)


@pytest.mark.parametrize("package", ["", "pandas", "sklearn"])
def test_the_examples_of_data_in_python_run(tmp_path: Path, package: str) -> None:
    """Examples with another package run only if it is installed; those before them run first."""
    if package:
        pytest.importorskip(package)
    page = (ROOT / "docs" / "guides" / "python-data.md").read_text("utf-8")
    marked = re.findall(r"<!-- run(?: with (\w+))? -->\n```python\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in marked] == ["", "pandas", "", "", "sklearn"]
    program = "\n".join(block for name, block in marked if name in ("", package))
    (tmp_path / "program.py").write_text(program)
    result = subprocess.run(
        [sys.executable, "-W", "error", "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "runs/watched" in result.stdout and (tmp_path / "runs" / "saved" / "model.safetensors").exists()


def test_the_digits_of_the_class_are_disjoint(tmp_path: Path) -> None:
    (program,) = python_blocks(ROOT / "docs" / "users" / "students-and-teachers.md")
    run_script([sys.executable, "-"], program, tmp_path)
    names = ("digits", "digits-dev", "digits-test", "digits-long")
    files = [(tmp_path / f"{name}.tsv").read_text("utf-8").splitlines() for name in names]
    assert [len(lines) for lines in files] == [3000, 300, 400, 400]
    assert sum(len(set(lines)) for lines in files) == len(set().union(*files))
    lengths = {len(line.split("\t")[1]) for line in files[2]}
    assert lengths == set(range(2, 9))
