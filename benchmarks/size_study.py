"""Study of the default size: networks of each size on subsets of different numbers of pairs, with several seeds.

    python benchmarks/size_study.py train DATA --out DIR --pairs 1000 3000 10000 30000 \\
        --sizes small base large --seeds 1 2 3
    python benchmarks/size_study.py report --out DIR --figure FILE.svg

DATA has a folder for each number of pairs, with train.tsv and dev.tsv, as `pellucid recipe g2p-cmudict` writes them.
Each training is `pellucid train` with the defaults of its size on one thread; the outputs for the sources of dev.tsv,
which are called words here, are wrong if they equal none of the targets of their word. The wrong words and the CPU
seconds are kept in a file for each training. So an interrupted study continues with the training that was interrupted,
which begins anew, and several processes can train different seeds at once. --options, last, replaces
`--target-symbols words` for other pairs.

The report has the mean word error rate over the seeds, with the network alone and with the pair n-gram model. The 95 %
interval is a bootstrap over words and seeds; that of the difference of two sizes draws the same words for both.
"""

import argparse
import csv
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.files import write_json
from pellucid.shapes import Bool

RESAMPLES = 2000
RANKINGS = {"with the pair n-gram model": [], "network alone": ["--no-pair-ngram"]}
"""Options of `pellucid evaluate` for each kind of score."""


class Training(NamedTuple):
    """One training of the study."""

    pairs: int
    size: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder and of its results."""
        return f"{self.pairs}-{self.size}-{self.seed}"


def run_pellucid(*arguments: str | Path) -> float:
    """Run a command of Pellucid on one thread, and return its CPU seconds.

    Args:
        arguments: The arguments.

    Raises:
        CalledProcessError: It failed.
    """
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "pellucid", *map(str, arguments)], env=environment, check=True, stdout=2)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


def read_sources(path: Path) -> list[str]:
    """Return the different sources of a file of pairs, in order.

    Args:
        path: The file.
    """
    return [*dict.fromkeys(line.partition("\t")[0] for line in path.read_text("utf-8").splitlines())]


def measure(training: Training, data: Path, out: Path, options: Sequence[str]) -> dict[str, Any]:
    """Train, decode the validation words twice, and return the wrong words and the CPU seconds.

    Args:
        training: The training.
        data: Folder with the subsets.
        out: Folder of the study.
        options: Options of `pellucid train`, beside the size and the seed.
    """
    run, folder = out / "runs" / training.name, data / str(training.pairs)
    shutil.rmtree(run, ignore_errors=True)  # of an interrupted training: its CPU seconds are not known
    valid = folder / "dev.tsv"
    command: list[str | Path] = ["train", folder / "train.tsv", "--valid", valid, "--run", run]
    settings = ["--size", training.size, "--seed", str(training.seed), *options]
    result: dict[str, Any] = {**training._asdict(), **describe_question(training, data, options)}
    result |= {"seconds": run_pellucid(*command, *settings), "wrong": {}}
    for ranking, arguments in RANKINGS.items():
        errors = run / "errors.csv"
        run_pellucid("evaluate", run, valid, "--multi-reference", "--errors", errors, *arguments)
        with errors.open(encoding="utf-8", newline="") as file:
            result["wrong"][ranking] = sorted({row["source"] for row in csv.DictReader(file)})
    return result


def describe_question(training: Training, data: Path, options: Sequence[str]) -> dict[str, Any]:
    """Return what the result of a training depends on, beside its number of pairs, size and seed.

    Args:
        training: The training.
        data: Folder with the subsets.
        options: Options of `pellucid train`.
    """
    return {"data": str((data / str(training.pairs)).resolve()), "options": [*options]}


def train_missing(trainings: Sequence[Training], data: Path, out: Path, options: Sequence[str]) -> None:
    """Make the trainings that have no result.

    Args:
        trainings: All trainings.
        data: Folder with the subsets.
        out: Folder of the study.
        options: Options of `pellucid train`.

    Raises:
        SystemExit: A result is of other data or options.
    """
    for training in trainings:
        path = out / "results" / f"{training.name}.json"
        if not path.exists():
            write_json(path, measure(training, data, out, options))
            continue
        result, question = json.loads(path.read_text("utf-8")), describe_question(training, data, options)
        if different := [key for key, value in question.items() if result.get(key) != value]:
            sys.exit(f"{path} is of other {' and '.join(different)}: remove it or give another --out")


def outcomes(results: Sequence[Mapping[str, Any]], words: Sequence[str], ranking: str) -> Bool[np.ndarray, "N W"]:
    """Return whether the output of each of the W words is wrong, with each of N seeds.

    Args:
        results: Results of one network, with each seed.
        words: All words.
        ranking: Kind of score.
    """
    return np.array([np.isin(words, result["wrong"][ranking]) for result in results])


def resample(wrong: Bool[np.ndarray, "N W"], seed: int = 1) -> np.ndarray:
    """Return error rates in percent of bootstrap samples of words and seeds; the words are the same for all networks.

    Args:
        wrong: Outcomes.
        seed: Random seed of the seeds' samples.
    """
    words, seeds = np.random.default_rng(0), np.random.default_rng(seed)
    num_seeds, num_words = wrong.shape
    rates = []
    for _ in range(RESAMPLES):
        chosen = words.integers(num_words, size=num_words)
        rates.append(100 * wrong[seeds.integers(num_seeds, size=num_seeds)][:, chosen].mean())
    return np.array(rates)


def format_interval(values: np.ndarray) -> str:
    """Return a 95 % interval.

    Args:
        values: Bootstrap values.
    """
    low, high = np.percentile(values, [2.5, 97.5])
    return f"{low:.2f} to {high:.2f}"


def format_report(results: Sequence[Mapping[str, Any]], words: Sequence[str]) -> str:
    """Return the table: each size at each number of pairs, and its difference from `base`.

    Args:
        results: All results.
        words: Validation words.
    """
    titles = " | ".join(f"{ranking} | minus base" for ranking in RANKINGS)
    lines = [f"| pairs | size | seeds | {titles} | CPU seconds |"]
    lines.append("|--:|---|--:|" + "--:|--:|" * len(RANKINGS) + "--:|")
    for (pairs, size), group in group_results(results).items():
        base = group_results(results).get((pairs, "base"), [])
        cells = [f"{pairs:,}", f"`{size}`", str(len(group))]
        for ranking in RANKINGS:
            wrong = outcomes(group, words, ranking)
            rates = resample(wrong)
            cells.append(f"{100 * wrong.mean():.2f} ({format_interval(rates)})")
            other = outcomes(base, words, ranking) if base and size != "base" else None
            difference = None if other is None else f"{100 * (wrong.mean() - other.mean()):+.2f}"
            cells.append("" if other is None else f"{difference} ({format_interval(rates - resample(other, seed=2))})")
        seconds = np.mean([result["seconds"] for result in group])
        lines.append(f"| {' | '.join([*cells, f'{seconds:,.0f}'])} |")
    return "\n".join(lines)


def group_results(results: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], list[Mapping[str, Any]]]:
    """Return the results of each number of pairs and size, smallest first.

    Args:
        results: All results.
    """
    sizes = ("tiny", "small", "base", "large")
    ordered = sorted(results, key=lambda result: (result["pairs"], sizes.index(result["size"]), result["seed"]))
    groups = itertools.groupby(ordered, key=lambda result: (result["pairs"], result["size"]))
    return {key: list(group) for key, group in groups}


def draw(results: Sequence[Mapping[str, Any]], words: Sequence[str], path: Path) -> None:
    """Draw the word error rate against the number of pairs, a curve for each size and kind of score.

    Args:
        results: All results.
        words: Validation words.
        path: The figure, as SVG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    colors = {"tiny": "#888888", "small": "#1b7837", "base": "#2166ac", "large": "#b2182b"}
    groups = group_results(results)
    for ranking, style in zip(RANKINGS, ("-", "--"), strict=True):
        for size in dict.fromkeys(size for _, size in groups):
            points = []
            for (pairs, each), group in groups.items():
                if each == size:
                    wrong = outcomes(group, words, ranking)
                    points.append((pairs, 100 * wrong.mean(), *np.percentile(resample(wrong), [2.5, 97.5])))
            pairs, rates, low, high = np.array(points).T
            bounds, label = (rates - low, high - rates), f"{size}, {ranking}"
            axes.errorbar(pairs, rates, bounds, color=colors[size], linestyle=style, capsize=2, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("training pairs")
    axes.set_ylabel("word error rate of the validation words, %")
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    """Make the missing trainings, or print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    train, report = commands.add_parser("train"), commands.add_parser("report")
    train.add_argument("data", type=Path)
    train.add_argument("--pairs", type=int, nargs="+", default=[1000, 3000, 10_000, 30_000])
    train.add_argument("--sizes", nargs="+", default=["small", "base", "large"])
    train.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    pronunciations = ["--target-symbols", "words"]
    train.add_argument("--options", nargs=argparse.REMAINDER, default=pronunciations, help="options of pellucid train")
    report.add_argument("--figure", type=Path)
    for each in (train, report):
        each.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    folder: Path = args.out / "results"
    folder.mkdir(parents=True, exist_ok=True)
    if args.command == "train":
        write_json(args.out / "words.json", read_sources(args.data / str(args.pairs[0]) / "dev.tsv"))
        cells = itertools.product(args.seeds, args.pairs, args.sizes)
        trainings = [Training(pairs, size, seed) for seed, pairs, size in cells]
        train_missing(trainings, args.data, args.out, args.options)
        return
    results = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    words = json.loads((args.out / "words.json").read_text("utf-8"))
    print(format_report(results, words))
    if args.figure:
        draw(results, words, args.figure)


if __name__ == "__main__":
    main()
