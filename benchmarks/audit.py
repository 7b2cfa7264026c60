"""Audits of dictionaries with corrupted targets: how many of the first entries of the worklist are corrupted.

    python benchmarks/audit.py DATA [--sets fre slv eng] [--methods edit-distance pair-ngram network both mean ...]
        [--rates 1 2 5] [--seeds 1 2 3] [--folds 5] [--size small] [--time 2m] [--jobs 2] [--limit N]

DATA is the folder of the public sets. A share of the targets is corrupted: a symbol is replaced by a similar one,
deleted, or inserted, two neighboring symbols are exchanged, or the target is that of the next entry, each as often.
Similar symbols occur beside the same symbols. One line of JSON is printed per set, rate, seed and method: the precision
among the first k entries of the worklist, k the number of corrupted entries, and the average precision, in percent. The
entries of a real dictionary that are wrong before the corruption count as false alarms.

Edit distance is a baseline without alignment: out-of-fold outputs of the pair n-gram model, ranked by their edit
distance to the target, divided by the length of the longer one. The methods "per-root", "per-symbol" and "per-edit"
divide the margin of the pair n-gram model by the root of the target length, by the length, and by the edit distance;
"mean" is the mean of the margins of both kinds of models, "both" the smaller one.
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from pellucid.auditing.folds import assign_folds
from pellucid.auditing.out_of_fold_scores import AuditScores, score_out_of_fold
from pellucid.auditing.types import AuditOptions
from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, build_tokenizers

UNSCORED = 1e-9
"""Suspicion of an entry that no model can score: it comes before those whose targets the models predict."""
KINDS = ("substitution", "deletion", "insertion", "exchange", "other target")
"""Kinds of corruption."""
MIN_COUNT = 5
"""Minimum number of occurrences of a symbol that replaces another one."""
NUM_SIMILAR = 3
"""Number of most similar symbols, by one of which a symbol is replaced."""


class CorruptedSet(NamedTuple):
    """Entries with corrupted targets."""

    examples: list[Example]
    corrupted: list[str]
    """Kind of corruption of each entry; empty for the others."""


def read_set(name: str, data: Path) -> tuple[list[Example], str]:
    """Return the pairs of a set, each once, and the symbols of its targets."""
    if name == "slv":
        files = [data / "histnorm" / "slovene-goo300k-bohoric.train.txt"]
    elif name == "eng":
        files = sorted((data / "g2p-sigmorphon2021" / "high").glob("eng_us_*.tsv"))
    elif name == "hun":
        files = sorted((data / "g2p-sigmorphon2021" / "medium").glob("hun_*.tsv"))
    else:
        files = sorted((data / "g2p-sigmorphon2020").glob(f"*/{name}_*.tsv"))
    rows = [line.split("\t")[:2] for path in files for line in path.read_text("utf-8").splitlines()]
    pairs = dict.fromkeys((row[0], row[1]) for row in rows if len(row) == 2 and row[0] and row[1])
    return [Example(*pair) for pair in sorted(pairs)], "characters" if name == "slv" else "words"


def similar_symbols(targets: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Return, for each symbol, those that are most similar by the symbols beside them (cosine of their counts)."""
    counts = Counter(symbol for target in targets for symbol in target)
    symbols = sorted(counts)
    indices = {symbol: index for index, symbol in enumerate(symbols)}
    contexts = np.zeros((len(symbols), 2 * len(symbols) + 2))
    for target in targets:
        ids = [indices[symbol] for symbol in target]
        for before, symbol, after in zip([len(symbols), *ids], ids, [*ids[1:], len(symbols)], strict=False):
            contexts[symbol, before] += 1
            contexts[symbol, len(symbols) + 1 + after] += 1
    contexts = np.sqrt(contexts)
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    similarity = contexts @ contexts.T
    frequent = [index for index, symbol in enumerate(symbols) if counts[symbol] >= MIN_COUNT]
    found = dict[str, list[str]]()
    for name, index in indices.items():
        others = sorted((other for other in frequent if other != index), key=lambda other: -similarity[index, other])
        found[name] = [symbols[other] for other in others[:NUM_SIMILAR]]
    return found


def corrupt(examples: Sequence[Example], tokenizer: Tokenizer, rate: float, seed: int) -> CorruptedSet:
    """Return examples of which a share has another target."""
    rng = random.Random(seed)
    targets = [tokenizer.split(example.target) for example in examples]
    similar, all_symbols = similar_symbols(targets), [symbol for target in targets for symbol in target]
    changed, kinds = list(examples), [""] * len(examples)
    rows = rng.sample(range(len(examples)), round(rate * len(examples)))
    for number, row in enumerate(rows):
        kind = KINDS[number % len(KINDS)]
        for attempt in range(100):
            symbols, position = list(targets[row]), rng.randrange(len(targets[row]))
            if kind == "substitution":
                symbols[position] = rng.choice(similar[symbols[position]])
            elif kind == "deletion":
                del symbols[position]
            elif kind == "insertion":
                symbols.insert(position, rng.choice(all_symbols))
            elif kind == "exchange":
                symbols[position : position + 2] = symbols[position : position + 2][::-1]
            else:
                symbols = list(targets[(row + 1 + attempt) % len(targets)])
            if symbols and symbols != targets[row]:
                changed[row], kinds[row] = examples[row]._replace(target=tokenizer.join(symbols)), kind
                break
    return CorruptedSet(changed, kinds)


def rank_scores(name: str, scores: AuditScores, examples: Sequence[Example], tokenizer: Tokenizer) -> list[float]:
    """Return the suspicion of each entry by one method; the smallest positive one if no model can score its target."""
    if name == "edit-distance":
        return [
            UNSCORED
            if score is None
            else Levenshtein.normalized_distance(tokenizer.split(score.output), tokenizer.split(example.target))
            for score, example in zip(scores.pair_ngram, examples, strict=True)
        ]
    models = {"network": [scores.network], "both": [scores.pair_ngram, scores.network]}
    models["mean"] = models["both"]
    suspicion = list[float]()
    for example, *row in zip(examples, *models.get(name, [scores.pair_ngram]), strict=True):
        margins = [score.margin for score in row if score is not None]
        if not margins:
            suspicion.append(UNSCORED)
            continue
        target, output = (tokenizer.split(text) for text in (example.target, row[0].output if row[0] else ""))
        divisors = {"per-root": len(target) ** 0.5, "per-symbol": len(target), "mean": 1}
        divisors["per-edit"] = Levenshtein.distance(output, target)
        suspicion.append(
            (sum(margins) / len(margins) if name == "mean" else min(margins)) / max(1, divisors.get(name, 1))
        )
    return suspicion


def evaluate_ranking(suspicion: Sequence[float], corrupted: Sequence[str], seed: int) -> dict[str, float]:
    """Return precision at the number of corrupted entries, and average precision, in percent; ties are shuffled."""
    order = list(range(len(suspicion)))
    random.Random(seed).shuffle(order)
    order.sort(key=lambda row: -suspicion[row])
    hits = np.array([bool(corrupted[row]) for row in order])
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    count = int(hits.sum())
    result = {"precision": precision[count - 1], "average_precision": precision[hits].mean()}
    for kind in KINDS:
        found = [corrupted[row] == kind for row in order[:count]]
        result[f"found: {kind}"] = sum(found) / max(1, corrupted.count(kind))
    return {name: round(100 * float(value), 1) for name, value in result.items()}


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=["fre", "slv", "eng"])
    parser.add_argument("--methods", nargs="+", default=["edit-distance", "pair-ngram", "network", "both"])
    parser.add_argument("--rates", nargs="+", type=float, default=[1, 2, 5])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--size", default="small")
    parser.add_argument("--time", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=int, default=0, help="number of entries, chosen at random; 0: all")
    args = parser.parse_args()
    for name in args.sets:
        examples, target_symbols = read_set(name, args.data)
        if args.limit and args.limit < len(examples):
            examples = sorted(random.Random(1).sample(examples, args.limit))
        settings = {"size": args.size, "data": {"target_symbols": target_symbols}, "training": {}}
        if args.time:
            settings["training"] = {"time_limit": args.time}
        config: Config = build_config(settings, "benchmark")
        tokenizer = build_tokenizers(config.data).target
        for rate in args.rates:
            for seed in args.seeds:
                corrupted = corrupt(examples, tokenizer, rate / 100, seed)
                uses_network = {"network", "both", "mean"} & set(args.methods)
                options = AuditOptions(
                    models="both" if uses_network else "pair-ngram", folds=args.folds, seed=seed, jobs=args.jobs
                )
                started = time.monotonic()
                folds = assign_folds(corrupted.examples, args.folds, seed)
                scores = score_out_of_fold(corrupted.examples, folds, config, options)
                seconds = round(time.monotonic() - started, 1)
                for method in args.methods:
                    suspicion = rank_scores(method, scores, corrupted.examples, tokenizer)
                    result = evaluate_ranking(suspicion, corrupted.corrupted, seed)
                    record = {"set": name, "entries": len(examples), "rate": rate, "seed": seed, "method": method}
                    print(json.dumps({**record, "seconds": seconds, **result}), flush=True)


if __name__ == "__main__":
    main()
