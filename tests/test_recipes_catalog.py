"""The catalog lists and finds every recipe."""

from pathlib import Path

import pytest
from command_line import run_pellucid, usage_error_message

from pellucid.errors import InputError
from pellucid.recipes.catalog import RECIPES, find_recipe


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


def test_an_unknown_recipe_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"there is no recipe 'x' \(pellucid recipe list\)"):
        find_recipe("x")
