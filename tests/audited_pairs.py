"""A small dictionary with known errors, for the tests of audits."""

from collections.abc import Sequence
from functools import cache
from itertools import product

from pellucid.auditing.audit import audit_entries
from pellucid.auditing.types import AuditEntry, AuditOptions, AuditReport
from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.examples import Example

LETTERS = "abcdefg"


def spelled_pairs(count: int = 300) -> list[Example]:
    """Return words of three to five letters with their letters in upper case between spaces."""
    words = ["".join(word) for length in (3, 4, 5) for word in product(LETTERS, repeat=length)]
    chosen = words[:: max(1, len(words) // count)][:count]
    return [Example(word, " ".join(word.upper())) for word in chosen]


def word_config(size: str = "tiny") -> Config:
    """Return a configuration whose target symbols are words."""
    return build_config({"size": size, "data": {"target_symbols": "words", "on_bad_line": "skip"}}, "test")


def make_entries(examples: Sequence[Example]) -> list[AuditEntry]:
    """Return examples as entries, with line numbers from 1."""
    return [AuditEntry(line, example) for line, example in enumerate(examples, 1)]


ERRORS = {17: "A B C D E F G", 100: "G G G"}
"""Wrong targets of two rows, from 0."""


@cache
def audited_errors() -> AuditReport:
    """Return the audit of a dictionary with two wrong targets."""
    examples = spelled_pairs()
    for row, target in ERRORS.items():
        examples[row] = examples[row]._replace(target=target)
    return audit_entries(make_entries(examples), word_config(), AuditOptions())
