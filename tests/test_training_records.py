"""training/training_records.py: the records of a training in its log."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from trained_runs import (
    DataFiles,
    make_copy_examples,
    make_small_config,
    train_to_end,
    write_copy_files,
)

from pellucid.config.settings import Size
from pellucid.run_folder.log import read_log
from pellucid.training import session, training_records
from pellucid.training.events import DEFAULT_SIZE, GIVEN_SIZE, SizeChosen, SizeOrigin, UpdateCompleted
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles


def test_the_log_announces_the_compilation_of_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged_events = list[str]()
    monkeypatch.setattr(session, "will_compile", lambda: True)
    monkeypatch.setattr(
        session,
        "load_kernels",
        lambda: logged_events.extend(each["event"] for each in read_log(tmp_path / "run")),
    )
    train_to_end(write_copy_files(tmp_path), tmp_path / "run", make_small_config({"epochs": 1}))
    assert logged_events == ["compiling"]
    assert [each["event"] for each in read_log(tmp_path / "run")][:4] == ["compiling", "read", "read", "started"]


def test_log_and_card_have_the_choice_of_the_size(tmp_path: Path) -> None:
    """Regression test: what --time chose, and why, was printed only."""
    files = write_copy_files(tmp_path)
    estimated_updates: tuple[tuple[Size, int], ...] = (("base", 1200), ("small", 4700))
    choice = SizeChosen(
        "small", "1h", 9.4, 30.0, 500.0, "8 examples", "base", 5000.0, estimated_updates=estimated_updates
    )
    config = make_small_config({"epochs": 1, "time_limit": "1h"})
    for _ in range(2):  # a finished run is unchanged
        list(train_run(files, tmp_path / "run", config, size_origin=SizeOrigin(measured=choice)))
    (record,) = [record for record in read_log(tmp_path / "run") if record["event"] == "size_chosen"]
    reason = "even small makes fewer than 5,000 updates in this time"
    facts = {"event": "size_chosen", "size": "small", "time_limit": "1h", "batch_size": "8 examples", "reason": reason}
    assert record == {**facts, "updates_base": 1200, "updates_small": 4700}
    card = (tmp_path / "run" / "card.md").read_text("utf-8")
    line = "* Size small, chosen for 1h by the speed of a few updates; estimated updates: base 1,200, small 4,700; "
    assert f"{line}{reason}.\n" in card
    list(train_run(files, tmp_path / "other", make_small_config({"epochs": 1})))
    assert "size_chosen" not in {record["event"] for record in read_log(tmp_path / "other")}
    assert "chosen for" not in (tmp_path / "other" / "card.md").read_text("utf-8")


def test_validations_follow_the_epochs_for_which_a_time_limit_is_enough(tmp_path: Path) -> None:
    """Regression test: with the maximum number of epochs, the interval was longer than the time limit."""
    files, config = write_copy_files(tmp_path), make_small_config({"epochs": 24, "time_limit": "1h"})
    choice = SizeChosen("small", "1h", 4.0, 24.0, 5.0, "8 examples", "base", 5000.0)
    measured = SizeOrigin(measured=choice)
    for name, origin, validated in (("measured", measured, [10, 20]), ("given", GIVEN_SIZE, [15, 30])):
        events = train_run(files, tmp_path / name, config, size_origin=origin)
        for event in events:
            if isinstance(event, UpdateCompleted) and event.progress.update == 12:
                break
        events.close()
        resumed = train_run(files, tmp_path / name, config)
        for event in resumed:
            if isinstance(event, UpdateCompleted) and event.progress.update == 31:
                break
        resumed.close()
        validations = [each["update"] for each in read_log(tmp_path / name) if each["event"] == "validated"]
        assert validations[:2] == validated, name


def test_log_and_card_have_a_default_size(tmp_path: Path) -> None:
    """Regression test: without --time, only a line of the terminal said why the network has its size."""
    pairs = write_copy_files(tmp_path)
    files, config = TrainingFiles(pairs.train, None), make_small_config({"epochs": 1})
    for _ in range(2):  # a finished run is unchanged
        list(train_run(files, tmp_path / "run", config, size_origin=DEFAULT_SIZE))
    (record,) = [record for record in read_log(tmp_path / "run") if record["event"] == "size_chosen"]
    count = len(pairs.train.read_text("utf-8").splitlines())
    num_held_out = record["held_out"]
    assert num_held_out == [each for each in read_log(tmp_path / "run") if each["event"] == "read"][1]["examples"]
    reason = f"the default for {count} pairs, of which {num_held_out} are held out for validation"
    assert record["reason"] == reason and record["size"] == config.size
    assert record["pairs"] == count
    assert f"* Size {config.size}, {reason}.\n" in (tmp_path / "run" / "card.md").read_text("utf-8")
    list(train_run(files, tmp_path / "given", config))
    assert f"* Size {config.size}.\n" in (tmp_path / "given" / "card.md").read_text("utf-8")
    events = train_run(files, tmp_path / "given", config, size_origin=DEFAULT_SIZE)
    assert not [event for event in events if isinstance(event, UpdateCompleted)]
    assert "size_chosen" not in {record["event"] for record in read_log(tmp_path / "given")}


def test_the_log_has_the_checksums_of_the_data_files(tmp_path: Path) -> None:
    pairs, targets = write_copy_files(tmp_path), tmp_path / "dev.target.txt"
    lines = [example.source for example in make_copy_examples(10, seed=2)]
    (tmp_path / "train.txt").write_text("".join(f"{line}\n" for line in "abcd"))
    (tmp_path / "dev.txt").write_text("".join(f"{line}\n" for line in lines))
    targets.write_text("".join(f"{line}\r\n" for line in lines), newline="")
    parallel = DataFiles(tmp_path / "train.txt", tmp_path / "dev.txt", tmp_path / "train.txt", targets)
    for name, files in (("pairs", pairs), ("parallel", parallel)):
        train_to_end(files, tmp_path / name, make_small_config({"epochs": 1}))
        records = [record for record in read_log(tmp_path / name) if record["event"] == "read"]
        expected = [(files.train, files.train_target), (files.valid, files.valid_target)]
        for record, (path, target) in zip(records, expected, strict=True):
            for prefix, file in (("", path), ("target_", target)):
                content = None if file is None else file.read_bytes()
                size, checksum = record.get(f"{prefix}size"), record.get(f"{prefix}sha256")
                assert size == (None if content is None else len(content))
                assert checksum == (None if content is None else hashlib.sha256(content).hexdigest())


@pytest.mark.skipif(os.name == "nt", reason="named pipes")
def test_the_log_has_no_checksum_of_a_pipe(tmp_path: Path) -> None:
    files, pipe = write_copy_files(tmp_path), tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(pipe.write_bytes, files.valid.read_bytes())
        train_to_end(files._replace(valid=pipe), tmp_path / "run", make_small_config({"epochs": 1}))
    train, valid = (record for record in read_log(tmp_path / "run") if record["event"] == "read")
    assert {"size", "sha256"} <= set(train) and not {"size", "sha256"} & set(valid)


def test_many_bad_lines_do_not_damage_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the record of a file with 13,000 bad lines was longer than a reader of the log accepts."""
    monkeypatch.setattr(training_records, "MAX_RECORD_SIZE", 8_000)
    train, dev = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    train.write_text("a\ta\nb\tb\n" * 30 + "bad line\n" * 40)
    dev.write_text("a\ta\nc\tc\n")
    config = make_small_config({"epochs": 1}, data={"on_bad_line": "skip"})
    train_to_end(DataFiles(train, dev), tmp_path / "run", config)
    first, second, *_ = (record for record in read_log(tmp_path / "run") if record["event"] == "read")
    assert 0 < len(first["bad_lines"]) < 40 == first["num_bad_lines"] and len(json.dumps(first)) < 8_000
    assert second["bad_lines"] == [] and "num_bad_lines" not in second
