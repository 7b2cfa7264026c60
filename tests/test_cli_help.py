"""cli/help_pages.py and cli/flag_names.py: one page of help, and one name for one thing in all subcommands."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from types import SimpleNamespace
from typing import get_args

import pytest
from command_line import build_environment, run_pellucid, usage_error_message

from pellucid.cli.arguments import expand_arguments, known_flags, parse_arguments
from pellucid.cli.completion import ARGUMENT_CLASSES, first_arguments, flag_completions
from pellucid.cli.flag_names import SETTING_FLAGS, SHORT_FLAGS
from pellucid.cli.help_pages import HELP_PAGES, help_page
from pellucid.cli.subcommands import SUBCOMMANDS
from pellucid.cli.train import TrainArguments
from pellucid.cli.tune import TuneArguments
from pellucid.config.toml import setting_choices, size_preset

PARSER = """
import sys
from importlib import import_module
import msgspec
verb, *arguments = sys.argv[1:]
args = getattr(import_module(f"pellucid.cli.{verb}"), f"parse_{verb}_arguments")(arguments)
print(msgspec.json.encode({name: value for name, value in vars(args).items()}, enc_hook=str).decode())
"""


def parsed_settings(arguments: Sequence[str], verb: str = "train") -> SimpleNamespace:
    """What the parser of train or tune makes of a command line, in a process without checks of types."""
    done = subprocess.run(
        [sys.executable, "-c", PARSER, verb, *arguments],
        capture_output=True,
        text=True,
        env=build_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    return SimpleNamespace(
        **{name: SimpleNamespace(**value) if isinstance(value, dict) else value for name, value in values.items()}
    )


NEEDED = ("a.tsv", "--valid", "b.tsv", "--run", "c")


@pytest.mark.parametrize("verb", SUBCOMMANDS)
def test_help_is_one_page(verb: str) -> None:
    done = run_pellucid(verb, "--help")
    lines = done.out.splitlines()
    assert done.code == 0 and done.err == "" and run_pellucid(verb, "-h") == done
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert lines[0].startswith(f"usage: pellucid {verb} ") and "Examples:" in lines
    assert lines[-1] == f"All options: pellucid {verb} --help-all"


@pytest.mark.parametrize("verb", SUBCOMMANDS)
def test_every_option_of_a_page_exists_with_its_letter(verb: str) -> None:
    flags = known_flags(ARGUMENT_CLASSES[verb])
    page = help_page(verb).partition("Examples:")[0]
    written = set(re.findall(r"--[a-z][a-z-]*", page)) - {"--no-header", "--no-open"}
    assert written <= set(flags), written - set(flags)
    for letter, flag in re.findall(r"^  -(.), (--[a-z-]+)", page, re.MULTILINE):
        assert SHORT_FLAGS[letter] == flag
    for option in HELP_PAGES[verb].options:
        names = known_flags(ARGUMENT_CLASSES[verb])
        choices = [str(choice) for choice in setting_choices(names[option.flag].kind)] if option.flag in names else []
        if choices and option.flag != "--device":
            assert [choice for choice in choices if choice != "auto" and choice not in option.text] == []


@pytest.mark.parametrize("verb", SUBCOMMANDS)
def test_defaults_of_a_page_are_those_of_the_options(verb: str) -> None:
    everything = " ".join(run_pellucid(verb, "--help-all").out.replace("│", " ").split())
    found = 0
    for option in HELP_PAGES[verb].options:
        named = re.search(r"([a-z0-9_]+) \(default\)|\(?([a-z0-9._]+) by default", option.text)
        value = next(filter(None, named.groups()), "") if named else ""
        if not option.flag.startswith("--") or value in ("", "all", "both") or option.flag == "--worst":
            continue
        targets = SETTING_FLAGS.get(option.flag, (option.flag,))
        texts = [
            re.split(r" --[a-z.-]+ [A-Z{]", re.split(rf" {target} (?=[A-Z{{])", everything)[1])[0] for target in targets
        ]
        assert any(f"default: {value}" in text for text in texts), (option, texts)
        found += 1
    assert found or verb in ("recipe", "completion")


@pytest.mark.parametrize("verb", SUBCOMMANDS)
def test_examples_of_a_page_are_accepted(verb: str) -> None:
    for example in HELP_PAGES[verb].examples:
        name, *arguments = shlex.split(example.partition(" > ")[0])
        if (name, arguments) == ("recipe", ["list"]) or "--config" in arguments or "-c" in arguments:
            continue
        if name in ("train", "tune"):
            parsed_settings(arguments, name)
        else:
            parse_arguments(ARGUMENT_CLASSES[name], name, arguments)


def test_help_imports_neither_torch_nor_the_parser() -> None:
    program = (
        "import sys; from pellucid.cli import main; main(sys.argv[1:]); print({'torch', 'tyro'} & set(sys.modules))"
    )
    for arguments, loaded in ((["predict", "--help"], "set()"), (["predict", "--help-all"], "")):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            env=build_environment(),
            check=False,
        )
        assert done.stderr == "" and (not loaded or done.stdout.splitlines()[-1] == loaded)


def test_help_all_shows_every_flag_and_its_other_names() -> None:
    for verb in SUBCOMMANDS:
        text = " ".join(run_pellucid(verb, "--help-all").out.replace("│", " ").split())
        for name, flag in known_flags(ARGUMENT_CLASSES[verb]).items():
            assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), (verb, name)
            assert flag.targets or f" {name}" in text
    assert "also -e, --epochs)" in text or "also -e, --epochs)" in run_pellucid("train", "--help-all").out.replace(
        "\n", " "
    )


def test_a_flag_has_one_meaning_in_all_subcommands() -> None:
    """A name that two subcommands share takes the same kind of value, but for lists of bench and optional values.

    One may refuse a value of another: lines of text are no pairs to score.
    """
    kinds = {verb: known_flags(ARGUMENT_CLASSES[verb]) for verb in SUBCOMMANDS if verb != "bench"}
    for (verb, flags), (other, others) in combinations(kinds.items(), 2):
        for name in flags.keys() & others.keys():
            shared = (verb, other, name)
            assert flags[name].values == others[name].values, shared
            ours, theirs = flags[name].kind, others[name].kind
            choices, other_choices = set(get_args(ours)), set(get_args(theirs))
            some = bool(choices and other_choices)
            assert ours == theirs or (some and (choices <= other_choices or other_choices <= choices)), shared
    for old in ("--format", "--out", "--limit", "--samples"):
        assert not [verb for verb, flags in kinds.items() if old in flags]
    required = {verb: {name for name in ("--valid", "--run") if name in kinds[verb]} for verb in ("train", "tune")}
    assert required["train"] == required["tune"] == {"--valid", "--run"}


LETTERS = (
    *("-e", "3", "-b", "7", "-l", "0.5", "-s", "tiny", "-t", "tag", "-p", "4", "-m", "loss", "-d", "cpu"),
    *("-i", "csv", "-k", "5", "-a", "none"),
)


@pytest.mark.parametrize("joined", [False, True])
def test_letters_and_short_flags_set_the_settings(joined: bool) -> None:
    letters = [f"{LETTERS[i]}={LETTERS[i + 1]}" for i in range(0, len(LETTERS), 2)] if joined else list(LETTERS)
    args = parsed_settings(["a.tsv", "-v", "b.tsv", "-r", "c", "-j", "2", "--ensemble", "2", *letters])
    assert (args.valid, args.run, args.jobs, args.size, args.task) == ("b.tsv", "c", 2, "tiny", "tag")
    training = args.training
    assert (training.epochs, training.batch_size, training.learning_rate) == (3.0, 7, 0.5)
    assert (training.patience, training.metric, args.search.beam_size) == (4, "loss", 5)
    assert (args.device, args.data.input_format, args.attention.type) == ("cpu", "csv", "none")
    assert args.encoder.hidden_size == size_preset("tiny").encoder.hidden_size  # by -s


def test_a_number_may_follow_its_letter() -> None:
    args = parsed_settings([*NEEDED, "-e2.5", "-b16", "-l1e-3"])
    assert (args.training.epochs, args.training.batch_size, args.training.learning_rate) == (2.5, 16, 1e-3)


def test_a_flag_without_section_sets_encoder_and_decoder_unless_one_is_named() -> None:
    args = parsed_settings([*NEEDED, "--encoder.dropout", "0.4", "--dropout", "0.2", "--hidden_size=48"])
    assert (args.encoder.dropout, args.decoder.dropout) == (0.4, 0.2)
    assert args.encoder.hidden_size == args.decoder.hidden_size == 48
    args = parsed_settings([*NEEDED, "--no-bidirectional", "--residual", "--no-snapshots"])
    assert (args.encoder.bidirectional, args.training.snapshots) == (False, False)
    assert args.encoder.residual and args.decoder.residual
    args = parsed_settings([*NEEDED, "--encoder.no-bidirectional", "--convolutions", "3", "5", "-e", "2"])
    assert (args.encoder.bidirectional, args.encoder.convolutions, args.training.epochs) == (False, [3, 5], 2.0)


@pytest.mark.parametrize("kind", [TrainArguments, TuneArguments])
@pytest.mark.parametrize("name", SETTING_FLAGS)
def test_every_flag_without_section_stands_for_flags_that_exist(name: str, kind: type) -> None:
    flags = known_flags(kind)
    assert set(SETTING_FLAGS[name]) <= set(flags) and flags[name].kind == flags[SETTING_FLAGS[name][-1]].kind
    if flags[name].values == "none":
        switch = f"--no-{name[2:]}"
        expanded = expand_arguments(kind, [switch])
        assert len(expanded) == len(SETTING_FLAGS[name]) and all(".no-" in word for word in expanded)
    else:
        assert expand_arguments(kind, [name, "1"]) == [word for flag in SETTING_FLAGS[name] for word in (flag, "1")]


def test_values_are_not_taken_for_letters() -> None:
    flags = ("--prefix=-n", "--forbid", "-", "-k", "2")
    assert expand_arguments(ARGUMENT_CLASSES["predict"], flags) == ["--prefix=-n", "--forbid", "-", "--beam-size", "2"]
    assert usage_error_message(run_pellucid("predict", "run", "-k", "-n", 3)).startswith(
        "-k: expected a value, got the flag -n "
    )
    assert usage_error_message(run_pellucid("predict", "run", "-k", "x")).startswith(
        "-k: expected a whole number, got 'x' "
    )
    assert usage_error_message(run_pellucid("train", *NEEDED, "--epochs", "x")).startswith(
        "--epochs: expected a number, got 'x' "
    )
    assert usage_error_message(run_pellucid("predict", "run", "-e", 3)).startswith("there is no flag -e ")


def test_completions_are_known_flags() -> None:
    for verb in SUBCOMMANDS:
        flags = known_flags(ARGUMENT_CLASSES[verb])
        names = {name for flag in flag_completions(verb) for name in flag.names}
        assert set(flags) <= names
        assert all(first_arguments(verb)) or verb not in ("bench", "recipe", "completion")
