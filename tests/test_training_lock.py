"""training/training_lock.py: threads of a process that train."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from trained_runs import (
    make_small_config,
    read_tensors,
    train_to_end,
    write_copy_files,
)

from pellucid.errors import RunError
from pellucid.training.session import train_run


def test_a_second_thread_may_not_train(tmp_path: Path) -> None:
    """Threads share torch's random number generator. One thread may hold several trainings, whose updates alternate."""
    files, config = write_copy_files(tmp_path), make_small_config({"epochs": 1})
    with closing(train_run(files, tmp_path / "one", config)) as events, ThreadPoolExecutor(1) as pool:
        next(events)
        with pytest.raises(
            RunError,
            match=r"^another thread of this process is training: .*; run each training in a process of its own$",
        ):
            pool.submit(train_to_end, files, tmp_path / "two", config).result()
        assert not (tmp_path / "two").exists()
        train_to_end(files, tmp_path / "three", config)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(train_to_end, files, tmp_path / "two", config).result()
    parameters = [read_tensors(tmp_path / name / "model.safetensors")[0] for name in ("two", "three")]
    assert parameters[0] == parameters[1]
