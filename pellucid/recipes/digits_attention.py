"""Spelled digits to digits with attention: data, training, a few translations, report."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pellucid.data.examples import Example
from pellucid.data.synthetic import spell, spelled_digits
from pellucid.files import make_folder, write_text
from pellucid.look.judgement import Judgement, judge, report_on
from pellucid.look.progress import shown
from pellucid.look.report import write_report
from pellucid.look.terminal import CAPTION, legend, render
from pellucid.model.network import parameter_count
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.training.run import load, read_log
from pellucid.training.session import Files, train_run

DIGITS = 20
SAMPLES = 75_000
DEVELOPMENT = 1_000
TEST = 5_000
NUMBERS = ("31415926535897932384", "27182818284590452353", "11111111112222222222")
"""Lines to show: the first digits of π and of e, and a row of equal ones, where it is easy to lose one's place."""

INTRODUCTION = """A both-ways GRU encoder of 5 + 5 units reads twenty digits spelled out, about 99 characters; a GRU
decoder of 10 units with additive attention writes them as digits. Every training pair was seen once; the pairs it is
judged on are fresh.

The 2016 notebook this repeats reached 89.2 % of the symbols at best, with twice the samples and as many units;
without attention its encoder-decoder stayed at a quarter."""


def run(request: Request) -> Iterator[str]:
    """Train one model a seed, judge each on fresh pairs, show a few lines, and write report.html and report.json."""
    judgements = [_one(request, seed) for seed in range(1, request.seeds + 1)]
    folder = _run_folder(request.out, 1)
    yield from _lines(folder)
    title = "Spelled digits to digits, with attention"
    write_report(request.out / "report.html", report_on(folder, judgements[0], title, INTRODUCTION))
    write_text(request.out / "report.json", _summary(request, judgements))
    for seed, judgement in enumerate(judgements, start=1):
        evaluation = judgement.evaluation
        yield (
            f"seed {seed}: symbol accuracy {evaluation.symbol_accuracy:.3f} %, "
            f"exact match {evaluation.exact_match:.2f} % of {evaluation.examples:,} fresh sequences of {DIGITS} digits"
        )
    yield f"report: {request.out / 'report.html'}"


def _one(request: Request, seed: int) -> Judgement:
    """One training, judged on pairs it has never seen."""
    data = request.out / "data" / f"seed-{seed}"
    make_folder(data)
    samples = request.samples or SAMPLES
    _write(data / "train.tsv", spelled_digits(samples, DIGITS, DIGITS, 10 * seed))
    _write(data / "dev.tsv", spelled_digits(DEVELOPMENT, DIGITS, DIGITS, 10 * seed + 1))
    test = spelled_digits(TEST, DIGITS, DIGITS, 10 * seed + 2)
    _write(data / "test.tsv", test)
    config = recipe_config("digits-attention", {"seed": seed})
    folder = _run_folder(request.out, seed)
    with shown() as teller:
        for event in train_run(Files(data / "train.tsv", data / "dev.tsv"), folder, config):
            teller.tell(event)
    return judge(load(folder), test)


def _run_folder(out: Path, seed: int) -> Path:
    """The run folder of a seed."""
    return out / "runs" / f"seed-{seed}"


def _write(path: Path, examples: list[Example]) -> None:
    """Pairs as TSV."""
    write_text(path, "".join(f"{example.source}\t{example.target}\n" for example in examples))


def _lines(folder: Path) -> Iterator[str]:
    """A few translations with their attention, for the terminal."""
    color = sys.stdout.isatty()
    width = shutil.get_terminal_size((120, 24)).columns
    for trace in load(folder).predict([spell(number) for number in NUMBERS]):
        yield f"{render(trace, width=width, color=color)}\n"
    yield f"{legend(color=color)}\n{CAPTION}\n"


def _summary(request: Request, judgements: list[Judgement]) -> str:
    """report.json: parameters, samples, seconds, curves and scores of every seed."""
    runs = []
    for seed, judgement in enumerate(judgements, start=1):
        log = read_log(_run_folder(request.out, seed))
        curve = [record for record in log if record["event"] == "validated"]
        stopped = [record for record in log if record["event"] == "stopped"][-1]
        runs.append(
            {
                "seed": seed,
                "samples": stopped["samples"],
                "seconds": stopped["seconds"],
                "validation_samples": [record["samples"] for record in curve],
                "symbol_accuracy": [record["symbol_accuracy"] for record in curve],
                "exact_match": [record["exact_match"] for record in curve],
                "test": judgement.evaluation.to_dict(),
            }
        )
    parameters = parameter_count(judgements[0].transducer.network)
    report = {"name": "digits-attention", "parameters": parameters, "runs": runs}
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
