"""Study of the default size: networks of each size on subsets of different numbers of pairs, with several seeds.

    python benchmarks/size_study.py train DATA --out DIR --pairs 1000 3000 10000 30000 \\
        --sizes small base large --seeds 1 2 3
    python benchmarks/size_study.py report --out DIR --figure FILE.svg
    python benchmarks/size_study.py report --tasks NAME=DIR NAME=DIR ... --figure FILE.svg
    python benchmarks/size_study.py report --settings defaults=DIR NAME=DIR ...

DATA has a folder for each number of pairs, with train.tsv and dev.tsv, as `pellucid recipe g2p-cmudict` writes them.
They have two columns, and all dev.tsv have the same sources, which are called words here. Each training is `pellucid
train` with the defaults of its size on one thread; the output for a word is wrong if it equals none of its targets. The
wrong words, the CPU seconds, checksums of the data and a description of the training are kept in a file for each
training. So an interrupted study continues with the training that was interrupted, which begins anew, and several
processes can train different seeds at once. --options, last, replaces `--target-symbols words` for other pairs.

The report has the mean word error rate over the seeds, with the network alone and with the pair n-gram model, of one
study or of the studies of several tasks. The 95 % interval is a bootstrap over words and seeds; that of the difference
of two sizes draws the same words for both. With --settings, each study has other --options, and the difference is that
from the first study. Columns that results of an earlier version lack are "not recorded".
"""

import argparse
import csv
import hashlib
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

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.size_report import (  # noqa: E402
    RANKINGS,
    check_wrong_words,
    describe_run,
    draw,
    format_report,
    format_settings_report,
    read_study,
    read_words,
)
from pellucid.files import write_json  # noqa: E402

DATA_FILES = ("train.tsv", "dev.tsv")


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
    """Run a command of Pellucid, in the version of this checkout, on one thread, and return its CPU seconds.

    Args:
        arguments: The arguments.

    Raises:
        CalledProcessError: It failed.
    """
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "pellucid", *map(str, arguments)]
    subprocess.run(command, env=environment, check=True, stdout=2)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


def measure(training: Training, data: Path, out: Path, options: Sequence[str], words: Sequence[str]) -> dict[str, Any]:
    """Train, decode the validation words twice, and return the wrong words and the CPU seconds.

    Args:
        training: The training.
        data: Folder with the subsets.
        out: Folder of the study.
        options: Options of `pellucid train`, beside the size and the seed.
        words: Validation words.

    Raises:
        SystemExit: A wrong word is not among the words.
    """
    run, folder = out / "runs" / training.name, data / str(training.pairs)
    shutil.rmtree(run, ignore_errors=True)  # of an interrupted training: its CPU seconds are not known
    train, valid = (folder / name for name in DATA_FILES)
    command: list[str | Path] = ["train", train, "--valid", valid, "--run", run]
    settings = ["--size", training.size, "--seed", str(training.seed), *options]
    result: dict[str, Any] = {**training._asdict(), **describe_inputs(training, data, options)}
    result |= {"seconds": run_pellucid(*command, *settings), "wrong": {}}
    for ranking, arguments in RANKINGS.items():
        errors = run / "errors.csv"
        run_pellucid("evaluate", run, valid, "--multi-reference", "--errors", errors, *arguments)
        with errors.open(encoding="utf-8", newline="") as file:
            result["wrong"][ranking] = sorted({row["source"] for row in csv.DictReader(file)})
    check_wrong_words(result, words, training.name)
    return {**result, "description": describe_run(run, train)._asdict()}


def describe_inputs(training: Training, data: Path, options: Sequence[str]) -> dict[str, Any]:
    """Return what the result of a training depends on, beside its number of pairs, size and seed.

    Args:
        training: The training.
        data: Folder with the subsets.
        options: Options of `pellucid train`.
    """
    folder = (data / str(training.pairs)).resolve()
    checksums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in DATA_FILES}
    return {"data": str(folder), "checksums": checksums, "options": [*options]}


def has_result(path: Path, inputs: Mapping[str, Any]) -> bool:
    """Return whether a training has a result.

    Args:
        path: File of its result. Results of earlier versions have no checksums, so the path of their data is compared.
        inputs: What the result depends on.

    Raises:
        SystemExit: The result belongs to other data or options.
    """
    if not path.exists():
        return False
    result = json.loads(path.read_text("utf-8"))
    keys = {"data": "checksums" if "checksums" in result else "data", "options": "options"}
    if different := [name for name, key in keys.items() if result.get(key) != inputs[key]]:
        sys.exit(f"{path} belongs to other {' and '.join(different)}: remove it or give another --out")
    return True


def find_words(trainings: Sequence[Training], data: Path, out: Path) -> list[str]:
    """Return the validation words, which are those of all subsets and of the earlier results of the study.

    Args:
        trainings: All trainings.
        data: Folder with the subsets.
        out: Folder of the study.

    Raises:
        SystemExit: The words of a subset differ from those of another one or of the study.
    """
    origin = out / "words.json"
    found = json.loads(origin.read_text("utf-8")) if origin.exists() else None
    for pairs in dict.fromkeys(training.pairs for training in trainings):
        path = data / str(pairs) / "dev.tsv"
        words = read_words(path)
        if found is None:
            found, origin = words, path
        if words != found:
            sys.exit(f"{path} and {origin} have different words: give another --out")
    return found or []


def train_missing(trainings: Sequence[Training], data: Path, out: Path, options: Sequence[str]) -> None:
    """Run the missing trainings. The words of the study are written after all results have been checked.

    Args:
        trainings: All trainings.
        data: Folder with the subsets.
        out: Folder of the study.
        options: Options of `pellucid train`.

    Raises:
        SystemExit: A result belongs to other data or options, or to other words.
    """
    missing = []
    for training in trainings:
        path, inputs = out / "results" / f"{training.name}.json", describe_inputs(training, data, options)
        if not has_result(path, inputs):
            missing.append((training, path, inputs))
    words = find_words(trainings, data, out)
    (out / "results").mkdir(parents=True, exist_ok=True)
    write_json(out / "words.json", words)
    for training, path, inputs in missing:
        if not has_result(path, inputs):  # of another process
            write_json(path, measure(training, data, out, options, words))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    train, report = commands.add_parser("train"), commands.add_parser("report")
    train.add_argument("data", type=Path)
    train.add_argument("--pairs", type=int, nargs="+", default=[1000, 3000, 10_000, 30_000])
    train.add_argument("--sizes", nargs="+", default=["small", "base", "large"])
    train.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    train.add_argument("--out", type=Path, required=True)
    pronunciations = ["--target-symbols", "words"]
    train.add_argument("--options", nargs=argparse.REMAINDER, default=pronunciations, help="options of pellucid train")
    studies = report.add_mutually_exclusive_group(required=True)
    studies.add_argument("--out", type=Path, help="folder of one study")
    studies.add_argument("--tasks", nargs="+", metavar="NAME=DIR", help="name and folder of the study of each task")
    studies.add_argument("--settings", nargs="+", metavar="NAME=DIR", help="the same for each setting, defaults first")
    report.add_argument("--figure", type=Path)
    return parser


def main(arguments: Sequence[str]) -> None:
    """Run the missing trainings, or print the report.

    Args:
        arguments: Command-line arguments.
    """
    parser = build_parser()
    args = parser.parse_args(arguments)
    if args.command == "train":
        cells = itertools.product(args.seeds, args.pairs, args.sizes)
        trainings = [Training(pairs, size, seed) for seed, pairs, size in cells]
        train_missing(trainings, args.data, args.out, args.options)
        return
    folders = args.tasks or args.settings or [f"{args.out.resolve().name}={args.out}"]
    named = [each.partition("=") for each in folders]
    if not all(folder for _, _, folder in named):
        parser.error("--tasks and --settings: expected NAME=DIR for each study")
    studies = [read_study(Path(folder), name) for name, _, folder in named]
    print(format_settings_report(studies) if args.settings else format_report(studies))
    if args.figure:
        draw(studies, args.figure)


if __name__ == "__main__":
    main(sys.argv[1:])
