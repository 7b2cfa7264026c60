"""Description of the machine and peak memory of a process."""

import subprocess
import sys

from pellucid.bench.machine import describe_machine

PROGRAM = """
from pellucid.bench.machine import peak_memory_mib
before = peak_memory_mib()
block = b"x" * (64 << 20)
del block
print(before, peak_memory_mib())
"""


def test_peak_includes_freed_memory() -> None:
    process = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = map(float, process.stdout.split())
    assert before > 5 and 60 < after - before < 80


def test_peak_excludes_the_parent_process() -> None:
    program = f"import subprocess, sys\nblock = b'x' * (300 << 20)\nsubprocess.run([sys.executable, '-c', {PROGRAM!r}])"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(process.stdout.split()[0]) < 200


def test_machine_versions_and_date_are_reported() -> None:
    machine = describe_machine()
    assert machine.processor and machine.cores > 0 and machine.date[:2] == "20"
    assert {"pellucid", "python", "torch", "numba", "numpy"} == set(machine.versions)
