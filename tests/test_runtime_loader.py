"""Loading of run folders in NumPy, and the subcommands predict and score, in processes without PyTorch and Numba."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from test_runtime_predictor import assert_traces_close
from trained_runs import copy_run_folder, copy_task_run, digits_run

import pellucid
from pellucid.errors import ArgumentError, RunError
from pellucid.run_folder.predictor_loader import load_without_warnings as load_pytorch
from pellucid.runtime import loader
from pellucid.runtime.loader import load_without_warnings
from pellucid.runtime.support import UnsupportedError

BLOCKER = """
import sys
from importlib.abc import MetaPathFinder

class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numba", "scipy", "matplotlib", "pyarrow", "jaxtyping"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Blocker())
"""
SOURCES = ["one two", "three", "", "nine nine one"]


def run_blocked(program: str, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program in a process in which PyTorch and Numba cannot be imported."""
    command = [sys.executable, "-W", "error", "-c", BLOCKER + program, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def run_command(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a subcommand in a process in which PyTorch and Numba cannot be imported."""
    return run_blocked("from pellucid.cli import main\nsys.exit(main(sys.argv[1:]))", *arguments, text=text)


def test_a_run_gives_the_traces_of_pytorch() -> None:
    run = digits_run().run
    assert_traces_close(load_without_warnings(run).predict(SOURCES), load_pytorch(run).predict(SOURCES))


def test_several_runs_are_an_ensemble(tmp_path: Path) -> None:
    run = digits_run().run
    copy = copy_run_folder(run, tmp_path / "copy")
    runtime, ensemble = load_without_warnings([run, copy]), load_pytorch([run, copy])
    assert runtime.is_ensemble and runtime.name == ensemble.name
    assert_traces_close(runtime.predict(SOURCES), ensemble.predict(SOURCES))
    (single,) = load_without_warnings([str(run)]).network
    assert single.ids is not None


def test_predict_and_score_need_neither_pytorch_nor_numba(tmp_path: Path) -> None:
    run, source = str(digits_run().run), tmp_path / "sources.tsv"
    expected = load_pytorch(run).predict(SOURCES)
    source.write_text("".join(f"{text}\n" for text in SOURCES))
    outputs = run_command("predict", run, str(source))
    assert outputs.returncode == 0, outputs.stderr
    assert outputs.stdout == "".join(f"{trace.output}\n" for trace in expected)
    traces = run_command("predict", run, "--output-format", "jsonl", text="three\n")
    assert pellucid.Trace.from_json(traces.stdout).attention.shape == expected[1].attention.shape
    score = run_command("score", run, text="three\t3\n")
    assert float(score.stdout) == pytest.approx(expected[1].score, abs=1e-5)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_needs_neither_pytorch_nor_numba(shell: str) -> None:
    script = run_command("completion", shell)
    assert script.returncode == 0 and "beam-size" in script.stdout, script.stderr


def test_a_program_loads_the_predictor_of_the_runtime() -> None:
    program = "import pellucid\nprint(type(model := pellucid.load(sys.argv[1])).__name__, len(model.predict(['a'])))"
    result = run_blocked(program, str(copy_task_run().run))
    assert result.stdout == "RuntimePredictor 1\n", result.stderr


def test_a_page_of_a_trace_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import pellucid\ntrace = pellucid.load(sys.argv[1]).predict(['a'])[0]\n"
        "try:\n    trace.save(sys.argv[2])\nexcept pellucid.InputError as error:\n    print(error)"
    )
    result = run_blocked(program, str(copy_task_run().run), str(tmp_path / "trace.html"))
    assert "a page or a picture of a trace needs the package" in result.stdout, result.stderr
    assert "pip install 'pellucid[train]'" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "{file}", "--run", "new"), "pellucid train needs the package 'torch', which is not installed"),
        (
            ("export", "{run}", "--html", "{file}.html"),
            "pellucid export needs the package 'torch', which is not installed",
        ),
        (("predict", "{run}", "{file}", "--sample", "2"), "--sample: this needs PyTorch, which is not installed"),
        (("predict", "{run}", "{file}", "--require", "1"), "--require: this needs PyTorch, which is not installed"),
        (("predict", "{run}", "{file}", "--device", "cuda"), "--device cuda: this needs PyTorch"),
    ],
)
def test_what_needs_pytorch_says_what_to_install(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("three\t3\n")
    result = run_command(*(text.format(run=digits_run().run, file=file) for text in arguments))
    assert result.returncode == 2
    assert message in result.stderr and "pip install 'pellucid[train]'" in result.stderr


def test_wrong_arguments_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="run: expected a path or a list of one path at least"):
        load_without_warnings([])
    with pytest.raises(UnsupportedError, match="does not support the device 'cuda'"):
        load_without_warnings(digits_run().run, "cuda")
    with pytest.raises(RunError, match="there is no such folder"):
        load_without_warnings(tmp_path / "none")


def test_a_finished_run_has_no_warning(tmp_path: Path) -> None:
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader.load(run)
