"""Learning curves of fine-tuning: new words of a language, on models of the same and of a related language.

    python benchmarks/fine_tuning.py DATA --run FOLDER

DATA is the folder of SIGMORPHON 2020 task 1 (train/, dev/ and test/ with {language}_{split}.tsv). The training words
of the language are shuffled by a fixed seed: the new words are the first of the first 2,000, and the model of the same
language is trained on the other 1,600. The model of the related language is trained on all 3,600 words of it. All
trainings have the same validation set, the development words of the language, and are scored on its test words. A
finished training is not repeated. One line of JSON is printed for each training: the error is the word error rate.
"""

import argparse
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pellucid
from pellucid.config.presets import PRESETS

NUM_NEW = 2000
"""Number of words from which the new words are taken."""
SHUFFLE_SEED = 1
KINDS = ("scratch", "same", "mixed", "related")
"""Trainings: a new network, fine-tuning of the same language, with its old words mixed in, and of the related one."""
BASE_TRAINING = {"epochs": 20, "eval_interval": 2.0}
"""Training settings of the models that others begin from; the length is shorter than the default."""


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file."""
    return path.read_text("utf-8").splitlines(keepends=True)


def split_words(data: Path, language: str, folder: Path) -> tuple[list[str], Path]:
    """Return the new words in a random order, and the file of the other words."""
    words = read_lines(data / "train" / f"{language}_train.tsv")
    random.Random(SHUFFLE_SEED).shuffle(words)
    others = folder / f"{language}-others.tsv"
    others.write_text("".join(words[NUM_NEW:]), "utf-8")
    return words[:NUM_NEW], others


def settings(size: str, seed: int, training: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a training."""
    return {
        "size": size,
        "seed": seed,
        "data": {"target_symbols": "words"},
        "training": {"snapshots": False, **training},
    }


def error_rate(predictor: pellucid.Predictor, test: Path) -> float:
    """Return the word error rate on a test file, in percent."""
    pairs = [line.rstrip("\n").split("\t") for line in read_lines(test)]
    traces = predictor.predict([source for source, _ in pairs])
    return 100 * sum(trace.output != target for trace, (_, target) in zip(traces, pairs, strict=True)) / len(pairs)


def trainings(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Train, and yield the score of each training."""
    folder: Path = args.run
    folder.mkdir(parents=True, exist_ok=True)
    new_words, others = split_words(args.data, args.language, folder)
    valid, test = (args.data / split / f"{args.language}_{split}.tsv" for split in ("dev", "test"))
    related_files = [args.data / split / f"{args.related}_{split}.tsv" for split in ("train", "dev")]
    bases = {"same": (others, valid), "related": (related_files[0], related_files[1])}
    runs: dict[str, Path | None] = {"scratch": None}
    for name, (train, base_valid) in bases.items():
        if name not in args.only and not (name == "same" and "mixed" in args.only):
            continue
        runs[name] = base = folder / f"base-{args.language if name == 'same' else args.related}-{name}"
        predictor = pellucid.train(train, base_valid, base, settings(args.size, 1, BASE_TRAINING))
        yield {"training": name, "words": 0, "seed": 1, "error": round(error_rate(predictor, test), 2)}
    rate: float = PRESETS[args.size]["training"]["learning_rate"]
    for count in args.words:
        train = folder / f"{args.language}-{count}.tsv"
        train.write_text("".join(new_words[:count]), "utf-8")
        for seed in range(1, args.seeds + 1):
            for name in args.only:
                initial = runs["same" if name == "mixed" else name]
                mixing = {"mix_in": str(others)} if name == "mixed" else {}
                for factor in [1.0] if initial is None else args.factors:
                    run = folder / f"{args.language}-{count}-{name}-{factor:g}-{seed}"
                    training = {"learning_rate": rate * factor, "eval_interval": 5.0 if count < 1000 else 2.0, **mixing}
                    predictor = pellucid.train(
                        train, valid, run, settings(args.size, seed, training), init_from=initial
                    )
                    error = round(error_rate(predictor, test), 2)
                    yield {"training": name, "words": count, "seed": seed, "factor": factor, "error": error}


def main() -> None:
    """Parse the arguments, and print a line for each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--language", default="ice")
    parser.add_argument("--related", default="dut")
    parser.add_argument("--size", default="small")
    parser.add_argument("--words", type=int, nargs="+", default=[50, 100, 200, 500, 1000, 2000])
    parser.add_argument("--factors", type=float, nargs="+", default=[0.25])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", type=int, default=1)
    for result in trainings(parser.parse_args()):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
