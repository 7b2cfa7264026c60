"""predict, score and evaluate --on ray on a cluster of this machine: the same bytes, also if a process is killed."""

import importlib.util
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

if importlib.util.find_spec("ray") is None:
    pytest.skip("needs Ray", allow_module_level=True)

from ray_blocks import (
    KILLED,
    LINES_PER_BLOCK,
    WORKER_PATH,
    DyingProcessor,
    FailingProcessor,
    write_block_pairs,
)
from trained_runs import digits_run

from pellucid.cli import line_blocks
from pellucid.cluster.ray_connection import ray_connection
from pellucid.decoding import streaming
from pellucid.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, about its own functions


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster of this machine for several commands, and the file that a killed process leaves."""
    killed = tmp_path_factory.mktemp("on_ray") / "killed"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PYTHONPATH": WORKER_PATH, "RAY_ADDRESS": "local", KILLED: str(killed)}.items():
            patch.setenv(name, value)
        with ray_connection("tests"):
            yield killed


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_block_pairs(tmp_path / "pairs.tsv")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_SOURCES", LINES_PER_BLOCK)


def run_main(subcommand: str, *arguments: object) -> None:
    assert import_module(f"pellucid.cli.{subcommand}").main(list(map(str, arguments))) == 0


@pytest.mark.usefixtures("cluster", "small_blocks")
@pytest.mark.parametrize(
    ("subcommand", "flags"),
    [("predict", ()), ("predict", ("-f", "csv")), ("predict", ("-f", "jsonl")), ("score", ("-f", "tsv"))],
)
def test_outputs_equal_those_of_one_machine(
    subcommand: str, flags: tuple[str, ...], pairs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_main(subcommand, digits_run().run, pairs, *flags)
    expected = capfd.readouterr()
    run_main(subcommand, digits_run().run, pairs, *flags, "--on", "ray", "--output", tmp_path / "out")
    found = capfd.readouterr()
    assert (tmp_path / "out").read_text("utf-8") == expected.out
    assert found.out == "" and not (tmp_path / "out.blocks").exists()
    progress = "pellucid: --on ray: "  # how many messages of progress there are depends on the time
    assert found.err.startswith(f"{progress}8 blocks; ")
    messages = [line for line in found.err.splitlines() if not line.startswith(progress)]
    assert messages == expected.err.splitlines()


@pytest.mark.usefixtures("cluster", "small_blocks")
def test_an_evaluation_equals_that_of_one_machine(
    pairs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reports = list[dict[str, object]]()
    for flags in ((), ("--on", "ray", "--blocks", tmp_path / "blocks")):
        run_main("evaluate", digits_run().run, pairs, "--json", *flags)
        reports.append({**json.loads(capfd.readouterr().out), "seconds": 0})
    assert reports[0] == reports[1] and not (tmp_path / "blocks").exists()


@pytest.mark.usefixtures("cluster", "small_blocks")
def test_a_block_of_a_killed_process_is_computed_again(
    pairs: Path, tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "expected"
    run_main("predict", digits_run().run, pairs, "--output", output)
    monkeypatch.setattr(line_blocks, "LineBlockProcessor", DyingProcessor)
    run_main("predict", digits_run().run, pairs, "--on", "ray", "--output", tmp_path / "out")
    assert cluster.exists()
    assert (tmp_path / "out").read_bytes() == output.read_bytes()


@pytest.mark.usefixtures("cluster", "small_blocks")
def test_an_error_of_the_user_is_reported_as_on_one_machine(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_blocks, "LineBlockProcessor", FailingProcessor)
    with pytest.raises(InputError) as error:
        run_main("predict", digits_run().run, pairs, "--on", "ray", "--output", tmp_path / "out")
    assert str(error.value) == f"the run {digits_run().run.name} cannot decode six six"
    finished = [path.name for path in (tmp_path / "out.blocks").glob("output-*")]
    assert {"output-00000000", "output-00000001"} <= {*finished} and "output-00000002" not in finished
