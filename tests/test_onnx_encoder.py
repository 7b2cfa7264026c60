"""export/onnx_encoder.py: the encoder graph equals PyTorch's encoder."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_networks import (
    OPTIONS,
    assert_values_close,
    export_network,
    exportable_configs,
    load_session,
    make_float_network,
    network_arrays,
    run_session,
    tolerance_of,
)
from small_networks import (
    LENGTHS,
    SEEDS,
    few_examples,
    make_config,
    make_padded_ids,
    make_vocabularies,
    randomize_padding,
)

from pellucid.export.onnx_encoder import EncoderGraph

LAYERS = {"num_layers": 2, "hidden_size": 5, "embedding_size": 4}
ENCODERS: dict[str, dict[str, Any]] = {
    "gru": {"cell": "gru", **LAYERS},
    "lstm": {"cell": "lstm", **LAYERS},
    "unidirectional gru": {"cell": "gru", "bidirectional": False, **LAYERS},
    "unidirectional lstm": {"cell": "lstm", "bidirectional": False, **LAYERS},
    "sum": {"merge": "sum", **LAYERS, "residual": True},
    "product": {"merge": "product", "cell": "lstm"},
    "normalized": {"layer_normalization": "outputs", **LAYERS, "hidden_size": 16},
    "convolutions": {"convolutions": (1, 2, 5), "filters": 3},
    "one-hot": {"embedding": "one-hot"},
}
STATE_FIELDS = ("hidden", "cell_state", "input_feed", "attention_state")


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
@pytest.mark.parametrize("init_hidden", ["final", "mean", "zero"])
def test_memory_keys_and_initial_state(encoder: dict[str, Any], init_hidden: str) -> None:
    config = make_config({"encoder": encoder, "decoder": {"init_hidden": init_hidden, "cell": "lstm", "num_layers": 2}})
    network = make_float_network(config, 1)
    lengths = torch.tensor([4, 1, 7])
    ids = make_padded_ids(lengths.tolist(), 2)
    outputs = export_network(network, config).encode(ids.numpy(), lengths.numpy())
    with torch.no_grad():
        memory = network.encoder(ids, lengths)
        state, cache = network.decoder.init_state(memory), network.decoder.build_cache(memory)
    assert_values_close(outputs["memory"], memory.states)
    assert_values_close(outputs["keys"], cache.keys)
    assert_values_close(outputs["hidden"], state.hidden)
    assert state.cell_state is not None
    assert_values_close(outputs["cell_state"], state.cell_state)


@few_examples
@given(exportable_configs(), LENGTHS, SEEDS, st.integers(0, 3))
def test_padding_changes_nothing(config: Any, lengths: list[int], seed: int, extra_columns: int) -> None:  # noqa: ANN401
    session = export_network(make_float_network(config, seed), config)
    ids, counts = make_padded_ids(lengths, seed), torch.tensor(lengths)
    wider = randomize_padding(ids, counts, seed, extra_columns)
    together = session.encode(wider.numpy(), counts.numpy())
    for row, length in enumerate(lengths):
        alone = session.encode(ids[row : row + 1, :length].numpy(), counts[row : row + 1].numpy())
        for name in ("memory", "hidden"):
            expected = alone[name][0]
            actual = together[name][row, :length] if name == "memory" else together[name][row]
            assert_values_close(actual, expected, tolerance_of(config))
        assert not together["memory"][row, length:].any()


def test_ids_outside_the_embedding_are_read_as_unknown() -> None:
    config = make_config({"decoder": {"pointer_generator": True}})
    session = export_network(make_float_network(config, 3), config)
    lengths = np.array([3])
    unknown, extended = (session.encode(np.array([[4, symbol, 6]]), lengths) for symbol in (3, 20))
    assert_values_close(extended["memory"], unknown["memory"], 0)


def test_copied_ids() -> None:
    config = make_config({"decoder": {"pointer_generator": True}})
    network = make_float_network(config, 1)
    arrays = network_arrays(network, config, make_vocabularies())
    pointer_generator = arrays.decoder.pointer_generator
    assert pointer_generator is not None
    ids = np.array([[4, 5, 4, 6, 15, 0], [6, 4, 5, 4, 0, 0]])
    session = load_session(EncoderGraph(config, arrays, OPTIONS).build({}))
    outputs = run_session(session, {"ids": ids, "lengths": np.array([5, 4])})
    with torch.no_grad():
        memory = network.encoder(torch.tensor(ids), torch.tensor([5, 4]))
        copying = network.decoder.copying
        assert copying is not None
        np.testing.assert_array_equal(outputs["copy_ids"], copying.copy_ids(memory).numpy())
