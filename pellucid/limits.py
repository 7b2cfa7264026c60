"""Limits on the size of input files in MiB: environment variables replace the defaults.

They bound the memory that an untrusted file can take. PELLUCID_MAX_LINE_MIB is read in `data/lines.py`,
PELLUCID_MAX_PARQUET_MIB in `data/readers.py`, PELLUCID_MAX_VOCABULARY_MIB in `data/vocabulary.py`, and
PELLUCID_MAX_LOG_MIB in `run_folder/log.py`, each when the module is imported. PELLUCID_MAX_UNPACKED_MIB is read when a
compressed file is opened.
"""

import os

from pellucid.errors import ConfigError, DataError, parse_whole_number, quote

MAX_MEBIBYTES = 2**20
"""Largest limit that can be set: one TiB."""
UNPACKED_VARIABLE = "PELLUCID_MAX_UNPACKED_MIB"
MAX_EXPANSION = 100
"""Size of the content of a compressed file, as a multiple of that of the file, up to which it may exceed the limit.
Text has 3 to 20."""


def read_limit(variable: str, default: int, largest: int = MAX_MEBIBYTES) -> int:
    """Return a limit in bytes.

    Args:
        variable: Environment variable with the limit in MiB.
        default: Limit in MiB if the variable is not set, or empty.
        largest: Largest limit in MiB; `MAX_MEBIBYTES` by default.

    Raises:
        ConfigError: The variable is not a whole number from 1 to `largest`.
    """
    text = os.environ.get(variable, "")
    number = parse_whole_number(text) if text else default
    if number is None or not 1 <= number <= largest:
        raise ConfigError(f"{variable}: expected a whole number of MiB from 1 to {largest}, got {quote(text)}")
    return number * 2**20


_ERRORS: list[ConfigError] = []
"""Errors of the limits of modules."""


def read_module_limit(variable: str, default: int, largest: int = MAX_MEBIBYTES) -> int:
    """Return a limit in bytes for a module that is being imported; `check_module_limits` reports an invalid one later.

    Args:
        variable: Environment variable with the limit in MiB.
        default: Limit in MiB if the variable is not set, empty or invalid.
        largest: Largest limit in MiB; `MAX_MEBIBYTES` by default.
    """
    try:
        return read_limit(variable, default, largest)
    except ConfigError as error:
        _ERRORS.append(error)
        return default * 2**20


def check_module_limits() -> None:
    """Check the limits of the modules that were imported; called before a file with such a limit is read.

    Raises:
        ConfigError: A limit was invalid when its module was imported.
    """
    if _ERRORS:
        raise _ERRORS[0]


def check_unpacked(name: str, unpacked: int, packed: int) -> None:
    """Refuse a compressed file whose content is much larger than the file.

    Args:
        name: Name of the file, for the message.
        unpacked: Bytes of its content so far.
        packed: Bytes of the file so far.

    Raises:
        DataError: The content exceeds the limit of `UNPACKED_VARIABLE`, and `MAX_EXPANSION` times the size of the file.
        ConfigError: The limit is invalid.
    """
    if unpacked > MAX_EXPANSION * packed and unpacked > (limit := read_limit(UNPACKED_VARIABLE, 64)):
        raise DataError(
            f"{name} unpacks to more than {limit:,} bytes, and to more than {MAX_EXPANSION} times its size: it is "
            "refused, because it could exhaust the memory. To read it, set the environment variable "
            f"{UNPACKED_VARIABLE} to a larger number of MiB"
        )
