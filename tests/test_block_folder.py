"""Folders of blocks: fingerprints, finished blocks, attempts, and the worker that processes blocks."""

import json
import os
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest

from pellucid import files
from pellucid.cluster import block_folder, ray_job
from pellucid.cluster.block_folder import BlockFolder, BlockNumbers, Fingerprint, locked_block_folder
from pellucid.cluster.block_pool import MAX_BLOCK_STARTS, BlockJob, BlockProcessor, BlockWorker, divide_numbers
from pellucid.cluster.ray_pool import JobResources
from pellucid.errors import DataError, FolderInUseError, RunError
from pellucid.files import write_json

FINGERPRINT = {"the version of Pellucid": "1", "the file": "abc"}


def test_finished_blocks_stay_for_the_same_command_and_end_with_it(tmp_path: Path) -> None:
    path = tmp_path / "out.blocks"
    with locked_block_folder(path, FINGERPRINT) as folder:
        folder.write_input(0, b"zero")
        folder.write_output(12, b"twelve")
    with locked_block_folder(path, FINGERPRINT) as folder:
        assert folder.read_input(0) == b"zero" and folder.read_output(12) == b"twelve"
        assert [number for number in range(20) if folder.is_finished(number)] == [12] == [*folder.finished_numbers()]
        assert folder.count_attempt(3) == 1
        folder.remove()
    assert not path.exists()


def test_another_command_is_refused_by_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "out.blocks"
    with locked_block_folder(path, FINGERPRINT) as folder:
        folder.write_output(3, b"three")
    other = {"the version of Pellucid": "1", "the file": "x", "the model": "y"}
    with pytest.raises(RunError) as error, locked_block_folder(path, other):
        pass
    assert str(error.value) == (
        f"{path} has the blocks of another command (different: the file, the model): repeat that command to finish "
        "it, or remove the folder to start again"
    )


def test_another_command_replaces_one_that_could_not_read_its_input(tmp_path: Path) -> None:
    """Regression test: the folder was refused, though the command that it was of could never finish."""
    path = tmp_path / "out.blocks"
    with pytest.raises(DataError), locked_block_folder(path, FINGERPRINT) as folder:
        folder.write_input(0, b"zero")
        raise DataError("line 1025 is bad")
    with locked_block_folder(path, {"the file": "corrected"}) as folder:
        assert sorted(os.listdir(path)) == ["fingerprint.json", "lock"]
        folder.write_output(0, b"zero")
    with locked_block_folder(path, {"the file": "corrected"}) as folder:
        assert list(folder.finished_numbers()) == [0]


def test_another_command_replaces_one_whose_model_has_changed(tmp_path: Path) -> None:
    """Regression test: "copy the run, and give the command with the copy" was refused, because blocks were started."""
    path = tmp_path / "out.blocks"
    with pytest.raises(RunError), locked_block_folder(path, FINGERPRINT) as folder:
        folder.write_input(0, b"zero")
        assert folder.count_attempt(0) == 1
        raise RunError("the model has changed")
    with locked_block_folder(path, {"the model": "a copy"}) as other:
        assert sorted(os.listdir(path)) == ["fingerprint.json", "lock"]
        assert other.is_in_use() and not folder.is_in_use()


def test_blocks_may_have_numbers_of_nine_digits(tmp_path: Path) -> None:
    others = ["output-0000001", "output-000000012", "output-1000000000"]
    with locked_block_folder(tmp_path / "b", FINGERPRINT) as folder:
        for name in others:
            (folder.path / name).touch()
        folder.write_output(99_999_999, b"")
        folder.write_output(100_000_000, b"")
        assert list(folder._numbers("output")) in ([99_999_999, 100_000_000], [100_000_000, 99_999_999])
        folder.remove()
    assert sorted(os.listdir(tmp_path / "b")) == sorted(["lock", *others])


def test_numbers_are_those_of_a_set() -> None:
    rng, numbers, expected = Random(1), BlockNumbers([7, 3, 3]), {3, 7}
    for _ in range(300):
        number = rng.randrange(40)
        if rng.random() < 0.5:
            numbers.add(number)
            expected.add(number)
        else:
            numbers.discard(number)
            expected.discard(number)
        assert list(numbers) == sorted(expected) and len(numbers) == len(expected)
        assert [each in numbers for each in range(50)] == [each in expected for each in range(50)]


def test_memory_of_a_finished_block_is_small(tmp_path: Path) -> None:
    """Regression test: the command held some hundred bytes for each block, and an input may have millions."""
    count = 20_000
    folder = BlockFolder(tmp_path)
    folder._block_names = lambda: filter(  # type: ignore[method-assign]
        None, (block_folder.BLOCK_NAME.fullmatch(f"output-{number:08}") for number in range(count))
    )
    tracemalloc.start()
    try:
        finished = folder.finished_numbers()
        used, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(finished) == count and used < 2 * count and peak < 4 * count


def test_a_system_error_within_the_block_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), locked_block_folder(tmp_path / "b", FINGERPRINT):
        raise BrokenPipeError


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with (
        locked_block_folder(tmp_path / "b", FINGERPRINT),
        pytest.raises(FolderInUseError, match="is in use: another command is writing to it"),
        locked_block_folder(tmp_path / "b", FINGERPRINT),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", b"", "holds notes.txt and no fingerprint.json: expected a new or an empty folder"),
        ("fingerprint.json", b"{", "is damaged: remove"),
    ],
)
def test_a_folder_with_other_content_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match=message), locked_block_folder(tmp_path, FINGERPRINT):
        pass
    assert (tmp_path / name).read_bytes() == content and ((tmp_path / "lock").exists() == (name == "fingerprint.json"))


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("")
    with pytest.raises(RunError, match="is not a folder"), locked_block_folder(tmp_path / "b", FINGERPRINT):
        pass


def test_files_of_others_stay(tmp_path: Path) -> None:
    with locked_block_folder(tmp_path / "b", FINGERPRINT) as folder:
        folder.write_output(0, b"")
        (folder.path / "notes.txt").write_text("")
        folder.remove()
    assert sorted(os.listdir(tmp_path / "b")) == ["lock", "notes.txt"]


def test_a_lock_that_another_command_has_removed_is_refused(tmp_path: Path) -> None:
    """Two commands open the lock file and the first removes it; the second must not hold a removed lock."""
    with locked_block_folder(tmp_path / "b", FINGERPRINT) as folder:
        opened = (tmp_path / "b" / "lock").open("ab")
        folder.remove()
    with pytest.MonkeyPatch.context() as patched, pytest.raises(FolderInUseError, match="has just ended there"):
        patched.setattr(block_folder, "open_regular_file", lambda path, mode: opened)
        with locked_block_folder(tmp_path / "b", FINGERPRINT):
            pass


def test_a_long_block_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long n-best lists exceed the limit of other files of a run."""
    monkeypatch.setattr(files, "MAX_FILE_SIZE", 3)
    monkeypatch.setattr(files.read_bytes, "__defaults__", (RunError, 3, True))
    monkeypatch.setattr(block_folder, "MAX_FILE_SIZE", 3, raising=False)
    folder = BlockFolder(tmp_path)
    folder.write_input(0, b"longer")
    folder.write_output(0, b"longer")
    assert folder.read_input(0) == folder.read_output(0) == b"longer"


def test_a_finished_block_that_another_machine_has_written_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system remembers for a while that a file did not exist."""
    folder = BlockFolder(tmp_path)
    monkeypatch.setattr(time, "sleep", lambda seconds: folder.write_output(0, b"visible"))
    assert folder.read_output(0) == b"visible"
    monkeypatch.setattr(block_folder, "MAX_VISIBLE_SECONDS", 0.0)
    with pytest.raises(DataError, match="output-00000001: no such file"):
        folder.read_output(1)


def test_a_block_of_the_input_is_replaced_at_once(tmp_path: Path) -> None:
    """A process that has opened the block reads it to its end, while another command writes it again."""
    folder = BlockFolder(tmp_path)
    folder.write_input(0, b"block")
    with (tmp_path / "input-00000000").open("rb") as opened:
        folder.write_input(0, b"other")
        assert opened.read() == b"block"


def double(content: bytes) -> bytes:
    """Return a block twice; the block "bad" is a user's mistake, and "bug" a bug."""
    if content == b"bad":
        raise DataError("line 1 is bad", "line 2 is bad")
    if content == b"memory":
        raise MemoryError
    if content == b"bug":
        raise ValueError("bug")
    if content == b"damaged":
        msgspec.msgpack.decode(b"\x81")
    return content * 2


def return_double(threads: int) -> BlockProcessor:
    return double


def batch_of(*numbers: int) -> dict[str, list[int]]:
    """Return a batch of blocks as a worker gets it."""
    runs = divide_numbers(numbers, len(numbers))
    return {name: [run[name] for run in runs] for name in ("start", "stop")}


MakeWorker = Callable[..., BlockWorker]


@pytest.fixture
def make_worker(tmp_path: Path) -> Iterator[MakeWorker]:
    """Return a function that returns a worker of a command, for a folder with some blocks."""
    with ExitStack() as stack:

        def make(*blocks: bytes, make_processor: Callable[[int], BlockProcessor] = return_double) -> BlockWorker:
            folder = stack.enter_context(locked_block_folder(tmp_path / "b", FINGERPRINT))
            for number, content in enumerate(blocks):
                folder.write_input(number, content)
            return BlockWorker(BlockJob(folder, make_processor, JobResources(3)))

        yield make


def test_a_worker_writes_finished_blocks_and_returns_the_errors_of_users(make_worker: MakeWorker) -> None:
    worker = make_worker(b"a", b"bad", b"memory", b"b", b"damaged")
    result = worker(batch_of(0, 1, 2, 3, 4))
    assert result["number"] == [0, 1, 2, 3, 4]
    assert [json.loads(error or "[]") for error in result["error"]][:2] == [[], ["line 1 is bad", "line 2 is bad"]]
    assert json.loads(result["error"][2])[0].startswith("out of memory on the machine ") and result["error"][3] == ""
    (damaged,) = json.loads(result["error"][4])
    assert damaged == f"block 5 of {worker.job.folder.path} is damaged: remove the folder, and run the command again"
    assert set(worker.job.folder.finished_numbers()) == {0, 3} and worker.job.folder.read_output(3) == b"bb"
    assert set(worker.job.folder._numbers("attempts")) == {1, 2, 4}


def test_numbers_of_millions_of_blocks_are_few_runs() -> None:
    """Regression test: each number was a dict."""
    assert divide_numbers(range(1_000_000), 100_000) == [
        {"start": start, "stop": start + 100_000} for start in range(0, 1_000_000, 100_000)
    ]
    assert divide_numbers(BlockNumbers([2, 3, 4, 8, 10, 11]), 2) == [
        {"start": 2, "stop": 4},
        {"start": 4, "stop": 5},
        {"start": 8, "stop": 9},
        {"start": 10, "stop": 12},
    ]
    assert divide_numbers([5, 6], 1) == [{"start": 5, "stop": 6}, {"start": 6, "stop": 7}]


def test_a_bug_is_raised(make_worker: MakeWorker) -> None:
    with pytest.raises(ValueError, match="bug"):
        make_worker(b"bug")(batch_of(0))


def test_a_processor_is_made_once_with_the_number_of_threads(make_worker: MakeWorker) -> None:
    threads = list[int]()

    def make_processor(count: int) -> BlockProcessor:
        threads.append(count)
        return double

    make_worker(b"a", b"b", make_processor=make_processor)(batch_of(0, 1))
    assert threads == [3]


def test_a_process_that_was_cut_off_from_an_ended_command_writes_nothing(make_worker: MakeWorker) -> None:
    """Its command has removed the folder, after another machine had finished the block."""
    folder = None

    def end_command(content: bytes) -> bytes:
        assert folder is not None
        folder.remove()
        return content

    worker = make_worker(b"a", make_processor=lambda threads: end_command)
    folder = worker.job.folder
    assert worker(batch_of(0))["error"] == worker(batch_of(1))["error"] == [""]
    assert os.listdir(folder.path) == ["lock"]


def test_a_process_that_was_cut_off_writes_nothing_into_the_folder_of_another_command(
    make_worker: MakeWorker, tmp_path: Path
) -> None:
    """Regression test: its block became one of the other command, which has another model."""
    folder = None

    def begin_another(content: bytes) -> bytes:
        assert folder is not None
        folder.remove()
        write_json(folder.path / "fingerprint.json", Fingerprint(parts={"the model": "another"}))
        return content

    worker = make_worker(b"a", make_processor=lambda threads: begin_another)
    folder = worker.job.folder
    assert worker(batch_of(0))["error"] == worker(batch_of(1))["error"] == [""]
    assert sorted(os.listdir(folder.path)) == ["fingerprint.json", "lock"]


def test_a_finished_block_is_not_processed_again(make_worker: MakeWorker) -> None:
    worker = make_worker(b"bug")
    worker.job.folder.write_output(0, b"finished")
    assert worker(batch_of(0)) == {"number": [0], "error": [""]}


def test_a_block_is_given_up_after_some_deaths(make_worker: MakeWorker) -> None:
    worker = make_worker(b"a")
    assert [worker.job.folder.count_attempt(0) for _ in range(MAX_BLOCK_STARTS)] == [*range(1, MAX_BLOCK_STARTS + 1)]
    (error,) = json.loads(worker(batch_of(0))["error"][0])
    assert error.startswith(f"block 1: its process was killed {MAX_BLOCK_STARTS} times, perhaps for lack of memory")
    worker.job.folder.reset_attempts(0)
    assert worker(batch_of(0))["error"] == [""]


def test_a_machine_without_the_folder_or_with_another_version_is_reported(
    make_worker: MakeWorker, tmp_path: Path
) -> None:
    worker = make_worker(b"a")
    elsewhere = BlockWorker(worker.job._replace(folder=BlockFolder(tmp_path / "absent")))
    (error,) = json.loads(elsewhere(batch_of(0))["error"][0])
    assert socket.gethostname() in error and "no such file or directory" in error
    newer = BlockWorker(worker.job._replace(version="0.0.9"))
    (error,) = json.loads(newer(batch_of(0))["error"][0])
    assert "and this command has 0.0.9: install the same version on all machines" in error


def test_a_file_system_whose_locks_are_not_shared_is_refused(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, the same command on two machines would remove the blocks of each other."""
    worker = make_worker(b"a")
    monkeypatch.setattr(ray_job, "try_lock", lambda file: True)
    (error,) = json.loads(worker(batch_of(0))["error"][0])
    assert "lock" in error and str(worker.job.folder.path) in error
    assert not worker.job.folder.finished_numbers()
