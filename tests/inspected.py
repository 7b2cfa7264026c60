"""Untrained models of every kind, and traces of theirs: what the tests of inspection/ look into."""

from collections.abc import Sequence
from typing import Any

from small import config_of, shake, vocabularies

from pellucid.data.examples import Example
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.tasks.registry import build_network

KINDS: dict[str, dict[str, Any]] = {
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
ATTENDING = [kind for kind in KINDS if kind != "none"]


def made(kind: str = "gru", seed: int = 3, double: bool = True) -> Transducer:
    """An untrained transducer from abc to vwxyz."""
    config = config_of({**KINDS[kind], "search": {"max_length": 6, "beam_size": 3}})
    known = vocabularies("abc")
    network = build_network(config, known)
    network = (network.double() if double else network).eval()
    shake(network, seed)
    return Transducer(config, known, network)


def traces_of(transducer: Transducer, pairs: Sequence[tuple[str, str]]) -> list[Trace]:
    """Given outputs of sources."""
    return transducer.force([Example(*pair) for pair in pairs])


PAIRS = [("abc", "vwx"), ("a", ""), ("cabba", "zyxwv"), ("bb", "vv"), ("cab", "w")]
