"""Tokenizers: text to symbols and back, by characters, phones, words, separators or byte-pair encoding (BPE)."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from pellucid.argument_checks import (
    SURROGATES,
    CheckedFields,
    argument_error,
    check_arguments,
    convert_argument,
    convert_struct_fields,
)
from pellucid.config.settings import DataConfig, Normalization, PositiveInt
from pellucid.data.ipa_phones import count_phones, find_combined_phones, split_phones
from pellucid.data.normalization import normalize_text
from pellucid.errors import ConfigError, quote, suggest

WORD_PATTERN = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s"
"""Pre-tokenization: no subword crosses the boundary of a word, a number or punctuation; a preceding space belongs to
it."""
MIN_SPACED_FRACTION = 0.8
"""Minimum share of texts with a space if the parts between spaces are symbols."""
MAX_SPACED_LENGTH = 2.5
"""Maximum mean number of characters of such symbols; words of running text are longer."""
MAX_SPLIT_LENGTH = 2**16
"""Maximum number of characters of a text that is divided to count its symbols."""
UNKNOWN_PIECE = ""
"""Name of unknown characters in the tokenizers library; no subword is empty."""


class SubwordModel(msgspec.Struct, frozen=True, dict=True):
    """Byte-pair encoding: the characters, and the pairs of subwords to merge, in order.

    Subwords are parts of the text, with the space before them, so their concatenation is the text. Splitting needs the
    tokenizers library.

    Raises:
        ArgumentError: A field does not match its annotation.
        ValueError: A member of the alphabet is not a single character, or a merge combines unknown subwords or occurs
            twice.

    References:
        Sennrich, Haddow and Birch (2016), "Neural machine translation of rare words with subword units".
    """

    alphabet: tuple[str, ...]
    """The characters."""
    merges: tuple[tuple[str, str], ...]
    """Pairs of subwords to merge; characters are the first subwords."""
    rare: tuple[str, ...] = ()
    """Subwords too rare to be learned by a model; they are split again (Sennrich et al. 2016)."""

    def __post_init__(self) -> None:
        """Convert the fields; raise `ValueError` for characters and merges that no training produces."""
        convert_struct_fields(self)
        known = set(self.alphabet)
        if any(len(character) != 1 or SURROGATES.search(character) for character in known):
            raise ValueError("the alphabet of a subword model must contain single characters only")
        for first, second in self.merges:
            if first not in known or second not in known:
                raise ValueError("a merge must combine earlier subwords")
            known.add(first + second)
        if len(set(self.merges)) < len(self.merges):
            raise ValueError("a merge must occur once only")

    def split(self, text: str) -> list[str]:
        """Return the subwords of a text. A character that is not in the alphabet is a subword of its own.

        Args:
            text: The text.

        Raises:
            ArgumentError: The text is not a string.
            ConfigError: The tokenizers library is not installed.
        """
        _check_text(text)
        # The library refuses unpaired surrogates; "?" has the same length, so offsets stay valid.
        encoded = self._tokenizer.encode(text.encode("utf-8", "replace").decode("utf-8"))
        pieces = [text[start:stop] for start, stop in encoded.offsets]
        return [part for piece in pieces for part in self._split_rare(piece)] if self.rare else pieces

    def count(self, text: str) -> int:
        """Return the number of subwords of a text.

        Args:
            text: The text, which is split in blocks of about `MAX_SPLIT_LENGTH` characters.

        Raises:
            ArgumentError: The text is not a string.
            ConfigError: The tokenizers library is not installed.
        """
        _check_text(text)
        count = start = num_cuts = 0
        while start < len(text):
            stop = start + MAX_SPLIT_LENGTH
            # A space begins a piece (`WORD_PATTERN`), so the text may be divided before it.
            space = text.rfind(" ", start + 1, stop + 1) if stop < len(text) else -1
            num_cuts += space < 0 and stop < len(text)
            stop = space if space >= 0 else stop
            count, start = count + len(self.split(text[start:stop])), stop
        # A word of several blocks may have another number, which matters only if the text is short enough to be used.
        return count if not num_cuts or count > MAX_SPLIT_LENGTH else len(self.split(text))

    def _split_rare(self, piece: str) -> Iterator[str]:
        """Yield a subword, or the parts of a rare one."""
        # A loop, since an untrusted model may have a chain of rare subwords as long as its list of merges.
        remaining = [piece]
        while remaining:
            part = remaining.pop()
            parts = self._rare_parts.get(part)
            if parts is None:
                yield part
            else:
                remaining += reversed(parts)

    @cached_property
    def _rare_parts(self) -> dict[str, tuple[str, str]]:
        """The two parts of each rare subword."""
        rare = set(self.rare)
        return {"".join(parts): parts for parts in reversed(self.merges) if "".join(parts) in rare}

    @cached_property
    def _tokenizer(self) -> Any:  # noqa: ANN401 (the library has no types, and may not be there)
        """Tokenizer of the tokenizers library, which is about a hundred times as fast as Python."""
        names = dict.fromkeys([UNKNOWN_PIECE, *self.alphabet, *map("".join, self.merges)])
        numbered = {piece: number for number, piece in enumerate(names)}
        return _build_library_tokenizer(_import_tokenizers(), numbered, list(self.merges))


class SubwordModels(msgspec.Struct, frozen=True):
    """Subword models of source and target; None for a side that is not split into subwords.

    Raises:
        ArgumentError: A field does not match its annotation.
    """

    source: SubwordModel | None = None
    target: SubwordModel | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        convert_struct_fields(self)


NO_SUBWORDS = SubwordModels()


@check_arguments
def train_subwords(texts: Sequence[str], max_subwords: PositiveInt, min_subword_count: PositiveInt = 1) -> SubwordModel:
    """Train byte-pair encoding on texts.

    Pairs that occur at least twice are merged. A subword is rare if it occurs fewer than `min_subword_count` times by
    itself, even if it often occurs within longer subwords; rare subwords are split again.

    Args:
        texts: The texts.
        max_subwords: Maximum number of subwords; all characters of the texts are among them.
        min_subword_count: Minimum number of occurrences of a subword that is not rare; 1 by default.

    Returns:
        The subword model.

    Raises:
        ConfigError: The tokenizers library is not installed.
    """
    library = _import_tokenizers()
    tokenizer = _build_library_tokenizer(library, None, None)
    trainer = library.trainers.BpeTrainer(
        vocab_size=max_subwords, min_frequency=2, show_progress=False, special_tokens=[]
    )
    tokenizer.train_from_iterator((text.encode("utf-8", "replace").decode("utf-8") for text in texts), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    alphabet = sorted(piece for piece in model["vocab"] if len(piece) == 1)
    plain = SubwordModel(tuple(alphabet), tuple((first, second) for first, second in model["merges"]))
    counts = Counter(piece for text in texts for piece in plain.split(text))
    rare = {piece for piece in map("".join, plain.merges) if counts[piece] < min_subword_count}
    return SubwordModel(plain.alphabet, plain.merges, tuple(sorted(rare)))


def _check_text(text: str) -> None:
    """Raise `ArgumentError` if a text is not a string; bytes would be split into numbers."""
    if not isinstance(text, str):
        raise argument_error("text", "a string", text)


def _build_library_tokenizer(
    library: ModuleType, numbered: dict[str, int] | None, merges: list[tuple[str, str]] | None
) -> Any:  # noqa: ANN401
    """Return a tokenizer of the tokenizers library that neither normalizes nor drops anything."""
    tokenizer = library.Tokenizer(library.models.BPE(numbered, merges, unk_token=UNKNOWN_PIECE if numbered else None))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(WORD_PATTERN), behavior="isolated")
    return tokenizer


def _import_tokenizers() -> ModuleType:
    """Import the tokenizers library; raise `ConfigError` if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise ConfigError("subwords need the package tokenizers: run pip install 'pellucid[subwords]'") from None
    module: ModuleType = tokenizers
    return module


UNSPLIT_KINDS = ("whole", "position")
"""Kinds of tokenizers for which the whole text is one symbol."""
TOKENIZER_KINDS = ("characters", "ipa", "words", "subwords", *UNSPLIT_KINDS)
"""Names of kinds; any other kind is a separator."""
Kind = Annotated[str, Meta(min_length=1)]
"""Name of a kind, or a separator."""


@dataclass(frozen=True)
class Tokenizer(CheckedFields):
    """Tokenizer of one column: splits texts into symbols, and joins symbols to texts.

    `kind` is "characters" (code points), "ipa" (phones, see `split_phones`), "words" (separated by white space),
    "subwords", "whole" or "position" (the text is one symbol), or a separator. A text is split at every occurrence of a
    separator. `join` is the inverse of `split`, except for Unicode normalization and the white space between words.

    Raises:
        ArgumentError: A field does not match its annotation.
    """

    kind: Kind
    normalization: Normalization
    """Unicode normalization form into which texts are converted before they are split."""
    subwords: SubwordModel | None = None
    """Trained subword model; without one, a tokenizer of kind "subwords" splits into characters."""
    ignored_tag: str = ""
    """Symbol at positions that count neither for the loss nor for the metrics; empty if there is none."""
    lowercase: bool = False
    """Whether texts are converted to lower case, as the words of contexts are."""

    def split(self, text: str) -> list[str]:
        """Return the symbols of a text, after Unicode normalization; none for an empty text.

        Args:
            text: The text.

        Raises:
            ArgumentError: The text is not a string.
            ConfigError: There is a subword model, and the tokenizers library is not installed.
        """
        return self._split_prepared(self._prepare(text))

    def _prepare(self, text: str) -> str:
        """Return a text as it is divided: normalized, and in lower case where texts are."""
        text = self.normalize(text)
        return text.lower() if self.lowercase else text

    def _split_prepared(self, text: str) -> list[str]:
        """Return the symbols of a prepared text."""
        if self.subwords is not None:
            return self.subwords.split(text)
        if self.kind in ("characters", "subwords"):
            return list(text)
        if self.kind == "ipa":
            return split_phones(text)
        if self.kind == "words":
            return text.split()
        if self.kind in UNSPLIT_KINDS:
            return [text] if text else []
        return text.split(self.kind) if text else []

    def count(self, text: str) -> int:
        """Return the number of symbols of a text, the length of `split`.

        A text of more than `MAX_SPLIT_LENGTH` characters is not divided, because its symbols may take 30 times its
        memory.

        Args:
            text: The text.

        Raises:
            ArgumentError: The text is not a string.
            ConfigError: As in `split`.
        """
        text = self._prepare(text)
        if self.subwords is None and self.kind in ("characters", "subwords"):
            return len(text)
        if len(text) <= MAX_SPLIT_LENGTH or self.kind in UNSPLIT_KINDS:
            return len(self._split_prepared(text))
        if self.subwords is not None:
            return self.subwords.count(text)
        if self.kind == "ipa":
            return count_phones(text)
        return _count_words(text) if self.kind == "words" else text.count(self.kind) + 1

    def can_produce(self, symbol: str) -> bool:
        """Return whether `split` returns this symbol for some text; parts between separators may be empty.

        Args:
            symbol: The symbol.

        Raises:
            ArgumentError: The symbol is not a string.
        """
        if type(symbol) is not str:
            symbol = convert_argument("symbol", symbol, str)
        if self.kind == "characters":
            return len(symbol) == 1
        if self.kind == "ipa":
            return split_phones(symbol) == [symbol]
        if self.kind == "words":
            return symbol.split() == [symbol]
        if self.kind in TOKENIZER_KINDS:
            return symbol != ""
        return self.kind not in symbol

    def normalize(self, text: str) -> str:
        """Return a text in the Unicode normalization form of its column.

        Args:
            text: The text.

        Raises:
            ArgumentError: The text is not a string.
        """
        _check_text(text)
        if self.normalization == "none" or text.isascii():
            return text
        return normalize_text("NFC" if self.normalization == "nfc" else "NFD", text)

    def split_all(self, texts: Sequence[str], lengths: list[int]) -> Iterator[str]:
        """Return an iterator over the symbols of many texts, which appends the number of symbols of each to `lengths`.

        It keeps no list per text: many small lists would slow down the garbage collector.

        Args:
            texts: The texts.
            lengths: List that receives the number of symbols of each text, during iteration.
        """

        def split_texts() -> Iterator[list[str]]:
            for text in texts:
                symbols = self.split(text)
                lengths.append(len(symbols))
                yield symbols

        return chain.from_iterable(split_texts())

    def join(self, symbols: Sequence[str]) -> str:
        """Return the text of symbols, as a file would hold it: the inverse of `split`.

        Words are joined by single spaces.

        Args:
            symbols: The symbols; for "whole" and "position" one symbol, several are joined by tabs. In a string each
                character is a symbol.

        Raises:
            ArgumentError: The symbols are not a sequence of strings.
        """
        if type(symbols) in (list, tuple, str):
            try:
                return self._separator.join(symbols)
            except TypeError:  # an item is not a string
                pass
        return self._separator.join(convert_argument("symbols", symbols, Sequence[str]))

    @property
    def _separator(self) -> str:
        """Text between two symbols."""
        if self.kind in ("characters", "ipa", "subwords"):
            return ""
        if self.kind in UNSPLIT_KINDS:
            return "\t"  # never between symbols of `split`, which returns one
        return " " if self.kind == "words" else self.kind


class Tokenizers(NamedTuple):
    """Tokenizers of the three columns."""

    source: Tokenizer
    target: Tokenizer
    features: Tokenizer

    def split_pair(self, source: str, target: str) -> tuple[list[str], list[str]]:
        """Return the symbols of a source and of a target.

        Args:
            source: Text of the source.
            target: Text of the target.
        """
        return self.source.split(source), self.target.split(target)


@check_arguments
def build_tokenizers(config: DataConfig, subword_models: SubwordModels = NO_SUBWORDS) -> Tokenizers:
    """Return the tokenizers of a configuration.

    Args:
        config: The data settings.
        subword_models: Trained subword models; none by default. Features are never split into subwords.

    Raises:
        ConfigError: A kind of tokenizer is empty, a misspelled name, or not possible for its column.
    """
    if config.features_symbols == "subwords":
        raise ConfigError("data.features_symbols: expected characters, ipa, words or a separator, got 'subwords'")
    source = _build_tokenizer("data.source_symbols", config.source_symbols, config.source_normalization)
    target = _build_tokenizer("data.target_symbols", config.target_symbols, config.target_normalization)
    features = _build_tokenizer("data.features_symbols", features_kind(config), config.source_normalization)
    return Tokenizers(
        source=replace(source, subwords=subword_models.source),
        target=replace(target, subwords=subword_models.target, ignored_tag=config.ignored_tag),
        features=replace(features, lowercase=config.context_words > 0),
    )


def _count_words(text: str) -> int:
    """Return the number of words between white space, without a list of them.

    Args:
        text: The text.
    """
    starts = range(0, len(text), MAX_SPLIT_LENGTH)
    count = sum(len(text[start : start + MAX_SPLIT_LENGTH].split()) for start in starts)
    # A word that two blocks share was counted in both.
    return count - sum(not (text[start - 1].isspace() or text[start].isspace()) for start in starts[1:])


def find_spaced_symbols(texts: Sequence[str]) -> str:
    """Return the first text with a space if most texts are short symbols between spaces, such as phones; else "".

    Args:
        texts: Sources or targets.
    """
    first, num_spaced, num_symbols, num_characters = "", 0, 0, 0
    for text in texts:
        symbols = text[:MAX_SPLIT_LENGTH].split()
        if len(symbols) > 1:
            first, num_spaced = first or text, num_spaced + 1
            num_symbols += len(symbols)
            num_characters += sum(map(len, symbols))
    is_spaced = num_spaced and num_spaced >= MIN_SPACED_FRACTION * len(texts)
    return first if is_spaced and num_characters <= MAX_SPACED_LENGTH * num_symbols else ""


def symbol_kind_warnings(sources: Sequence[str], targets: Sequence[str], config: DataConfig) -> Iterator[str]:
    """Yield a warning for each side whose texts seem to have other symbols than those of the settings.

    Such texts have spaces between short symbols; or they look like IPA, are split into characters, and are not aligned
    position by position.

    Args:
        sources: Sources.
        targets: Targets.
        config: Data settings.

    Yields:
        Sentences.
    """
    units = {"characters": "characters", "ipa": "IPA phones"}
    for side, texts, kind in (
        ("source", sources, config.source_symbols),
        ("target", targets, config.target_symbols),
    ):
        if kind not in units:
            continue
        if spaced := find_spaced_symbols(texts):
            yield (
                f"{side}s such as {quote(spaced)} seem to be symbols between spaces, but they are split into "
                f"{units[kind]}, of which the space is one: consider --{side}-symbols words"
            )
        elif kind == "characters" and not config.equal_length and (phones := find_combined_phones(texts)):
            yield f"the {side}s look like IPA: --{side}-symbols ipa keeps {' and '.join(phones)} together"


def features_kind(config: DataConfig) -> str:
    """Return the kind of the tokenizer of features: that of the settings, or "words" for contexts.

    Args:
        config: The data settings.
    """
    return "words" if config.context_words else config.features_symbols


def _build_tokenizer(key: str, kind: str, normalization: Normalization) -> Tokenizer:
    """Return a tokenizer; raise `ConfigError` for a kind that is a misspelled name, such as "charcters", and no
    separator.
    """
    if not kind:
        raise ConfigError(f"{key}: expected characters, ipa, words, subwords or a separator, got an empty string")
    if kind not in TOKENIZER_KINDS and len(kind) > 1 and kind.isalpha():
        raise ConfigError(
            f"{key}: expected characters, ipa, words, subwords or a separator, got {quote(kind)}"
            f"{suggest(kind.lower(), TOKENIZER_KINDS)}"
        )
    if kind == "position" and key != "data.target_symbols":
        raise ConfigError(
            f"{key}: expected characters, ipa, words or a separator, got 'position', which is for targets only"
        )
    return Tokenizer(kind, normalization)
