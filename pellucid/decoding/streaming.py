"""Streams of sources, split into chunks so that decoding needs bounded memory.

An error is raised at its source: the results of the sources before it are yielded first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from pellucid.data.examples import Example
from pellucid.errors import DataError, InputError, count_noun

MAX_SOURCES = 1024
"""Maximum number of sources of a stream that are decoded together."""
MAX_OUTPUTS = 2**14
"""Maximum number of outputs of a stream that are held at a time, for sources with many outputs."""
MAX_CHARACTERS = 2**16
"""Maximum number of characters held at a time, for one output per source (`count_characters`): attention weights grow
with sources and outputs."""

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
        """Return consecutive examples as a chunk, with their prefixes and numbers.

        Args:
            start: Index of the first example.
            end: Index after the last example.
        """
        prefixes = None if self.prefixes is None else self.prefixes[start:end]
        return ExampleChunk(self.examples[start:end], prefixes, self.first + start)


def max_chunk_sources(outputs: int) -> int:
    """Return the maximum number of sources of a stream that are decoded together, at least 1.

    Args:
        outputs: Number of outputs per source.
    """
    return max(1, min(MAX_SOURCES, MAX_OUTPUTS // outputs))


def count_characters(example: Example) -> int:
    """Return the number of characters of an example: those of its source, target and features.

    Args:
        example: Example.
    """
    return len(example.source) + len(example.target) + len(example.features)


class ChunkCounter:
    """Count the items and characters of a chunk until one limit is reached."""

    def __init__(self, outputs: int) -> None:
        """Start an empty chunk, with limits that fall with the number of outputs.

        Args:
            outputs: Number of outputs per item.
        """
        self.max_items = max_chunk_sources(outputs)
        self.max_characters = max(1, MAX_CHARACTERS // outputs)
        self.num_items = self.num_characters = 0

    def add(self, characters: int) -> bool:
        """Count an item. If the chunk is full, start again at zero.

        Args:
            characters: Number of characters of the item.

        Returns:
            True if the chunk is full with this item.
        """
        self.num_items, self.num_characters = self.num_items + 1, self.num_characters + characters
        if self.num_items < self.max_items and self.num_characters < self.max_characters:
            return False
        self.num_items = self.num_characters = 0
        return True


def chunked(
    items: Iterable[Item], outputs: int, characters: Callable[[Item], int], waits: Callable[[], bool] = lambda: False
) -> Iterator[list[Item]]:
    """Yield items in lists that can be decoded together, in their order.

    If the items raise an error in the middle of a list, the items before it are yielded first.

    Args:
        items: Items of a stream.
        outputs: Number of outputs per item, which bounds the length of the lists.
        characters: Function that returns the number of characters of an item.
        waits: Function that returns true if the list ends before the next item, such as one that has not arrived yet;
            by default, all items are there.
    """
    chunk = list[Item]()
    counter = ChunkCounter(outputs)
    try:
        for item in items:
            chunk.append(item)
            if counter.add(characters(item)) or waits():
                yield chunk
                chunk = []
                counter = ChunkCounter(outputs)
    except Exception:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def map_chunks(
    decode: Callable[[list[Example], int], list[Result]], chunks: Iterable[list[Example]]
) -> Iterator[list[Result]]:
    """Yield the results of each chunk of examples, in their order.

    Args:
        decode: Function that decodes a chunk, given its examples and the number of the first one, from 0.
        chunks: Chunks of examples.
    """
    first = 0
    for chunk in chunks:
        yield decode(chunk, first)
        first += len(chunk)


def pair_up(sources: Iterable[Item], others: Iterable[Other], name: str, noun: str) -> Iterator[tuple[Item, Other]]:
    """Yield each source with its item of another argument.

    Args:
        sources: The sources.
        others: The items, one per source.
        name: Name of that argument, for errors.
        noun: Noun for its items, for errors.

    Raises:
        DataError: The numbers differ. If `sources` is an iterator, the error is raised where the shorter one ends;
            otherwise at once.
    """
    if isinstance(sources, Iterator):
        return _pair_streams(sources, others, name, noun)
    source_list = list(sources)
    other_list = list(islice(others, len(source_list) + 1)) if isinstance(others, Iterator) else list(others)
    if len(other_list) != len(source_list):
        count = "more" if isinstance(others, Iterator) and len(other_list) > len(source_list) else len(other_list)
        raise DataError(
            f"{name}: expected one {noun} for each of {count_noun(len(source_list), 'source')}, got {count}"
        )
    return zip(source_list, other_list, strict=True)


def _pair_streams(
    sources: Iterator[Item], others: Iterable[Other], name: str, noun: str
) -> Iterator[tuple[Item, Other]]:
    """Yield each source of a stream with its item."""
    remaining = iter(others)
    number = 0
    for number, source in enumerate(sources, start=1):
        try:
            other = next(remaining)
        except StopIteration:
            raise DataError(f"{name}: expected one {noun} for each source, but source {number} has none") from None
        yield source, other
    if next(remaining, remaining) is not remaining:
        raise DataError(f"{name}: expected one {noun} for each of {number} sources, got more")


def decode_chunks(
    decode_chunk: Callable[[ExampleChunk], list[Result]],
    examples: list[Example] | Iterator[Example],
    prefixes: Iterable[Prefix] | None,
    outputs: int,
    first: int,
) -> list[Result] | Iterator[Result]:
    """Decode a list at once into a list, or an iterator chunk by chunk into an iterator, in order.

    Args:
        decode_chunk: Function that decodes a chunk.
        examples: Examples.
        prefixes: Prefix of each output; None for the prefix of the options.
        outputs: Number of outputs per example, which bounds the size of a chunk.
        first: Number of the first example, from 0.

    Raises:
        DataError: The numbers of examples and prefixes differ.
        InputError: Any that `decode_chunk` raises; in a stream after the results of the examples before the cause.
    """
    if isinstance(examples, list):
        prefix_list = (
            None if prefixes is None else [prefix for _, prefix in pair_up(examples, prefixes, "prefixes", "prefix")]
        )
        return decode_chunk(ExampleChunk(examples, prefix_list, first))
    return _decode_stream(decode_chunk, examples, prefixes, outputs, first)


def _decode_stream(
    decode_chunk: Callable[[ExampleChunk], list[Result]],
    examples: Iterator[Example],
    prefixes: Iterable[Prefix] | None,
    outputs: int,
    first: int,
) -> Iterator[Result]:
    """Yield the results of each chunk before the next one is read."""
    if prefixes is None:
        chunks = (ExampleChunk(chunk) for chunk in chunked(examples, outputs, count_characters))
    else:
        paired = pair_up(examples, prefixes, "prefixes", "prefix")
        pairs = chunked(paired, outputs, lambda pair: count_characters(pair[0]))
        chunks = (ExampleChunk([example for example, _ in chunk], [prefix for _, prefix in chunk]) for chunk in pairs)
    for example_chunk in chunks:
        yield from _decode_up_to_error(decode_chunk, example_chunk._replace(first=first))
        first += len(example_chunk.examples)


def _decode_up_to_error(decode_chunk: Callable[[ExampleChunk], list[Result]], chunk: ExampleChunk) -> Iterator[Result]:
    """Yield the results of a chunk; if a source raises an `InputError`, first those before it, then the error.

    The source is found by bisection: halves that fail are decoded in halves again.
    """
    try:
        results = decode_chunk(chunk)
    except InputError:
        if len(chunk.examples) == 1:
            raise
        middle = len(chunk.examples) // 2
        yield from _decode_up_to_error(decode_chunk, chunk.slice(0, middle))
        yield from _decode_up_to_error(decode_chunk, chunk.slice(middle, len(chunk.examples)))
    else:
        yield from results
