"""predict, score and evaluate --on ray, with blocks that this process computes in place of a cluster.

The outputs equal those without --on ray byte for byte, in whatever order blocks are finished; a command that died
continues; and a folder of another command is refused. `test_on_ray.py` computes blocks on a cluster.
"""

import gzip
import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow
import pytest
from pyarrow import parquet
from task_cases import make_examples, task_run
from trained_runs import copy_run_folder, digits_run, write_pairs

from pellucid.cli import backend, evaluate, evaluation_blocks, line_blocks, predict
from pellucid.cli.backend import BackendChoice, BackendPlan, ChosenBackends, PredictionBackend
from pellucid.cli.line_blocks import FinishedLines, LineBlock, WrittenBlocks, join_line_blocks, write_line_blocks
from pellucid.cli.predict_arguments import PredictArguments, configure_predictor
from pellucid.cli.score import PairScorer
from pellucid.cli.sources import LineChunk
from pellucid.cluster.block_folder import BlockFolder, BlockNumbers
from pellucid.cluster.block_pool import BlockJob
from pellucid.cluster.ray_connection import ClusterError
from pellucid.config.settings import Device, TaskName
from pellucid.data.examples import Example
from pellucid.data.readers import BadLine
from pellucid.decoding import streaming
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.dependencies import MissingDependencyError
from pellucid.errors import ConfigError, DataError, InputError, RunError

LINES = ["one two", "", "three", "nine é", "four five six", "two", "seven", "eight nine", "zero", "one", "six six"]
TARGETS = ["12", "", "3", "9", "456", "2", "7", "89", "0", "1", "66"]


class LocalCluster:
    """Computes blocks in this process, the last one first; it fails after some blocks, as a killed command does."""

    def __init__(self, max_blocks: int = 1000) -> None:
        self.max_blocks, self.computed = max_blocks, list[int]()

    def process(self, job: BlockJob, device: Device, unfinished: Sequence[int], num_blocks: int) -> None:
        processor = job.make_processor(job.resources.cpus)
        for number in sorted(unfinished, reverse=True):
            if len(self.computed) == self.max_blocks:
                raise ClusterError("killed")
            job.folder.write_output(number, processor(job.folder.read_input(number)))
            self.computed.append(number)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """Compute blocks of four lines in this process, as if Ray were installed."""
    local = LocalCluster()
    monkeypatch.setattr(streaming, "MAX_SOURCES", 4)
    monkeypatch.setattr("pellucid.cli.cluster_flags.require_package", lambda *arguments: None)
    for module in (line_blocks, evaluation_blocks):
        monkeypatch.setattr(module, "process_on_cluster", local.process)
    return local


def run_main(subcommand: str, *arguments: object) -> None:
    assert import_module(f"pellucid.cli.{subcommand}").main(list(map(str, arguments))) == 0


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Return files of sources and of pairs, and of their prefixes."""
    paths = {name: tmp_path / name for name in ("sources.txt", "pairs.tsv", "bad.tsv", "prefixes.txt")}
    pairs = [f"{source}\t{target}" if source else "" for source, target in zip(LINES, TARGETS, strict=True)]
    contents = {"sources.txt": LINES, "pairs.tsv": pairs, "bad.tsv": [*pairs[:6], "a\tb\tc\td", *pairs[6:]]}
    contents["prefixes.txt"] = [target[:1] for target in TARGETS]
    for name, lines in contents.items():
        paths[name].write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return paths


COMMANDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "text": ("predict", "sources.txt", ()),
    "csv": ("predict", "bad.tsv", ("-f", "csv", "--on-bad-line", "skip")),
    "tsv": ("predict", "pairs.tsv", ("-f", "tsv", "--beam-size", "2")),
    "jsonl": ("predict", "bad.tsv", ("-f", "jsonl", "--on-bad-line", "skip")),
    "n-best": ("predict", "sources.txt", ("-f", "tsv", "--nbest", "3")),
    "samples": ("predict", "sources.txt", ("-f", "csv", "--sample", "2", "--seed", "3")),
    "accepted": ("predict", "sources.txt", ("-f", "csv", "--min-confidence", "0.5")),
    "prefixes": ("predict", "sources.txt", ("--prefixes", "prefixes.txt")),
    "lexicon": ("predict", "sources.txt", ("-f", "csv", "--lexicon", "lexicon.tsv")),
    "scores": ("score", "pairs.tsv", ()),
    "scores as csv": ("score", "bad.tsv", ("-f", "csv", "--on-bad-line", "skip")),
    "scores as jsonl": ("score", "pairs.tsv", ("-f", "jsonl")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_outputs_and_notes_equal_those_of_one_machine(
    name: str,
    cluster: LocalCluster,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lexicon.tsv").write_text("two\t22\nsix six\t6\n")
    subcommand, file, flags = COMMANDS[name]
    run_main(subcommand, digits_run().run, files[file], *flags)
    expected = capsys.readouterr()
    run_main(subcommand, digits_run().run, files[file], *flags, "--on", "ray", "--output", "out")
    found = capsys.readouterr()
    assert (tmp_path / "out").read_bytes().decode() == expected.out and expected.out.count("\n") >= len(LINES)
    assert found.out == "" and found.err == expected.err
    assert cluster.computed == [2, 1, 0] and not (tmp_path / "out.blocks").exists()


def test_blocks_have_the_backend_that_one_process_would_choose(
    cluster: LocalCluster,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first lines are computed in NumPy, all from the chunk with source 6 on in PyTorch."""
    monkeypatch.setattr(PredictionBackend, "_needs_pytorch", lambda *arguments: False)  # as if it were not loaded
    monkeypatch.setattr(backend, "MIN_SOURCES_TO_LOAD", 6)
    choices = list[bool]()
    load_predictor = backend.ChosenBackends.predictor

    def record_choice(
        chosen: backend.ChosenBackends, choice: backend.BackendChoice
    ) -> AbstractContextManager[BasePredictor]:
        choices.append(choice.pytorch)
        return load_predictor(chosen, choice)

    monkeypatch.setattr(backend.ChosenBackends, "predictor", record_choice)
    command = ("predict", digits_run().run, files["sources.txt"], "-f", "jsonl")
    run_main(*command)
    expected = capsys.readouterr().out
    run_main(*command, "--on", "ray", "--output", tmp_path / "o")
    assert (tmp_path / "o").read_text("utf-8") == expected and choices == [True, True, False]


def test_a_predictor_has_the_threads_that_its_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of the run, of which 0 stands for all cores of the machine."""
    threads = list[int]()
    monkeypatch.setattr("pellucid.model.device.use_threads", threads.append)
    chosen = ChosenBackends([digits_run().run], "cpu", lambda predictor: predictor, 3)
    with chosen.predictor(BackendChoice(pytorch=True, kernels=False)):
        assert threads == [3]


def test_the_same_command_continues_after_it_died_and_another_one_is_refused(
    cluster: LocalCluster,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PELLUCID_PLAIN", raising=False)
    output, run = tmp_path / "out", digits_run().run
    command = ("predict", run, files["sources.txt"], "--on", "ray", "--output", output)
    cluster.max_blocks = 1
    with pytest.raises(ClusterError):
        run_main(*command)
    assert not output.exists() and cluster.computed == [2]
    for flags in (("--beam-size", "3"), ("--on-bad-line", "skip")):
        message = r"out.blocks has the blocks of another command \(different: the flags\)"
        with pytest.raises(RunError, match=message):
            run_main(*command, *flags)
    with pytest.raises(RunError, match="different: the input"):
        run_main("predict", run, files["pairs.tsv"], "--on", "ray", "--output", output)
    with monkeypatch.context() as plain, pytest.raises(RunError, match="different: the variable PELLUCID_PLAIN"):
        plain.setenv("PELLUCID_PLAIN", "1")
        run_main(*command)
    cluster.max_blocks = 1000
    run_main(*command)
    assert cluster.computed == [2, 1, 0] and not (tmp_path / "out.blocks").exists()
    run_main("predict", run, files["sources.txt"])
    assert output.read_text("utf-8") == capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"), [(b"\x81", "block 3 of .* is damaged"), (None, "outputs of 12 lines, and the input has 11")]
)
def test_a_damaged_block_is_not_used(
    content: bytes | None, message: str, cluster: LocalCluster, files: dict[str, Path], tmp_path: Path
) -> None:
    """Neither a block that cannot be read, nor one with other lines."""
    command = ("predict", digits_run().run, files["sources.txt"], "--on", "ray", "--output", tmp_path / "out")
    cluster.max_blocks = 2
    with pytest.raises(ClusterError):
        run_main(*command)
    blocks = tmp_path / "out.blocks"
    (blocks / "output-00000002").write_bytes(content or (blocks / "output-00000001").read_bytes())
    cluster.max_blocks = 1000
    with pytest.raises(RunError, match=f"{message}.*: remove the folder, and run the command again"):
        run_main(*command)
    assert not (tmp_path / "out").exists()


def test_mistakes_are_reported_before_anything_is_decoded(
    cluster: LocalCluster, files: dict[str, Path], tmp_path: Path
) -> None:
    run, ray = digits_run().run, ("--on", "ray", "--output", tmp_path / "out")
    with pytest.raises(DataError, match=r"bad\.tsv:7: .*--on-bad-line skip writes an empty output"):
        run_main("predict", run, files["bad.tsv"], *ray)
    files["prefixes.txt"].write_text("1\n" * 12)
    with pytest.raises(DataError, match=r"prefixes\.txt:12: there is no input line 12"):
        run_main(
            "predict",
            run,
            files["sources.txt"],
            "--prefixes",
            files["prefixes.txt"],
            "--on",
            "ray",
            "--output",
            tmp_path / "p",
        )
    with pytest.raises(ConfigError, match="--on ray requires --output FILE"):
        run_main("score", run, files["pairs.tsv"], "--on", "ray")
    for flags in (("--text",), ("--fill", "1")):
        with pytest.raises(ConfigError, match=f"--on ray writes one output per line or row: it excludes {flags[0]}"):
            run_main("predict", run, files["sources.txt"], *flags, *ray)
    with pytest.raises(ConfigError, match="--on ray reads a file"):
        run_main("predict", run, "-", *ray)
    with pytest.raises(ConfigError, match="--on ray requires --blocks DIR"):
        run_main("evaluate", run, files["pairs.tsv"], "--on", "ray")
    with pytest.raises(ConfigError, match="--blocks requires --on ray"):
        run_main("evaluate", run, files["pairs.tsv"], "--blocks", tmp_path / "b")
    assert cluster.computed == [] and not (tmp_path / "out").exists()


def test_without_ray_the_message_names_the_extra(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.dependencies.find_spec", lambda name: None)
    for subcommand, flag in (("predict", "--output"), ("score", "--output"), ("evaluate", "--blocks")):
        with pytest.raises(MissingDependencyError) as error:
            run_main(subcommand, digits_run().run, files["pairs.tsv"], "--on", "ray", flag, tmp_path / "out")
        message = "--on ray needs the package 'ray', which is not installed: pip install 'pellucid[ray]'"
        assert str(error.value) == message


@pytest.mark.parametrize("flags", [(), ("--nbest", "3"), ("--sample", "2")])
def test_evaluations_equal_those_of_one_machine(
    flags: tuple[str, ...],
    cluster: LocalCluster,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also with an ensemble of the run with itself; a killed evaluation continues."""
    run = digits_run().run
    files["pairs.tsv"].write_text(
        "".join(f"{source}\t{target}\n" for source, target in zip(LINES, TARGETS, strict=True) if source)
    )
    command = (run, files["pairs.tsv"], "--json", "--texts", *flags)
    run_main("evaluate", *command)
    expected = capsys.readouterr()
    monkeypatch.setattr(evaluation_blocks, "ray_connection", lambda operation: nullcontext())
    cluster.max_blocks = 2
    with pytest.raises(ClusterError):
        run_main("evaluate", *command, "--on", "ray", "--blocks", tmp_path / "blocks")
    cluster.max_blocks = 1000
    (finished,) = (tmp_path / "blocks" / "1").glob("output-00000002")
    content = finished.read_bytes()
    finished.write_bytes((tmp_path / "blocks" / "1" / "output-00000001").read_bytes())
    with pytest.raises(RunError, match=r"block 3 of .* is damaged: remove the folder, and run the command again"):
        run_main("evaluate", *command, "--on", "ray", "--blocks", tmp_path / "blocks")
    finished.write_bytes(content)
    run_main("evaluate", *command, "--on", "ray", "--blocks", tmp_path / "blocks")
    found = capsys.readouterr()
    assert cluster.computed == [2, 1, 0] and not (tmp_path / "blocks").exists()
    reports = [json.loads(text.splitlines()[-1]) for text in (expected.out, found.out)]
    for report in reports:
        del report["seconds"]
    assert reports[0] == reports[1]


def test_an_evaluation_whose_results_cannot_be_written_keeps_its_blocks(
    cluster: LocalCluster, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_blocks, "ray_connection", lambda operation: nullcontext())
    files["pairs.tsv"].write_text("one two\t12\nsix\t6\n")
    command = ("evaluate", digits_run().run, files["pairs.tsv"], "--on", "ray", "--blocks", tmp_path / "blocks")
    with monkeypatch.context() as full, pytest.raises(BrokenPipeError):
        full.setattr(evaluate, "_print_tables", raise_broken_pipe)
        run_main(*command)
    run_main(*command)
    assert cluster.computed == [0] and not (tmp_path / "blocks").exists()


def raise_broken_pipe(tables: object) -> None:
    raise BrokenPipeError


@pytest.mark.slow
@pytest.mark.parametrize("task", ["tag", "classify", "point", "tag-and-classify"])
def test_labels_equal_those_of_one_machine(
    task: TaskName,
    cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation_blocks, "ray_connection", lambda operation: nullcontext())
    run, pairs = task_run(task).run, write_pairs(tmp_path / "pairs.tsv", make_examples(task, 10, seed=5))
    run_main("predict", run, pairs, "-f", "jsonl")
    expected = capsys.readouterr().out
    run_main("predict", run, pairs, "-f", "jsonl", "--on", "ray", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text("utf-8") == expected
    reports = list[dict[str, object]]()
    for flags in ((), ("--on", "ray", "--blocks", tmp_path / "blocks")):
        run_main("evaluate", run, pairs, "--json", *flags)
        reports.append({**json.loads(capsys.readouterr().out), "seconds": 0})
    assert reports[0] == reports[1]


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "txt.gz"])
def test_all_formats_of_files_are_read(
    ending: str, cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"sources.{ending}"
    if ending == "parquet":
        parquet.write_table(pyarrow.table({"source": LINES}), file)
    elif ending == "jsonl":
        file.write_text("".join(json.dumps({"source": line}) + "\n" for line in LINES), "utf-8")
    else:
        file.write_bytes(gzip.compress("".join(f"{line}\n" for line in LINES).encode()))
    flags = () if ending == "txt.gz" else ("--source-column", "source")
    run_main("predict", digits_run().run, file, *flags, "-f", "csv")
    expected = capsys.readouterr().out
    run_main("predict", digits_run().run, file, *flags, "-f", "csv", "--on", "ray", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text("utf-8") == expected and expected.count("\n") == len(LINES) + 1


def test_an_ensemble_decodes_on_a_cluster(
    cluster: LocalCluster, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("predict", digits_run().run, digits_run().run, files["sources.txt"], "-f", "tsv")
    run_main(*command)
    expected = capsys.readouterr().out
    run_main(*command, "--on", "ray", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text("utf-8") == expected


@pytest.mark.parametrize("name", ["model.safetensors", "confidence.json", "lexicon.tsv"])
@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_machine_that_loads_other_files_than_the_command_is_reported(
    name: str,
    moment: str,
    cluster: LocalCluster,
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression test: outputs of several models were in one file, if the run was trained meanwhile."""
    run, lexicon, is_during = copy_run_folder(digits_run().run, tmp_path / "run"), tmp_path / "lexicon.tsv", False
    lexicon.write_text("two\t22\n")
    path = lexicon if name == lexicon.name else run / name

    def change_and_process(*arguments: Any) -> None:  # noqa: ANN401
        nonlocal is_during
        is_during = True
        if moment == "before":
            path.write_bytes(path.read_bytes() + b"\n")
        cluster.process(*arguments)

    def configure_and_change(predictor: BasePredictor, args: PredictArguments) -> BasePredictor:
        configured = configure_predictor(predictor, args)
        if moment == "during" and is_during:
            path.write_bytes(path.read_bytes() + b"\n")
        return configured

    monkeypatch.setattr(line_blocks, "process_on_cluster", change_and_process)
    monkeypatch.setattr(predict, "configure_predictor", configure_and_change)
    with pytest.raises(ClusterError, match=rf"{path if name == lexicon.name else run} has changed since the command"):
        run_main(
            *("predict", run, files["sources.txt"], "--lexicon", lexicon, "--on", "ray", "--output", tmp_path / "out")
        )
    assert not (tmp_path / "out").exists()


def test_a_run_in_training_that_has_no_better_model_continues(
    cluster: LocalCluster, files: dict[str, Path], tmp_path: Path
) -> None:
    """Regression test: each checkpoint of the training made the blocks those of another command."""
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    command = ("predict", run, files["sources.txt"], "--on", "ray", "--output", tmp_path / "out")
    cluster.max_blocks = 1
    with pytest.raises(ClusterError, match="killed"):
        run_main(*command)
    (run / "training.safetensors").unlink()
    cluster.max_blocks = 1000
    run_main(*command)
    assert cluster.computed == [2, 1, 0]


def test_a_changed_lexicon_is_named(cluster: LocalCluster, files: dict[str, Path], tmp_path: Path) -> None:
    lexicon = tmp_path / "lexicon.tsv"
    lexicon.write_text("two\t22\n")
    command = ("predict", digits_run().run, files["sources.txt"], "--lexicon", lexicon, "--on", "ray")
    cluster.max_blocks = 1
    with pytest.raises(ClusterError, match="killed"):
        run_main(*command, "--output", tmp_path / "out")
    lexicon.write_text("two\t23\n")
    with pytest.raises(RunError, match=r"another command \(different: the file of --lexicon\)"):
        run_main(*command, "--output", tmp_path / "out")


@pytest.mark.parametrize("flag", ["--source-column", "--features-column"])
def test_a_column_name_that_is_not_utf8_is_a_message(
    flag: str, cluster: LocalCluster, files: dict[str, Path], tmp_path: Path
) -> None:
    """Regression test: a traceback."""
    command = (digits_run().run, files["pairs.tsv"], flag, os.fsdecode(b"caf\xe9"))
    with pytest.raises(InputError) as expected:
        run_main("predict", *command)
    with pytest.raises(InputError) as found:
        run_main("predict", *command, "--on", "ray", "--output", tmp_path / "out")
    assert str(found.value) == str(expected.value)


def test_bad_lines_of_a_file_whose_name_is_not_utf8_are_encoded(tmp_path: Path) -> None:
    """Regression test: the block could not be written."""
    chunk = LineChunk([Example("a", ""), BadLine(os.fsdecode(b"caf\xe9.tsv"), 2, "the source is empty")])
    folder, scorer = BlockFolder(tmp_path), PairScorer("text", None)
    plan = BackendPlan(uses_pytorch=True)
    written = write_line_blocks(folder, iter([chunk]), scorer, plan, cast(BasePredictor, None))
    assert list(written.unfinished) == [0]
    block = msgspec.msgpack.decode(folder.read_input(0), type=LineBlock)
    assert str(block.chunk().items[1]) == "caf\ufffd.tsv:2: the source is empty"


def test_output_is_written_through_a_link(tmp_path: Path) -> None:
    """Regression test: the link was replaced by a file, and the file to which it leads kept its content."""
    file, link, scorer = tmp_path / "file", tmp_path / "link", PairScorer("text", None)
    file.write_text("earlier\n")
    link.symlink_to(file)
    folder = BlockFolder(tmp_path)
    folder.write_output(0, msgspec.msgpack.encode(FinishedLines(b"-0.1\n", scorer.notes.counts())))
    join_line_blocks(folder, WrittenBlocks(1, 0, BlockNumbers()), scorer, link)
    assert link.is_symlink() and file.read_text() == "-0.1\n"


def test_output_without_ray_is_a_file(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, output = digits_run().run, tmp_path / "out"
    run_main("score", run, files["pairs.tsv"])
    expected = capsys.readouterr().out
    run_main("score", run, files["pairs.tsv"], "--output", output)
    assert output.read_text("utf-8") == expected and capsys.readouterr().out == ""
    with pytest.raises(DataError):
        run_main("predict", run, files["bad.tsv"], "--output", output)
    assert output.read_text("utf-8") == expected  # nothing is written
