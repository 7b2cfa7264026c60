"""What a recipe is: a name, what it shows, and a function that works and tells, line by line, what came out."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.config import Config
from pellucid.data.typos import WORD_LIST
from pellucid.errors import InputError, nearest
from pellucid.toml import load_config

if TYPE_CHECKING:
    from pellucid.look.rows import Rows

ABOUT = {
    "digits-data": "the lessons' samples, symbols, shapes, parameters and gradients",
    "digits-repeat": "the blog's and the notebook's first network: no attention, the code at every step",
    "digits-init": "the second way to hand over the code: as the decoder's first state",
    "digits-attention-faithful": "the notebook's attention decoder, to the letter",
    "digits-bidirectional": "exercise: an encoder that reads both ways, merged in three ways",
    "digits-varying": "exercise: 1 to 20 digits, with the mask in the cost and without",
    "digits-embedding": "exercise: one-hot against learnt symbols",
    "digits-optimizers": "exercise: six optimisers",
    "digits-cells": "exercise: GRU against LSTM, accuracy and speed",
    "digits-positions": "exercise: why the plots of accuracy by position look as they do",
    "digits-jigsaw": "exercise: why the validation curve of a long run looks like a jig-saw",
    "digits-attention": "spelled digits to digits with attention: 20 digits, 10 + 10 hidden units, 60,000 samples",
    "digits-fewest": "the fewest samples to 99 % of the symbols, and what each ingredient saves",
    "digits-extrapolate": "trained on at most 20 digits, tested on up to 100, with three kinds of attention",
    "g2p-sigmorphon2020": "words to phones, SIGMORPHON 2020: 15 languages, one configuration for all",
    "g2p-ablations": "what each option of network and training is worth: 18 settings on three of these languages",
    "histnorm": "historical spellings to modern ones, German and Slovene, from 1,000 tokens on",
    "translit-wikidata": "names from Latin letters to Hebrew and Arabic ones, 1-, 2- and 3-best",
    "spelling-codespell": "misspelt words to what was meant, the first and the first three",
    "scan": "commands to actions: the splits simple and length",
    "spanish-faithful": "English to Spanish with TensorFlow's attention decoder of 2016, to the letter, on 20 pairs",
    "spanish-studies": "what that decoder was trained with: sampled softmax, buckets, padding",
    "spanish-tatoeba": "English to Spanish on 112,000 pairs, with words and with subwords",
    "typo-faithful": "where a word has its wrong letter: the typo post's network of 2017, to the letter",
    "typo-attention": "the same, with attention that points",
    "typo-foretold": "the same, with attention over what a letter's neighbours foretell",
    "protein-golden": "the protein networks of 2016: kept weights, published numbers",
    "snips": "requests to a voice assistant: slots and intent by one tagging",
    "protein-structure": "proteins residue by residue: helix, strand or neither",
    "protein-place": "the place of a protein in the cell, with attention and without, on two splits",
}
"""Every recipe, and what it is."""
REFERENCES = ("g2p-sigmorphon2020", "g2p-ablations", "histnorm", "translit-wikidata", "spelling-codespell", "scan")
"""Those of published sets, which consist of experiments that can be asked for one by one."""
CHOOSABLE = (*REFERENCES, "spanish-tatoeba", "protein-place")
"""All that consist of experiments that can be asked for one by one."""


class MismatchError(Exception):
    """What came out is not what a recipe exists to show; the message says where."""


class Request(NamedTuple):
    """What a person asks of a recipe."""

    out: Path
    seeds: int = 1
    """Seeds 1 to n."""
    samples: int = 0
    """Training samples; 0 takes the recipe's own number."""
    data: Path = Path("../shared/data")
    """Where data sets are."""
    only: Sequence[str] = ()
    """The experiments to run, by name; all where none is named."""
    words: Path = WORD_LIST
    """The list of words that typos are made of."""
    seen: "Rows | None" = None
    """Where to tell how trainings go; nowhere where it is not given."""


def find(name: str) -> Callable[[Request], Iterator[str]]:
    """The function of a recipe; `InputError` with the nearest name where there is none."""
    if name not in ABOUT:
        raise InputError(f"there is no recipe {name!r}{nearest(name, ABOUT)} (pellucid recipe list)")
    run: Callable[[Request], Iterator[str]] = import_module(f"pellucid.recipes.{name.replace('-', '_')}").run
    return run


def recipe_config(name: str, overrides: Mapping[str, Any]) -> Config:
    """The configuration of a recipe's TOML file, with overrides."""
    with resources.as_file(resources.files("pellucid.recipes").joinpath(f"{name}.toml")) as path:
        return load_config(path, overrides)


def data_folder() -> Path:
    """Where data sets are looked for: PELLUCID_DATA, or ../shared/data."""
    return Path(os.environ.get("PELLUCID_DATA", "../shared/data"))
