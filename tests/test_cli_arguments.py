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
from test_cli_help import parse_settings

from pellucid.cli.arguments import (
    _argument_specs,
    command_line_error,
    convert_value,
    known_flags,
    negated_flag,
    parse_arguments,
)
from pellucid.cli.completion import ARGUMENT_CLASSES
from pellucid.cli.subcommands import SUBCOMMANDS
from pellucid.config.settings import Header
from pellucid.config.toml import setting_choices
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
    for subcommand in ("split", "train", "tune", "predict", "score", "evaluate", "look", "recipe", "bench")
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
        assert message == f"--size: expected auto, tiny, small, base or large, got 'hug' (pellucid {subcommand} --help)"
    message = usage_error_message(run_pellucid("train", "a", "--hiden-size", 3))
    assert message == "there is no flag --hiden-size; did you mean '--hidden-size'? (pellucid train --help)"
    message = usage_error_message(run_pellucid("train", "a", "--size", "base"))
    assert message == "--run is required (pellucid train --help)"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--jobs", "-1"), "--jobs: expected a whole number of at least 0, got -1"),
        (("--trials", "0"), "--trials: expected a whole number of at least 1, got 0"),
        (("--study-time", "-1m"), "--study-time: expected a time above 0, such as 90s, 10m or 2h, got '-1m'"),
    ],
)
def test_number_out_of_bounds_is_an_error(tmp_path: Path, arguments: tuple[str, str], expected: str) -> None:
    message = usage_error_message(
        run_pellucid("tune", tmp_path / "a", "--valid", tmp_path / "b", "--run", tmp_path / "c", *arguments)
    )
    assert message.startswith(expected)


def positional_values(subcommand: str) -> list[str]:
    """Return values of all positional arguments of a subcommand, two for a list."""
    specs = [spec for spec in _argument_specs(ARGUMENT_CLASSES[subcommand], "--", None) if not spec.flagged]
    values = [[str(choice) for choice in setting_choices(spec.kind)] or ["one", "two"] for spec in specs]
    return [
        value for spec, pair in zip(specs, values, strict=True) for value in pair[: 2 if spec.values == "any" else 1]
    ]


SWITCHES = {
    subcommand: [
        name
        for flag in known_flags(ARGUMENT_CLASSES[subcommand]).values()
        if flag.values == "none" or flag.kind == Header
        for name in (flag.name, negated_flag(flag.name))
    ]
    for subcommand in SUBCOMMANDS
}
"""Flags without a value of each subcommand, and their negations."""


def test_switches_of_all_subcommands_are_enumerated() -> None:
    tested = {
        "split",
        "prepare",
        "train",
        "tune",
        "predict",
        "score",
        "align",
        "audit",
        "evaluate",
        "look",
        "export",
        "share",
        "bench",
    }
    assert {subcommand for subcommand, switches in SWITCHES.items() if switches} == tested
    assert set(SUBCOMMANDS) - tested == {"recipe", "completion", "download", "check", "serve", "data"}
    assert {"--terminal", "--no-open", "--header", "--no-header"} <= set(SWITCHES["look"])


@pytest.mark.parametrize(
    "subcommand", [name for name in SUBCOMMANDS if SWITCHES[name] and name not in ("train", "tune")]
)
def test_switches_may_stand_before_and_between_positional_arguments(subcommand: str) -> None:
    values, kind = positional_values(subcommand), ARGUMENT_CLASSES[subcommand]
    required = ["--out", "folder"] if subcommand in ("split", "prepare") else []
    for switch in SWITCHES[subcommand]:
        expected: object = parse_arguments(kind, subcommand, [*values, switch, *required])
        for place in range(len(values)):
            arguments = [*values[:place], switch, *values[place:], *required]
            assert parse_arguments(kind, subcommand, arguments) == expected, arguments
        assert parse_arguments(kind, subcommand, [*required, switch, "--", *values]) == expected


@pytest.mark.slow
@pytest.mark.parametrize("subcommand", ["train", "tune"])
@pytest.mark.parametrize("negated", [False, True])
def test_switches_of_a_training_may_stand_before_its_file(subcommand: str, negated: bool) -> None:
    switches = SWITCHES[subcommand][negated::2]
    flags = ["--valid", "b.tsv", "--run", "c"]
    (value,) = positional_values(subcommand)
    assert len(switches) > 10
    expected = parse_settings([value, *flags, *switches], subcommand)
    assert expected == parse_settings([*flags, *switches, value], subcommand)
    assert expected == parse_settings([*switches, "--", value, *flags], subcommand)


def test_flag_with_a_value_may_stand_between_paths() -> None:
    for subcommand, flags in (("predict", ["-k", "3"]), ("score", ["--device", "cpu"]), ("look", ["--width", "50"])):
        kind = ARGUMENT_CLASSES[subcommand]
        expected: object = parse_arguments(kind, subcommand, ["a", "b", "c", *flags])
        assert parse_arguments(kind, subcommand, ["a", "b", *flags, "c"]) == expected
