"""Exact match of an unfinished training by the weight of its pair n-gram model in predictions.

    python benchmarks/provisional_weight.py TABLE TEST FOLDER --pairs 3000 --seed 1

TABLE and TEST are tables of words and pronunciations, such as those of examples/english. A network of size small is
trained in the new folder FOLDER on some pairs of TABLE, drawn by the seed, and validated on 500 others. Its saved model
is decoded on TEST after the epochs 1, 2, 4 and 8, where the training ends. One line of JSON is printed for each of
these epochs: the exact match of the validation and of the pair n-gram model there, the percentage of correct test words
by each weight, and last by the weight of predictions (`provisional_weight`). docs/ablations.md has the results.
"""

import argparse
import csv
import json
import random
import shutil
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import pellucid
from pellucid.data.examples import Example
from pellucid.decoding.pair_ngram_interpolation import CandidateScores
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.run_folder.log import load_run_log
from pellucid.training.events import RunEvent, UpdateCompleted, ValidationCompleted

EPOCHS = (1, 2, 4, 8)
WEIGHTS = (0.0, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)
"""Weights that are compared with that of `provisional_weight`."""
NUM_VALIDATION = 500
DATA = {"source_column": "word", "target_column": "pronunciation", "target_symbols": "words"}


class ModelCopier:
    """Callback that copies the run folder after some epochs, and interrupts the training after the last of them."""

    def __init__(self) -> None:
        """Begin before the first epoch."""
        self.epoch = 0
        self.copies = dict[int, Path]()

    def on_event(self, folder: Path, event: RunEvent) -> bool:
        """Copy the folder at the first update after a validation, when its model is written."""
        if isinstance(event, ValidationCompleted):
            self.epoch = event.progress.validations
        elif isinstance(event, UpdateCompleted) and self.epoch in EPOCHS and self.epoch not in self.copies:
            self.copies[self.epoch] = folder.parent / f"epoch-{self.epoch}"
            shutil.copytree(folder, self.copies[self.epoch])
        return max(EPOCHS) in self.copies


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return the words and pronunciations of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["word"], row["pronunciation"]) for row in csv.DictReader(file)]


def percentages(folder: Path, test: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Return the percentage of words whose best output is one of their pronunciations, by each weight, and the weight
    of predictions."""
    references = defaultdict[str, set[str]](set)
    for word, pronunciation in test:
        references[word].add(pronunciation)
    predictor = require_transducer(pellucid.load(folder), "FOLDER")
    found = predictor.ranked_outputs([Example(word, "") for word in references])

    def right(weight: float) -> float:
        """Return the percentage by a weight."""
        best = [best_output(traces, weight) for traces in found]
        hits = [output in references[word] for word, output in zip(references, best, strict=True)]
        return round(100 * float(np.mean(hits)), 1)

    by_weight = {f"{weight:g}": right(weight) for weight in WEIGHTS}
    return {**by_weight, "weight": predictor.pair_ngram_weight, "predictions": right(predictor.pair_ngram_weight)}


def best_output(traces: Sequence[Trace], weight: float) -> str:
    """Return the best candidate of a word by a weight of the pair n-gram model."""
    # With the provisional weight above 0, the candidates are in another order than that of the network's search.
    scores = CandidateScores(
        np.array([trace.score for trace in traces]),
        np.array([trace.pair_ngram_score or 0.0 for trace in traces]),
        np.array([trace.finished for trace in traces], np.bool_),
    )
    return traces[scores.best(weight or 1e-9)].output


def main() -> None:
    """Train, decode and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, metavar="TABLE", help="training words: CSV with word and pronunciation")
    parser.add_argument("test", type=Path, metavar="TEST", help="test words, in the same form")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="new folder of the run")
    parser.add_argument("--pairs", type=int, default=3000, help="number of training pairs (3000 by default)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the training and of its pairs (1 by default)")
    args = parser.parse_args()
    pairs, copier = read_pairs(args.table), ModelCopier()
    random.Random(args.seed).shuffle(pairs)
    test = read_pairs(args.test)
    train, valid = pairs[: args.pairs], pairs[args.pairs : args.pairs + NUM_VALIDATION]
    settings = {"size": "small", "seed": args.seed, "threads": 1, "data": {"target_symbols": "words"}}
    warnings.simplefilter("ignore", UserWarning)  # unfinished trainings
    pellucid.train(train, valid, args.folder / "run", settings, progress=False, callbacks=[copier])
    log = load_run_log(args.folder / "run")
    fitted = log.first("pair_ngram")
    for epoch, folder in copier.copies.items():
        validated = load_run_log(folder).last_best
        assert fitted is not None and validated is not None, "the training has a validation and a pair n-gram model"
        scores = {"validation": validated["exact_match"], "pair_ngram_validation": fitted["exact_match"]}
        print(json.dumps({"epoch": epoch, **scores, **percentages(folder, test)}), flush=True)


if __name__ == "__main__":
    main()
