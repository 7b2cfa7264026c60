"""Where a word has its wrong letter, by attention that points at it."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from pellucid.config.settings import Config
from pellucid.config.toml import to_toml
from pellucid.data.synthetic import Typo, WordList, read_words
from pellucid.decoding.predictor import Predictor
from pellucid.files import make_folder, write_json, write_text
from pellucid.model.network import parameter_count
from pellucid.recipes.following import followed, train_telling
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.recipes.typos.networks import Sizes
from pellucid.recipes.typos.report import Run, lines_of, numbers_of, parts_of, summary_of, told
from pellucid.recipes.typos.study import Data, Point, answers, data_of, examples_of
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import Files
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ProgressCallback

NAME, TITLE = "typo-attention", "The wrong letter, by attention that points"
LONGEST = Sizes().longest
INTRODUCTION = """The same words, typos and tables as in typo-faithful, for the network that pellucid train --task point
trains: two layers of GRU read the word both ways; a query made of their last states is compared with the state at each
letter (additive attention, Bahdanau et al. 2015), and the softmax over the letters is the answer itself, the weight of
each being its probability of being wrong (Vinyals et al. 2015). Padding cannot be pointed at, and each letter's state
knows what stands before and behind it.

The post calls its own fixed read-out "sort of a cheat" and names real attention as what to try next: this is that."""


class Job(NamedTuple):
    """One training, for a process of its own."""

    words: Path
    folder: Path
    """Of the recipe's data and runs."""
    config: Config
    samples: int
    """Typos that are trained on, the first so many; 0 takes all."""


def run(request: Request) -> Iterator[str]:
    """Train or go on with one model a seed, and judge it as typo-faithful's are judged."""
    words = read_words(request.words, max_length=LONGEST)
    make_folder(request.out)
    seeds = range(1, request.seeds + 1)
    configs = [recipe_config(NAME, {"seed": seed}) for seed in seeds]
    runs = list[Run]()
    jobs = [(f"seed {each.seed}", Job(request.words, request.out, each, request.samples)) for each in configs]
    for done in followed(conduct, jobs, request):
        runs.append(done)
        yield from lines_of("attention", told([done], words))
    every = told(runs, words)
    report = Report(
        title=TITLE,
        introduction=INTRODUCTION,
        summary=summary_of(every),
        config_toml=to_toml(configs[0]),
        parts=parts_of(every),
    )
    write_report(request.out / "report.html", report)
    numbers = {"name": NAME, "words": len(words.words), "config": msgspec.to_builtins(configs[0])}
    write_json(request.out / "report.json", {**numbers, **numbers_of(every)})
    yield f"report: {request.out / 'report.html'}"


def conduct(job: Job, tell: ProgressCallback) -> Run:
    """Train on one thread, or go on, or find it finished; and judge."""
    tag = f"seed-{job.config.seed}"
    data = _drawn(read_words(job.words, max_length=LONGEST), job, tell)
    files, folder = _written(data, job.folder / "data" / tag), job.folder / "runs" / tag
    train_telling(files, folder, job.config, tell)
    tell("answering, to judge it")
    transducer, log = load(folder), read_log(folder)
    chances = partial(chances_of, transducer)
    return Run(
        seed=job.config.seed,
        parameters=parameter_count(transducer.network),
        seconds=[record["seconds"] for record in log if record["event"] == "stopped"][-1],
        curve=[
            Point(record["samples"], record["loss"], record["exact_match"] / 100)
            for record in log
            if record["event"] == "validated"
        ],
        test=data.test,
        answers=answers(chances, data.test),
        examples=examples_of(chances),
    )


def chances_of(transducer: Predictor, words: Sequence[str]) -> Float[np.ndarray, "N S"]:
    """The weight on each position of each word, which is its probability; zero behind its end."""
    found = np.zeros((len(words), LONGEST))
    for row, trace in zip(found, transducer.predict(words), strict=True):
        row[: len(trace.source)] = trace.attention[0]
    return found


def _drawn(words: WordList, job: Job, tell: ProgressCallback) -> Data:
    """The typos of the job's seed; it is told how many are left out."""
    data = data_of(words, job.config.seed)
    if not 0 < job.samples < len(data.train):
        return data
    tell(f"{job.samples:,} of {len(data.train):,} typos to train on")
    return data._replace(train=data.train[: job.samples])


def _written(data: Data, folder: Path) -> Files:
    """The typos as TSV: the form, the position, and the word, which is not read; the files to train on."""
    make_folder(folder)
    for name, part in zip(Data._fields, data, strict=True):
        write_text(folder / f"{name}.tsv", "".join(_line(typo) for typo in part))
    return Files(folder / "train.tsv", folder / "dev.tsv")


def _line(typo: Typo) -> str:
    """One line of a file."""
    return f"{typo.wrong}\t{typo.position}\t{typo.right}\n"
