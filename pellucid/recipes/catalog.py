"""The recipes by name: what each shows, and the function that runs it and yields the lines of its report."""

from collections.abc import Callable, Iterator
from importlib import import_module

from pellucid.errors import InputError, quote, suggest
from pellucid.recipes.recipe import Request

ABOUT = {
    "digits-data": "the lessons' samples, symbols, shapes, parameters and gradients",
    "digits-repeat": "the blog's and the notebook's first network: no attention, the code at every step",
    "digits-init": "the second way to hand over the code: as the decoder's first state",
    "digits-attention-faithful": "the notebook's attention decoder, to the letter",
    "digits-bidirectional": "exercise: an encoder that reads both ways, merged in three ways",
    "digits-varying": "exercise: 1 to 20 digits, with the mask in the cost and without",
    "digits-embedding": "exercise: one-hot against learned symbols",
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


def find(name: str) -> Callable[[Request], Iterator[str]]:
    """The function of a recipe; `InputError` with the nearest name where there is none."""
    if name not in ABOUT:
        raise InputError(f"there is no recipe {quote(name)}{suggest(name, ABOUT)} (pellucid recipe list)")
    run: Callable[[Request], Iterator[str]] = import_module(f"pellucid.recipes.{name.replace('-', '_')}").run
    return run
