"""Networks called by hand: wrong shapes, lengths and ids are refused before a kernel reads memory by them."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from small_networks import make_config, make_network
from task_cases import make_examples, make_task_config, make_untrained_predictor

from pellucid.config.settings import TaskName
from pellucid.data.batches import Batch
from pellucid.decoding.beam_search import beam_search
from pellucid.decoding.greedy import greedy
from pellucid.decoding.outputs import LengthLimits
from pellucid.errors import ArgumentError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.encoder import check_sources
from pellucid.model.memory import NetworkOutput

LIMITS = LengthLimits(0, 4)
NETWORK = make_network(make_config({}), 0, torch.float32).eval()
SOURCE, LENGTHS = torch.full((3, 5), 4), torch.tensor([5, 3, 1])


@pytest.mark.parametrize("lengths", [[10**8, 3, 1], [6, 3, 1], [-1, 3, 1], [0, 3, 1]])
def test_wrong_lengths_are_refused(lengths: list[int]) -> None:
    wrong = torch.tensor(lengths)
    with pytest.raises(ArgumentError, match="lengths: expected"):
        greedy(NETWORK, SOURCE, wrong, LIMITS)
    with pytest.raises(ArgumentError, match="lengths: expected"):
        beam_search(NETWORK, SOURCE, wrong, LIMITS, 2)
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
        beam_search(NETWORK, SOURCE, LENGTHS, LIMITS, 0)


def test_an_empty_batch_has_no_outputs() -> None:
    assert greedy(NETWORK, SOURCE[:0], LENGTHS[:0], LIMITS) == []
    assert beam_search(NETWORK, SOURCE[:0], LENGTHS[:0], LIMITS, 2) == []


EMPTY = Batch(SOURCE[:0], LENGTHS[:0], SOURCE[:0], LENGTHS[:0])


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"encoder": {"cell": "lstm"}, "decoder": {"cell": "lstm"}}, {"decoder": {"pointer_generator": True}}],
)
def test_an_empty_batch_has_the_output_of_any_batch_without_rows(settings: dict[str, Any], plain: bool) -> None:
    network = make_network(make_config(settings), 0, torch.float32).eval()
    with disable_kernels() if plain else nullcontext():
        assert_is_empty(network(EMPTY), network(Batch(SOURCE, LENGTHS, SOURCE, LENGTHS)))


@pytest.mark.parametrize("name", ["tag", "classify", "point"])
def test_networks_without_decoder_accept_an_empty_batch(name: TaskName) -> None:
    examples = make_examples(name, 9, 1)
    network = make_untrained_predictor(make_task_config(name), examples).network
    empty = Batch(SOURCE[:0], LENGTHS[:0], SOURCE[:0, :1], LENGTHS[:0])
    assert_is_empty(network(empty), network(Batch(SOURCE, LENGTHS, SOURCE[:, :1], LENGTHS)))


def assert_is_empty(output: NetworkOutput, expected: NetworkOutput) -> None:
    """Assert that an output has no rows, and otherwise the shapes of another output."""
    for part, other in zip([*output, *output.state], [*expected, *expected.state], strict=True):
        if isinstance(other, torch.Tensor):
            assert isinstance(part, torch.Tensor) and part.shape == (0, *other.shape[1:]) and part.dtype == other.dtype
        elif other is None:
            assert part is None
