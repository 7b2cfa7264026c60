"""Combinations of architecture options: invariants hold, and each option changes the results.

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
from small_networks import (
    SEEDS,
    assert_tensors_close,
    batches,
    collect_attributes,
    configs_with_options,
    extract_unpadded_row,
    few_examples,
    make_config,
    make_network,
    make_vocabularies,
)
from test_decoder import memory_of, same_states
from torch import Tensor
from trained_runs import make_copy_examples, train_to_end, write_digit_files

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.batches import Batch
from pellucid.model.memory import DecoderState, NetworkOutput
from pellucid.model.network import EncoderDecoder, require_encoder_decoder
from pellucid.run_folder.predictor_loader import load
from pellucid.tasks.registry import build_network
from pellucid.training.events import UpdateCompleted
from pellucid.training.session import train_run

ALL_OPTIONS: dict[str, dict[str, Any]] = {
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
"""Settings with as many options as possible."""


def run_network(network: EncoderDecoder, batch: Batch) -> NetworkOutput:
    output: NetworkOutput = network(batch)
    return output


def assert_stepped_equals_unrolled(network: EncoderDecoder, batch: Batch, tolerance: float) -> None:
    """Assert that stepped results equal unrolled ones, with dropout masks in training."""
    decoder, memory = network.decoder, memory_of(network, batch)
    state, cache = decoder.init_state(memory), decoder.build_cache(memory)
    unrolled = decoder.unroll(batch.target, state, cache)
    for t, symbols in enumerate(batch.target.unbind(dim=1)):
        step = decoder.step(symbols, state, cache)
        assert_tensors_close(unrolled.logits[:, t], step.logits, tolerance)
        assert_tensors_close(unrolled.weights[:, t], step.attention.weights, tolerance)
        assert (unrolled.heads is None) == (step.attention.heads is None)
        if unrolled.heads is not None and step.attention.heads is not None:
            assert_tensors_close(unrolled.heads[:, t], step.attention.heads, tolerance)
            assert_tensors_close(step.attention.heads.mean(dim=1), step.attention.weights, tolerance)
        state = step.state
    same_states(unrolled.state, state, tolerance)
    assert (unrolled.state.input_feed is None) == (state.input_feed is None)
    if unrolled.state.input_feed is not None and state.input_feed is not None:
        assert_tensors_close(unrolled.state.input_feed, state.input_feed, tolerance)


@few_examples
@given(configs_with_options(), batches(), SEEDS, st.sampled_from([(torch.float64, 1e-12), (torch.float32, 2e-4)]))
def test_unrolled_steps_equal_single_steps(
    config: Config, batch: Batch, seed: int, precision: tuple[torch.dtype, float]
) -> None:
    network = make_network(config, seed, precision[0])
    assert_stepped_equals_unrolled(network, batch, precision[1])
    with torch.inference_mode():
        assert_stepped_equals_unrolled(network, batch, precision[1])


@few_examples
@given(configs_with_options(), batches(), SEEDS)
def test_steps_equal_unrolled_steps_in_training_with_sequence_masks(config: Config, batch: Batch, seed: int) -> None:
    assume(config.decoder.dropout_mask == "sequence" and config.attention.type != "monotonic")
    network = make_network(config, seed).train()
    network.decoder.table.dropout = 0.0  # it would be drawn anew at each use of the table
    torch.manual_seed(seed)
    assert_stepped_equals_unrolled(network, batch, 1e-12)


@pytest.mark.slow
@few_examples
@given(configs_with_options(), batches(), SEEDS)
def test_batch_composition_and_padding_do_not_change_outputs(config: Config, batch: Batch, seed: int) -> None:
    network = make_network(config, seed)
    batched, order = run_network(network, batch), list(range(len(batch.source)))
    Random(seed).shuffle(order)
    assert_tensors_close(
        run_network(network, Batch._make([*(tensor[order] for tensor in batch.tensors()), None])).logits,
        batched.logits[order],
    )
    for row in order:
        single = run_network(network, extract_unpadded_row(batch, row))
        T, S = single.weights.shape[1:]
        assert_tensors_close(single.logits[0], batched.logits[row, :T])
        assert_tensors_close(single.weights[0], batched.weights[row, :T, :S])
        assert not batched.weights[row, :, S:].any()


@few_examples
@given(configs_with_options(), batches(), SEEDS, st.data())
def test_a_step_of_selected_rows_equals_selected_rows_of_the_step(
    config: Config, batch: Batch, seed: int, data: st.DataObject
) -> None:
    network = make_network(config, seed)
    memory, symbols, decoder = memory_of(network, batch), batch.target[:, 0], network.decoder
    state, cache = decoder.init_state(memory), decoder.build_cache(memory)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, len(symbols) - 1), min_size=1, max_size=7)))
    state = decoder.step(symbols, state, cache).state
    full = decoder.step(symbols, state, cache)
    selected = decoder.step(symbols[rows], state.index_select(rows), cache.index_select(rows))
    assert_tensors_close(selected.logits, full.logits[rows])
    same_states(selected.state, full.state.index_select(rows))


@few_examples
@given(configs_with_options(), batches(), SEEDS)
def test_nothing_is_stored_and_equal_seeds_give_equal_results(config: Config, batch: Batch, seed: int) -> None:
    network = make_network(config, seed).train()
    before, results = collect_attributes(network), []
    for _ in range(2):
        torch.manual_seed(seed)
        results.append(run_network(network, batch).logits)
    assert collect_attributes(network) == before
    assert torch.equal(*results)


def compute_gradients(network: EncoderDecoder, batch: Batch) -> list[Tensor]:
    loss = (run_network(network, batch).logits ** 2).sum()
    return list(torch.autograd.grad(loss, [*network.parameters()]))


TARGET = torch.tensor([[4, 5, 2], [6, 7, 2]])
BATCH = Batch(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2]), TARGET, torch.tensor([3, 3]))
DROPOUT_SETTINGS = {"dropout_mask": "sequence", "embedding_dropout": 0.5, "recurrent_dropout": 0.5}


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("key", [*DROPOUT_SETTINGS, "recurrent_dropout_on"])
def test_each_dropout_changes_gradients_in_training_only(side: str, key: str) -> None:
    base: dict[str, Any] = {"dropout": 0.5, "recurrent_dropout": 0.5 * (key == "recurrent_dropout_on")}
    value = "states" if key == "recurrent_dropout_on" else DROPOUT_SETTINGS[key]
    results = []
    for settings in (base, {**base, key: value}):
        network = make_network(make_config({side: settings}), 1)
        eval_logits = run_network(network, BATCH).logits
        torch.manual_seed(3)
        results.append((eval_logits, compute_gradients(network.train(), BATCH)))
    assert torch.equal(results[0][0], results[1][0])
    assert any(not torch.equal(one, two) for one, two in zip(results[0][1], results[1][1], strict=True))


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
    for part_settings in ({}, settings):
        network = make_network(make_config({**base, side: {**base.get(side, {}), **part_settings}}), 1)
        outputs.append(run_network(network, BATCH).logits)
        for (name, _), gradient in zip(network.named_parameters(), compute_gradients(network, BATCH), strict=True):
            assert gradient.any(), name
    assert not torch.isclose(outputs[0], outputs[1]).any()


@pytest.mark.slow
def test_a_run_saves_every_option_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    files = write_digit_files(tmp_path / "data")
    config = build_config({"size": "tiny", "training": {"epochs": 2, "batch_size": 8}, **ALL_OPTIONS}, "test")
    train_to_end(files, tmp_path / "uninterrupted", config)
    events = train_run(files, tmp_path / "resumed", config)
    assert sum(isinstance(event, UpdateCompleted) for event in islice(events, 12)) > 3
    events.close()
    assert (tmp_path / "resumed" / "training.safetensors").exists()
    train_to_end(files, tmp_path / "resumed", config)
    uninterrupted, resumed = load(tmp_path / "uninterrupted"), load(tmp_path / "resumed")
    assert (uninterrupted.config.encoder, uninterrupted.config.decoder) == (config.encoder, config.decoder)
    for name, tensor in uninterrupted.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[name]), name
    sources = [example.source for example in make_copy_examples(4, 1)]
    assert [trace.score for trace in uninterrupted.predict(sources)] == [
        trace.score for trace in resumed.predict(sources)
    ]


def test_parameters_are_a_function_of_the_seed() -> None:
    one, two = (
        require_encoder_decoder(build_network(make_config(ALL_OPTIONS), make_vocabularies())).state_dict()
        for _ in range(2)
    )
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_the_input_feed_is_reordered_with_the_state() -> None:
    context = torch.arange(3.0)[:, None]
    selected = DecoderState(torch.zeros(3, 1, 1), input_feed=context).index_select(torch.tensor([2, 0])).input_feed
    assert selected is not None and selected[:, 0].tolist() == [2, 0]
