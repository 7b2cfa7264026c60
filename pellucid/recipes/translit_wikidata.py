"""Names from Latin letters to Hebrew and Arabic ones."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pellucid.config.settings import DataConfig
from pellucid.data.examples import read_examples
from pellucid.recipes.experiment_report import run_reference
from pellucid.recipes.experiments import Experiment, Pairs, Reference
from pellucid.recipes.recipe import Request, recipe_config

LANGUAGES = {"he": "hebrew", "ar": "arabic"}
PARTS = ("64", "16", "20")
"""Per cent of the names that are trained on, developed on, tested on: the ends of the files' names."""
INTRODUCTION = """Words of the names of people in Wikidata, in lower case, and the same in Hebrew or Arabic script:
the splits of Merhav and Ash (2018), "Design Challenges in Named Entity Transliteration". Every word stands once,
with one answer. An output counts as right at k-best where one of the first k is that answer.

Published: the paper compares Phonetisaurus, an encoder-decoder with attention and a transformer at 1-, 2- and
3-best, but its table could not be read for this recipe, so nothing stands beside these numbers. For scale: its
repository shows 60, 71 and 75 % for Russian, without saying of which system."""


def run(request: Request) -> Iterator[str]:
    """Train and judge both languages."""
    return run_reference(reference(), request)


def reference() -> Reference:
    """The recipe."""
    data = recipe_config("translit-wikidata", {}).data
    return Reference(
        name="translit-wikidata",
        title="Names in other scripts",
        introduction=INTRODUCTION,
        origin="that of Merhav and Ash 2018 (github.com/steveash/NETransliteration-COLING2018, data)",
        measure="exact_match",
        experiments=[Experiment(code, partial(_pairs, name, data)) for code, name in LANGUAGES.items()],
        candidates=3,
    )


def _pairs(name: str, config: DataConfig, folder: Path) -> Pairs:
    """The files of a language; their third column, how often a name is met, is left."""
    train, dev, test = (read_examples(folder / f"wd_{name}_{part}", config).examples for part in PARTS)
    return Pairs(train, dev, test)
