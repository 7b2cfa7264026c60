"""Sources in parts, so that a stream of any length is decoded in bounded memory.

An error stands in the place of its source: the results of the sources before it are yielded first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from pellucid.data.examples import Example
from pellucid.errors import DataError, InputError

SOURCES = 1024
"""Sources of a stream that are decoded together at most: they bound the memory, whatever its length."""
OUTPUTS = 2**14
"""Outputs held at a time at most, where sources have many of them."""
SYMBOLS = 2**16
"""Characters of the sources held at a time, where each has one output: each step of an output has a weight for each."""

Item = TypeVar("Item")
Other = TypeVar("Other")
Result = TypeVar("Result")
Prefix = str | Sequence[str]
"""What an output begins with: a text, or its symbols."""


class Part(NamedTuple):
    """Examples that are decoded together."""

    examples: list[Example]
    prefixes: Sequence[Prefix] | None = None
    """What the output of each begins with; None where the options say it."""
    first: int = 0
    """The number of the first of them, from 0, among all that are given."""

    def slice(self, start: int, end: int) -> "Part":
        """Return some of its examples as a part."""
        prefixes = None if self.prefixes is None else self.prefixes[start:end]
        return Part(self.examples[start:end], prefixes, self.first + start)


def sources_at_once(outputs: int) -> int:
    """Return how many sources of a stream are decoded together, where each has so many outputs."""
    return max(1, min(SOURCES, OUTPUTS // outputs))


def characters_of(example: Example) -> int:
    """Return the number of characters of an example: at least its symbols."""
    return len(example.source) + len(example.target) + len(example.features)


class PartSize:
    """Counts the items of a part and their characters, to tell when the part is full."""

    def __init__(self, outputs: int) -> None:
        """Count from zero, for a part whose items have so many outputs each."""
        self.most_sources = sources_at_once(outputs)
        self.most_symbols = max(1, SYMBOLS // outputs)
        self.sources = self.symbols = 0

    def is_filled_by(self, characters: int) -> bool:
        """Count an item of so many characters; return whether the part is full, and if so, count from zero again."""
        self.sources, self.symbols = self.sources + 1, self.symbols + characters
        if self.sources < self.most_sources and self.symbols < self.most_symbols:
            return False
        self.sources = self.symbols = 0
        return True


def chunked(items: Iterable[Item], outputs: int, characters: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield items in lists that can be decoded together, in their order.

    An error in the middle of a list comes after what precedes it.

    Args:
        items: The items.
        outputs: The number of outputs of each item.
        characters: A function that returns the number of characters of an item.
    """
    chunk, size = list[Item](), PartSize(outputs)
    try:
        for item in items:
            chunk.append(item)
            if size.is_filled_by(characters(item)):
                yield chunk
                chunk = []
    except Exception:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def pair_up(sources: Iterable[Item], others: Iterable[Other], name: str, noun: str) -> Iterator[tuple[Item, Other]]:
    """Yield each source with what is given beside it, in an argument of this name, whose items are such a noun.

    Raises:
        DataError: There are not as many; of lists before anything is yielded, of a stream where the first of both ends.
    """
    if isinstance(sources, Iterator):
        return _pair_streams(sources, others, name, noun)
    given = list(sources)
    listed = list(islice(others, len(given) + 1)) if isinstance(others, Iterator) else list(others)
    if len(listed) != len(given):
        got = "more" if isinstance(others, Iterator) and len(listed) > len(given) else len(listed)
        raise DataError(f"{name}: expected one {noun} for each of {len(given)} sources, got {got}")
    return zip(given, listed, strict=True)


def _pair_streams(
    sources: Iterator[Item], others: Iterable[Other], name: str, noun: str
) -> Iterator[tuple[Item, Other]]:
    """Yield each source with what is given beside it, one after the other."""
    beside, number = iter(others), 0
    for number, source in enumerate(sources, start=1):
        try:
            other = next(beside)
        except StopIteration:
            raise DataError(f"{name}: expected one {noun} for each source, but source {number} has none") from None
        yield source, other
    if next(beside, beside) is not beside:
        raise DataError(f"{name}: expected one {noun} for each of {number} sources, got more")


def decode_parts(
    decode: Callable[[Part], list[Result]],
    examples: list[Example] | Iterator[Example],
    prefixes: Iterable[Prefix] | None,
    outputs: int,
    first: int,
) -> list[Result] | Iterator[Result]:
    """Decode a list at once, into a list; an iterator part by part, into an iterator of the results in their order."""
    if isinstance(examples, list):
        paired = (
            None if prefixes is None else [prefix for _, prefix in pair_up(examples, prefixes, "prefixes", "prefix")]
        )
        return decode(Part(examples, paired, first))
    return _decode_stream(decode, examples, prefixes, outputs, first)


def _decode_stream(
    decode: Callable[[Part], list[Result]],
    examples: Iterator[Example],
    prefixes: Iterable[Prefix] | None,
    outputs: int,
    first: int,
) -> Iterator[Result]:
    """Yield the results of each part before the next one is read."""
    if prefixes is None:
        parts = (Part(chunk) for chunk in chunked(examples, outputs, characters_of))
    else:
        paired = pair_up(examples, prefixes, "prefixes", "prefix")
        pairs = chunked(paired, outputs, lambda pair: characters_of(pair[0]))
        parts = (Part([example for example, _ in chunk], [prefix for _, prefix in chunk]) for chunk in pairs)
    for part in parts:
        yield from _decode_up_to_error(decode, part._replace(first=first))
        first += len(part.examples)


def _decode_up_to_error(decode: Callable[[Part], list[Result]], part: Part) -> Iterator[Result]:
    """Yield the results of a part; where one of its sources raises an `InputError`, those before it, then the error.

    Which source it is, halves tell: they are decoded by themselves, each half that fails in halves again.
    """
    try:
        results = decode(part)
    except InputError:
        if len(part.examples) == 1:
            raise
        middle = len(part.examples) // 2
        yield from _decode_up_to_error(decode, part.slice(0, middle))
        yield from _decode_up_to_error(decode, part.slice(middle, len(part.examples)))
    else:
        yield from results
