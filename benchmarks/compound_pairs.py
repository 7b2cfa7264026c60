"""Pairs of two random entries of a dictionary each, for measurements with more pairs than real data has.

    python benchmarks/compound_pairs.py DICTIONARY --pairs 20000000 --out pairs.tsv

DICTIONARY is a TSV file with a source and a target per line, such as data/100000/train.tsv of the recipe g2p-cmudict.
The source of a pair is two sources with a hyphen between them, and its target the two targets with a space between
them. The same dictionary, number of pairs and seed give the same file.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    """Write the pairs.

    Args:
        arguments: Command-line arguments.

    Returns:
        0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dictionary", type=Path, help="TSV file with a source and a target per line")
    parser.add_argument("--pairs", type=int, required=True, help="number of pairs")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random entries")
    parser.add_argument("--out", type=Path, required=True, help="TSV file of the pairs")
    options = parser.parse_args(arguments)
    entries = [line.split("\t") for line in options.dictionary.read_text("utf-8").splitlines()]
    with options.out.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(compound_lines(entries, options.pairs, options.seed))
    return 0


def compound_lines(entries: Sequence[Sequence[str]], num_pairs: int, seed: int) -> Iterator[str]:
    """Yield the lines of the pairs.

    Args:
        entries: Source and target of each entry of the dictionary.
        num_pairs: Number of pairs.
        seed: Seed of the random entries.
    """
    generator = random.Random(seed)
    for _ in range(num_pairs):
        (source_a, target_a), (source_b, target_b) = generator.choices(entries, k=2)
        yield f"{source_a}-{source_b}\t{target_a} {target_b}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
