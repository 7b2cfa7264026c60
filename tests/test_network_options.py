"""Every option of an architecture, in combinations: invariants hold, and each option changes the results.

B batch, S source positions, T target positions, V vocabulary.
"""

from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from small import SEEDS, alone, batches, config_of, contents, few, near, network_of, optioned, vocabularies
from test_decoder import memory_of, same_states
from torch import Tensor
from trained_runs import copies, digit_files, train_to_end

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.batches import Batch
from pellucid.model.memory import Seq2SeqOutput, State
from pellucid.model.network import EncoderDecoder, require_seq2seq
from pellucid.tasks.registry import build_network
from pellucid.training.events import UpdateCompleted
from pellucid.training.run_folder import load
from pellucid.training.session import train_run

RICH: dict[str, dict[str, Any]] = {
    "encoder": {
        "cell": "lstm",
        "num_layers": 2,
        "residual": True,
        "layer_normalization": "cells",
        "dropout_mask": "sequence",
        "embedding_dropout": 0.1,
        "recurrent_dropout": 0.1,
    },
    "attention": {"num_heads": 2},
    "decoder": {
        "cell": "lstm",
        "num_layers": 2,
        "order": "step-then-attend",
        "input_feeding": True,
        "tie_embeddings": True,
        "residual": True,
        "layer_normalization": "outputs",
        "recurrent_dropout": 0.1,
        "recurrent_dropout_on": "states",
    },
}
"""As many options at once as possible."""


def network_outputs(network: EncoderDecoder, batch: Batch) -> Seq2SeqOutput:
    unrolled: Seq2SeqOutput = network(batch)
    return unrolled


def assert_stepped_equals_unrolled(network: EncoderDecoder, batch: Batch, tolerance: float) -> None:
    """Assert that stepped results equal unrolled ones, with dropout masks in training."""
    decoder, memory = network.decoder, memory_of(network, batch)
    state, cache = decoder.init_state(memory), decoder.prepare(memory)
    unrolled = decoder.unroll(batch.target, state, cache)
    for t, symbols in enumerate(batch.target.unbind(dim=1)):
        step = decoder.step(symbols, state, cache)
        near(unrolled.logits[:, t], step.logits, tolerance)
        near(unrolled.weights[:, t], step.attention.weights, tolerance)
        assert (unrolled.heads is None) == (step.attention.heads is None)
        if unrolled.heads is not None and step.attention.heads is not None:
            near(unrolled.heads[:, t], step.attention.heads, tolerance)
            near(step.attention.heads.mean(dim=1), step.attention.weights, tolerance)
        state = step.state
    same_states(unrolled.state, state, tolerance)
    assert (unrolled.state.input_feed is None) == (state.input_feed is None)
    if unrolled.state.input_feed is not None and state.input_feed is not None:
        near(unrolled.state.input_feed, state.input_feed, tolerance)


@few
@given(optioned(), batches(), SEEDS, st.sampled_from([(torch.float64, 1e-12), (torch.float32, 2e-4)]))
def test_unrolled_steps_equal_single_steps(
    config: Config, batch: Batch, seed: int, precision: tuple[torch.dtype, float]
) -> None:
    network = network_of(config, seed, precision[0])
    assert_stepped_equals_unrolled(network, batch, precision[1])
    with torch.inference_mode():
        assert_stepped_equals_unrolled(network, batch, precision[1])


@few
@given(optioned(), batches(), SEEDS)
def test_steps_equal_unrolled_steps_in_training_with_sequence_masks(config: Config, batch: Batch, seed: int) -> None:
    assume(config.decoder.dropout_mask == "sequence" and config.attention.type != "monotonic")
    network = network_of(config, seed).train()
    network.decoder.table.dropout = 0.0  # which is drawn anew at each access of the table
    torch.manual_seed(seed)
    assert_stepped_equals_unrolled(network, batch, 1e-12)


@few
@given(optioned(), batches(), SEEDS)
def test_batch_composition_and_padding_change_nothing(config: Config, batch: Batch, seed: int) -> None:
    network = network_of(config, seed)
    many, order = network_outputs(network, batch), list(range(len(batch.source)))
    Random(seed).shuffle(order)
    near(network_outputs(network, Batch(*(tensor[order] for tensor in batch))).logits, many.logits[order])
    for row in order:
        one = network_outputs(network, alone(batch, row))
        T, S = one.weights.shape[1:]
        near(one.logits[0], many.logits[row, :T])
        near(one.weights[0], many.weights[row, :T, :S])
        assert not many.weights[row, :, S:].any()


@few
@given(optioned(), batches(), SEEDS, st.data())
def test_a_step_of_selected_rows_equals_selected_rows_of_the_step(
    config: Config, batch: Batch, seed: int, data: st.DataObject
) -> None:
    network = network_of(config, seed)
    memory, symbols, decoder = memory_of(network, batch), batch.target[:, 0], network.decoder
    state, cache = decoder.init_state(memory), decoder.prepare(memory)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, len(symbols) - 1), min_size=1, max_size=7)))
    state = decoder.step(symbols, state, cache).state
    whole = decoder.step(symbols, state, cache)
    taken = decoder.step(symbols[rows], state.index_select(rows), cache.index_select(rows))
    near(taken.logits, whole.logits[rows])
    same_states(taken.state, whole.state.index_select(rows))


@few
@given(optioned(), batches(), SEEDS)
def test_nothing_is_stored_and_equal_seeds_give_equal_results(config: Config, batch: Batch, seed: int) -> None:
    network = network_of(config, seed).train()
    before, results = contents(network), []
    for _ in range(2):
        torch.manual_seed(seed)
        results.append(network_outputs(network, batch).logits)
    assert contents(network) == before
    assert torch.equal(*results)


def gradients_of(network: EncoderDecoder, batch: Batch) -> list[Tensor]:
    loss = (network_outputs(network, batch).logits ** 2).sum()
    return list(torch.autograd.grad(loss, [*network.parameters()]))


TARGET = torch.tensor([[4, 5, 2], [6, 7, 2]])
BATCH = Batch(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2]), TARGET, torch.tensor([3, 3]))
DRAWN = {"dropout_mask": "sequence", "embedding_dropout": 0.5, "recurrent_dropout": 0.5}


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("key", [*DRAWN, "recurrent_dropout_on"])
def test_each_dropout_changes_the_gradients_and_nothing_outside_training(side: str, key: str) -> None:
    base: dict[str, Any] = {"dropout": 0.5, "recurrent_dropout": 0.5 * (key == "recurrent_dropout_on")}
    value = "states" if key == "recurrent_dropout_on" else DRAWN[key]
    found = []
    for settings in (base, {**base, key: value}):
        network = network_of(config_of({side: settings}), 1)
        calm = network_outputs(network, BATCH).logits
        torch.manual_seed(3)
        found.append((calm, gradients_of(network.train(), BATCH)))
    assert torch.equal(found[0][0], found[1][0])
    assert any(not torch.equal(one, two) for one, two in zip(found[0][1], found[1][1], strict=True))


@pytest.mark.parametrize(
    ("side", "settings"),
    [
        ("encoder", {"residual": True}),
        ("decoder", {"residual": True}),
        ("encoder", {"layer_normalization": "outputs"}),
        ("encoder", {"layer_normalization": "cells"}),
        ("decoder", {"layer_normalization": "outputs"}),
        ("decoder", {"layer_normalization": "cells"}),
        ("decoder", {"order": "step-then-attend"}),
        ("decoder", {"order": "step-then-attend", "input_feeding": True}),
        ("decoder", {"tie_embeddings": True}),
        ("attention", {"num_heads": 2}),
    ],
)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_each_part_changes_the_output_and_all_its_parameters_are_trained(
    side: str, settings: dict[str, Any], cell: str
) -> None:
    base: dict[str, dict[str, Any]] = {
        "encoder": {"cell": cell, "num_layers": 2},
        "decoder": {"cell": cell, "num_layers": 2},
    }
    outputs = []
    for more in ({}, settings):
        network = network_of(config_of({**base, side: {**base.get(side, {}), **more}}), 1)
        outputs.append(network_outputs(network, BATCH).logits)
        for (name, _), gradient in zip(network.named_parameters(), gradients_of(network, BATCH), strict=True):
            assert gradient.any(), name
    assert not torch.isclose(outputs[0], outputs[1]).any()


def test_a_run_saves_every_option_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    files = digit_files(tmp_path / "data")
    config = build_config({"size": "tiny", "training": {"epochs": 2, "batch_size": 8}, **RICH}, "test")
    train_to_end(files, tmp_path / "whole", config)
    events = train_run(files, tmp_path / "parted", config)
    assert sum(isinstance(event, UpdateCompleted) for event in islice(events, 12)) > 3
    events.close()
    assert (tmp_path / "parted" / "training.safetensors").exists()
    train_to_end(files, tmp_path / "parted", config)
    whole, parted = load(tmp_path / "whole"), load(tmp_path / "parted")
    assert (whole.config.encoder, whole.config.decoder) == (config.encoder, config.decoder)
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, parted.network.state_dict()[name]), name
    sources = [example.source for example in copies(4, 1)]
    assert [trace.score for trace in whole.predict(sources)] == [trace.score for trace in parted.predict(sources)]


def test_parameters_are_a_function_of_the_seed() -> None:
    one, two = (require_seq2seq(build_network(config_of(RICH), vocabularies())).state_dict() for _ in range(2))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_the_input_feed_is_reordered_with_the_state() -> None:
    context = torch.arange(3.0)[:, None]
    taken = State(torch.zeros(3, 1, 1), input_feed=context).index_select(torch.tensor([2, 0])).input_feed
    assert taken is not None and taken[:, 0].tolist() == [2, 0]
