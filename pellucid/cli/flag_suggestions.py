"""Messages about unknown flags: the flag here for a flag of another program, or for a misspelled one."""

import re
from collections.abc import Collection, Iterable, Mapping

from pellucid.cli.flag_names import SETTING_FLAGS
from pellucid.cli.foreign_flags import FOREIGN_FLAGS
from pellucid.config.renamed_settings import RENAMED_SETTINGS
from pellucid.errors import InputError, abbreviate, quote

GENERIC_WORDS = frozenset(
    "column config count length max min no num number on ratio size symbols type value".split()  # noqa: SIM905
)
"""Words of flags that say nothing alone: flags that share only these do not suggest each other."""
MIN_EDIT_LENGTH = 4
"""Minimum length of a word that may be a misspelling of another; shorter ones are too often within one edit."""
MAX_SUGGESTIONS = 3
NO_SETTINGS = (
    "an attention type of another package cannot add settings: make the value a class attribute, and give --attention "
    "the name of a subclass for each value, or let the class read a setting of the section, such as "
    "attention.filter_radius"
)
"""Advice about a flag for the value of a class of another package."""


def _setting_flag(key: str) -> str:
    """Return the flag of a setting with its section and without hyphens at its start; settings of data have none."""
    return key.removeprefix("data.").replace("_", "-")


RENAMED_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("from", "initial-run"), "--init-from"),
    "no-aligned": "--no-equal-length",
    **{_setting_flag(former): f"--{_setting_flag(current)}" for former, current in RENAMED_SETTINGS.items()},
}
"""Flag of each former flag without its hyphens."""


class UnknownFlagError(InputError):
    """A flag that a subcommand does not have."""

    def __init__(self, flag_text: str, verb: str, flags: Collection[str]) -> None:
        """The message knows the flags of this subcommand; `pellucid.cli` replaces it by one that knows them all.

        Args:
            flag_text: The flag as it is written.
            verb: Name of the subcommand.
            flags: All flags of the subcommand.
        """
        self.flag_text, self.verb, self.flags = flag_text, verb, flags
        super().__init__(f"{unknown_flag_error(flag_text, flags, {})} (pellucid {verb} --help)")


def unknown_flag_error(flag_text: str, flags: Collection[str], others: Mapping[str, Collection[str]]) -> str:
    """Return the message about a flag that a subcommand does not have.

    Args:
        flag_text: The flag as it is written, with one or two hyphens.
        flags: All flags of the subcommand.
        others: Flags of each other subcommand, by its name.

    Returns:
        The present name of a former flag, the flag here for a flag of another program, a flag that differs by one edit
        or has more words, the other subcommands with the flag, or only that it does not exist.
    """
    text, name = abbreviate(flag_text), re.sub(r"[_-]+", "-", flag_text).strip("-").lower()
    if f"--{name}" in flags and not flag_text.startswith("--"):
        return f"{text} is --{name} here"
    if renamed := RENAMED_FLAGS.get(name):
        flag = renamed.replace("--no-", "--", 1)
        place = "" if flag in flags else _foreign_text((flag,), flags, others).removeprefix(f" is {flag}")
        return f"there is no flag {text}; its name is now {renamed}{place}"
    if name in FOREIGN_FLAGS:
        return f"{text}{_foreign_text(FOREIGN_FLAGS[name], flags, others)}"
    similar = similar_flags(name, flags)
    if similar:
        return f"there is no flag {text}; did you mean {' or '.join(map(quote, similar))}?"
    if name.startswith("attention."):
        return f"there is no flag {text}; {NO_SETTINGS}"
    homes = [verb for verb, names in others.items() if f"--{name}" in names]
    return f"there is no flag {text}{f'; it is a flag of {_join_subcommands(homes)}' if homes else ''}"


def _foreign_text(uses: Iterable[str], flags: Collection[str], others: Mapping[str, Collection[str]]) -> str:
    """Return how the subcommand does what a flag of another program does, as the end of a message."""
    for use in uses:
        if not use.startswith("--"):
            return f": {use}"
        if _has_flags(flags, use):
            return f" is {use} here"
    use = next(iter(uses))
    homes = [verb for verb, names in others.items() if _has_flags(names, use)]
    return f" is {use} of {_join_subcommands(homes) if homes else 'another subcommand'}"


def _has_flags(flags: Collection[str], use: str) -> bool:
    """Return whether a subcommand has all flags in a piece of a command line."""
    return all(word in flags for word in use.split() if word.startswith("--"))


def _join_subcommands(names: Iterable[str]) -> str:
    """Return names of subcommands as text: pellucid train, tune."""
    return f"pellucid {', '.join(names)}"


def similar_flags(name: str, flags: Iterable[str]) -> list[str]:
    """Return the flags that an unknown flag may mean; none if there are more than `MAX_SUGGESTIONS`.

    A flag within one edit is alone. Otherwise each word of the unknown flag is a word of the flag, in any order, and
    one of them is not generic. Flags with a section count only if no flag without one is similar.

    Args:
        name: Unknown flag without hyphens at its start.
        flags: Flags of the subcommand.
    """
    hidden = {target for targets in SETTING_FLAGS.values() for target in targets} if "." not in name else set()
    candidates = [flag for flag in flags if flag not in hidden]
    close = [flag for flag in candidates if is_one_edit(name, flag.lstrip("-"))]
    if close:
        return close[:MAX_SUGGESTIONS]
    words = re.split(r"[-.]", name)
    if not set(words) - GENERIC_WORDS:
        return []
    similar = [flag for flag in candidates if _has_words(words, re.split(r"[-.]", flag.lstrip("-")))]
    similar = [flag for flag in similar if "." not in flag] or similar
    return similar if len(similar) <= MAX_SUGGESTIONS else []


def _has_words(words: Iterable[str], flag_words: Collection[str]) -> bool:
    """Return whether each word is one of a flag, but for one edit in each."""
    return all(any(word == other or is_one_edit(word, other) for other in flag_words) for word in words)


def is_one_edit(word: str, other: str) -> bool:
    """Return whether two words differ by one insertion, deletion, substitution or transposition after the first letter.

    Args:
        word: The written word; a word of fewer than `MIN_EDIT_LENGTH` characters is never close to another one.
        other: The right word.
    """
    if min(len(word), len(other)) < MIN_EDIT_LENGTH - 1 or max(len(word), len(other)) < MIN_EDIT_LENGTH:
        return False
    if word == other or word[0] != other[0] or abs(len(word) - len(other)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    rest, other_rest = word[start:], other[start:]
    if len(word) < len(other):
        return rest == other_rest[1:]
    if len(word) > len(other):
        return rest[1:] == other_rest
    return rest[1:] == other_rest[1:] or (rest[:2] == other_rest[1::-1] and rest[2:] == other_rest[2:])
