"""Description of the machine and peak memory of a process."""

import subprocess
import sys

from pellucid.bench.machine import describe_machine

PROGRAM = """
from pellucid.bench.machine import peak_memory_mib
before = peak_memory_mib()
kept = b"x" * (64 << 20)
del kept
print(before, peak_memory_mib())
"""


def test_the_peak_is_the_most_there_was_even_when_it_is_gone() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert before > 5 and 60 < after - before < 80


def test_the_peak_is_that_of_the_program_alone() -> None:
    """The peak excludes that of the parent process, even if it is larger."""
    program = f"import subprocess, sys\nkept = b'x' * (300 << 20)\nsubprocess.run([sys.executable, '-c', {PROGRAM!r}])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[0]) < 200


def test_machine_versions_and_date_are_told() -> None:
    machine = describe_machine()
    assert machine.processor and machine.cores > 0 and machine.date[:2] == "20"
    assert {"pellucid", "python", "torch", "numba", "numpy"} == set(machine.versions)
