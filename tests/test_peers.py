"""The benchmark against the peers, as far as it needs none of them."""

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.peers import figure, install, measure, run, table, worker
from benchmarks.peers.cases import CASES, DIGITS, Cell, Task
from benchmarks.peers.data import Data, beside, cut, sources, write_data
from benchmarks.peers.lane import Lane, Plan
from benchmarks.peers.measure import Command, FailedError, Tick, median_rate, rates, read_ticks, run_command
from benchmarks.peers.results import Record, Results
from benchmarks.peers.systems import SYSTEMS, pellucid
from benchmarks.peers.systems.system import Job, System
from pellucid.config.toml import load_config
from pellucid.training import loop


def python(program: str, folder: Path, **environment: str) -> Command:
    return Command([sys.executable, "-c", program], folder, environment)


def results_of(path: Path, *records: Record) -> Results:
    results = Results(path / "results.json")
    results.machine = run.machine(argparse.Namespace(lanes=1, seconds=10.0))
    for record in records:
        results.add(record)
    return results


def record(system: str, task: Task, rate: float | None, repeat: int = 0, cell: Cell = "gru") -> Record:
    return Record("tiny", cell, system, task, repeat, rate, reason="" if rate else "it broke\nlast line")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    monkeypatch.setattr("benchmarks.peers.data.TRAINING", 5)
    return write_data(tmp_path / "data")


def test_rates_leave_the_first_block_out() -> None:
    # Two slow updates, then four of half a second each.
    ticks = [Tick(0, at) for at in (5.0, 9.0, 9.5, 10.0, 10.5, 11.0)]
    assert rates(ticks, block=2, batch=10) == [20.0, 20.0]
    assert median_rate([1.0, 30.0, 2.0]) == 2.0


def test_rates_of_blocks_of_one_leave_two_updates_out() -> None:
    assert rates([Tick(0, at) for at in (9.0, 9.5, 10.0, 10.25)], block=1, batch=1) == [2.0, 4.0]


def test_too_few_updates_are_no_rate() -> None:
    assert rates([Tick(0, 1.0)] * 3, block=2, batch=10) == []
    with pytest.raises(FailedError, match="too few"):
        median_rate([])


@pytest.mark.parametrize(("updates", "block", "whole"), [(0.0, 20, 60), (41.0, 20, 80), (7.0, 3, 12), (6.0, 3, 9)])
def test_trainings_have_whole_blocks(updates: float, block: int, whole: int) -> None:
    assert worker.whole_blocks(updates, block) == whole


def test_files_have_whole_batches_and_grow_with_bounds() -> None:
    assert [worker.whole_batches(count) for count in (0.0, 64.0, 65.0)] == [64, 64, 128]
    assert [worker.longer(10.0, seconds) for seconds in (5.0, 0.0, -1.0)] == [2.0, worker.LONGER, worker.LONGER]


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
def test_logs_are_read(name: str, log: str, updates: int, parameters: int) -> None:
    assert (SYSTEMS[name].updates(log), SYSTEMS[name].parameters(log)) == (updates, parameters)
    assert (SYSTEMS[name].updates("nothing"), SYSTEMS[name].parameters("nothing")) == (None, None)


def test_outputs_are_one_character_a_symbol(tmp_path: Path) -> None:
    path = tmp_path / "outputs"
    path.write_text("1 2 <unk> 3\n\n12<unk>\n", "utf-8")
    assert SYSTEMS["opennmt"].outputs(path) == ["12?3", "", "12?"]
    path.write_text("12\t-0.5\t13\t-0.7\n1\t-1\n", "utf-8")
    assert SYSTEMS["yoyodyne"].outputs(path) == ["12", "1"]


def test_data_are_the_same_pairs_in_every_format(data: Data) -> None:
    rows = [line.split("\t") for line in data.train.tsv.read_text("utf-8").splitlines()]
    assert len(rows) == 5 and all(len(target) == DIGITS for _, target in rows)
    assert beside(data.train.plain, "src").read_text("utf-8").splitlines() == [source for source, _ in rows]
    assert beside(data.train.cut, "trg").read_text("utf-8").splitlines() == [" ".join(target) for _, target in rows]
    assert cut("one two") == "o n e ▁ t w o"
    longer, shorter = sources(data, 3), sources(data, 2)
    assert longer.tsv.read_text("utf-8").startswith(shorter.tsv.read_text("utf-8"))
    assert "\t" not in longer.tsv.read_text("utf-8")


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_commands_can_be_written(name: str, cell: Cell, data: Data, tmp_path: Path) -> None:
    job = Job(CASES["small"], cell, data, tmp_path / name, tmp_path / "bin" / "python")
    command = SYSTEMS[name].train(job, 7)
    settings = next(path for path in map(Path, command.arguments) if path.suffix in (".yaml", ".toml"))
    assert "128" in settings.read_text("utf-8") and cell in settings.read_text("utf-8").lower()
    (job.folder / "model").mkdir(exist_ok=True)
    (job.folder / "model" / "m_step_7.pt").touch()
    assert str(5) in " ".join(SYSTEMS[name].decode(job, 3, 5, tmp_path / "out").arguments)


def test_our_settings_are_settings(data: Data, tmp_path: Path) -> None:
    SYSTEMS["pellucid"].train(Job(CASES["tiny"], "lstm", data, tmp_path, Path(sys.executable)), 150)
    config = load_config(tmp_path / "train.toml", {})
    assert config.training.epochs == pytest.approx(1.5)
    assert (config.search.min_length, config.search.max_length) == (DIGITS, DIGITS)
    assert (config.encoder.hidden_size, config.decoder.hidden_size, config.threads) == (5, 10, 1)


def test_a_command_is_measured(tmp_path: Path) -> None:
    program = "import os; x = sum(range(3_000_000)); print(os.environ['OMP_NUM_THREADS'], os.environ['A'])"
    outcome = run_command(python(program, tmp_path, A="b"), tmp_path / "log", limit=60)
    assert outcome.log == "1 b\n" and outcome.ticks == []
    assert 0 < outcome.cpu < 30 and outcome.wall > 0 and outcome.peak_mib > 1


def test_failures_and_long_commands_have_reasons(tmp_path: Path) -> None:
    with pytest.raises(FailedError, match=r"exit code 3; the reason"):
        run_command(python("print('the reason'); exit(3)", tmp_path), tmp_path / "log", limit=60)
    with pytest.raises(FailedError, match=r"stopped after 0 s"):
        run_command(python("import time; time.sleep(60)", tmp_path), tmp_path / "log", limit=0.3)


def test_updates_are_clocked_by_a_hook(tmp_path: Path) -> None:
    package = tmp_path / "torch" / "optim"
    package.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "optimizer.py").write_text("hooks = []\nregister_optimizer_step_post_hook = hooks.append\n")
    program = "from torch.optim.optimizer import hooks; [hook(None, (), {}) for hook in hooks * 3]"
    outcome = run_command(python(program, tmp_path, PYTHONPATH=str(tmp_path)), tmp_path / "log", limit=60)
    assert len(outcome.ticks) == 3 and outcome.ticks == read_ticks(tmp_path / "log.ticks")
    assert outcome.began < outcome.ticks[0].wall <= outcome.ticks[-1].wall < outcome.began + outcome.wall
    assert 0 < outcome.ticks[0].cpu <= outcome.ticks[-1].cpu <= outcome.cpu + 0.02


def test_updates_are_clocked_by_any_call(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from typing import NamedTuple\nclass Stepped(NamedTuple):\n    loss: float\n")
    program = "from own import Stepped; print([Stepped(2.0), Stepped(loss=3.0)])"
    named = python(program, tmp_path, PYTHONPATH=str(tmp_path), PEERS_UPDATES="own:Stepped.__new__")
    outcome = run_command(named, tmp_path / "log", limit=60)
    assert outcome.log == "[Stepped(loss=2.0), Stepped(loss=3.0)]\n" and len(outcome.ticks) == 2


def test_our_updates_are_clocked() -> None:
    assert pellucid.CLOCKED["PEERS_UPDATES"] == f"{loop.__name__}:{loop.UpdateCompleted.__name__}.__new__"


def test_children_do_not_outlive_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "CHILDREN", children := measure.Children())
    found: list[BaseException] = []

    def waiting() -> None:
        try:
            run_command(python("import time; time.sleep(60)", tmp_path), tmp_path / "log", limit=60)
        except measure.StoppedError as error:
            found.append(error)

    thread = threading.Thread(target=waiting)
    thread.start()
    while not children.running:
        time.sleep(0.01)
    (child,) = children.running
    children.stop()
    thread.join(10)
    assert len(found) == 1 and not children.running
    with pytest.raises(ProcessLookupError):
        os.kill(child, signal.SIGCONT)
    with pytest.raises(measure.StoppedError):
        run_command(python("", tmp_path), tmp_path / "log", limit=60)


def test_results_are_kept_and_failures_tried_again(tmp_path: Path) -> None:
    good, bad = record("joeynmt", "train", 2.0), record("eole", "train", None)
    results_of(tmp_path, good, bad)
    again = Results(tmp_path / "results.json")
    assert again.records == [good, bad]
    assert (again.has(good.key), again.has(bad.key)) == (True, False)
    again.add(record("eole", "train", 3.0))
    assert [one.rate for one in Results(tmp_path / "results.json").records] == [2.0, 3.0]


def test_a_lane_writes_down_why_a_system_is_missing(data: Data, tmp_path: Path) -> None:
    results = results_of(tmp_path, record("eole", "greedy", 3.0))
    plan = Plan(["tiny"], ["eole"], ["start", "train", "greedy"], 1, tmp_path, data, {"eole": "not installed"})
    said: list[str] = []
    Lane(plan, ["gru"], worker.Terms(1.0, 1.0, None), results).run(said.append)
    assert [(one.task, one.reason) for one in results.records] == [("greedy", ""), ("train", "not installed")]
    assert "not installed" in said[-1]
    assert plan.ordered == ["train", "greedy"]


def test_the_systems_take_turns() -> None:
    plan = Plan(["tiny", "large"], ["eole", "pellucid"], ["train", "beam"], 2, Path(), Data(*[None] * 3), {})  # type: ignore[arg-type]
    lane = Lane(plan, ["gru"], worker.Terms(1.0, 1.0, None), None)  # type: ignore[arg-type]
    keys = [one.key for one in lane.records("gru")]
    assert len(keys) == len(set(keys)) == 16
    assert [key[2] for key in keys] == ["eole", "pellucid"] * 8
    assert keys[4] == ("tiny", "gru", "eole", "train", 1)


def test_tables_compare_with_the_best_of_the_others(tmp_path: Path) -> None:
    results = results_of(
        tmp_path,
        record("pellucid", "train", 8000.0),
        record("pellucid", "train", 9000.0, repeat=1),
        record("joeynmt", "train", 1000.0),
        record("eole", "train", 850.0),
        record("yoyodyne", "train", None),
    )
    text = table.table(results)
    assert "| tiny | GRU | 8,500 | **1,000** | – | 850 | – | 8.50× |" in text
    assert "tiny GRU train, yoyodyne 0.5.27: it broke / last line" in text
    assert "beam" not in text.lower().split("empty cells")[0].replace("yoyodyne", "").split("| case")[1]


def test_less_is_better_for_memory_and_start() -> None:
    told = {"pellucid": 300.0, "joeynmt": 400.0, "eole": 500.0, "opennmt": None}
    assert (table.ratio(told, "min"), table.ratio(told, "max")) == (0.75, 0.6)
    assert table.ratio({**told, "pellucid": None}, "min") is None
    assert table.ratio({"pellucid": 1.0}, "min") is None


def test_the_figure_has_every_system(tmp_path: Path) -> None:
    results = results_of(tmp_path, record("pellucid", "train", 8000.0), record("eole", "beam", 5.0, cell="lstm"))
    assert figure.write_figure(results, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text("utf-8").startswith("<?xml")
    assert not figure.write_figure(results_of(tmp_path / "other"), tmp_path / "none.svg")


def test_an_environment_that_is_complete_is_used_again(tmp_path: Path) -> None:
    system = SYSTEMS["joeynmt"]
    (tmp_path / "joeynmt").mkdir()
    steps = [install.torch_version(), *map(list, system.pip)]
    (tmp_path / "joeynmt" / install.STAMP).write_text(json.dumps(steps), "utf-8")
    assert install.install(system, tmp_path) == tmp_path / "joeynmt" / "bin" / "python"
    assert install.install(SYSTEMS["pellucid"], tmp_path) == Path(sys.executable)
    assert install.torch_version().startswith("torch==2")


def test_a_full_disk_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "NEEDED_BYTES", 2**60)
    with pytest.raises(FailedError, match="GiB left"):
        install.install(SYSTEMS["eole"], tmp_path / "environments")


class Sleeper(System):
    """A system that makes its updates by hand and writes as many symbols as it is told."""

    name, title = "sleeper", "Sleeper"
    symbols: ClassVar[int] = DIGITS
    pace: ClassVar[dict[Task, float]] = {"train": 1e-3, "greedy": 1e-9}
    parameters_told, updates_told = r"(\d+) parameters", r"update (\d+)"

    def probe(self, python: Path) -> list[str]:
        return [str(python), "-c", ""]

    def train(self, job: Job, updates: int) -> Command:
        program = (
            f"import os; t = open(os.environ['PEERS_TICKS'], 'w'); [print(i, i / 8, file=t) for i in range({updates})]"
        )
        return python(program, job.folder)

    def decode(self, job: Job, count: int, beam: int, output: Path) -> Command:
        program = f"[print('1' * {self.symbols}) for _ in range({count})]; sum(range({count} * 60_000))"
        return python(program, job.folder)._replace(stdout=output)


def measured(task: Task, system: System, data: Data, folder: Path) -> Record:
    found = record("sleeper", task, None)
    found.reason = ""
    worker.Worker(Job(CASES["tiny"], "gru", data, folder, Path()), system, worker.Terms(0.02, 60, None)).measure(found)
    return found


def test_a_training_is_measured(data: Data, tmp_path: Path) -> None:
    found = measured("train", Sleeper(), data, tmp_path / "work")
    assert (found.rate, found.raw["updates"], found.start_cpu) == (800.0, 60, 0.0)
    assert (tmp_path / "work" / "trained").read_text("utf-8") == "60"
    assert measured("start", Sleeper(), data, tmp_path / "work").raw["updates"] == worker.START_UPDATES


def test_decoding_is_measured_with_the_network_that_is_there(data: Data, tmp_path: Path) -> None:
    found = measured("greedy", Sleeper(), data, tmp_path / "work")
    assert found.rate and found.rate > 0 and found.raw["model_updates"] == 60
    assert found.raw["sentences"][0] == 64 and len(found.raw["process_cpu_seconds"]) == 3
    (tmp_path / "work" / "trained").write_text("7", "utf-8")
    assert measured("greedy", Sleeper(), data, tmp_path / "work").raw["model_updates"] == 7


@pytest.mark.parametrize("symbols", [0, 21])
def test_outputs_of_other_lengths_are_other_work(
    symbols: int, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sleeper, "symbols", symbols)
    with pytest.raises(FailedError, match=f"outputs of {symbols} symbols instead of 20"):
        measured("greedy", Sleeper(), data, tmp_path / "work")
