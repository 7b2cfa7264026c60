"""Words to phones in eight languages: one default configuration, one model a language, greedy decoding."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.data.examples import read_examples
from pellucid.errors import DataError
from pellucid.files import make_folder, write_json
from pellucid.look.judgement import judge, report_on
from pellucid.look.report import write_report
from pellucid.processes import in_parallel
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.training.run import load, read_log
from pellucid.training.session import Files, train_run

LANGUAGES = ("arm", "bul", "fre", "geo", "gre", "hin", "hun", "ice")
PUBLISHED = {"arm": 14.67, "bul": 31.11, "fre": 6.22, "geo": 26.44, "gre": 18.89, "hin": 6.67, "hun": 5.33, "ice": 10.0}
"""Test WER of the shared task's LSTM with attention: settings tuned on each language, beam 5 (Gorman et al. 2020)."""


class Result(NamedTuple):
    """One language, one seed."""

    language: str
    seed: int
    wer: float
    symbol_error_rate: float
    dev_wer: float
    seconds: float


def run(request: Request) -> Iterator[str]:
    """Train and judge every language and seed, as many at once as there are cores; a table and report.json."""
    folder = request.data / "g2p-sigmorphon2020"
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not there: the data is task 1 of SIGMORPHON 2020 (github.com/sigmorphon/2020, task1/data); "
            f"give the folder that holds it as g2p-sigmorphon2020 with --data, or in PELLUCID_DATA"
        )
    make_folder(request.out)
    jobs = [(language, seed) for seed in range(1, request.seeds + 1) for language in LANGUAGES]
    results = []
    for result in in_parallel(partial(_one, folder, request.out), jobs):
        yield _row(result)
        results.append(result)
    macro = sum(result.wer for result in results) / len(results)
    published = sum(PUBLISHED.values()) / len(PUBLISHED)
    yield f"macro WER {macro:.2f} (published, tuned for each language, beam 5: {published:.2f})"
    report: dict[str, Any] = {"name": "g2p", "macro_wer": macro, "published_macro_wer": published}
    report["results"] = [result._asdict() for result in results]
    write_json(request.out / "report.json", report)


def _one(folder: Path, out: Path, job: tuple[str, int]) -> Result:
    """Train one language with one seed on one thread, and judge it on its test set."""
    language, seed = job
    config = recipe_config("g2p", {"seed": seed})
    run_folder = out / f"{language}-seed-{seed}"
    files = Files(folder / "train" / f"{language}_train.tsv", folder / "dev" / f"{language}_dev.tsv")
    for _ in train_run(files, run_folder, config):
        pass
    reading = read_examples(folder / "test" / f"{language}_test.tsv", config.data)
    judgement = judge(load(run_folder), reading.examples)
    title = f"Words to phones: {language}"
    introduction = f"SIGMORPHON 2020, task 1. The published LSTM with attention has a WER of {PUBLISHED[language]}."
    write_report(run_folder / "report.html", report_on(run_folder, judgement, title, introduction))
    log = read_log(run_folder)
    best = [record for record in log if record["event"] == "validated" and record["best"]][-1]
    return Result(
        language=language,
        seed=seed,
        wer=judgement.evaluation.wer,
        symbol_error_rate=judgement.evaluation.symbol_error_rate,
        dev_wer=100 - best["exact_match"],
        seconds=[record for record in log if record["event"] == "stopped"][-1]["seconds"],
    )


def _row(result: Result) -> str:
    """One line of the table."""
    return (
        f"{result.language} seed {result.seed}: test WER {result.wer:5.2f} "
        f"(published {PUBLISHED[result.language]:5.2f}), PER {result.symbol_error_rate:5.2f}, "
        f"dev WER {result.dev_wer:5.2f}, {result.seconds:,.0f} s"
    )
