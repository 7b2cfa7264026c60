"""The recipes by name: description, module and function."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import NamedTuple

from pellucid.errors import InputError, quote, suggest
from pellucid.recipes.recipe import RecipeRequest


class RecipeEntry(NamedTuple):
    """Description of a recipe, as `pellucid recipe list` prints it, and the place of its function."""

    description: str
    module: str
    """Module below `pellucid.recipes`; imported only when the recipe runs."""
    function: str


RECIPES: Mapping[str, RecipeEntry] = {
    "digits-data": RecipeEntry(
        "samples, symbols, tensor shapes, parameters and gradients of the lesson networks",
        "digits.analysis",
        "run_data",
    ),
    "digits-repeat": RecipeEntry(
        "first network of blog and notebook, no attention: the code (last encoder state) is the input of every step",
        "digits.experiments",
        "run_repeat",
    ),
    "digits-init": RecipeEntry(
        "no attention, the code (last encoder state) is the initial decoder state", "digits.experiments", "run_init"
    ),
    "digits-attention-faithful": RecipeEntry(
        "the notebook's attention decoder, reproduced exactly", "digits.experiments", "reproduce_digits_attention"
    ),
    "digits-bidirectional": RecipeEntry(
        "exercise: bidirectional encoder, three ways to merge the directions", "digits.experiments", "run_bidirectional"
    ),
    "digits-variable-length": RecipeEntry(
        "exercise: 1 to 20 digits, masked and unmasked loss", "digits.experiments", "run_variable_length"
    ),
    "digits-embedding": RecipeEntry("exercise: one-hot and learned embeddings", "digits.experiments", "run_embedding"),
    "digits-optimizers": RecipeEntry("exercise: six optimizers", "digits.experiments", "run_optimizers"),
    "digits-cells": RecipeEntry("exercise: GRU and LSTM, accuracy and speed", "digits.experiments", "run_cells"),
    "digits-positions": RecipeEntry(
        "exercise: accuracy by target position and its causes", "digits.analysis", "run_positions"
    ),
    "digits-lr-decay": RecipeEntry(
        "exercise: cause of the sawtooth in the validation curve of a long run", "digits.experiments", "run_lr_decay"
    ),
    "digits-attention": RecipeEntry(
        "spelled digits to digits with attention: 20 digits, 10 + 10 hidden units, 60,000 samples",
        "digits.attention_models",
        "run_attention",
    ),
    "digits-sample-efficiency": RecipeEntry(
        "samples needed for 99 % symbol accuracy, ablation of every ingredient",
        "digits.attention_models",
        "run_sample_efficiency",
    ),
    "digits-extrapolate": RecipeEntry(
        "trained on at most 20 digits, tested on up to 100, with three types of attention",
        "digits.attention_models",
        "run_extrapolate",
    ),
    "g2p-sigmorphon2020": RecipeEntry(
        "grapheme-to-phoneme conversion, SIGMORPHON 2020: 15 languages, one configuration", "transduction", "run_g2p"
    ),
    "g2p-cmudict": RecipeEntry(
        "pronunciations of English words, from 100 to 100,000 pairs", "pronunciations", "run_cmudict"
    ),
    "g2p-sigmorphon2021": RecipeEntry(
        "pronunciations of 15 languages, SIGMORPHON 2021: 800 to 33,000 pairs", "pronunciations", "run_sigmorphon2021"
    ),
    "inflection-sigmorphon2022": RecipeEntry(
        "morphological inflection, SIGMORPHON-UniMorph 2022: 33 languages, 700 and 7,000 pairs",
        "inflection",
        "run_inflection",
    ),
    "g2p-ablations": RecipeEntry(
        "ablation study: the defaults and 17 variants, on three of these languages",
        "transduction",
        "run_g2p_ablations",
    ),
    "histnorm": RecipeEntry(
        "historical spelling normalization, German and Slovene, from 1,000 tokens", "transduction", "run_histnorm"
    ),
    "translit-wikidata": RecipeEntry(
        "transliteration of names from Latin to Hebrew and Arabic script, 1-, 2- and 3-best",
        "transduction",
        "run_translit",
    ),
    "spelling-codespell": RecipeEntry(
        "spelling correction, 1-, 2- and 3-best, with and without copying", "transduction", "run_spelling"
    ),
    "scan": RecipeEntry("SCAN, commands to actions: the splits simple and length", "transduction", "run_scan"),
    "spanish-faithful": RecipeEntry(
        "English to Spanish with TensorFlow's attention decoder of 2016, reproduced exactly, on 20 pairs",
        "spanish.faithful",
        "run_faithful",
    ),
    "spanish-studies": RecipeEntry(
        "training techniques of that decoder: sampled softmax, buckets, padding",
        "spanish.studies",
        "run_spanish_studies",
    ),
    "spanish-tatoeba": RecipeEntry(
        "English to Spanish on 112,000 pairs, with words and with subwords", "spanish.tatoeba", "run_tatoeba"
    ),
    "typo-faithful": RecipeEntry(
        "position of the wrong letter: the network of the typo post of 2017, reproduced exactly",
        "typos.experiments",
        "run_faithful",
    ),
    "typo-attention": RecipeEntry(
        "position of the wrong letter: pointer attention", "typos.experiments", "run_attention"
    ),
    "typo-language-model": RecipeEntry(
        "position of the wrong letter: pointer attention over two letter language models",
        "typos.experiments",
        "run_language_model",
    ),
    "protein-pretrained": RecipeEntry(
        "protein networks of 2016: stored weights, published numbers", "proteins.stored_networks", "run_pretrained"
    ),
    "snips": RecipeEntry("slot filling and intent detection as one tagging task", "sequence_tagging", "run_snips"),
    "protein-structure": RecipeEntry(
        "secondary structure of proteins by residue: helix, strand or coil", "sequence_tagging", "run_structure"
    ),
    "protein-localization": RecipeEntry(
        "subcellular localization of proteins, with and without attention, on two splits",
        "proteins.localization",
        "run_localization",
    ),
}
"""Every recipe, in the order of `pellucid recipe list`."""
TRANSDUCTION_RECIPES = (
    *("g2p-sigmorphon2020", "g2p-ablations", "histnorm", "translit-wikidata", "spelling-codespell", "scan"),
)
"""Recipes for published data sets of string transduction."""
EXPERIMENTS: Mapping[str, str] = {
    "g2p-sigmorphon2020": "g2p_suite",
    "g2p-ablations": "g2p_ablation_suite",
    "histnorm": "histnorm_suite",
    "translit-wikidata": "translit_suite",
    "spelling-codespell": "spelling_suite",
    "scan": "scan_suite",
    "g2p-cmudict": "cmudict_suite",
    "g2p-sigmorphon2021": "sigmorphon2021_suite",
    "inflection-sigmorphon2022": "inflection_suite",
    "spanish-tatoeba": "SYSTEMS",
    "protein-localization": "localization_experiments",
}
"""Function in the module of a recipe that returns its experiments, or names of them."""
RECIPES_WITH_EXPERIMENTS = tuple(EXPERIMENTS)
"""Recipes whose experiments can be selected by name (`--only`)."""
RECIPES_WITH_SETTINGS = (*RECIPES_WITH_EXPERIMENTS, "snips", "protein-structure")
"""Recipes whose settings can be changed (`--set`)."""


def find_recipe(name: str) -> Callable[[RecipeRequest], Iterator[str]]:
    """Import and return the function that runs a recipe: it takes a request and yields the lines to print.

    Args:
        name: A key of `RECIPES`.

    Raises:
        InputError: The name is unknown; the message suggests the most similar one.
    """
    _, module, function = RECIPES[_known_name(name)]
    run: Callable[[RecipeRequest], Iterator[str]] = getattr(import_module(f"pellucid.recipes.{module}"), function)
    return run


def experiment_names(name: str) -> list[str]:
    """Return the names of the experiments of a recipe, from which `--only` selects.

    Args:
        name: A key of `RECIPES`.

    Raises:
        InputError: The name is unknown, or the recipe has only one experiment.
    """
    module = import_module(f"pellucid.recipes.{RECIPES[_known_name(name)].module}")
    if name not in EXPERIMENTS:
        raise InputError(f"{name} has only one experiment; {', '.join(EXPERIMENTS)} have several")
    found = getattr(module, EXPERIMENTS[name])
    return [experiment.name for experiment in found().experiments] if callable(found) else list(found)


def _known_name(name: str) -> str:
    """Return the name of a recipe; raise `InputError` for an unknown one, with the most similar one."""
    if name not in RECIPES:
        raise InputError(f"there is no recipe {quote(name)}{suggest(name, RECIPES)} (pellucid recipe list)")
    return name
