"""The kernels on NumPy arrays, in a process that cannot import PyTorch, against the reference in PyTorch."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import config_of, network_of, padded

from pellucid.decoding.beam_search import beam
from pellucid.decoding.greedy import greedy
from pellucid.decoding.outputs import DecodedOutput, LengthLimits
from pellucid.kernels import autograd
from pellucid.kernels.dispatch import disable_kernels, is_numba_available
from pellucid.model.network import EncoderDecoder

CASES = list(product(["gru", "lstm"], ["additive", "location", "general"]))
LENGTHS, LIMITS, WIDTH = [5, 2, 6, 3], LengthLimits(1, 7), 3
PROGRAM = """
import pkgutil, sys
sys.modules["torch"] = None
from importlib import import_module
import numpy as np
import pellucid.kernels
WITH_TORCH = {"autograd", "triton_attention", "cuda_graphs"}
for module in pkgutil.iter_modules(pellucid.kernels.__path__):
    if module.name not in WITH_TORCH:
        import_module(f"pellucid.kernels.{module.name}")
from pellucid.kernels.adam import adam_kernel
from pellucid.kernels.cross_entropy import cross_entropy_and_gradient
from pellucid.kernels.search import BeamOptions, search_beams_numpy
from pellucid.kernels.dispatch import is_numba_available
from pellucid.kernels.types import (
    AttentionInputs, CellLayout, DecoderParameters, Direction, Head, InitialState, ScoreLayout, SearchLimits,
)
from pellucid.kernels.unroll import unroll_decoder_numpy
from pellucid.kernels.recurrence import run_recurrence_numpy
from pellucid.kernels.search import search_greedily_numpy
from pellucid.kernels.decoder_step import prepare_decoder_numpy

assert is_numba_available()
given, found = np.load(sys.argv[1]), {}

def read(kind, prefix):
    arrays = [given.get(f"{prefix}.{name}") for name in kind._fields]
    if "cell" in kind._fields and kind is not InitialState:
        arrays[0] = CellLayout(*map(int, arrays[0]))
    if "score" in kind._fields:
        arrays[1] = ScoreLayout(int(arrays[1][0]), *map(bool, arrays[1][1:]))
    return kind(*arrays)

for case in range(int(sys.argv[2])):
    directions = [read(Direction, f"{case}.direction{at}") for at in range(2)]
    ran = run_recurrence_numpy(directions, given[f"{case}.symbols"], given[f"{case}.lengths"])
    found[f"{case}.states"] = ran.states
    parameters, head = read(DecoderParameters, f"{case}.parameters"), read(Head, f"{case}.head")
    looked, first = read(AttentionInputs, f"{case}.looked"), read(InitialState, f"{case}.first")
    limits = [given[f"{case}.rules.{name}"] for name in SearchLimits._fields]
    rules, ready = SearchLimits(limits[0], *map(int, limits[1:])), prepare_decoder_numpy(parameters, head, looked)
    (searched,) = search_greedily_numpy(ready, first, rules)
    ((outputs, counts),) = search_beams_numpy(ready, first, rules, BeamOptions(3, 3))
    for name in ("ids", "log_probabilities", "weights", "steps"):
        found[f"{case}.greedy.{name}"] = getattr(searched, name)
        found[f"{case}.beam.{name}"] = getattr(outputs, name)
    found[f"{case}.beam.counts"] = counts
    symbols = np.ascontiguousarray(searched.ids[:, :2])
    unrolled = unroll_decoder_numpy(parameters, symbols, looked, *first)
    stepped = ready.step(symbols[:, 0], *first)
    np.testing.assert_allclose(unrolled.hidden[:, 0], stepped[0], rtol=1e-4, atol=1e-5)

logits, gradient = np.zeros((2, 4), np.float32), np.ones(3, np.float32)
loss, changes = cross_entropy_and_gradient(logits, np.array([1, 2]), 0, np.float32(0))
assert abs(loss - np.log(4)) < 1e-6 and abs(changes.sum()) < 1e-6
adam_kernel(gradient, *np.zeros((2, 3), np.float32), np.array([0.1, 0.001, -0.1, 1e-8], np.float32))
assert (gradient < 0).all()
np.savez(sys.argv[3], **found)
"""


def record_arguments(network: EncoderDecoder, source: torch.Tensor, lengths: torch.Tensor) -> dict[str, np.ndarray]:
    """Return the arguments of the kernels in a greedy search, as arrays by name."""
    arrays: dict[str, np.ndarray] = {}

    def note(prefix: str, value: Any) -> None:  # noqa: ANN401
        parts = {name: part for name, part in value._asdict().items() if part is not None}
        arrays.update({f"{prefix}.{name}": _array(part) for name, part in parts.items()})

    def run(directions: Any, symbols: torch.Tensor, lengths: torch.Tensor) -> autograd.RecurrentTensors:  # noqa: ANN401
        arrays.update(symbols=symbols.numpy(), lengths=lengths.numpy())
        for at, direction in enumerate(directions):
            note(f"direction{at}", direction)
        return run_recurrence(directions, symbols, lengths)

    def lay_out(parameters: Any, head: Any, inputs: Any) -> Any:  # noqa: ANN401
        for name, value in (("parameters", parameters), ("head", head), ("looked", inputs)):
            note(name, value)
        return prepare_decoder(parameters, head, inputs)

    def search(prepared: object, first: Any, limits_: Any) -> Any:  # noqa: ANN401
        note("first", first)
        note("rules", limits_)
        return search_greedily(prepared, first, limits_)

    run_recurrence, prepare_decoder, search_greedily = (
        autograd.run_recurrence,
        autograd.prepare_decoder,
        autograd.search_greedily,
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, function in (("run_recurrence", run), ("prepare_decoder", lay_out), ("search_greedily", search)):
            patch.setattr(autograd, name, function)
        greedy(network, source, lengths, LIMITS)
    return arrays


def _array(part: object) -> np.ndarray:
    """Return a tensor, an array or a number as an array."""
    return part.detach().numpy() if isinstance(part, torch.Tensor) else np.asarray(part)


def assert_written(arrays: dict[str, np.ndarray], prefix: str, expected: list[DecodedOutput]) -> None:
    """Assert that the outputs of a search, which are concatenated, equal the expected ones."""
    steps = arrays[f"{prefix}.steps"]
    assert len(steps) == len(expected)
    for at, output in enumerate(expected):
        assert arrays[f"{prefix}.ids"][at, : steps[at]].tolist() == output.ids.tolist()
        own = arrays[f"{prefix}.log_probabilities"][at, : steps[at]]
        np.testing.assert_allclose(own, output.log_probabilities, rtol=1e-4, atol=1e-4)
        weights = arrays[f"{prefix}.weights"][at, : steps[at], : output.weights.shape[1]]
        np.testing.assert_allclose(weights, output.weights, rtol=1e-4, atol=1e-4)


def test_the_kernels_run_on_arrays_without_pytorch(tmp_path: Path) -> None:
    assert is_numba_available()
    source, lengths = padded(LENGTHS, 1), torch.tensor(LENGTHS)
    networks = [
        network_of(
            config_of({"encoder": {"cell": cell}, "decoder": {"cell": cell}, "attention": {"type": score}}),
            seed,
            torch.float32,
        )
        for seed, (cell, score) in enumerate(CASES)
    ]
    given: dict[str, Any] = {}
    for case, network in enumerate(networks):
        given |= {f"{case}.{name}": array for name, array in record_arguments(network, source, lengths).items()}
    np.savez(tmp_path / "given.npz", **given)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "given.npz"), str(len(CASES)), str(tmp_path / "found.npz")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    arrays = dict(np.load(tmp_path / "found.npz"))
    for case, network in enumerate(networks):
        with disable_kernels(), torch.inference_mode():
            states = network.encoder(source, lengths).states.numpy()
            np.testing.assert_allclose(arrays[f"{case}.states"].reshape(states.shape), states, rtol=1e-4, atol=1e-5)
            assert_written(arrays, f"{case}.greedy", greedy(network, source, lengths, LIMITS))
            best = beam(network, source, lengths, LIMITS, WIDTH, WIDTH)
        assert arrays[f"{case}.beam.counts"].tolist() == [len(outputs) for outputs in best]
        assert_written(arrays, f"{case}.beam", [output for outputs in best for output in outputs])
