"""Small networks of the Spanish post, and its sentence pairs as ids."""

import torch

from pellucid.recipes.spanish.networks import (
    SpanishArchitecture,
    SpanishNetwork,
)
from pellucid.recipes.spanish.sentences import (
    PAIRS,
    build_corpus,
)
from pellucid.recipes.spanish.training import (
    to_tensors,
)

CORPUS = build_corpus(PAIRS)


TENSORS = to_tensors(CORPUS.data)


SMALL_ARCHITECTURE = SpanishArchitecture(hidden=8, embedding=8)


def make_small_network(architecture: SpanishArchitecture = SMALL_ARCHITECTURE, seed: int = 3) -> SpanishNetwork:
    torch.manual_seed(seed)
    sizes = len(CORPUS.source_vocabulary.words), len(CORPUS.target_vocabulary.words)
    return SpanishNetwork(architecture, *sizes).eval()
