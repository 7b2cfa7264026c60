"""Pretrained embeddings of source and target symbols."""

from pathlib import Path

import torch

from pellucid.config.settings import Config
from pellucid.data.vectors import read_vectors
from pellucid.data.vocabulary import Vocabularies
from pellucid.model.network import Network, require_encoder_decoder
from pellucid.training.events import EmbeddingCoverage


def load_pretrained(network: Network, config: Config, vocabularies: Vocabularies) -> tuple[EmbeddingCoverage, ...]:
    """Load pretrained embeddings into a new network, in place. Symbols that a file lacks keep their random vectors.

    The embeddings are saved with the network, so the files are not needed again.

    Args:
        network: New network, which is changed.
        config: Configuration, whose settings `encoder.pretrained` and `decoder.pretrained` name the files.
        vocabularies: Vocabularies of the network.

    Returns:
        One entry for each of source and target with pretrained embeddings; empty if no file is configured.

    Raises:
        DataError: A file is missing, malformed or without vectors, or the vectors have another size.
    """
    coverage: list[EmbeddingCoverage] = []
    for side, vocabulary, settings in (
        ("source", vocabularies.source, config.encoder),
        ("target", vocabularies.target, config.decoder),
    ):
        if settings.pretrained:
            module = network.encoder if side == "source" else require_encoder_decoder(network).decoder
            path = Path(settings.pretrained)
            section = "encoder" if side == "source" else "decoder"
            vectors = read_vectors(path, vocabulary, module.table.size, f"{section}.embedding_size")
            module.table.load_pretrained(vectors.ids, torch.from_numpy(vectors.values))
            coverage.append(EmbeddingCoverage(path, side, len(vectors.ids), len(vocabulary.symbols)))
    return tuple(coverage)
