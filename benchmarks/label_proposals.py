"""Learning curves of proposed sources (`pellucid audit --next`) and of random ones.

    python benchmarks/label_proposals.py DATA [--sets fre hun slv] [--start 200] [--step 200] [--rounds 6]
        [--seeds 1 2 3]

DATA is the folder of the public sets. A random tenth of the pairs is the test set, and the others are the pool. The
first pairs are chosen at random; then each round adds the pairs of the proposed sources, or random ones. After each
round a pair n-gram model is fitted to all labeled pairs. One line of JSON is printed per set, choice and number of
labeled pairs: the exact match on the test set in percent, mean over the seeds. A set has at most 6,000 pairs.
"""

import argparse
import json
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from audit import read_set

from pellucid.auditing.label_proposals import propose_sources
from pellucid.auditing.out_of_fold_scores import fit_pair_ngram
from pellucid.auditing.types import AuditEntry, AuditOptions
from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.examples import Example

MAX_PAIRS = 6_000
"""Maximum number of pairs of a set, chosen at random."""
CHOICES = ("random", "proposed", "least certain")
"""Choices of sources; the last one is the same without leaving out near duplicates."""


def exact_match(labeled: Sequence[Example], test: Sequence[Example], config: Config) -> float:
    """Return the percentage of test sources whose best output is their target."""
    predictor = fit_pair_ngram(labeled, config.data)
    if predictor is None:
        return 0.0
    outputs = predictor.nbest(test, 1)
    split = predictor.tokenizers.target.split
    hits = [bool(found) and list(found[0]) == split(pair.target) for found, pair in zip(outputs, test, strict=True)]
    return 100 * sum(hits) / len(hits)


def choose(choice: str, labeled: list[Example], pool: list[Example], count: int, config: Config) -> list[Example]:
    """Return the next pairs of the pool, which is in random order."""
    if choice == "random":
        return pool[:count]
    entries = [AuditEntry(number, pair) for number, pair in enumerate(labeled, 1)]
    unlabeled = [AuditEntry(number, pair) for number, pair in enumerate(pool)]
    distance = {} if choice == "proposed" else {"min_distance": 0.0}
    proposals = propose_sources(entries, unlabeled, count, config, AuditOptions(), **distance)
    return [pool[proposal.entry.line] for proposal in proposals]


def main() -> None:
    """Print the learning curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["fre", "hun", "slv"])
    parser.add_argument("--start", type=int, default=200)
    parser.add_argument("--step", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    args = parser.parse_args()
    for name in args.sets:
        pairs, target_symbols = read_set(name, args.data)
        pairs = list({pair.source: pair for pair in pairs}.values())
        config = build_config({"size": "small", "data": {"target_symbols": target_symbols}}, "benchmark")
        curves = defaultdict[tuple[int, str], list[float]](list)
        for seed in args.seeds:
            shuffled = random.Random(seed).sample(pairs, min(MAX_PAIRS, len(pairs)))
            test, rest = shuffled[: len(shuffled) // 10], shuffled[len(shuffled) // 10 :]
            for choice in CHOICES:
                labeled, pool = rest[: args.start], rest[args.start :]
                for _ in range(args.rounds + 1):
                    curves[len(labeled), choice].append(exact_match(labeled, test, config))
                    chosen = choose(choice, labeled, pool, args.step, config)
                    labeled = [*labeled, *chosen]
                    taken = {pair.source for pair in chosen}
                    pool = [pair for pair in pool if pair.source not in taken]
        for (count, choice), values in sorted(curves.items()):
            record = {"set": name, "labeled": count, "choice": choice, "seeds": len(values)}
            deviation = round(statistics.stdev(values), 1) if len(values) > 1 else 0.0
            print(json.dumps({**record, "exact_match": round(statistics.mean(values), 1), "deviation": deviation}))


if __name__ == "__main__":
    main()
