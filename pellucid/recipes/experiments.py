"""Experiments on published data sets: definition, data files and planned trainings."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from pellucid.config.settings import Config, DataConfig
from pellucid.data.examples import Example, read_examples
from pellucid.errors import DataError, InputError, quote, suggest
from pellucid.files import make_folder, read_bytes, write_text
from pellucid.recipes.published_data import describe_download
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.training.training_length import derived_epochs
from pellucid.training.validation_sample import sample_evenly

MetricName = Literal["sequence_error_rate", "exact_match"]
"""Name of a metric, as an attribute of `Evaluation` and `MeanRates`."""
METRIC_LABELS: Mapping[MetricName, str] = {"sequence_error_rate": "WER", "exact_match": "accuracy"}
"""Displayed name of each metric, which is that of the publications: outputs that are single words have a WER."""
MIN_DEV_PAIRS = 20
"""Minimum size of a reduced validation set."""
MIN_TEST_SOURCES = 1000
"""Minimum number of sources of a reduced test set: few enough that decoding them takes seconds."""


SPLITS = ("train", "dev", "test")
"""Names of the splits, in the order of `DataSplits`."""


class DataSplits(NamedTuple):
    """Training, validation and test examples of an experiment."""

    train: Sequence[Example]
    dev: Sequence[Example]
    """Evaluated at every validation and after training."""
    test: Sequence[Example] = ()
    """Evaluated only after training; empty where the validation set alone is evaluated."""


class Experiment(NamedTuple):
    """A training set with its settings, one validation set and at most one test set; trained once per seed."""

    name: str
    """Name in the report and for `--only`; also that of its folders."""
    read_splits: Callable[[Path], DataSplits]
    """Function that reads the examples from the data folder of the suite."""
    published: Mapping[str, float] = {}
    """Published scores on the test set in percent, by system; the first one is the main comparison."""
    settings: Mapping[str, Any] = {}
    """Settings that override those of the recipe's file."""
    settings_name: str = ""
    """Name of these settings; means are taken over the experiments with the same name."""
    baseline: str = ""
    """Name of the baseline experiment on the same pairs for paired comparison; empty if there is none."""


class ExperimentSuite(NamedTuple):
    """Experiments of one kind that share a configuration and a report."""

    name: str
    """Name of the recipe, of its settings file and, unless `folder` is given, of its data folder."""
    title: str
    introduction: str
    """Task, data and the protocol of the published numbers."""
    origin: str
    """Source of the data."""
    metric: MetricName
    """Main metric of the report."""
    experiments: Sequence[Experiment]
    num_candidates: int = 1
    """Maximum k of the reported k-best accuracies."""
    show_all_attention: bool = False
    """The report shows attention for the first run of every experiment, not of the first experiment only."""
    folder: str = ""
    """Data folder, if its name differs from the recipe's."""
    package: str = ""
    """Python package that holds the data, if it is installed; else its name is that of the data folder. An empty
    string: no package."""
    groups_references: bool = False
    """Sources occur several times, and each target is a correct output: an output is compared with all of them."""

    def experiment(self, name: str) -> Experiment:
        """Return the experiment with this name, which must be in the suite.

        Args:
            name: Name of an experiment of this suite.
        """
        return next(experiment for experiment in self.experiments if experiment.name == name)


class SplitFiles(NamedTuple):
    """Paths of the training, validation and test file of an experiment."""

    train: Path
    dev: Path
    test: Path | None
    reduction: str = ""
    """Description of the reduction to fewer samples; empty for the full data."""
    max_epochs: float = 0.0
    """Maximum number of epochs over a reduced training set, derived from the size of the full set; it applies if the
    configuration gives no number of epochs. 0 for the full data.
    """


class ExperimentTraining(NamedTuple):
    """Planned training of one experiment with one seed."""

    experiment: str
    """Name of the experiment."""
    config: Config
    paths: SplitFiles
    folder: Path
    """Run folder."""

    @property
    def name(self) -> str:
        """Return the name shown with the progress of the training: experiment and seed."""
        return f"{self.experiment}, seed {self.config.seed}"


def change_settings(suite: ExperimentSuite, request: RecipeRequest) -> ExperimentSuite:
    """Return the suite with the settings of a request; its introduction names them, and a reduction of the data.

    Args:
        suite: The suite of experiments.
        request: The recipe's request; without settings and a number of samples, the suite is returned unchanged.
    """
    if not (request.settings or request.samples):
        return suite
    experiments = [
        experiment._replace(settings=merge_settings(experiment.settings, request.settings))
        for experiment in suite.experiments
    ]
    introduction = name_changes(suite.introduction, request.settings)
    if request.samples:
        introduction = (
            f"{introduction}\n\nThe data is reduced: training sets of at most {request.samples:,} pairs, validation "
            f"sets in proportion, and test sets of at most {max_test_sources(request.samples):,} sources. The "
            "published numbers are those of the whole sets."
        )
    return suite._replace(experiments=experiments, introduction=introduction)


def max_test_sources(samples: int) -> int:
    """Return the maximum number of sources of a test set, for a number of training pairs.

    Args:
        samples: Number of training pairs to which a recipe is reduced.
    """
    return max(samples, MIN_TEST_SOURCES)


def name_changes(introduction: str, settings: Mapping[str, Any]) -> str:
    """Return the introduction of a report with a paragraph that names settings of the request; unchanged without any.

    Args:
        introduction: Introduction of the recipe.
        settings: Settings of the request, nested like a configuration.
    """
    if not settings:
        return introduction
    changes = ", ".join(f"{key} = {quote(value)}" for key, value in list_settings(settings))
    return f"{introduction}\n\nThese settings are not those of the recipe: {changes}."


def list_settings(tables: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the full keys and the values of nested settings.

    Args:
        tables: Settings, nested like a configuration.
    """
    return [
        (f"{name}.{key}" if key else name, each)
        for name, value in tables.items()
        for key, each in (value.items() if isinstance(value, Mapping) else [("", value)])
    ]


def merge_settings(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with changes.

    Args:
        settings: Settings, nested like a configuration.
        changes: Settings that take precedence.
    """
    merged = dict(settings)
    for name, value in changes.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, Mapping) else value
    return merged


def plan_trainings(suite: ExperimentSuite, request: RecipeRequest) -> list[list[ExperimentTraining]]:
    """Write the data files and return the planned trainings, a list per seed with one training per experiment.

    Args:
        suite: The suite of experiments.
        request: The recipe's request; reductions of the data are reported to its progress display.

    Raises:
        InputError: A name in `only` is unknown.
        DataError: The data folder is missing, or a file in it is missing or damaged.
        RunError: A file cannot be written.
        ConfigError: The settings of an experiment are invalid.
    """
    experiments = prepare_experiments(suite, request)
    seeds = range(1, request.seeds + 1)
    trainings_by_seed = [
        [_plan_training(suite, experiment, paths, seed, request.out) for experiment, paths in experiments]
        for seed in seeds
    ]
    for training in trainings_by_seed[0]:
        if request.progress is not None and training.paths.reduction:
            epochs = training.config.training.epochs
            request.progress.print_line(f"{training.experiment}: {training.paths.reduction}, at most {epochs:g} epochs")
    return trainings_by_seed


def ensemble_name(members: Sequence[ExperimentTraining]) -> str:
    """Return the name shown with the progress of the ensemble of the runs of one experiment.

    Args:
        members: Trainings of the experiment, one per seed.
    """
    return f"{members[0].experiment}, ensemble of {len(members)}"


def prepare_experiments(suite: ExperimentSuite, request: RecipeRequest) -> list[tuple[Experiment, SplitFiles]]:
    """Read the selected experiments and write their pairs as TSV files below the output folder.

    Args:
        suite: The suite of experiments.
        request: The recipe's request.

    Returns:
        Each selected experiment with its files, in the order of the suite.

    Raises:
        InputError: A name in `only` is unknown.
        DataError: The data folder is missing, or a file in it is missing or damaged.
        RunError: A file cannot be written.
    """
    experiments = select_experiments(suite, request.only)
    data = find_data(suite, request.data)
    make_folder(request.out)
    return [
        (experiment, write_splits(experiment, data, request.out / "data" / experiment.name, request.samples))
        for experiment in experiments
    ]


def select_experiments(suite: ExperimentSuite, only: Sequence[str]) -> list[Experiment]:
    """Return the experiments with these names, or all, in the order of the suite.

    Args:
        suite: The suite of experiments.
        only: Names of the experiments; empty selects all.

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

    Args:
        suite: The suite of experiments.
        data: Folder of all data sets.

    Raises:
        DataError: The folder does not exist or is a file; the message names the source of the data.
    """
    name = suite.package or suite.folder or suite.name
    folder = data / name
    if suite.package and (package_folder := _package_folder(suite.package)):
        return package_folder
    if not folder.is_dir():
        advice = f"; or pip install {suite.package}" if suite.package else ""
        raise DataError(f"{folder} does not exist: the data is {suite.origin}; {describe_download(name)}{advice}")
    return folder


def _package_folder(package: str) -> Path | None:
    """Return the folder of a package that holds data; None if it is not installed."""
    found = find_spec(package)
    return None if found is None or found.origin is None else Path(found.origin).parent


def write_splits(experiment: Experiment, data: Path, folder: Path, samples: int) -> SplitFiles:
    """Write the splits of an experiment as train.tsv, dev.tsv and test.tsv; equal files stay as they are.

    Args:
        experiment: The experiment.
        data: Data folder of the suite.
        folder: Folder of the written files.
        samples: Number of training pairs, taken from the beginning; 0, or a number of at least all pairs, takes all.
            The validation set is reduced in proportion by even selection, but not below `MIN_DEV_PAIRS`; so is the test
            set, to `max_test_sources`, with all pairs of each of these sources.

    Returns:
        The paths, with a description of the reduction and its maximum number of epochs.

    Raises:
        DataError: A data file is missing or damaged.
        RunError: A file cannot be written.
    """
    splits = experiment.read_splits(data)
    paths = SplitFiles(folder / "train.tsv", folder / "dev.tsv", folder / "test.tsv" if splits.test else None)
    train, dev, test, full_size = splits.train, splits.dev, splits.test, len(splits.train)
    if 0 < samples < full_size:
        test = _reduce_test_set(test, max_test_sources(samples))
        train, dev = train[:samples], sample_evenly(dev, max(round(len(dev) * samples / full_size), MIN_DEV_PAIRS))
        reduction = (
            f"{len(train):,} of {full_size:,} training pairs, {len(dev):,} of {len(splits.dev):,} validation pairs"
        )
        if len(test) < len(splits.test):
            reduction = f"{reduction}, {len(test):,} of {len(splits.test):,} test pairs"
        paths = paths._replace(reduction=reduction, max_epochs=float(round(derived_epochs(full_size))))
    make_folder(folder)
    for path, examples in zip(paths[:3], (train, dev, test), strict=True):
        if path is not None:
            _write_if_changed(path, "".join(map(_pair_line, examples)))
    return paths


def _reduce_test_set(test: Sequence[Example], max_sources: int) -> Sequence[Example]:
    """Return all pairs of a maximum number of evenly spaced sources, each of which may have several outputs."""
    sources = list(dict.fromkeys((example.source, example.features) for example in test))
    if len(sources) <= max_sources:
        return test
    kept = {*sample_evenly(sources, max_sources)}
    return [example for example in test if (example.source, example.features) in kept]


def _pair_line(example: Example) -> str:
    """Return the line of an example, with a third column for its features if it has any."""
    return "\t".join([example.source, example.target, *filter(None, [example.features])]) + "\n"


def read_tsv_splits(paths: Sequence[Path], config: DataConfig) -> DataSplits:
    """Read the splits of a data set that has a file of pairs for each.

    Args:
        paths: Training and validation file, and the test file if there is one (`SPLITS`).
        config: Columns and tokenization of the pairs.

    Raises:
        DataError: A file is missing, has no pair or a bad line.
    """
    train, dev, *test = (read_examples(path, config).examples for path in paths)
    return DataSplits(train, dev, test[0] if test else ())


def read_pairs(path: Path, config: Config) -> list[Example]:
    """Return the examples of a file, read with the data settings of a training.

    Args:
        path: TSV file.
        config: Configuration of the training.

    Raises:
        DataError: The file cannot be read, has no example or a bad line.
        ConfigError: The configured columns are invalid.
    """
    return read_examples(path, config.data).examples


def _plan_training(
    suite: ExperimentSuite, experiment: Experiment, paths: SplitFiles, seed: int, out: Path
) -> ExperimentTraining:
    """Return the training of an experiment with a seed below the output folder."""
    config = load_recipe_config(suite.name, {**experiment.settings, "seed": seed}, paths.train)
    if paths.reduction and not config.training.epochs:
        training = msgspec.structs.replace(config.training, epochs=paths.max_epochs)
        config = msgspec.structs.replace(config, training=training)
    return ExperimentTraining(experiment.name, config, paths, out / "runs" / f"{experiment.name}-seed-{seed}")


def _write_if_changed(path: Path, text: str) -> None:
    """Write a file unless it already has this content."""
    if not path.exists() or read_bytes(path) != text.encode("utf-8"):
        write_text(path, text)
