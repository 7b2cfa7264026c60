"""Subcommand completion: pellucid completion bash|zsh|fish"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, get_args

import tyro

from pellucid.bench.cases import CASES, CELLS, TASKS
from pellucid.cli.arguments import HELP_ALL, ArgumentSpec, known_flags, negated_flag, parse_arguments
from pellucid.cli.bench import BenchArguments
from pellucid.cli.flag_names import short_name
from pellucid.cli.recipe import RecipeArguments
from pellucid.cli.subcommand_flags import MODEL_SUBCOMMANDS
from pellucid.cli.subcommands import SUBCOMMANDS
from pellucid.config.settings import Header
from pellucid.config.toml import HEADER_CHOICES, setting_choices

Shell = Literal["bash", "zsh", "fish"]


@dataclass(frozen=True)
class CompletionArguments:
    """Print a script that completes subcommands, flags and their choices in the shell."""

    shell: Annotated[tyro.conf.Positional[Shell], tyro.conf.arg(metavar="SHELL")]
    """Shell: bash, zsh or fish."""


class FlagCompletion(NamedTuple):
    """Completion of one flag of a subcommand."""

    names: tuple[str, ...]
    """The flag and its letter, or the flag and its negation."""
    choices: tuple[str, ...]
    """Choices of its value; empty if it has none."""
    takes_value: bool


ARGUMENT_CLASSES: Mapping[str, type] = {
    **MODEL_SUBCOMMANDS,
    "bench": BenchArguments,
    "recipe": RecipeArguments,
    "completion": CompletionArguments,
}
"""Dataclass of the arguments of each subcommand."""


def main(arguments: list[str]) -> int:
    """Print the script of a shell.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: The shell is missing, or not one of `Shell`.
    """
    args = parse_arguments(CompletionArguments, "completion", arguments)
    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    print("\n".join(scripts[args.shell]()))
    return 0


def flag_completions(verb: str) -> list[FlagCompletion]:
    """Return the completions of all flags of a subcommand.

    Args:
        verb: Name of the subcommand.
    """
    flags = known_flags(ARGUMENT_CLASSES[verb]).values()
    return [
        *(_flag_completion(verb, flag) for flag in flags),
        FlagCompletion(("--help", "-h"), (), False),
        FlagCompletion((HELP_ALL,), (), False),
    ]


def _flag_completion(verb: str, flag: ArgumentSpec) -> FlagCompletion:
    """Return the completion of a flag."""
    negation = [negated_flag(flag.name)] if flag.values == "none" or flag.kind == Header else []
    choices = HEADER_CHOICES if flag.kind == Header else setting_choices(flag.kind)
    if verb == "bench":
        choices = {"--case": tuple(CASES), "--cell": CELLS}.get(flag.name, choices)
    names = [flag.name, *filter(None, [short_name(flag.name)]), *negation]
    return FlagCompletion(tuple(names), tuple(map(str, choices)), flag.values != "none")


def first_arguments(verb: str) -> Sequence[str]:
    """Return the choices of the first argument of a subcommand; empty if it is a file or a folder.

    Args:
        verb: Name of the subcommand.
    """
    if verb == "recipe":
        from pellucid.recipes.catalog import RECIPES

        return ["list", *RECIPES]
    return {"bench": [*TASKS, "all"], "completion": get_args(Shell)}.get(verb, [])


def _value_cases(verb: str) -> Iterator[tuple[str, str]]:
    """Yield (pattern of the words before a value, its choices) for each flag with choices."""
    for flag in flag_completions(verb):
        if flag.choices:
            names = [name for name in flag.names if not name.startswith("--no-")]
            yield "|".join(f"{verb}:{name}" for name in names), " ".join(flag.choices)


def bash_script() -> Iterator[str]:
    """Yield the lines of the script for bash."""
    yield "# Completion of pellucid for bash."
    yield "_pellucid() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" subcommand="${COMP_WORDS[1]}" words=""'
    yield "    COMPREPLY=()"
    yield "    if ((COMP_CWORD == 1)); then"
    yield f'        COMPREPLY=($(compgen -W "{" ".join(SUBCOMMANDS)} --help --version" -- "$current"))'
    yield "        return"
    yield "    fi"
    yield from _shell_cases('"$subcommand:${COMP_WORDS[COMP_CWORD - 1]}"', '"$current" == -*', "((COMP_CWORD == 2))")
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _pellucid pellucid"


def zsh_script() -> Iterator[str]:
    """Yield the lines of the script for zsh."""
    yield "#compdef pellucid"
    yield "_pellucid() {"
    yield '    local current="${words[CURRENT]}" subcommand="${words[2]}" previous="${words[CURRENT - 1]}"'
    yield "    local -a subcommands"
    yield "    if ((CURRENT == 2)); then"
    summaries = " ".join(f"'{name}:{summary}'" for name, summary in SUBCOMMANDS.items())
    yield f"        subcommands=({summaries})"
    yield "        _describe subcommand subcommands"
    yield "        return"
    yield "    fi"
    yield "    _pellucid_words() {"
    yield '        local words=""'
    yield from _shell_cases('"$subcommand:$previous"', '"$current" == -*', "((CURRENT == 3))")
    yield '        print -r -- "$words"'
    yield "    }"
    yield "    local found=(${=$(_pellucid_words)})"
    yield "    if ((${#found})); then compadd -- $found; else _files; fi"
    yield "}"
    yield "compdef _pellucid pellucid"


def _shell_cases(words_before: str, is_flag: str, is_first: str) -> Iterator[str]:
    """Yield the lines, the same in bash and zsh, that set `words` to what may follow."""
    yield f"    case {words_before} in"
    for verb in SUBCOMMANDS:
        for pattern, choices in _value_cases(verb):
            yield f'        {pattern}) words="{choices}" ;;'
    yield "    esac"
    yield f'    if [[ -z "$words" && {is_flag} ]]; then'
    yield '        case "$subcommand" in'
    for verb in SUBCOMMANDS:
        names = " ".join(name for flag in flag_completions(verb) for name in flag.names)
        yield f'            {verb}) words="{names}" ;;'
    yield "        esac"
    yield f'    elif [[ -z "$words" ]] && {is_first}; then'
    yield '        case "$subcommand" in'
    for verb in SUBCOMMANDS:
        if first_arguments(verb):
            yield f'            {verb}) words="{" ".join(first_arguments(verb))}" ;;'
    yield "        esac"
    yield "    fi"


def fish_script() -> Iterator[str]:
    """Yield the lines of the script for fish."""
    yield "# Completion of pellucid for fish."
    for verb, summary in SUBCOMMANDS.items():
        yield f"complete -c pellucid -n __fish_use_subcommand -f -a {verb} -d '{summary}'"
    for verb in SUBCOMMANDS:
        condition = f"-n '__fish_seen_subcommand_from {verb}'"
        if first_arguments(verb):
            yield f"complete -c pellucid {condition} -f -a '{' '.join(first_arguments(verb))}'"
        for flag in flag_completions(verb):
            letters = [f"-s {name[1:]}" for name in flag.names if not name.startswith("--")]
            names = [f"-l {name[2:]}" for name in flag.names if name.startswith("--")]
            choices = f" -x -a '{' '.join(flag.choices)}'" if flag.choices else " -r" if flag.takes_value else ""
            yield f"complete -c pellucid {condition} {' '.join([*letters, names[0]])}{choices}"
            yield from (f"complete -c pellucid {condition} {name}" for name in names[1:])
