"""Settings that select the columns of a data file, by a name or a number from 1."""

from pellucid.config.settings import DataConfig
from pellucid.errors import ConfigError, parse_whole_number, quote

MAX_COLUMN_NUMBER = 2**20
"""Maximum number of a column that a setting may select."""


def column_number(column: str) -> int | None:
    """Return the number of a column that is selected by number; None for a name, and for more than 18 digits.

    Args:
        column: A name, or a number from 1.
    """
    return parse_whole_number(column)


def check_column(setting: str, column: str) -> None:
    """Check that a column number is in range.

    Args:
        setting: Setting, flag or argument that selects the column, for the message, such as "data.source_column".
        column: A name, or a number from 1.

    Raises:
        ConfigError: It is a number, but not from 1 to `MAX_COLUMN_NUMBER`.
    """
    number = column_number(column)
    if (column.isascii() and column.isdecimal() and number is None) or (
        number is not None and number > MAX_COLUMN_NUMBER
    ):
        raise ConfigError(
            f"{setting}: expected a name or a number from 1 to {MAX_COLUMN_NUMBER:,}, got {quote(column)}"
        )
    if number == 0:
        raise ConfigError(f"{setting}: expected a name or a number from 1, got {quote(column)}")


def check_columns(data: DataConfig, group_setting: str = "data.group_column") -> None:
    """Check that the source and the target have a column, and that column numbers are in range.

    Args:
        data: Data settings.
        group_setting: Setting, flag or argument that selects the column of the groups, for the message.

    Raises:
        ConfigError: A column is empty, or its number is out of range; the message names the setting.
    """
    for setting, column in (("data.source_column", data.source_column), ("data.target_column", data.target_column)):
        if not column:
            raise ConfigError(f"{setting}: expected a name or a number from 1, got ''")
        check_column(setting, column)
    check_column("data.features_column", data.features_column)
    check_column("data.class_column", data.class_column)
    check_column(group_setting, data.group_column)
