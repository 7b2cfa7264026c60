"""Subwords are learned from the training file, concatenate to the text, and are saved with the vocabulary."""

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import TEXTS

from pellucid.config.settings import DataConfig
from pellucid.data import tokenizers as tokenizers_module
from pellucid.data.examples import Example
from pellucid.data.tokenizers import SubwordModel, build_tokenizers, train_subwords
from pellucid.data.vocabulary import UNK, learn_tokenizers, learn_vocabularies, load_vocabularies
from pellucid.errors import ConfigError

pytest.importorskip("tokenizers")

PAIRS = [
    Example("The cat sat on the mat.", "El gato se sentó en la estera."),
    Example("The cat sat there, the cat!", "¡El gato se sentó allí, el gato!"),
    Example("Where is the mat?", "¿Dónde está la estera?"),
]
SUBWORDS = DataConfig(source_symbols="subwords", target_symbols="subwords", subword_vocab_size=60)
TOKENIZERS = learn_tokenizers(PAIRS, SUBWORDS)


@given(TEXTS | st.text())
def test_concatenated_subwords_are_the_text(text: str) -> None:
    tokenizer = TOKENIZERS.target
    assert tokenizer.join(tokenizer.split(text)) == text
    assert all(tokenizer.split(text))


@settings(max_examples=40)
@given(TEXTS | st.text(st.sampled_from("cat \n.1é"), min_size=1))
def test_the_count_of_a_long_text_is_the_number_of_its_subwords(text: str) -> None:
    """A long text is split in blocks."""
    model = TOKENIZERS.source.subwords
    assert model is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers_module, "MAX_SPLIT_LENGTH", 7)
        assert TOKENIZERS.source.count(text) == len(TOKENIZERS.source.split(text))
        spaced = text.replace("\n", " ").replace("1", " ") + " cat" * 9
        assert TOKENIZERS.source.count(spaced) == len(TOKENIZERS.source.split(spaced))


def test_a_frequent_word_is_one_subword() -> None:
    assert TOKENIZERS.source.split("The cat sat.") == ["The", " cat", " sat", "."]
    assert TOKENIZERS.source.split("The zoo") == ["The", " ", "z", "o", "o"]


def test_no_subword_crosses_a_word_boundary() -> None:
    model = train_subwords(["of the of the of the, of the"] * 9, 1_000)
    assert model.split("of the, of the") == ["of", " the", ",", " of", " the"]


def test_rare_subwords_are_split() -> None:
    model = train_subwords(["sentence sentence"] * 5 + ["se"], 1_000)
    assert model.split("sentence") == ["sentence"]
    pieces = {piece for text in ("sentence sentence", "se") for piece in model.split(text)}
    assert "senten" in model.rare
    assert set(model.split("senten")) <= pieces | set(model.alphabet)
    assert train_subwords(["ab ab", "ab"], 50, min_subword_count=9).split("ab") == ["a", "b"]


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 40))
def test_training_texts_have_no_unknown_subword(texts: list[str], vocab_size: int) -> None:
    examples = [Example(text, text) for text in texts]
    config = DataConfig(source_symbols="subwords", target_symbols="subwords", subword_vocab_size=vocab_size)
    tokenizers = learn_tokenizers(examples, config)
    vocabularies = learn_vocabularies(examples, tokenizers, 1)
    assert all(UNK not in vocabularies.target.encode(tokenizers.target.split(text)) for text in texts)
    assert all(
        set(map(tokenizers.target.normalize, text)) <= {c for s in vocabularies.target.symbols for c in s}
        for text in texts
    )


def test_the_vocabulary_size_limits_the_subwords() -> None:
    vocabularies = learn_vocabularies(PAIRS, TOKENIZERS, 1)
    assert 20 < len(vocabularies.target.symbols) <= 60
    assert min(vocabularies.target.counts) >= 1
    assert learn_tokenizers(PAIRS, SUBWORDS) == TOKENIZERS


def test_subwords_are_saved_with_the_vocabulary(tmp_path: Path) -> None:
    vocabularies = learn_vocabularies(PAIRS, TOKENIZERS, 1)
    vocabularies.save(tmp_path / "vocabulary.json")
    loaded = load_vocabularies(tmp_path / "vocabulary.json", SUBWORDS)
    assert loaded == vocabularies
    assert build_tokenizers(SUBWORDS, loaded.pieces) == TOKENIZERS


def test_untrained_subwords_are_characters() -> None:
    assert build_tokenizers(SUBWORDS).source.split("ab c") == ["a", "b", " ", "c"]
    assert learn_tokenizers(PAIRS, DataConfig()) == build_tokenizers(DataConfig())


@pytest.mark.parametrize(
    ("alphabet", "merges", "reason"),
    [
        (("ab",), (), "the alphabet of a subword model must contain single characters only"),
        (("a", "b"), (("a", "c"),), "a merge must combine earlier subwords"),
        (("a", "b"), (("ab", "a"), ("a", "b")), "a merge must combine earlier subwords"),
        (("a", "b"), (("a", "b"), ("a", "b")), "a merge must occur once only"),
    ],
)
def test_invalid_subword_models_are_refused(
    alphabet: tuple[str, ...], merges: tuple[tuple[str, str], ...], reason: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert({"alphabet": alphabet, "merges": merges}, SubwordModel)


def test_an_unpaired_surrogate_is_no_character_of_a_subword_model() -> None:
    with pytest.raises(ValueError, match="must contain single characters only"):
        SubwordModel(("\ud800",), ())


def test_features_are_not_split_into_subwords() -> None:
    with pytest.raises(ConfigError, match=r"data\.features_symbols: expected characters, ipa, words or a separator"):
        build_tokenizers(DataConfig(features_symbols="subwords"))


def test_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    original_import = builtins.__import__

    def import_without_tokenizers(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if name == "tokenizers":
            raise ImportError(name)
        return original_import(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", import_without_tokenizers)
    with pytest.raises(ConfigError, match=r"pip install 'pellucid\[subwords\]'"):
        train_subwords(["a"], 5)


def test_a_long_chain_of_rare_subwords_is_split() -> None:
    """Each rare subword is the one before it and a letter; a recursion would be too deep."""
    length = 3000
    chain = tuple("a" + "b" * count for count in range(length))
    model = SubwordModel(
        alphabet=("a", "b"), merges=tuple((part, "b") for part in chain), rare=(*chain[1:], chain[-1] + "b")
    )
    assert model.split("a" + "b" * length) == ["a", *"b" * length]
