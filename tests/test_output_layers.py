"""Output layers, compared with a loop. H hidden units, D context, V vocabulary."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    SEEDS,
    SIZES,
    assert_tensors_close,
    few_examples,
    make_config,
    make_network,
    randomize_parameters,
)
from torch import Tensor

from pellucid.config.settings import ReadoutKind
from pellucid.model.output_layers import OutputLayer, TiedOutputLayer

INPUT_KINDS = ["state", "context", "state-and-context"]
SHAPES = st.sampled_from([(1,), (3,), (1, 1), (2, 4)])


def build_head(inputs: str, sizes: tuple[int, int, int], seed: int) -> OutputLayer:
    head = OutputLayer(inputs, *sizes).double()  # type: ignore[arg-type]
    randomize_parameters(head, seed)
    return head


def make_inputs(shape: tuple[int, ...], sizes: tuple[int, int, int], seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden, context = (torch.randn(*shape, size, generator=generator, dtype=torch.float64) for size in sizes[:2])
    return hidden, context


@few_examples
@given(st.sampled_from(INPUT_KINDS), SHAPES, st.tuples(SIZES, SIZES, SIZES), SEEDS)
def test_logits_are_the_weighted_sum_of_the_inputs_and_the_bias(
    inputs: str, shape: tuple[int, ...], sizes: tuple[int, int, int], seed: int
) -> None:
    head, (hidden, context) = build_head(inputs, sizes, seed), make_inputs(shape, sizes, seed)
    logits = head(hidden, context)
    assert logits.shape == (*shape, sizes[2])
    rows = zip(*(values.flatten(0, -2).tolist() for values in (hidden, context, logits)), strict=True)
    for h, c, actual in rows:
        used = {"state": h, "context": c, "state-and-context": h + c}[inputs]
        for v, weights in enumerate(head.projection.weight.tolist()):
            expected = sum(w * x for w, x in zip(weights, used, strict=True)) + head.projection.bias[v].item()
            assert actual[v] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("inputs", "used"),
    [(INPUT_KINDS[0], (True, False)), (INPUT_KINDS[1], (False, True)), (INPUT_KINDS[2], (True, True))],
)
def test_unused_inputs_do_not_change_logits(inputs: str, used: tuple[bool, bool]) -> None:
    sizes = (3, 2, 5)
    head, (hidden, context) = build_head(inputs, sizes, 1), make_inputs((4,), sizes, 1)
    logits = head(hidden, context)
    changed = not torch.equal(head(hidden + 1, context), logits), not torch.equal(head(hidden, context + 1), logits)
    assert changed == used


@pytest.mark.parametrize("inputs", ["state", "context", "state-and-context"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_tied_weights_have_an_adapter_if_sizes_differ(inputs: ReadoutKind, size: int) -> None:
    vectors, (hidden, context) = torch.randn(6, size), (torch.randn(5, 2), torch.randn(5, 3))
    head = TiedOutputLayer(inputs, 2, 3, vectors)
    randomize_parameters(head, 1)
    used = {"state": [hidden], "context": [context], "state-and-context": [hidden, context]}[inputs]
    joined = torch.cat(used, dim=1)
    assert (head.adapter is None) == (joined.shape[1] == size)
    adapted = joined if head.adapter is None else joined @ head.adapter.weight.T
    assert_tensors_close(head(hidden, context, vectors), adapted @ vectors.T + head.bias, 1e-5)
    parts = head.kernel_parameters(vectors)
    logits = parts.bias.expand(5, -1)
    for weight, values in ((parts.state, hidden), (parts.context, context)):
        logits = logits + values @ weight.T if len(weight) else logits
    assert_tensors_close(logits, head(hidden, context, vectors), 1e-5)


def test_tied_vectors_are_one_parameter_with_both_gradients() -> None:
    network = make_network(make_config({"decoder": {"tie_embeddings": True}}), 1)
    names = [name for name, value in network.state_dict().items() if value is network.decoder.table.weight.data]
    shared = [name for name, each in network.named_parameters() if each is network.decoder.table.weight]
    assert shared == ["decoder.table.weight"] and len(names) <= 1
    source, symbols = torch.tensor([[4, 5]]), torch.tensor([[1, 4]])
    memory = network.encoder(source, torch.tensor([2]))
    decoder = network.decoder
    logits = decoder.unroll(symbols, decoder.init_state(memory), decoder.build_cache(memory)).logits
    [gradient] = torch.autograd.grad(logits.square().sum(), [decoder.table.weight])
    assert gradient.any(dim=1).all(), "every symbol is scored, though only two are inputs"
