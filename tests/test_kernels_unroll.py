"""The kernel of the unrolled decoder compared with PyTorch, and training with it."""

from collections.abc import Iterator
from typing import Any, Literal

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
from trained_runs import make_copy_examples

from pellucid.config.settings import AttentionConfig, Cell, DecoderConfig
from pellucid.config.toml import build_config
from pellucid.data.encoding import encode_examples
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import learn_vocabularies
from pellucid.decoding.transducer import Transducer
from pellucid.kernels import runtime
from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.tensor_functions import unroll_decoder
from pellucid.kernels.types import ADDITIVE, GRU, AttentionInputs, DecoderParameters, KernelDecoderState
from pellucid.model.decoder import AttendThenStep, Decoder, DecoderSizes
from pellucid.model.memory import DecoderCache, DecoderState, Memory
from pellucid.model.network import build_decoder
from pellucid.tasks.registry import build_network
from pellucid.training.events import UpdateCompleted
from pellucid.training.loop import fit
from pellucid.training.optimizer import build_optimizer
from pellucid.training.training_state import TrainingState

Score = Literal["additive", "location", "dot", "scaled-dot", "general", "none"]

SCORES: st.SearchStrategy[Score] = st.sampled_from(["additive", "location", "location", "dot", "scaled-dot", "general"])


LAYERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "num_layers": st.integers(1, 3),
        "residual": st.booleans(),
        "layer_normalization": st.sampled_from(["none", "none", "outputs"]),
    }
)


def build_small_decoder(
    score: Score,
    cell: Cell,
    size: int,
    memory_size: int,
    units: int = 3,
    **settings: Any,  # noqa: ANN401
) -> Decoder:
    config = DecoderConfig(cell=cell, hidden_size=size, embedding_size=4, dropout=0.25, **settings)
    attention = AttentionConfig(type=score, size=units, filters=size, filter_radius=units // 2)
    return build_decoder(config, attention, DecoderSizes(memory_size, 6))


def build_memory(states: torch.Tensor, lengths: torch.Tensor) -> Memory:
    is_source = (torch.arange(states.shape[1]) < lengths[:, None])[:, :, None]
    states = torch.where(is_source, states, 0.0)
    return Memory(states, lengths, DecoderState(states.mean(dim=1, keepdim=True)))


@pytest.mark.slow
@given(st.data(), CELLS, SCORES, SIZES, SEEDS, LAYERS, st.sampled_from(["step", "sequence"]))
@settings(max_examples=120, deadline=None)
def test_unrolled_steps_equal_pytorch(
    data: st.DataObject, cell: Cell, score: Score, size: int, seed: int, layers: dict[str, Any], mask: str
) -> None:
    """Outputs, weights, final state and gradients agree, for queries of all sizes, all depths and with dropout."""
    rows, positions, steps = (data.draw(st.integers(1, maximum)) for maximum in (5, 40, 6))
    memory_size = size if score in ("dot", "scaled-dot") else data.draw(SIZES)
    torch.manual_seed(seed)
    decoder = build_small_decoder(score, cell, size, memory_size, data.draw(SIZES), dropout_mask=mask, **layers).train()
    lengths = draw_lengths(data, rows, positions)
    states = torch.randn(positions, rows, memory_size, requires_grad=True)
    symbols = torch.randint(0, 6, (steps, rows)).T

    def outputs() -> list[torch.Tensor]:
        memory = build_memory(states.transpose(0, 1), lengths)
        unrolled = decoder.unroll(symbols, decoder.init_state(memory), decoder.build_cache(memory))
        last = [unrolled.state.hidden] + ([] if unrolled.state.cell_state is None else [unrolled.state.cell_state])
        return [unrolled.logits, unrolled.weights, *last]

    # Layer normalization divides by the deviation of a state's units and so enlarges rounding errors.
    tolerance = 2e-5 if layers["layer_normalization"] == "none" else 2e-3
    assert_named_tensors_close(
        *run_with_and_without_kernels(decoder, outputs, {"states": states}, seed), tolerance=tolerance
    )


@given(st.floats(-40, 40), SEEDS)
@settings(max_examples=30, deadline=None)
def test_large_keys_and_queries_that_cancel_are_exact(shift: float, seed: int) -> None:
    """The initial state is 1, so the query is the projection itself; the reference is in double precision."""
    torch.manual_seed(seed)
    keys, query, energy = torch.randn(2, 5, 3) + shift, torch.randn(3, 1) - shift, torch.randn(3)
    lengths, empty = torch.tensor([5, 2]), torch.zeros(3, 1)
    inputs = {"keys": keys, "query": query, "energy": energy}

    def weights() -> list[torch.Tensor]:
        cell = torch.zeros(2, 3), torch.zeros(1), empty, empty
        parameters = DecoderParameters(GRU, ADDITIVE, *cell, query, energy)
        attention_inputs = AttentionInputs(keys, torch.zeros(2, 5, 1), lengths)
        return [
            unroll_decoder(
                parameters,
                torch.ones(2, 1, dtype=torch.int64),
                attention_inputs,
                KernelDecoderState(torch.ones(2, 1, 1), None, None),
            ).weights
        ]

    actual = compute_gradients(weights, {name: tensor.requires_grad_() for name, tensor in inputs.items()}, seed)
    exact = {name: tensor.detach().double().requires_grad_() for name, tensor in inputs.items()}

    def exact_weights() -> list[torch.Tensor]:
        scores = torch.tanh(exact["keys"] + exact["query"][:, 0]) @ exact["energy"]
        return [scores.masked_fill(torch.arange(5) >= lengths[:, None], -torch.inf).softmax(dim=-1)[:, None]]

    torch.manual_seed(seed)
    output_gradients = torch.randn(2, 1, 5).double()
    expected = exact_weights()
    gradients = torch.autograd.grad(expected, list(exact.values()), [output_gradients])
    for name, gradient in zip(inputs, gradients, strict=True):
        torch.testing.assert_close(actual[name].double(), gradient, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(actual["output 0"].double(), expected[0].detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("score", ["additive", "location", "dot"])
def test_padding_is_never_read(score: Score, layers: int) -> None:
    torch.manual_seed(0)
    decoder, lengths = build_small_decoder(score, "lstm", 3, 3, num_layers=layers).eval(), torch.tensor([2, 4])
    symbols = torch.randint(0, 6, (2, 3))
    states = build_memory(torch.randn(2, 4, 3), lengths).states
    results = []
    for filling in (0.0, torch.nan):
        memory = build_memory(states, lengths)
        cache = decoder.build_cache(memory)
        padding = (torch.arange(4) >= lengths[:, None])[:, :, None]
        keys = cache.keys.detach().masked_fill(padding, filling).requires_grad_()
        filled_states = memory.states.masked_fill(padding, filling).requires_grad_()
        cache = cache._replace(keys=keys, memory=memory._replace(states=filled_states))
        initial_state = decoder.init_state(memory)

        def outputs(initial_state: DecoderState = initial_state, cache: DecoderCache = cache) -> list[torch.Tensor]:
            unrolled = decoder.unroll(symbols, initial_state, cache)
            return [unrolled.logits, unrolled.weights]

        results.append(compute_gradients(outputs, {"keys": keys, "memory": filled_states}, 0))
    assert_named_tensors_close(results[1], results[0], tolerance=0)
    assert (results[0]["output 1"][0, :, 2:] == 0).all()


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("score", ["additive", "location", "general"])
def test_the_number_of_threads_does_not_change_results(
    monkeypatch: pytest.MonkeyPatch, score: Score, layers: int
) -> None:
    monkeypatch.setattr(runtime, "MIN_ROWS", 1)
    torch.manual_seed(0)
    depth: dict[str, Any] = {"num_layers": layers, "residual": True, "layer_normalization": "outputs"}
    decoder = build_small_decoder(score, "lstm", 5, 4, **depth).train()
    lengths = torch.tensor([2, 6, 3, 1, 5])
    states, symbols = torch.randn(5, 6, 4, requires_grad=True), torch.randint(0, 6, (5, 4))

    def outputs() -> list[torch.Tensor]:
        memory = build_memory(states, lengths)
        unrolled = decoder.unroll(symbols, decoder.init_state(memory), decoder.build_cache(memory))
        assert unrolled.state.cell_state is not None
        return [unrolled.logits, unrolled.weights, unrolled.state.hidden, unrolled.state.cell_state]

    results, threads = [], torch.get_num_threads()
    for count in (1, 2, 9):
        torch.set_num_threads(count)
        try:
            results.append(compute_gradients(outputs, {**dict(decoder.named_parameters()), "states": states}, 0))
        finally:
            torch.set_num_threads(threads)
    # Threads add in another order: 4e-6 on an AMD EPYC.
    assert_named_tensors_close(results[1], results[0])
    assert_named_tensors_close(results[2], results[0])


def iterate_losses(cell: Cell, score: Score, dropout: float, layers: int) -> Iterator[float]:
    torch.set_num_threads(1)
    training = {"batch_size": 8, "epochs": 4}
    config_dict: dict[str, Any] = {"size": "tiny", "attention": {"type": score, "size": 8}, "training": training}
    for side in ("encoder", "decoder"):
        sizes = {"hidden_size": 6 if side == "encoder" else 12, "embedding_size": 6}
        config_dict[side] = {"cell": cell, "dropout": dropout, "num_layers": layers, "residual": layers > 1, **sizes}
    config = build_config(config_dict, origin="test")
    examples = make_copy_examples(40, seed=1)
    tokenizers = build_tokenizers(config.data)
    vocabularies = learn_vocabularies(examples, tokenizers, 1)
    network = build_network(config, vocabularies)
    transducer = Transducer(config, vocabularies, network)
    optimizer = build_optimizer(network, config.training)
    state = TrainingState(transducer, optimizer, encode_examples(examples, tokenizers, vocabularies), examples[:3])
    return (event.loss for event in fit(state) if isinstance(event, UpdateCompleted))


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize(
    ("cell", "score", "layers"),
    [
        ("gru", "additive", 1),
        ("gru", "location", 1),
        ("lstm", "general", 1),
        ("gru", "additive", 3),
        ("lstm", "dot", 2),
    ],
)
def test_training_losses_equal_pytorch(cell: Cell, score: Score, layers: int, dropout: float) -> None:
    fused = list(iterate_losses(cell, score, dropout, layers))
    with disable_kernels():
        assert fused == pytest.approx(list(iterate_losses(cell, score, dropout, layers)), rel=1e-4)
    assert len(fused) == 20


def test_unsupported_decoders_run_in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(AttendThenStep, "_unroll_kernel", refuse)
    lengths, symbols = torch.tensor([2]), torch.ones(1, 2, dtype=torch.int64)
    normalized = DecoderConfig(cell="gru", hidden_size=3, embedding_size=4, dropout=0.0, layer_normalization="cells")
    supported = build_small_decoder("additive", "gru", 3, 3)
    unsupported = [
        build_small_decoder("none", "gru", 3, 3),
        build_decoder(normalized, AttentionConfig(size=3), DecoderSizes(3, 6)),
        supported.double(),
    ]
    for decoder in unsupported:
        memory = build_memory(torch.randn(1, 2, 3, dtype=next(decoder.parameters()).dtype), lengths)
        decoder.unroll(symbols, decoder.init_state(memory), decoder.build_cache(memory))
    memory = build_memory(torch.randn(1, 2, 3), lengths)
    with pytest.raises(AssertionError):
        supported.float().unroll(symbols, supported.init_state(memory), supported.build_cache(memory))
