"""What the recipes of published data sets share: experiments, their data, runs and scores."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Int

from pellucid.config.settings import Config
from pellucid.data.examples import Example, read_examples
from pellucid.decoding.predictor import Predictor
from pellucid.errors import DataError, InputError, quote, suggest
from pellucid.evaluation.assessment import OracleAccuracy, oracle_accuracy, score_traces
from pellucid.evaluation.metrics import Evaluation, evaluate_examples
from pellucid.evaluation.outcomes import outcome_table
from pellucid.files import make_folder, read_bytes, write_text
from pellucid.model.device import use_threads
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.training.loop import derived_epochs
from pellucid.viewer.reports import Report, ScoredRun

Measure = Literal["wer", "exact_match"]
"""The name of a score, as `Evaluation` and `Mean` have it."""
NAMES: Mapping[Measure, str] = {"wer": "WER", "exact_match": "accuracy"}


LEAST = 20
"""Development pairs that no cut goes below."""


class Pairs(NamedTuple):
    """The examples of an experiment."""

    train: Sequence[Example]
    dev: Sequence[Example]
    """Judged at every validation, and again in the end."""
    test: Sequence[Example] = ()
    """Judged in the end alone; empty where only the development set is."""


class Experiment(NamedTuple):
    """One training set, judged on one development and at most one test set."""

    name: str
    pairs: Callable[[Path], Pairs]
    """Reads them from the folder of the data."""
    published: Mapping[str, float] = {}
    """What others reached on the test set, in per cent, by system: first what it is to be compared with."""
    settings: Mapping[str, Any] = {}
    """Settings over those of the recipe's file."""
    setting: str = ""
    """What these settings are called: means are taken over the experiments of one name."""
    beside: str = ""
    """The experiment on the same pairs that this one is compared with, output by output; none where empty."""


class Reference(NamedTuple):
    """Experiments of one kind, under one configuration, told of together."""

    name: str
    """Of the recipe, of its file of settings, and, unless `folder` says another, of the folder of its data."""
    title: str
    introduction: str
    """What is done, and how the published numbers were measured."""
    origin: str
    """Where the data is to be had."""
    measure: Measure
    experiments: Sequence[Experiment]
    candidates: int = 1
    """Accuracy is told of a right output among the first 1 to so many."""
    drawn: bool = False
    """Whether decodings are drawn of the first run of each experiment, not of the very first alone."""
    folder: str = ""
    """Of the data, where it is not named as the recipe."""

    def experiment(self, name: str) -> Experiment:
        """The experiment of a name."""
        return next(each for each in self.experiments if each.name == name)


class Paths(NamedTuple):
    """The pairs of an experiment, in files."""

    train: Path
    dev: Path
    test: Path | None
    cut: str = ""
    """What was left out, in words; empty where nothing was."""
    passes: float = 0.0
    """The longest training of what was cut, in passes over it: as many as the whole set is given, where none is set."""


class Training(NamedTuple):
    """One experiment with one seed, to be trained."""

    experiment: str
    config: Config
    paths: Paths
    folder: Path
    """Of the run."""

    @property
    def name(self) -> str:
        """What it is called while it trains."""
        return f"{self.experiment}, seed {self.config.seed}"


def trainings(reference: Reference, request: Request) -> list[list[Training]]:
    """What is to be trained: for each seed, from 1, every experiment. What was cut of their pairs is told."""
    experiments = prepared(reference, request)
    seeds = range(1, request.seeds + 1)
    found = [[_training(reference, each, paths, (seed, request.out)) for each, paths in experiments] for seed in seeds]
    for first in found[0]:
        if request.seen is not None and first.paths.cut:
            passes = first.config.training.epochs
            request.seen.print_line(f"{first.experiment}: {first.paths.cut}, {passes:g} passes at most")
    return found


def together_name(members: Sequence[Training]) -> str:
    """What the runs of one experiment are called as an ensemble."""
    return f"{members[0].experiment}, ensemble of {len(members)}"


def prepared(reference: Reference, request: Request) -> list[tuple[Experiment, Paths]]:
    """The experiments that are asked for, in the recipe's order, each with its pairs in files."""
    experiments = chosen(reference, request.only)
    data = data_of(reference, request.data)
    make_folder(request.out)
    return [(each, write_pairs(each, data, request.out / "data" / each.name, request.samples)) for each in experiments]


def chosen(reference: Reference, only: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, or all, in the recipe's order; `InputError` lists the names there are."""
    names = [experiment.name for experiment in reference.experiments]
    for name in only:
        if name not in names:
            listed = ", ".join(names)
            raise InputError(
                f"{reference.name} has no experiment {quote(name)}{suggest(name, names)} (there are: {listed})"
            )
    return [experiment for experiment in reference.experiments if not only or experiment.name in only]


def data_of(reference: Reference, data: Path) -> Path:
    """The folder of a recipe's data; `DataError` says where it comes from."""
    name = reference.folder or reference.name
    folder = data / name
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not there: the data is {reference.origin}; give the folder that holds it as "
            f"{name} with --data, or in PELLUCID_DATA"
        )
    return folder


def write_pairs(experiment: Experiment, data: Path, folder: Path, samples: int) -> Paths:
    """The pairs of an experiment as TSV in a folder, of the training pairs the first so many (0: all).

    The development pairs are cut in proportion, drawn evenly, but not below `LEAST`.
    """
    pairs = experiment.pairs(data)
    paths = Paths(folder / "train.tsv", folder / "dev.tsv", folder / "test.tsv" if pairs.test else None)
    train, dev, whole = pairs.train, pairs.dev, len(pairs.train)
    if 0 < samples < whole:
        train, dev = train[:samples], spread(dev, max(round(len(dev) * samples / whole), LEAST))
        told = f"{len(train):,} of {whole:,} training pairs, {len(dev):,} of {len(pairs.dev):,} development pairs"
        paths = paths._replace(cut=told, passes=float(round(derived_epochs(whole))))
    make_folder(folder)
    for path, examples in zip(paths[:3], (train, dev, pairs.test), strict=True):
        if path is not None:
            _write(path, "".join(f"{example.source}\t{example.target}\n" for example in examples))
    return paths


def read_pairs(path: Path, config: Config) -> list[Example]:
    """The pairs of a file, as training reads them."""
    return read_examples(path, config.data).examples


def spread(pairs: Sequence[Example], count: int) -> list[Example]:
    """So many of them, evenly from the first to the last; all where there are no more."""
    taken = min(count, len(pairs))
    return [pairs[place * len(pairs) // taken] for place in range(taken)]


def _training(reference: Reference, experiment: Experiment, paths: Paths, at: tuple[int, Path]) -> Training:
    """One experiment with a seed, in a folder of its own below the one given."""
    seed, out = at
    config = recipe_config(reference.name, {**experiment.settings, "seed": seed})
    if paths.cut and not config.training.epochs:
        training = msgspec.structs.replace(config.training, epochs=paths.passes)
        config = msgspec.structs.replace(config, training=training)
    return Training(experiment.name, config, paths, out / "runs" / f"{experiment.name}-seed-{seed}")


def _write(path: Path, text: str) -> None:
    """Write a file, unless it says so already."""
    if not path.exists() or read_bytes(path) != text.encode("utf-8"):
        write_text(path, text)


BEAM = 5
"""Hypotheses of every search that is judged; validations in training are greedy."""
KEPT = ("examples", "exact_match", "wer", "symbol_error_rate")
"""What `Worth.told` has of an evaluation, each rate with its interval."""


class Worth(NamedTuple):
    """What outputs on one set are worth."""

    evaluation: Evaluation
    table: Int[np.ndarray, "n 3"]
    """The outcome of each example, for means over sets."""
    among: list[OracleAccuracy]
    """How often a right output is among the first 1, 2, …"""

    def told(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = self.evaluation.to_dict()
        kept = {key: value for key, value in values.items() if key.removesuffix("_ci95") in KEPT}
        return {**kept, "among_first": [each._asdict() for each in self.among]}


class Worths(NamedTuple):
    """The development set's and the test set's."""

    dev: Worth
    test: Worth | None


def judged(transducer: Predictor, examples: Sequence[Example], candidates: int) -> tuple[ScoredRun, Worth]:
    """Decode examples with a beam, and score the first output, or the first few, each against its own target."""
    use_threads(transducer.config.threads)
    found = transducer.with_beam(BEAM).hypotheses(examples, candidates)
    references: list[tuple[str, ...]] = [(example.target,) for example in examples]
    firsts = [outputs[0] for outputs in found]
    scored = score_traces(firsts, references, transducer.tokenizers)
    evaluation = evaluate_examples(scored)
    lists = [
        score_traces(outputs, [wanted] * len(outputs), transducer.tokenizers)
        for outputs, wanted in zip(found, references, strict=True)
    ]
    among = oracle_accuracy(lists, candidates)
    return ScoredRun(transducer, firsts, references, scored, evaluation), Worth(
        evaluation, outcome_table(scored), among
    )


class Run(NamedTuple):
    """One experiment with one seed."""

    experiment: str
    config: Config
    worths: Worths
    stopped: dict[str, Any]
    """The last record of the log: updates, samples, seconds of training."""
    epochs: float
    """Passes over the training set."""
    parameters: int
    report: Report

    @property
    def who(self) -> str:
        """Its seed."""
        return f"seed {self.config.seed}"


class Together(NamedTuple):
    """The runs of all seeds of one experiment, as an ensemble."""

    experiment: str
    members: int
    worths: Worths

    @property
    def who(self) -> str:
        """How many they are."""
        return f"ensemble of {self.members}"
