"""predict --on ray if the command or a machine of the cluster is killed: the same bytes, from the finished blocks."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("needs Ray", allow_module_level=True)

from ray.cluster_utils import Cluster
from ray_blocks import COMPUTED, NUM_BLOCKS, SLOW_COMMAND, WORKER_PATH, write_block_pairs
from trained_runs import digits_run

from pellucid.cli import predict

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, about its own functions


class SlowCommand(NamedTuple):
    """A command that takes a while for each block, with its files."""

    arguments: list[str]
    output: Path
    expected: bytes
    """Output of one machine."""

    def environment(self, address: str) -> Mapping[str, str]:
        """Return the environment of a command on a cluster."""
        changes = {"PYTHONPATH": WORKER_PATH, "RAY_ADDRESS": address, COMPUTED: str(self.output.with_name("computed"))}
        return {**os.environ, **changes}

    def start(self, address: str) -> "subprocess.Popen[str]":
        """Start the command."""
        program = [sys.executable, "-c", SLOW_COMMAND, *self.arguments]
        return subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env=self.environment(address))

    def wait_for_blocks(self, count: int) -> None:
        """Wait until some blocks are finished."""
        end = time.monotonic() + 180
        while self.num_finished() < count:
            assert time.monotonic() < end
            time.sleep(0.2)

    def num_finished(self) -> int:
        """Return the number of finished blocks."""
        return len(list(self.output.with_name("out.blocks").glob("output-*")))

    def finish(self, process: "subprocess.Popen[str]") -> str:
        """Wait for the end of a command, compare its output, and return its messages."""
        _, messages = process.communicate(timeout=300)
        assert process.returncode == 0, messages
        assert self.output.read_bytes() == self.expected and not self.output.with_name("out.blocks").exists()
        return messages


@pytest.fixture
def command(tmp_path: Path) -> SlowCommand:
    pairs, output, expected = write_block_pairs(tmp_path / "pairs.tsv"), tmp_path / "out", tmp_path / "expected"
    arguments = [str(digits_run().run), str(pairs)]
    assert predict.main([*arguments, "--output", str(expected)]) == 0
    flags = ["predict", *arguments, "--on", "ray", "--output", str(output)]
    return SlowCommand(flags, output, expected.read_bytes())


def test_a_killed_command_continues_with_the_finished_blocks(command: SlowCommand) -> None:
    """Its cluster ends soon after it: a block may still be finished meanwhile."""
    first = command.start("local")
    command.wait_for_blocks(2)
    first.kill()
    first.communicate()
    assert 2 <= command.num_finished() < NUM_BLOCKS and not command.output.exists()
    time.sleep(5)  # its workers end
    computed = command.output.with_name("computed")
    computed.unlink()
    messages = command.finish(command.start("local"))
    earlier = int(messages.partition(" of them finished earlier")[0].rpartition(", ")[2])
    assert earlier >= 2 and computed.read_text().count("block") == NUM_BLOCKS - earlier


@pytest.fixture
def two_machines(command: SlowCommand, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of this machine, to which another one on the same computer is added."""
    for name, value in command.environment("").items():
        monkeypatch.setenv(name, value)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def test_other_machines_compute_the_blocks_of_a_killed_one(command: SlowCommand, two_machines: Cluster) -> None:
    machine = two_machines.add_node(num_cpus=1)
    process = command.start(two_machines.address)
    command.wait_for_blocks(2)
    two_machines.remove_node(machine, allow_graceful=False)
    messages = command.finish(process)
    assert "2 processes on a cluster of 2 machines" in messages
    assert "a process or a machine of the cluster has died; Ray repeats its blocks" in messages
