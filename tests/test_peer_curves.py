"""The benchmark of error against minutes works without any installed peer."""

import json
import os
import re
import signal
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks.peers import curve_measurement, minutes
from benchmarks.peers.curve_measurement import CurvePlan, PeerTraining, SnapshotDecoder, train_peer
from benchmarks.peers.curve_report import CurveRecord, CurveResults, format_curves, write_curve_figure
from benchmarks.peers.measure import ChildProcesses, Command, MeasurementError
from benchmarks.peers.run import describe_hardware
from benchmarks.peers.snapshots import CheckpointSnapshots, KeptCheckpoint
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.trainers import (
    TRAINERS,
    PeerTrainer,
    TrainingJob,
    peer_network,
    pellucid_stop_reason,
    pellucid_train_command,
    write_files,
)
from pellucid.config.presets import LARGE_DATA
from pellucid.data.examples import Example

PAIRS = [Example("tomato", "T AH M EY T OW"), Example("of", "AH V"), Example("to", "T UW")]
REFERENCES = {"tomato": {"T AH M EY T OW", "T AH M AA T OW"}, "of": {"AH V"}}
TITLES = {"pellucid": "Pellucid", "fake": "Fake", "phonetisaurus": "Phonetisaurus"}


@pytest.fixture
def plan(tmp_path: Path) -> CurvePlan:
    files = write_files(tmp_path / "data", PAIRS, PAIRS[1:], list(REFERENCES))
    return CurvePlan(files, REFERENCES, [0.01, 0.02, 0.04], tmp_path, tmp_path / "environments", 1, None)


def write_checkpoint(path: Path, text: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", text)
    return path


def read_checkpoint(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        return archive.read("data").decode()


def test_snapshots_keep_the_best_checkpoint_at_the_end_of_each_budget(tmp_path: Path) -> None:
    best = tmp_path / "best.ckpt"
    snapshots = CheckpointSnapshots(lambda: best if best.exists() else None, tmp_path / "snapshots", [1, 2, 3, 4])
    snapshots.update(61)
    write_checkpoint(best, "first")
    snapshots.update(90)
    snapshots.update(120)
    write_checkpoint(best, "the second")
    snapshots.update(130)
    snapshots.finish(140)
    assert snapshots.kept["1"] is None and not snapshots.path(1).exists()
    assert [read_checkpoint(snapshots.path(budget)) for budget in (2, 3, 4)] == ["first", "the second", "the second"]
    assert snapshots.kept["2"] == {"checkpoint": "best.ckpt", "copied_after": 90}


def test_an_incomplete_checkpoint_is_not_kept(tmp_path: Path) -> None:
    best = write_checkpoint(tmp_path / "best.ckpt", "complete")
    snapshots = CheckpointSnapshots(lambda: best, tmp_path / "snapshots", [1, 2])
    snapshots.update(30)
    best.write_bytes(best.read_bytes()[:40])
    snapshots.update(61)
    assert read_checkpoint(snapshots.path(1)) == "complete"
    best.unlink()
    snapshots.update(121)
    assert read_checkpoint(snapshots.path(2)) == "complete"


def test_peers_have_the_sizes_of_pellucid() -> None:
    base, large = peer_network(LARGE_DATA - 1), peer_network(LARGE_DATA)
    assert (base.hidden_size, base.embedding_size, base.encoder_layers) == (256, 128, 1)
    assert (large.hidden_size, large.embedding_size, large.encoder_layers) == (384, 192, 2)


def read_settings(command: Command) -> dict[str, Any]:
    path = next(argument for argument in command.arguments if argument.endswith(".yaml"))
    settings: dict[str, Any] = json.loads(Path(path).read_text("utf-8"))
    return settings


@pytest.mark.parametrize("name", TRAINERS)
def test_peers_validate_once_per_epoch_and_decode_with_a_beam(name: str, plan: CurvePlan) -> None:
    trainer, job = TRAINERS[name], plan.job(name, Path("bin/python"))
    assert trainer.find_best(job) is None
    settings = read_settings(trainer.train_command(job))
    key, expected = {"yoyodyne": ("monitor", "val_accuracy"), "joeynmt": ("validation_freq", 1)}[name]
    assert settings["checkpoint" if name == "yoyodyne" else "training"][key] == expected
    assert str(plan.files.train) in json.dumps(settings)
    trainer.decode_command(job, Path("snapshots/2.ckpt"))
    decoding = (job.folder / "decode.yaml").read_text("utf-8")
    assert "snapshots/2.ckpt" in decoding and ('"beam_width": 5' in decoding or '"beam_size": 5' in decoding)


def test_peers_validate_more_often_if_requested(plan: CurvePlan) -> None:
    files = plan.files._replace(num_pairs=100_000)
    yoyodyne, joeynmt = (
        read_settings(
            TRAINERS[name].train_command(plan._replace(files=files, validations=10).job(name, Path("python")))
        )
        for name in ("yoyodyne", "joeynmt")
    )
    assert yoyodyne["trainer"]["val_check_interval"] == 0.1
    training = joeynmt["training"]
    assert training["validation_freq"] == 157 >= training["logging_freq"] and training["learning_rate_warmup"] == 1563


def test_yaml_numbers_have_no_exponent(plan: CurvePlan) -> None:
    # YAML 1.1 reads 1e-05, as JSON writes it, as a text.
    for name, trainer in TRAINERS.items():
        command = trainer.train_command(plan.job(name, Path("bin/python")))
        path = next(argument for argument in command.arguments if argument.endswith(".yaml"))
        assert not re.search(r": \d+e-", Path(path).read_text("utf-8"))


def test_checkpoints_of_peers_are_found(plan: CurvePlan) -> None:
    job = plan.job("yoyodyne", Path("bin/python"))
    job.model.mkdir(parents=True)
    for number, epoch in enumerate(("epoch=9.ckpt", "epoch=10.ckpt")):
        (job.model / epoch).touch()
        os.utime(job.model / epoch, (number, number))
    assert TRAINERS["yoyodyne"].find_best(job) == job.model / "epoch=10.ckpt"
    job = plan.job("joeynmt", Path("bin/python"))
    job.model.mkdir(parents=True)
    (job.model / "20.ckpt").touch()
    (job.model / "best.ckpt").symlink_to("20.ckpt")
    assert TRAINERS["joeynmt"].find_best(job) == job.model / "20.ckpt"


def test_pellucid_is_trained_with_its_defaults_and_a_time_limit(plan: CurvePlan) -> None:
    arguments = pellucid_train_command(plan.job("pellucid", Path(sys.executable)), 0.5).arguments
    assert [arguments[-6:]] == [["--target-symbols", "words", "--time", "0.5m", "--seed", "1"]]
    assert pellucid_stop_reason("stopped: its time limit of 2m is reached; best at update 5") == ""
    reason = pellucid_stop_reason("1\nstopped: the maximum number of epochs is reached; best at update 5\n")
    assert reason == "the maximum number of epochs is reached"


class FakeTrainer(PeerTrainer):
    """Training whose program writes two checkpoints, and decoding that prints one output per word."""

    system = SYSTEMS["pellucid"]
    training: ClassVar[str] = ""
    decoding: ClassVar[str] = "print('AH V'); print('AH V')"

    def train_command(self, job: TrainingJob) -> Command:
        program = (
            "import time, zipfile\n"
            "def save(name):\n    with zipfile.ZipFile(name, 'w') as archive: archive.writestr('data', name)\n"
        )
        return Command([sys.executable, "-c", program + self.training], job.folder)

    def find_best(self, job: TrainingJob) -> Path | None:
        return next((path for name in ("2.ckpt", "1.ckpt") if (path := job.folder / name).exists()), None)

    def decode_command(self, job: TrainingJob, checkpoint: Path) -> Command:
        return Command([sys.executable, "-c", self.decoding], job.folder, stdout=job.outputs)


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTrainer]:
    fake = FakeTrainer()
    monkeypatch.setattr(curve_measurement, "TRAINERS", {"fake": fake})
    monkeypatch.setattr(curve_measurement, "TITLES", TITLES)
    monkeypatch.setattr(curve_measurement, "install", lambda system, folder: Path(sys.executable))
    yield fake


@pytest.mark.slow
def test_a_peer_that_is_stopped_has_the_checkpoints_of_its_budgets(
    trainer: FakeTrainer, plan: CurvePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTrainer, "training", "save('1.ckpt'); time.sleep(60)")
    job = plan.job("fake", Path(sys.executable))
    training = train_peer(trainer, job, plan)
    assert list(training.kept) == ["0.01", "0.02", "0.04"] and training.seconds is None
    assert training.kept["0.04"] is not None and training.kept["0.04"]["checkpoint"] == "1.ckpt"
    assert curve_measurement._find_training(job.folder, plan) == training
    assert curve_measurement._find_training(job.folder, plan._replace(validations=4)) is None


@pytest.mark.slow
def test_a_peer_that_ends_by_itself_is_noted(
    trainer: FakeTrainer, plan: CurvePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTrainer, "training", "save('1.ckpt')")
    results = CurveResults(plan.out / "results.json")
    longer = plan._replace(minutes=[1, 2])
    curve_measurement.measure_system("fake", longer, results, lambda text: None)
    assert [record.num_wrong for record in results.find("fake")] == [1, 1]
    assert "ended by itself after" in results.find("fake")[0].note
    # Nothing is measured again, and further budgets use another training.
    monkeypatch.setattr(FakeTrainer, "training", "exit(1)")
    curve_measurement.measure_system("fake", longer, results, lambda text: None)
    curve_measurement.measure_system("fake", longer._replace(minutes=[1, 2, 3]), results, lambda text: None)
    assert [(record.num_wrong, record.reason[:9]) for record in results.find("fake")] == [
        (1, ""),
        (1, ""),
        (None, "exit code"),
    ]


@pytest.mark.slow
def test_a_crash_leaves_the_budgets_before_it(
    trainer: FakeTrainer, plan: CurvePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTrainer, "training", "save('1.ckpt'); time.sleep(2); exit('the reason')")
    job, later = plan.job("fake", Path(sys.executable)), plan._replace(minutes=[0.02, 1])
    training = train_peer(trainer, job, later)
    assert list(training.kept) == ["0.02"] and "the reason" in training.reason
    decoder = SnapshotDecoder(trainer, job, training, later)
    with pytest.raises(MeasurementError, match="the reason"):
        decoder.decode(CurveRecord("fake", 1, 2))


def test_a_checkpoint_decodes_once_and_a_missing_one_is_explained(
    trainer: FakeTrainer, plan: CurvePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = plan.job("fake", Path(sys.executable))
    job.folder.mkdir(parents=True)
    (job.folder / "train.log").touch()
    same = KeptCheckpoint(checkpoint="1.ckpt", copied_after=3.0)
    decoder = SnapshotDecoder(trainer, job, PeerTraining({"2": None, "5": same, "10": same}, None), plan)
    with pytest.raises(MeasurementError, match="first validation"):
        decoder.decode(CurveRecord("fake", 2, 2))
    records = [CurveRecord("fake", budget, 2) for budget in (5, 10)]
    decoder.decode(records[0])
    monkeypatch.setattr(FakeTrainer, "decoding", "exit(1)")
    decoder.decode(records[1])
    assert [(record.num_wrong, record.seconds) for record in records] == [(1, 300), (1, 600)]


@pytest.mark.slow
def test_a_wrong_number_of_outputs_is_a_failure(
    trainer: FakeTrainer, plan: CurvePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTrainer, "training", "save('1.ckpt')")
    monkeypatch.setattr(FakeTrainer, "decoding", "print('AH V')")
    results = CurveResults(plan.out / "results.json")
    curve_measurement.measure_system("fake", plan, results, lambda text: None)
    assert {record.reason for record in results.records} == {"1 outputs for 2 words"}


def write_results(path: Path) -> CurveResults:
    results = CurveResults(path / "results.json")
    results.machine = {"processor": "CPU", "cores": "2"}
    results.machine |= {
        "pinned": ", pinned to core 1",
        "num_pairs": 10_000,
        "num_words": 100,
        "seed": 1,
        "validations": 1,
    }
    results.add(CurveRecord("pellucid", 2, 100, 40, 121.0))
    results.add(CurveRecord("pellucid", 5, 100, 30, 200.0, note="the training ended after 3.3 min: it is done"))
    results.add(CurveRecord("fake", 5, 100, reason="a\nb\nc\nthe last line"))
    results.add(CurveRecord("phonetisaurus", None, 100, 45, 13.3, versions="torch==2, 2026-11-27"))
    return results


def test_the_table_has_intervals_remarks_and_reasons(tmp_path: Path) -> None:
    lines = format_curves(write_results(tmp_path), TITLES).splitlines()
    assert "| system | 2 min | 5 min |" in lines
    assert "| Pellucid | 40.00 (30.94 to 49.80) | 30.00 (21.89 to 39.58) |" in lines
    assert "| Fake | – | – |" in lines
    assert "| Phonetisaurus | 45.00 (35.61 to 54.76) | 13.3 |" in lines
    assert lines[0].startswith("CPU, 2 cores, one thread, pinned to core 1. 10,000 training pairs, 100 test words, ")
    first = lines.index("Versions:")
    assert lines[first + 2 : first + 4] == ["* not recorded: 2 measurements", "* torch==2, 2026-11-27: 1 measurement"]
    assert "* Pellucid, 5 min: the training ended after 3.3 min: it is done" in lines
    assert lines[-1] == "* Fake, 5 min: b / c / the last line"


def test_stored_records_are_read_and_failures_are_measured_again(tmp_path: Path) -> None:
    records = write_results(tmp_path).records
    stored = CurveResults(tmp_path / "results.json")
    assert stored.records == records and stored.budgets() == [2, 5]
    assert [stored.is_measured(record.key) for record in records] == [True, True, False, True]


def test_the_figure_has_a_line_per_system(tmp_path: Path) -> None:
    results = write_results(tmp_path)
    assert write_curve_figure(results, TITLES, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text("utf-8").startswith("<?xml")
    results.records = [record for record in results.records if record.system == "fake"]
    assert not write_curve_figure(results, TITLES, tmp_path / "none.svg")


def write_arguments(folder: Path) -> list[str]:
    """Write the files of the script, and return its arguments."""
    for name in ("train", "valid", "test"):
        (folder / f"{name}.tsv").write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS), "utf-8")
    files = [part for name in ("train", "valid", "test") for part in (f"--{name}", str(folder / f"{name}.tsv"))]
    return [*files, "--system", "pair-ngram", "--out", str(folder / "out")]


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the arguments of the script, whose signals and child processes are not those of the tests."""
    monkeypatch.setattr(minutes, "CHILDREN", ChildProcesses())
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return write_arguments(tmp_path)


def test_the_script_measures_the_pair_ngram_model_and_refuses_other_options(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert minutes.main(arguments) == 0
    table = capsys.readouterr().out
    assert "| Pellucid, pair n-gram model |" in table
    versions = minutes.find_versions()
    assert re.fullmatch(r"Pellucid .+, Python 3\..+, torch.*, \d{4}-\d\d-\d\d", versions)
    assert f"* {versions}: 1 measurement\n" in table
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"results.json", "table.md", "figure.svg"}
    results = CurveResults(tmp_path / "out" / "results.json")
    results.records.clear()  # as after an interruption of the first training
    results.write()
    for other in (["--seed", "2"], ["--validations", "4"], ["--core", "0"]):
        with pytest.raises(SystemExit):
            minutes.main([*arguments, *other])
        assert "results of other data or of another processor" in capsys.readouterr().err


def test_results_of_another_processor_or_other_content_are_refused(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: paths were compared, and the present machine replaced that of all measurements."""
    monkeypatch.setattr(minutes, "measure_system", lambda *_: None)
    minutes.main(arguments)
    stored = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))["machine"]
    (tmp_path / "copy").mkdir()
    minutes.main([*write_arguments(tmp_path / "copy")[:-1], str(tmp_path / "out")])
    hardware = describe_hardware()
    monkeypatch.setattr(minutes, "describe_hardware", lambda: {**hardware, "processor": "another"})
    with pytest.raises(SystemExit):
        minutes.main(arguments)
    assert "(processor)" in capsys.readouterr().err
    monkeypatch.setattr(minutes, "describe_hardware", lambda: hardware)
    (tmp_path / "valid.tsv").write_text("to\tT UW\n", "utf-8")
    with pytest.raises(SystemExit):
        minutes.main(arguments)
    assert "(checksums)" in capsys.readouterr().err
    # Results of earlier versions have no checksums.
    del stored["checksums"]
    assert minutes.find_differences(stored, {**stored, "checksums": []}) == []
    assert minutes.find_differences(stored, {**stored, "num_pairs": 5}) == ["num_pairs"]
