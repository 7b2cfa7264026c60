"""The Python of docs/using.md, run as it stands, on a model of roman numerals that has hardly learnt anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from trained_runs import train_to_end

from pellucid.toml import from_settings
from pellucid.training.session import Files

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"<!-- run -->\n```python\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)


def test_the_section_on_seeing_through_a_model_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = MARKED.findall((ROOT / "docs" / "using.md").read_text("utf-8"))
    assert len(blocks) == 3
    examples = ROOT / "examples" / "roman"
    config = from_settings({"size": "tiny", "training": {"epochs": 2, "learning_rate": 0.02}}, "test")
    train_to_end(Files(examples / "train.tsv", examples / "dev.tsv"), tmp_path / "runs" / "roman", config)
    monkeypatch.chdir(tmp_path)
    assert os.listdir() == ["runs"]
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/using.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "(1,)" in shown and "(0, 1)" in shown and "monotonicity: " in shown and "Drive(temporal=" in shown


def test_the_commands_of_the_tasks_run(tmp_path: Path) -> None:
    (script,) = SHELL.findall((ROOT / "docs" / "using.md").read_text("utf-8"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-u", "-o", "pipefail"],
        input=script,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for said in ("+-+++++-+", "even", "5", "all tags right", "among the first 3"):
        assert said in done.stdout
