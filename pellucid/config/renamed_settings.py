"""Former names of settings: files of earlier versions have them, and hashes in such files were computed with them.

Files of settings and stored configurations may have the former names (`with_current_names`); everything that is
written has the current ones. Python arguments and flags with a former name are refused (`renaming_advice`).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from pellucid.config.settings import Config, DataConfig
from pellucid.errors import ConfigError, quote

RENAMED_SETTINGS: Mapping[str, str] = {
    "data.aligned": "data.equal_length",
    "encoder.features": "encoder.feature_merge",
    "decoder.output": "decoder.output_layer_inputs",
    "training.initial_run": "training.init_from",
    "training.initial_digest": "training.init_from_digest",
}
"""Current key of each renamed setting, by its former key. Both are in the same section."""
FORMER_NAMES: Mapping[str, str] = {current: former for former, current in RENAMED_SETTINGS.items()}
"""Former key of each renamed setting, by its current key."""


def current_key(key: str) -> str:
    """Return the current key of a setting.

    Args:
        key: Full key of the setting, current or former.
    """
    return RENAMED_SETTINGS.get(key, key)


def with_current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a file with the current names, in the order of the file.

    Args:
        settings: Settings, nested like a configuration; they need not be valid.

    Raises:
        ConfigError: A setting is there by both names; the message has both.
    """
    for former, current in RENAMED_SETTINGS.items():
        section, name = former.split(".")
        table = settings.get(section)
        if isinstance(table, Mapping) and name in table and current.partition(".")[2] in table:
            raise ConfigError(f"{former} is the former name of {current}: give {current} only")
    return _renamed(settings, RENAMED_SETTINGS)


def renaming_advice(key: str) -> str:
    """Return what to write in place of an unknown key, as the end of a message; "" if it is not a former name.

    Args:
        key: Full key of the setting.
    """
    return f"; its name is now {quote(RENAMED_SETTINGS[key])}" if key in RENAMED_SETTINGS else ""


def hashed_settings(settings: Config | DataConfig) -> dict[str, Any]:
    """Return settings as hashes have them, which are compared with those in files of earlier versions.

    The names are the former ones, so that a renamed setting changes no hash.

    Args:
        settings: A configuration, or its data settings.
    """
    values: dict[str, Any] = msgspec.to_builtins(settings)
    if isinstance(settings, Config):
        return _renamed(values, FORMER_NAMES)
    data: dict[str, Any] = _renamed({"data": values}, FORMER_NAMES)["data"]
    return data


def _renamed(settings: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return nested settings with other names, by full key; the order stays."""

    def name_of(section: str, name: object) -> object:
        return names.get(f"{section}.{name}", f"{section}.{name}").partition(".")[2] if type(name) is str else name

    return {
        section: {name_of(section, name): value for name, value in values.items()}
        if isinstance(values, Mapping)
        else values
        for section, values in settings.items()
    }
