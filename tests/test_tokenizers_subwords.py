"""Subwords: learned from the training file, concatenated they are the text, saved with the vocabulary."""

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import TEXTS

from pellucid.config.settings import DataConfig
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
CUT = learn_tokenizers(PAIRS, SUBWORDS)


@given(TEXTS | st.text())
def test_concatenated_subwords_are_the_text(text: str) -> None:
    cut = CUT.target
    assert cut.join(cut.split(text)) == text
    assert all(cut.split(text))


def test_a_frequent_word_is_one_subword() -> None:
    assert CUT.source.split("The cat sat.") == ["The", " cat", " sat", "."]
    assert CUT.source.split("The zoo") == ["The", " ", "z", "o", "o"]


def test_no_subword_crosses_a_word_boundary() -> None:
    learned = train_subwords(["of the of the of the, of the"] * 9, 1_000)
    assert learned.split("of the, of the") == ["of", " the", ",", " of", " the"]


def test_rare_subwords_are_split() -> None:
    learned = train_subwords(["sentence sentence"] * 5 + ["se"], 1_000)
    assert learned.split("sentence") == ["sentence"]
    known = {piece for text in ("sentence sentence", "se") for piece in learned.split(text)}
    assert "senten" in learned.rare
    assert set(learned.split("senten")) <= known | set(learned.alphabet)
    assert train_subwords(["ab ab", "ab"], 50, min_subword_count=9).split("ab") == ["a", "b"]


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 40))
def test_training_texts_have_no_unknown_subword(texts: list[str], most: int) -> None:
    examples = [Example(text, text) for text in texts]
    config = DataConfig(source_symbols="subwords", target_symbols="subwords", subword_vocab_size=most)
    cut = learn_tokenizers(examples, config)
    known = learn_vocabularies(examples, cut, 1)
    assert all(UNK not in known.target.encode(cut.target.split(text)) for text in texts)
    assert all(set(map(cut.target.normalize, text)) <= {c for s in known.target.symbols for c in s} for text in texts)


def test_the_vocabulary_size_limits_the_subwords() -> None:
    known = learn_vocabularies(PAIRS, CUT, 1)
    assert 20 < len(known.target.symbols) <= 60
    assert min(known.target.counts) >= 1
    assert learn_tokenizers(PAIRS, SUBWORDS) == CUT


def test_subwords_are_saved_with_the_vocabulary(tmp_path: Path) -> None:
    known = learn_vocabularies(PAIRS, CUT, 1)
    known.save(tmp_path / "vocabulary.json")
    loaded = load_vocabularies(tmp_path / "vocabulary.json", SUBWORDS)
    assert loaded == known
    assert build_tokenizers(SUBWORDS, loaded.pieces) == CUT


def test_untrained_subwords_are_characters() -> None:
    assert build_tokenizers(SUBWORDS).source.split("ab c") == ["a", "b", " ", "c"]
    assert learn_tokenizers(PAIRS, DataConfig()) == build_tokenizers(DataConfig())


@pytest.mark.parametrize(
    ("alphabet", "merges", "reason"),
    [
        (("ab",), (), "the alphabet of a subword model must contain single characters only"),
        (("a", "b"), (("a", "c"),), "a merge must combine earlier subwords"),
        (("a", "b"), (("ab", "a"), ("a", "b")), "a merge must combine earlier subwords"),
    ],
)
def test_invalid_subword_models_are_refused(
    alphabet: tuple[str, ...], merges: tuple[tuple[str, str], ...], reason: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert({"alphabet": alphabet, "merges": merges}, SubwordModel)


def test_features_are_not_split_into_subwords() -> None:
    with pytest.raises(ConfigError, match=r"data\.features_symbols: expected characters, words or a separator"):
        build_tokenizers(DataConfig(features_symbols="subwords"))


def test_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if name == "tokenizers":
            raise ImportError(name)
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'pellucid\[subwords\]'"):
        train_subwords(["a"], 5)
