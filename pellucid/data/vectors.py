"""Pretrained embeddings in the text format of word2vec and GloVe: "symbol number number ..." on each line.

N symbols found, E size of a vector.
"""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pellucid.argument_checks import check_arguments
from pellucid.config.settings import PositiveInt
from pellucid.data.lines import RecordError, is_blank, line_text, read_lines
from pellucid.data.vocabulary import MAX_SYMBOL_LENGTH, Vocabulary
from pellucid.errors import DataError, parse_whole_number, quote
from pellucid.shapes import Float

NUMBER = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity|nan)", re.IGNORECASE
)
"""A number as C and Python write it. `float` also accepts underscores, white space and the digits of all scripts.

No two parts match the same digits in a row: otherwise the time of a match would grow with the square of their number.
"""
MAX_NUMBER = float(np.finfo(np.float32).max)
"""Largest number of a vector; a larger one would become infinite in float32."""


class PretrainedVectors(NamedTuple):
    """Vectors of the symbols that a vocabulary and a file have in common."""

    ids: list[int]
    """Id of each symbol, in the order of the file."""
    values: Float[np.ndarray, "N E"]
    """Vector of each symbol."""


@check_arguments
def read_vectors(path: str | Path, vocabulary: Vocabulary, size: PositiveInt, key: str) -> PretrainedVectors:
    """Read the pretrained vectors of the symbols of a vocabulary, separated by spaces as "symbol number number ...".

    A first line of two whole numbers (number of lines, size of a vector) is a header. Of several lines of a symbol, the
    first counts. A symbol may contain spaces.

    Args:
        path: The file.
        vocabulary: The vocabulary.
        size: E, the expected size of a vector.
        key: Setting that defines the size, for messages.

    Returns:
        Ids, and vectors of shape (N, E); N is 0 if no symbol is in the vocabulary.

    Raises:
        DataError: The file cannot be read, a vector has another size, a number of a symbol of the vocabulary is
            malformed or not finite in float32, or the file contains no vector.
    """
    path = Path(path)
    values = dict[int, list[float]]()
    vectors = 0
    for number, line in enumerate(read_lines(path), start=1):
        try:
            text = line_text(line).rstrip(" ")
            if is_blank(line) or (number == 1 and _is_header(text, size, key)):
                continue
            symbol, numbers = _split_vector_line(text, size, key)
            vectors += 1
            symbol_id = vocabulary.ids.get(symbol)
            if symbol_id is not None and symbol_id not in values:
                values[symbol_id] = _parse_numbers(numbers)
        except RecordError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
    if not vectors:
        raise DataError(f"{path} contains no vector: expected lines of a symbol and {size} numbers ({key})")
    return PretrainedVectors(list(values), np.array(list(values.values()), np.float32).reshape(-1, size))


def _is_header(text: str, size: int, key: str) -> bool:
    """Return whether a first line is "lines size"; raise `RecordError` if its size is wrong."""
    numbers = [parse_whole_number(field) for field in text.split(" ", 2)]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        return False
    if numbers[1] != size:
        raise RecordError(_size_error(numbers[1], size, key))
    return True


def _split_vector_line(text: str, size: int, key: str) -> tuple[str, list[str]]:
    """Return the symbol, which may contain spaces, and its numbers; raise `RecordError` for a wrong number of them."""
    symbol, *numbers = text.rsplit(" ", size)
    if len(numbers) < size:
        raise RecordError(_size_error(len(numbers), size, key))
    if len(symbol) > MAX_SYMBOL_LENGTH:
        raise RecordError(f"expected a symbol of at most {MAX_SYMBOL_LENGTH:,} characters, got {len(symbol):,}")
    extra = [field for field in symbol.split(" ")[1:] if field]
    if extra and all(map(_is_number, extra)):
        raise RecordError(_size_error(text.count(" "), size, key))
    return symbol, numbers


def _size_error(actual_size: int, size: int, key: str) -> str:
    """Return the error message for vectors of a wrong size."""
    return f"expected vectors of {size} numbers ({key}), got {actual_size}"


def _is_number(field: str) -> bool:
    """Return whether a field is a number, in the digits and the spelling of ASCII."""
    return NUMBER.fullmatch(field) is not None


def _parse_numbers(fields: list[str]) -> list[float]:
    """Return the numbers of a vector; raise `RecordError` for one that is malformed or not finite in float32."""
    for field in fields:
        if not _is_number(field) or not abs(float(field)) <= MAX_NUMBER:
            raise RecordError(f"expected a number, got {quote(field)}")
    return [float(field) for field in fields]
