"""The parameters of networks as arrays: every tensor of a network is taken once, with its shape, for its role."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from small_networks import make_config, make_vocabularies
from untrained_models import MODEL_SETTINGS

from pellucid.config.settings import Config
from pellucid.data.vocabulary import Vocabularies
from pellucid.runtime.parameters import Array, NetworkArrays, build_network_arrays
from pellucid.tasks.registry import build_network

OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "convolutions": {"encoder": {"convolutions": (2, 3), "filters": 5}},
    "one-hot": {"encoder": {"embedding": "one-hot"}, "decoder": {"embedding": "one-hot"}},
    "no embedding": {"decoder": {"embedding": "none"}},
    "zero state": {"decoder": {"init_hidden": "zero"}},
    "tied": {"decoder": {"tie_embeddings": True}},
    "tied without adapter": {
        "encoder": {"hidden_size": 3},
        "decoder": {"tie_embeddings": True, "hidden_size": 4, "embedding_size": 4, "output_layer_inputs": "state"},
    },
    "sum": {"encoder": {"merge": "sum", "num_layers": 2}, "data": {"features_column": "3"}},
    "frozen": {"encoder": {"embedding": "frozen"}, "decoder": {"embedding": "frozen", "cell": "lstm"}},
}
SETTINGS = MODEL_SETTINGS | OTHER_SETTINGS


def take_all(config: Config, vocabularies: Vocabularies) -> tuple[NetworkArrays, dict[str, Array]]:
    """Return the parameters of a new network by their roles, and by their names."""
    tensors = {name: value.numpy() for name, value in build_network(config, vocabularies).state_dict().items()}
    taken: list[str] = []

    def take(name: str, shape: tuple[int, ...]) -> Array:
        """Return the array of a name after a check of its shape."""
        assert tensors[name].shape == shape, name
        taken.append(name)
        array: Array = tensors[name]
        return array

    arrays = build_network_arrays(config, vocabularies, take)
    assert sorted(taken) == sorted(tensors)
    return arrays, tensors


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_tensor_of_a_network_has_one_role(settings: dict[str, Any]) -> None:
    take_all(make_config(settings), make_vocabularies(features=("F", "G")))


@pytest.mark.parametrize(("cell", "normalization"), [*product(["gru", "lstm"], ["none", "outputs", "cells"])])
def test_cells_of_every_normalization(cell: str, normalization: str) -> None:
    part = {"cell": cell, "layer_normalization": normalization, "num_layers": 2}
    arrays, tensors = take_all(make_config({"encoder": part, "decoder": part}), make_vocabularies())
    backward, decoder = arrays.encoder.layers[1].directions[1], arrays.decoder.layers[1]
    assert backward.hidden_weight is tensors["encoder.backward_cells.layers.1.hidden_weight"]
    assert decoder.cell.input_bias is tensors["decoder.cells.layers.1.input_bias"]
    assert (decoder.normalization is not None) == (normalization == "outputs")
    assert (decoder.cell.normalization is not None) == (normalization == "cells")
    if decoder.cell.normalization is not None:
        assert (decoder.cell.normalization.cell_state is not None) == (cell == "lstm")


def test_tied_output_weights_are_the_embedding() -> None:
    arrays, _ = take_all(make_config(OTHER_SETTINGS["tied without adapter"]), make_vocabularies())
    assert arrays.decoder.output.weight is arrays.decoder.embedding
    assert arrays.decoder.output.adapter is None


def test_the_energy_of_monotonic_attention_is_normalized() -> None:
    arrays, tensors = take_all(make_config({"attention": {"type": "monotonic"}}), make_vocabularies())
    assert arrays.attention.energy is not None
    assert np.linalg.norm(arrays.attention.energy) == pytest.approx(float(tensors["decoder.attention.gain"]))
    assert arrays.attention.offset == -1


def test_a_decoder_without_its_own_parts_has_none() -> None:
    config = make_config({"attention": {"type": "dot"}, "decoder": {"init_hidden": "zero", "hidden_size": 32}})
    arrays, _ = take_all(config, make_vocabularies())
    assert [arrays.attention.query, arrays.attention.key, arrays.attention.energy] == [None] * 3
    decoder = arrays.decoder
    assert decoder.init_weight is None and decoder.combination is None and decoder.pointer_generator is None
