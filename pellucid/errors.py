"""What went wrong, told to the person who can mend it.

Every mistake a user can make ends in an `InputError`: one message that names the file, the line, the key or the
symbol and says what was expected. The command line prints it without a traceback and leaves with exit code 2.
"""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """A mistake in what the user gave: a file, a line, a setting. The message is complete and meant for them."""


class ConfigError(InputError):
    """A setting that does not exist, has the wrong type, or contradicts another."""


class DataError(InputError):
    """A file or a line that cannot be read as examples."""


class RunError(InputError):
    """A run folder that is missing, incomplete, foreign, or cannot be written."""


class DivergenceError(RunError):
    """A training whose numbers have left the finite: other settings may help."""


def nearest(word: str, choices: Iterable[str], prefix: str = "") -> str:
    """A hint for a misspelt word: "; did you mean 'hidden_size'?", or nothing where no choice is near.

    `prefix` stands before the choice in the hint: the table of a key, say.
    """
    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f"; did you mean {prefix + near[0]!r}?" if near else ""
