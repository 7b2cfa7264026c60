"""Decoders of one to three layers in PyTorch: dropout between the layers, ensembles, copying and constraints."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_networks import (
    assert_tensors_close,
    extract_unpadded_row,
    make_config,
    make_network,
    make_padded_ids,
    make_vocabularies,
)

from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.decoding.ensemble import combine_transducers
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.transducer import Transducer
from pellucid.model.decoder import _with_step_masks, unstack
from pellucid.model.memory import Memory
from pellucid.model.network import EncoderDecoder

DEPTHS = [1, 2, 3]
ORDERS = ["attend-then-step", "step-then-attend"]
EXAMPLES = [Example(source, "") for source in ("abca", "bbed", "eacd")]
BATCH = Batch(
    make_padded_ids([5, 2, 4], 1), torch.tensor([5, 2, 4]), make_padded_ids([3, 4, 1], 2), torch.tensor([3, 4, 1])
)


def build_deep_network(
    layers: int, order: str, settings: dict[str, Any] | None = None, seed: int = 1
) -> EncoderDecoder:
    """Return a network whose decoder has residual connections and layer normalization if there are upper layers."""
    decoder = {"num_layers": layers, "order": order, "residual": layers > 1, "layer_normalization": "outputs"}
    return make_network(make_config({"decoder": {**decoder, **(settings or {})}}), seed)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layers", DEPTHS)
@pytest.mark.parametrize("mask", ["step", "sequence"])
def test_dropout_between_layers_is_that_of_the_drawn_masks(layers: int, order: str, mask: str) -> None:
    """The unrolled states equal those of single steps with the masks of each step."""
    network = build_deep_network(layers, order, {"dropout": 0.5, "dropout_mask": mask})
    decoder = network.decoder.train()
    decoder.table.dropout = 0.0  # it would be drawn anew at each use of the table
    memory: Memory = network.encoder(BATCH.source, BATCH.source_lengths)
    cache, state = decoder.build_cache(memory), decoder.init_state(memory)
    torch.manual_seed(0)
    unrolled = decoder.unroll(BATCH.target, state, cache)
    torch.manual_seed(0)
    layer_masks = decoder.draw_layer_masks(BATCH.target, cache)
    assert (layer_masks is None) == (layers == 1)
    if layer_masks is not None:
        steps = BATCH.target.shape[1] if mask == "step" else 1
        assert layer_masks.shape == (layers - 1, len(BATCH.target), steps, decoder.config.hidden_size)
        assert set(layer_masks.flatten().tolist()) == {0.0, 2.0}
    stepped = unstack(state)
    for step, projected in enumerate(decoder.project_symbols(BATCH.target, cache.dropout_masks).unbind(dim=1)):
        stepped = decoder.step_without_logits(
            projected, stepped, _with_step_masks(cache, layer_masks, step), None
        ).state
    assert_tensors_close(unrolled.state.hidden, stepped.stack().hidden)


def test_a_one_layer_decoder_draws_no_masks_between_layers() -> None:
    """So the random numbers of its training do not depend on deeper decoders."""
    network = build_deep_network(1, "attend-then-step", {"dropout": 0.5})
    decoder = network.decoder.train()
    memory: Memory = network.encoder(BATCH.source, BATCH.source_lengths)
    cache = decoder.build_cache(memory)
    before = torch.get_rng_state()
    decoder.draw_layer_masks(BATCH.target, cache)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layers", DEPTHS)
def test_padding_and_the_other_rows_change_nothing(layers: int, order: str) -> None:
    network = build_deep_network(layers, order)
    logits = network(BATCH).logits
    for row, length in enumerate(BATCH.target_lengths.tolist()):
        alone = network(extract_unpadded_row(BATCH, row)).logits
        assert_tensors_close(logits[row, :length], alone[0, :length])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layers", DEPTHS)
@pytest.mark.parametrize("options", [DecodingOptions(), DecodingOptions(forbidden=("w",), required=("v",))])
def test_an_ensemble_of_equal_copying_networks_decodes_as_one(
    layers: int, order: str, options: DecodingOptions
) -> None:
    network = build_deep_network(layers, order, {"pointer_generator": True})
    decoder = {"num_layers": layers, "order": order, "pointer_generator": True}
    model = Transducer(make_config({"decoder": decoder}), make_vocabularies(), network, options)
    ensemble = replace(combine_transducers([model, model], ["one", "other"]), options=options)
    for one, other in zip(model.nbest_examples(EXAMPLES, 2), ensemble.nbest_examples(EXAMPLES, 2), strict=True):
        assert len(one) == len(other) == 2
        for trace, expected in zip(one, other, strict=True):
            assert trace.output == expected.output and trace.score == pytest.approx(expected.score, abs=1e-5)
            assert not options.required or ("v" in trace.output and "w" not in trace.output)


@pytest.mark.parametrize("layers", DEPTHS)
def test_the_query_of_attention_is_the_state_of_the_top_layer(layers: int) -> None:
    """Another state of the top layer changes the attention weights; other states of lower layers do not."""
    network = build_deep_network(layers, "attend-then-step")
    decoder = network.decoder
    memory: Memory = network.encoder(BATCH.source, BATCH.source_lengths)
    cache, state = decoder.build_cache(memory), decoder.init_state(memory)
    weights = decoder.step(BATCH.target[:, 0], state, cache).attention.weights
    for layer in range(layers):
        hidden = state.hidden.clone()
        hidden[:, layer] += 1
        changed = decoder.step(BATCH.target[:, 0], state._replace(hidden=hidden), cache).attention.weights
        assert torch.equal(changed, weights) == (layer < layers - 1)
