"""The Python of docs/using.md, run as it stands, on a model of roman numerals that has hardly learned anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

from trained_runs import train_to_end

from pellucid.config.toml import build_config
from pellucid.training.session import TrainingFiles

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)


def run(command: list[str], script: str, folder: Path) -> str:
    """Standard output of a program that is given a script, in a folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        command, input=script, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_examples_run(tmp_path: Path) -> None:
    """As a user runs them: in a process in which nothing but the package itself checks its arguments."""
    blocks = MARKED.findall((ROOT / "docs" / "using.md").read_text("utf-8"))
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
    (script,) = SHELL.findall((ROOT / "docs" / "using.md").read_text("utf-8"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = run(["bash", "-e", "-u", "-o", "pipefail"], script, tmp_path)
    for said in ("+-+++++-+", "even", "5", "sequence accuracy", "top-3 accuracy"):
        assert said in shown
