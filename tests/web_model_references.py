"""Small random networks of all kinds, and the answers of the viewer's server about them, for the tests of web/.

    python tests/web_model_references.py

writes them to web/tests/models.json. The page with a model must give the same answers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(Path(__file__).parent))

from small_networks import make_config, make_vocabularies, randomize_parameters

from pellucid.decoding.transducer import Transducer
from pellucid.export.web_page import store_model
from pellucid.model.network import require_encoder_decoder
from pellucid.run_folder.log import RunLog
from pellucid.tasks.registry import build_network
from pellucid.viewer.handlers import compare_what_if, decode_source
from pellucid.viewer.inputs import ViewedRun
from pellucid.viewer.page_contents import PageData
from pellucid.viewer.schema import DecodeRequest, ForcedAttentionRow, PageContents, WhatIfRequest

FILE = Path(__file__).parent.parent / "web" / "tests" / "models.json"

SMALL = {"hidden_size": 3, "embedding_size": 3}
WIDE = {"hidden_size": 6, "embedding_size": 3}
ATTENTION = {"size": 4, "filters": 2, "filter_radius": 1}
LUONG = {"order": "step-then-attend", "input_feeding": True}
FEATURES = {"features_column": "3", "features_symbols": ";"}

CASES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "additive": {},
    "lstm-general-step-then-attend": {
        "encoder": {"cell": "lstm", "num_layers": 2, "bidirectional": False},
        "attention": {"type": "general"},
        "decoder": {"cell": "lstm", "num_layers": 2, "residual": True, "layer_normalization": "outputs", **LUONG},
    },
    "multi-head-tied": {
        "encoder": {"residual": True, "num_layers": 2, "layer_normalization": "outputs"},
        "attention": {"num_heads": 2},
        "decoder": {"tie_embeddings": True, "init_hidden": "mean"},
    },
    "location": {"attention": {"type": "location"}, "decoder": {"output_layer_inputs": "context"}},
    "monotonic": {
        "attention": {"type": "monotonic"},
        "decoder": {"output_layer_inputs": "state", "init_hidden": "zero"},
    },
    "dot-sum": {
        "encoder": {"merge": "sum"},
        "attention": {"type": "dot"},
        "decoder": {"hidden_size": 3, "order": "step-then-attend"},
    },
    "scaled-dot-product": {
        "encoder": {"merge": "product", "embedding": "one-hot"},
        "attention": {"type": "scaled-dot"},
        "decoder": {"hidden_size": 3, "embedding": "one-hot"},
    },
    "no-attention": {"attention": {"type": "none"}, "decoder": {"cell": "lstm", "embedding": "none"}},
    "pointer-generator": {"decoder": {"pointer_generator": True}},
    "normalized-gru": {"encoder": {"layer_normalization": "cells"}, "decoder": {"layer_normalization": "cells"}},
    "normalized-lstm-convolutions": {
        "encoder": {"cell": "lstm", "layer_normalization": "cells", "convolutions": (2, 3), "filters": 2},
        "decoder": {"cell": "lstm", "layer_normalization": "cells"},
    },
    "features": {"data": FEATURES},
    "summed-features": {"data": FEATURES, "encoder": {"feature_merge": "sum"}},
    "length-and-coverage": {
        "search": {
            **{"length_normalization": "gnmt", "coverage_penalty": 0.2, "min_length": 2},
            **{"max_length_ratio": 1.5, "max_length_offset": 1, "min_length_ratio": 0.5},
        }
    },
    "average-length": {"search": {"length_normalization": "average", "max_length": 7}},
}
"""Settings of each network, by its name."""


def model_references() -> list[dict[str, Any]]:
    """Return each network with its requests and the answers to them."""
    return [_reference(name, settings, seed) for seed, (name, settings) in enumerate(CASES.items())]


def _reference(name: str, settings: Mapping[str, Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """Return one network with requests and answers."""
    predictor = _make_predictor(settings, seed)
    run = ViewedRun(name, Path(), predictor, RunLog(Path()), False)
    contents = PageContents(version="", tasks={}, title="", served=True)
    page_data = PageData(contents, [run], [], {}, None)
    attends = settings.get("attention", {}).get("type") != "none"
    num_features = 2 if name == "features" else 0
    requests, changes = _requests(["PST", "V"] if "data" in settings else [], num_features, attends)
    return {
        "model": msgspec.to_builtins(store_model(name, predictor, "float32")),
        "decoded": [
            {"request": msgspec.to_builtins(request), "answer": msgspec.to_builtins(decode_source(page_data, request))}
            for request in requests
        ],
        "compared": [
            {"request": msgspec.to_builtins(change), "answer": msgspec.to_builtins(compare_what_if(page_data, change))}
            for change in changes
        ],
    }


def _make_predictor(settings: Mapping[str, Mapping[str, Any]], seed: int) -> Transducer:
    """Return the predictor of a random network."""
    config = make_config(
        {
            **settings,
            "encoder": {**SMALL, **settings.get("encoder", {})},
            "attention": {**ATTENTION, **settings.get("attention", {})},
            "decoder": {**WIDE, **settings.get("decoder", {})},
            "search": {"max_length": 6, **settings.get("search", {})},
        }
    )
    # The target lacks the symbol "e" of the source, which a pointer-generator can copy.
    vocabularies = make_vocabularies("abcde", "abcdvwxyz", ("V", "PST") if "data" in settings else ())
    torch.manual_seed(seed)
    network = require_encoder_decoder(build_network(config, vocabularies)).eval()
    randomize_parameters(network, seed)
    return Transducer(config, vocabularies, network)


def _requests(features: list[str], num_features: int, attends: bool) -> tuple[list[DecodeRequest], list[WhatIfRequest]]:
    """Return requests to decode and to compare, for sources with features at some positions. "q" is unknown."""
    base = DecodeRequest(text="abeqa", features=features, beam_size=3, num_outputs=3)
    replace = msgspec.structs.replace
    forced = replace(base, prefix=["v", "d"])
    weights = [0.0, 1.0, 0.0, 3.0, *[0.0] * (len(base.text) + num_features - 4)]
    single = replace(base, num_outputs=1, beam_size=1)
    with_forced_attention = replace(single, forced_attention=[ForcedAttentionRow(step=0, weights=weights)])
    changed = replace(with_forced_attention, masked_positions=[0, 2]) if attends else with_forced_attention
    return (
        [
            replace(base, search_tree=True),
            forced,
            changed,
            replace(base, prefix=["x", "⟨end⟩"]),
            replace(base, text=""),
        ],
        [
            WhatIfRequest(before=single, after=changed),
            WhatIfRequest(before=single, after=replace(single, prefix=["w"])),
            WhatIfRequest(before=single, after=replace(single, text="ecd")),
        ],
    )


if __name__ == "__main__":
    FILE.write_bytes(msgspec.json.encode(model_references()) + b"\n")
