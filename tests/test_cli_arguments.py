"""cli/arguments.py: invalid arguments give an error of one line."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro
from command_line import run_pellucid, usage_error_message
from hypothesis import given
from hypothesis import strategies as st

from pellucid.cli.arguments import _argument_specs, command_line_error, convert_value, parse_arguments
from pellucid.errors import InputError


@dataclass(frozen=True)
class ExampleArguments:
    """Arguments of every kind of value."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    out: Path
    beam: int | None = None
    share: float = 0.5
    cell: Literal["gru", "lstm"] = "gru"
    widths: tuple[int, ...] = ()
    forbid: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    open_page: bool = True


INVALID_COMMAND_LINES = {
    "run": "--out is required",
    "": "RUN and --out are required",
    "run --out a --beam x": "--beam: expected a whole number, got 'x'",
    "run --out a --beam=1.5": "--beam: expected a whole number, got '1.5'",
    "run --out a --share much": "--share: expected a number, got 'much'",
    f"run --out a --beam {'1' * 19}": f"--beam: expected a whole number of at most 18 digits, got '{'1' * 19}'",
    f"run --out a --beam -{'1' * 5000}": f"--beam: expected a whole number of at most 18 digits, got '-{'1' * 78}…'",
    f"run --out a --widths 3 {'1_' * 2000}1": (
        f"--widths: expected a whole number of at most 18 digits, got '{'1_' * 39}1…'"
    ),
    f"run --out a --{'z' * 5000}": f"there is no flag --{'z' * 77}…",
    "run --out a --widths 3 x 5": "--widths: expected a whole number, got 'x'",
    "run --out a --cell lstn": "--cell: expected gru or lstm, got 'lstn'; did you mean 'lstm'?",
    "run --out a --bean 3": "there is no flag --bean; did you mean '--beam'?",
    "run --out a --zzz": "there is no flag --zzz",
    "run --out a -b 3": "there is no flag -b",
    "run --out a --forbid": "--forbid: expected a value, got nothing",
    "run --out a --forbid --beam 3": "--forbid: expected a value, got the flag --beam",
    "run --out a --open-page=no": "--open-page is a switch and takes no value, got 'no'",
    "run too --out a": "unexpected argument 'too': expected RUN and flags",
    "run --out a --open-page no": "unexpected argument 'no': expected RUN and flags",
}


@pytest.mark.parametrize("command_line", INVALID_COMMAND_LINES)
def test_invalid_arguments_give_one_line(command_line: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_arguments(ExampleArguments, "subcommand", command_line.split())
    assert str(caught.value) == f"{INVALID_COMMAND_LINES[command_line]} (pellucid subcommand --help)"


NUMBER_FLAGS = ("--beam 3", "--beam=4", "--beam -1", "--share 1e-3", "--widths 3 5", "--widths=3")
OTHER_FLAGS = (
    "--cell lstm",
    "--forbid a",
    "--forbid=--b",
    "--open-page",
    "--no-open-page",
    "--no_open_page",
    "--open_page",
)
VALID_FLAGS = st.sampled_from([*NUMBER_FLAGS, *OTHER_FLAGS])


@given(st.lists(VALID_FLAGS, unique_by=lambda piece: piece.partition(" ")[0].partition("=")[0]), st.booleans())
def test_valid_arguments_give_no_error(valid_flags: list[str], run_precedes_flags: bool) -> None:
    flags = [*" ".join(valid_flags).split(), "--out", "a"]
    arguments = ["run", *flags] if run_precedes_flags else [*flags, "run"]
    assert parse_arguments(ExampleArguments, "subcommand", arguments).run == Path("run")
    assert command_line_error(ExampleArguments, "train", arguments) == ""


NUMBER_FLAGS_OF_SUBCOMMANDS = [
    (subcommand, flag)
    for subcommand in ("train", "tune", "predict", "score", "evaluate", "look", "recipe", "bench")
    for flag in _argument_specs(
        getattr(import_module(f"pellucid.cli.{subcommand}"), f"{subcommand.capitalize()}Arguments"), "--", None
    )
    if flag.kind in (int, float)
]


@pytest.mark.parametrize("digits", [19, 4300, 5000])
def test_numbers_with_thousands_of_digits_are_refused_for_every_flag(digits: int) -> None:
    for subcommand, flag in NUMBER_FLAGS_OF_SUBCOMMANDS:
        argument_class = getattr(import_module(f"pellucid.cli.{subcommand}"), f"{subcommand.capitalize()}Arguments")
        value = "1" * digits
        arguments = [flag.name, value] if flag.flagged else [value]
        if flag.kind is float:
            assert convert_value(float, value) > 1e18
            continue
        with pytest.raises(InputError) as caught:
            parse_arguments(argument_class, subcommand, arguments)
        assert "of at most 18 digits" in str(caught.value) and len(str(caught.value)) < 300, (subcommand, flag)


def test_invalid_preset_is_reported_as_a_flag() -> None:
    for subcommand, required in (
        ("train", ("a", "--valid", "b", "--run", "c")),
        ("tune", ("a", "--valid", "b", "--run", "c")),
    ):
        message = usage_error_message(run_pellucid(subcommand, *required, "--size", "hug"))
        assert message == f"--size: expected tiny, small, base or large, got 'hug' (pellucid {subcommand} --help)"
    message = usage_error_message(run_pellucid("train", "a", "--hiden-size", 3))
    assert message == "there is no flag --hiden-size; did you mean '--hidden-size'? (pellucid train --help)"
    message = usage_error_message(run_pellucid("train", "a", "--size", "base"))
    assert message == "--valid and --run are required (pellucid train --help)"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--jobs", "-1"), "--jobs: expected a whole number of at least 0, got -1"),
        (("--trials", "0"), "--trials: expected a whole number of at least 1, got 0"),
        (("--minutes", "-0.5"), "--minutes: expected a number of at least 0.0, got -0.5"),
        (("--minutes", "nan"), "--minutes: expected a number of at least 0.0, got nan"),
    ],
)
def test_number_out_of_bounds_is_an_error(tmp_path: Path, arguments: tuple[str, str], expected: str) -> None:
    message = usage_error_message(
        run_pellucid("tune", tmp_path / "a", "--valid", tmp_path / "b", "--run", tmp_path / "c", *arguments)
    )
    assert message.startswith(f"{expected} ")
