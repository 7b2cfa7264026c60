"""The catalog lists and finds every recipe."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message

from pellucid.cli import recipe
from pellucid.cli.messages import TerminationInterrupt
from pellucid.errors import InputError
from pellucid.recipes.catalog import RECIPES, RECIPES_WITH_EXPERIMENTS, find_recipe
from pellucid.recipes.recipe import RecipeRequest


def test_recipe_list_has_every_recipe() -> None:
    result = run_pellucid("recipe", "list")
    assert result.code == 0 and result.err == ""
    assert [line.split()[0] for line in result.out.splitlines()] == list(RECIPES)


def test_error_for_misspelled_recipe_suggests_nearest(tmp_path: Path) -> None:
    message = usage_error_message(run_pellucid("recipe", "digits-atention", "--run", tmp_path / "out"))
    assert message.startswith("there is no recipe 'digits-atention'; did you mean 'digits-attention'?")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_function(name: str) -> None:
    assert callable(find_recipe(name))


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_list_has_the_experiments_of_a_recipe(name: str) -> None:
    """Regression test: their names, which --only needs, were only in the message for a wrong one."""
    result = run_pellucid("recipe", "list", name)
    if name not in RECIPES_WITH_EXPERIMENTS:
        assert "has only one experiment; g2p-sigmorphon2020, " in usage_error_message(result)
        return
    names = result.out.splitlines()
    assert result.code == 0 and len(names) == len(set(names)) >= 2
    message = usage_error_message(run_pellucid("recipe", name, "--run", "unused", "--only", "no-such-name"))
    assert message.endswith(f"(there are: {', '.join(names)})")


def test_recipe_list_takes_one_name() -> None:
    assert "there is no recipe 'scam'; did you mean 'scan'?" in run_pellucid("recipe", "list", "scam").err
    for arguments in (("scan", "snips"), ("--run", "out"), ("scan", "--run", "out")):
        assert run_pellucid("recipe", "list", *arguments).code == 2


@pytest.mark.parametrize("keeps_runs", [False, True])
@pytest.mark.parametrize(
    ("error", "stop", "code"),
    [(KeyboardInterrupt(), "interrupted", 130), (TerminationInterrupt(), "stopped by SIGTERM", 143)],
)
def test_an_interrupted_recipe_says_that_the_same_command_continues(
    error: KeyboardInterrupt,
    stop: str,
    code: int,
    keeps_runs: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Regression test: it was interrupted without a word on how to go on, unlike a training."""

    def _interrupt(request: RecipeRequest) -> Iterator[str]:
        """Write a run, and raise the error of a signal."""
        (request.out / ("runs" if keeps_runs else "data")).mkdir(parents=True)
        yield "a line"
        raise error

    monkeypatch.setattr(recipe, "find_recipe", lambda name: _interrupt)
    out = tmp_path / "out"
    assert recipe.main(["scan", "--run", str(out), "--data", str(tmp_path)]) == code
    continues = f"; the same command continues in {out}" if keeps_runs else ""
    assert capsys.readouterr() == ("a line\n", f"pellucid: {stop}{continues}\n")


def test_an_unknown_recipe_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"there is no recipe 'x' \(pellucid recipe list\)"):
        find_recipe("x")
