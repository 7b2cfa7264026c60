"""The graphs of an export give the numbers of those that PyTorch's own exporter makes of the same network."""

import warnings
from io import BytesIO
from typing import Any

import pytest
import torch
from torch import Tensor, nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_networks import (
    assert_values_close,
    expected_log_probabilities,
    export_network,
    load_session,
    make_float_network,
    run_session,
)
from small_networks import make_config, make_padded_ids

from pellucid.config.settings import Config
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.network import EncoderDecoder

LENGTHS = [4, 4]
"""Lengths of the sources, which PyTorch's exporter makes a part of its graph."""
SYMBOLS = ([4, 5], [6, 4])
"""Previous symbols of two decoder steps."""
OUTPUTS = ("memory", "first_logits", "first_weights", "second_logits", "second_weights")
LUONG = {"order": "step-then-attend", "input_feeding": True}
NETWORKS: dict[str, dict[str, Any]] = {
    "gru": {},
    "lstm of two layers": {
        "encoder": {"cell": "lstm", "num_layers": 2},
        "decoder": {"cell": "lstm", "num_layers": 2, "residual": True},
    },
    "general, input feeding": {"attention": {"type": "general"}, "decoder": LUONG},
    "heads": {"attention": {"num_heads": 4, "size": 8}},
    "location": {"attention": {"type": "location"}},
}


class TwoSteps(nn.Module):
    """Encoder and two decoder steps of sources of fixed lengths."""

    def __init__(self, network: EncoderDecoder) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        """Return memory, and logits and attention weights of both steps."""
        decoder, memory = self.network.decoder, self.network.encoder(ids, torch.tensor(LENGTHS))
        cache, state = decoder.build_cache(memory), decoder.init_state(memory)
        one = decoder.step(first, state, cache)
        two = decoder.step(second, one.state, cache)
        return memory.states, one.logits, one.attention.weights, two.logits, two.attention.weights


def export_by_torch(network: EncoderDecoder, values: tuple[Tensor, ...]) -> Any:  # noqa: ANN401
    """Return the graph of PyTorch's exporter of TorchScript, which needs no other package than onnx."""
    file = BytesIO()
    arguments: dict[str, Any] = {"input_names": ["ids", "first", "second"], "output_names": list(OUTPUTS)}
    arguments |= {"f": file, "dynamo": False, "opset_version": 17}
    with warnings.catch_warnings(), disable_kernels(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter is an older one, and the graph is for fixed sizes
        try:
            torch.onnx.export(TwoSteps(network).eval(), values, **arguments)
        except (ImportError, TypeError) as error:
            pytest.skip(f"PyTorch's exporter is not available: {error}")
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("settings", NETWORKS.values(), ids=NETWORKS)
def test_graphs_give_the_numbers_of_those_of_pytorch(settings: dict[str, Any]) -> None:
    config: Config = make_config(settings)
    network = make_float_network(config, 2)
    ids, lengths = make_padded_ids(LENGTHS, 2), torch.tensor(LENGTHS).numpy()
    symbols = [torch.tensor(each) for each in SYMBOLS]
    session = load_session(export_by_torch(network, (ids, *symbols)))
    given = {"ids": ids.numpy(), "first": symbols[0].numpy(), "second": symbols[1].numpy()}
    expected = run_session(session, given)
    exported = export_network(network, config)
    values = exported.encode(ids.numpy(), lengths)
    assert_values_close(values["memory"], expected["memory"])
    for step, previous in zip(("first", "second"), symbols, strict=True):
        outputs = exported.take_step(previous.numpy(), values, lengths)
        logits = torch.from_numpy(expected[f"{step}_logits"])
        assert_values_close(outputs["log_probabilities"], expected_log_probabilities(logits))
        assert_values_close(outputs["attention_weights"], expected[f"{step}_weights"])
        values |= {name[len("next_") :]: value for name, value in outputs.items() if name.startswith("next_")}
