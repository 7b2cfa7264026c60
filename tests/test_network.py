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
from small import (
    SEEDS,
    WIDTH,
    alone,
    batches,
    config_of,
    configs,
    contents,
    few,
    littered,
    near,
    network_of,
    vocabularies,
)
from torch import Tensor
from torch.nn.functional import pad

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.vocabulary import BOS, EOS, PAD
from pellucid.errors import ConfigError
from pellucid.model.losses import cross_entropy
from pellucid.model.memory import Memory, Seq2SeqOutput
from pellucid.model.network import EncoderDecoder, parameter_count, require_seq2seq
from pellucid.tasks.registry import build_network


def through(network: EncoderDecoder, batch: Batch) -> Seq2SeqOutput:
    unrolled: Seq2SeqOutput = network(batch)
    return unrolled


def gradients(network: EncoderDecoder, batch: Batch) -> list[Tensor]:
    parameters = list(network.parameters())
    loss = cross_entropy(through(network, batch).logits, batch.target, 0.1)
    return list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))


@few
@given(configs(), batches(), SEEDS, st.integers(0, 3))
def test_source_padding_changes_no_output_weight_or_gradient(
    config: Config, batch: Batch, seed: int, columns: int
) -> None:
    network = network_of(config, seed)
    source = littered(batch.source, batch.source_lengths, seed, columns)
    other = batch._replace(source=source, target=pad(batch.target, (0, columns), value=PAD))
    one, two = through(network, batch), through(network, other)
    T, S = one.weights.shape[1:]
    near(two.logits[:, :T], one.logits)
    near(two.weights[:, :T, :S], one.weights)
    for row, length in enumerate(batch.source_lengths.tolist()):
        assert not two.weights[row, :, length:].any()
    for first, second in zip(gradients(network, batch), gradients(network, other), strict=True):
        near(second, first)


@few
@given(configs(), batches(), SEEDS)
def test_target_padding_changes_nothing(config: Config, batch: Batch, seed: int) -> None:
    network = network_of(config, seed)
    one = through(network, batch)
    two = through(network, batch._replace(target=littered(batch.target, batch.target_lengths, seed, 2)))
    for row, length in enumerate(batch.target_lengths.tolist()):
        near(two.logits[row, :length], one.logits[row, :length])
        near(two.weights[row, :length], one.weights[row, :length])


@few
@given(
    configs(),
    batches(),
    SEEDS,
    st.randoms(use_true_random=False),
    st.sampled_from([(torch.float64, 1e-12), (torch.float32, 1e-5)]),
)
def test_batch_composition_changes_nothing(
    config: Config, batch: Batch, seed: int, random: Random, precision: tuple[torch.dtype, float]
) -> None:
    dtype, tolerance = precision
    network = network_of(config, seed, dtype)
    many = through(network, batch)
    order = list(range(len(batch.source)))
    random.shuffle(order)
    shuffled = through(network, Batch(*(tensor[order] for tensor in batch)))
    near(shuffled.logits, many.logits[order], tolerance)
    near(shuffled.weights, many.weights[order], tolerance)
    for row in order:
        one = through(network, alone(batch, row))
        T, S = one.weights.shape[1:]
        near(one.logits[0], many.logits[row, :T], tolerance)
        near(one.weights[0], many.weights[row, :T, :S], tolerance)


@few
@given(configs(), batches(), SEEDS)
def test_teacher_forcing_feeds_the_target_shifted_by_one(config: Config, batch: Batch, seed: int) -> None:
    network = network_of(config, seed)
    memory: Memory = network.encoder(batch.source, batch.source_lengths)
    fed = torch.tensor([[BOS, *row[:-1]] for row in batch.target.tolist()])
    expected = network.decoder.unroll(fed, network.decoder.init_state(memory), network.decoder.prepare(memory))
    assert torch.equal(through(network, batch).logits, expected.logits)


def test_no_step_reads_its_own_symbol_or_a_later_one() -> None:
    network = network_of(config_of({}), 1)
    batch = Batch(torch.tensor([[4, 5]]), torch.tensor([2]), torch.tensor([[4, 5, 6, EOS]]), torch.tensor([4]))
    logits = through(network, batch).logits[0]
    for t in range(4):
        target = batch.target.clone()
        target[0, t] = 7
        other = through(network, batch._replace(target=target)).logits[0]
        assert torch.equal(other[: t + 1], logits[: t + 1])
        assert not torch.isclose(other[t + 1 :], logits[t + 1 :]).all(dim=1).any()


@few
@given(configs(), batches(), SEEDS)
def test_a_forward_pass_stores_nothing(config: Config, batch: Batch, seed: int) -> None:
    network = network_of(config, seed)
    before = contents(network)
    through(network, batch)
    assert contents(network) == before


@pytest.mark.parametrize("score", ["additive", "location", "dot", "general", "scaled-dot"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_every_parameter_is_trained(score: str, cell: str) -> None:
    sides = {"encoder": {"cell": cell, "num_layers": 2}, "decoder": {"cell": cell, "num_layers": 2}}
    network = network_of(config_of({**sides, "attention": {"type": score}}), 1)
    batch = Batch(torch.tensor([[4, 5, 6]]), torch.tensor([3]), torch.tensor([[4, 5, EOS]]), torch.tensor([3]))
    for (name, _), gradient in zip(network.named_parameters(), gradients(network, batch), strict=True):
        assert gradient.any(), name


def same_parameters(one: EncoderDecoder, two: EncoderDecoder) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


@given(st.integers(0, 2**32 - 1), SEEDS)
def test_parameters_are_a_function_of_the_seed(seed: int, noise: int) -> None:
    config = config_of({"seed": seed, "encoder": {"embedding": "frozen"}})
    one = require_seq2seq(build_network(config, vocabularies()))
    torch.manual_seed(noise)
    torch.rand(noise % 7)
    assert same_parameters(one, require_seq2seq(build_network(config, vocabularies())))
    other = msgspec.structs.replace(config, seed=seed ^ 1)
    assert not same_parameters(one, require_seq2seq(build_network(other, vocabularies())))


@given(st.integers(0, 62))
def test_different_seeds_give_different_parameters(bit: int) -> None:
    """PyTorch's CPU generator reads only 32 bits of its seed."""
    one = config_of({})
    try:
        two = config_of({"seed": one.seed ^ (1 << bit)})
    except ConfigError:
        return
    assert not same_parameters(
        require_seq2seq(build_network(one, vocabularies())), require_seq2seq(build_network(two, vocabularies()))
    )


def test_building_does_not_change_the_global_generator() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    require_seq2seq(build_network(config_of({}), vocabularies()))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(("column", "rows"), [("", WIDTH), ("tags", WIDTH + 4 + 2)])
def test_features_have_vectors_if_a_column_is_set(column: str, rows: int) -> None:
    config = config_of({"data": {"features_column": column}})
    network = require_seq2seq(build_network(config, vocabularies(features=["V", "PST"])))
    assert network.encoder.table.weight.shape[0] == rows
    assert network.decoder.table.weight.shape[0] == WIDTH


def closed_form(config: Config) -> int:
    """Return the parameter count: one layer each, bidirectional, additive attention, bridge, learned embeddings."""
    e, a, d = config.encoder, config.attention.size, config.decoder
    gates, parts = {"gru": (3, 1), "lstm": (4, 2)}[d.cell]
    V, H, D, G = WIDTH, e.hidden_size, 2 * e.hidden_size, gates * d.hidden_size
    encoder = V * e.embedding_size + 2 * gates * H * (e.embedding_size + H + 2)
    attention = d.hidden_size * a + D * a + a + a
    cell = V * d.embedding_size + G * (d.embedding_size + D + d.hidden_size + 2)
    return encoder + attention + cell + parts * d.hidden_size * (D + 1) + V * (d.hidden_size + D + 1)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_parameter_count_equals_the_closed_form(cell: str) -> None:
    settings = {"cell": cell, "embedding_size": 3, "hidden_size": 5}
    config = config_of({"encoder": settings, "decoder": {**settings, "hidden_size": 7}, "attention": {"size": 11}})
    assert parameter_count(require_seq2seq(build_network(config, vocabularies()))) == closed_form(config)


@pytest.mark.parametrize("kind", ["frozen", "one-hot"])
def test_only_trainable_parameters_are_counted(kind: str) -> None:
    def count(side: dict[str, Any]) -> int:
        config = config_of({"encoder": {"embedding_size": WIDTH, **side}})
        return parameter_count(require_seq2seq(build_network(config, vocabularies())))

    assert count({}) - count({"embedding": kind}) == WIDTH * WIDTH


def test_frozen_parameters_are_not_counted() -> None:
    network = require_seq2seq(build_network(config_of({}), vocabularies()))
    whole, decoder = parameter_count(network), parameter_count(network.decoder)
    network.encoder.requires_grad_(False)
    assert parameter_count(network) == decoder < whole
