"""Networks called by hand: wrong shapes, lengths and ids are refused before a kernel reads memory by them."""

import pytest
import torch
from small_networks import make_config, make_network

from pellucid.data.batches import Batch
from pellucid.decoding.beam_search import beam
from pellucid.decoding.greedy import greedy
from pellucid.decoding.outputs import LengthLimits
from pellucid.errors import ArgumentError
from pellucid.model.encoder import check_sources

LIMITS = LengthLimits(0, 4)
NETWORK = make_network(make_config({}), 0, torch.float32).eval()
SOURCE, LENGTHS = torch.full((3, 5), 4), torch.tensor([5, 3, 1])


@pytest.mark.parametrize("lengths", [[10**8, 3, 1], [6, 3, 1], [-1, 3, 1], [0, 3, 1]])
def test_wrong_lengths_are_refused(lengths: list[int]) -> None:
    wrong = torch.tensor(lengths)
    with pytest.raises(ArgumentError, match="lengths: expected"):
        greedy(NETWORK, SOURCE, wrong, LIMITS)
    with pytest.raises(ArgumentError, match="lengths: expected"):
        beam(NETWORK, SOURCE, wrong, LIMITS, 2)
    with pytest.raises(ArgumentError, match="lengths: expected"):
        NETWORK(Batch(SOURCE, wrong, SOURCE, LENGTHS))


@pytest.mark.parametrize("change", [10**6, -(10**6), NETWORK.vocabulary_size])
def test_target_ids_out_of_range_are_refused(change: int) -> None:
    with pytest.raises(ArgumentError, match=f"target: expected ids from 0 to {NETWORK.vocabulary_size - 1}, got"):
        NETWORK(Batch(SOURCE, LENGTHS, SOURCE - 4 + change, LENGTHS))
    with pytest.raises(ArgumentError, match=r"target: expected one row per source \(3\), got shape \(2, 5\)"):
        NETWORK(Batch(SOURCE, LENGTHS, SOURCE[:2], LENGTHS[:2]))


def test_one_length_per_source_is_required() -> None:
    for count in (1, 4):
        with pytest.raises(ArgumentError, match=r"lengths: expected one per source \(3\), got shape"):
            check_sources(SOURCE, torch.ones(count, dtype=torch.int64))


def test_negative_source_ids_and_a_beam_of_size_zero_are_refused() -> None:
    with pytest.raises(ArgumentError, match="source: expected ids of at least 0, got -6"):
        greedy(NETWORK, SOURCE - 10, LENGTHS, LIMITS)
    with pytest.raises(ArgumentError, match="beam_size: expected at least 1, got 0"):
        beam(NETWORK, SOURCE, LENGTHS, LIMITS, 0)


def test_an_empty_batch_has_no_outputs() -> None:
    assert greedy(NETWORK, SOURCE[:0], LENGTHS[:0], LIMITS) == []
    assert beam(NETWORK, SOURCE[:0], LENGTHS[:0], LIMITS, 2) == []
    with pytest.raises(ArgumentError, match="source: expected at least one row"):
        NETWORK(Batch(SOURCE[:0], LENGTHS[:0], SOURCE[:0], LENGTHS[:0]))
