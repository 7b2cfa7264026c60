"""Word error rates and CPU seconds of the trainings of Phonetisaurus and Pellucid on the same pronunciations.

    python benchmarks/peers/pronunciations.py --train FILE --test FILE [--run RUN ...] --out DIR

The files have one word, a tab, and its phones with spaces between per line, or they are CSV files with the columns
"word" and "pronunciation". A word may have several lines; an output is correct if it equals one of them. The folder
DIR gets the outputs and the table.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.peers.install import install  # noqa: E402
from benchmarks.peers.measure import MeasurementError, run_command  # noqa: E402
from benchmarks.peers.phonetisaurus import Phonetisaurus  # noqa: E402
from pellucid.config.settings import DataConfig  # noqa: E402
from pellucid.data.examples import Example, read_examples  # noqa: E402
from pellucid.data.tokenizers import build_tokenizers  # noqa: E402
from pellucid.data.vocabulary import learn_vocabularies  # noqa: E402
from pellucid.evaluation.metrics import wilson_interval  # noqa: E402
from pellucid.pair_ngram.predictor import fit_pair_ngram_predictor  # noqa: E402
from pellucid.run_folder.predictor_loader import load  # noqa: E402

PHONETISAURUS = Phonetisaurus()
PAIR_NGRAM_TITLE = "Pellucid, pair n-gram model"
LIMIT_SECONDS = 7200.0
"""Maximum duration of a command."""


class SystemResult(NamedTuple):
    """Outputs of one system for the test words."""

    name: str
    outputs: Mapping[str, str]
    """Best output of each word; a word without an output is missing."""
    training_seconds: float | None = None
    """CPU seconds of the training; None if it was not measured here."""
    training_wall: float | None = None
    """Seconds of the training by the clock."""
    reason: str = ""
    """Reason of a failure; empty for a system with outputs."""


def main(arguments: Sequence[str]) -> int:
    """Train Phonetisaurus and a pair n-gram model, decode the test words with all systems, and print a table.

    Args:
        arguments: Command-line arguments.

    Returns:
        The exit status.
    """
    options = build_parser().parse_args(arguments)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    references = read_references(options.test)
    words = list(references)
    results = [try_phonetisaurus(options, words, out), run_pair_ngram(options.train, words)]
    results += [run_pellucid(run, words) for run in options.run]
    table = format_table(results, references)
    (out / "pronunciations.md").write_text(table, "utf-8")
    sys.stdout.write(table)
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--run", type=Path, nargs="*", default=[], help="trained runs of Pellucid to score as well")
    parser.add_argument("--out", type=Path, required=True, help="folder of the files and the table")
    environments = ROOT / "runs" / "peers" / "environments"
    parser.add_argument(
        "--environments", type=Path, default=environments, help="folder of the virtual environment of Phonetisaurus"
    )
    return parser


def read_references(path: Path) -> dict[str, set[str]]:
    """Return the pronunciations of each word of a file.

    Args:
        path: File of pairs.
    """
    references = dict[str, set[str]]()
    for example in read_pairs(path):
        references.setdefault(example.source, set()).add(example.target)
    return references


def read_pairs(path: Path) -> Sequence[Example]:
    """Return the pairs of a file.

    Args:
        path: CSV file with the columns "word" and "pronunciation", or a file of words, tabs and phones without header.
    """
    if path.suffix.lower() == ".csv":
        config = DataConfig(source_column="word", target_column="pronunciation", target_symbols="words")
    else:
        config = DataConfig(input_format="tsv", header=False, target_symbols="words")
    return read_examples(path, config).examples


def try_phonetisaurus(options: argparse.Namespace, words: Sequence[str], out: Path) -> SystemResult:
    """Install Phonetisaurus, train it and decode the words; a failure is the reason of the result.

    Args:
        options: Parsed arguments.
        words: Test words.
        out: Folder of its files.
    """
    try:
        python = install(PHONETISAURUS, options.environments.resolve())
        return run_phonetisaurus(python, read_pairs(options.train), words, out / "phonetisaurus")
    except MeasurementError as error:
        return SystemResult(PHONETISAURUS.title, {}, reason=str(error))


def run_phonetisaurus(
    python: Path, pairs: Sequence[Example], words: Sequence[str], folder: Path, core: int | None = None
) -> SystemResult:
    """Train Phonetisaurus with its defaults and decode the words.

    Args:
        python: Python interpreter of its environment.
        pairs: Training pairs.
        words: Test words.
        folder: Folder of its files.
        core: Core to which its processes are pinned; None for any.

    Raises:
        MeasurementError: A command fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train = PHONETISAURUS.train_command(python, [(pair.source, pair.target) for pair in pairs], folder)
    training = run_command(train, folder / "train.log", LIMIT_SECONDS, core)
    decode = PHONETISAURUS.decode_command(python, words, folder)
    run_command(decode, folder / "predict.log", LIMIT_SECONDS, core)
    return SystemResult(PHONETISAURUS.title, PHONETISAURUS.read_outputs(folder), training.cpu, training.wall)


def run_pair_ngram(train: Path, words: Sequence[str]) -> SystemResult:
    """Fit the pair n-gram model of Pellucid and decode the words.

    Args:
        train: File of training pairs.
        words: Test words.
    """
    pairs, tokenizers = read_pairs(train), build_tokenizers(DataConfig(target_symbols="words"))
    vocabularies = learn_vocabularies(pairs, tokenizers, 1)
    few = pairs[:100]
    warm = fit_pair_ngram_predictor(few, tokenizers, learn_vocabularies(few, tokenizers, 1))  # compiles its functions
    if warm is not None:
        warm.nbest(few[:1], 1)
    start, start_wall = time.process_time(), time.monotonic()
    predictor = fit_pair_ngram_predictor(pairs, tokenizers, vocabularies)
    seconds, wall = time.process_time() - start, time.monotonic() - start_wall
    if predictor is None:
        raise ValueError(f"{train}: no pair n-gram model can be fitted to these pairs")
    found = predictor.nbest([Example(word, "") for word in words], 1)
    outputs = {word: " ".join(nbest[0]) for word, nbest in zip(words, found, strict=True) if nbest}
    return SystemResult(PAIR_NGRAM_TITLE, outputs, seconds, wall)


def run_pellucid(run: Path, words: Sequence[str]) -> SystemResult:
    """Decode the words with a run of Pellucid.

    Args:
        run: Run folder.
        words: Test words.
    """
    traces = load(run).predict(list(words))
    outputs = {word: trace.output for word, trace in zip(words, traces, strict=True)}
    return SystemResult(f"Pellucid, {run.name}", outputs)


def format_table(results: Sequence[SystemResult], references: Mapping[str, set[str]]) -> str:
    """Return a Markdown table of the word error rates with 95 % intervals, and the CPU seconds of the trainings.

    Args:
        results: Outputs of each system.
        references: Pronunciations of each test word.
    """
    lines = [
        f"{len(references):,} test words; a word is correct if its output equals one of its pronunciations.\n",
        "| system | word error rate | 95 % interval | CPU seconds of the training |",
        "|---|--:|---|--:|",
        *(format_row(result, references) for result in results),
    ]
    failures = [
        f"* {result.name}: {' / '.join(result.reason.splitlines()[-3:])}" for result in results if result.reason
    ]
    return "\n".join([*lines, *(["", "Empty cells:", "", *failures] if failures else []), ""])


def format_row(result: SystemResult, references: Mapping[str, set[str]]) -> str:
    """Return the row of a system; a system that failed has empty cells.

    Args:
        result: Outputs of the system.
        references: Pronunciations of each test word.
    """
    if result.reason:
        return f"| {result.name} | – | – | – |"
    num_wrong = count_errors(result.outputs, references)
    seconds = "" if result.training_seconds is None else f"{result.training_seconds:,.1f}"
    rate, interval = format_error_rate(num_wrong, len(references))
    return f"| {result.name} | {rate} | {interval} | {seconds} |"


def count_errors(outputs: Mapping[str, str], references: Mapping[str, set[str]]) -> int:
    """Return the number of words whose output is missing or equals none of the pronunciations.

    Args:
        outputs: Output of each word.
        references: Pronunciations of each word.
    """
    return sum(outputs.get(word) not in right for word, right in references.items())


def format_error_rate(num_wrong: int, num_words: int) -> tuple[str, str]:
    """Return a word error rate in percent, and its 95 % Wilson interval.

    Args:
        num_wrong: Number of wrong words.
        num_words: Number of words.
    """
    low, high = wilson_interval(num_wrong, num_words)
    return f"{100 * num_wrong / num_words:.2f}", f"{100 * low:.2f} to {100 * high:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
