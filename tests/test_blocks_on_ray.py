"""Blocks without a model on a cluster of this machine: their processes, and the messages about those that fail."""

import importlib.util
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("needs Ray", allow_module_level=True)

from reporting_blocks import SETTING, make_reporting_processor

from pellucid.cli.block_progress import process_on_cluster
from pellucid.cluster.block_folder import BlockFolder, locked_block_folder
from pellucid.cluster.block_pool import BlockJob, _dataset
from pellucid.cluster.ray_connection import ClusterError, ray_connection
from pellucid.cluster.ray_pool import JobResources
from pellucid.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, about its own functions
TESTS = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Start a cluster of this machine whose processes find the modules of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS.parent)]))
        with ray_connection("tests", "local"):
            yield


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[BlockFolder]:
    """Return a folder with three blocks, of which the last is bad."""
    with locked_block_folder(tmp_path / "b", {"the file": "abc"}) as result:
        for number, content in enumerate((b"a", b"b", b"bad")):
            result.write_input(number, content)
        yield result


def test_processes_have_the_threads_and_the_variables_of_the_command(
    folder: BlockFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as PELLUCID_PLAIN, which disables the compiled kernels; a process has no more CPUs than the machine."""
    monkeypatch.setenv(SETTING, "7")
    process_on_cluster(BlockJob(folder, make_reporting_processor), "cpu", [0, 1], 3)
    assert [folder.read_output(number) for number in (0, 1)] == [b"a 1 7", b"b 1 7"]
    assert list(folder.finished_numbers()) == [0, 1] and not folder.has_started_blocks()
    with pytest.raises(InputError, match="the block is bad"):
        process_on_cluster(BlockJob(folder, make_reporting_processor, JobResources(1000)), "cpu", [2], 3)


def test_blocks_wait_for_free_cpus_without_a_limit(folder: BlockFolder) -> None:
    blocks = _dataset(BlockJob(folder, make_reporting_processor), [0], 1)
    assert blocks.context.execution_no_progress_timeout_s == -1


def test_a_package_that_a_machine_lacks_is_named(
    folder: BlockFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process has the module, and the processes of the cluster have not."""
    (tmp_path / "only_here.py").write_text("def make_processor(threads): return bytes.upper\n")
    monkeypatch.syspath_prepend(tmp_path)
    job = BlockJob(folder, import_module("only_here").make_processor)
    with pytest.raises(ClusterError, match=r"No module named 'only_here'.*: all machines need the same versions"):
        process_on_cluster(job, "cpu", [0], 3)


def test_a_folder_that_no_command_holds_is_refused(tmp_path: Path) -> None:
    """A process sees that the lock of the command is missing, as on a machine that does not share the folder."""
    job = BlockJob(BlockFolder(tmp_path), make_reporting_processor)
    with pytest.raises(InputError, match="does not see the files of the machine"):
        process_on_cluster(job, "cpu", [0], 1)
