"""Random networks as ONNX graphs, and the comparison of their outputs with those of PyTorch."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import onnxruntime
from hypothesis import assume
from hypothesis import strategies as st
from onnx import ModelProto
from small_networks import configs_with_options, make_vocabularies, randomize_parameters
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.topk import suppressed_symbols, symbol_log_probabilities
from pellucid.export.onnx_decoder import DecoderStepGraph
from pellucid.export.onnx_encoder import EncoderGraph
from pellucid.export.onnx_graph import GraphOptions
from pellucid.model.network import EncoderDecoder, require_encoder_decoder
from pellucid.runtime.parameters import Array, NetworkArrays, build_network_arrays
from pellucid.tasks.registry import build_network

Values = dict[str, np.ndarray]
OPTIONS = GraphOptions(17)


class OnnxNetwork(NamedTuple):
    """The two graphs of a network, ready to run."""

    encoder: onnxruntime.InferenceSession
    step: onnxruntime.InferenceSession

    def encode(self, ids: np.ndarray, lengths: np.ndarray) -> Values:
        """Return the outputs of the encoder by name."""
        return run_session(self.encoder, {"ids": ids, "lengths": lengths})

    def take_step(self, symbols: np.ndarray, values: Mapping[str, np.ndarray], lengths: np.ndarray) -> Values:
        """Return the outputs of a decoder step by name; of `values` those are read that are inputs."""
        return run_session(self.step, {**values, "symbols": symbols, "lengths": lengths})


def run_session(session: onnxruntime.InferenceSession, values: Mapping[str, np.ndarray]) -> Values:
    """Run a graph on the values that it has as inputs."""
    names = [entry.name for entry in session.get_inputs()]
    outputs = session.run(None, {name: values[name] for name in names})
    return {entry.name: output for entry, output in zip(session.get_outputs(), outputs, strict=True)}


def load_session(model: ModelProto) -> onnxruntime.InferenceSession:
    """Return a session of a model, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def network_arrays(network: EncoderDecoder, config: Config, vocabularies: Vocabularies) -> NetworkArrays:
    """Return the parameters of a network of PyTorch as arrays."""
    state = network.state_dict()

    def take(name: str, shape: tuple[int, ...]) -> Array:
        values: Array = state[name].float().numpy()
        assert values.shape == shape
        return values

    return build_network_arrays(config, vocabularies, take)


def export_network(network: EncoderDecoder, config: Config, options: GraphOptions = OPTIONS) -> OnnxNetwork:
    """Return the graphs of a network, in sessions."""
    arrays = network_arrays(network, config, make_vocabularies())
    builders = EncoderGraph(config, arrays, options), DecoderStepGraph(config, arrays, options)
    return OnnxNetwork(*(load_session(builder.build({})) for builder in builders))


def make_float_network(config: Config, seed: int, vocabularies: Vocabularies | None = None) -> EncoderDecoder:
    """Return a random network in single precision, by default for the vocabularies of `make_vocabularies`."""
    network = require_encoder_decoder(build_network(config, vocabularies or make_vocabularies())).eval()
    randomize_parameters(network, seed)
    return network


def expected_log_probabilities(logits: Tensor) -> np.ndarray:
    """Return the log-probabilities of a search for logits of PyTorch."""
    result: np.ndarray = symbol_log_probabilities(logits, suppressed_symbols(logits.shape[1])).numpy()
    return result


def assert_values_close(actual: np.ndarray, expected: np.ndarray | Tensor, tolerance: float = 1e-5) -> None:
    """Assert that two arrays are equal except for rounding errors."""
    np.testing.assert_allclose(actual, np.asarray(expected), rtol=tolerance, atol=tolerance)


def tolerance_of(config: Config) -> float:
    """Return the tolerance of a comparison; layer normalization of few units magnifies rounding errors."""
    is_normalized = "outputs" in (config.encoder.layer_normalization, config.decoder.layer_normalization)
    return 2e-3 if is_normalized else 2e-5


@st.composite
def exportable_configs(draw: st.DrawFn) -> Config:
    """Draw a small configuration that can be exported, with or without a pointer-generator."""
    config = draw(configs_with_options())
    normalizations = config.encoder.layer_normalization, config.decoder.layer_normalization
    assume(config.attention.type != "monotonic" and "cells" not in normalizations)
    copies = config.attention.type != "none" and draw(st.booleans())
    return msgspec.structs.replace(config, decoder=msgspec.structs.replace(config.decoder, pointer_generator=copies))
