"""Words to phones in fifteen languages: one configuration for all, one model a language."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example, read_examples
from pellucid.recipes.experiment_report import run_reference
from pellucid.recipes.experiments import Experiment, Pairs, Reference
from pellucid.recipes.recipe import Request, recipe_config

PUBLISHED = {
    "arm": (14.67, 14.22, 12.22),
    "bul": (31.11, 34.00, 22.22),
    "fre": (6.22, 6.89, 5.11),
    "geo": (26.44, 28.00, 24.89),
    "gre": (18.89, 18.89, 14.44),
    "hin": (6.67, 9.56, 5.11),
    "hun": (5.33, 5.33, 4.00),
    "ice": (10.00, 10.22, 9.11),
}
"""Test WER of the languages that are tested: LSTM with attention, transformer, best submission."""
SYSTEMS = ("LSTM with attention", "transformer", "best submission")
UNTESTED = ("ady", "dut", "jpn", "kor", "lit", "rum", "vie")
"""Languages of which the development set alone is judged."""
SETTINGS: dict[str, dict[str, Any]] = {"kor": {"data": {"source_normalization": "nfd"}}}
"""Korean's syllables are read as the letters they are made of: 3,600 words hold too few of each syllable."""
INTRODUCTION = """SIGMORPHON 2020, task 1: 3,600 words a language to train on, 450 to develop on and 450 to test on,
with their phones. Every language is trained with the same settings (Korean alone is read letter by letter instead of
syllable by syllable), and every search keeps five hypotheses. WER is the share of words with a wrong phone, SER the
edits over the phones (PER).

Published: test WER of Gorman et al. (2020, Table 2), "The SIGMORPHON 2020 Shared Task on Multilingual
Grapheme-to-Phoneme Conversion". Their LSTM with attention reads both ways, has one layer a side, label smoothing
and a beam of five, and settings tuned for each language on its development set over 36 points. The best submission
is another system for each language, and often an ensemble. One word of 450 is 0.22 points."""


def run(request: Request) -> Iterator[str]:
    """Train and judge every language."""
    return run_reference(reference(), request)


def reference() -> Reference:
    """The recipe."""
    data = recipe_config("g2p-sigmorphon2020", {}).data
    languages = sorted([*PUBLISHED, *UNTESTED], key=lambda language: (language in UNTESTED, language))
    return Reference(
        name="g2p-sigmorphon2020",
        title="Words to phones",
        introduction=INTRODUCTION,
        origin="task 1 of SIGMORPHON 2020 (github.com/sigmorphon/2020, task1/data)",
        measure="wer",
        experiments=[
            Experiment(
                language, partial(language_pairs, language, data), _published(language), SETTINGS.get(language, {})
            )
            for language in languages
        ],
    )


def language_pairs(language: str, config: DataConfig, folder: Path) -> Pairs:
    """The files of a language."""

    def read(part: str) -> list[Example]:
        """One of them."""
        return read_examples(folder / part / f"{language}_{part}.tsv", config).examples

    return Pairs(read("train"), read("dev"), read("test") if language in PUBLISHED else ())


def _published(language: str) -> dict[str, float]:
    """The published numbers of a language, by system."""
    return dict(zip(SYSTEMS, PUBLISHED[language], strict=True)) if language in PUBLISHED else {}
