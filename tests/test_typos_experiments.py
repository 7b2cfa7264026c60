"""The recipes typo-faithful and typo-attention report lines, tables and progress at small size."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import run_pellucid, usage_error_message
from report_documents import read_report, section_titles
from trained_runs import SMALL_SIZES, run_jobs_serially
from typo_cases import write_word_list

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.typos import experiments
from pellucid.recipes.typos.training import (
    POST_WORDS,
    SYMBOLS,
    TypoNetworkSizes,
)
from pellucid.reporting.progress import multi_progress


@pytest.fixture(scope="module")
def word_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a word list."""
    return write_word_list(tmp_path_factory.mktemp("words") / "words")


@pytest.fixture(scope="module", autouse=True)
def use_small_trainings() -> Iterator[None]:
    """Use small networks, short trainings and no worker processes."""

    def quick_config(name: str, overrides: Mapping[str, Any], train: Path | None = None) -> Config:
        training = {"batch_size": 16, "epochs": 2, "learning_rate": 0.02}
        return build_config(
            {"size": "tiny", "task": "point", **SMALL_SIZES, "training": training, **overrides}, origin=name
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "FAITHFUL_SIZES", TypoNetworkSizes(hidden=4, max_length=18))
        patch.setattr(experiments, "run_jobs", run_jobs_serially)
        patch.setattr(experiments, "MAX_LETTERS", 18)
        patch.setattr(experiments, "load_recipe_config", quick_config)
        patch.setattr(experiments, "run_jobs", run_jobs_serially)
        yield


@pytest.fixture(scope="module")
def faithful(word_list: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return the output folder and the lines of typo-faithful with two seeds."""
    out = tmp_path_factory.mktemp("faithful") / "out"
    return out, list(find_recipe("typo-faithful")(RecipeRequest(out, seeds=2, samples=640, words=word_list)))


@pytest.fixture(scope="module")
def attention(word_list: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return the output folder and the lines of typo-attention with one seed."""
    out = tmp_path_factory.mktemp("attention") / "out"
    return out, list(find_recipe("typo-attention")(RecipeRequest(out, samples=200, words=word_list)))


def test_lines_of_typo_faithful(faithful: tuple[Path, list[str]]) -> None:
    lines = faithful[1]
    assert [line.split(":")[0] for line in lines[:2]] == [f"three layers of LSTM, seed {seed}" for seed in (1, 2)]
    assert "vowel separation ratio" in lines[2] and lines[2].startswith("seed 1") and lines[-1].startswith("report: ")


@pytest.mark.parametrize("name", ["faithful", "attention"])
def test_report_has_every_table(name: str, request: pytest.FixtureRequest) -> None:
    out, _ = request.getfixturevalue(name)
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert report["name"] == f"typo-{name}"
    all_words = report["by_length"][0]
    assert all_words["label"] == "all" and 0 <= all_words["top_1"] <= all_words["top_3"] <= 1
    assert all_words["top_1"] <= all_words["best_accuracy"] + 0.5
    assert sum(row["total"] for row in report["by_length"][3:]) == all_words["total"]
    assert sum(row["total"] for row in report["by_letter"][:2]) == all_words["total"]
    assert sum(row["total"] for row in report["by_ambiguity"][:3]) == all_words["total"]
    for run in report["runs"]:
        assert list(run["post_words"]) == list(POST_WORDS)
        assert [len(row) for row in run["post_words"].values()] == list(map(len, POST_WORDS))
        assert all(sum(row) <= 1 + 1e-3 for row in run["post_words"].values()) and run["curve"]
    titles = section_titles(read_report(out / "report.html"))
    assert {"By length", "By letter", "Ambiguity", "The words of the post"} <= set(titles)


def test_attention_excludes_padding(attention: tuple[Path, list[str]]) -> None:
    report = json.loads((attention[0] / "report.json").read_text())
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in report["runs"][0]["post_words"].values())
    pairs = (attention[0] / "data" / "seed-1" / "train.tsv").read_text().splitlines()
    assert len(pairs) == 200
    wrong, position, right = pairs[0].split("\t")
    assert wrong[int(position) - 1] != right[int(position) - 1] and len(wrong) == len(right)


@pytest.mark.parametrize(
    ("name", "samples", "messages"),
    [
        ("typo-attention", 40, ["seed 1: 40 of ", " training typos\n", "seed 1: new run, ", "seed 1: epoch "]),
        ("typo-faithful", 640, ["seed 1: 32 of 640 samples · position accuracy ", "seed 1: 640 of 640 samples"]),
    ],
)
def test_progress_of_training_is_reported(
    name: str, samples: int, messages: list[str], word_list: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with multi_progress() as progress:
        list(find_recipe(name)(RecipeRequest(tmp_path / "out", samples=samples, words=word_list, progress=progress)))
    err = capsys.readouterr().err
    assert all(message in err for message in messages)


def test_finished_run_is_not_trained_again(attention: tuple[Path, list[str]], word_list: Path) -> None:
    out, lines = attention
    assert list(find_recipe("typo-attention")(RecipeRequest(out, samples=200, words=word_list))) == lines


def test_claims_of_the_post_are_measured_before_and_after_training(faithful: tuple[Path, list[str]]) -> None:
    report = json.loads((faithful[0] / "report.json").read_text())
    assert len(report["embedding"]) == 2
    for claims in report["embedding"]:
        for state in ("before", "after"):
            assert 1 / 65_781 <= claims[state]["p"] <= 1 and 1 <= claims[state]["isolation_rank"] <= 26


def test_animation_moves_every_symbol_without_a_script(faithful: tuple[Path, list[str]]) -> None:
    root = ET.fromstring((faithful[0] / "film-seed-1.svg").read_text("utf-8"))
    animations = [each for each in root.iter() if each.tag.endswith("animateTransform")]
    assert len(animations) == len(SYMBOLS) and not [each for each in root.iter() if each.tag.endswith("script")]
    for each in animations:
        assert len(each.attrib["values"].split(";")) == len(each.attrib["keyTimes"].split(";"))


def test_missing_word_list_is_an_error(tmp_path: Path) -> None:
    message = usage_error_message(
        run_pellucid("recipe", "typo-faithful", "--run", tmp_path / "out", "--words", tmp_path / "none")
    )
    assert "apt-get install wamerican" in message and not (tmp_path / "out").exists()
    message = usage_error_message(
        run_pellucid("recipe", "digits-data", "--run", tmp_path / "out", "--words", tmp_path / "none")
    )
    assert "--words applies to the typo recipes" in message


def test_typo_attention_is_bidirectional_without_dropout() -> None:
    config = load_recipe_config("typo-attention", {"seed": 7})
    assert config.task == "point" and config.encoder.bidirectional and config.seed == 7
    assert config.encoder.dropout == config.decoder.dropout == config.training.label_smoothing == 0
