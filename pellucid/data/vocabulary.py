"""Vocabularies: symbols and their ids, learned from the training file and saved as JSON.

N counts symbols or code points, P the code points up to the greatest of a vocabulary.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec
import numpy as np
from msgspec import Meta

from pellucid.argument_checks import (
    SCALAR_TYPES,
    UNCHECKED,
    argument_error,
    check_arguments,
    convert_argument,
    convert_struct_fields,
)
from pellucid.config.settings import MAX_SEQUENCE_LENGTH, ContextWords, DataConfig, PositiveInt
from pellucid.data.context import UNKNOWN_WORD
from pellucid.data.examples import Example
from pellucid.data.tokenizers import (
    NO_SUBWORDS,
    TOKENIZER_KINDS,
    SubwordModels,
    Tokenizer,
    Tokenizers,
    build_tokenizers,
    train_subwords,
)
from pellucid.errors import DataError, RunError, abbreviate_reason, quote
from pellucid.files import check_json_format, decode_json, read_bytes, write_atomic
from pellucid.limits import check_module_limits, read_module_limit
from pellucid.shapes import Int, UInt

PAD, BOS, EOS, UNK = range(4)
NUM_SPECIAL = 4
"""Number of special ids, which precede the ids of all symbols."""
SPECIAL_NAMES = ("⟨pad⟩", "⟨begin⟩", "⟨end⟩", "⟨unknown⟩")
"""Display names of the special ids. No symbol has such a name, and no text is parsed for them."""
MAX_VOCABULARY_SIZE = read_module_limit("PELLUCID_MAX_VOCABULARY_MIB", 256)
"""Maximum size of the file of a vocabulary, in bytes."""
MAX_SYMBOL_LENGTH = 2**16
"""Maximum length of a symbol, in characters."""
TEXTS_PER_BLOCK = 1 << 13
"""Number of texts converted to code points at once; the block fits into the cache."""
SYMBOLS_PER_BLOCK = 1 << 16
"""Number of symbols of an iterator that are held at once."""

Length = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE_LENGTH)]
"""Length in symbols."""

Occurrences = Annotated[int, Meta(ge=0, le=2**53)]
"""Number of occurrences of a symbol."""


class Vocabulary(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """Symbols of one column. Ids 0 to 3 are PAD, BOS, EOS, UNK; symbol i has id i + 4.

    Symbols learned from data are in order of descending frequency; the positions of task "point" are in numeric order.

    Raises:
        ArgumentError: A field does not match its annotation.
        ValueError: Symbols are not distinct, reserved (`SPECIAL_NAMES`) or too long, or have not one count each.
    """

    symbols: tuple[str, ...]
    counts: tuple[Occurrences, ...]
    """Number of occurrences of each symbol in the training data."""

    def __post_init__(self) -> None:
        """Convert the fields; raise `ValueError` for duplicate, reserved or long symbols and for missing counts."""
        convert_struct_fields(self)
        if len(self.counts) != len(self.symbols) or len(set(self.symbols)) != len(self.symbols):
            raise ValueError("symbols must be distinct and have one count each")
        reserved = set(SPECIAL_NAMES).intersection(self.symbols)
        if reserved:
            raise ValueError(f"{min(reserved)} is the name of a special symbol: replace it in the data")
        longest = max(self.symbols, key=len, default="")
        if len(longest) > MAX_SYMBOL_LENGTH:
            raise ValueError(
                f"the symbol {quote(longest)} has {len(longest):,} characters: expected at most {MAX_SYMBOL_LENGTH:,}"
            )

    @cached_property
    def ids(self) -> dict[str, int]:
        """Return the id of each symbol."""
        return {symbol: position + NUM_SPECIAL for position, symbol in enumerate(self.symbols)}

    def __len__(self) -> int:
        """Return V, the number of ids, special ids included."""
        return NUM_SPECIAL + len(self.symbols)

    def encode(self, symbols: Iterable[str]) -> list[int]:
        """Return the ids of symbols, UNK for symbols that the vocabulary lacks.

        Args:
            symbols: The symbols; in a string each character is a symbol.

        Raises:
            ArgumentError: The symbols are no iterable of strings.
        """
        if type(symbols) not in (list, tuple, str):
            symbols = list(convert_argument("symbols", symbols, Iterable[str]))
        try:
            ids = list(map(self.ids.get, symbols, repeat(UNK)))
            if UNK not in ids or {*map(type, symbols)} <= {str}:
                return ids
        except TypeError:  # an item is not hashable
            pass
        return list(map(self.ids.get, convert_argument("symbols", symbols, Sequence[str]), repeat(UNK)))

    def encode_array(self, symbols: Iterable[str]) -> Int[np.ndarray, " N"]:
        """Return the ids of symbols as an array, UNK for symbols that the vocabulary lacks.

        Args:
            symbols: The symbols; in a string each character is a symbol.

        Raises:
            ArgumentError: The symbols are no iterable of strings.
        """
        if not isinstance(symbols, Iterator):
            return np.array(self.encode(symbols), np.int32)
        blocks = [np.zeros(0, np.int32)]
        while ids := self.encode(list(islice(symbols, SYMBOLS_PER_BLOCK))):
            blocks.append(np.array(ids, np.int32))
        return np.concatenate(blocks)

    def encode_points(self, points: UInt[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
        """Return the ids of characters that are given as code points, UNK for those that the vocabulary lacks.

        Args:
            points: Code points.
        """
        return np.take(self._id_of_point, points, mode="clip")

    @cached_property
    def _id_of_point(self) -> Int[np.ndarray, " P"]:
        """Id of each code point up to the greatest of the vocabulary; the last entry is UNK, for all beyond."""
        known = {ord(symbol): symbol_id for symbol, symbol_id in self.ids.items() if len(symbol) == 1}
        table = np.full(max(known, default=-1) + 2, UNK, dtype=np.int32)
        table[list(known)] = list(known.values())
        return table

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Return the symbols of ids, which are not checked.

        Args:
            ids: Ids of symbols, none of them special.
        """
        return tuple(self.symbols[symbol_id - NUM_SPECIAL] for symbol_id in ids)

    def symbol(self, symbol_id: int, special_names: Sequence[str]) -> str:
        """Return the symbol of an id.

        Args:
            symbol_id: The id, from 0 to V − 1.
            special_names: Texts for the special ids, such as `SPECIAL_NAMES`.

        Raises:
            ArgumentError: The id is not an integer from 0 to V − 1, or is special and has no text.
        """
        symbol_id = convert_argument("symbol_id", symbol_id, int)
        if not 0 <= symbol_id < len(self):
            raise argument_error("symbol_id", f"an id from 0 to {len(self) - 1}", symbol_id)
        if symbol_id >= NUM_SPECIAL:
            return self.symbols[symbol_id - NUM_SPECIAL]
        names = convert_argument("special_names", special_names, Sequence[str])
        if symbol_id >= len(names):
            raise argument_error("special_names", f"{NUM_SPECIAL} texts, one for each special id", names)
        return cast(str, names[symbol_id])


EMPTY_VOCABULARY = Vocabulary((), ())


class Vocabularies(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Vocabularies, subword models and maximum lengths learned from the training file.

    Raises:
        ArgumentError: A field does not match its annotation.
    """

    source: Vocabulary
    target: Vocabulary
    features: Vocabulary
    """Vocabulary of features; empty for a model without features."""
    longest_source: Length
    """Number of symbols of the longest training source, without features."""
    longest_target: Length
    """Number of symbols of the longest training target, without EOS."""
    format: Literal[1] = 1
    pieces: SubwordModels = NO_SUBWORDS
    """Subword models of the sides that are split into subwords."""
    columns: Annotated[int, Meta(ge=0)] = 0
    """Number of columns of the training file; 0 unless it is TSV or CSV."""
    classes: tuple[str, ...] = ()
    """Target symbols that are classes, where targets have a class and tags; else empty."""
    tags: tuple[str, ...] = ()
    """Target symbols that are tags, where targets have a class and tags; else empty."""
    characters: Vocabulary = EMPTY_VOCABULARY
    """Characters of source words, with the number of words that have each; empty for an encoder that reads none."""

    def __post_init__(self) -> None:
        """Check the fields; raise `ValueError` for classes or tags that are no target symbols."""
        convert_struct_fields(self)
        unknown = next((label for label in (*self.classes, *self.tags) if label not in self.target.ids), None)
        if unknown is not None:
            raise ValueError(f"classes and tags must be symbols of target, and {quote(unknown)} is none")

    @check_arguments
    def save(self, path: str | Path) -> None:
        """Write the vocabularies as indented JSON, atomically.

        Args:
            path: The file.

        Raises:
            ArgumentError: The path is none.
            RunError: The file cannot be written.
        """
        write_atomic(Path(path), msgspec.json.format(msgspec.json.encode(self), indent=1))


@check_arguments
def load_vocabularies(path: str | Path, config: DataConfig) -> Vocabularies:
    """Load the vocabularies of a run.

    Args:
        path: The file.
        config: Data settings of the run, which define its tokenizers.

    Raises:
        RunError: The file is missing or malformed, a symbol cannot be produced by the tokenizers of the run, or the
            longest source or target exceeds `config.max_sequence_length`.
        ConfigError: The configuration names an unknown kind of tokenizer, or a limit in an environment variable is
            invalid.
    """
    path = Path(path)
    check_module_limits()
    content = read_bytes(path, limit=MAX_VOCABULARY_SIZE)
    check_json_format(str(path), content, newest=1)
    try:
        vocabularies = decode_json(content, Vocabularies)
    except ValueError as error:
        raise RunError(f"{path} is not a vocabulary: {abbreviate_reason(error)}") from error
    for name in ("longest_source", "longest_target"):
        if getattr(vocabularies, name) > config.max_sequence_length:
            raise RunError(
                f"{path}: {name}: expected at most {config.max_sequence_length} (data.max_sequence_length of the run), "
                f"got {getattr(vocabularies, name)}"
            )
    tokenizers = build_tokenizers(config, vocabularies.pieces)
    for name in Tokenizers._fields:
        vocabulary: Vocabulary = getattr(vocabularies, name)
        tokenizer: Tokenizer = getattr(tokenizers, name)
        invalid_symbol = next((symbol for symbol in vocabulary.symbols if not tokenizer.can_produce(symbol)), None)
        if invalid_symbol is not None:
            kind = tokenizer.kind if tokenizer.kind in TOKENIZER_KINDS else f"parts between {quote(tokenizer.kind)}"
            raise RunError(f"{path}: {name}.symbols: {quote(invalid_symbol)} is not a symbol if symbols are {kind}")
    longer = next((symbol for symbol in vocabularies.characters.symbols if len(symbol) != 1), None)
    if longer is not None:
        raise RunError(f"{path}: characters.symbols: {quote(longer)} is not one character")
    return vocabularies


def code_points(texts: Sequence[str]) -> Iterator[UInt[np.ndarray, " N"]]:
    """Yield the code points of concatenated texts as arrays, each of `TEXTS_PER_BLOCK` texts (the last of fewer).

    Args:
        texts: The texts.
    """
    for start in range(0, len(texts), TEXTS_PER_BLOCK):
        joined = "".join(texts[start : start + TEXTS_PER_BLOCK])
        yield np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.dtype("<u4"))


@check_arguments
def build_vocabulary(sequences: Annotated[Iterable[Sequence[str]], UNCHECKED], min_count: PositiveInt) -> Vocabulary:
    """Return the vocabulary of sequences of symbols, sorted by descending frequency and then by code point.

    Args:
        sequences: Sequences of symbols; in a string each character is a symbol.
        min_count: Minimum number of occurrences of a symbol; rarer ones are left out.

    Raises:
        ArgumentError: `sequences` is not an iterable or a single string, or an item of it is not a sequence of strings.
        DataError: A symbol has a reserved name or is too long.
    """
    try:
        if isinstance(sequences, SCALAR_TYPES) or not hasattr(type(sequences), "__iter__"):
            raise TypeError
        remaining = iter(sequences)
    except (
        Exception
    ):  # a scalar array or tensor, which has `__iter__`; or methods of the value, which may raise anything
        raise argument_error("sequences", "an iterable of sequences of symbols", sequences) from None
    return _rank_symbols(Counter(chain.from_iterable(_checked_sequences(remaining))), min_count)


@check_arguments
def learn_tokenizers(examples: Sequence[Example], config: DataConfig) -> Tokenizers:
    """Return the tokenizers of a configuration, with subword models trained on the examples where it asks for them.

    Args:
        examples: The training examples.
        config: The data settings.

    Raises:
        ConfigError: A kind of tokenizer is unknown, or the tokenizers library is needed but not installed.
    """
    plain = build_tokenizers(config)
    source, target = (
        train_subwords(list(map(tokenizer.normalize, texts)), config.subword_vocab_size, config.min_count)
        if tokenizer.kind == "subwords"
        else None
        for tokenizer, texts in (
            (plain.source, (example.source for example in examples)),
            (plain.target, (example.target for example in examples)),
        )
    )
    return build_tokenizers(config, SubwordModels(source, target))


@check_arguments
def learn_vocabularies(
    examples: Sequence[Example], tokenizers: Tokenizers, min_count: PositiveInt, context_words: ContextWords = 0
) -> Vocabularies:
    """Return the vocabularies of training examples, one for each column.

    Args:
        examples: The training examples.
        tokenizers: The tokenizers of the run.
        min_count: Minimum number of occurrences of a symbol; rarer ones are left out.
        context_words: Number of words on either side of a source that are its features; 0, the default, for other
            features. Words that may occur only once in a text are left out of the vocabulary.

    Raises:
        DataError: A symbol has a reserved name or is too long.
    """
    source, longest_source = _count_column([example.source for example in examples], tokenizers.source)
    target, longest_target = _count_column([example.target for example in examples], tokenizers.target)
    features, _ = _count_column([example.features for example in examples], tokenizers.features)
    return Vocabularies(
        source=_rank_symbols(source, min_count),
        target=_rank_symbols(target, min_count),
        features=_rank_features(features, min_count, context_words),
        longest_source=longest_source,
        longest_target=longest_target,
        pieces=SubwordModels(tokenizers.source.subwords, tokenizers.target.subwords),
    )


class VocabularyTotals:
    """Counts of the symbols of several blocks of examples, for data that does not fit into memory at once."""

    def __init__(self) -> None:
        """Start with no symbol."""
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in Tokenizers._fields}
        self.longest_source = 0
        self.longest_target = 0

    def add(self, block: Vocabularies) -> None:
        """Add the counts of a block.

        Args:
            block: Vocabularies of the block, which have every symbol.
        """
        for name, counts in self.counts.items():
            vocabulary: Vocabulary = getattr(block, name)
            counts.update(dict(zip(vocabulary.symbols, vocabulary.counts, strict=True)))
        self.longest_source = max(self.longest_source, block.longest_source)
        self.longest_target = max(self.longest_target, block.longest_target)

    def subtract(self, block: Vocabularies) -> None:
        """Subtract the counts of examples that were added before; the maximum lengths stay.

        Args:
            block: Vocabularies of these examples, which have every symbol.
        """
        for name, counts in self.counts.items():
            vocabulary: Vocabulary = getattr(block, name)
            counts.subtract(dict(zip(vocabulary.symbols, vocabulary.counts, strict=True)))

    def build_vocabularies(
        self, min_count: int, min_target_count: int, subword_models: SubwordModels, context_words: int = 0
    ) -> Vocabularies:
        """Return the vocabularies of all blocks, each sorted by descending frequency and then by code point.

        Args:
            min_count: Minimum number of occurrences of a symbol of sources and features, at least 1.
            min_target_count: Minimum number of occurrences of a target symbol, at least 1.
            subword_models: Subword models of the tokenizers.
            context_words: As in `learn_vocabularies`.

        Raises:
            DataError: A symbol has a reserved name or is too long.
        """
        return Vocabularies(
            source=_rank_symbols(self.counts["source"], min_count),
            target=_rank_symbols(self.counts["target"], min_target_count),
            features=_rank_features(self.counts["features"], min_count, context_words),
            longest_source=self.longest_source,
            longest_target=self.longest_target,
            pieces=subword_models,
        )


@check_arguments
def extend_vocabulary(known: Vocabulary, learned: Vocabulary) -> Vocabulary:
    """Return a vocabulary with the symbols of another one appended; the ids of its own symbols do not change.

    Args:
        known: The vocabulary.
        learned: Vocabulary of new data, whose new symbols follow in its order.

    Returns:
        The symbols of both, with the counts of `learned`; 0 for those that it lacks.
    """
    counts = dict(zip(learned.symbols, learned.counts, strict=True))
    symbols = tuple(dict.fromkeys((*known.symbols, *learned.symbols)))
    return Vocabulary(symbols, tuple(counts.get(symbol, 0) for symbol in symbols))


@check_arguments
def remove_symbol(vocabulary: Vocabulary, symbol: str) -> Vocabulary:
    """Return a vocabulary without one symbol.

    Args:
        vocabulary: The vocabulary.
        symbol: The symbol; the vocabulary need not contain it.
    """
    remaining = [
        (item, count) for item, count in zip(vocabulary.symbols, vocabulary.counts, strict=True) if item != symbol
    ]
    return Vocabulary(tuple(item for item, _ in remaining), tuple(count for _, count in remaining))


def _checked_sequences(sequences: Iterator[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yield sequences of symbols; raise `ArgumentError` for an item that is none."""
    for index, sequence in enumerate(sequences):
        yield (sequence if type(sequence) is str else convert_argument(f"sequences[{index}]", sequence, Sequence[str]))


def _rank_symbols(counts: Counter[str], min_count: int) -> Vocabulary:
    """Return the vocabulary of counted symbols."""
    ranked = sorted((s for s, n in counts.items() if n >= min_count), key=lambda symbol: (-counts[symbol], symbol))
    try:
        return Vocabulary(tuple(ranked), tuple(counts[symbol] for symbol in ranked))
    except ValueError as error:
        raise DataError(f"the training data: {abbreviate_reason(error)}") from error


def _rank_features(counts: Counter[str], min_count: int, context_words: int) -> Vocabulary:
    """Return the vocabulary of counted features; of contexts, without words that may occur once, and the unknown one.

    A word of a text is in at most 2n contexts of n words on either side.
    """
    if not context_words:
        return _rank_symbols(counts, min_count)
    known = Counter({word: count for word, count in counts.items() if word != UNKNOWN_WORD})
    return _rank_symbols(known, max(min_count, 2 * context_words + 1))


def _count_column(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[Counter[str], int]:
    """Return the number of occurrences of each symbol of a column, and the length of its longest text."""
    if not any(texts):
        return Counter(), 0
    if tokenizer.kind != "characters":
        lengths: list[int] = []
        return Counter(tokenizer.split_all(texts, lengths)), max(lengths)
    counts: Counter[str] = Counter()
    texts = [tokenizer.normalize(text) for text in texts]
    for points in code_points(texts):
        point_counts = np.bincount(points)
        present = np.flatnonzero(point_counts)
        counts.update(dict(zip(map(chr, present.tolist()), point_counts[present].tolist(), strict=True)))
    return counts, max(map(len, texts))
