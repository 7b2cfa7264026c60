"""Memory that is freed stays with the process, and comes back without being cleared again."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from pellucid.kernels.allocation import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use():
    np.empty(48 * 2**20, np.uint8).fill(1)  # more than the C library ever keeps by itself

use()
before = faults()
for _ in range(5):
    use()
print(faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the GNU C library's own setting")
def test_freed_memory_is_used_again() -> None:
    kept, returned = (
        int(subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True).stdout)
        for how in ("kept", "returned")
    )
    assert kept < 100 < returned
