"""Messages about files and folders that may not be read or written."""

import os
from pathlib import Path

import pytest
from trained_runs import make_small_config, write_pairs
from unprivileged import ordinary_permissions

from pellucid.data.synthetic import spelled_digits
from pellucid.errors import DataError
from pellucid.training.preparation import prepare_data
from pellucid.training.training_data import TrainingFiles

pytestmark = pytest.mark.skipif(os.name == "nt", reason="file permissions of POSIX")
PAIRS = spelled_digits(20, 1, 3, seed=1)


def test_an_unreadable_file_is_not_prepared(tmp_path: Path) -> None:
    """Regression test: the message said that it is no regular file."""
    path = write_pairs(tmp_path / "train.tsv", PAIRS)
    path.chmod(0)
    with ordinary_permissions(), pytest.raises(DataError, match=rf"^cannot read {path}: permission denied$"):
        list(prepare_data(TrainingFiles(path, None), tmp_path / "out", make_small_config()))
