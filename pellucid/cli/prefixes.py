"""predict --prefixes FILE: what the output of each source begins with, line by line."""

from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.data.lines import RecordError, decoded, file_lines, without_end
from pellucid.errors import DataError, InputError

if TYPE_CHECKING:
    from pellucid.search.predictor import Predictor


class Prefixes:
    """Prefixes handed out in the order of the input, one for each of its lines, whatever that holds."""

    def __init__(self, path: Path, transducer: "Predictor") -> None:
        """Read all; `InputError` names the line of one that no output can begin with."""
        self.path = path
        self.texts = [_text(line, path, number) for number, line in enumerate(file_lines(path), 1)]
        self.taken = 0
        first = {text: number for number, text in reversed(list(enumerate(self.texts, 1)))}
        for text, number in first.items():
            _check(text, transducer, f"{path}:{number}")

    def take(self, count: int) -> list[str]:
        """The next ones; `DataError` where there are not so many."""
        taken = self.texts[self.taken : self.taken + count]
        self.taken += len(taken)
        if len(taken) < count:
            raise DataError(f"{self.path} ends after {self.taken} lines: source {self.taken + 1} has no prefix")
        return taken

    def end(self) -> None:
        """`DataError` where some are left when all sources are answered."""
        if self.taken < len(self.texts):
            raise DataError(f"{self.path}:{self.taken + 1}: there is no source {self.taken + 1} that could begin so")


def _text(line: bytes, path: Path, number: int) -> str:
    """One line; `DataError` for one that is no text."""
    try:
        return without_end(decoded(line))
    except RecordError as error:
        raise DataError(f"{path}:{number}: {error}") from error


def _check(text: str, transducer: "Predictor", where: str) -> None:
    """`InputError` with its place for a prefix that the options or the model rule out."""
    from pellucid.search.options import constraints_of

    target = transducer.vocabularies.target
    if transducer.config.decoder.copying:
        return  # what can be copied is known with the source
    try:
        asked = constraints_of(transducer.options, [text], transducer.segmenters.target, target)
    except InputError as error:
        raise type(error)(f"{where}: {error}") from error
    if asked.least(0) > transducer.maximum_length:
        raise InputError(
            f"{where}: the prefix and the required symbols take {asked.least(0)} symbols, but search.maximum_length "
            f"is {transducer.maximum_length}"
        )
