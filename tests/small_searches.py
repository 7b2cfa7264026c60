"""Searches over small networks, and enumeration of all their possible outputs."""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from small_networks import VOCABULARY_SIZE, make_config, make_network_with_eos_bias
from torch import Tensor

from pellucid.data.batches import Batch
from pellucid.data.vocabulary import EOS, NUM_SPECIAL
from pellucid.decoding.beam_search import beam_search, beam_search_stepwise
from pellucid.decoding.beam_steps import BeamConfig
from pellucid.decoding.constraints import NO_CONSTRAINTS, Constraints
from pellucid.decoding.forced_decoding import score_targets
from pellucid.decoding.greedy import greedy
from pellucid.decoding.hypothesis import Hypothesis
from pellucid.decoding.hypothesis_scorer import LOG_PROBABILITY, HypothesisScorer
from pellucid.decoding.inference import encode_and_initialize
from pellucid.decoding.outputs import BatchLengthLimits, DecodedOutput, LengthLimits
from pellucid.model.network import Network

NETWORK_KINDS = [("gru", "additive"), ("lstm", "additive"), ("gru", "location"), ("lstm", "none"), ("gru", "monotonic")]
SYMBOL_IDS = range(NUM_SPECIAL, VOCABULARY_SIZE)
HYPOTHESIS_SCORERS = st.one_of(
    st.just(LOG_PROBABILITY),
    st.builds(HypothesisScorer, st.just("average"), st.just(0.0), st.sampled_from([0.0, 0.2])),
    st.builds(HypothesisScorer, st.just("gnmt"), st.sampled_from([0.0, 0.6, 1.0, 2.0]), st.sampled_from([0.0, 0.3])),
    st.just(HypothesisScorer("none", 0.0, 0.5)),
)


class SearchCase(NamedTuple):
    """Settings of one search."""

    min_length: int = 0
    max_length: int = 4
    beam_size: int = 3
    nbest: int = 1
    score: HypothesisScorer = LOG_PROBABILITY
    constraints: Constraints = NO_CONSTRAINTS
    search_tree: bool = False


def make_small_network(kind: tuple[str, str], seed: int) -> Network:
    """Return a small network with this cell and attention type."""
    cell, attention_type = kind
    sizes = {"cell": cell, "hidden_size": 3, "embedding_size": 3}
    attention = {"type": attention_type, "size": 3, "filters": 2, "filter_radius": 1}
    return make_network_with_eos_bias(make_config({"encoder": sizes, "decoder": sizes, "attention": attention}), seed)


def run_search(network: Network, batch: Batch, settings: SearchCase) -> list[list[Hypothesis]]:
    """Return the hypotheses of the stepwise beam search."""
    num_sources = len(batch.source)
    limits = BatchLengthLimits(np.full(num_sources, settings.min_length), np.full(num_sources, settings.max_length))
    config = BeamConfig(
        limits, settings.beam_size, settings.nbest, settings.score, settings.constraints, settings.search_tree
    )
    with torch.inference_mode():
        return beam_search_stepwise(
            encode_and_initialize(network, batch.source, batch.source_lengths), batch.source_lengths, config
        )


def greedy_outputs(network: Network, source: Tensor, lengths: Tensor, limits: LengthLimits) -> list[DecodedOutput]:
    """Return the outputs of greedy search."""
    return [hypothesis.decoded for hypothesis in greedy(network, source, lengths, limits)]


def beam_outputs(
    network: Network, source: Tensor, lengths: Tensor, limits: LengthLimits, beam_size: int, nbest: int = 1
) -> list[list[DecodedOutput]]:
    """Return the outputs of beam search."""
    hypotheses = beam_search(network, source, lengths, limits, beam_size, nbest)
    return [[hypothesis.decoded for hypothesis in source_nbest] for source_nbest in hypotheses]


def score_outputs(network: Network, batch: Batch, row: int, outputs: Iterable[Sequence[int]]) -> list[DecodedOutput]:
    """Return the scored outputs of one source, each computed in a batch of its own."""
    length = int(batch.source_lengths[row])
    source, lengths = batch.source[row : row + 1, :length], batch.source_lengths[row : row + 1]
    scored: list[DecodedOutput] = []
    with torch.inference_mode():
        for ids in outputs:
            target = torch.tensor([list(ids)])
            inference, target_lengths = encode_and_initialize(network, source, lengths), torch.tensor([target.shape[1]])
            (hypothesis,) = score_targets(inference, lengths, target, target_lengths)
            scored.append(hypothesis.decoded)
    return scored


def enumerate_outputs(max_symbols: int) -> list[tuple[int, ...]]:
    """Return all outputs of at most `max_symbols` symbols, each followed by EOS."""
    return [(*ids, EOS) for count in range(max_symbols + 1) for ids in product(SYMBOL_IDS, repeat=count)]


def score_by_definition(decoded: DecodedOutput, score: HypothesisScorer) -> float:
    """Return the score of an output by its definition."""
    steps = len(decoded.ids)
    penalty: float = {"none": 1.0, "average": float(steps), "gnmt": ((5 + steps) / 6) ** score.length_penalty_alpha}[
        score.length_normalization
    ]
    total = float(decoded.log_probabilities.sum(dtype=np.float64) / penalty)
    if score.coverage_penalty and decoded.weights.any():
        coverage = np.clip(decoded.weights.astype(np.float64).sum(axis=0), 1e-6, 1)
        total += score.coverage_penalty * float(np.log(coverage).sum())
    return total
