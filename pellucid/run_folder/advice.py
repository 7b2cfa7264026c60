"""Advice in messages about the files of a run: what to do about a damaged or missing one."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EIO, ELOOP
from pathlib import Path

from pellucid.errors import RunError, suggest
from pellucid.files import file_exists

RESTORE_OR_TRAIN = "restore the file from a copy of the run, or train the model again"
RESTORE_OR_RENAME = "restore the file from a copy of the run, or name another run folder to train again"
RESTORE_OR_REPEAT = "restore the file from a copy of the run, or run the training command again, which writes it anew"
RESTORE_OR_REMOVE_LOG = (
    "restore the file from a copy of the run, or remove it: the model can be used without its history"
)
REMOVE_CORPUS = "remove it by hand: a finished training needs it no longer"
REMOVE_LOCK = "remove it: it is only a lock of trainings in this folder"
REMOVE_CARD = "remove it: the training command writes it anew"
REMOVE_SNAPSHOT = "remove this file: only its picture of the training is lost"
ADVICE_WORDS = (
    "restore ",
    "remove ",
    "train the model again",
    "training command again",
    "another run folder",
    "install a newer version",
)
"""Parts of the last clause of messages that have advice."""


@contextmanager
def add_advice(advice: str) -> Iterator[None]:
    """Add advice to the message of a `RunError` in the block, unless it has advice or the system refuses access.

    The error keeps its class.

    Args:
        advice: What to do, without a period.
    """
    try:
        yield
    except RunError as error:
        cause = error.__cause__
        is_wrong_kind = isinstance(cause, FileNotFoundError | IsADirectoryError | NotADirectoryError)
        is_refused = isinstance(cause, OSError) and not (is_wrong_kind or cause.errno in (EIO, ELOOP))
        last_clause = str(error).rpartition("; ")[2]
        if is_refused or any(word in last_clause for word in ADVICE_WORDS):
            raise
        error.args = (f"{error}; {advice}",)
        raise


def check_folder_exists(folder: Path) -> None:
    """Check that there is a run folder of this name.

    Args:
        folder: The folder.

    Raises:
        RunError: There is none; the message has a similar name of a folder beside it, if there is one.
    """
    if file_exists(folder):
        return
    siblings = list[str]()
    with suppress(OSError):
        siblings = [entry.name for entry in folder.parent.iterdir() if entry.is_dir()]
    advice = suggest(folder.name, siblings) or "; name the folder that was given to pellucid train --run"
    raise RunError(f"{folder} is not a run folder: there is no such folder{advice}")
