"""Reading of run folders without PyTorch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from task_cases import task_run
from trained_runs import copy_run_folder, copy_task_run

from pellucid.errors import RunError
from pellucid.run_folder.predictor_loader import load_without_warnings
from pellucid.runtime.run_reader import read_run
from pellucid.runtime.support import UnsupportedError

PROGRAM = """
import sys
sys.modules.update(torch=None, numba=None)
from pathlib import Path
from pellucid.runtime.run_reader import read_run
run = read_run(Path(sys.argv[1]))
print(run.config.task, run.network.decoder.embedding.shape, run.network.encoder.embedding.dtype)
"""


def test_a_run_is_read_with_the_values_of_its_network() -> None:
    run, predictor = read_run(copy_task_run().run), load_without_warnings(copy_task_run().run)
    assert (run.config, run.vocabularies) == (predictor.config, predictor.vocabularies)
    tensors = predictor.network.state_dict()
    assert np.array_equal(run.network.encoder.embedding, tensors["encoder.table.weight"])
    assert np.array_equal(run.network.decoder.output.weight, tensors["decoder.head.projection.weight"])


def test_reading_needs_neither_torch_nor_numba() -> None:
    command = [sys.executable, "-c", PROGRAM, str(copy_task_run().run)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "transduce (8, 6) float32\n"


def test_a_run_of_another_task_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="does not support task"):
        read_run(task_run("tag").run)


def test_damaged_and_mixed_files_are_refused(tmp_path: Path) -> None:
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    content = bytearray((run / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (run / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="does not match its checksum"):
        read_run(run)
    settings = (run / "config.toml").read_text("utf-8")
    (run / "config.toml").write_text(settings.replace("hidden_size = 6", "hidden_size = 5"), "utf-8")
    with pytest.raises(RunError, match="are not of the same run"):
        read_run(run)
