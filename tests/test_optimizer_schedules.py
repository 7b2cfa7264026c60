"""Each learning-rate schedule equals its closed form and is continuous at the end of the warm-up."""

import math
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config.settings import TrainingConfig
from pellucid.training.optimizer import scheduled_learning_rate

MAX_RATE = 0.02
SCHEDULES = sorted(get_args(get_type_hints(TrainingConfig)["lr_schedule"]))


def make_config(schedule: str, warmup: float) -> TrainingConfig:
    return TrainingConfig(batch_size=1, learning_rate=MAX_RATE, lr_schedule=schedule, warmup_ratio=warmup, patience=0)  # type: ignore[arg-type]


def relative_rate(schedule: str, warmup: float, progress: float, plateau_factor: float = 1.0) -> float:
    """Return the learning rate divided by its maximum."""
    return scheduled_learning_rate(make_config(schedule, warmup), progress, plateau_factor) / MAX_RATE


@pytest.mark.parametrize(
    ("schedule", "progress", "expected"),
    [
        ("constant", 0.2, 1.0),
        ("constant", 0.21, 1.0),
        ("constant", 1.0, 1.0),
        ("cosine", 0.2, 1.0),
        ("cosine", 0.4, (1 + math.sqrt(0.5)) / 2),
        ("cosine", 0.6, 0.5),
        ("cosine", 0.8, (1 - math.sqrt(0.5)) / 2),
        ("cosine", 1.0, 0.0),
        ("inverse-square-root", 0.2, 1.0),
        ("inverse-square-root", 0.45, 2 / 3),
        ("inverse-square-root", 0.8, 1 / 2),
        ("inverse-square-root", 1.0, math.sqrt(0.2)),
        ("plateau", 0.2, 0.25),
        ("plateau", 0.9, 0.25),
    ],
)
def test_each_schedule_equals_its_closed_form_after_the_warmup(schedule: str, progress: float, expected: float) -> None:
    assert relative_rate(schedule, 0.2, progress, plateau_factor=0.25) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(st.floats(0.001, 0.99), st.floats(0, 1, exclude_max=True))
def test_the_warmup_is_linear_from_zero(schedule: str, warmup: float, fraction: float) -> None:
    assert relative_rate(schedule, warmup, warmup * fraction) == pytest.approx(fraction, abs=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(st.floats(1e-6, 0.99))
def test_the_rate_is_continuous_at_the_end_of_the_warmup(schedule: str, warmup: float) -> None:
    assert relative_rate(schedule, warmup, warmup) == pytest.approx(1, abs=1e-9)
    step = 1e-9 * warmup
    assert relative_rate(schedule, warmup, warmup - step) == pytest.approx(
        relative_rate(schedule, warmup, warmup + step), abs=1e-6
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(st.floats(0, 0.99), st.floats(0, 1), st.floats(0, 1))
def test_the_rate_stays_within_bounds_and_never_rises_after_the_warmup(
    schedule: str, warmup: float, first: float, second: float
) -> None:
    early, late = sorted((first, second))
    assert 0 <= relative_rate(schedule, warmup, early) <= 1 + 1e-12
    if early >= warmup:
        assert relative_rate(schedule, warmup, late) <= relative_rate(schedule, warmup, early) + 1e-12


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_a_warmup_training_starts_at_the_highest_rate(schedule: str) -> None:
    assert relative_rate(schedule, 0.0, 0.0) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
@given(st.floats(0, 1), st.floats(0.01, 1))
def test_the_plateau_factor_lowers_only_the_plateau_schedule(schedule: str, progress: float, factor: float) -> None:
    rate = relative_rate(schedule, 0.0, progress, plateau_factor=factor)
    expected = factor if schedule == "plateau" else relative_rate(schedule, 0.0, progress)
    assert rate == pytest.approx(expected, abs=1e-12)
