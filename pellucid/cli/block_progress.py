"""Processing of the blocks of a command on a Ray cluster, with messages about its progress (--on ray)."""

import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from io import TextIOBase

from pellucid.cli.messages import print_message
from pellucid.cluster.block_pool import BlockJob, fit_resources, process_blocks
from pellucid.cluster.ray_connection import ray_connection, ray_errors_as_messages
from pellucid.cluster.ray_pool import count_slots
from pellucid.config.settings import Device
from pellucid.errors import count_noun

PROGRESS_SECONDS = 60.0
"""Seconds between messages about the number of finished blocks."""
WAITING_SECONDS = 30.0
"""Seconds after which the first message tells if the blocks wait for free CPUs."""
JOIN_SECONDS = 5.0
"""Seconds for which the end of the thread is awaited, which may be asking a lost cluster for its machines."""
DEATHS = re.compile(r"\b(died|terminated|dead|killed)\b")
"""Words of the messages of Ray about processes and machines that died."""


class RayMessages(TextIOBase):
    """Stream in place of standard output, to which Ray writes long messages about processes that died.

    One short message on standard error takes their place, once.
    """

    def __init__(self) -> None:
        """Begin without a message."""
        self.has_reported = False

    def write(self, text: str) -> int:
        """Report that a process or a machine died, if the text says so.

        Args:
            text: Text of Ray.

        Returns:
            Number of characters.
        """
        if not self.has_reported and DEATHS.search(text):
            self.has_reported = True
            print_message("--on ray: a process or a machine of the cluster has died; Ray repeats its blocks")
        return len(text)


class BlockProgress:
    """Number of finished blocks, which a thread prints from time to time, also while no block is finished."""

    def __init__(self, job: BlockJob, num_blocks: int, num_finished: int) -> None:
        """Begin with the blocks that were finished earlier.

        Args:
            job: Processing of the blocks.
            num_blocks: Number of all blocks.
            num_finished: Number of finished blocks.
        """
        self.job, self.num_blocks, self.num_finished = job, num_blocks, num_finished
        self.has_started = False
        """Whether a block has been started by this command."""
        self._ended = threading.Event()

    @contextmanager
    def printed(self) -> Iterator[None]:
        """Print messages in a thread within the block."""
        thread = threading.Thread(target=self._print_messages, name="pellucid-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(JOIN_SECONDS)

    def count_block(self) -> None:
        """Count a finished block."""
        self.num_finished, self.has_started = self.num_finished + 1, True

    def describe_wait(self) -> str:
        """Return what the blocks wait for; "" if a process has started and a machine for it is left."""
        needed = self.job.resources
        if not count_slots(needed):
            return f"no machine with {needed} is left in the Ray cluster; waiting until one joins"
        self.has_started = self.has_started or self.job.folder.has_started_blocks()
        return "" if self.has_started else f"waiting for the first process to start on the cluster: it needs {needed}"

    def _print_messages(self) -> None:
        """Print a message each minute until the end, and an earlier one if the blocks wait."""
        seconds = WAITING_SECONDS
        while not self._ended.wait(seconds):
            try:
                message = self.describe_wait()
            except Exception:  # the cluster is gone, which the main thread reports
                return
            if seconds == PROGRESS_SECONDS and not message:
                message = f"{self.num_finished:,} of {count_noun(self.num_blocks, 'block')} are finished"
            if message:
                print_message(f"--on ray: {message}")
            seconds = PROGRESS_SECONDS


def process_on_cluster(job: BlockJob, device: Device, unfinished: Collection[int], num_blocks: int) -> None:
    """Process blocks on a Ray cluster; each finished block is a file of the folder.

    Args:
        job: How blocks are processed, and on how many CPUs.
        device: Device for decoding; "auto" is a GPU if the cluster has one.
        unfinished: Numbers of the blocks to process, in ascending order.
        num_blocks: Number of all blocks.

    Raises:
        InputError: Ray is not installed, no cluster answers, a machine of the cluster cannot process blocks, or a
            user's error in a block.
    """
    with redirect_stdout(RayMessages()), ray_errors_as_messages(), ray_connection("--on ray") as cluster:
        wanted = job.resources._replace(gpus=int(cluster.uses_gpu(device)))
        job = job._replace(resources=fit_resources(wanted))
        num_processes = max(1, min(len(unfinished), count_slots(job.resources)))  # the last machine may have died now
        progress = BlockProgress(job, num_blocks, num_blocks - len(unfinished))
        earlier = f", {progress.num_finished:,} of them finished earlier" if progress.num_finished else ""
        processes = count_noun(num_processes, "process", "processes")
        print_message(
            f"--on ray: {count_noun(num_blocks, 'block')}{earlier}; {processes} on a cluster of "
            f"{count_noun(cluster.num_nodes, 'machine')}"
        )
        with progress.printed():
            for _ in process_blocks(job, unfinished, num_processes):
                progress.count_block()
