"""Durations in settings: their seconds, and messages for other texts."""

import pytest

from pellucid.config.durations import parse_duration
from pellucid.config.toml import build_config
from pellucid.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 0.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), (" 2h ", 7200.0)]
)
def test_a_duration_has_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration("time", text) == seconds


@pytest.mark.parametrize(
    "text", ["10", "m", "ten minutes", "1e9h", "1h30m", "10 m", "1d", "٣m", "10m\n5s", "--1m", "1234567890s"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^time: expected a number with s, m or h, such as 90s, 10m or 2h, got '"):
        parse_duration("time", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", "a time above 0, such as 90s, 10m or 2h"),
        ("-1m", "a time above 0, such as 90s, 10m or 2h"),
        ("100000h", "at most 27777h, about three years"),
        ("999999999h", "at most 27777h, about three years"),
    ],
)
def test_numbers_out_of_range_are_refused_with_the_range(text: str, expected: str) -> None:
    """Regression test: the message asked for a number with a unit, which these are."""
    with pytest.raises(ConfigError, match=f"^time: expected {expected}, got '{text}'$"):
        parse_duration("time", text)
    assert parse_duration("time", "27777h") == 27777 * 3600


def test_a_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"training\.time_limit \(--time\): expected a number with s, m or h"):
        build_config({"training": {"time_limit": "10"}}, origin="config")
