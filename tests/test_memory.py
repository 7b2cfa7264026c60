"""Memory, states and caches: `index_select` selects rows of every part. B batch, S source positions."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pellucid.model.memory import DecoderCache, DecoderKernel, DecoderState, Memory, SampledOutputs
from pellucid.model.recurrence import DropoutMasks

ROWS = st.lists(st.integers(0, 3), max_size=8)


def make_distinct_values(*shape: int) -> Tensor:
    """Return distinct values."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)


def list_tensors(value: DecoderState | Memory | DecoderCache) -> list[Tensor | None]:
    """Return every tensor of a value, in order."""
    tensors: list[Tensor | None] = []
    for part in value:
        assert not isinstance(part, DecoderKernel | DropoutMasks | SampledOutputs)
        tensors += list_tensors(part) if isinstance(part, DecoderState | Memory) else [part]
    return tensors


def assert_rows_selected(value: DecoderState | DecoderCache, rows: list[int]) -> None:
    selected = value.index_select(torch.tensor(rows, dtype=torch.int64))
    assert type(selected) is type(value)
    for old, new in zip(list_tensors(value), list_tensors(selected), strict=True):
        assert (new is None) == (old is None)
        if new is not None and old is not None:
            assert new.tolist() == [old[row].tolist() for row in rows]


@given(ROWS, st.booleans(), st.booleans(), st.booleans())
def test_a_state_selects_rows_of_every_part(rows: list[int], cell: bool, context: bool, attention_state: bool) -> None:
    shapes = ((cell, (4, 2, 3)), (context, (4, 5)), (attention_state, (4, 6)))
    assert_rows_selected(
        DecoderState(
            make_distinct_values(4, 2, 3),
            *(make_distinct_values(*shape) if present else None for present, shape in shapes),
        ),
        rows,
    )


@given(ROWS, st.booleans())
def test_a_cache_selects_rows_of_every_part(rows: list[int], cell: bool) -> None:
    final = DecoderState(make_distinct_values(4, 1, 3), make_distinct_values(4, 1, 3) if cell else None)
    memory = Memory(make_distinct_values(4, 6, 3), torch.tensor([6, 1, 4, 2]), final)
    assert_rows_selected(DecoderCache(memory, make_distinct_values(4, 6, 2)), rows)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 3))
def test_the_mask_is_true_at_real_positions(lengths: list[int], padding: int) -> None:
    B, S = len(lengths), max(lengths) + padding
    memory = Memory(torch.zeros(B, S, 2), torch.tensor(lengths), DecoderState(torch.zeros(B, 1, 2)))
    assert memory.length_mask().tolist() == [[s < length for s in range(S)] for length in lengths]
