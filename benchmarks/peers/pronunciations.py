"""Word error rates and CPU seconds of the trainings of Phonetisaurus and Pellucid on the same pronunciations.

    python benchmarks/peers/pronunciations.py --train FILE --test FILE [--run RUN ...] --out DIR

The files have one word, a tab, and its phones with spaces between per line. A word may have several lines; an output is
correct if it equals one of them.
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

from benchmarks.peers.measure import Command, run_command  # noqa: E402
from pellucid.config.settings import DataConfig  # noqa: E402
from pellucid.data.examples import Example, read_examples  # noqa: E402
from pellucid.data.tokenizers import build_tokenizers  # noqa: E402
from pellucid.data.vocabulary import learn_vocabularies  # noqa: E402
from pellucid.evaluation.metrics import wilson_interval  # noqa: E402
from pellucid.pair_ngram.predictor import fit_pair_ngram_predictor  # noqa: E402
from pellucid.run_folder.predictor_loader import load  # noqa: E402

PHONETISAURUS = "phonetisaurus==0.3.0"
LIMIT_SECONDS = 7200.0
"""Maximum duration of a command."""


class SystemResult(NamedTuple):
    """Outputs of one system for the test words."""

    name: str
    outputs: Mapping[str, str]
    """Best output of each word; a word without an output is missing."""
    training_seconds: float | None
    """CPU seconds of the training; None if it was not measured here."""


def main(arguments: Sequence[str]) -> int:
    """Train Phonetisaurus and a pair n-gram model, decode the test words with all systems, and print a table.

    Args:
        arguments: Command-line arguments.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--run", type=Path, nargs="*", default=[], help="trained runs of Pellucid to score as well")
    parser.add_argument("--out", type=Path, required=True, help="folder of the environment, the files and the table")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    references = read_references(options.test)
    results = [run_phonetisaurus(options.train, list(references), out), run_pair_ngram(options.train, list(references))]
    results += [run_pellucid(run, list(references)) for run in options.run]
    table = format_table(results, references)
    (out / "pronunciations.md").write_text(table, "utf-8")
    sys.stdout.write(table)
    return 0


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
        path: File of pairs.
    """
    return read_examples(path, DataConfig(header=False, target_symbols="words")).examples


def run_phonetisaurus(train: Path, words: Sequence[str], out: Path) -> SystemResult:
    """Train Phonetisaurus with its defaults and decode the words.

    Args:
        train: File of training pairs.
        words: Test words.
        out: Folder of its environment and files.

    Raises:
        MeasurementError: A command fails.
    """
    environment, folder = out / "phonetisaurus", out / "phonetisaurus-files"
    folder.mkdir(exist_ok=True)
    if not (environment / "bin" / "phonetisaurus").exists():
        run_command(Command([sys.executable, "-m", "venv", str(environment)], out), out / "venv.log", LIMIT_SECONDS)
        install = [str(environment / "bin" / "python"), "-m", "pip", "install", PHONETISAURUS]
        run_command(Command(install, out), out / "install.log", LIMIT_SECONDS)
    lexicon, model, listed, output = (folder / name for name in ("train.dict", "model.fst", "words", "output"))
    lexicon.write_text("".join(f"{pair.source} {pair.target}\n" for pair in read_pairs(train)), "utf-8")
    listed.write_text("".join(f"{word}\n" for word in words), "utf-8")
    program = str(environment / "bin" / "phonetisaurus")
    training = run_command(
        Command([program, "train", "--model", str(model), str(lexicon)], folder), folder / "train.log", LIMIT_SECONDS
    )
    decode = Command([program, "predict", "--model", str(model)], folder, stdin=listed, stdout=output)
    run_command(decode, folder / "predict.log", LIMIT_SECONDS)
    outputs = dict[str, str]()
    for line in output.read_text("utf-8").splitlines():
        word, _, phones = line.partition(" ")
        outputs.setdefault(word, phones.strip())
    return SystemResult(PHONETISAURUS.replace("==", " "), outputs, training.cpu)


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
    start = time.process_time()
    predictor = fit_pair_ngram_predictor(pairs, tokenizers, vocabularies)
    seconds = time.process_time() - start
    if predictor is None:
        raise ValueError(f"{train}: no pair n-gram model can be fitted to these pairs")
    found = predictor.nbest([Example(word, "") for word in words], 1)
    outputs = {word: " ".join(nbest[0]) for word, nbest in zip(words, found, strict=True) if nbest}
    return SystemResult("Pellucid, pair n-gram model", outputs, seconds)


def run_pellucid(run: Path, words: Sequence[str]) -> SystemResult:
    """Decode the words with a run of Pellucid.

    Args:
        run: Run folder.
        words: Test words.
    """
    traces = load(run).predict(list(words))
    outputs = {word: trace.output for word, trace in zip(words, traces, strict=True)}
    return SystemResult(f"Pellucid, {run.name}", outputs, None)


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
    ]
    for result in results:
        num_wrong = sum(result.outputs.get(word) not in right for word, right in references.items())
        rate, (low, high) = num_wrong / len(references), wilson_interval(num_wrong, len(references))
        seconds = "" if result.training_seconds is None else f"{result.training_seconds:,.1f}"
        lines.append(f"| {result.name} | {100 * rate:.2f} | {100 * low:.2f} to {100 * high:.2f} | {seconds} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
