"""The compiled step of a search against PyTorch: several sources, selected rows, forced weights."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import CELLS, SEEDS, SIZES, assert_named_tensors_close, draw_lengths
from small_networks import batches, configs, few_examples, make_network
from test_kernels_unroll import SCORES, Score, memory_of, small_decoder

from pellucid.config.settings import Cell, Config
from pellucid.data.batches import Batch
from pellucid.decoding.beam_search import beam
from pellucid.decoding.greedy import greedy
from pellucid.decoding.outputs import DecodedOutput, LengthLimits
from pellucid.kernels import decoder_step, recurrence, runtime
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.attention import LocationSensitiveAttention
from pellucid.model.decoder import Decoder
from pellucid.model.memory import AttentionCache, Memory, State, Step


def prepared_caches(decoder: Decoder, memory: Memory) -> tuple[AttentionCache, AttentionCache]:
    """Return the memory as prepared for the kernel and for PyTorch."""
    compiled = decoder.prepare(memory)
    with disable_kernels():
        uncompiled = decoder.prepare(memory)
    assert compiled.kernel is not None and uncompiled.kernel is None
    return compiled, uncompiled


def parts(step: Step) -> dict[str, torch.Tensor]:
    """Return all results of a step by name."""
    cell = {} if step.state.cell is None else {"cell": step.state.cell}
    looked = {"context": step.attention.context, "weights": step.attention.weights}
    carried = {} if step.state.attention_state is None else {"looked": step.state.attention_state}
    return {"logits": step.logits, "hidden": step.state.hidden, **cell, **looked, **carried}


def random_state(decoder: Decoder, rows: int, positions: int) -> State:
    """Return a random state; attention weights beyond a length are not zero, and must not be read."""
    hidden, cell = torch.randn(2, rows, 1, decoder.config.hidden_size)
    looked = torch.randn(rows, positions) if isinstance(decoder.attention, LocationSensitiveAttention) else None
    return State(hidden, cell if decoder.config.cell == "lstm" else None, attention_state=looked)


@given(st.data(), CELLS, SCORES, SIZES, SEEDS, st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
@torch.no_grad()
def test_steps_equal_pytorch(
    data: st.DataObject, cell: Cell, score: Score, size: int, seed: int, each: int, threads: int
) -> None:
    sources, positions = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40))
    memory_size = size if score in ("dot", "scaled-dot") else data.draw(SIZES)
    torch.manual_seed(seed)
    decoder = small_decoder(score, cell, size, memory_size, data.draw(SIZES)).eval()
    lengths = draw_lengths(data, sources, positions)
    compiled, uncompiled = prepared_caches(decoder, memory_of(torch.randn(sources, positions, memory_size), lengths))
    kept = torch.tensor(data.draw(st.lists(st.integers(0, sources - 1), min_size=1, max_size=sources, unique=True)))
    before, rows = torch.get_num_threads(), runtime.MIN_ROWS
    for rounds in range(2):
        symbols = torch.randint(0, 6, (each * len(compiled.materialize().keys),))
        state = random_state(decoder, len(symbols), positions)
        try:
            torch.set_num_threads(threads)
            runtime.MIN_ROWS = 1
            actual = parts(decoder.step(symbols, state, compiled))
        finally:
            torch.set_num_threads(before)
            runtime.MIN_ROWS = rows
        assert_named_tensors_close(actual, parts(decoder.step(symbols, state, uncompiled)), 2e-5)
        if rounds == 0:
            compiled, uncompiled = compiled.index_select(kept), uncompiled.index_select(kept)


@torch.no_grad()
def test_a_column_of_symbols_is_read_by_kernels_that_are_compiled() -> None:
    """For numbers with gaps between them Numba would compile the kernels once more, which takes seconds."""
    decoder = small_decoder("additive", "gru", 3, 3).eval()
    compiled, _ = prepared_caches(decoder, memory_of(torch.randn(4, 2, 3), torch.full((4,), 2)))
    hidden, table = torch.randn(4, 3), torch.tensor([[1, 9], [3, 9], [0, 9], [2, 9]])
    assert compiled.kernel is not None
    before = {
        kernel: {str(signature) for signature in kernel.signatures}  # type: ignore[union-attr]  # Numba adds it
        for kernel in (decoder_step.step, recurrence.pack)
    }
    of_column, of_copy = (
        compiled.kernel.step(symbols, hidden, None) for symbols in (table[:, 0], table[:, 0].contiguous())
    )
    assert torch.equal(of_column.logits, of_copy.logits)
    transposed = recurrence.row_groups(table.T.numpy(), np.array([4, 2]), 2)
    assert transposed[0].packed.symbols.tolist() == [1, 9, 3, 9, 0, 2]
    for kernel in (decoder_step.step, recurrence.pack):
        added = {str(signature) for signature in kernel.signatures} - before[kernel]  # type: ignore[union-attr]
        assert not any("'A'" in signature for signature in added)


@torch.no_grad()
def test_forced_weights_apply_to_selected_rows() -> None:
    torch.manual_seed(0)
    decoder = small_decoder("additive", "gru", 3, 4).eval()
    compiled, uncompiled = prepared_caches(decoder, memory_of(torch.randn(4, 5, 4), torch.tensor([5, 3, 4, 2])))
    rows, override = torch.tensor([3, 1]), torch.zeros(2, 5)
    override[:, 1] = 1
    given_ = (torch.tensor([4, 5]), random_state(decoder, 2, 5))
    actual = parts(decoder.step(*given_, compiled.index_select(rows), override))
    assert_named_tensors_close(actual, parts(decoder.step(*given_, uncompiled.index_select(rows), override)))
    assert torch.equal(actual["weights"], override)


@few_examples
@given(configs(), batches(), SEEDS, st.integers(1, 5))
def test_searches_with_kernels_equal_pytorch(config: Config, batch: Batch, seed: int, width: int) -> None:
    network = make_network(config, seed, torch.float32)
    given_ = (network, batch.source, batch.source_lengths, LengthLimits(0, 6))

    def searched() -> list[DecodedOutput]:
        found = [output for outputs in beam(*given_, width, nbest=width) for output in outputs]
        return [*greedy(*given_), *found]

    actual = searched()
    with disable_kernels():
        expected = searched()
    for one, two in zip(actual, expected, strict=True):
        if one.ids.tolist() != two.ids.tolist():  # a tie except for the last bit
            assert one.log_probabilities.sum() == pytest.approx(two.log_probabilities.sum(), abs=1e-4)
            continue
        np.testing.assert_allclose(one.log_probabilities, two.log_probabilities, atol=1e-4)
        np.testing.assert_allclose(one.weights, two.weights, atol=1e-4)
