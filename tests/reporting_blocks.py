"""Processors of blocks without a model, for tests of a cluster."""

import os

from pellucid.cluster.block_pool import BlockProcessor
from pellucid.errors import InputError

SETTING = "PELLUCID_TEST_SETTING"
"""Environment variable of a command, which its processes take over."""


def make_reporting_processor(threads: int) -> BlockProcessor:
    """Return a processor whose finished blocks state the block, the number of threads and `SETTING`."""

    def report(content: bytes) -> bytes:
        if content == b"bad":
            raise InputError("the block is bad")
        return f"{content.decode()} {threads} {os.environ.get(SETTING)}".encode()

    return report
