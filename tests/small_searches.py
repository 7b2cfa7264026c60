"""Searches over small networks, and every output there is: what the tests of search/ compare with.

V vocabulary, T greatest length.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from small import WIDTH, config_of, hasty

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import EOS, NUM_SPECIAL
from pellucid.decoding.beam_search import BeamConfig, Hypothesis, stepwise
from pellucid.decoding.candidate_scorer import PLAIN, CandidateScorer
from pellucid.decoding.constraints import NO_CONSTRAINTS, Constraints
from pellucid.decoding.forced_decoding import score_targets
from pellucid.decoding.inference import encode_and_initialize
from pellucid.decoding.outputs import BatchLengthLimits, DecodedOutput
from pellucid.model.network import Network

KINDS = [("gru", "additive"), ("lstm", "additive"), ("gru", "location"), ("lstm", "none"), ("gru", "monotonic")]
SYMBOLS = range(NUM_SPECIAL, WIDTH)
SCORES = st.one_of(
    st.just(PLAIN),
    st.builds(CandidateScorer, st.just("average"), st.just(0.0), st.sampled_from([0.0, 0.2])),
    st.builds(CandidateScorer, st.just("gnmt"), st.sampled_from([0.0, 0.6, 1.0, 2.0]), st.sampled_from([0.0, 0.3])),
    st.just(CandidateScorer("none", 0.0, 0.5)),
)


class Asked(NamedTuple):
    """What a test wants of a search."""

    minimum: int = 0
    maximum: int = 4
    width: int = 3
    best: int = 1
    score: CandidateScorer = PLAIN
    constraints: Constraints = NO_CONSTRAINTS
    lattice: bool = False


def network_like(kind: tuple[str, str], seed: int) -> Network:
    """A network of a cell and an attention, of two units or so."""
    cell, score = kind
    sizes = {"cell": cell, "hidden_size": 3, "embedding_size": 3}
    attention = {"type": score, "size": 3, "filters": 2, "filter_radius": 1}
    return hasty(config_of({"encoder": sizes, "decoder": sizes, "attention": attention}), seed)


def searched(network: Network, batch: Batch, asked: Asked) -> list[list[Hypothesis]]:
    """What the search by steps finds."""
    count = len(batch.source)
    spans = BatchLengthLimits(np.full(count, asked.minimum), np.full(count, asked.maximum))
    wanted = BeamConfig(spans, asked.width, asked.best, asked.score, asked.constraints, asked.lattice)
    with torch.inference_mode():
        return stepwise(
            encode_and_initialize(network, batch.source, batch.source_lengths), batch.source_lengths, wanted
        )


def forced(network: Network, batch: Batch, row: int, outputs: Iterable[Sequence[int]]) -> list[DecodedOutput]:
    """What the network says of outputs of one source, each by itself."""
    length = int(batch.source_lengths[row])
    source, lengths = batch.source[row : row + 1, :length], batch.source_lengths[row : row + 1]
    found: list[DecodedOutput] = []
    with torch.inference_mode():
        for ids in outputs:
            target = torch.tensor([list(ids)])
            found += score_targets(
                encode_and_initialize(network, source, lengths), lengths, target, torch.tensor([target.shape[1]])
            )
    return found


def every_output(longest: int) -> list[tuple[int, ...]]:
    """All that can be written and ended."""
    return [(*ids, EOS) for count in range(longest + 1) for ids in product(SYMBOLS, repeat=count)]


def ranked(decoded: DecodedOutput, score: CandidateScorer) -> float:
    """The score of an output by its definition."""
    steps = len(decoded.ids)
    divisor: float = {"none": 1.0, "average": float(steps), "gnmt": ((5 + steps) / 6) ** score.power}[
        score.normalization
    ]
    total = float(decoded.log_probabilities.sum(dtype=np.float64) / divisor)
    if score.coverage and decoded.weights.any():
        seen = np.clip(decoded.weights.astype(np.float64).sum(axis=0), 1e-6, 1)
        total += score.coverage * float(np.log(seen).sum())
    return total
