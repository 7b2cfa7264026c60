import ast
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid.errors import (
    ConfigError,
    DataError,
    InputError,
    RunError,
    abbreviate_reason,
    count_noun,
    list_lines,
    parse_whole_number,
    quote,
    suggest,
)


def test_a_number_has_its_noun_in_singular_or_plural() -> None:
    assert [count_noun(number, "bad line") for number in (0, 1, 1200)] == [
        "0 bad lines",
        "1 bad line",
        "1,200 bad lines",
    ]
    assert [count_noun(number, "one is", "ones are") for number in (1, 2)] == ["1 one is", "2 ones are"]


def test_only_the_first_lines_are_listed() -> None:
    assert list_lines([1017]) == "line 1,017" and list_lines([1, 2, 3], unit="row") == "rows 1, 2 and 3"
    assert list_lines(range(1, 8)) == "lines 1, 2, 3, 4, 5 and 2 more"
    assert list_lines([3, 9], 4) == "lines 3, 9 and 2 more"


@pytest.mark.parametrize("kind", [ConfigError, DataError, RunError])
def test_every_user_error_is_an_input_error(kind: type[InputError]) -> None:
    assert issubclass(kind, InputError) and issubclass(kind, ValueError)
    assert str(kind("pairs.tsv, line 3: no tab")) == "pairs.tsv, line 3: no tab"


def test_suggestion_is_the_most_similar_word() -> None:
    assert suggest("hiden_size", ["layers", "hidden_size"]) == "; did you mean 'hidden_size'?"
    assert suggest("gur", iter(["lstm", "gru"])) == "; did you mean 'gru'?"


def test_dissimilar_words_have_no_suggestion() -> None:
    assert suggest("zzzz", ["layers", "hidden_size"]) == suggest("layers", []) == suggest("", ["layers"]) == ""


class MultilineRepr:
    """Value whose `repr` has several lines."""

    def __repr__(self) -> str:
        return "one\n    two"


class FailingRepr:
    """Value whose `repr` raises an error."""

    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("it's\tone", '"it\'s\\tone"'),
        ("a" * 80, repr("a" * 80)),
        ("a" * 81, repr("a" * 79 + "…")),
        (10**4000, "1" + "0" * 78 + "…"),
        pytest.param(10**5000, "a number with thousands of digits", id="huge"),
        pytest.param([10**5000], "a number with thousands of digits", id="list"),
        (["a"] * 100, ("['a', " + "'a', " * 20)[:79] + "…"),
        (Path("b" * 100), repr("b" * 100)),
        (None, "None"),
        (np.zeros((2, 2)), "array([[0., 0.], [0., 0.]])"),
        (MultilineRepr(), "one two"),
        (FailingRepr(), "a value of type FailingRepr"),
        pytest.param({"a": (10**5000,)}, "a number with thousands of digits", id="nested"),
    ],
)
def test_quoted_values_are_abbreviated_except_paths(value: object, shown: str) -> None:
    assert quote(value) == shown


@pytest.mark.slow
def test_all_messages_quote_by_one_function() -> None:
    """`!r` and `repr` do not abbreviate: they would copy values of a user's file into a message at any length."""
    package = Path(pellucid.__file__).parent
    uses = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (isinstance(node, ast.FormattedValue) and node.conversion == ord("r")) or (
                isinstance(node, ast.Name) and node.id == "repr"
            ):
                uses.append(f"{path.relative_to(package)}:{node.lineno}")
    unexpected = [position for position in uses if not position.startswith(("errors.py", "kernels/compilation.py"))]
    assert unexpected == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("017", 17),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("1" * 5000, None),
        ("", None),
        ("-1", None),
        ("１２", None),
        ("1_0", None),
    ],
)
def test_whole_numbers_have_at_most_eighteen_digits(text: str, number: int | None) -> None:
    assert parse_whole_number(text) == number


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("bad", "bad"),
        ("", "ValueError"),
        ("\n the first line\nmore", "the first line"),
        ("x\x1b[31m\u202e", "x␛[31m⟨U+202E⟩"),
        ("y" * 900 + " - at `$.key`", "y" * 199 + "… - at `$.key`"),
        ("bad - at `$." + "k" * 900, "bad - at `$." + "k" * 190 + "…"),
    ],
)
def test_library_messages_become_one_short_escaped_line(message: str, shown: str) -> None:
    assert abbreviate_reason(ValueError(message)) == shown


def test_message_lines_have_a_maximum_length() -> None:
    assert str(InputError("a" * 20_000, "b")) == f"{'a' * 9_999}…\nb"


def test_a_word_is_compared_with_a_bounded_number_of_choices() -> None:
    choices = (f"sourca{number}" for number in range(10**6))
    assert suggest("source", choices).startswith("; did you mean 'sourca")
    assert next(choices) == "sourca1000"
