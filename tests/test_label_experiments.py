"""Recipes with tags and classes on generated data of the same format: training, scores and reports."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recipe_data import RecipeRun, write_locations, write_snips, write_structure
from report_documents import read_report, section_titles, select_parts
from trained_runs import make_small_config, read_folder_state, run_jobs_serially

from pellucid.config.settings import Config
from pellucid.data.examples import read_examples
from pellucid.errors import DataError
from pellucid.evaluation.metrics import ConfidenceInterval
from pellucid.recipes import experiments, label_experiments
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.label_experiments import LabelScore
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.reporting.progress import multi_progress
from pellucid.run_folder.predictor_loader import load
from pellucid.viewer.report_schema import ReportCharts, ReportExamples, ReportSettings, ReportTable

FOLDERS = {
    "snips": "slu-snips",
    "protein-structure": "protein-ss3-flip",
    "protein-localization": "protein-localisation-ucl",
}
SEEDS = {"snips": 2, "protein-structure": 1, "protein-localization": 1}


def quick_config(name: str, overrides: Mapping[str, Any], train: Path | None = None) -> Config:
    """Return a configuration with the smallest sizes and 12 epochs, with the recipe's task, data and attention."""
    config = load_recipe_config(name, overrides)
    training = {"epochs": 12, "learning_rate": 0.02, "eval_interval": 6, "metric": config.training.metric}
    small = make_small_config(training)
    attention = msgspec.structs.replace(
        small.attention, type=config.attention.type, num_heads=config.attention.num_heads
    )
    decoder = msgspec.structs.replace(small.decoder, output_layer_inputs=config.decoder.output_layer_inputs)
    return msgspec.structs.replace(
        small, task=config.task, seed=config.seed, data=config.data, attention=attention, decoder=decoder
    )


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "snips": write_snips,
    "protein-structure": write_structure,
    "protein-localization": write_locations,
}


@pytest.fixture(scope="module", autouse=True)
def use_quick_settings() -> Iterator[None]:
    """Use small networks and no worker processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "load_recipe_config", quick_config)
        patch.setattr(label_experiments, "run_jobs", run_jobs_serially)
        yield


@pytest.fixture(scope="module", params=FOLDERS)
def recipe_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RecipeRun:
    """Run each recipe once."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    WRITERS[name](folder / "data" / FOLDERS[name])
    recipe_request = RecipeRequest(folder / "out", SEEDS[name], 0, folder / "data")
    lines = list(find_recipe(name)(recipe_request))
    return RecipeRun(name, recipe_request, lines, json.loads((folder / "out" / "report.json").read_text()))


def test_report_has_a_line_for_each_run_and_ensemble(recipe_run: RecipeRun) -> None:
    names = [each["name"] for each in recipe_run.report["experiments"]]
    heads = [line.split(":")[0] for line in recipe_run.lines]
    expected = [f"{name}, seed {seed}" for seed in range(1, SEEDS[recipe_run.name] + 1) for name in names]
    if SEEDS[recipe_run.name] > 1:
        expected += [f"{name}, ensemble of 2" for name in names] + [f"{name}, mean of 2 seeds" for name in names]
    assert heads == [*expected, "report"]
    assert len(names) == (4 if recipe_run.name == "protein-localization" else 1)


def test_scores_are_computed_on_the_written_files(recipe_run: RecipeRun) -> None:
    for each in recipe_run.report["experiments"]:
        run = each["runs"][0]
        transducer = load(recipe_run.request.out / "runs" / f"{each['name']}-seed-1")
        path = recipe_run.request.out / "data" / each["name"] / "test.tsv"
        examples = read_examples(path, transducer.config.data).examples
        traces = transducer.predict_examples(examples)
        if recipe_run.name == "protein-structure":
            pairs = [
                (a, b) for t, e in zip(traces, examples, strict=True) for a, b in zip(t.target, e.target, strict=True)
            ]
            matches = [a == b for a, b in pairs if b != "-"]
            assert run["test"]["Q3"] == pytest.approx(100 * sum(matches) / len(matches))
            assert run["test"]["Q3"] == run["test"]["labels"]["q3"]
        else:
            name = "sentence accuracy" if recipe_run.name == "snips" else "accuracy"
            num_correct = sum(trace.output == example.target for trace, example in zip(traces, examples, strict=True))
            assert run["test"][name] == pytest.approx(100 * num_correct / len(examples))
        for split in ("test", "dev"):
            for name, (low, high) in run[split]["ci95"].items():
                assert low <= run[split][name] <= high
        assert run["seed"] == 1 and run["updates"] > 0 and run["config"]["task"] == transducer.config.task


def test_page_has_the_table_of_all_runs(recipe_run: RecipeRun) -> None:
    document = read_report(recipe_run.request.out / "report.html")
    titles = section_titles(document)
    assert "All runs" in titles and "seed 1" in str(select_parts(document, ReportTable, "All runs"))
    assert len(select_parts(document, ReportSettings)) == 1
    assert ("Published" in titles) == (recipe_run.name == "snips")
    chart_titles = {"snips": ("Slot F1", "Sentence accuracy"), "protein-structure": ("Q3",)}.get(
        recipe_run.name, ("Accuracy",)
    )
    (curves,) = select_parts(document, ReportCharts)
    assert [chart.title for chart in curves.charts] == ["Loss", *chart_titles]
    examples = [example for part in select_parts(document, ReportExamples) for example in part.examples]
    assert (bool(examples) and examples[0].outputs[0].traces[0].task == "tag-and-classify") == (
        recipe_run.name == "snips"
    )
    assert "Confusion matrix" in titles


def test_attention_is_reported_if_present(recipe_run: RecipeRun) -> None:
    for each in recipe_run.report["experiments"]:
        profiles = each["runs"][0]["test"].get("attention")
        assert (profiles is not None) == each["name"].endswith("-attention")
        figures = list(recipe_run.request.out.glob(f"*{each['name']}-seed-1.svg"))
        assert len(figures) == (profiles is not None)
        if profiles:
            assert all(
                0 <= share["attention"] <= 100.001 for profile in profiles.values() for share in profile["shares"]
            )


@pytest.mark.slow
def test_second_call_trains_nothing_and_repeats_the_report(recipe_run: RecipeRun) -> None:
    def unchanged_files() -> dict[str, tuple[bytes, int]]:
        """Return all files except the report and its figures, which are written anew."""
        return {name: file for name, file in read_folder_state(recipe_run.request.out).items() if "/" in name}

    before = unchanged_files()
    assert list(find_recipe(recipe_run.name)(recipe_run.request)) == recipe_run.lines
    assert unchanged_files() == before


@pytest.mark.slow
def test_reduction_and_progress_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_snips(tmp_path / "data" / FOLDERS["snips"])
    with multi_progress() as progress:
        request = RecipeRequest(tmp_path / "out", seeds=2, samples=12, data=tmp_path / "data", progress=progress)
        list(find_recipe("snips")(request))
    messages = capsys.readouterr().err
    assert messages.startswith("snips: 12 of 24 training pairs, 8 of 8 validation pairs, at most 12 epochs\n")
    assert messages.count(" training pairs") == 1
    for seed in (1, 2):
        for message in ("new run, ", "epoch ", "stopped: ", "predicting for evaluation\n"):
            assert f"snips, seed {seed}: {message}" in messages
    assert "snips, ensemble of 2: predicting for evaluation\n" in messages


@pytest.mark.parametrize("name", FOLDERS)
def test_missing_data_error_names_source(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{FOLDERS[name]} does not exist: the data is .*github\.com"):
        list(find_recipe(name)(RecipeRequest(tmp_path / "out", data=tmp_path)))
    assert not (tmp_path / "out").exists()


def test_scores_are_formatted_by_kind() -> None:
    assert LabelScore(71.234, ConfidenceInterval(70.0, 72.5)).text == "71.23 (70.00 to 72.50)"
    assert LabelScore(0.81234).text == "0.812" and LabelScore(81.234).text == "81.23"
