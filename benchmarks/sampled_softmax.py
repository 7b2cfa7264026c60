"""Full and sampled softmax on Spanish sentences with a large target vocabulary: speed, perplexity and BLEU.

    python benchmarks/sampled_softmax.py DATA --run FOLDER [--samples 0 1000 2000 500] [--epochs 0.5]

DATA is the folder of data sets of the recipe spanish-tatoeba, whose settings the trainings have, with words as symbols.
Words that occur fewer than --min-count times are unknown. With the samples of --equal-time, 1000 by default, another
training takes as much CPU time as that with the first number of samples, by more epochs. A finished training is not
repeated, and an interrupted one begins anew. One line of JSON is printed for each training: pairs per CPU-second of its
updates, perplexity of the validation set with the full softmax, and BLEU of the test set with beam size 5, both on the
first --pairs pairs. CPU time is that of one thread.
"""

import argparse
import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from pellucid.files import write_json
from pellucid.model.device import use_threads
from pellucid.recipes.experiments import DataSplits
from pellucid.recipes.recipe import load_recipe_config
from pellucid.recipes.spanish.tatoeba import BEAM_SIZE, NAME, read_tatoeba, score_system, write_pair_files
from pellucid.run_folder.predictor_loader import load
from pellucid.training.events import ModelBuilt, UpdateCompleted, ValidationCompleted
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles

Result = dict[str, Any]


def train(folder: Path, splits: DataSplits, settings: argparse.Namespace, samples: int, epochs: float) -> Result:
    """Train with a number of sampled words, 0 for all, and return the scores; those of an earlier call if there are.

    Raises:
        SystemExit: The folder has the scores of a training with other settings or data.
    """
    run = folder / f"samples-{samples}-epochs-{epochs:g}"
    result_file = run.with_suffix(".json")
    shared = {"data": str(settings.data.resolve()), "min_count": settings.min_count, "untied": settings.untied}
    inputs = {**shared, "seed": settings.seed, "scored_pairs": settings.pairs}
    if result_file.exists():
        result: Result = json.loads(result_file.read_text("utf-8"))
        if different := [key for key, value in inputs.items() if result.get(key) != value]:
            sys.exit(f"{result_file} has other settings ({', '.join(different)}): remove it or give another --run")
        return result
    shutil.rmtree(run, ignore_errors=True)  # of an interrupted training: the CPU seconds of its updates are not known
    symbols = {"source_symbols": "words", "target_symbols": "words", "min_count": settings.min_count}
    training = {"epochs": epochs, "eval_interval": epochs, "sampled_softmax": samples, "snapshots": False}
    config = load_recipe_config(
        NAME,
        {
            "seed": settings.seed,
            "data": symbols,
            "training": training,
            "decoder": {"tie_embeddings": not settings.untied},
        },
    )
    seconds, loss, pairs, words, last = 0.0, math.nan, 0, 0, time.process_time()
    for event in train_run(TrainingFiles(folder / "train.tsv", folder / "dev.tsv"), run, config):
        now = time.process_time()
        match event:
            case ModelBuilt():
                words = len(event.vocabularies.target)
            case UpdateCompleted():
                seconds += now - last
                pairs = event.progress.samples
            case ValidationCompleted():
                loss = event.metrics["loss"]
        last = time.process_time()
    _, scores = score_system(load(run).with_beam(BEAM_SIZE), splits.test, True)
    result = {
        **inputs,
        **{"samples": samples, "epochs": epochs, "words": words, "cpu_seconds": seconds},
        **{"pairs_per_cpu_second": pairs / seconds, "perplexity": math.exp(loss), "bleu": scores.bleu.score},
    }
    write_json(result_file, result)
    return result


def main() -> None:
    """Train with each number of samples, and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--samples", type=int, nargs="+", default=[0, 1000, 2000, 500])
    parser.add_argument("--equal-time", type=int, nargs="*", default=[1000])
    parser.add_argument("--epochs", type=float, default=0.5)
    parser.add_argument("--min-count", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--untied", action="store_true")
    settings = parser.parse_args()
    use_threads(1)
    splits = read_tatoeba(settings.data, 0)
    splits = splits._replace(dev=splits.dev[: settings.pairs], test=splits.test[: settings.pairs])
    splits = write_pair_files(splits, settings.run, as_words=True)
    results: list[Result] = []
    for samples in settings.samples:
        results.append(train(settings.run, splits, settings, samples, settings.epochs))
        print(json.dumps(results[-1]), flush=True)
        if samples in settings.equal_time:
            factor = results[0]["cpu_seconds"] / results[-1]["cpu_seconds"]
            epochs = round(settings.epochs * factor, 2)
            print(json.dumps(train(settings.run, splits, settings, samples, epochs)), flush=True)


if __name__ == "__main__":
    main()
