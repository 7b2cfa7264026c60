"""training/data_file_check.py: all trainings of one command read the same data, or it ends with one message."""

import os
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from trained_runs import DataFiles, make_small_config, read_folder_state, write_copy_files

from pellucid.config.settings import Config
from pellucid.errors import RunError
from pellucid.files import digest_file
from pellucid.run_folder.run_files import member_folders
from pellucid.training import data_file_check
from pellucid.training.data_file_check import DataFileCheck, check_read_files
from pellucid.training.ensemble_training import TrainingJob, WorkerEvent, plan_ensemble, run_job, train_ensemble
from pellucid.training.events import FileRead, FileSaved, PairsMixedIn
from pellucid.training.preparation import prepare_data
from pellucid.training.training_data import TrainingFiles
from pellucid.worker_pool import WorkerChannel

CHANGED = "has changed since this command began"
CONFIG = make_small_config({"epochs": 1})


@pytest.fixture
def files(tmp_path: Path) -> DataFiles:
    """Data files that a test may change."""
    return write_copy_files(tmp_path)


def reverse_lines(path: Path) -> bytes:
    """Reverse the lines of a file; return its former content."""
    content = path.read_bytes()
    path.write_bytes(b"".join(reversed(content.splitlines(keepends=True))))
    return content


@pytest.mark.parametrize("name", ["train", "valid"])
def test_a_file_with_other_contents_is_refused(files: DataFiles, name: str) -> None:
    path: Path = getattr(files, name)
    check = DataFileCheck(files, CONFIG)
    check.check()
    size, content = path.stat().st_size, reverse_lines(path)
    with pytest.raises(RunError, match=rf"{path.name} {CHANGED} \(another content of {size:,} bytes, too\)\. All"):
        check.check()
    path.write_bytes(content + b"a\tb\n")
    with pytest.raises(RunError, match=rf"{path.name} {CHANGED} \({size:,} bytes before, {size + 4:,} now\)"):
        check.check()
    path.unlink()
    with pytest.raises(RunError, match=rf"{path.name} {CHANGED} \(it is missing or cannot be read\)"):
        check.check()
    path.write_bytes(content)
    check.check()


def test_a_file_is_read_again_only_if_its_size_or_time_has_changed(
    files: DataFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[Path]()

    def record_and_digest(path: Path) -> Any:  # noqa: ANN401
        read.append(path)
        return digest_file(path)

    monkeypatch.setattr(data_file_check, "digest_file", record_and_digest)
    check = DataFileCheck(files, CONFIG)
    assert read == [files.train, files.valid]
    check.check()
    os.utime(files.train, ns=(1, 1))
    check.check()
    check.check()
    assert read == [files.train, files.valid, files.train]


def test_the_earlier_pairs_and_prepared_data_are_compared_too(files: DataFiles, tmp_path: Path) -> None:
    config: Config = msgspec.structs.replace(
        CONFIG, training=msgspec.structs.replace(CONFIG.training, mix_in=str(files.valid))
    )
    check = DataFileCheck(TrainingFiles(files.train, None), config)
    assert [path for path, _ in check.digests] == [str(files.train), str(files.valid)]
    list(prepare_data(TrainingFiles(files.train, None), tmp_path / "prepared", CONFIG))
    check = DataFileCheck(TrainingFiles(tmp_path / "prepared", None), CONFIG)
    (tmp_path / "prepared" / "prepared.json").unlink()
    with pytest.raises(RunError, match=rf"prepared\.json {CHANGED}"):
        check.check()


def test_files_that_a_training_has_read_are_compared_with_the_first_ones(files: DataFiles) -> None:
    digests = DataFileCheck(files, CONFIG).digests
    train, other = digest_file(files.train), digest_file(files.valid)
    good = FileRead(files.train, 9, [], 0, "", target=files.valid, digest=train, target_digest=other)
    for event in (good, good._replace(digest=None), good._replace(path="the training list", digest=other)):
        check_read_files(event, digests)
    for event in (good._replace(digest=other), good._replace(target_digest=train)):
        with pytest.raises(RunError, match=CHANGED):
            check_read_files(event, digests)
    with pytest.raises(RunError, match=CHANGED):
        check_read_files(PairsMixedIn(files.train, 9, 1, 1, 0, digest=other), digests)


def test_a_training_of_other_data_writes_nothing(files: DataFiles, tmp_path: Path) -> None:
    """A file that is changed after the check of the command, and before the training has read it."""
    digests = DataFileCheck(files, CONFIG).digests
    reverse_lines(files.train)
    with pytest.raises(RunError, match=CHANGED):
        run_job(TrainingJob(files, tmp_path / "run", CONFIG, digests=digests), WorkerChannel(Pipe()[1], 0, None))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "valid"])
def test_an_ensemble_ends_if_its_data_are_changed_and_continues_with_those_of_its_start(
    files: DataFiles, tmp_path: Path, name: str
) -> None:
    """Regression test: its members were trained on different data, without a message."""
    path, content = getattr(files, name), b""
    plan = plan_ensemble(files, tmp_path / "run", CONFIG, 2)
    with pytest.raises(RunError, match=rf"{path.name} {CHANGED}"):
        for worker_event in train_ensemble(plan, tmp_path / "run", 1):
            if not content and isinstance(worker_event, WorkerEvent) and isinstance(worker_event.event, FileSaved):
                content = reverse_lines(path)
    assert not (tmp_path / "run" / "seed-2").exists()
    first = read_folder_state(tmp_path / "run" / "seed-1")
    path.write_bytes(content)
    for _ in train_ensemble(plan, tmp_path / "run", 1):
        pass
    assert len(member_folders(tmp_path / "run")) == 2
    assert (tmp_path / "run" / "confidence.json").exists()
    assert read_folder_state(tmp_path / "run" / "seed-1")["config.toml"] == first["config.toml"]


def test_a_search_starts_no_trial_of_other_data_and_does_not_end_with_them(files: DataFiles, tmp_path: Path) -> None:
    """Regression test: the best settings were chosen by scores on different validation sets, without a message."""
    pytest.importorskip("optuna")
    from pellucid.tuning.search import HyperparameterSearch, StudyRequest, resolve_config
    from pellucid.tuning.space import ChoiceDimension, SearchSpace
    from pellucid.tuning.storage import FolderStorage

    config, _ = resolve_config(CONFIG, files)
    space = SearchSpace((ChoiceDimension("encoder.dropout", (0.0, 0.2)),), ())
    (tmp_path / "out").mkdir()
    request = StudyRequest(files, tmp_path / "out", config, space, 2, 0.0, 1, "none")
    search, jobs = HyperparameterSearch(request, FolderStorage(tmp_path / "out")), list[TrainingJob]()
    search.pool = SimpleNamespace(submit=lambda _, job: jobs.append(job), busy=set())
    first, second = search.claim_trial(), search.claim_trial()
    assert first is not None and second is not None
    search.start_trial(first)
    content = reverse_lines(files.valid)
    with pytest.raises(RunError, match=CHANGED):
        search.start_trial(second)
    assert [job.digests for job in jobs] == [search.data_check.digests]
    search.pool = SimpleNamespace(busy=set(), free_workers=0)
    with pytest.raises(RunError, match=CHANGED):
        list(search.events())
    files.valid.write_bytes(content)
    assert list(search.events()) == []
