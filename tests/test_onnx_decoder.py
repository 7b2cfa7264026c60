"""export/onnx_decoder.py: the graph of a decoder step equals PyTorch's step."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_networks import (
    OnnxNetwork,
    Values,
    assert_values_close,
    expected_log_probabilities,
    export_network,
    exportable_configs,
    make_float_network,
    tolerance_of,
)
from small_networks import (
    LENGTHS,
    SEEDS,
    VOCABULARY_SIZE,
    few_examples,
    make_config,
    make_padded_ids,
)

from pellucid.config.settings import Config
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.export.onnx_graph import GraphOptions
from pellucid.kernels.dispatch import disable_kernels

STEP_THEN_ATTEND = {"order": "step-then-attend", "input_feeding": True}
DECODERS: dict[str, dict[str, Any]] = {
    "additive": {},
    "multi-head": {"attention": {"num_heads": 4, "size": 8}},
    "dot": {"attention": {"type": "dot"}},
    "scaled-dot": {"attention": {"type": "scaled-dot"}, "decoder": STEP_THEN_ATTEND},
    "general": {"attention": {"type": "general"}, "decoder": STEP_THEN_ATTEND},
    "location": {"attention": {"type": "location"}, "decoder": {"cell": "lstm", "num_layers": 2}},
    "none": {"attention": {"type": "none"}},
    "lstm": {"decoder": {"cell": "lstm", "num_layers": 2, "residual": True}},
    "state": {"decoder": {"output_layer_inputs": "state", "order": "step-then-attend"}},
    "context": {"decoder": {"output_layer_inputs": "context"}},
    "no symbols": {"decoder": {"embedding": "none"}},
    "tied": {"decoder": {"tie_embeddings": True, "embedding_size": 6}},
    "copying": {"decoder": {"pointer_generator": True}},
    "copying, heads": {
        "attention": {"num_heads": 2, "size": 8},
        "decoder": {"pointer_generator": True, **STEP_THEN_ATTEND},
    },
}
STATES = ("hidden", "cell_state", "input_feed", "attention_state")


def sized_config(settings: dict[str, Any]) -> Config:
    """Return a configuration in which encoder and decoder states have the same size."""
    sizes = {"encoder": {"hidden_size": 6}, "attention": {"size": 8}, "decoder": {"hidden_size": 12}}
    return make_config({name: {**sizes[name], **settings.get(name, {})} for name in sizes})


@torch.no_grad()
def check_steps(config: Config, network: OnnxNetwork, seed: int, lengths: list[int], beam_size: int) -> None:
    """Assert that three steps of all hypotheses equal those of the same network in PyTorch."""
    expected_network, counts = make_float_network(config, seed), torch.tensor(lengths)
    ids = make_padded_ids(lengths, seed)
    encoded = network.encode(ids.numpy(), counts.numpy())
    values: Values = {
        name: value.repeat(beam_size, axis=0) if name in STATES else value for name, value in encoded.items()
    }
    tolerance = tolerance_of(config)
    with disable_kernels():
        memory = expected_network.encoder(ids, counts)
        rows = torch.arange(len(lengths)).repeat_interleave(beam_size)
        state = expected_network.decoder.init_state(memory).index_select(rows)
        cache = expected_network.decoder.build_cache(memory)
        for step in range(3):
            symbols = torch.randint(
                NUM_SPECIAL, VOCABULARY_SIZE, (len(rows),), generator=torch.Generator().manual_seed(step)
            )
            expected = expected_network.decoder.step(symbols, state, cache)
            outputs = network.take_step(symbols.numpy(), values, counts.numpy())
            assert_values_close(outputs["log_probabilities"], expected_log_probabilities(expected.logits), tolerance)
            assert_values_close(outputs["attention_weights"], expected.attention.weights, tolerance)
            state = expected.state
            new_state = {name[len("next_") :]: value for name, value in outputs.items() if name.startswith("next_")}
            assert set(new_state) == {name for name in STATES if getattr(state, name) is not None}
            for name, value in new_state.items():
                assert_values_close(value, getattr(state, name), tolerance)
            values |= new_state


@pytest.mark.parametrize("settings", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("opset", [17, 21, onnx.defs.onnx_opset_version()])
def test_steps_of_every_decoder(settings: dict[str, Any], opset: int) -> None:
    config = sized_config(settings)
    network = export_network(make_float_network(config, 1), config, GraphOptions(opset))
    check_steps(config, network, 1, [3, 1, 5], 2)


@few_examples
@given(exportable_configs(), LENGTHS, SEEDS, st.integers(1, 3))
def test_steps_of_random_networks(config: Config, lengths: list[int], seed: int, beam_size: int) -> None:
    check_steps(config, export_network(make_float_network(config, seed), config), seed, lengths, beam_size)


def test_8_bit_weights_change_the_log_probabilities_little() -> None:
    config = sized_config({})
    network = make_float_network(config, 1)
    ids, lengths = make_padded_ids([4, 2], 1).numpy(), torch.tensor([4, 2]).numpy()
    results = []
    for int8 in (False, True):
        exported = export_network(network, config, GraphOptions(17, int8))
        outputs = exported.take_step(torch.tensor([4, 5]).numpy(), exported.encode(ids, lengths), lengths)
        results.append(outputs["log_probabilities"][:, NUM_SPECIAL:])
    difference = abs(results[0] - results[1]).max()
    assert 0 < difference < 0.2
