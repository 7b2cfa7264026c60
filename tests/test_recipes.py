"""Reference experiments, made small: data, training, report, and the numbers in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import complaint, pellucid
from trained_runs import contents

from pellucid.config import Config
from pellucid.data.examples import read_examples
from pellucid.errors import InputError
from pellucid.recipes import digits_attention
from pellucid.recipes.recipe import ABOUT, REFERENCES, Request, data_folder, find, recipe_config
from pellucid.training.run import load, read_log


@pytest.fixture(scope="module")
def patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory, patched: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """The digits recipe on three digits and few samples, with two seeds: its folder and what it said."""
    for name, value in {"DIGITS": 3, "DEVELOPMENT": 20, "TEST": 30, "NUMBERS": ("314",)}.items():
        patched.setattr(digits_attention, name, value)
    out = tmp_path_factory.mktemp("digits") / "out"
    return out, list(find("digits-attention")(Request(out, seeds=2, samples=120)))


def test_the_list_names_every_recipe() -> None:
    done = pellucid("recipe", "list")
    assert done.code == 0 and done.err == ""
    assert [line.split()[0] for line in done.out.splitlines()] == list(ABOUT)


def test_a_misspelt_recipe_is_told_the_nearest(tmp_path: Path) -> None:
    message = complaint(pellucid("recipe", "digits-atention", "--out", tmp_path / "out"))
    assert message.startswith("there is no recipe 'digits-atention'; did you mean 'digits-attention'?")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ABOUT)
def test_every_recipe_has_a_function(name: str) -> None:
    assert callable(find(name))


@pytest.mark.parametrize(
    "name", ["digits-attention", "digits-fewest", *REFERENCES, "snips", "protein-structure", "protein-place"]
)
def test_settings_of_a_recipe_can_be_overlaid(name: str) -> None:
    assert isinstance(recipe_config(name, {}), Config)
    assert recipe_config(name, {"seed": 9, "training": {"patience": 3}}).training.patience == 3


def test_an_unknown_recipe_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"there is no recipe 'x' \(pellucid recipe list\)"):
        find("x")


def test_the_digits_are_told_apart_by_seed_and_purpose(digits: tuple[Path, list[str]]) -> None:
    out, _ = digits
    texts = [(out / "data" / f"seed-{seed}" / name).read_text() for seed in (1, 2) for name in SIZES]
    assert len(set(texts)) == 6
    assert [text.count("\n") for text in texts] == 2 * list(SIZES.values())


SIZES = {"train.tsv": 120, "dev.tsv": 20, "test.tsv": 30}


def test_the_report_of_the_digits_tells_what_the_runs_say(digits: tuple[Path, list[str]]) -> None:
    out, _ = digits
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert report["name"] == "digits-attention" and [run["seed"] for run in report["runs"]] == [1, 2]
    for run in report["runs"]:
        log = read_log(out / "runs" / f"seed-{run['seed']}")
        curve = [record for record in log if record["event"] == "validated"]
        assert run["samples"] == 120 and run["validation_samples"] == [record["samples"] for record in curve]
        assert run["exact_match"] == [record["exact_match"] / 100 for record in curve]
        transducer = load(out / "runs" / f"seed-{run['seed']}")
        test = read_examples(out / "data" / f"seed-{run['seed']}" / "test.tsv", transducer.config.data).examples
        right = sum(t.output == e.target for t, e in zip(transducer.trace(test), test, strict=True))
        assert run["final"]["exact_match"] == pytest.approx(right / 30)
        assert len(run["per_position"]) == 4 and len(run["attention_mean"]) == 4
        assert 0 <= run["final"]["alignment_error"] <= 1 and 0 < run["final"]["alignment_mass"] < 1
    assert (out / "report.html").read_text("utf-8").count("<svg") >= 3


def test_what_the_digits_recipe_says(digits: tuple[Path, list[str]]) -> None:
    lines = digits[1]
    assert "three one four →" in lines[0]
    assert [line.split(":")[0] for line in lines[-3:]] == ["attention, seed 1", "attention, seed 2", "report"]
    assert "120 samples in" in lines[-2]


def test_a_finished_recipe_is_not_trained_again(digits: tuple[Path, list[str]]) -> None:
    out, lines = digits
    before = contents(out / "runs")
    assert list(find("digits-attention")(Request(out, seeds=2, samples=120))) == lines
    assert contents(out / "runs") == before


def test_the_data_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PELLUCID_DATA", "/somewhere/else")
    assert data_folder() == Path("/somewhere/else")
