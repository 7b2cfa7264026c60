"""A small word list for the tests of the typo recipes."""

import random
from pathlib import Path

SYLLABLES = ["ba", "co", "di", "fer", "gu", "lan", "mo", "ne", "pis", "tor"]


def write_word_list(path: Path) -> Path:
    """Write a list of generated words and candidates for the post's words; return its path."""
    generator = random.Random(1)
    generated = {"".join(generator.choices(SYLLABLES, k=generator.randint(2, 6))) for _ in range(160)}
    candidates = {"bank", "bark", "downstairs", "table", "tally", "wants", "wretch", "bookcase", "parental"}
    path.write_text("".join(f"{word}\n" for word in sorted(generated | candidates)))
    return path
