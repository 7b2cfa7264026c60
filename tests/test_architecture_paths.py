"""The page on the architecture lists the functions of one prediction and of one update in the order of their calls."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
from trained_runs import shared_folder

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "call-paths.md").read_text("utf-8")
TITLES = {"predict": "One prediction", "train": "One update"}
Backend = Literal["kernel", "PyTorch"]
PROGRAM = """
import json, sys
from pathlib import Path
import pellucid
from pellucid.cli import main
from pellucid.kernels.kernel_loader import load_kernels

load_kernels()  # which calls every kernel
root, calls = str(Path(pellucid.__file__).parent) + "/", []

def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(root):
        calls.append(frame.f_code.co_filename.removeprefix(root) + " " + frame.f_code.co_qualname)

result = {}
for name, arguments in json.loads(sys.argv[1]).items():
    calls.clear()
    sys.setprofile(profile)
    try:
        code = main(arguments)
    finally:
        sys.setprofile(None)
    assert code == 0
    result[name] = list(calls)
Path(sys.argv[2]).write_text(json.dumps(result), "utf-8")
"""
"""Program that runs commands, and writes for each all calls of functions of the package, in their order."""


class PathStep(NamedTuple):
    """One function of a list of the page."""

    function: str
    """File and qualified name: "training/loop.py fit"."""
    backend: str
    """Backend that alone calls the function: "kernel" or "PyTorch"; "" for both."""


def read_steps(title: str, page: str = PAGE) -> list[PathStep]:
    """Return the functions of the numbered list in a section of the page."""
    section = re.split(r"^## ", page, flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(title))
    steps = []
    for item in re.findall(r"^\d+\. (.*\n(?: {3,}.*\n)*)", text, re.MULTILINE):
        names, _, _ = " ".join(item.split()).partition(":")
        marked = re.search(r" \((kernel|PyTorch)\)$", names)
        file = ""
        for name in re.findall(r"`([^`]+)`", names):
            file = name if name.endswith(".py") else file
            if name != file:
                steps.append(PathStep(f"{file} {name}", marked[1] if marked else ""))
    return steps


def find_disorder(steps: list[PathStep], backend: Backend, calls: list[str]) -> list[str]:
    """Return the listed functions that the backend does not call, or not after the function listed before.

    Earlier calls are allowed: `build_network` is called twice, for example.
    """
    position, faults = -1, []
    for function, only in steps:
        if only not in ("", backend):
            continue
        if function in calls[position + 1 :]:
            position = calls.index(function, position + 1)
        elif function in calls:
            faults.append(f"{function} is not called after {calls[position]}")
        else:
            faults.append(f"{function} is not called")
    return faults


@cache
def profile_commands(backend: Backend) -> dict[str, list[str]]:
    """Return all calls of a training with one update, and of a prediction of one batch with its model.

    Each digit is written as a letter, which a pair n-gram model learns at once and the network does not, so that the
    pair n-gram model has a weight in the prediction.
    """
    folder = shared_folder() / f"profile-{backend}"
    folder.mkdir()
    letters = str.maketrans("0123456789", "abcdefghij")
    numbers = [f"{number}\t{str(number).translate(letters)}\n" for number in range(100, 160)]
    (folder / "train.tsv").write_text("".join(numbers), "utf-8")
    (folder / "dev.tsv").write_text("".join(numbers[:10]), "utf-8")
    training = ["train", "train.tsv", "--valid", "dev.tsv", "--run", "run", "--size", "tiny"]
    commands = {
        "train": [*training, "--epochs", "1", "--batch-size", "60"],
        "predict": ["predict", "run", "dev.tsv"],
    }
    environment = {**os.environ, "PELLUCID_PLAIN": str(int(backend == "PyTorch")), "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", PROGRAM, json.dumps(commands), "calls.json"]
    completed = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    calls: dict[str, list[str]] = json.loads((folder / "calls.json").read_text("utf-8"))
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["kernel", "PyTorch"])
@pytest.mark.parametrize("command", TITLES)
def test_the_listed_functions_are_called_in_their_order(command: str, backend: Backend) -> None:
    assert find_disorder(read_steps(TITLES[command]), backend, profile_commands(backend)[command]) == []


@pytest.mark.parametrize("command", TITLES)
def test_each_list_has_steps_of_both_backends(command: str) -> None:
    steps = read_steps(TITLES[command])
    assert len(steps) > 30 and {step.backend for step in steps} == {"", "kernel", "PyTorch"}


def test_both_lists_name_the_pair_ngram_model() -> None:
    """It takes part in every training and prediction of sequences, by default."""
    for title, functions in {
        "predict": ("with_pair_ngram", "_rerank_with_pair_ngram", "propose_outputs", "score_targets"),
        "train": ("fit_training_pair_ngram", "weight_pair_ngram"),
    }.items():
        listed = {re.split(r"[ .]", step.function)[-1] for step in read_steps(TITLES[title])}
        assert set(functions) <= listed


def test_classes_in_the_picture_exist() -> None:
    """Labels of the picture in camel case are classes of the package; other labels are packages and plain words."""
    picture = (ROOT / "docs" / "architecture.svg").read_text("utf-8")
    labels = set(re.findall(r">((?:[A-Z][a-z]+){2,}|Memory|Trace)<", picture))
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "pellucid").rglob("*.py"))
    assert labels == {"Memory", "DecoderState", "Trace"}
    assert [label for label in labels if not re.search(rf"^class {label}\b", sources, re.MULTILINE)] == []


def test_other_orders_and_missing_calls_are_found() -> None:
    page = (
        "# P\n\n## One\n\n1. `a.py` `f`, `C.g`: first\n2. `b.py` `h` (kernel):\n   text\n\n## Two\n\n1. `c.py` `i`:\n"
    )
    steps = read_steps("One", page)
    assert steps == [PathStep("a.py f", ""), PathStep("a.py C.g", ""), PathStep("b.py h", "kernel")]
    assert find_disorder(steps, "kernel", ["a.py f", "x.py y", "a.py C.g", "b.py h"]) == []
    assert find_disorder(steps, "PyTorch", ["a.py f", "a.py C.g"]) == []
    assert find_disorder(steps, "kernel", ["a.py f", "b.py h"]) == ["a.py C.g is not called"]
    assert find_disorder(steps, "kernel", ["a.py C.g", "a.py f", "b.py h"]) == ["a.py C.g is not called after a.py f"]
