"""The files of a run folder: data settings of its validation file."""

from pathlib import Path

from pellucid.config.settings import DataConfig
from pellucid.run_folder.run_files import pair_file_config


def test_the_validation_file_of_a_run_has_its_own_columns(tmp_path: Path) -> None:
    data = DataConfig(source_column="word", target_column="sound", header=True)
    (tmp_path / "validation.jsonl").write_text("{}\n")
    assert pair_file_config(tmp_path / "validation.jsonl", data) == data  # of no run
    (tmp_path / "config.toml").write_text("")
    config = pair_file_config(tmp_path / "validation.jsonl", data)
    assert (config.input_format, config.source_column, config.target_column) == ("jsonl", "source", "target")
    assert pair_file_config(tmp_path / "other.jsonl", data) == data and pair_file_config(None, data) == data
