"""Real sentences: words apart and together again, all translations of a sentence, and the recipe made small."""

import gzip
import json
from pathlib import Path

import pytest
from command_line import complaint, pellucid
from hypothesis import given
from hypothesis import strategies as st
from report_documents import titles_of, written_document
from trained_runs import right_here

from pellucid.data.examples import Example
from pellucid.errors import DataError, InputError
from pellucid.recipes import spanish_tatoeba
from pellucid.recipes.catalog import find
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.recipes.spanish.sentences import PAIRS
from pellucid.recipes.spanish.tatoeba import (
    JOINER,
    PARTS,
    apart,
    asked_of,
    links_of,
    read_sentences,
    together,
    unknown_share,
)
from pellucid.training.run_folder import load

pytest.importorskip("tokenizers")


@given(st.text(st.characters(exclude_characters=JOINER, exclude_categories=["Cs"])))
def test_words_together_are_the_text_but_for_the_width_of_spaces(text: str) -> None:
    assert together(apart(text)) == " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("¿Eh?", "¿▪ Eh ▪?"),
        ("Don't go, Tom.", "Don't go ▪, Tom ▪."),
        ('"Sí", dijo a las 3:30.', '"▪ Sí ▪" ▪, dijo a las 3 ▪:▪ 30 ▪.'),
        ("", ""),
    ],
)
def test_a_sign_says_on_which_side_it_stands_close(text: str, words: str) -> None:
    assert apart(text) == words and together(words) == text


def test_each_sentence_is_asked_once_with_all_its_translations() -> None:
    asked = asked_of([Example("a", "x"), Example("b", "y"), Example("a", "z"), Example("a", "x")])
    assert asked.sources == ["a", "b"] and asked.references == [("x", "z"), ("y",)]


def test_unknown_symbols_are_counted() -> None:
    from pellucid.data.vocabulary import Vocabulary

    assert unknown_share([["a", "b"], ["c", "a"]], Vocabulary(("a", "b"), (2, 1))) == 25.0
    assert unknown_share([], Vocabulary((), ())) == 0.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data with the twenty pairs as training set and some as the others."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "mt-tatoeba-spa-eng" / "derived-split").mkdir(parents=True)
    for part, pairs in zip(PARTS, (PAIRS[:14], PAIRS[14:17], PAIRS[17:]), strict=True):
        with gzip.open(
            folder / "mt-tatoeba-spa-eng" / "derived-split" / f"{part}.tsv.gz", "wt", encoding="utf-8"
        ) as to:
            to.writelines(f"{english}\t{spanish}\n" for english, spanish in pairs)
    return folder


def test_the_recipe_trains_judges_and_tells(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "size": "tiny",
        "encoder": {"hidden_size": 4, "embedding_size": 4},
        "attention": {"size": 4},
        "decoder": {"hidden_size": 8, "embedding_size": 4},
        "training": {"epochs": 2},
        "search": {"max_length": 12},
    }
    monkeypatch.setattr(
        spanish_tatoeba, "recipe_config", lambda name, settings: recipe_config(name, {**settings, **small})
    )
    monkeypatch.setattr(spanish_tatoeba, "followed", right_here)
    out = tmp_path / "out"
    lines = list(find("spanish-tatoeba")(Request(out, data=data)))
    assert [line.split(",")[0] for line in lines[:2]] == ["words", "subwords"]
    report = json.loads((out / "report.json").read_text())
    for run in report["runs"]:
        assert run["test"]["sentences"] == 3 and 0 <= run["test"]["chrf"] <= 100 and run["passes"] == pytest.approx(2)
        assert "refs:" in run["test"]["bleu_signature"] or "nrefs" in run["test"]["bleu_signature"]
    subwords = load(out / "runs" / "subwords-seed-1")
    assert subwords.vocabularies.pieces.target is not None
    (trace,) = subwords.predict(["My cat sleeps."])
    assert "".join(trace.source) == "My cat sleeps."
    assert links_of([trace], 3)[0].times >= 1
    titles = titles_of(written_document(out / "report.html"))
    assert {"Attention as alignment: words, seed 1", "Attention as alignment: subwords, seed 1"} <= set(titles)


def test_one_system_can_be_asked_for_and_others_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"has no system 'word'; did you mean 'words'\? \(there are: words, subwords\)"
    ):
        list(find("spanish-tatoeba")(Request(tmp_path / "out", data=data, only=["word"])))
    message = complaint(pellucid("recipe", "spanish-faithful", "--out", tmp_path / "out", "--only", "words"))
    assert "has only one experiment" in message


def test_samples_are_the_same_each_time(data: Path) -> None:
    first, again = (read_sentences(data, 5) for _ in range(2))
    assert first == again and [len(part) for part in first] == [5, 3, 3]


def test_without_its_data_it_says_where_they_are_from(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"manythings\.org/anki"):
        read_sentences(tmp_path, 0)
