"""Untrained models of many architectures, and traces of their outputs, for the tests of `pellucid.inspection`."""

from collections.abc import Sequence
from typing import Any

from small_networks import make_config, make_vocabularies, randomize_parameters

from pellucid.data.examples import Example
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.tasks.registry import build_network

MODEL_SETTINGS: dict[str, dict[str, Any]] = {
    "gru": {},
    "lstm": {"encoder": {"cell": "lstm"}, "decoder": {"cell": "lstm"}},
    "stacked": {
        "encoder": {"num_layers": 2, "residual": True, "layer_normalization": "outputs"},
        "decoder": {"num_layers": 2, "residual": True, "layer_normalization": "outputs"},
    },
    "cells": {
        "encoder": {"cell": "lstm", "layer_normalization": "cells", "bidirectional": False},
        "decoder": {"layer_normalization": "cells"},
    },
    "luong": {"attention": {"type": "general"}, "decoder": {"order": "step-then-attend", "input_feeding": True}},
    "general": {"attention": {"type": "general"}},
    "location": {"attention": {"type": "location", "filters": 2, "filter_radius": 1}},
    "monotonic": {"attention": {"type": "monotonic"}},
    "heads": {"attention": {"num_heads": 2}},
    "copying": {"decoder": {"pointer_generator": True}},
    "none": {"attention": {"type": "none"}},
}
KINDS_WITH_ATTENTION = [kind for kind in MODEL_SETTINGS if kind != "none"]


def make_transducer(kind: str = "gru", seed: int = 3, double: bool = True) -> Transducer:
    """Return an untrained transducer from the symbols abc to the symbols vwxyz, with random parameters."""
    config = make_config({**MODEL_SETTINGS[kind], "search": {"max_length": 6, "beam_size": 3}})
    vocabularies = make_vocabularies("abc")
    network = build_network(config, vocabularies)
    network = (network.double() if double else network).eval()
    randomize_parameters(network, seed)
    return Transducer(config, vocabularies, network)


def make_traces(transducer: Transducer, pairs: Sequence[tuple[str, str]]) -> list[Trace]:
    """Return the traces of given outputs for their sources."""
    return transducer.score_examples([Example(*pair) for pair in pairs])


PAIRS = [("abc", "vwx"), ("a", ""), ("cabba", "zyxwv"), ("bb", "vv"), ("cab", "w")]
