"""Values between encoder and search: `index_select` selects rows of every part. B batch, S source positions."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pellucid.model.memory import AttentionCache, DecoderKernel, Memory, State
from pellucid.model.recurrence import DropoutMasks

ROWS = st.lists(st.integers(0, 3), max_size=8)


def numbered(*shape: int) -> Tensor:
    """Return distinct values."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)


def parts(value: State | Memory | AttentionCache) -> list[Tensor | None]:
    """Return every tensor of a value, in order."""
    found: list[Tensor | None] = []
    for part in value:
        assert not isinstance(part, DecoderKernel | DropoutMasks)
        found += parts(part) if isinstance(part, State | Memory) else [part]
    return found


def check(value: State | AttentionCache, rows: list[int]) -> None:
    taken = value.index_select(torch.tensor(rows, dtype=torch.int64))
    assert type(taken) is type(value)
    for old, new in zip(parts(value), parts(taken), strict=True):
        assert (new is None) == (old is None)
        if new is not None and old is not None:
            assert new.tolist() == [old[row].tolist() for row in rows]


@given(ROWS, st.booleans(), st.booleans(), st.booleans())
def test_a_state_selects_rows_of_every_part(rows: list[int], cell: bool, context: bool, looked: bool) -> None:
    shapes = ((cell, (4, 2, 3)), (context, (4, 5)), (looked, (4, 6)))
    check(State(numbered(4, 2, 3), *(numbered(*shape) if there else None for there, shape in shapes)), rows)


@given(ROWS, st.booleans())
def test_a_cache_selects_rows_of_every_part(rows: list[int], cell: bool) -> None:
    final = State(numbered(4, 1, 3), numbered(4, 1, 3) if cell else None)
    memory = Memory(numbered(4, 6, 3), torch.tensor([6, 1, 4, 2]), final)
    check(AttentionCache(memory, numbered(4, 6, 2)), rows)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 3))
def test_the_mask_is_true_at_real_positions(lengths: list[int], more: int) -> None:
    B, S = len(lengths), max(lengths) + more
    memory = Memory(torch.zeros(B, S, 2), torch.tensor(lengths), State(torch.zeros(B, 1, 2)))
    assert memory.mask().tolist() == [[s < length for s in range(S)] for length in lengths]
