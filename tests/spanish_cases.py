"""Small networks of the Spanish recipe, and its sentence pairs as tensors of ids."""

import torch

from pellucid.recipes.spanish.networks import SpanishArchitecture, SpanishNetwork
from pellucid.recipes.spanish.sentences import PAIRS, build_corpus
from pellucid.recipes.spanish.training import to_tensors

CORPUS = build_corpus(PAIRS)
TENSORS = to_tensors(CORPUS.data)
SMALL_ARCHITECTURE = SpanishArchitecture(hidden=8, embedding=8)


def make_small_network(architecture: SpanishArchitecture = SMALL_ARCHITECTURE, seed: int = 3) -> SpanishNetwork:
    """Return a network for the vocabularies of `CORPUS` with random parameters, in evaluation mode."""
    torch.manual_seed(seed)
    sizes = len(CORPUS.source_vocabulary.words), len(CORPUS.target_vocabulary.words)
    return SpanishNetwork(architecture, *sizes).eval()
