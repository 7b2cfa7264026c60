"""Streams of sources, split into chunks so that decoding needs bounded memory.

An error is raised at its source: the results of the sources before it are yielded first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from pellucid.data.examples import Example
from pellucid.errors import DataError, InputError

SOURCES = 1024
"""Maximum number of sources of a stream that are decoded together."""
OUTPUTS = 2**14
"""Maximum number of outputs held at a time, for sources with many outputs."""
SYMBOLS = 2**16
"""Maximum number of source characters held at a time, for one output per source: attention weights grow with both."""

Item = TypeVar("Item")
Other = TypeVar("Other")
Result = TypeVar("Result")
Prefix = str | Sequence[str]
"""Prefix of an output: a text, or its symbols."""


class ExampleChunk(NamedTuple):
    """Examples that are decoded together."""

    examples: list[Example]
    prefixes: Sequence[Prefix] | None = None
    """Prefix of each output; None for the prefix of the options."""
    first: int = 0
    """Number of the first example among all given ones, from 0."""

    def slice(self, start: int, end: int) -> "ExampleChunk":
        """Return some of its examples as a chunk."""
        prefixes = None if self.prefixes is None else self.prefixes[start:end]
        return ExampleChunk(self.examples[start:end], prefixes, self.first + start)


def sources_at_once(outputs: int) -> int:
    """Return the number of sources decoded together, for a number of outputs per source."""
    return max(1, min(SOURCES, OUTPUTS // outputs))


def characters_of(example: Example) -> int:
    """Return the number of characters of an example: at least its symbols."""
    return len(example.source) + len(example.target) + len(example.features)


class PartSize:
    """Size of a chunk: the number of its items and of their characters."""

    def __init__(self, outputs: int) -> None:
        """Start an empty chunk, for a number of outputs per item."""
        self.most_sources = sources_at_once(outputs)
        self.most_symbols = max(1, SYMBOLS // outputs)
        self.sources = self.symbols = 0

    def is_filled_by(self, characters: int) -> bool:
        """Add an item of this length. If the chunk is full, reset the counts and return True."""
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
    """Yield each source with its item of another argument.

    Args:
        sources: The sources.
        others: The items, one per source.
        name: Name of that argument, for errors.
        noun: Noun for its items, for errors.

    Raises:
        DataError: The numbers differ; for lists before anything is yielded, for a stream where the shorter one ends.
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
    """Yield each source of a stream with its item."""
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
    decode: Callable[[ExampleChunk], list[Result]],
    examples: list[Example] | Iterator[Example],
    prefixes: Iterable[Prefix] | None,
    outputs: int,
    first: int,
) -> list[Result] | Iterator[Result]:
    """Decode a list at once into a list, or an iterator chunk by chunk into an iterator, in order."""
    if isinstance(examples, list):
        paired = (
            None if prefixes is None else [prefix for _, prefix in pair_up(examples, prefixes, "prefixes", "prefix")]
        )
        return decode(ExampleChunk(examples, paired, first))
    return _decode_stream(decode, examples, prefixes, outputs, first)


def _decode_stream(
    decode: Callable[[ExampleChunk], list[Result]],
    examples: Iterator[Example],
    prefixes: Iterable[Prefix] | None,
    outputs: int,
    first: int,
) -> Iterator[Result]:
    """Yield the results of each chunk before the next one is read."""
    if prefixes is None:
        parts = (ExampleChunk(chunk) for chunk in chunked(examples, outputs, characters_of))
    else:
        paired = pair_up(examples, prefixes, "prefixes", "prefix")
        pairs = chunked(paired, outputs, lambda pair: characters_of(pair[0]))
        parts = (ExampleChunk([example for example, _ in chunk], [prefix for _, prefix in chunk]) for chunk in pairs)
    for part in parts:
        yield from _decode_up_to_error(decode, part._replace(first=first))
        first += len(part.examples)


def _decode_up_to_error(decode: Callable[[ExampleChunk], list[Result]], part: ExampleChunk) -> Iterator[Result]:
    """Yield the results of a chunk; if a source raises an `InputError`, first those before it, then the error.

    The source is found by bisection: halves that fail are decoded in halves again.
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
