"""The kernels on NumPy arrays in a process that cannot import PyTorch, compared with PyTorch."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import make_config, make_network, make_padded_ids
from small_searches import beam_outputs, greedy_outputs

from pellucid.decoding.outputs import DecodedOutput, LengthLimits
from pellucid.kernels import tensor_functions
from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.kernel_loader import load_kernels
from pellucid.kernels.types import RecurrentOutput
from pellucid.model.network import EncoderDecoder

CASES = list(product(["gru", "lstm"], ["additive", "location", "general"], [1, 3]))
"""Cell, attention score and number of decoder layers."""
LENGTHS, LIMITS, BEAM_SIZE = [5, 2, 6, 3], LengthLimits(1, 7), 3
PROGRAM = """
import pkgutil, sys
sys.modules["torch"] = None
from importlib import import_module
import numpy as np
import pellucid.kernels
WITH_TORCH = {"tensor_functions", "triton_attention", "cuda_graphs"}
for module in pkgutil.iter_modules(pellucid.kernels.__path__):
    if module.name not in WITH_TORCH:
        import_module(f"pellucid.kernels.{module.name}")
from pellucid.kernels.adam import adam_kernel
from pellucid.kernels.cross_entropy import cross_entropy_and_gradient
from pellucid.kernels.search import BeamSizes, beam_search_numpy
from pellucid.kernels.kernel_loader import load_kernels
from pellucid.kernels.types import (
    AttentionInputs, CellLayout, DecoderParameters, DirectionParameters, KernelDecoderState, OutputLayerParameters,
    ScoreLayout, SearchLimits, NO_ROWS,
)
from pellucid.kernels.attention import attention_scorer
from pellucid.kernels.unroll import UnrollInputs, cell_parameters, join_slices, unroll_slices
from pellucid.kernels.recurrence import recurrent_parameters, row_groups, run_groups
from pellucid.kernels.search import greedy_search_numpy
from pellucid.kernels.decoder_step import prepare_decoder_numpy

assert load_kernels()
arguments, results = np.load(sys.argv[1]), {}

LAYOUTS = {"layout": CellLayout, "cell_layout": CellLayout, "score_layout": ScoreLayout}

def read_field(name, key):
    if name in LAYOUTS:
        return read_struct(LAYOUTS[name], key)
    array = arguments.get(key)
    return array.item() if array is not None and array.ndim == 0 else array

def read_struct(kind, prefix):
    return kind(**{name: read_field(name, f"{prefix}.{name}") for name in kind._fields})

for case in range(int(sys.argv[2])):
    directions = [read_struct(DirectionParameters, f"{case}.direction{index}") for index in range(2)]
    rows, lengths = arguments[f"{case}.symbols"], arguments[f"{case}.lengths"]
    groups = row_groups(rows, lengths, 2)
    encoded, _ = run_groups([recurrent_parameters(each) for each in directions], groups, (*rows.shape, 2), False)
    results[f"{case}.states"] = encoded.states
    parameters = read_struct(DecoderParameters, f"{case}.parameters")
    output_layer = read_struct(OutputLayerParameters, f"{case}.output_layer")
    inputs = read_struct(AttentionInputs, f"{case}.inputs")
    initial_state = read_struct(KernelDecoderState, f"{case}.initial_state")
    limits = read_struct(SearchLimits, f"{case}.limits")
    decoder = prepare_decoder_numpy(parameters, output_layer, inputs)
    (greedy_outputs,) = greedy_search_numpy(decoder, initial_state, limits)
    ((outputs, counts),) = beam_search_numpy(decoder, initial_state, limits, BeamSizes(beam_size=3, nbest=3))
    for name in ("ids", "log_probabilities", "weights", "steps"):
        results[f"{case}.greedy.{name}"] = getattr(greedy_outputs, name)
        results[f"{case}.beam.{name}"] = getattr(outputs, name)
    results[f"{case}.beam.counts"] = counts
    symbols = np.ascontiguousarray(greedy_outputs.ids[:, :2])
    hidden, cell_state, weights = initial_state.hidden, initial_state.cell_state, initial_state.attention_state
    unroll_inputs = UnrollInputs(
        keys=inputs.keys,
        memory=inputs.memory,
        hidden=hidden,
        cell_state=hidden[:0] if cell_state is None else cell_state,
        initial_weights=NO_ROWS if weights is None else weights,
    )
    cells, scorer = cell_parameters(parameters), attention_scorer(parameters)
    unrolled = join_slices(unroll_slices(cells, scorer, unroll_inputs, symbols, inputs.lengths))
    stepped = decoder.step(symbols[:, 0], **initial_state._asdict())
    first_steps = np.stack([unrolled.states[:, 0], *unrolled.upper_states[:, :, 0]], axis=1)
    np.testing.assert_allclose(first_steps, stepped.hidden, rtol=1e-4, atol=1e-5)

logits, gradient = np.zeros((2, 4), np.float32), np.ones(3, np.float32)
loss, changes = cross_entropy_and_gradient(logits, np.array([1, 2]), 0, np.float32(0))
assert abs(loss - np.log(4)) < 1e-6 and abs(changes.sum()) < 1e-6
adam_kernel(gradient, *np.zeros((2, 3), np.float32), np.array([0.1, 0.001, -0.1, 1e-8], np.float32))
assert (gradient < 0).all()
np.savez(sys.argv[3], **results)
"""


def record_arguments(network: EncoderDecoder, source: torch.Tensor, lengths: torch.Tensor) -> dict[str, np.ndarray]:
    """Return the arguments of the kernels in a greedy search, as arrays by name."""
    arrays: dict[str, np.ndarray] = {}

    def record_fields(prefix: str, value: Any) -> None:  # noqa: ANN401
        arrays.update(named_arrays(prefix, value))

    def record_recurrence(
        directions: Any,  # noqa: ANN401
        symbols: torch.Tensor,
        lengths: torch.Tensor,
    ) -> RecurrentOutput:
        arrays.update(symbols=symbols.numpy(), lengths=lengths.numpy())
        for index, direction in enumerate(directions):
            record_fields(f"direction{index}", direction)
        return run_recurrence(directions, symbols, lengths)

    def record_decoder(parameters: Any, output_layer: Any, inputs: Any) -> Any:  # noqa: ANN401
        for name, value in (("parameters", parameters), ("output_layer", output_layer), ("inputs", inputs)):
            record_fields(name, value)
        return prepare_decoder(parameters, output_layer, inputs)

    def record_search(prepared: object, initial_state: Any, limits: Any) -> Any:  # noqa: ANN401
        record_fields("initial_state", initial_state)
        record_fields("limits", limits)
        return greedy_search(prepared, initial_state, limits)

    run_recurrence, prepare_decoder, greedy_search = (
        tensor_functions.run_recurrence,
        tensor_functions.prepare_decoder,
        tensor_functions.greedy_search,
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, function in (
            ("run_recurrence", record_recurrence),
            ("prepare_decoder", record_decoder),
            ("greedy_search", record_search),
        ):
            patch.setattr(tensor_functions, name, function)
        greedy_outputs(network, source, lengths, LIMITS)
    return arrays


def named_arrays(prefix: str, value: Any) -> dict[str, np.ndarray]:  # noqa: ANN401
    """Return the fields of a named tuple as arrays by name, also those of the named tuples in it; None has no array."""
    arrays = dict[str, np.ndarray]()
    for name, part in value._asdict().items():
        if hasattr(part, "_asdict"):
            arrays |= named_arrays(f"{prefix}.{name}", part)
        elif part is not None:
            arrays[f"{prefix}.{name}"] = to_array(part)
    return arrays


def to_array(part: object) -> np.ndarray:
    """Return a tensor, an array or a number as an array."""
    return part.detach().numpy() if isinstance(part, torch.Tensor) else np.asarray(part)


def assert_outputs_equal(arrays: dict[str, np.ndarray], prefix: str, expected: list[DecodedOutput]) -> None:
    """Assert that the outputs of a search, which are concatenated, equal the expected ones."""
    steps = arrays[f"{prefix}.steps"]
    assert len(steps) == len(expected)
    for index, output in enumerate(expected):
        assert arrays[f"{prefix}.ids"][index, : steps[index]].tolist() == output.ids.tolist()
        log_probabilities = arrays[f"{prefix}.log_probabilities"][index, : steps[index]]
        np.testing.assert_allclose(log_probabilities, output.log_probabilities, rtol=1e-4, atol=1e-4)
        weights = arrays[f"{prefix}.weights"][index, : steps[index], : output.weights.shape[1]]
        np.testing.assert_allclose(weights, output.weights, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_kernels_run_on_arrays_without_pytorch(tmp_path: Path) -> None:
    assert load_kernels()
    source, lengths = make_padded_ids(LENGTHS, 1), torch.tensor(LENGTHS)
    networks = [
        make_network(
            make_config(
                {
                    "encoder": {"cell": cell},
                    "decoder": {"cell": cell, "num_layers": layers, "residual": layers > 1},
                    "attention": {"type": score},
                }
            ),
            seed,
            torch.float32,
        )
        for seed, (cell, score, layers) in enumerate(CASES)
    ]
    arguments: dict[str, Any] = {}
    for case, network in enumerate(networks):
        arguments |= {f"{case}.{name}": array for name, array in record_arguments(network, source, lengths).items()}
    np.savez(tmp_path / "arguments.npz", **arguments)
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        str(tmp_path / "arguments.npz"),
        str(len(CASES)),
        str(tmp_path / "results.npz"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert result.returncode == 0, result.stderr
    arrays = dict(np.load(tmp_path / "results.npz"))
    for case, network in enumerate(networks):
        with disable_kernels(), torch.inference_mode():
            states = network.encoder(source, lengths).states.numpy()
            np.testing.assert_allclose(arrays[f"{case}.states"].reshape(states.shape), states, rtol=1e-4, atol=1e-5)
            assert_outputs_equal(arrays, f"{case}.greedy", greedy_outputs(network, source, lengths, LIMITS))
            best = beam_outputs(network, source, lengths, LIMITS, BEAM_SIZE, BEAM_SIZE)
        assert arrays[f"{case}.beam.counts"].tolist() == [len(outputs) for outputs in best]
        assert_outputs_equal(arrays, f"{case}.beam", [output for outputs in best for output in outputs])
