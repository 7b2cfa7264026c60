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
        "encoder": {"layers": 2, "residual": True, "layer_normalisation": "outputs"},
        "decoder": {"layers": 2, "residual": True, "layer_normalisation": "outputs"},
    },
    "cells": {
        "encoder": {"cell": "lstm", "layer_normalisation": "cells", "directions": "forward"},
        "decoder": {"layer_normalisation": "cells"},
    },
    "luong": {"attention": {"score": "general"}, "decoder": {"order": "step-then-attend", "input_feeding": True}},
    "general": {"attention": {"score": "general"}},
    "location": {"attention": {"score": "location", "filters": 2, "filter_radius": 1}},
    "monotonic": {"attention": {"score": "monotonic"}},
    "heads": {"attention": {"heads": 2}},
    "copying": {"decoder": {"copying": True}},
    "none": {"attention": {"score": "none"}},
}
ATTENDING = [kind for kind in KINDS if kind != "none"]


def made(kind: str = "gru", seed: int = 3, double: bool = True) -> Transducer:
    """An untrained transducer from abc to vwxyz."""
    config = config_of({**KINDS[kind], "search": {"maximum_length": 6, "beam_width": 3}})
    known = vocabularies("abc")
    network = build_network(config, known)
    network = (network.double() if double else network).eval()
    shake(network, seed)
    return Transducer(config, known, network)


def traces_of(transducer: Transducer, pairs: Sequence[tuple[str, str]]) -> list[Trace]:
    """Given outputs of sources."""
    return transducer.force([Example(*pair) for pair in pairs])


PAIRS = [("abc", "vwx"), ("a", ""), ("cabba", "zyxwv"), ("bb", "vv"), ("cab", "w")]
