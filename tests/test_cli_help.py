"""cli/help_pages.py and cli/flag_names.py: help of one page, and flag names that agree in all subcommands."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
from command_line import build_environment, run_pellucid, usage_error_message

from pellucid.cli.arguments import command_line_error, expand_arguments, known_flags, negated_flag, parse_arguments
from pellucid.cli.completion import ARGUMENT_CLASSES, first_arguments, flag_completions
from pellucid.cli.flag_names import SETTING_FLAGS, SHORT_FLAGS
from pellucid.cli.help_pages import HELP_PAGES, help_page
from pellucid.cli.subcommands import SUBCOMMANDS
from pellucid.cli.train import TrainArguments
from pellucid.cli.tune import TuneArguments
from pellucid.config.settings import Header
from pellucid.config.toml import setting_choices, size_preset

ROOT = Path(__file__).parent.parent
PARSER_PROGRAM = """
import sys
import msgspec
from pellucid.cli.arguments import TrainingFlagParser
from pellucid.cli.completion import ARGUMENT_CLASSES
subcommand, *arguments = sys.argv[1:]
args = TrainingFlagParser(ARGUMENT_CLASSES[subcommand], subcommand, arguments).parse()
print(msgspec.json.encode({name: value for name, value in vars(args).items()}, enc_hook=str).decode())
"""


def parse_settings(arguments: Sequence[str], subcommand: str = "train") -> SimpleNamespace:
    """Return the parsed arguments of train or tune, from a process without type checks."""
    process = subprocess.run(
        [sys.executable, "-c", PARSER_PROGRAM, subcommand, *arguments],
        capture_output=True,
        text=True,
        env=build_environment(),
        check=False,
    )
    assert process.returncode == 0, process.stderr
    values = json.loads(process.stdout)
    return SimpleNamespace(
        **{name: SimpleNamespace(**value) if isinstance(value, dict) else value for name, value in values.items()}
    )


REQUIRED_ARGUMENTS = ("a.tsv", "--valid", "b.tsv", "--run", "c")


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_help_is_one_page(subcommand: str) -> None:
    result = run_pellucid(subcommand, "--help")
    lines = result.out.splitlines()
    assert result.code == 0 and result.err == "" and run_pellucid(subcommand, "-h") == result
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert lines[0].startswith(f"usage: pellucid {subcommand} ") and "Examples:" in lines
    assert lines[-1] == f"All options: pellucid {subcommand} --help-all"


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_row_of_a_help_page_documents_its_own_option_only(subcommand: str) -> None:
    for option in HELP_PAGES[subcommand].options:
        assert re.search(r"--[a-z-]+ [A-Z]+:", option.text) is None, option


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_option_of_a_help_page_exists_with_its_short_flag(subcommand: str) -> None:
    flags = known_flags(ARGUMENT_CLASSES[subcommand])
    page = help_page(subcommand).partition("Examples:")[0]
    page_flags = set(re.findall(r"--[a-z][a-z0-9-]*", page)) - {
        "--no-header",
        "--no-pair-ngram",
        "--no-open",
        "--no-insertions",
        "--no-deletions",
    }
    assert page_flags <= set(flags), page_flags - set(flags)
    for letter, flag in re.findall(r"^  -(.), (--[a-z-]+)", page, re.MULTILINE):
        assert SHORT_FLAGS[letter] == flag
    for option in HELP_PAGES[subcommand].options:
        names = known_flags(ARGUMENT_CLASSES[subcommand])
        choices = [str(choice) for choice in setting_choices(names[option.flag].kind)] if option.flag in names else []
        if choices and option.flag != "--device":
            shown = f"{option.value} {option.text}"
            assert [choice for choice in choices if choice != "auto" and choice not in shown] == []


@pytest.mark.parametrize("subcommand", [name for name in SUBCOMMANDS if "--input-format" in help_page(name)])
def test_every_input_format_of_a_help_page_is_accepted(subcommand: str) -> None:
    """Regression test: the page of score named text, which it refuses."""
    (option,) = (option for option in HELP_PAGES[subcommand].options if option.flag == "--input-format")
    formats = re.findall(r"\w+", re.split("[(;]", option.text)[0])
    assert {"tsv", "csv", "jsonl", "parquet"} <= set(formats)
    for name in formats:
        error = command_line_error(ARGUMENT_CLASSES[subcommand], subcommand, ["--input-format", name])
        assert not error.startswith("--input-format"), error


@pytest.mark.parametrize("page", ["README.md", "docs/get-started.md"])
def test_flags_of_the_first_pages_are_on_the_help_pages(page: str) -> None:
    """Regression test: train --help did not have --header and --features-column."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(rf"^(?:.*\| *)?pellucid ({'|'.join(SUBCOMMANDS)}) ([^#|>\n]*)", text, re.MULTILINE)
    assert commands
    for subcommand, arguments in commands:
        for flag in re.findall(r"(?<!\S)--?[a-z][a-z-]*", arguments):
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", help_page(subcommand)), (subcommand, flag)


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_help_page_states_the_default_of_each_option(subcommand: str) -> None:
    all_options = " ".join(run_pellucid(subcommand, "--help-all").out.replace("│", " ").split())
    num_checked = 0
    for option in HELP_PAGES[subcommand].options:
        match = re.search(r"([a-z0-9_]+) \(default\)|\(?([a-z0-9._]+) by default", option.text)
        value = next(filter(None, match.groups()), "") if match else ""
        if not option.flag.startswith("--") or value in ("", "all", "both") or option.flag == "--worst":
            continue
        targets = SETTING_FLAGS.get(option.flag, (option.flag,))
        texts = [
            re.split(r" --[a-z.-]+ [A-Z{]", re.split(rf" {target} (?=[A-Z{{])", all_options)[1])[0]
            for target in targets
        ]
        assert any(f"default: {value}" in text for text in texts), (option, texts)
        num_checked += 1
    assert num_checked or subcommand in ("recipe", "completion", "share", "download", "check", "data")


@pytest.mark.slow
@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_examples_of_a_page_are_accepted(subcommand: str) -> None:
    for example in HELP_PAGES[subcommand].examples:
        name, *arguments = shlex.split(example.partition(" > ")[0])
        if (name, arguments[:1]) == ("recipe", ["list"]) or "--config" in arguments or "-c" in arguments:
            continue
        if name in ("train", "tune"):
            parse_settings(arguments, name)
        else:
            parse_arguments(ARGUMENT_CLASSES[name], name, arguments)


def test_help_imports_neither_torch_nor_the_parser() -> None:
    program = (
        "import sys; from pellucid.cli import main; main(sys.argv[1:]); print({'torch', 'tyro'} & set(sys.modules))"
    )
    for arguments, expected in ((["predict", "--help"], "set()"), (["predict", "--help-all"], "")):
        process = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            env=build_environment(),
            check=False,
        )
        assert process.stderr == "" and (not expected or process.stdout.splitlines()[-1] == expected)


@pytest.mark.slow
@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_help_all_shows_every_option_that_the_parser_accepts(subcommand: str) -> None:
    """Every flag, its letter, its name without the section, and the negation of a switch.

    Regression test: --no-pair-ngram and the other negations without a section, and -r, were missing.
    """
    flags = known_flags(ARGUMENT_CLASSES[subcommand])
    switches = [name for name, flag in flags.items() if flag.values == "none" or flag.kind == Header]
    letters = [f"-{letter}" for letter, name in SHORT_FLAGS.items() if name in flags]
    text = " ".join(run_pellucid(subcommand, "--help-all").out.replace("│", " ").split())
    for name in [*flags, *map(negated_flag, switches), *letters]:
        command_line_error(ARGUMENT_CLASSES[subcommand], subcommand, [name])  # raises an error for an unknown flag
        assert re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text), name


@pytest.mark.slow
def test_help_all_shows_the_other_names_of_a_flag() -> None:
    text = " ".join(run_pellucid("train", "--help-all").out.replace("│", " ").split())
    assert "also -e, --epochs)" in text and "also --pair-ngram, --no-pair-ngram)" in text
    assert "created, or resumed. (also -r) (required)" in text


@pytest.mark.parametrize("subcommand", ["train", "predict", "evaluate", "tune"])
def test_numbers_of_help_are_on_one_line(subcommand: str) -> None:
    """Regression test: lines were broken at the commas of numbers."""
    text = run_pellucid(subcommand, "--help-all").out
    assert not re.search(r"[0-9],\s*│\n│\s+[0-9]{3}", text) and "\ue000" not in text
    assert re.search(r"[0-9],[0-9]{3}", text)


def test_a_flag_has_one_meaning_in_all_subcommands() -> None:
    """A flag that two subcommands share takes the same kind of value, except lists of bench and optional values.

    A subcommand may accept fewer values: `score` does not accept lines of text. Formats of output depend on content.
    """
    flags_by_subcommand = {
        subcommand: known_flags(ARGUMENT_CLASSES[subcommand]) for subcommand in SUBCOMMANDS if subcommand != "bench"
    }
    for (subcommand, flags), (other_subcommand, other_flags) in combinations(flags_by_subcommand.items(), 2):
        for name in flags.keys() & other_flags.keys():
            context = (subcommand, other_subcommand, name)
            assert flags[name].values == other_flags[name].values, context
            kind, other_kind = flags[name].kind, other_flags[name].kind
            choices, other_choices = set(get_args(kind)), set(get_args(other_kind))
            is_choice = bool(choices and other_choices)
            is_subset = choices <= other_choices or other_choices <= choices
            is_format = name == "--output-format" and bool(choices & other_choices)
            assert kind == other_kind or (is_choice and (is_subset or is_format)), context
    for removed in ("--format", "--limit", "--samples"):
        assert not [subcommand for subcommand, flags in flags_by_subcommand.items() if removed in flags]
    required = {
        subcommand: {name for name in ("--valid", "--run") if name in flags_by_subcommand[subcommand]}
        for subcommand in ("train", "tune")
    }
    assert required["train"] == required["tune"] == {"--valid", "--run"}


SHORT_FLAG_VALUES = (
    *("-e", "3", "-b", "7", "-l", "0.5", "-s", "tiny", "-t", "tag", "-p", "4", "-m", "loss", "-d", "cpu"),
    *("-i", "csv", "-k", "5", "-a", "none"),
)


@pytest.mark.parametrize("with_equals_sign", [False, True])
def test_short_flags_set_the_settings(with_equals_sign: bool) -> None:
    arguments = (
        [f"{SHORT_FLAG_VALUES[i]}={SHORT_FLAG_VALUES[i + 1]}" for i in range(0, len(SHORT_FLAG_VALUES), 2)]
        if with_equals_sign
        else list(SHORT_FLAG_VALUES)
    )
    args = parse_settings(["a.tsv", "-v", "b.tsv", "-r", "c", "-j", "2", "--ensemble", "2", *arguments])
    assert (args.valid, args.run, args.jobs, args.size, args.task) == ("b.tsv", "c", 2, "tiny", "tag")
    training = args.training
    assert (training.epochs, training.batch_size, training.learning_rate) == (3.0, 7, 0.5)
    assert (training.patience, training.metric, args.search.beam_size) == (4, "loss", 5)
    assert (args.device, args.data.input_format, args.attention.type) == ("cpu", "csv", "none")
    assert args.encoder.hidden_size == size_preset("tiny").encoder.hidden_size  # by -s


def test_number_may_follow_its_short_flag() -> None:
    args = parse_settings([*REQUIRED_ARGUMENTS, "-e2.5", "-b16", "-l1e-3"])
    assert (args.training.epochs, args.training.batch_size, args.training.learning_rate) == (2.5, 16, 1e-3)


@pytest.mark.slow
def test_a_flag_without_section_sets_encoder_and_decoder_unless_one_is_named() -> None:
    args = parse_settings([*REQUIRED_ARGUMENTS, "--encoder.dropout", "0.4", "--dropout", "0.2", "--hidden_size=48"])
    assert (args.encoder.dropout, args.decoder.dropout) == (0.4, 0.2)
    assert args.encoder.hidden_size == args.decoder.hidden_size == 48
    args = parse_settings([*REQUIRED_ARGUMENTS, "--no-bidirectional", "--residual", "--no-snapshots"])
    assert (args.encoder.bidirectional, args.training.snapshots) == (False, False)
    assert args.encoder.residual and args.decoder.residual
    args = parse_settings([*REQUIRED_ARGUMENTS, "--encoder.no-bidirectional", "--convolutions", "3", "5", "-e", "2"])
    assert (args.encoder.bidirectional, args.encoder.convolutions, args.training.epochs) == (False, [3, 5], 2.0)


@pytest.mark.parametrize("kind", [TrainArguments, TuneArguments])
@pytest.mark.parametrize("name", SETTING_FLAGS)
def test_every_flag_without_section_sets_existing_flags(name: str, kind: type) -> None:
    flags = known_flags(kind)
    assert set(SETTING_FLAGS[name]) <= set(flags) and flags[name].kind == flags[SETTING_FLAGS[name][-1]].kind
    if flags[name].values == "none":
        switch = f"--no-{name[2:]}"
        expanded = expand_arguments(kind, [switch])
        assert len(expanded) == len(SETTING_FLAGS[name]) and all(".no-" in word for word in expanded)
    else:
        assert expand_arguments(kind, [name, "1"]) == [word for flag in SETTING_FLAGS[name] for word in (flag, "1")]


def test_values_are_not_parsed_as_short_flags() -> None:
    flags = ("--prefix=-n", "--forbid", "-", "-k", "2")
    assert expand_arguments(ARGUMENT_CLASSES["predict"], flags) == ["--prefix=-n", "--forbid", "-", "--beam-size", "2"]
    assert usage_error_message(run_pellucid("predict", "run", "-k", "-n", 3)).startswith(
        "-k: expected a value, got the flag -n "
    )
    assert usage_error_message(run_pellucid("predict", "run", "-k", "x")).startswith(
        "-k: expected a whole number, got 'x' "
    )
    assert usage_error_message(run_pellucid("train", *REQUIRED_ARGUMENTS, "--epochs", "x")).startswith(
        "--epochs: expected a number, got 'x' "
    )
    assert usage_error_message(run_pellucid("predict", "run", "-e", 3)).startswith("there is no flag -e ")


def test_completions_are_known_flags() -> None:
    for subcommand in SUBCOMMANDS:
        flags = known_flags(ARGUMENT_CLASSES[subcommand])
        names = {name for flag in flag_completions(subcommand) for name in flag.names}
        assert set(flags) <= names
        assert all(first_arguments(subcommand)) or subcommand not in ("bench", "recipe", "completion")
