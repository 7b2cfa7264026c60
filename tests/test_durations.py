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
    "text", ["10", "m", "ten minutes", "-1m", "0s", "1e9h", "999999999h", "10 m", "1d", "٣m", "10m\n5s"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^time: expected a number with s, m or h, such as 90s, 10m or 2h, got '"):
        parse_duration("time", text)


def test_a_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"training\.time_limit: expected a number with s, m or h"):
        build_config({"training": {"time_limit": "10"}}, origin="config")
