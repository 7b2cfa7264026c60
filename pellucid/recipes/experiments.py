"""Experiments on published data sets: definition, data, trainings and scores."""

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
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.training.loop import derived_epochs
from pellucid.viewer.reports import Report, ScoredRun

MetricName = Literal["wer", "exact_match"]
"""Name of a score, as an attribute of `Evaluation` and `Mean`."""
METRIC_LABELS: Mapping[MetricName, str] = {"wer": "WER", "exact_match": "accuracy"}


MIN_DEV_PAIRS = 20
"""Minimum size of a reduced validation set."""


class DataSplits(NamedTuple):
    """Training, validation and test examples of an experiment."""

    train: Sequence[Example]
    dev: Sequence[Example]
    """Evaluated at every validation and after training."""
    test: Sequence[Example] = ()
    """Evaluated only after training; empty where the validation set alone is evaluated."""


class Experiment(NamedTuple):
    """A training set with one validation set and at most one test set."""

    name: str
    pairs: Callable[[Path], DataSplits]
    """Function that reads the examples from the data folder."""
    published: Mapping[str, float] = {}
    """Published scores on the test set in percent, by system; the first one is the main comparison."""
    settings: Mapping[str, Any] = {}
    """Settings that override those of the recipe's file."""
    setting: str = ""
    """Name of these settings; means are taken over the experiments with the same name."""
    baseline: str = ""
    """Name of the baseline experiment on the same pairs for paired comparison; empty for none."""


class ExperimentSuite(NamedTuple):
    """Experiments of one kind that share a configuration and a report."""

    name: str
    """Name of the recipe, of its settings file and, unless `folder` is given, of its data folder."""
    title: str
    introduction: str
    """Task, data and the protocol of the published numbers."""
    origin: str
    """Source of the data."""
    measure: MetricName
    experiments: Sequence[Experiment]
    candidates: int = 1
    """Accuracy is reported at 1-best to k-best."""
    show_all_attention: bool = False
    """The report shows attention for the first run of every experiment, not of the first experiment only."""
    folder: str = ""
    """Data folder, if its name differs from the recipe's."""

    def experiment(self, name: str) -> Experiment:
        """Return the experiment with this name."""
        return next(each for each in self.experiments if each.name == name)


class SplitFiles(NamedTuple):
    """Files of the splits of an experiment."""

    train: Path
    dev: Path
    test: Path | None
    reduction: str = ""
    """Description of the reduction to fewer samples; empty for the full data."""
    max_epochs: float = 0.0
    """Maximum epochs over a reduced training set, derived from the size of the full set where none is configured."""


class ExperimentTraining(NamedTuple):
    """Training of one experiment with one seed."""

    experiment: str
    config: Config
    paths: SplitFiles
    folder: Path
    """Run folder."""

    @property
    def name(self) -> str:
        """Return the name shown with the progress of the training."""
        return f"{self.experiment}, seed {self.config.seed}"


def plan_trainings(suite: ExperimentSuite, request: RecipeRequest) -> list[list[ExperimentTraining]]:
    """Return the training jobs, a list per seed with one job per experiment.

    Args:
        suite: The suite of experiments.
        request: The recipe's request; reductions of the data are reported to its progress display.
    """
    experiments = prepare_experiments(suite, request)
    seeds = range(1, request.seeds + 1)
    found = [[_plan_training(suite, each, paths, (seed, request.out)) for each, paths in experiments] for seed in seeds]
    for first in found[0]:
        if request.progress is not None and first.paths.reduction:
            passes = first.config.training.epochs
            request.progress.print_line(f"{first.experiment}: {first.paths.reduction}, at most {passes:g} epochs")
    return found


def ensemble_name(members: Sequence[ExperimentTraining]) -> str:
    """Return the name of the ensemble of the runs of one experiment."""
    return f"{members[0].experiment}, ensemble of {len(members)}"


def prepare_experiments(suite: ExperimentSuite, request: RecipeRequest) -> list[tuple[Experiment, SplitFiles]]:
    """Write the pairs of the selected experiments to files and return both, in the order of the suite."""
    experiments = select_experiments(suite, request.only)
    data = find_data(suite, request.data)
    make_folder(request.out)
    return [(each, write_splits(each, data, request.out / "data" / each.name, request.samples)) for each in experiments]


def select_experiments(suite: ExperimentSuite, only: Sequence[str]) -> list[Experiment]:
    """Return the experiments with these names, or all, in the order of the suite.

    Raises:
        InputError: A name is unknown; the message lists the names.
    """
    names = [experiment.name for experiment in suite.experiments]
    for name in only:
        if name not in names:
            listed = ", ".join(names)
            raise InputError(
                f"{suite.name} has no experiment {quote(name)}{suggest(name, names)} (there are: {listed})"
            )
    return [experiment for experiment in suite.experiments if not only or experiment.name in only]


def find_data(suite: ExperimentSuite, data: Path) -> Path:
    """Return the data folder of a suite.

    Raises:
        DataError: The folder does not exist; the message names the source of the data.
    """
    name = suite.folder or suite.name
    folder = data / name
    if not folder.is_dir():
        raise DataError(
            f"{folder} does not exist: the data is {suite.origin}; give the folder that holds {name} with "
            f"--data or in PELLUCID_DATA"
        )
    return folder


def write_splits(experiment: Experiment, data: Path, folder: Path, samples: int) -> SplitFiles:
    """Write the splits of an experiment as TSV files.

    Args:
        experiment: The experiment.
        data: Data folder of the suite.
        folder: Folder of the written files.
        samples: Number of training pairs, taken from the beginning; 0 takes all. The validation set is reduced in
            proportion by even selection, but not below `MIN_DEV_PAIRS`.

    Returns:
        The paths, with a description of the reduction.
    """
    pairs = experiment.pairs(data)
    paths = SplitFiles(folder / "train.tsv", folder / "dev.tsv", folder / "test.tsv" if pairs.test else None)
    train, dev, whole = pairs.train, pairs.dev, len(pairs.train)
    if 0 < samples < whole:
        train, dev = train[:samples], sample_evenly(dev, max(round(len(dev) * samples / whole), MIN_DEV_PAIRS))
        reduction = f"{len(train):,} of {whole:,} training pairs, {len(dev):,} of {len(pairs.dev):,} validation pairs"
        paths = paths._replace(reduction=reduction, max_epochs=float(round(derived_epochs(whole))))
    make_folder(folder)
    for path, examples in zip(paths[:3], (train, dev, pairs.test), strict=True):
        if path is not None:
            _write_if_changed(path, "".join(f"{example.source}\t{example.target}\n" for example in examples))
    return paths


def read_pairs(path: Path, config: Config) -> list[Example]:
    """Return the examples of a file, read with the settings of training."""
    return read_examples(path, config.data).examples


def sample_evenly(pairs: Sequence[Example], count: int) -> list[Example]:
    """Return `count` pairs at even distances, or all if there are fewer."""
    taken = min(count, len(pairs))
    return [pairs[place * len(pairs) // taken] for place in range(taken)]


def _plan_training(
    suite: ExperimentSuite, experiment: Experiment, paths: SplitFiles, at: tuple[int, Path]
) -> ExperimentTraining:
    """Return the training job of an experiment; `at` holds seed and output folder."""
    seed, out = at
    config = load_recipe_config(suite.name, {**experiment.settings, "seed": seed})
    if paths.reduction and not config.training.epochs:
        training = msgspec.structs.replace(config.training, epochs=paths.max_epochs)
        config = msgspec.structs.replace(config, training=training)
    return ExperimentTraining(experiment.name, config, paths, out / "runs" / f"{experiment.name}-seed-{seed}")


def _write_if_changed(path: Path, text: str) -> None:
    """Write a file unless it already has this content."""
    if not path.exists() or read_bytes(path) != text.encode("utf-8"):
        write_text(path, text)


BEAM_SIZE = 5
"""Beam size of every reported score; validation during training is greedy."""
REPORTED_RATES = ("examples", "exact_match", "wer", "symbol_error_rate")
"""Fields of an evaluation in report.json, each rate with its interval."""


class TransductionScores(NamedTuple):
    """Scores of the outputs on one set."""

    evaluation: Evaluation
    table: Int[np.ndarray, "n 3"]
    """Outcome of each example, for means over sets."""
    k_best: list[OracleAccuracy]
    """Share of examples with a correct output among the first 1, 2, … candidates."""

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain values for JSON."""
        values = self.evaluation.to_dict()
        kept = {key: value for key, value in values.items() if key.removesuffix("_ci95") in REPORTED_RATES}
        return {**kept, "among_first": [each._asdict() for each in self.k_best]}


class SplitScores(NamedTuple):
    """Scores on the validation set and on the test set."""

    dev: TransductionScores
    test: TransductionScores | None


def score_predictor(
    predictor: Predictor, examples: Sequence[Example], candidates: int
) -> tuple[ScoredRun, TransductionScores]:
    """Decode examples with beam search and score the outputs.

    Args:
        predictor: Predictor of the trained model.
        examples: Sources with one target each.
        candidates: Number of hypotheses per source for k-best accuracy.

    Returns:
        The outputs with their references for the page, and the scores.
    """
    use_threads(predictor.config.threads)
    found = predictor.with_beam(BEAM_SIZE).hypotheses(examples, candidates)
    references: list[tuple[str, ...]] = [(example.target,) for example in examples]
    firsts = [outputs[0] for outputs in found]
    scored = score_traces(firsts, references, predictor.tokenizers)
    evaluation = evaluate_examples(scored)
    lists = [
        score_traces(outputs, [wanted] * len(outputs), predictor.tokenizers)
        for outputs, wanted in zip(found, references, strict=True)
    ]
    among = oracle_accuracy(lists, candidates)
    return ScoredRun(predictor, firsts, references, scored, evaluation), TransductionScores(
        evaluation, outcome_table(scored), among
    )


class TransductionRun(NamedTuple):
    """One experiment with one seed, trained and scored."""

    experiment: str
    config: Config
    scores: SplitScores
    stopped: dict[str, Any]
    """Last record of the log: updates, samples, seconds of training."""
    epochs: float
    """Epochs over the training set."""
    parameters: int
    report: Report

    @property
    def label(self) -> str:
        """Return the seed as text."""
        return f"seed {self.config.seed}"


class EnsembleRun(NamedTuple):
    """Ensemble of the runs of one experiment, scored."""

    experiment: str
    members: int
    scores: SplitScores

    @property
    def label(self) -> str:
        """Return the size of the ensemble as text."""
        return f"ensemble of {self.members}"
