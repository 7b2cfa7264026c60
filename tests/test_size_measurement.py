"""training/size_measurement.py: the size that a time limit allows, and the size of a started run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from trained_runs import digits_run

from pellucid.config.settings import Config, Size
from pellucid.config.toml import build_config
from pellucid.data.examples import read_examples
from pellucid.run_folder.run_files import saved_size
from pellucid.training import size_measurement
from pellucid.training.size_measurement import config_within_time, measure_size, measure_speed


def config_builder(settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 (a function)
    """Return the function that adds a size to settings with a time limit."""
    return lambda size: build_config({**settings, "training": {"time_limit": "100s"}, "size": size}, "test")


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ({"base": 1e9, "large": 1e9}, "large"),
        ({"base": 1e9, "large": 1e-9}, "base"),
        ({"small": 1e9, "base": 1e-9, "large": 1e-9}, "small"),
        ({"small": 1e-9, "base": 1e-9, "large": 1e-9}, "small"),
    ],
)
def test_largest_size_that_makes_enough_updates_is_chosen(
    monkeypatch: pytest.MonkeyPatch, speeds: Mapping[Size, float], expected: Size
) -> None:
    monkeypatch.setattr(size_measurement, "default_size", lambda *_: "large")
    monkeypatch.setattr(size_measurement, "measure_speed", lambda _, config: speeds[config.size])
    assert measure_size(digits_run().files, config_builder({})).size == expected


def test_speed_is_that_of_updates_and_leaves_no_trace() -> None:
    config: Config = config_builder({})("tiny")
    examples = read_examples(digits_run().files.train, config.data).examples
    assert 10 < measure_speed(examples[:50], config) < 1e7


def test_size_of_a_started_run_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = digits_run()
    assert saved_size(run.run) == run.config.size and saved_size(tmp_path) is None
    assert saved_size(tmp_path / "missing") is None
    monkeypatch.setattr(size_measurement, "measure_size", pytest.fail)
    config, measured = config_within_time(run.run, run.files, config_builder({}))
    assert config.size == run.config.size and measured is None
