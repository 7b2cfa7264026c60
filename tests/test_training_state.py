"""State of a training: its batches, and settings that are derived from the data."""

from typing import Any

import pytest
from small_trainings import TRAINING_EXAMPLES, build_session
from trained_runs import make_small_config

from pellucid.run_folder.progress import Progress
from pellucid.training.events import ValidationCompleted
from pellucid.training.loop import fit


def test_every_example_is_used_once_per_epoch() -> None:
    events = list(fit(build_session(make_small_config({"epochs": 3, "batch_size": 7}))))
    assert [e.progress.samples for e in events if isinstance(e, ValidationCompleted)] == [20, 40, 60]


@pytest.mark.parametrize(
    ("settings", "interval"),
    [
        ({}, 6.0),
        ({"eval_interval": 0.5}, 0.5),
        ({"patience": 3}, 1.0),
        ({"lr_schedule": "plateau"}, 1.0),
        ({"weight_averaging": "last"}, 1.0),
    ],
)
def test_an_unset_interval_is_derived_unless_settings_count_validations(
    settings: dict[str, Any], interval: float
) -> None:
    config = make_small_config({"epochs": 50, **settings})
    assert build_session(config, TRAINING_EXAMPLES[:4]).eval_interval(Progress()) == interval


def test_an_unset_batch_size_is_derived() -> None:
    derived, configured = (
        build_session(make_small_config({"epochs": 1, "batch_size": each})).plan_batches(0) for each in (0, 5)
    )
    assert max(map(len, derived)) == 8
    assert max(map(len, configured)) == 5
