"""The compiled decoder step compared with PyTorch: several sources, selected rows, forced weights."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_cases import CELLS, SEEDS, SIZES, assert_named_tensors_close, draw_lengths
from small_networks import batches, configs, few_examples, make_network
from small_searches import beam_outputs, greedy_outputs
from test_kernels_unroll import LAYERS, SCORES, Score, build_memory, build_small_decoder

from pellucid.config.settings import Cell, Config
from pellucid.data.batches import Batch
from pellucid.decoding.outputs import DecodedOutput, LengthLimits
from pellucid.kernels import decoder_step, recurrence, runtime
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.attention import LocationSensitiveAttention
from pellucid.model.decoder import Decoder
from pellucid.model.memory import DecoderCache, DecoderState, DecoderStepOutput, Memory


def prepare_caches(decoder: Decoder, memory: Memory) -> tuple[DecoderCache, DecoderCache]:
    """Return attention caches of the memory for the kernel and for PyTorch."""
    compiled = decoder.build_cache(memory)
    with disable_kernels():
        uncompiled = decoder.build_cache(memory)
    assert compiled.kernel is not None and uncompiled.kernel is None
    return compiled, uncompiled


def collect_results(step: DecoderStepOutput) -> dict[str, torch.Tensor]:
    """Return all results of a step by name."""
    cell_state = {} if step.state.cell_state is None else {"cell_state": step.state.cell_state}
    attention = {"context": step.attention.context, "weights": step.attention.weights}
    attention_state = {} if step.state.attention_state is None else {"attention_state": step.state.attention_state}
    return {"logits": step.logits, "hidden": step.state.hidden, **cell_state, **attention, **attention_state}


def draw_state(decoder: Decoder, rows: int, positions: int) -> DecoderState:
    """Return a random state; attention weights of padding are not zero and must not be read."""
    hidden, cell = torch.randn(2, rows, decoder.config.num_layers, decoder.config.hidden_size)
    attention_weights = (
        torch.randn(rows, positions) if isinstance(decoder.attention, LocationSensitiveAttention) else None
    )
    return DecoderState(hidden, cell if decoder.config.cell == "lstm" else None, attention_state=attention_weights)


@given(st.data(), CELLS, SCORES, SIZES, SEEDS, st.integers(1, 4), st.integers(1, 3), LAYERS)
@settings(max_examples=80, deadline=None)
@torch.no_grad()
def test_steps_equal_pytorch(
    data: st.DataObject,
    cell: Cell,
    score: Score,
    size: int,
    seed: int,
    hypotheses: int,
    threads: int,
    layers: dict[str, Any],
) -> None:
    assume(layers["num_layers"] > 1 or layers["layer_normalization"] == "none")
    sources, positions = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40))
    memory_size = size if score in ("dot", "scaled-dot") else data.draw(SIZES)
    torch.manual_seed(seed)
    decoder = build_small_decoder(score, cell, size, memory_size, data.draw(SIZES), **layers).eval()
    tolerance = 2e-5 if layers["layer_normalization"] == "none" else 2e-3
    lengths = draw_lengths(data, sources, positions)
    compiled, uncompiled = prepare_caches(decoder, build_memory(torch.randn(sources, positions, memory_size), lengths))
    selected = torch.tensor(data.draw(st.lists(st.integers(0, sources - 1), min_size=1, max_size=sources, unique=True)))
    before, rows = torch.get_num_threads(), runtime.MIN_ROWS
    for round_index in range(2):
        symbols = torch.randint(0, 6, (hypotheses * len(compiled.materialize().keys),))
        state = draw_state(decoder, len(symbols), positions)
        try:
            torch.set_num_threads(threads)
            runtime.MIN_ROWS = 1
            actual = collect_results(decoder.step(symbols, state, compiled))
        finally:
            torch.set_num_threads(before)
            runtime.MIN_ROWS = rows
        assert_named_tensors_close(actual, collect_results(decoder.step(symbols, state, uncompiled)), tolerance)
        if round_index == 0:
            compiled, uncompiled = compiled.index_select(selected), uncompiled.index_select(selected)


@torch.no_grad()
def test_strided_symbols_need_no_further_compilation() -> None:
    """Numba would compile the kernels again for strided arrays, which takes seconds."""
    decoder = build_small_decoder("additive", "gru", 3, 3).eval()
    compiled, _ = prepare_caches(decoder, build_memory(torch.randn(4, 2, 3), torch.full((4,), 2)))
    hidden, table = torch.randn(4, 1, 3), torch.tensor([[1, 9], [3, 9], [0, 9], [2, 9]])
    assert compiled.kernel is not None
    before = {
        kernel: {str(signature) for signature in kernel.signatures}  # type: ignore[union-attr]  # Numba adds it
        for kernel in (decoder_step.step, recurrence.pack)
    }
    from_column, from_copy = (
        compiled.kernel.step(symbols, hidden, None) for symbols in (table[:, 0], table[:, 0].contiguous())
    )
    assert torch.equal(from_column.logits, from_copy.logits)
    transposed = recurrence.row_groups(table.T.numpy(), np.array([4, 2]), 2)
    assert transposed[0].packed.input_rows.tolist() == [1, 9, 3, 9, 0, 2]
    for kernel in (decoder_step.step, recurrence.pack):
        added = {str(signature) for signature in kernel.signatures} - before[kernel]  # type: ignore[union-attr]
        assert not any("'A'" in signature for signature in added)


@torch.no_grad()
def test_forced_weights_apply_to_selected_rows() -> None:
    torch.manual_seed(0)
    decoder = build_small_decoder("additive", "gru", 3, 4).eval()
    compiled, uncompiled = prepare_caches(decoder, build_memory(torch.randn(4, 5, 4), torch.tensor([5, 3, 4, 2])))
    rows, forced_weights = torch.tensor([3, 1]), torch.zeros(2, 5)
    forced_weights[:, 1] = 1
    arguments = (torch.tensor([4, 5]), draw_state(decoder, 2, 5))
    actual = collect_results(decoder.step(*arguments, compiled.index_select(rows), forced_weights))
    assert_named_tensors_close(
        actual, collect_results(decoder.step(*arguments, uncompiled.index_select(rows), forced_weights))
    )
    assert torch.equal(actual["weights"], forced_weights)


@few_examples
@given(configs(), batches(), SEEDS, st.integers(1, 5))
def test_searches_with_kernels_equal_pytorch(config: Config, batch: Batch, seed: int, beam_size: int) -> None:
    network = make_network(config, seed, torch.float32)
    arguments = (network, batch.source, batch.source_lengths, LengthLimits(0, 6))

    def run_searches() -> list[DecodedOutput]:
        hypotheses = [output for outputs in beam_outputs(*arguments, beam_size, nbest=beam_size) for output in outputs]
        return [*greedy_outputs(*arguments), *hypotheses]

    actual = run_searches()
    with disable_kernels():
        expected = run_searches()
    for one, two in zip(actual, expected, strict=True):
        if one.ids.tolist() != two.ids.tolist():  # a tie except for the last bit
            assert one.log_probabilities.sum() == pytest.approx(two.log_probabilities.sum(), abs=1e-4)
            continue
        np.testing.assert_allclose(one.log_probabilities, two.log_probabilities, atol=1e-4)
        np.testing.assert_allclose(one.weights, two.weights, atol=1e-4)
