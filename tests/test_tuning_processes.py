"""A study of several processes that share a folder: its lock, its journal, and the trials of processes that die.

test_cli_tune.py has searches of one process, test_tuning_database.py those with a database.
"""

import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_commands import SPACE, SearchCommand, read_events, start_search, tiny_request, wait_for
from test_tuning_study import claim_trial, open_study, run_trial
from trained_runs import assert_runs_identical, train_to_end

from pellucid.errors import FolderInUseError, RunError
from pellucid.run_folder.lock import lock_run_folder, share_run_folder
from pellucid.run_folder.log import read_log

pytest.importorskip("optuna")

from pellucid.tuning import processes, storage
from pellucid.tuning.journal import JOURNAL, STUDY_FILES, StateSet, TrialCreated, read_journal
from pellucid.tuning.processes import PROCESSES, ProcessRegistry
from pellucid.tuning.search import tune
from pellucid.tuning.space import apply_values
from pellucid.tuning.storage import JOURNAL_LOCK, FolderStorage, JournalLock, LockedJournal
from pellucid.tuning.study import MAX_DEATHS, TrialLostError, TuningStudy

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="Windows has no shared locks, and no fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # a fork of a process with threads
]


OPENED: list[TuningStudy] = []
"""Studies of the present test."""


@pytest.fixture(autouse=True)
def close_studies() -> Iterator[None]:
    """Close all studies at the end of a test."""
    yield
    while OPENED:
        OPENED.pop().storage.close()


def open_process(folder: Path) -> TuningStudy:
    """Open the study of a folder as a process of several does."""
    OPENED.append(open_study(folder, "none", shared=True))
    return OPENED[-1]


class Writer(NamedTuple):
    """A process that appends lines to a journal."""

    num_lines: int
    is_killed: bool
    """Whether it is killed in the middle of a further line, while it holds the lock."""


def append_lines(folder: Path, number: int, writer: Writer) -> None:
    """Append the lines of a writer; a killed one leaves the start of a line and never returns."""
    lock = JournalLock(folder / JOURNAL_LOCK)
    journal = LockedJournal(folder / JOURNAL, lock)
    for line in range(writer.num_lines):
        journal.append_logs([{"op_code": number, "line": line}, {"op_code": number, "line": line + 0.5}])
    if writer.is_killed:
        with lock.hold(), (folder / JOURNAL).open("ab") as file:
            file.write(b'{"op_code":')
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@settings(max_examples=8)
@given(st.lists(st.builds(Writer, st.integers(0, 12), st.booleans()), min_size=2, max_size=4))
def test_lines_of_several_writers_are_whole_and_in_order(writers: list[Writer]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / JOURNAL).touch()
        started = [
            get_context("fork").Process(target=append_lines, args=(folder, number, writer))
            for number, writer in enumerate(writers)
        ]
        for process in started:
            process.start()
        for process, writer in zip(started, writers, strict=True):
            process.join(60)
            assert process.exitcode == (-signal.SIGKILL if writer.is_killed else 0)
        journal = LockedJournal(folder / JOURNAL, JournalLock(folder / JOURNAL_LOCK))
        seen = list(journal.read_logs(0))  # without an incomplete line
        journal.append_logs([{"op_code": 9}])
        content = (folder / JOURNAL).read_bytes()
        assert content.endswith(b"\n") and [json.loads(line) for line in content.splitlines()] == [
            *seen,
            {"op_code": 9},
        ]
        assert list(journal.read_logs(len(seen))) == [{"op_code": 9}]
        for number, writer in enumerate(writers):
            expected = [half / 2 for half in range(2 * writer.num_lines)]
            assert [entry["line"] for entry in seen if entry["op_code"] == number] == expected


def append_when_ready(folder: Path) -> None:
    """Append two lines as soon as a file exists. The process is forked before another one takes the lock."""
    while not (folder / "ready").exists():
        time.sleep(0.01)
    append_lines(folder, 3, Writer(1, False))


def test_line_that_is_being_written_is_not_read_and_not_cut(tmp_path: Path) -> None:
    """A reader without the lock sees half a line; another writer waits for the lock."""
    lock, journal = JournalLock(tmp_path / JOURNAL_LOCK), tmp_path / JOURNAL
    journal.touch()
    writer = get_context("fork").Process(target=append_when_ready, args=(tmp_path,))
    writer.start()
    with lock.hold():
        journal.write_bytes(b'{"op_code":1}\n{"op_code":')
        (tmp_path / "ready").touch()
        time.sleep(0.3)
        assert writer.is_alive() and journal.read_bytes() == b'{"op_code":1}\n{"op_code":'
        assert list(LockedJournal(journal, JournalLock(lock.path)).read_logs(0)) == [{"op_code": 1}]
        with journal.open("ab") as file:
            file.write(b"2}\n")
    writer.join(60)
    codes = [json.loads(line)["op_code"] for line in journal.read_bytes().splitlines()]
    assert codes == [1, 2, 3, 3]


def test_waiting_for_the_lock_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "LOCK_SECONDS", 0.1)
    with (
        JournalLock(tmp_path / JOURNAL_LOCK).hold(),
        pytest.raises(RunError, match="another process has held the lock"),
    ):
        FolderStorage(tmp_path, shared=True)


def test_processes_take_different_trials_and_no_more_than_all(tmp_path: Path) -> None:
    studies = [open_process(tmp_path) for _ in range(3)]
    claimed = [claim_trial(study, 5) for _ in range(2) for study in studies]
    assert [trial and trial.number for trial in claimed] == [0, 1, 2, 3, 4, None]
    assert [sorted(study.own_trials) for study in studies] == [[0, 3], [1, 4], [2]]
    assert [study.running_elsewhere() for study in studies] == [{1, 2, 4}, {0, 2, 3}, {0, 1, 3, 4}]
    for study in studies:
        for number in sorted(study.own_trials):
            suggested = claimed[number]
            assert suggested is not None
            run_trial(study, suggested)
        study.storage.close()
    assert len(studies[0].results().ended) == 5 and not (tmp_path / PROCESSES).exists()
    assert len(open_study(tmp_path, "none").results().ended) == 5  # the checks of the journal hold


def end_process(study_storage: object) -> None:
    """Release what the kernel releases when a process is killed."""
    assert isinstance(study_storage, FolderStorage) and study_storage.processes is not None
    study_storage.processes._own.close()


def test_trial_of_a_killed_process_is_taken_once_and_that_of_a_living_one_never(tmp_path: Path) -> None:
    killed, first, second = (open_process(tmp_path) for _ in range(3))
    trial = claim_trial(killed, 2)
    assert trial is not None and claim_trial(first, 1) is None
    assert claim_trial(second, 2) is not None
    end_process(killed.storage)
    assert first.claim_trial(2, lambda number: True) is None  # a training still writes to its folder
    assert claim_trial(first, 2) == trial
    assert claim_trial(second, 2) is None and second.running_elsewhere() == {0}
    with pytest.raises(TrialLostError):  # it was only thought to be dead
        killed.report(0, 1, 0.5)
    first.release_trials([0])
    assert claim_trial(second, 2) == trial
    run_trial(second, trial)
    entries = read_journal(tmp_path / JOURNAL)
    assert [entry.trial_id for entry in entries if isinstance(entry, StateSet) and entry.state == 1] == [0]


def test_trial_that_kills_every_process_fails(tmp_path: Path) -> None:
    for _ in range(MAX_DEATHS):
        study = open_process(tmp_path)
        trial = claim_trial(study, 1)
        assert trial is not None and trial.number == 0
        end_process(study.storage)
    study = open_process(tmp_path)
    assert claim_trial(study, 1) is None
    (ended,) = study.results().ended
    assert (ended.state, ended.reason) == ("failed", f"{MAX_DEATHS} processes died while they ran it")


def test_study_of_several_processes_continues_alone_and_the_other_way_round(tmp_path: Path) -> None:
    shared = open_process(tmp_path)
    trial = claim_trial(shared)
    end_process(shared.storage)
    alone = open_study(tmp_path, "none")
    assert claim_trial(alone) == trial
    again = open_process(tmp_path)
    assert claim_trial(again) == trial


def test_locks_that_other_machines_do_not_see_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of another machine whose lock is not seen lives while it touches its file."""
    monkeypatch.setattr(processes, "TOUCH_LIMIT", 0.2)
    monkeypatch.setattr(processes, "identify_machine", lambda: "another machine")
    registry = ProcessRegistry(tmp_path)
    identifier = registry.register()
    monkeypatch.setattr(processes, "identify_machine", lambda: "this machine")
    observer = ProcessRegistry(tmp_path)
    assert observer.has_ended(identifier) is False  # the lock is seen
    registry._own.close()
    assert observer.has_ended(identifier) is None
    os.utime(tmp_path / PROCESSES / identifier, (1, 1))
    with pytest.raises(RunError, match="does not show the locks of other machines"):
        observer.has_ended(identifier)
    observer = ProcessRegistry(tmp_path)
    assert observer.has_ended(identifier) is None and not observer.remove_ended()
    time.sleep(0.3)
    assert observer.has_ended(identifier) is True and observer.remove_ended()
    assert observer.has_ended(identifier) is True and observer.has_ended("../journal") is True
    assert not list((tmp_path / PROCESSES).iterdir())


def test_commands_with_and_without_shared_exclude_each_other(tmp_path: Path) -> None:
    alone, shared = tiny_request(tmp_path, 1), tiny_request(tmp_path, 1, shared=True)
    with share_run_folder(alone.out), pytest.raises(FolderInUseError, match="give --shared to all"):
        next(tune(alone))
    with lock_run_folder(alone.out, STUDY_FILES), pytest.raises(FolderInUseError, match="without --shared"):
        next(tune(shared))


@pytest.mark.slow
def test_search_of_two_processes_survives_the_death_of_one(tmp_path: Path) -> None:
    """The trial of the killed process continues from its checkpoint in the other process, bit for bit."""
    request = tiny_request(tmp_path, 5, shared=True)
    commands = [start_search(request, tmp_path / f"{name}.jsonl") for name in ("killed", "other")]
    number = kill_during_a_trial(commands[0], request.out)
    commands[1].process.join(300)
    assert commands[1].process.exitcode == 0, commands[1].events.read_text()
    killed, other = (read_events(command.events) for command in commands)
    started = [[event["number"] for event in events if event["event"] == "TrialStarted"] for events in (killed, other)]
    assert started[0][-1] == number and set(started[0]) & set(started[1]) == {number}
    assert Counter(started[0] + started[1]) == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1} | {number: 2}
    check_results(request.out, 5)
    trial = request.out / "trials" / f"{number:04d}"
    starts = [record.get("update", 0) for record in read_log(trial) if record["event"] == "started"]
    assert starts[0] == 0 and len(starts) == 2 and starts[1] > 0
    results = json.loads((request.out / "trials.json").read_text("utf-8"))["trials"]
    values = next(each["values"] for each in results if each["number"] == number)
    train_to_end(request.files, tmp_path / "alone", apply_values(request.config, request.space, values, "test"))
    if (trial / "model.safetensors").exists():
        assert_runs_identical(trial, tmp_path / "alone")
    scores = [
        [record["loss"] for record in read_log(folder) if record["event"] == "validated"]
        for folder in (trial, tmp_path / "alone")
    ]
    assert scores[0] == scores[1]


def kill_during_a_trial(command: SearchCommand, out: Path) -> int:
    """Kill a command by SIGKILL when its second trial has a checkpoint; return the number of the trial."""

    def running() -> Sequence[int]:
        """Return the numbers of the trials that the command has started, if the last one has a checkpoint."""
        events = read_events(command.events)
        numbers = [event["number"] for event in events if event["event"] == "TrialStarted"]
        ended = {event["number"] for event in events if event["event"] == "EndedTrial"}
        if not numbers or numbers[-1] in ended:
            return []
        return numbers if (out / "trials" / f"{numbers[-1]:04d}" / "training.safetensors").exists() else []

    wait_for(lambda: len(running()) == 2, command.process)
    number = running()[-1]
    os.kill(command.process.pid or 0, signal.SIGKILL)
    command.process.join(60)
    return number


def check_results(out: Path, num_trials: int) -> None:
    """Check that each trial has ended once, and that the results are those of all trials."""
    entries = read_journal(out / JOURNAL)
    assert sum(isinstance(entry, TrialCreated) for entry in entries) == num_trials
    ends = [entry.trial_id for entry in entries if isinstance(entry, StateSet) and entry.state != 0]
    assert sorted(ends) == list(range(num_trials))
    results = json.loads((out / "trials.json").read_text("utf-8"))
    assert [trial["state"] for trial in results["trials"]] == ["finished"] * num_trials
    best = results["trials"][0]
    with_model = [path.parent.name for path in (out / "trials").glob("*/model.safetensors")]
    assert with_model == [f"{best['number']:04d}"]
    rate = best["values"]["training.learning_rate"]
    assert f"learning_rate = {rate}" in (out / "best.toml").read_text("utf-8")
    assert not list(out.rglob("*.tmp")) and not (out / PROCESSES).exists()
    assert SPACE.searched[0].key in best["values"]
