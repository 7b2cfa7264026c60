"""File of target prefixes, one for each input line (predict --prefixes)."""

from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.data.lines import RecordError, line_text, read_lines
from pellucid.errors import DataError, InputError, count_noun

if TYPE_CHECKING:
    from pellucid.decoding.base_predictor import BasePredictor


class PrefixFile:
    """File of target prefixes (predict --prefixes): line i is the prefix for input line i."""

    def __init__(self, path: Path, predictor: "BasePredictor") -> None:
        """Read and check all prefixes. Those of a model that copies depend on the source and are checked in decoding.

        Args:
            path: File of prefixes, one per line.
            predictor: Predictor whose options, vocabulary and maximum length the prefixes must fit.

        Raises:
            DataError: The file or a line cannot be read.
            InputError: No output can have a prefix; the message names the line.
        """
        self.path = path
        self.texts = [_decode_line(line, path, number) for number, line in enumerate(read_lines(path), 1)]
        self.num_used = 0
        first = {text: number for number, text in reversed(list(enumerate(self.texts, 1)))}
        for text, number in first.items():
            _check_prefix(text, predictor, f"{path}:{number}")

    def next_prefixes(self, count: int) -> list[str]:
        """Return the prefixes of the next input lines, and advance behind them.

        Args:
            count: Number of input lines.

        Returns:
            One prefix per input line.

        Raises:
            DataError: The file has fewer lines.
        """
        prefixes = self.texts[self.num_used : self.num_used + count]
        self.num_used += len(prefixes)
        if len(prefixes) < count:
            raise DataError(
                f"{self.path} ends after {count_noun(self.num_used, 'line')}: input line {self.num_used + 1:,} has no "
                "prefix"
            )
        return prefixes

    def check_exhausted(self) -> None:
        """Raise `DataError` if prefixes remain after the last source."""
        if self.num_used < len(self.texts):
            raise DataError(
                f"{self.path}:{self.num_used + 1}: there is no input line {self.num_used + 1} for this prefix"
            )


def _decode_line(line: bytes, path: Path, number: int) -> str:
    """Return a line as text; `DataError` if it is not valid."""
    try:
        return line_text(line)
    except RecordError as error:
        raise DataError(f"{path}:{number}: {error}") from error


def _check_prefix(text: str, predictor: "BasePredictor", location: str) -> None:
    """Raise `InputError` with its location for a prefix that the options or the model exclude."""
    from pellucid.decoding.options import build_constraints

    target = predictor.vocabularies.target
    if predictor.config.decoder.pointer_generator:
        return  # the source determines what can be copied
    try:
        constraints = build_constraints(predictor.options, [text], predictor.tokenizers.target, target)
    except InputError as error:
        raise type(error)(f"{location}: {error}") from error
    if constraints.min_length(0) > predictor.max_length:
        raise InputError(
            f"{location}: the prefix and the required symbols take {constraints.min_length(0)} symbols, but "
            f"search.max_length is {predictor.max_length}"
        )
