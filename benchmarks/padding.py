"""Padding of the batches of an epoch: percentage of source and target positions that hold no symbol.

    python benchmarks/padding.py FILE --target-symbols words --pairs 10000 --pools 128 256 512

FILE has a source and a target in each line, with a tab between. Batches have the default size of that many pairs, and
are those of the first epochs of a training. Without `--pools`, the pools have the default size; with it, the examples
of that many batches are sorted by length together. A line is printed for each size of the pools. docs/log.md has
results.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pellucid.config.settings import DataConfig
from pellucid.data import batches
from pellucid.data.encoding import EncodedExamples, to_ragged
from pellucid.data.examples import read_examples
from pellucid.data.tokenizers import build_tokenizers
from pellucid.training.training_length import derived_batch_size

EPOCHS = 3
"""Number of epochs of which the mean is taken."""


def read_lengths(path: Path, config: DataConfig, pairs: int | None, seed: int) -> EncodedExamples:
    """Return sequences with the lengths of the sources and targets of a file; their symbols are all 0.

    Args:
        path: The file.
        config: Symbols of sources and targets.
        pairs: Number of pairs, drawn at random; None for all.
        seed: Seed of the draw.
    """
    examples, tokenizers = read_examples(path, config).examples, build_tokenizers(config)
    if pairs is not None:
        examples = random.Random(seed).sample(examples, pairs)
    sources = [[0] * len(tokenizers.source.split(example.source)) for example in examples]
    targets = [[0] * (len(tokenizers.target.split(example.target)) + 1) for example in examples]  # with EOS
    return EncodedExamples(to_ragged(sources), to_ragged(targets))


def measure_padding(encoded: EncodedExamples, batch_size: int, seed: int) -> tuple[float, float]:
    """Return the percentages of source and target positions that are padding, in the first epochs.

    Args:
        encoded: The examples.
        batch_size: Number of examples of a batch.
        seed: Seed of the batches.
    """
    shares = []
    for lengths in (encoded.source.lengths, encoded.target.lengths):
        padded = sum(
            len(rows) * int(lengths[rows].max())
            for epoch in range(EPOCHS)
            for rows in batches.bucket_by_length(encoded, batch_size, "examples", seed, epoch)
        )
        shares.append(100 * (1 - EPOCHS * int(np.sum(lengths)) / padded))
    return shares[0], shares[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each size of the pools.

    Args:
        arguments: Command-line arguments; those of the process by default.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="file of pairs")
    parser.add_argument("--source-symbols", default="characters", help="symbols of sources, as of pellucid train")
    parser.add_argument("--target-symbols", default="characters", help="symbols of targets")
    parser.add_argument("--pairs", type=int, help="number of pairs, drawn at random (all by default)")
    parser.add_argument("--batch-size", type=int, help="pairs of a batch (derived from the number of pairs by default)")
    parser.add_argument("--pools", type=int, nargs="+", default=[], help="sizes of pools in batches")
    parser.add_argument("--seed", type=int, default=1, help="random seed")
    args = parser.parse_args(arguments)
    config = DataConfig(source_symbols=args.source_symbols, target_symbols=args.target_symbols)
    encoded = read_lengths(args.file, config, args.pairs, args.seed)
    size = args.batch_size or derived_batch_size(encoded.source.num_sequences)
    print(f"{encoded.source.num_sequences:,} pairs, batches of {size}")
    for pool in args.pools or [None]:
        if pool is not None:
            batches.MIN_POOL_BATCHES = batches.MAX_POOL_BATCHES = pool
        source, target = measure_padding(encoded, size, args.seed)
        name = "default pools" if pool is None else f"pools of {pool:,} batches"
        print(f"{name}: {source:.1f} % of source positions, {target:.1f} % of target positions")


if __name__ == "__main__":
    main()
