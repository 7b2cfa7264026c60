import pytest

from pellucid.errors import ConfigError, DataError, InputError, RunError, nearest


@pytest.mark.parametrize("kind", [ConfigError, DataError, RunError])
def test_every_mistake_of_a_user_is_an_input_error(kind: type[InputError]) -> None:
    assert issubclass(kind, InputError) and issubclass(kind, ValueError)
    assert str(kind("pairs.tsv, line 3: no tab")) == "pairs.tsv, line 3: no tab"


def test_nearest_names_the_likeliest_meaning() -> None:
    assert nearest("hiden_size", ["layers", "hidden_size"]) == "; did you mean 'hidden_size'?"
    assert nearest("gur", iter(["lstm", "gru"])) == "; did you mean 'gru'?"


def test_nearest_is_silent_where_nothing_is_near() -> None:
    assert nearest("zzzz", ["layers", "hidden_size"]) == nearest("layers", []) == nearest("", ["layers"]) == ""
