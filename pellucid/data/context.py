"""Context of the words of running text: the words before and after each, which the encoder reads as its features.

With n words on either side, the context of word i is the text

    w_{i−n} … w_{i−1} w_{i+1} … w_{i+n},

2n words in lower case between spaces: `EDGE` beyond the ends of the sentence, `UNKNOWN_WORD` for words that are not
known. The order gives the position of each word, so a word has one embedding for all positions.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from pellucid.errors import DataError

EDGE = "⟨edge⟩"
"""Word of a context beyond the beginning or the end of a sentence."""
UNKNOWN_WORD = "⟨?⟩"
"""Word of a context that is not known, such as a bad line; vocabularies lack it."""
SENTENCE_END = ""
"""Empty text between two words of `add_contexts`, which ends a sentence."""

Item = TypeVar("Item")


def format_context(before: Sequence[str], after: Sequence[str], count: int) -> str:
    """Return the context of a word as a text.

    Args:
        before: Words of the sentence before it, in order; only the last `count` are used.
        after: Words of the sentence after it, in order; only the first `count` are used.
        count: n, the number of words on either side.
    """
    left = before[max(0, len(before) - count) :]
    right = after[:count]
    edges = [EDGE] * (count - len(left)), [EDGE] * (count - len(right))
    return " ".join([*edges[0], *map(context_word, left), *map(context_word, right), *edges[1]])


def context_word(word: str) -> str:
    """Return the form of a word in contexts: in lower case, with underscores for white space; never `EDGE`.

    Args:
        word: A word, not empty.
    """
    text = "_".join(word.lower().split())
    return text if text and text != EDGE else UNKNOWN_WORD


def unknown_context(count: int) -> str:
    """Return the context of a word whose neighbors are not known.

    Args:
        count: n, the number of words on either side.
    """
    return " ".join([UNKNOWN_WORD] * (2 * count))


def begins_sentence(context: str, count: int) -> bool:
    """Return whether a word is the first one of its sentence, by its context.

    Args:
        context: Its context.
        count: n, the number of words on either side.
    """
    return context.split()[count - 1] == EDGE


def sentence_contexts(words: Sequence[str], count: int) -> list[str]:
    """Return the context of each word of a sentence.

    Args:
        words: The words, none of which is empty.
        count: n, the number of words on either side.
    """
    return [
        format_context(words[max(0, index - count) : index], words[index + 1 : index + 1 + count], count)
        for index in range(len(words))
    ]


def add_contexts(words: Iterable[tuple[Item, str]], count: int) -> Iterator[tuple[Item, str]]:
    """Yield each item with the context of its word, once the next n words or the end of the sentence are read.

    Args:
        words: Items with their words; `SENTENCE_END` in place of a word ends a sentence.
        count: n, the number of words on either side.

    Yields:
        The items in order. The context of a `SENTENCE_END` is empty.

    Raises:
        DataError: As the stream; the items before it are yielded first.
    """
    before, waiting = deque[str](maxlen=count), deque[tuple[Item, str]]()
    stream = iter(words)
    failure = None
    while failure is None:
        try:
            entry = next(stream, None)
        except DataError as error:
            entry = None
            failure = error
        if entry is None:
            break
        if entry[1] != SENTENCE_END:
            waiting.append(entry)
            if len(waiting) > count:
                yield _next_context(before, waiting, count)
            continue
        while waiting:
            yield _next_context(before, waiting, count)
        before.clear()
        yield entry[0], ""
    while waiting:
        yield _next_context(before, waiting, count)
    if failure is not None:
        raise failure


def _next_context(before: deque[str], waiting: deque[tuple[Item, str]], count: int) -> tuple[Item, str]:
    """Remove the first waiting item, which becomes one of those before, and return it with its context."""
    item, word = waiting.popleft()
    context = format_context(tuple(before), [after for _, after in islice(waiting, count)], count)
    before.append(word)
    return item, context
