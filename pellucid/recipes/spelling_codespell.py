"""Misspelt words to what was meant."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pellucid.config.settings import DataConfig
from pellucid.data.examples import read_examples
from pellucid.recipes.experiment_report import run_reference
from pellucid.recipes.experiments import Experiment, Pairs, Reference
from pellucid.recipes.recipe import Request, recipe_config

INTRODUCTION = """Misspellings of the dictionary of codespell 2.4.3 with a single correction, as they are written
there. No correction of one part is in another part: a word that is tested was never seen, so it must be spelt from
what other words teach. Beside the accuracy stands how often the correction is among the first three outputs.

Published: no number of such a model on fixed parts is known. Correctors that look words up in a dictionary solve
another task, in which the right word is always among those known.

The second experiment is the same with copying: a gate chooses, letter by letter, between what the decoder would write
and the letters of the source where it looks (See et al. 2017). Nine letters of ten are copies, so where the attention
of such a model lies is an alignment of the two spellings; it is drawn below."""


def run(request: Request) -> Iterator[str]:
    """Train and judge."""
    return run_reference(reference(), request)


def reference() -> Reference:
    """The recipe."""
    data = recipe_config("spelling-codespell", {}).data
    return Reference(
        name="spelling-codespell",
        title="Misspelt words to what was meant",
        introduction=INTRODUCTION,
        origin="codespell's dictionary (github.com/codespell-project/codespell) as train.tsv, dev.tsv and test.tsv, "
        "split by the correction",
        measure="exact_match",
        experiments=[
            Experiment("codespell", partial(_pairs, data), setting="codespell"),
            Experiment(
                "copying",
                partial(_pairs, data),
                {},
                {"decoder": {"pointer_generator": True}},
                setting="copying",
                beside="codespell",
            ),
        ],
        candidates=3,
        drawn=True,
    )


def _pairs(config: DataConfig, folder: Path) -> Pairs:
    """The three files."""
    return Pairs(*(read_examples(folder / f"{part}.tsv", config).examples for part in ("train", "dev", "test")))
