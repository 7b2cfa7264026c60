"""File permissions that hold, also where root runs the tests."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

VERSION = 0x20080522
"""Version 3 of the capabilities of Linux, whose sets have two words."""


class Header(ctypes.Structure):
    """Version and process, 0 for the present one."""

    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


class CapabilitySets(ctypes.Structure):
    """One word of each of the three sets."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextmanager
def ordinary_permissions() -> Iterator[None]:
    """Give up the capabilities of root within the block, so that the mode of its own files holds for it, too."""
    if sys.platform != "linux" or os.geteuid() != 0:
        yield
        return
    library, header, words = ctypes.CDLL(None), Header(VERSION, 0), (CapabilitySets * 2)()
    assert library.capget(ctypes.byref(header), words) == 0
    former = [word.effective for word in words]
    for word in words:
        word.effective = 0
    assert library.capset(ctypes.byref(header), words) == 0
    try:
        yield
    finally:
        for word, value in zip(words, former, strict=True):
            word.effective = value
        assert library.capset(ctypes.byref(header), words) == 0
