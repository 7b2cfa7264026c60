"""The benchmark of peers works without any installed peer."""

import argparse
import itertools
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.peers import figure, install, measure, pronunciations, run, table, worker
from benchmarks.peers.cases import CASES, NUM_DIGITS, Cell, Task
from benchmarks.peers.data import BenchmarkData, append_suffix, split_symbols, write_data, write_sources
from benchmarks.peers.measure import (
    Command,
    MeasurementError,
    UpdateTime,
    block_rates,
    median_rate,
    read_update_times,
    run_command,
)
from benchmarks.peers.measurement_queue import BenchmarkPlan, MeasurementQueue
from benchmarks.peers.results import Record, Results
from benchmarks.peers.systems import SYSTEMS, pellucid
from benchmarks.peers.systems.system import Job, System
from pellucid.config.toml import load_config
from pellucid.data.examples import Example
from pellucid.training import events

MAKEFILE = Path(__file__).parents[1] / "Makefile"


def makefile_arguments(script: str) -> list[str]:
    text = MAKEFILE.read_text("utf-8").replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if f"benchmarks/peers/{script}" in line]
    return line.partition(script)[2].split()


def test_the_makefile_calls_the_benchmark_with_its_options() -> None:
    options = run.build_parser().parse_args(makefile_arguments("run.py"))
    assert options.jobs == 2 and options.system == list(SYSTEMS)


def test_the_makefile_compares_pronunciations_of_the_data_in_the_repository() -> None:
    options = pronunciations.build_parser().parse_args(makefile_arguments("pronunciations.py"))
    assert len(pronunciations.read_pairs(MAKEFILE.parent / options.train)) == 10_000
    references = pronunciations.read_references(MAKEFILE.parent / options.test)
    assert references["warehouses"] == {"W EH R HH AW Z IH Z", "W EH R HH AW S IH Z"}


def python_command(program: str, folder: Path, **environment: str) -> Command:
    return Command([sys.executable, "-c", program], folder, environment)


def write_results(path: Path, *records: Record) -> Results:
    results = Results(path / "results.json")
    results.machine = run.describe_machine(argparse.Namespace(jobs=1, seconds=10.0))
    for each_record in records:
        results.add(each_record)
    return results


def make_record(system: str, task: Task, rate: float | None, repeat: int = 0, cell: Cell = "gru") -> Record:
    return Record("tiny", cell, system, task, repeat, rate, reason="" if rate else "it broke\nlast line")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BenchmarkData:
    monkeypatch.setattr("benchmarks.peers.data.TRAIN_PAIRS", 5)
    return write_data(tmp_path / "data")


def test_rates_exclude_the_first_block() -> None:
    # The first two updates are slow; the other four take half a second each.
    updates = [UpdateTime(0, cpu) for cpu in (5.0, 9.0, 9.5, 10.0, 10.5, 11.0)]
    assert block_rates(updates, block=2, batch=10) == [20.0, 20.0]
    assert median_rate([1.0, 30.0, 2.0]) == 2.0


def test_rates_of_blocks_of_one_update_exclude_two_updates() -> None:
    assert block_rates([UpdateTime(0, cpu) for cpu in (9.0, 9.5, 10.0, 10.25)], block=1, batch=1) == [2.0, 4.0]


def test_too_few_updates_have_no_rate() -> None:
    assert block_rates([UpdateTime(0, 1.0)] * 3, block=2, batch=10) == []
    with pytest.raises(MeasurementError, match="too few"):
        median_rate([])


@pytest.mark.parametrize(("updates", "block", "rounded"), [(0.0, 20, 60), (41.0, 20, 80), (7.0, 3, 12), (6.0, 3, 9)])
def test_trainings_have_complete_blocks(updates: float, block: int, rounded: int) -> None:
    assert worker.round_to_blocks(updates, block) == rounded


def test_files_have_complete_batches_and_growth_is_bounded() -> None:
    assert [worker.round_to_batches(count) for count in (0.0, 64.0, 65.0)] == [64, 64, 128]
    assert [worker.growth_factor(10.0, seconds) for seconds in (5.0, 0.0, -1.0)] == [
        2.0,
        worker.MAX_GROWTH,
        worker.MAX_GROWTH,
    ]


@pytest.mark.parametrize(
    ("name", "log", "updates", "parameters"),
    [
        ("joeynmt", "Total params: 2480\nEpoch 1, Step:       20, Batch\nEpoch 1, Step:       60, Batch", 60, 2480),
        ("opennmt", "* number of parameters: 2476\nStep 20/   60; acc: 9\nStep 60/   60; acc: 9", 60, 2476),
        ("eole", "encoder: 510\n* number of parameters: 2,394\nStep 40/   60; acc", 40, 2394),
        ("yoyodyne", "Trainable parameters: 2,197\n`Trainer.fit` stopped: `max_steps=60` reached.", 60, 2197),
        ("pellucid", "new run, 2,654 parameters, 16 source\nstopped: it; best at update 180, 9 s", 180, 2654),
    ],
)
def test_logs_are_parsed(name: str, log: str, updates: int, parameters: int) -> None:
    assert (SYSTEMS[name].parse_updates(log), SYSTEMS[name].parse_parameters(log)) == (updates, parameters)
    assert (SYSTEMS[name].parse_updates("nothing"), SYSTEMS[name].parse_parameters("nothing")) == (None, None)


def test_outputs_have_one_character_per_symbol(tmp_path: Path) -> None:
    path = tmp_path / "outputs"
    path.write_text("1 2 <unk> 3\n\n12<unk>\n", "utf-8")
    assert SYSTEMS["opennmt"].read_outputs(path) == ["12?3", "", "12?"]
    path.write_text("12\t-0.5\t13\t-0.7\n1\t-1\n", "utf-8")
    assert SYSTEMS["yoyodyne"].read_outputs(path) == ["12", "1"]


def test_every_format_has_the_same_pairs(data: BenchmarkData) -> None:
    rows = [line.split("\t") for line in data.train.tsv.read_text("utf-8").splitlines()]
    assert len(rows) == 5 and all(len(target) == NUM_DIGITS for _, target in rows)
    assert append_suffix(data.train.plain, "src").read_text("utf-8").splitlines() == [source for source, _ in rows]
    assert append_suffix(data.train.symbols, "trg").read_text("utf-8").splitlines() == [
        " ".join(target) for _, target in rows
    ]
    assert split_symbols("one two") == "o n e ▁ t w o"
    longer, shorter = write_sources(data, 3), write_sources(data, 2)
    assert longer.tsv.read_text("utf-8").startswith(shorter.tsv.read_text("utf-8"))
    assert "\t" not in longer.tsv.read_text("utf-8")


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_commands_have_sizes_and_cell(name: str, cell: Cell, data: BenchmarkData, tmp_path: Path) -> None:
    job = Job(CASES["small"], cell, data, tmp_path / name, tmp_path / "bin" / "python")
    command = SYSTEMS[name].train_command(job, 7)
    settings = next(path for path in map(Path, command.arguments) if path.suffix in (".yaml", ".toml"))
    assert "128" in settings.read_text("utf-8") and cell in settings.read_text("utf-8").lower()
    (job.folder / "model").mkdir(exist_ok=True)
    (job.folder / "model" / "m_step_7.pt").touch()
    assert str(5) in " ".join(SYSTEMS[name].decode_command(job, 3, 5, tmp_path / "out").arguments)


def test_yoyodyne_searches_with_the_beam_size_by_its_own_name(data: BenchmarkData, tmp_path: Path) -> None:
    job = Job(CASES["small"], "gru", data, tmp_path, tmp_path / "bin" / "python")
    command = SYSTEMS["yoyodyne"].decode_command(job, 3, 5, tmp_path / "out")
    settings = json.loads(Path(command.arguments[-1]).read_text("utf-8"))
    assert settings["model"]["init_args"]["beam_width"] == 5


def test_settings_of_pellucid_are_valid(data: BenchmarkData, tmp_path: Path) -> None:
    SYSTEMS["pellucid"].train_command(Job(CASES["tiny"], "lstm", data, tmp_path, Path(sys.executable)), 150)
    config = load_config(tmp_path / "train.toml", {})
    assert config.training.epochs == pytest.approx(1.5)
    assert (config.search.min_length, config.search.max_length) == (NUM_DIGITS, NUM_DIGITS)
    assert (config.encoder.hidden_size, config.decoder.hidden_size, config.threads) == (5, 10, 1)


def test_command_is_measured(tmp_path: Path) -> None:
    program = "import os; x = sum(range(3_000_000)); print(os.environ['OMP_NUM_THREADS'], os.environ['A'])"
    result = run_command(python_command(program, tmp_path, A="b"), tmp_path / "log", limit=60)
    assert result.log == "1 b\n" and result.updates == []
    assert 0 < result.cpu < 30 and result.wall > 0 and result.peak_mib > 1


def test_failing_and_long_commands_raise_errors(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"exit code 3; the reason"):
        run_command(python_command("print('the reason'); exit(3)", tmp_path), tmp_path / "log", limit=60)
    with pytest.raises(MeasurementError, match=r"stopped after 0 s"):
        run_command(python_command("import time; time.sleep(60)", tmp_path), tmp_path / "log", limit=0.3)


def test_a_running_command_is_watched(tmp_path: Path) -> None:
    seconds: list[float] = []
    command = python_command("import time; time.sleep(60)", tmp_path)
    with pytest.raises(measure.TimeLimitError):
        run_command(command, tmp_path / "log", limit=0.3, watch=seconds.append)
    assert seconds == sorted(seconds) and seconds[0] < 0.3 < seconds[-1]


def test_optimizer_hook_records_updates(tmp_path: Path) -> None:
    package = tmp_path / "torch" / "optim"
    package.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "optimizer.py").write_text("hooks = []\nregister_optimizer_step_post_hook = hooks.append\n")
    program = "from torch.optim.optimizer import hooks; [hook(None, (), {}) for hook in hooks * 3]"
    result = run_command(python_command(program, tmp_path, PYTHONPATH=str(tmp_path)), tmp_path / "log", limit=60)
    assert len(result.updates) == 3 and result.updates == read_update_times(tmp_path / "log.updates")
    assert result.started < result.updates[0].wall <= result.updates[-1].wall < result.started + result.wall
    assert 0 < result.updates[0].cpu <= result.updates[-1].cpu <= result.cpu + 0.02


def test_method_hook_records_updates(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from typing import NamedTuple\nclass Stepped(NamedTuple):\n    loss: float\n")
    program = "from own import Stepped; print([Stepped(2.0), Stepped(loss=3.0)])"
    command = python_command(program, tmp_path, PYTHONPATH=str(tmp_path), PEERS_UPDATES="own:Stepped.__new__")
    result = run_command(command, tmp_path / "log", limit=60)
    assert result.log == "[Stepped(loss=2.0), Stepped(loss=3.0)]\n" and len(result.updates) == 2


def test_update_hook_of_pellucid_exists() -> None:
    assert pellucid.UPDATE_HOOK["PEERS_UPDATES"] == f"{events.__name__}:{events.UpdateCompleted.__name__}.__new__"


def test_stopping_the_benchmark_kills_child_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "CHILDREN", children := measure.ChildProcesses())
    errors: list[BaseException] = []

    def run_waiting_command() -> None:
        try:
            run_command(python_command("import time; time.sleep(60)", tmp_path), tmp_path / "log", limit=60)
        except measure.BenchmarkStoppedError as error:
            errors.append(error)

    thread = threading.Thread(target=run_waiting_command)
    thread.start()
    while not children.running and thread.is_alive():
        time.sleep(0.01)
    (child,) = children.running
    children.stop()
    thread.join(10)
    assert len(errors) == 1 and not children.running
    with pytest.raises(ProcessLookupError):
        os.kill(child, signal.SIGCONT)
    with pytest.raises(measure.BenchmarkStoppedError):
        run_command(python_command("", tmp_path), tmp_path / "log", limit=60)


def test_priority_of_the_session_of_the_system_is_left_alone() -> None:
    """Process 1 may be in no session with a priority of its own; its file is empty then."""
    measure.copy_priority("1", str(os.getpid()))


def test_results_are_stored_and_failures_are_measured_again(tmp_path: Path) -> None:
    good, bad = make_record("joeynmt", "train", 2.0), make_record("eole", "train", None)
    write_results(tmp_path, good, bad)
    stored = Results(tmp_path / "results.json")
    assert stored.records == [good, bad]
    assert (stored.is_measured(good.key), stored.is_measured(bad.key)) == (True, False)
    stored.add(make_record("eole", "train", 3.0))
    assert [one.rate for one in Results(tmp_path / "results.json").records] == [2.0, 3.0]


def test_queue_records_why_a_system_is_missing(data: BenchmarkData, tmp_path: Path) -> None:
    results = write_results(tmp_path, make_record("eole", "greedy", 3.0))
    plan = BenchmarkPlan(["tiny"], ["eole"], ["start", "train", "greedy"], 1, tmp_path, data, {"eole": "not installed"})
    messages: list[str] = []
    MeasurementQueue(plan, ["gru"], worker.MeasurementOptions(1.0, 1.0, None), results).run(messages.append)
    assert [(one.task, one.reason) for one in results.records] == [("greedy", ""), ("train", "not installed")]
    assert "not installed" in messages[-1]
    assert plan.ordered_tasks == ["train", "greedy"]


def test_systems_alternate() -> None:
    data = BenchmarkData(None, None, None)  # type: ignore[arg-type]
    plan = BenchmarkPlan(["tiny", "large"], ["eole", "pellucid"], ["train", "beam"], 2, Path(), data, {})
    queue = MeasurementQueue(plan, ["gru"], worker.MeasurementOptions(1.0, 1.0, None), None)  # type: ignore[arg-type]
    keys = [one.key for one in queue.planned_records("gru")]
    assert len(keys) == len(set(keys)) == 16
    assert [key[2] for key in keys] == ["eole", "pellucid"] * 8
    assert keys[4] == ("tiny", "gru", "eole", "train", 1)


def test_tables_compare_with_the_best_of_the_others(tmp_path: Path) -> None:
    results = write_results(
        tmp_path,
        make_record("pellucid", "train", 8000.0),
        make_record("pellucid", "train", 9000.0, repeat=1),
        make_record("joeynmt", "train", 1000.0),
        make_record("eole", "train", 850.0),
        make_record("yoyodyne", "train", None),
    )
    text = table.format_tables(results)
    assert "| tiny | GRU | 8,500 | **1,000** | – | 850 | – | 8.50× |" in text
    assert "tiny GRU train, yoyodyne 0.5.27: it broke / last line" in text
    assert "beam" not in text.lower().split("empty cells")[0].replace("yoyodyne", "").split("| case")[1]


def test_ratio_uses_the_minimum_for_memory_and_start() -> None:
    values = {"pellucid": 300.0, "joeynmt": 400.0, "eole": 500.0, "opennmt": None}
    assert (table.compute_ratio(values, "min"), table.compute_ratio(values, "max")) == (0.75, 0.6)
    assert table.compute_ratio({**values, "pellucid": None}, "min") is None
    assert table.compute_ratio({"pellucid": 1.0}, "min") is None


@pytest.mark.slow
def test_figure_is_written_with_rates_only(tmp_path: Path) -> None:
    results = write_results(
        tmp_path, make_record("pellucid", "train", 8000.0), make_record("eole", "beam", 5.0, cell="lstm")
    )
    assert figure.write_figure(results, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text("utf-8").startswith("<?xml")
    assert not figure.write_figure(write_results(tmp_path / "other"), tmp_path / "none.svg")


def test_complete_environment_is_reused(tmp_path: Path) -> None:
    system = SYSTEMS["joeynmt"]
    (tmp_path / "joeynmt").mkdir()
    steps = [install.torch_version(), *map(list, system.pip)]
    (tmp_path / "joeynmt" / install.STAMP).write_text(json.dumps(steps), "utf-8")
    assert install.install(system, tmp_path) == tmp_path / "joeynmt" / "bin" / "python"
    assert install.install(SYSTEMS["pellucid"], tmp_path) == Path(sys.executable)
    assert install.torch_version().startswith("torch==2")


def test_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "NEEDED_BYTES", 2**60)
    with pytest.raises(MeasurementError, match="GiB left"):
        install.install(SYSTEMS["eole"], tmp_path / "environments")


class FakeSystem(System):
    """System that writes fabricated update times and outputs of a given length."""

    name, title = "fake", "Fake"
    symbols: ClassVar[int] = NUM_DIGITS
    relative_speed: ClassVar[dict[Task, float]] = {"train": 1e-3, "greedy": 1e-9}
    parameters_pattern, updates_pattern = r"(\d+) parameters", r"update (\d+)"

    def probe_command(self, python: Path) -> list[str]:
        return [str(python), "-c", ""]

    def train_command(self, job: Job, updates: int) -> Command:
        program = (
            f"import os; t = open(os.environ['PEERS_TICKS'], 'w'); [print(i, i / 8, file=t) for i in range({updates})]"
        )
        return python_command(program, job.folder)

    def decode_command(self, job: Job, count: int, beam: int, output: Path) -> Command:
        program = f"[print('1' * {self.symbols}) for _ in range({count})]; sum(range({count} * 60_000))"
        return python_command(program, job.folder)._replace(stdout=output)


def measure_record(task: Task, system: System, data: BenchmarkData, folder: Path) -> Record:
    result = make_record("fake", task, None)
    result.reason = ""
    worker.Worker(
        Job(CASES["tiny"], "gru", data, folder, Path()), system, worker.MeasurementOptions(0.02, 60, None)
    ).measure(result)
    return result


def test_training_is_measured(data: BenchmarkData, tmp_path: Path) -> None:
    result = measure_record("train", FakeSystem(), data, tmp_path / "work")
    assert (result.rate, result.raw["updates"], result.start_cpu) == (800.0, 60, 0.0)
    assert (tmp_path / "work" / "trained").read_text("utf-8") == "60"
    assert measure_record("start", FakeSystem(), data, tmp_path / "work").raw["updates"] == worker.START_UPDATES


def test_decoding_uses_the_trained_network(data: BenchmarkData, tmp_path: Path) -> None:
    result = measure_record("greedy", FakeSystem(), data, tmp_path / "work")
    assert result.rate and result.rate > 0 and result.raw["model_updates"] == 60
    assert result.raw["sentences"][0] == 64 and len(result.raw["process_cpu_seconds"]) == 3
    (tmp_path / "work" / "trained").write_text("7", "utf-8")
    assert measure_record("greedy", FakeSystem(), data, tmp_path / "work").raw["model_updates"] == 7


@pytest.mark.parametrize("symbols", [0, 21])
def test_outputs_of_other_lengths_are_rejected(
    symbols: int, data: BenchmarkData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSystem, "symbols", symbols)
    with pytest.raises(MeasurementError, match=f"outputs of {symbols} symbols instead of 20"):
        measure_record("greedy", FakeSystem(), data, tmp_path / "work")


def test_a_pronunciation_is_correct_if_it_is_one_of_the_references(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv"
    path.write_text("tomato\tT AH M EY T OW\ntomato\tT AH M AA T OW\nof\tAH V\nto\tT UW\n", "utf-8")
    references = pronunciations.read_references(path)
    assert references["tomato"] == {"T AH M EY T OW", "T AH M AA T OW"} and len(references) == 3
    outputs = {"tomato": "T AH M AA T OW", "of": "AH F"}  # one right, one wrong, one without an output
    table = pronunciations.format_table([pronunciations.SystemResult("a system", outputs, 1.25)], references)
    assert table.splitlines()[-1] == "| a system | 66.67 | 20.77 to 93.85 | 1.2 |"


def test_a_failed_system_has_empty_cells_and_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "NEEDED_BYTES", 2**60)
    arguments = ["--train", "a", "--test", "b", "--out", str(tmp_path), "--environments", str(tmp_path)]
    result = pronunciations.try_phonetisaurus(pronunciations.build_parser().parse_args(arguments), ["of"], tmp_path)
    lines = pronunciations.format_table([result], {"of": {"AH V"}}).splitlines()
    assert "| Phonetisaurus 0.3.0 | – | – | – |" in lines and "GiB left" in lines[-1]


def test_phonetisaurus_is_trained_and_decodes_through_its_program(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    program = python.parent / "phonetisaurus"
    program.write_text('#!/bin/sh\n[ "$1" = predict ] && sed "s/$/ X Y/"\n[ "$1" = predict ] || cat "$4"\n', "utf-8")
    program.chmod(0o755)
    result = pronunciations.run_phonetisaurus(python, [Example("of", "AH V")], ["of", "to"], tmp_path / "files")
    assert result.outputs == {"of": "X Y", "to": "X Y"} and result.training_wall is not None
    assert (tmp_path / "files" / "train.log").read_text("utf-8") == "of AH V\n"


def test_the_pair_ngram_model_pronounces_words_like_those_that_it_was_fitted_to(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    words = ["".join(letters) for letters in itertools.product("bdk", "aio", "nst")]
    path.write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in words), "utf-8")
    result = pronunciations.run_pair_ngram(path, ["ban", "kot"])
    assert result.outputs == {"ban": "B A N", "kot": "K O T"} and result.training_seconds is not None
