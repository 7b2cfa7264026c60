"""Program that writes graphs by PyTorch's own exporter. It is a process of its own, because types are checked in tests.

    python tests/onnx_exporter.py FOLDER SETTINGS

SETTINGS are the settings of each network by its name, in JSON. It writes FOLDER/NAME.onnx for each.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from onnx_networks import make_float_network
from small_networks import make_config, make_padded_ids
from torch import Tensor, nn

from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.network import EncoderDecoder

SEED = 2
LENGTHS = [4, 4]
"""Lengths of the sources, which PyTorch's exporter makes a part of its graph."""
SYMBOLS = ([4, 5], [6, 4])
"""Previous symbols of two decoder steps."""
OUTPUTS = ("memory", "first_logits", "first_weights", "second_logits", "second_weights")


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


def export_by_torch(settings: dict[str, Any], file: Path) -> None:
    """Write the graph of a random network by the exporter of TorchScript, which needs no other package than onnx."""
    values = (make_padded_ids(LENGTHS, SEED), *(torch.tensor(each) for each in SYMBOLS))
    steps = TwoSteps(make_float_network(make_config(settings), SEED)).eval()
    arguments: dict[str, Any] = {"input_names": ["ids", "first", "second"], "output_names": list(OUTPUTS)}
    with warnings.catch_warnings(), disable_kernels(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter is an older one, and the graph is for fixed sizes
        torch.onnx.export(steps, values, str(file), dynamo=False, opset_version=17, **arguments)


if __name__ == "__main__":
    for name, network_settings in json.loads(sys.argv[2]).items():
        export_by_torch(network_settings, Path(sys.argv[1]) / f"{name}.onnx")
