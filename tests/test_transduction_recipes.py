"""Recipes for published transduction sets on generated data of the same format: training, scores and reports."""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from command_line import complaint, pellucid
from report_documents import parts_of, titles_of, written_document
from trained_runs import contents, copies, right_here, small_config

from pellucid.config.settings import Config
from pellucid.data.examples import Example, read_examples
from pellucid.errors import DataError, InputError
from pellucid.recipes import experiment_report as conducting
from pellucid.recipes import experiments as experiment
from pellucid.recipes import transduction
from pellucid.recipes.catalog import TRANSDUCTION_RECIPES, find_recipe
from pellucid.recipes.experiments import BEAM_SIZE, score_predictor
from pellucid.recipes.recipe import RecipeRequest
from pellucid.recipes.recipe import load_recipe_config as real_config
from pellucid.training.run_folder import load, read_log
from pellucid.viewer.report_schema import ReportExamples

SIZES = {"train": 24, "dev": 8, "test": 12}


class Made(NamedTuple):
    """A recipe that has run on generated data."""

    name: str
    request: RecipeRequest
    lines: list[str]
    report: dict[str, Any]


def quick_config(name: str, overrides: Mapping[str, Any]) -> Config:
    """The smallest sizes and some passes, with the recipe's own cut of texts."""
    real = real_config(name, overrides)
    data = {"source_symbols": real.data.source_symbols, "target_symbols": real.data.target_symbols}
    made = small_config({"epochs": 20, "learning_rate": 0.02, "eval_interval": 10}, data=data)
    decoder = msgspec.structs.replace(made.decoder, pointer_generator=real.decoder.pointer_generator)
    return msgspec.structs.replace(made, seed=real.seed, search=real.search, decoder=decoder)


def write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def pairs(part: str) -> list[Example]:
    return copies(SIZES[part], seed=list(SIZES).index(part) + 1)


def write_g2p(folder: Path) -> None:
    for part in SIZES:
        for language in ("arm", "ady", "bul"):
            if part != "test" or language != "ady":
                lines = [f"{each.source}\t{' '.join(each.target)}" for each in pairs(part)]
                write(folder / part / f"{language}_{part}.tsv", lines)


def write_histnorm(folder: Path) -> None:
    for name in transduction.HISTNORM_FILES.values():
        for part in SIZES:
            lines = [f"{each.source.upper()}\t{each.target}" for each in pairs(part)]
            write(folder / f"{name}.{part}.txt", [*lines[:5], "", ".\t.", "\t", *lines[5:], "alone"])


def write_translit(folder: Path) -> None:
    for name in ("hebrew", "arabic"):
        for part, ending in zip(SIZES, ("64", "16", "20"), strict=True):
            lines = [f"{each.source}\t{' '.join(each.target)}\t3" for each in pairs(part)]
            write(folder / f"wd_{name}_{ending}", lines)


def write_codespell(folder: Path) -> None:
    for part in SIZES:
        write(folder / f"{part}.tsv", [f"{each.source}\t{each.target}" for each in pairs(part)])


def write_scan(folder: Path) -> None:
    for part in ("train", "test"):
        for split in ("simple", "length"):
            lines = [f"IN: {' '.join(each.source)} OUT: {' '.join(each.target)}" for each in pairs(part)]
            write(folder / f"tasks_{part}_{split}.txt{'.gz' if split == 'simple' else ''}", lines)


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "g2p-sigmorphon2020": write_g2p,
    "g2p-ablations": write_g2p,
    "histnorm": write_histnorm,
    "translit-wikidata": write_translit,
    "spelling-codespell": write_codespell,
    "scan": write_scan,
}
FOLDERS = {"g2p-ablations": "g2p-sigmorphon2020"}
"""Where the data of a recipe is that has none of its own."""
ASKED = {
    "g2p-sigmorphon2020": (["arm", "ady"], 2),
    "g2p-ablations": (["default-arm", "default-bul", "no-dropout-arm", "no-dropout-bul", "lstm-arm"], 2),
    "histnorm": (["ridges-1k", "bohoric-all"], 1),
    "translit-wikidata": (["he", "ar"], 1),
    "spelling-codespell": ([], 2),
    "scan": ([], 1),
}
"""Experiments, and seeds."""
VARIANTS = ["codespell", "copying"]
"""Of one set of pairs, each drawn."""
SETTINGS = {
    "spelling-codespell": {"codespell": VARIANTS[:1], "copying": VARIANTS[1:]},
    "g2p-ablations": {
        "default": ["default-arm", "default-bul"],
        "no-dropout": ["no-dropout-arm", "no-dropout-bul"],
        "lstm": ["lstm-arm"],
    },
}
"""Of the recipes that compare settings, the experiments of each; the first setting is what others are held against."""


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Small networks, and no further processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "load_recipe_config", quick_config)
        patch.setattr(conducting, "run_jobs", right_here)
        yield


@pytest.fixture(scope="module", params=TRANSDUCTION_RECIPES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Each recipe, run once."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    WRITERS[name](folder / "data" / FOLDERS.get(name, name))
    only, seeds = ASKED[name]
    asked = RecipeRequest(folder / "out", seeds, 16, folder / "data", only)
    lines = list(find_recipe(name)(asked))
    return Made(name, asked, lines, json.loads((folder / "out" / "report.json").read_text()))


def settings_of(made: Made) -> dict[str, list[str]]:
    """The experiments of each setting; of recipes without settings all, under an empty name."""
    return SETTINGS.get(made.name) or {"": names_of(made)}


def names_of(made: Made) -> list[str]:
    """The experiments that were asked for."""
    return list(made.request.only) or {"spelling-codespell": VARIANTS, "scan": ["simple", "length"]}[made.name]


def test_every_run_has_its_line_and_the_ensemble_has_one(made: Made) -> None:
    heads = [line.split(":")[0] for line in made.lines]
    names, seeds = names_of(made), made.request.seeds
    wanted = [f"{name}, seed {seed}" for seed in range(1, seeds + 1) for name in names]
    wanted += [f"{name}, ensemble of {seeds}" for name in names if seeds > 1]
    whos = [f"seed {seed}" for seed in range(1, seeds + 1)]
    means = [f"{setting}, " for setting, of in settings_of(made).items() if len(of) > 1 or not setting]
    wanted += [f"macro, {each}{who}".replace(", , ", ", ") for who in whos for each in means]
    if seeds > 1:
        wanted += [f"macro, {each}ensemble of {seeds}".replace(", , ", ", ") for each in means]
        wanted += [f"macro, {each}mean of {seeds} seeds".replace(", , ", ", ") for each in means]
    first, *others = settings_of(made)
    sets = {each: f"{len(settings_of(made)[each])} set{'s' * (len(settings_of(made)[each]) > 1)}" for each in others}
    wanted += [f"{each} against {first}, {who}, {sets[each]}" for who in whos for each in others]
    assert heads == [*wanted, "report"]


def test_the_report_has_all_numbers(made: Made) -> None:
    report = made.report
    assert report["name"] == made.name and report["beam"] == 5 and report["seeds"] == made.request.seeds
    assert [each["name"] for each in report["experiments"]] == names_of(made)
    for each in report["experiments"]:
        assert [run["seed"] for run in each["runs"]] == list(range(1, made.request.seeds + 1))
        assert (each["ensemble"] is not None) == (made.request.seeds > 1)
        for run in each["runs"]:
            assert run["parameters"] > 0 and run["epochs"] == 20 and run["samples"] > 0 and run["seconds"] >= 0
            assert run["config"]["seed"] == run["seed"] and run["config"]["search"]["beam_size"] == 1
            assert (run["test"] is None) == (each["name"] == "ady")
            for worth in filter(None, (run["dev"], run["test"])):
                assert worth["wer"] == pytest.approx(100 - worth["exact_match"])
                assert worth["wer_ci95"][0] <= worth["wer"] <= worth["wer_ci95"][1]
                assert worth["among_first"][0]["accuracy"] == pytest.approx(worth["exact_match"])
    document = written_document(made.request.out / "report.html")
    assert parts_of(document, ReportExamples, "Attention") and "All runs" in titles_of(document)


def test_the_numbers_are_those_of_a_beam_of_five_over_the_files(made: Made) -> None:
    each = made.report["experiments"][0]
    transducer = load(made.request.out / "runs" / f"{each['name']}-seed-1")
    examples = read_examples(made.request.out / "data" / each["name"] / "test.tsv", transducer.config.data).examples
    traces = transducer.with_beam(BEAM_SIZE).trace(examples)
    cut = transducer.tokenizers.target.split
    right = sum(cut(trace.output) == cut(one.target) for trace, one in zip(traces, examples, strict=True))
    assert each["runs"][0]["test"]["exact_match"] == pytest.approx(100 * right / len(examples))
    assert each["runs"][0]["test"]["examples"] == len(examples) == SIZES["test"]


def test_samples_cut_the_training_set_alone(made: Made) -> None:
    folder = made.request.out / "data" / names_of(made)[0]
    counts = {part: len((folder / f"{part}.tsv").read_text("utf-8").splitlines()) for part in SIZES}
    assert counts == {"train": 16, "dev": 6 if made.name == "scan" else SIZES["dev"], "test": SIZES["test"]}


def test_second_call_trains_nothing_and_repeats_the_report(made: Made) -> None:
    def kept() -> dict[str, tuple[bytes, int]]:
        """All files but the pages, which are written anew."""
        found = contents(made.request.out)
        return {name: told for name, told in found.items() if not Path(name).name.startswith("report.")}

    before = kept()
    assert list(find_recipe(made.name)(made.request)) == made.lines
    assert kept() == before
    for run in (made.request.out / "runs").iterdir():
        assert [record["event"] for record in read_log(run)].count("stopped") == 1


def test_training_learns(made: Made) -> None:
    rates = [run["dev"]["symbol_error_rate"] for each in made.report["experiments"] for run in each["runs"]]
    assert min(rates) < 75


def test_macro_averages_cover_sets_with_a_published_number(made: Made) -> None:
    setting, names = next(iter(settings_of(made).items()))
    own = [each for each in made.report["experiments"] if each["name"] in names]
    compared = [each for each in own if each["published"] and each["runs"][0]["test"]]
    used = compared or own
    macro = made.report["macro"][0]
    mean = sum(each["runs"][0]["test"]["exact_match"] for each in used) / len(used)
    assert macro["who"] == (f"{setting}, seed 1" if setting else "seed 1")
    assert macro["test_sets"] == len(used)
    assert macro["dev_sets"] == len(own)
    assert macro["test"]["exact_match"] == pytest.approx(mean)
    published = [next(iter(each["published"].values())) for each in compared]
    assert macro["published"] == (pytest.approx(sum(published) / len(published)) if published else None)


def test_attention_is_shown_for_every_experiment_if_requested(made: Made) -> None:
    document = written_document(made.request.out / "report.html")
    assert ("Attention: copying, seed 1" in titles_of(document)) == (names_of(made) == VARIANTS)
    assert ("macro" in str(document.summary)) == (names_of(made) != VARIANTS)


def test_settings_are_compared_output_by_output(made: Made) -> None:
    found = made.report["differences"]
    if made.name not in SETTINGS:
        assert found == []
        return
    first, *others = settings_of(made)
    assert {(each["setting"], each["beside"]) for each in found} == {(other, first) for other in others}
    rates = {
        (each["name"], run["seed"]): run["test"]["exact_match"]
        for each in made.report["experiments"]
        for run in each["runs"]
    }
    for each in found:
        seed, other = int(each["who"].split()[1]), settings_of(made)[each["setting"]]
        assert each["sets"] == len(other)
        own = sum(rates[name, seed] for name in other) / len(other)
        beside = sum(rates[name, seed] for name in settings_of(made)[first][: len(other)]) / len(other)
        assert each["test"]["exact_match"]["difference"] == pytest.approx(own - beside)
    line = next(line for line in made.lines if line.startswith(f"{others[0]} against {first}, seed 1"))
    points = float(re.findall(r"test \w+ ([+-][0-9.]+) \(", line)[0])
    wanted = found[0]["test"]["exact_match"]["difference"]
    assert points == pytest.approx(-wanted if made.name == "g2p-ablations" else wanted, abs=0.006)


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


def test_only_is_for_recipes_of_experiments(tmp_path: Path) -> None:
    message = complaint(pellucid("recipe", "digits-data", "--only", "arm", "--out", tmp_path / "out"))
    assert message.startswith("digits-data has only one experiment")
    message = complaint(pellucid("recipe", "scan", "--only", "simple,x", "--out", tmp_path / "out"))
    assert message.startswith("scan has no experiment 'x' (there are: simple, length)")


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [
        ("Auff", "auf", Example("auff", "auf")),
        ("Kra\u0308uter", "Kräuter", Example("kräuter", "kräuter")),
        (".", ".", None),
        ("vnd", ",", None),
        ("", "", None),
        ("Nr.", "Nr.", Example("nr.", "nr.")),
        ("1482.", "1482.", Example("0000.", "0000.")),
        ("12", "zwölf", Example("12", "zwölf")),
        ("zu gleich", "zugleich", Example("zu gleich", "zugleich")),
    ],
)
def test_tokens_are_preprocessed_as_for_the_published_numbers(source: str, target: str, wanted: Example | None) -> None:
    assert transduction.normalize_pair(source, target) == wanted


def test_sizes_are_the_first_tokens_of_the_training_file(tmp_path: Path) -> None:
    write_histnorm(tmp_path)
    (experiment,) = (each for each in transduction.histnorm_suite().experiments if each.name == "ridges-1k")
    found = experiment.pairs(tmp_path)
    assert [pair.target for pair in found.train] == [pair.target for pair in pairs("train")]
    for part, code in (("train", "train"), ("dev", "dev"), ("test", "test")):
        assert len(getattr(found, part)) == SIZES[code]
    write(tmp_path / "german-ridges.train.txt", ["a\tb"] * 1500)
    assert len(experiment.pairs(tmp_path).train) == 1000


def test_scan_validation_pairs_are_not_trained_on(tmp_path: Path) -> None:
    lines = [f"IN: run{number} OUT: I_RUN" for number in range(40)]
    for part in ("train", "test"):
        write(tmp_path / f"tasks_{part}_simple.txt", lines)
    found = transduction.scan_suite().experiments[0].pairs(tmp_path)
    assert len(found.dev) == 10 and not set(found.dev) & set(found.train)
    assert len(found.train) == 30 and len(found.test) == 40
    write(tmp_path / "tasks_test_simple.txt", ["IN: run"])
    with pytest.raises(DataError, match="line 1: expected 'IN: command OUT: actions'"):
        transduction.scan_suite().experiments[0].pairs(tmp_path)


def test_published_macro_average_of_g2p() -> None:
    published = [next(iter(each.published.values())) for each in transduction.g2p_suite().experiments if each.published]
    assert len(published) == 8 and sum(published) / 8 == pytest.approx(14.92, abs=0.005)
    assert len(transduction.g2p_suite().experiments) == 15


def test_further_candidates_are_scored_if_requested(made: Made) -> None:
    each, count = made.report["experiments"][0], 3 if made.name in ("translit-wikidata", "spelling-codespell") else 1
    transducer = load(made.request.out / "runs" / f"{each['name']}-seed-1")
    examples = read_examples(made.request.out / "data" / each["name"] / "test.tsv", transducer.config.data).examples
    accuracies = [one.accuracy for one in score_predictor(transducer, examples, count)[1].k_best]
    told = each["runs"][0]["test"]["among_first"]
    assert [one["k"] for one in told] == list(range(1, count + 1))
    assert [one["accuracy"] for one in told] == accuracies == sorted(accuracies)
    assert ("3-best" in made.lines[0]) == (count == 3)
