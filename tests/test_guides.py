"""Examples of the guides and of the pages on extensions, run as written."""

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
from command_line import quick_commands
from test_kernels_unroll import memory_of
from trained_runs import train_to_end

from pellucid.config.toml import build_config
from pellucid.model import attention, cells
from pellucid.training.training_data import TrainingFiles

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)


def run(command: list[str], script: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return the standard output of a program that reads a script from standard input, in a folder."""
    done = subprocess.run(
        command, input=script, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_examples_run(tmp_path: Path) -> None:
    """The process is a user's: jaxtyping and beartype do not check arguments in it."""
    blocks = MARKED.findall((ROOT / "docs" / "guides" / "python.md").read_text("utf-8"))
    assert len(blocks) == 4
    examples = ROOT / "examples" / "roman"
    config = build_config({"size": "tiny", "training": {"epochs": 2, "learning_rate": 0.02}}, "test")
    train_to_end(TrainingFiles(examples / "train.tsv", examples / "dev.tsv"), tmp_path / "runs" / "roman", config)
    assert os.listdir(tmp_path) == ["runs"]
    shown = run([sys.executable, "-W", "error", "-"], "\n".join(blocks), tmp_path)
    assert (
        "(1,)" in shown and "(0, 1)" in shown and "monotonicity: " in shown and "ScoreDecomposition(temporal=" in shown
    )
    assert "['MC" in shown and " → " in shown


def test_the_commands_of_the_tasks_run(tmp_path: Path) -> None:
    (script,) = SHELL.findall((ROOT / "docs" / "guides" / "tagging-and-classifying.md").read_text("utf-8"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with quick_commands() as environment:
        shown = run(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path, environment)
    for said in ("+-+++++-+", "even", "5", "sequence accuracy", "top-3 accuracy"):
        assert said in shown


def guide_code(name: str, module: ModuleType) -> dict[str, Any]:
    """Return the namespace of a module after the marked code of the page that extends it."""
    (code,) = MARKED.findall((ROOT / "docs" / "extend" / name).read_text("utf-8"))
    namespace = dict(vars(module))
    exec(code, namespace)  # the page says to put the code into this module
    return namespace


def test_the_attention_of_the_guide_attends() -> None:
    cosine = guide_code("attention.md", attention)["CosineAttention"](query_size=3, memory_size=4)
    memory = memory_of(torch.randn(2, 5, 4), torch.tensor([5, 3]))
    output = cosine(torch.randn(4, 3), cosine.prepare(memory), None)
    assert output.weights.shape == (4, 5)
    torch.testing.assert_close(output.weights.sum(dim=1), torch.ones(4))
    assert (output.weights[2:, 3:] == 0).all()


def test_the_cell_of_the_guide_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = guide_code("cell.md", cells)["MinimalGatedSpec"]()
    monkeypatch.setattr(cells, "CELLS", {"gru": spec})  # under a name that the type of the settings has
    cell = cells.RecurrentCell("gru", 3, 4)
    inputs, hidden = torch.randn(2, 3), torch.randn(2, 4)
    state = cell.step(cell.project(inputs), cell.initial_state(hidden))
    forget, candidate = spec.gate_values(*cell.preactivations(cell.project(inputs), hidden))
    torch.testing.assert_close(state.hidden, (1 - forget) * hidden + forget * candidate)
