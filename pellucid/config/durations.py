"""Durations in settings, such as "90s", "10m" and "2h"."""

import math
import re

from pellucid.argument_checks import check_arguments
from pellucid.errors import ConfigError, quote

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
"""Seconds of each unit."""
MAX_SECONDS = 1e8
"""Maximum duration: about three years."""
PATTERN = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)([smh])", re.ASCII)
EXAMPLES = "such as 90s, 10m or 2h"


@check_arguments
def parse_duration(key: str, text: str) -> float:
    """Return a duration in seconds; 0 for an empty text.

    Args:
        key: Full name of the setting, for the message.
        text: A number and the unit s, m or h; or empty.

    Raises:
        ConfigError: The text is not a duration, or one of zero or more than `MAX_SECONDS`.
    """
    if not text:
        return 0.0
    match = PATTERN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{key}: expected a number with s, m or h, {EXAMPLES}, got {quote(text)}")
    seconds = float(match[1]) * SECONDS[match[2]]
    if seconds <= 0.0:
        raise ConfigError(f"{key}: expected a time above 0, {EXAMPLES}, got {quote(text)}")
    if seconds > MAX_SECONDS:
        maximum = math.floor(MAX_SECONDS / SECONDS["h"])
        raise ConfigError(f"{key}: expected at most {maximum}h, about three years, got {quote(text)}")
    return seconds
