"""The graphs of an export give the numbers of those that PyTorch's own exporter makes of the same network."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_exporter import LENGTHS, SEED, SYMBOLS
from onnx_networks import (
    assert_values_close,
    expected_log_probabilities,
    export_network,
    load_session,
    make_float_network,
    run_session,
)
from small_networks import make_config, make_padded_ids

TESTS = Path(__file__).parent
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


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the graphs by PyTorch; the tests are skipped if a package of its exporter is missing."""
    folder = tmp_path_factory.mktemp("graphs")
    command = [sys.executable, str(TESTS / "onnx_exporter.py"), str(folder), json.dumps(NETWORKS)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "ModuleNotFoundError" in result.stderr or "OnnxExporterError" in result.stderr:
        pytest.skip(f"PyTorch's exporter cannot run: {result.stderr.splitlines()[-1]}")
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.parametrize("name", NETWORKS)
def test_graphs_give_the_numbers_of_those_of_pytorch(name: str, graphs: Path) -> None:
    config = make_config(NETWORKS[name])
    ids, lengths = make_padded_ids(LENGTHS, SEED).numpy(), torch.tensor(LENGTHS).numpy()
    symbols = [torch.tensor(each).numpy() for each in SYMBOLS]
    session = load_session(onnx.load(str(graphs / f"{name}.onnx")))
    expected = run_session(session, {"ids": ids, "first": symbols[0], "second": symbols[1]})
    exported = export_network(make_float_network(config, SEED), config)
    values = exported.encode(ids, lengths)
    assert_values_close(values["memory"], expected["memory"])
    for step, previous in zip(("first", "second"), symbols, strict=True):
        outputs = exported.take_step(previous, values, lengths)
        logits = torch.from_numpy(expected[f"{step}_logits"])
        assert_values_close(outputs["log_probabilities"], expected_log_probabilities(logits))
        assert_values_close(outputs["attention_weights"], expected[f"{step}_weights"])
        values |= {key[len("next_") :]: value for key, value in outputs.items() if key.startswith("next_")}
