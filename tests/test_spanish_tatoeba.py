"""The recipe spanish-tatoeba tokenizes, groups references, trains and reports at small size."""

import gzip
import json
from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message
from hypothesis import given
from hypothesis import strategies as st
from report_documents import read_report, section_titles, select_parts
from trained_runs import run_jobs_serially

from pellucid.data.examples import Example
from pellucid.errors import DataError, InputError
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.recipe import RecipeRequest
from pellucid.recipes.spanish import tatoeba
from pellucid.recipes.spanish.sentences import PAIRS
from pellucid.recipes.spanish.tatoeba import (
    JOINER,
    PARTS,
    attention_links,
    detokenize,
    group_references,
    read_tatoeba,
    tokenize,
    unknown_percentage,
)
from pellucid.run_folder.predictor_loader import load
from pellucid.viewer.report_schema import ReportTable

pytest.importorskip("tokenizers")


@given(st.text(st.characters(exclude_characters=JOINER, exclude_categories=["Cs"])))
def test_joined_words_are_the_text_except_for_the_width_of_spaces(text: str) -> None:
    assert detokenize(tokenize(text)) == " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("¿Eh?", "¿▪ Eh ▪?"),
        ("Don't go, Tom.", "Don't go ▪, Tom ▪."),
        ('"Sí", dijo a las 3:30.', '"▪ Sí ▪" ▪, dijo a las 3 ▪:▪ 30 ▪.'),
        ("", ""),
    ],
)
def test_joiner_marks_sides_without_space(text: str, words: str) -> None:
    assert tokenize(text) == words and detokenize(words) == text


def test_each_source_occurs_once_with_all_translations() -> None:
    grouped = group_references([Example("a", "x"), Example("b", "y"), Example("a", "z"), Example("a", "x")])
    assert grouped.sources == ["a", "b"] and grouped.references == [("x", "z"), ("y",)]


def test_unknown_symbols_are_counted() -> None:
    from pellucid.data.vocabulary import Vocabulary

    assert unknown_percentage([["a", "b"], ["c", "a"]], Vocabulary(("a", "b"), (2, 1))) == 25.0
    assert unknown_percentage([], Vocabulary((), ())) == 0.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with the twenty pairs, divided into three splits."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "mt-tatoeba-spa-eng" / "derived-split").mkdir(parents=True)
    for part, pairs in zip(PARTS, (PAIRS[:14], PAIRS[14:17], PAIRS[17:]), strict=True):
        with gzip.open(
            folder / "mt-tatoeba-spa-eng" / "derived-split" / f"{part}.tsv.gz", "wt", encoding="utf-8"
        ) as file:
            file.writelines(f"{english}\t{spanish}\n" for english, spanish in pairs)
    return folder


def test_recipe_trains_evaluates_and_reports(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "size": "tiny",
        "encoder": {"hidden_size": 4, "embedding_size": 4},
        "attention": {"size": 4},
        "decoder": {"hidden_size": 8, "embedding_size": 4},
        "training": {"epochs": 2},
        "search": {"max_length": 12},
        "data": {"min_count": 1},
    }
    monkeypatch.setattr(tatoeba, "run_jobs", run_jobs_serially)
    out = tmp_path / "out"
    lines = list(find_recipe("spanish-tatoeba")(RecipeRequest(out, data=data, settings=settings)))
    assert [line.split(",")[0] for line in lines[:2]] == ["words", "subwords"]
    report = json.loads((out / "report.json").read_text())
    for run in report["runs"]:
        assert run["test"]["sentences"] == 3 and 0 <= run["test"]["chrf"] <= 100 and run["epochs"] == pytest.approx(2)
        assert run["pair_ngram"]["test"]["sentences"] == 3 and run["pair_ngram"]["cpu_seconds"] > 0
        assert "refs:" in run["test"]["bleu_signature"] or "nrefs" in run["test"]["bleu_signature"]
    subwords = load(out / "runs" / "subwords-seed-1")
    assert (subwords.config.size, subwords.config.decoder.hidden_size) == ("tiny", 8)
    assert subwords.config.decoder.tie_embeddings, "the other settings are those of the recipe"
    assert "These settings are not those of the recipe: size = 'tiny'" in (out / "report.html").read_text("utf-8")
    assert subwords.vocabularies.pieces.target is not None
    (trace,) = subwords.predict(["My cat sleeps."])
    assert "".join(trace.source) == "My cat sleeps."
    assert attention_links([trace], 3)[0].frequency >= 1
    assert lines[0].count("BLEU") == 4 and "; pair n-gram model: test BLEU" in lines[0]
    document = read_report(out / "report.html")
    (table,) = select_parts(document, ReportTable, "Both systems")
    assert [row[1] for row in table.rows if row[0] == "pair n-gram model, words"] == ["dev", "test"]
    titles = section_titles(document)
    assert {"Attention as alignment: words, seed 1", "Attention as alignment: subwords, seed 1"} <= set(titles)


def test_one_system_can_be_selected_and_unknown_ones_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"has no system 'word'; did you mean 'words'\? \(there are: words, subwords\)"
    ):
        list(find_recipe("spanish-tatoeba")(RecipeRequest(tmp_path / "out", data=data, only=["word"])))
    message = usage_error_message(
        run_pellucid("recipe", "spanish-faithful", "--run", tmp_path / "out", "--only", "words")
    )
    assert "has only one experiment" in message


def test_samples_are_the_same_each_time(data: Path) -> None:
    first, again = (read_tatoeba(data, 5) for _ in range(2))
    assert first == again and [len(part) for part in first] == [5, 3, 3]


def test_missing_data_error_names_the_source(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"manythings\.org/anki"):
        read_tatoeba(tmp_path, 0)
