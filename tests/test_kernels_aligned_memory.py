"""Reuse of freed memory, and arrays aligned to cache lines."""

import subprocess
import sys

import numpy as np
import pytest

from pellucid.kernels.aligned_memory import ALIGNMENT, contiguous, empty, zeros

PROGRAM = """
import resource, sys
import numpy as np
from pellucid.kernels.aligned_memory import tune_malloc
if sys.argv[1] == "kept":
    tune_malloc()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use():
    np.empty(48 * 2**20, np.uint8).fill(1)  # larger than any block that the C library retains by default

use()
before = faults()
for _ in range(5):
    use()
print(faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the GNU C library's own setting")
def test_freed_memory_is_reused() -> None:
    kept, returned = (
        int(subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True).stdout)
        for how in ("kept", "returned")
    )
    assert kept < 100 < returned


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 0), (5, 7), (2, 3, 100)])
def test_arrays_begin_at_cache_lines(shape: tuple[int, ...]) -> None:
    for make in (empty, zeros):
        made = make(shape)
        assert made.shape == shape and made.dtype == np.float32 and made.flags.c_contiguous and made.flags.writeable
        assert not made.size or made.ctypes.data % ALIGNMENT == 0
    assert not zeros(shape).any()


def test_only_non_contiguous_arrays_are_copied() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert contiguous(array) is array
    transposed, ids = contiguous(array.T), contiguous(np.arange(6).reshape(2, 3).T)
    assert transposed.flags.c_contiguous and transposed.ctypes.data % ALIGNMENT == 0 and (transposed == array.T).all()
    assert ids.flags.c_contiguous and ids.dtype == np.int64
