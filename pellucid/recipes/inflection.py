"""Recipe for morphological inflection: lemma and tags to inflected form, SIGMORPHON-UniMorph 2022."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from pellucid.config.settings import DataConfig
from pellucid.recipes.experiments import DataSplits, Experiment, ExperimentSuite, read_tsv_splits
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.transduction_experiments import run_suite

NEURAL_BASELINE = "neural baseline"
SMALL_AND_LARGE: Mapping[str, tuple[float, float]] = {
    "ang": (49.822, 61.097),
    "ara": (65.965, 78.546),
    "asm": (54.673, 76.784),
    "evn": (29.26, 57.717),
    "got": (60.582, 72.166),
    "heb": (39.65, 48.45),
    "hun": (65.0, 77.2),
    "hye": (64.75, 69.8),
    "kat": (60.2, 87.25),
    "kaz": (55.667, 55.667),
    "khk": (41.616, 49.141),
    "kor": (23.523, 56.161),
    "krl": (16.182, 27.104),
    "lud": (46.609, 52.986),
    "non": (55.902, 84.982),
    "pol": (59.25, 69.45),
    "poma": (51.426, 63.882),
    "slk": (61.0, 70.1),
    "tur": (34.6, 39.65),
    "vep": (35.575, 48.821),
}
"""Test accuracy of the task's neural baseline with the small and with the large training set, by language."""
SMALL_ONLY: Mapping[str, float] = {
    **{"bra": 55.041, "ckt": 6.522, "gml": 42.737, "goh": 56.42, "guj": 39.979, "hsb": 5.0, "hsi": 0.0},
    **{"itl": 34.257, "ket": 10.949, "mag": 51.163, "nds": 25.789, "sjo": 58.643, "slp": 15.19},
}
"""Test accuracy of the baseline with the small training set, for languages without a large one."""
INTRODUCTION = """\
SIGMORPHON-UniMorph 2022, task 0, part 1: a lemma and its tags to the inflected form, in 33 languages with at
most 700 pairs for training (small), 20 of which also have 7,000 (large). Most test pairs have a lemma or tags that the
training set lacks. All languages have the default settings: size base for the small and large for the large training
sets; tags are read before the lemma. Accuracy is exact match.

Published: the task's neural baseline (github.com/sigmorphon/2022InflectionST), by language. Over all test items it has
62.4 % with the large training sets and 47.6 % with the small ones; the best submission has 71.3 and 57.2 %."""


def run_inflection(request: RecipeRequest) -> Iterator[str]:
    """Train and score one model per language and size of the training set, and seed.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_suite`).
    """
    return run_suite(inflection_suite(), request)


def inflection_suite() -> ExperimentSuite:
    """Return the suite of the recipe inflection-sigmorphon2022: large training sets first.

    Raises:
        ConfigError: The settings file of the recipe is missing or invalid.
    """
    data = load_recipe_config("inflection-sigmorphon2022", {}).data
    large = {language: scores[1] for language, scores in SMALL_AND_LARGE.items()}
    small = {**{language: scores[0] for language, scores in SMALL_AND_LARGE.items()}, **SMALL_ONLY}
    return ExperimentSuite(
        name="inflection-sigmorphon2022",
        title="Morphological inflection",
        introduction=INTRODUCTION,
        origin="part 1 of task 0 of SIGMORPHON-UniMorph 2022 (github.com/sigmorphon/2022InflectionST, part1)",
        metric="exact_match",
        experiments=[
            Experiment(
                f"{language}-{size}",
                partial(read_inflections, language, size, data),
                {NEURAL_BASELINE: published},
                settings_name=size,
            )
            for size, scores in (("large", large), ("small", dict(sorted(small.items()))))
            for language, published in scores.items()
        ],
    )


def read_inflections(language: str, size: str, config: DataConfig, folder: Path) -> DataSplits:
    """Read the training, validation and test triples of a language.

    Args:
        language: Language code, which begins the file names.
        size: Size of the training set: "small" or "large".
        config: Columns and tokenization.
        folder: Data folder of the suite.

    Raises:
        DataError: A file is missing, has no triple or a bad line.
    """
    names = (f"{language}_{size}.train", f"{language}.dev", f"{language}.test")
    return read_tsv_splits([folder / name for name in names], config)
