"""Threads and forked processes: a forked process uses one thread, and threads can share one model."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from test_transducer import PLAIN
from trained_runs import copy_task_run

from pellucid.errors import ConfigError, RunError
from pellucid.model.device import check_precision, check_process, prepare_for_forks, use_threads

ROOT = Path(__file__).parents[1]
FORK_PROGRAM = """
import multiprocessing, os, sys
import torch
import pellucid
from pellucid.model.device import use_threads

def outputs(number):
    square = torch.ones(600, 600)
    assert (square @ square).sum() == 600 ** 3
    return torch.get_num_threads(), [trace.output for trace in MODEL.predict(SOURCES)]

torch.set_num_threads(2)
MODEL, SOURCES = pellucid.load(sys.argv[1]), ["abcd"[at % 4] * (1 + at % 3) for at in range(600)]
threads, written = outputs(0)
assert threads == 2
with multiprocessing.get_context("fork").Pool(2) as pool:
    for found in pool.map(outputs, range(4)):
        assert found == (1, written)
child = os.fork()
if not child:
    code = outputs(0) != (1, written)
    try:
        use_threads(2)
    except pellucid.InputError as error:
        print(error)
    use_threads(0)
    code += torch.get_num_threads() != 1
    sys.stdout.flush()
    os._exit(code)
assert os.waitpid(child, 0)[1] == 0
assert outputs(0) == (2, written)
print("the same", len(set(written)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("plain", ["0", "1"])
def test_forked_process_predicts_equal_outputs(plain: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", FORK_PROGRAM, copy_task_run().run],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PELLUCID_PLAIN": plain},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    error, summary = process.stdout.splitlines()
    assert error.startswith("threads = 2: a forked process computes with one thread") and "spawn" in error
    assert summary.startswith("the same")


def test_bfloat16_on_a_cpu_needs_its_instructions_and_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU needs neither; float32 needs nothing."""
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setenv("PELLUCID_PLAIN", "1")
    monkeypatch.setattr("pellucid.kernels.microkernel.HAS_BFLOAT16", False)
    check_precision(cpu, "float32")
    check_precision(gpu, "bf16")
    expected = "precision: expected float32 on this machine, got 'bf16': "
    with pytest.raises(ConfigError) as caught:
        check_precision(cpu, "bf16")
    needed = "it needs a GPU, or a processor with the instructions avx512_bf16 and Numba 0.62 or later"
    assert str(caught.value) == expected + needed
    monkeypatch.setattr("pellucid.kernels.microkernel.HAS_BFLOAT16", True)
    with pytest.raises(ConfigError) as caught:
        check_precision(cpu, "bf16")
    assert str(caught.value) == expected + "on the CPU it needs the kernels, which PELLUCID_PLAIN disables; unset it"
    monkeypatch.delenv("PELLUCID_PLAIN")
    check_precision(cpu, "bf16")


def test_process_that_is_not_forked_can_set_its_threads() -> None:
    assert prepare_for_forks() == os.getpid()
    before = torch.get_num_threads()
    try:
        use_threads(2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_model_on_a_gpu_is_refused_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)  # CUDA is not initialized in a forked process
    with pytest.raises(RunError, match="a forked process cannot use"):
        check_process(torch.device("cuda"))
    check_process(torch.device("cpu"))


def test_threads_can_share_one_model() -> None:
    texts = [["abc", "a", "bca"], ["b"], ["cab", "", "ab", "c"], ["?"]]
    expected = [[trace.output for trace in PLAIN.predict(each)] for each in texts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert [[trace.output for trace in actual] for actual in pool.map(PLAIN.predict, texts)] == expected
