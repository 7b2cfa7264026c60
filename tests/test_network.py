"""The whole network: teacher forcing, independence of padding and batch, and parameters as a function of the seed.

B batch, S source positions, T target positions, V vocabulary.
"""

from random import Random
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_networks import (
    SEEDS,
    VOCABULARY_SIZE,
    assert_tensors_close,
    batches,
    collect_attributes,
    configs,
    extract_unpadded_row,
    few_examples,
    make_config,
    make_network,
    make_vocabularies,
    randomize_padding,
)
from torch import Tensor
from torch.nn.functional import pad

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, EOS, PAD
from pellucid.errors import ConfigError
from pellucid.model.losses import cross_entropy
from pellucid.model.memory import Memory, NetworkOutput
from pellucid.model.network import EncoderDecoder, parameter_count, require_encoder_decoder
from pellucid.tasks.registry import build_network


def run_network(network: EncoderDecoder, batch: Batch) -> NetworkOutput:
    output: NetworkOutput = network(batch)
    return output


def compute_gradients(network: EncoderDecoder, batch: Batch) -> list[Tensor]:
    parameters = list(network.parameters())
    loss = cross_entropy(run_network(network, batch).logits, batch.target, 0.1)
    return list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))


@few_examples
@given(configs(), batches(), SEEDS, st.integers(0, 3))
def test_source_padding_changes_no_output_weight_or_gradient(
    config: Config, batch: Batch, seed: int, columns: int
) -> None:
    network = make_network(config, seed)
    source = randomize_padding(batch.source, batch.source_lengths, seed, columns)
    padded = batch._replace(source=source, target=pad(batch.target, (0, columns), value=PAD))
    one, two = run_network(network, batch), run_network(network, padded)
    T, S = one.weights.shape[1:]
    assert_tensors_close(two.logits[:, :T], one.logits)
    assert_tensors_close(two.weights[:, :T, :S], one.weights)
    for row, length in enumerate(batch.source_lengths.tolist()):
        assert not two.weights[row, :, length:].any()
    for first, second in zip(compute_gradients(network, batch), compute_gradients(network, padded), strict=True):
        assert_tensors_close(second, first)


@few_examples
@given(configs(), batches(), SEEDS)
def test_target_padding_does_not_change_outputs(config: Config, batch: Batch, seed: int) -> None:
    network = make_network(config, seed)
    one = run_network(network, batch)
    two = run_network(network, batch._replace(target=randomize_padding(batch.target, batch.target_lengths, seed, 2)))
    for row, length in enumerate(batch.target_lengths.tolist()):
        assert_tensors_close(two.logits[row, :length], one.logits[row, :length])
        assert_tensors_close(two.weights[row, :length], one.weights[row, :length])


@few_examples
@given(
    configs(),
    batches(),
    SEEDS,
    st.randoms(use_true_random=False),
    st.sampled_from([(torch.float64, 1e-12), (torch.float32, 1e-5)]),
)
def test_batch_composition_does_not_change_outputs(
    config: Config, batch: Batch, seed: int, random: Random, precision: tuple[torch.dtype, float]
) -> None:
    dtype, tolerance = precision
    network = make_network(config, seed, dtype)
    batched = run_network(network, batch)
    order = list(range(len(batch.source)))
    random.shuffle(order)
    shuffled = run_network(network, Batch._make([*(tensor[order] for tensor in batch.tensors()), None]))
    assert_tensors_close(shuffled.logits, batched.logits[order], tolerance)
    assert_tensors_close(shuffled.weights, batched.weights[order], tolerance)
    for row in order:
        single = run_network(network, extract_unpadded_row(batch, row))
        T, S = single.weights.shape[1:]
        assert_tensors_close(single.logits[0], batched.logits[row, :T], tolerance)
        assert_tensors_close(single.weights[0], batched.weights[row, :T, :S], tolerance)


@few_examples
@given(configs(), batches(), SEEDS)
def test_teacher_forcing_feeds_the_target_shifted_by_one(config: Config, batch: Batch, seed: int) -> None:
    network = make_network(config, seed)
    memory: Memory = network.encoder(batch.source, batch.source_lengths)
    inputs = torch.tensor([[BOS, *row[:-1]] for row in batch.target.tolist()])
    expected = network.decoder.unroll(inputs, network.decoder.init_state(memory), network.decoder.build_cache(memory))
    assert torch.equal(run_network(network, batch).logits, expected.logits)


def test_no_step_reads_its_own_symbol_or_a_later_one() -> None:
    network = make_network(make_config({}), 1)
    batch = Batch(torch.tensor([[4, 5]]), torch.tensor([2]), torch.tensor([[4, 5, 6, EOS]]), torch.tensor([4]))
    logits = run_network(network, batch).logits[0]
    for t in range(4):
        target = batch.target.clone()
        target[0, t] = 7
        other = run_network(network, batch._replace(target=target)).logits[0]
        assert torch.equal(other[: t + 1], logits[: t + 1])
        assert not torch.isclose(other[t + 1 :], logits[t + 1 :]).all(dim=1).any()


@few_examples
@given(configs(), batches(), SEEDS)
def test_a_forward_pass_stores_nothing(config: Config, batch: Batch, seed: int) -> None:
    network = make_network(config, seed)
    before = collect_attributes(network)
    run_network(network, batch)
    assert collect_attributes(network) == before


@pytest.mark.parametrize("score", ["additive", "location", "dot", "general", "scaled-dot"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_every_parameter_is_trained(score: str, cell: str) -> None:
    sides = {"encoder": {"cell": cell, "num_layers": 2}, "decoder": {"cell": cell, "num_layers": 2}}
    network = make_network(make_config({**sides, "attention": {"type": score}}), 1)
    batch = Batch(torch.tensor([[4, 5, 6]]), torch.tensor([3]), torch.tensor([[4, 5, EOS]]), torch.tensor([3]))
    for (name, _), gradient in zip(network.named_parameters(), compute_gradients(network, batch), strict=True):
        assert gradient.any(), name


def have_equal_parameters(one: EncoderDecoder, two: EncoderDecoder) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


@given(st.integers(0, 2**32 - 1), SEEDS)
def test_parameters_depend_on_the_configured_seed_only(seed: int, global_seed: int) -> None:
    config = make_config({"seed": seed, "encoder": {"embedding": "frozen"}})
    one = require_encoder_decoder(build_network(config, make_vocabularies()))
    torch.manual_seed(global_seed)
    torch.rand(global_seed % 7)
    assert have_equal_parameters(one, require_encoder_decoder(build_network(config, make_vocabularies())))
    other = msgspec.structs.replace(config, seed=seed ^ 1)
    assert not have_equal_parameters(one, require_encoder_decoder(build_network(other, make_vocabularies())))


@given(st.integers(0, 62))
def test_different_seeds_give_different_parameters(bit: int) -> None:
    """PyTorch's CPU generator reads only 32 bits of its seed."""
    one = make_config({})
    try:
        two = make_config({"seed": one.seed ^ (1 << bit)})
    except ConfigError:
        return
    assert not have_equal_parameters(
        require_encoder_decoder(build_network(one, make_vocabularies())),
        require_encoder_decoder(build_network(two, make_vocabularies())),
    )


def test_building_does_not_change_the_global_generator() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    require_encoder_decoder(build_network(make_config({}), make_vocabularies()))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("column", "rows"), [("", VOCABULARY_SIZE), ("tags", VOCABULARY_SIZE + 4 + 2)])
def test_features_have_vectors_if_a_column_is_set(column: str, rows: int) -> None:
    config = make_config({"data": {"features_column": column}})
    network = require_encoder_decoder(build_network(config, make_vocabularies(features=["V", "PST"])))
    assert network.encoder.table.weight.shape[0] == rows
    assert network.decoder.table.weight.shape[0] == VOCABULARY_SIZE


def count_parameters_by_formula(config: Config) -> int:
    """Return the parameter count: one layer each, bidirectional, additive attention, bridge, learned embeddings."""
    e, a, d = config.encoder, config.attention.size, config.decoder
    gates, parts = {"gru": (3, 1), "lstm": (4, 2)}[d.cell]
    V, H, D, G = VOCABULARY_SIZE, e.hidden_size, 2 * e.hidden_size, gates * d.hidden_size
    encoder = V * e.embedding_size + 2 * gates * H * (e.embedding_size + H + 2)
    attention = d.hidden_size * a + D * a + a + a
    cell = V * d.embedding_size + G * (d.embedding_size + D + d.hidden_size + 2)
    return encoder + attention + cell + parts * d.hidden_size * (D + 1) + V * (d.hidden_size + D + 1)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_parameter_count_equals_the_formula(cell: str) -> None:
    settings = {"cell": cell, "embedding_size": 3, "hidden_size": 5}
    config = make_config({"encoder": settings, "decoder": {**settings, "hidden_size": 7}, "attention": {"size": 11}})
    assert parameter_count(
        require_encoder_decoder(build_network(config, make_vocabularies()))
    ) == count_parameters_by_formula(config)


@pytest.mark.parametrize("kind", ["frozen", "one-hot"])
def test_only_trainable_parameters_are_counted(kind: str) -> None:
    def count(side: dict[str, Any]) -> int:
        config = make_config({"encoder": {"embedding_size": VOCABULARY_SIZE, **side}})
        return parameter_count(require_encoder_decoder(build_network(config, make_vocabularies())))

    assert count({}) - count({"embedding": kind}) == VOCABULARY_SIZE * VOCABULARY_SIZE


def test_frozen_parameters_are_not_counted() -> None:
    network = require_encoder_decoder(build_network(make_config({}), make_vocabularies()))
    total, decoder = parameter_count(network), parameter_count(network.decoder)
    network.encoder.requires_grad_(False)
    assert parameter_count(network) == decoder < total
