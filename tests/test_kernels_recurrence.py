"""Whole-sequence GRU and LSTM kernels compared with PyTorch, forward and backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import (
    CELLS,
    SEEDS,
    SIZES,
    assert_named_tensors_close,
    compute_gradients,
    draw_lengths,
    run_with_and_without_kernels,
)

from pellucid.config.settings import Cell, EncoderConfig
from pellucid.kernels import runtime
from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.tensor_functions import run_recurrence
from pellucid.kernels.types import GRU, LSTM, DirectionParameters
from pellucid.model.cells import RecurrentCell
from pellucid.model.encoder import Encoder
from pellucid.model.memory import Memory
from pellucid.model.recurrence import InputVectors, run_rnn


@given(st.data(), CELLS, SIZES, SIZES, SEEDS, st.integers(1, 2), st.booleans())
@settings(max_examples=60, deadline=None)
def test_states_and_gradients_equal_pytorch(
    data: st.DataObject, cell: Cell, size: int, embedding: int, seed: int, directions: int, by_symbols: bool
) -> None:
    rows, positions, symbols = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 12)), data.draw(SIZES)
    lengths = draw_lengths(data, rows, positions)
    torch.manual_seed(seed)
    cells = torch.nn.ModuleList(RecurrentCell(cell, embedding, size) for _ in range(directions))
    for name, parameter in cells.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(parameter)
    if by_symbols:
        vectors = torch.randn(symbols, embedding, requires_grad=True)
        inputs = InputVectors(vectors, torch.randint(0, symbols, (rows, positions)))
    else:  # a view that is not contiguous
        vectors = torch.randn(positions, rows, 2 * embedding, requires_grad=True)
        inputs = InputVectors(vectors.transpose(0, 1)[:, :, ::2])

    def states() -> list[torch.Tensor]:
        return [*run_rnn([*cells], inputs, lengths)]

    actual, expected = run_with_and_without_kernels(cells, states, {"vectors": vectors}, seed)
    assert_named_tensors_close(actual, expected)
    with torch.no_grad():
        inference_outputs = dict(zip(("output 0", "output 1"), states(), strict=True))
    # Inference uses another compiled version than training, so the last bits may differ.
    assert_named_tensors_close(inference_outputs, {name: actual[name] for name in inference_outputs}, tolerance=1e-6)


@given(st.data(), CELLS, SEEDS)
@settings(max_examples=20, deadline=None)
def test_encoders_equal_pytorch(data: st.DataObject, cell: Cell, seed: int) -> None:
    config = EncoderConfig(
        cell=cell,
        hidden_size=data.draw(SIZES),
        num_layers=data.draw(st.integers(1, 2)),
        bidirectional=data.draw(st.booleans()),
        merge=data.draw(st.sampled_from(["concatenate", "sum", "product"])),
        embedding=data.draw(st.sampled_from(["learned", "frozen", "one-hot"])),
        embedding_size=5,
        dropout=0.3,
    )
    torch.manual_seed(seed)
    encoder, lengths = Encoder(config, 7).train(), draw_lengths(data, 4, 6)
    source = torch.randint(0, 7, (4, 6))

    def encode() -> list[torch.Tensor]:
        memory = encoder(source, lengths)
        return [memory.states, memory.final.hidden]

    assert_named_tensors_close(*run_with_and_without_kernels(encoder, encode, {}, seed))


@pytest.mark.parametrize("gates", [3, 4])
def test_padding_does_not_change_results(gates: int) -> None:
    torch.manual_seed(0)
    lengths, symbols = torch.tensor([2, 5, 1]), torch.arange(15).view(3, 5)
    table, weight = torch.randn(15, gates * 3), torch.randn(gates * 3, 3)
    bias = torch.randn(3 if gates == 3 else 0)
    padding = torch.arange(5) >= lengths[:, None]
    table_with_nan = table.clone()
    table_with_nan[symbols[padding]] = torch.nan
    results = []
    for values in (table, table_with_nan):
        inputs = {"table": values.requires_grad_(), "weight": weight.requires_grad_()}

        def states(values: torch.Tensor = values) -> list[torch.Tensor]:
            return [
                *run_recurrence(
                    [DirectionParameters(GRU if gates == 3 else LSTM, values, weight, bias)] * 2, symbols, lengths
                )
            ]

        results.append(compute_gradients(states, inputs, 1))
    assert_named_tensors_close(results[1], results[0], tolerance=0)
    assert (results[0]["output 0"][padding] == 0).all()
    assert (results[0]["table"][symbols[padding]] == 0).all()


def test_a_second_backward_pass_is_refused() -> None:
    table, symbols = torch.zeros(2, 9, requires_grad=True), torch.ones(1, 2, dtype=torch.int64)
    output = run_recurrence(
        [DirectionParameters(GRU, table, torch.zeros(9, 3), torch.zeros(3))], symbols, torch.tensor([2])
    )
    torch.autograd.grad(output.states.sum(), table, retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        torch.autograd.grad(output.states.sum(), table)


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_number_of_threads_does_not_change_results(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MIN_ROWS", 1)
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(cell=cell, hidden_size=6, embedding_size=4, dropout=0.0), 9)
    source, lengths = torch.randint(0, 9, (7, 8)), torch.tensor([8, 3, 1, 5, 5, 2, 7])
    results, threads = [], torch.get_num_threads()
    for count in (1, 3, 9):
        torch.set_num_threads(count)
        try:
            results.append(
                compute_gradients(lambda: [encoder(source, lengths).states], dict(encoder.named_parameters()), 0)
            )
        finally:
            torch.set_num_threads(threads)
    assert_named_tensors_close(results[1], results[0], 1e-6)
    assert_named_tensors_close(results[2], results[0], 1e-6)


def test_double_precision_runs_in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("pellucid.model.recurrence.run_rnn_kernel", refuse)
    encoder = Encoder(EncoderConfig(cell="gru", hidden_size=2, embedding_size=2, dropout=0.0), 5)
    source, lengths = torch.ones(1, 2, dtype=torch.int64), torch.tensor([2])
    with disable_kernels():
        encoder(source, lengths)
    monkeypatch.setenv("PELLUCID_PLAIN", "1")
    encoder(source, lengths)
    monkeypatch.delenv("PELLUCID_PLAIN")
    encoder.double()(source, lengths)
    with pytest.raises(AssertionError):
        encoder.float()(source, lengths)
    with torch.no_grad(), pytest.raises(AssertionError):
        encoder(source, lengths)


def test_the_pytorch_reference_passes_gradcheck() -> None:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(cell="gru", hidden_size=2, embedding_size=2, dropout=0.0), 5).double()
    source, lengths = torch.randint(0, 5, (2, 3)), torch.tensor([3, 2])
    names, values = zip(*encoder.named_parameters(), strict=True)

    def states(*parameters: torch.Tensor) -> torch.Tensor:
        memory: Memory = torch.func.functional_call(
            encoder, dict(zip(names, parameters, strict=True)), (source, lengths)
        )
        return memory.states

    assert torch.autograd.gradcheck(states, values)


def test_nan_propagates() -> None:
    table, weight = torch.zeros(2, 9), torch.zeros(9, 3)
    table[1, 4] = torch.nan
    symbols = torch.ones(1, 2, dtype=torch.int64)
    output = run_recurrence([DirectionParameters(GRU, table, weight, torch.zeros(3))], symbols, torch.tensor([2]))
    assert output.states.isnan().any()
