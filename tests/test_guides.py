"""The examples of the guides and of the extension pages run as written."""

import csv
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import build_environment, fast_command_environment
from guide_examples import ROOT, python_blocks
from loopback_hub import TOKEN, loopback_hub
from test_kernels_unroll import build_memory
from trained_runs import train_to_end

from pellucid.config.settings import AttentionConfig
from pellucid.config.toml import build_config
from pellucid.training.training_data import TrainingFiles

SHELL_BLOCKS = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)


def run_script(command: list[str], script: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the standard output of a program that reads a script from standard input, in a folder."""
    result = subprocess.run(
        command, input=script, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_commands_of_the_task_guide_run(tmp_path: Path) -> None:
    scripts = SHELL_BLOCKS.findall((ROOT / "docs" / "guides" / "tagging-and-classifying.md").read_text("utf-8"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with fast_command_environment() as environment:
        tasks, requests = (
            run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment) for script in scripts
        )
    for expected in ("+-+++++-+", "even", "5", "sequence accuracy", "top-3 accuracy"):
        assert expected in tasks
    assert "request,slots,intent,class,output," in requests


@pytest.mark.slow
def test_the_commands_of_the_guide_for_large_data_run(tmp_path: Path) -> None:
    (script,) = SHELL_BLOCKS.findall((ROOT / "docs" / "guides" / "large-data.md").read_text("utf-8"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with fast_command_environment() as environment:
        stdout = run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment)
    assert "training pairs" in stdout and "exact match" in stdout


@pytest.mark.slow
def test_the_examples_of_the_data_guide_decode_a_covered_file_and_split_a_table(tmp_path: Path) -> None:
    scripts = SHELL_BLOCKS.findall((ROOT / "docs" / "guides" / "data.md").read_text("utf-8"))
    assert len(scripts) == 2
    with fast_command_environment() as environment:
        for script in scripts:
            run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment)
    lines = [(tmp_path / name).read_text("utf-8").count("\n") for name in ("covered.tsv", "predicted.txt")]
    assert lines == [16, 16]
    names = ("train", "valid", "test", "unlabeled")
    assert [(tmp_path / "words" / f"{name}.csv").read_text().count("\n") - 1 for name in names] == [220, 30, 50, 300]


@pytest.mark.slow
def test_the_commands_of_the_serving_guide_run(tmp_path: Path) -> None:
    (script,) = SHELL_BLOCKS.findall((ROOT / "docs" / "guides" / "serving.md").read_text("utf-8"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with fast_command_environment() as environment:
        stdout = run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment)
    assert '"results":[{"output":' in stdout and '"outputs":[' in stdout and '"name":"roman"' in stdout


@pytest.mark.slow
def test_the_examples_of_the_fine_tuning_guide_run(tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "fine-tuning.md"
    (script,), (program,) = SHELL_BLOCKS.findall(page.read_text("utf-8")), python_blocks(page)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with fast_command_environment() as environment:
        assert "exact match" in run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment)
    assert run_script([sys.executable, "-"], program, tmp_path) == "runs/old tiny\n"


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_commands_of_the_onnx_guide_run(tmp_path: Path) -> None:
    """The exported beam search gives the outputs of predict: diff prints nothing."""
    pytest.importorskip("onnxruntime")
    scripts = SHELL_BLOCKS.findall((ROOT / "docs" / "guides" / "onnx.md").read_text("utf-8"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', "utf-8")
    (tmp_path / "bin" / "python").chmod(0o755)
    with fast_command_environment() as commands:
        environment = {**commands, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{commands['PATH']}"}
        stdout = run_script(["bash", "-e", "-u", "-o", "pipefail"], "\n".join(scripts), tmp_path, environment)
    assert "int8: " in stdout and "points" in stdout and (tmp_path / "roman-int8" / "encoder.onnx").is_file()
    assert (tmp_path / "outputs.txt").read_text("utf-8").count("\n") == 400


@pytest.mark.slow
def test_the_examples_of_the_sharing_guide_run(tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "sharing.md"
    text = page.read_text("utf-8")
    (script,), (program,) = SHELL_BLOCKS.findall(text), python_blocks(page)
    (with_hub,) = re.findall(r"<!-- run with a hub -->\n```sh\n(.*?)```", text, re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with fast_command_environment() as environment:
        output = run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment).splitlines()[-1]
    assert re.fullmatch("[MDCLXVI]+", output)
    assert run_script([sys.executable, "-W", "error", "-"], program, tmp_path) == f"{output}\n"
    assert (tmp_path / "roman-greedy" / "attention.png").is_file()
    (tmp_path / "pellucid").write_text(f'#!/bin/sh\nexec {sys.executable} -m pellucid "$@"\n', "utf-8")
    (tmp_path / "pellucid").chmod(0o755)
    push, *others = with_hub.splitlines(keepends=True)
    with loopback_hub() as hub:
        changes = {"HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "home")}
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        environment = build_environment({**changes, "PATH": path, "PYTHONPATH": str(ROOT)})
        command = run_script(["bash", "-e"], push, tmp_path, environment).splitlines()[1]
        commit = command.split()[4]
        assert command == others[0].replace("COMMIT", commit).replace("roman-copy", "DIR").strip()
        printed = run_script(["bash", "-e"], "".join(others).replace("COMMIT", commit), tmp_path, environment)
    assert printed.splitlines()[-1] == output


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_the_path_of_practitioners_ends_with_the_rows_to_review(tmp_path: Path, delimiter: str) -> None:
    """Also for a file of a spreadsheet that writes semicolons."""
    text = (ROOT / "docs" / "users" / "practitioners.md").read_text("utf-8")
    blocks = re.findall(r"<!-- run -->\n```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert [language for language, _ in blocks] == ["sh", "sh", "sh"]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed = list[str]()
    with fast_command_environment() as environment:
        for _, script in blocks:
            printed.append(run_script(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment))
            if len(printed) == 1 and delimiter != ",":
                numbers = (tmp_path / "numbers.csv").read_text("utf-8")
                (tmp_path / "numbers.csv").write_text(numbers.replace(",", delimiter), "utf-8-sig")
    exact = float(re.findall(r"exact match +(\d+\.\d+) %", printed[1])[0])
    tables = [
        list(csv.DictReader((tmp_path / name).read_text("utf-8-sig").splitlines(), delimiter=delimiter))
        for name in ("numbers.csv", "filled.csv", "numbers/unlabeled.csv", "errors.csv")
    ]
    numbers_rows, filled, unlabeled, errors = tables
    assert exact > 90 and 0 < len(errors) < 40 and errors[0]["id"].startswith("P-")
    assert len(unlabeled) == len(filled) // 10 and [row["id"] for row in filled] == [row["id"] for row in numbers_rows]
    for before, after in zip(numbers_rows, filled, strict=True):
        assert after["numeral"] == before["numeral"] or (
            not before["numeral"] and re.match("[MDCLXVI]", after["numeral"])
        )
        assert bool(after["confidence"]) == (not before["numeral"])
    assert b"\r" not in (tmp_path / "filled.csv").read_bytes()  # as in numbers.csv
    marks = {(tmp_path / name).read_bytes()[:3] for name in ("numbers.csv", "filled.csv", "errors.csv")}
    assert marks == {"\ufeff".encode() if delimiter == ";" else b"id" + delimiter.encode()} or delimiter == ","


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


@pytest.mark.slow
def test_the_programs_of_the_attention_guide_train_their_classes(tmp_path: Path) -> None:
    module, program, test, sparse_program, state_program, hook_program = python_blocks(
        ROOT / "docs" / "extend" / "attention.md"
    )
    (tmp_path / "my_attention.py").write_text(module, "utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    search_path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = build_environment({"PYTHONPATH": search_path})
    assert " → " in run_script([sys.executable, "-"], program + test, tmp_path, environment)
    assert 'type = "cosine"' in (tmp_path / "runs" / "cosine" / "config.toml").read_text("utf-8")
    printed = run_script([sys.executable, "-"], sparse_program, tmp_path, environment)
    assert re.search(r"1984 → MCMLXXXIV [1-9]\d% of the weights are zero", printed), printed
    printed = run_script([sys.executable, "-"], state_program + hook_program, tmp_path, environment)
    assert re.search(r"\d+ torch\.Size\(\[\d+, 4\]\)\n\[-?\d", printed), printed


EXTENSION_PROGRAMS = {
    "cell": r"1984 → [MDCLXVI]+",
    "metric": r"'higher_is_better': True",
    "optimizer": r"1984 → [MDCLXVI]+",
    "task": r"MCMLXXXIV → (even|odd)",
    "callback": r"update,exact_match,symbol_error_rate,symbol_accuracy,loss\n\d+,",
}
"""Text that the programs of each page print; those of the cell and of the optimizer end with a test of the class."""


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTENSION_PROGRAMS)
def test_the_programs_of_the_other_extension_pages_run(tmp_path: Path, name: str) -> None:
    module, *programs = python_blocks(ROOT / "docs" / "extend" / f"{name}.md")
    (tmp_path / f"my_{name}.py").write_text(module, "utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = build_environment({"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    printed = run_script([sys.executable, "-"], "\n".join(programs), tmp_path, environment)
    assert re.search(EXTENSION_PROGRAMS[name], printed), printed


@pytest.mark.slow
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
    (program,) = python_blocks(ROOT / "docs" / "users" / "students.md")
    run_script([sys.executable, "-"], program, tmp_path)
    names = ("digits", "digits-dev", "digits-test", "digits-long")
    files = [(tmp_path / f"{name}.tsv").read_text("utf-8").splitlines() for name in names]
    assert [len(lines) for lines in files] == [3000, 300, 400, 400]
    assert sum(len(set(lines)) for lines in files) == len(set().union(*files))
    lengths = {len(line.split("\t")[1]) for line in files[2]}
    assert lengths == set(range(2, 9))
