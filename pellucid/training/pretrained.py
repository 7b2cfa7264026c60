"""Embeddings that begin from vectors somebody else trained."""

from pathlib import Path
from typing import NamedTuple

import torch

from pellucid.config import Config
from pellucid.data.vectors import read_vectors
from pellucid.data.vocabulary import Vocabularies
from pellucid.model.network import Network, writing


class Covered(NamedTuple):
    """How many of the symbols of a side a file of vectors had."""

    path: Path
    side: str
    found: int
    symbols: int


def adopt_vectors(network: Network, config: Config, vocabularies: Vocabularies) -> tuple[Covered, ...]:
    """Give a new network the vectors that the configuration names; symbols that a file has not keep their random ones.

    They are the network's own from then on, and are saved with it. Errors: `DataError` for a file that does not fit.
    """
    covered: list[Covered] = []
    for side, vocabulary, settings in (
        ("source", vocabularies.source, config.encoder),
        ("target", vocabularies.target, config.decoder),
    ):
        if settings.pretrained:
            half = network.encoder if side == "source" else writing(network).decoder
            path, key = Path(settings.pretrained), "encoder" if side == "source" else "decoder"
            vectors = read_vectors(path, vocabulary, half.table.size, f"{key}.embedding_size")
            half.table.adopt(vectors.ids, torch.from_numpy(vectors.values))
            covered.append(Covered(path, side, len(vectors.ids), len(vocabulary.symbols)))
    return tuple(covered)
