"""The recipes for published transduction sets train and report on generated data of the same format."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import run_pellucid, usage_error_message
from recipe_data import SPLIT_SIZES, RecipeRun, write_codespell, write_g2p, write_histnorm, write_scan, write_translit
from report_documents import read_report, section_titles, select_parts
from trained_runs import make_small_config, read_folder_state, run_jobs_serially

from pellucid.config.settings import Config
from pellucid.data.examples import read_examples
from pellucid.errors import DataError, InputError
from pellucid.recipes import experiments, transduction_experiments
from pellucid.recipes.catalog import TRANSDUCTION_RECIPES, find_recipe
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.transduction_experiments import BEAM_SIZE, read_references, score_predictor
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.viewer.report_schema import ReportExamples, ReportTable

pytestmark = pytest.mark.slow


def quick_config(name: str, overrides: Mapping[str, Any], train: Path | None = None) -> Config:
    """Return a configuration with the smallest sizes and 20 epochs, with the tokenization of the recipe."""
    config = load_recipe_config(name, overrides)
    data = {"source_symbols": config.data.source_symbols, "target_symbols": config.data.target_symbols}
    small = make_small_config({"epochs": 20, "learning_rate": 0.02, "eval_interval": 10}, data=data)
    decoder = msgspec.structs.replace(small.decoder, pointer_generator=config.decoder.pointer_generator)
    return msgspec.structs.replace(small, seed=config.seed, search=config.search, decoder=decoder)


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "g2p-sigmorphon2020": write_g2p,
    "g2p-ablations": write_g2p,
    "histnorm": write_histnorm,
    "translit-wikidata": write_translit,
    "spelling-codespell": write_codespell,
    "scan": write_scan,
}
FOLDERS = {"g2p-ablations": "g2p-sigmorphon2020"}
"""Data folder of a recipe, where it differs from the name of the recipe."""
SELECTIONS = {
    "g2p-sigmorphon2020": (["arm", "ady"], 2),
    "g2p-ablations": (["default-arm", "default-bul", "no-dropout-arm", "no-dropout-bul", "lstm-arm"], 2),
    "histnorm": (["ridges-1k", "bohoric-all"], 1),
    "translit-wikidata": (["he", "ar"], 1),
    "spelling-codespell": ([], 2),
    "scan": ([], 1),
}
"""Selected experiments (empty selects all) and number of seeds."""
VARIANTS = ["codespell", "copying"]
"""Experiments on the same pairs; the report shows the attention of each."""
SETTINGS = {
    "spelling-codespell": {"codespell": VARIANTS[:1], "copying": VARIANTS[1:]},
    "g2p-ablations": {
        "default": ["default-arm", "default-bul"],
        "no-dropout": ["no-dropout-arm", "no-dropout-bul"],
        "lstm": ["lstm-arm"],
    },
}
"""Experiments of each setting, for the recipes that compare settings; the first setting is the baseline."""


@pytest.fixture(scope="module", autouse=True)
def use_small_networks() -> Iterator[None]:
    """Use small networks and no worker processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "load_recipe_config", quick_config)
        patch.setattr(transduction_experiments, "run_jobs", run_jobs_serially)
        yield


@pytest.fixture(scope="module", params=TRANSDUCTION_RECIPES)
def recipe_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RecipeRun:
    """Run a recipe and return its lines and its report."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    WRITERS[name](folder / "data" / FOLDERS.get(name, name))
    only, seeds = SELECTIONS[name]
    recipe_request = RecipeRequest(folder / "out", seeds, 16, folder / "data", only)
    lines = list(find_recipe(name)(recipe_request))
    return RecipeRun(name, recipe_request, lines, json.loads((folder / "out" / "report.json").read_text()))


def list_settings(recipe_run: RecipeRun) -> dict[str, list[str]]:
    """Return the experiments of each setting; for recipes without settings all of them under an empty name."""
    return SETTINGS.get(recipe_run.name) or {"": list_experiments(recipe_run)}


def list_experiments(recipe_run: RecipeRun) -> list[str]:
    """Return the names of the selected experiments."""
    return (
        list(recipe_run.request.only) or {"spelling-codespell": VARIANTS, "scan": ["simple", "length"]}[recipe_run.name]
    )


def test_report_has_a_line_for_each_run_and_ensemble(recipe_run: RecipeRun) -> None:
    labels = [line.split(":")[0] for line in recipe_run.lines]
    names, seeds = list_experiments(recipe_run), recipe_run.request.seeds
    expected = [f"{name}, seed {seed}" for seed in range(1, seeds + 1) for name in names]
    expected += [f"{name}, ensemble of {seeds}" for name in names if seeds > 1]
    run_labels = [f"seed {seed}" for seed in range(1, seeds + 1)]
    means = [f"{setting}, " for setting, of in list_settings(recipe_run).items() if len(of) > 1 or not setting]
    expected += [f"macro, {each}{run_label}".replace(", , ", ", ") for run_label in run_labels for each in means]
    if seeds > 1:
        expected += [f"macro, {each}ensemble of {seeds}".replace(", , ", ", ") for each in means]
        expected += [f"macro, {each}mean of {seeds} seeds".replace(", , ", ", ") for each in means]
    first, *others = list_settings(recipe_run)
    sets = {
        each: f"{len(list_settings(recipe_run)[each])} set{'s' * (len(list_settings(recipe_run)[each]) > 1)}"
        for each in others
    }
    expected += [f"{each} against {first}, {run_label}, {sets[each]}" for run_label in run_labels for each in others]
    assert labels == [*expected, "report"]


def test_report_json_has_all_numbers(recipe_run: RecipeRun) -> None:
    report = recipe_run.report
    assert report["name"] == recipe_run.name and report["beam"] == 5 and report["seeds"] == recipe_run.request.seeds
    assert [each["name"] for each in report["experiments"]] == list_experiments(recipe_run)
    for each in report["experiments"]:
        assert [run["seed"] for run in each["runs"]] == list(range(1, recipe_run.request.seeds + 1))
        assert (each["ensemble"] is not None) == (recipe_run.request.seeds > 1)
        for run in each["runs"]:
            assert run["parameters"] > 0 and run["epochs"] == 20 and run["samples"] > 0 and run["seconds"] >= 0
            assert run["config"]["seed"] == run["seed"] and run["config"]["search"]["beam_size"] == 5
            assert (run["test"] is None) == (each["name"] == "ady")
            for scores in filter(None, (run["dev"], run["test"])):
                assert scores["sequence_error_rate"] == pytest.approx(100 - scores["exact_match"])
                assert (
                    scores["sequence_error_rate_ci95"][0]
                    <= scores["sequence_error_rate"]
                    <= scores["sequence_error_rate_ci95"][1]
                )
                assert scores["k_best"][0]["accuracy"] == pytest.approx(scores["exact_match"])
    document = read_report(recipe_run.request.out / "report.html")
    assert select_parts(document, ReportExamples, "Attention") and "All runs" in section_titles(document)
    assert "Intervals of a set are Wilson's" in select_parts(document, ReportTable, "All runs")[0].caption


def test_scores_are_computed_with_beam_search_on_the_written_files(recipe_run: RecipeRun) -> None:
    each = recipe_run.report["experiments"][0]
    transducer = load(recipe_run.request.out / "runs" / f"{each['name']}-seed-1")
    examples = read_examples(
        recipe_run.request.out / "data" / each["name"] / "test.tsv", transducer.config.data
    ).examples
    traces = transducer.with_beam(BEAM_SIZE).predict_examples(examples)
    split = transducer.tokenizers.target.split
    num_correct = sum(split(trace.output) == split(one.target) for trace, one in zip(traces, examples, strict=True))
    assert each["runs"][0]["test"]["exact_match"] == pytest.approx(100 * num_correct / len(examples))
    assert each["runs"][0]["test"]["examples"] == len(examples) == SPLIT_SIZES["test"]


def test_samples_reduce_only_the_training_set(recipe_run: RecipeRun) -> None:
    folder = recipe_run.request.out / "data" / list_experiments(recipe_run)[0]
    counts = {part: len((folder / f"{part}.tsv").read_text("utf-8").splitlines()) for part in SPLIT_SIZES}
    assert counts == {
        "train": 16,
        "dev": 6 if recipe_run.name == "scan" else SPLIT_SIZES["dev"],
        "test": SPLIT_SIZES["test"],
    }


@pytest.mark.slow
def test_second_call_trains_nothing_and_repeats_the_report(recipe_run: RecipeRun) -> None:
    def unchanged_files() -> dict[str, tuple[bytes, int]]:
        """Return all files except the pages, which are written anew."""
        files = read_folder_state(recipe_run.request.out)
        return {name: file for name, file in files.items() if not Path(name).name.startswith("report.")}

    def without_seconds(lines: Iterable[str]) -> list[str]:
        """Return lines without the processor seconds of the pair n-gram model, which is fitted anew."""
        return [re.sub(r"in [\d.]+ CPU s", "", line) for line in lines]

    before = unchanged_files()
    assert without_seconds(find_recipe(recipe_run.name)(recipe_run.request)) == without_seconds(recipe_run.lines)
    assert unchanged_files() == before
    for run in (recipe_run.request.out / "runs").iterdir():
        assert [record["event"] for record in read_log(run)].count("stopped") == 1


def test_training_learns(recipe_run: RecipeRun) -> None:
    rates = [run["dev"]["symbol_error_rate"] for each in recipe_run.report["experiments"] for run in each["runs"]]
    assert min(rates) < 75


def test_macro_averages_cover_sets_with_a_published_number(recipe_run: RecipeRun) -> None:
    setting, names = next(iter(list_settings(recipe_run).items()))
    experiments_of_setting = [each for each in recipe_run.report["experiments"] if each["name"] in names]
    published_sets = [each for each in experiments_of_setting if each["published"] and each["runs"][0]["test"]]
    averaged = published_sets or experiments_of_setting
    macro = recipe_run.report["macro"][0]
    mean = sum(each["runs"][0]["test"]["exact_match"] for each in averaged) / len(averaged)
    assert macro["label"] == (f"{setting}, seed 1" if setting else "seed 1")
    assert macro["test_sets"] == len(averaged)
    assert macro["dev_sets"] == len(experiments_of_setting)
    assert macro["test"]["exact_match"] == pytest.approx(mean)
    published = [next(iter(each["published"].values())) for each in published_sets]
    assert macro["published"] == (pytest.approx(sum(published) / len(published)) if published else None)


def test_attention_is_shown_for_every_experiment_if_requested(recipe_run: RecipeRun) -> None:
    document = read_report(recipe_run.request.out / "report.html")
    assert ("Attention: copying, seed 1" in section_titles(document)) == (list_experiments(recipe_run) == VARIANTS)
    assert ("macro" in str(document.summary)) == (list_experiments(recipe_run) != VARIANTS)


def test_settings_are_compared_on_the_same_examples(recipe_run: RecipeRun) -> None:
    differences = recipe_run.report["differences"]
    if recipe_run.name not in SETTINGS:
        assert differences == []
        return
    first, *others = list_settings(recipe_run)
    assert {(each["setting"], each["baseline"]) for each in differences} == {(other, first) for other in others}
    rates = {
        (each["name"], run["seed"]): run["test"]["exact_match"]
        for each in recipe_run.report["experiments"]
        for run in each["runs"]
    }
    for each in differences:
        seed, other = int(each["label"].split()[1]), list_settings(recipe_run)[each["setting"]]
        assert each["sets"] == len(other)
        setting_rate = sum(rates[name, seed] for name in other) / len(other)
        baseline_rate = sum(rates[name, seed] for name in list_settings(recipe_run)[first][: len(other)]) / len(other)
        assert each["test"]["exact_match"]["difference"] == pytest.approx(setting_rate - baseline_rate)
    line = next(line for line in recipe_run.lines if line.startswith(f"{others[0]} against {first}, seed 1"))
    points = float(re.findall(r"test \w+ ([+-][0-9.]+) \(", line)[0])
    difference = differences[0]["test"]["exact_match"]["difference"]
    assert points == pytest.approx(-difference if recipe_run.name == "g2p-ablations" else difference, abs=0.006)


@pytest.mark.parametrize("name", TRANSDUCTION_RECIPES)
def test_missing_data_error_names_source(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist: the data is .*github\.com") as caught:
        list(find_recipe(name)(RecipeRequest(tmp_path / "out", data=tmp_path)))
    assert str(caught.value).startswith(str(tmp_path / FOLDERS.get(name, name)))
    assert not (tmp_path / "out").exists()


def test_error_for_unknown_experiment_lists_all(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"scan has no experiment 'lenght'; did you mean 'length'\? .*: simple, length"
    ):
        list(find_recipe("scan")(RecipeRequest(tmp_path / "out", only=["lenght"])))


def test_only_requires_a_recipe_with_experiments(tmp_path: Path) -> None:
    message = usage_error_message(run_pellucid("recipe", "digits-data", "--only", "arm", "--run", tmp_path / "out"))
    assert message.startswith("digits-data has only one experiment")
    message = usage_error_message(run_pellucid("recipe", "scan", "--only", "simple,x", "--run", tmp_path / "out"))
    assert message.startswith("scan has no experiment 'x' (there are: simple, length)")


def test_k_best_accuracy_is_reported(recipe_run: RecipeRun) -> None:
    each, count = (
        recipe_run.report["experiments"][0],
        3 if recipe_run.name in ("translit-wikidata", "spelling-codespell") else 1,
    )
    transducer = load(recipe_run.request.out / "runs" / f"{each['name']}-seed-1")
    path = recipe_run.request.out / "data" / each["name"] / "test.tsv"
    references = read_references(path, transducer.config, groups_references=False)
    accuracies = [one.accuracy for one in score_predictor(transducer, references, count)[1].k_best]
    k_best = each["runs"][0]["test"]["k_best"]
    assert [one["k"] for one in k_best] == list(range(1, count + 1))
    assert [one["accuracy"] for one in k_best] == accuracies == sorted(accuracies)
    assert ("3-best" in recipe_run.lines[0]) == (count == 3)
