"""A custom recurrent cell, the class of the page on cells."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast
from xml.etree import ElementTree

import pytest
import torch
from extension_pages import load_page_module
from hypothesis import given
from small_networks import (
    SEEDS,
    assert_tensors_close,
    batches,
    few_examples,
    make_config,
    make_network,
    make_vocabularies,
)
from torch import Tensor, nn
from trained_runs import assert_training_resumes, make_small_config, train_to_end, write_copy_files

import pellucid
from pellucid.config.cell_types import CELL_TYPES
from pellucid.config.settings import Config
from pellucid.config.toml import build_config, override_settings
from pellucid.data.batches import Batch
from pellucid.errors import ConfigError
from pellucid.export.support import check_exportable
from pellucid.inspection.states import trace_states
from pellucid.kernels.dispatch import TORCH, choose_backend
from pellucid.model.cells import CellSpec, Gates, GRUSpec, LayerState, Norm, RecurrentCell
from pellucid.model.equations import VocabularySizes, transducer_equations
from pellucid.model.network import parameter_count
from pellucid.runtime.support import unsupported_settings
from pellucid.tasks.registry import build_network
from pellucid.viewer.mathml import to_mathml


@pytest.fixture(autouse=True)
def registered_cell(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the cell for each test."""
    monkeypatch.setattr(CELL_TYPES, "registered", {})
    pellucid.register_cell("mgu", load_page_module("cell").MinimalGatedUnit)
    yield


class CoupledCell(CellSpec):
    """A cell with a cell state: c' = f c + (1 - f) g, h' = tanh(c')."""

    gates: ClassVar[tuple[str, ...]] = ("forget", "candidate")
    has_cell_state: ClassVar[bool] = True
    norm_groups: ClassVar[tuple[int, ...] | None] = (1, 1)

    def gate_values(self, inputs: Tensor, recurrent: Tensor) -> Gates:
        """Return f and g."""
        forget, candidate = (inputs + recurrent).chunk(2, dim=-1)
        return torch.sigmoid(forget), torch.tanh(candidate)

    def step(self, inputs: Tensor, recurrent: Tensor, state: LayerState, norm: Norm | None = None) -> LayerState:
        """Return h' and c'."""
        forget, candidate = self.gate_values(inputs, recurrent)
        cell_state = forget * cast(Tensor, state.cell_state) + (1 - forget) * candidate
        return LayerState(torch.tanh(cell_state if norm is None else norm(cell_state)), cell_state)


def cells_config(name: str, sections: dict[str, Any] | None = None) -> Config:
    """Return a small configuration with a cell in the encoder and the decoder."""
    settings = {"encoder": {"cell": name, "hidden_size": 2}, "decoder": {"cell": name, "hidden_size": 3}}
    return override_settings(make_config(settings), sections or {})


def test_a_step_computes_the_equations_of_the_page() -> None:
    cell = RecurrentCell("mgu", 3, 4)
    inputs, hidden = torch.randn(2, 3), torch.randn(2, 4)
    state = cell.step(cell.project(inputs), cell.initial_state(hidden))
    forget, candidate = cell.spec.gate_values(*cell.preactivations(cell.project(inputs), hidden))
    torch.testing.assert_close(state.hidden, (1 - forget) * hidden + forget * candidate)


@pytest.mark.slow
@few_examples
@given(batches(), SEEDS)
def test_batches_and_padding_change_nothing_and_kernels_decline(batch: Batch, seed: int) -> None:
    for name, cell_class in (("mgu", load_page_module("cell").MinimalGatedUnit), ("coupled", CoupledCell)):
        CELL_TYPES.registered[name] = cell_class
        network = make_network(cells_config(name), seed)
        output = network(batch)
        for row, (length, steps) in enumerate(
            zip(batch.source_lengths.tolist(), batch.target_lengths.tolist(), strict=True)
        ):
            alone = network(
                Batch(
                    batch.source[row : row + 1, :length],
                    batch.source_lengths[row : row + 1],
                    batch.target[row : row + 1, :steps],
                    batch.target_lengths[row : row + 1],
                )
            )
            assert_tensors_close(output.logits[row, :steps], alone.logits[0])
        cache = network.decoder.build_cache(network.encoder(batch.source, batch.source_lengths))
        assert choose_backend(network.decoder.request("unroll", cache)) is TORCH


@pytest.mark.slow
def test_a_training_resumes_and_its_gates_have_their_names(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    sections = {"encoder": {"cell": "mgu"}, "decoder": {"cell": "coupled", "dropout": 0.3}}
    pellucid.register_cell("coupled", CoupledCell)
    assert_training_resumes(files, override_settings(make_small_config({"epochs": 3}), sections), tmp_path, update=7)
    config = override_settings(
        make_small_config({"epochs": 1}), {"decoder": {"layer_normalization": "cells"}, **sections}
    )
    train_to_end(files, tmp_path / "run", config)
    model = pellucid.load(tmp_path / "run")
    (states,) = trace_states(model, model.predict(["12"]), gates=True)
    assert set(states.gates) == {
        *(f"encoder {side} {gate}" for side in ("forwards", "backwards") for gate in ("forget", "candidate")),
        *("decoder forget", "decoder candidate"),
    }
    assert "mgu encoder" in (tmp_path / "run" / "card.md").read_text("utf-8")
    assert list(unsupported_settings(config)) == ["encoder.cell", "decoder.cell"]
    with pytest.raises(pellucid.InputError, match=r"ONNX does not support encoder\.cell: 'mgu' is of another package"):
        check_exportable(tmp_path / "run")


@pytest.mark.parametrize("normalization", ["none", "cells"])
def test_the_equations_count_all_parameters(normalization: str) -> None:
    pellucid.register_cell("coupled", CoupledCell)
    sections = {part: {"layer_normalization": normalization} for part in ("encoder", "decoder")}
    config, vocabularies = cells_config("coupled", sections), make_vocabularies()
    groups = transducer_equations(config, VocabularySizes(len(vocabularies.source), len(vocabularies.target)))
    counted = sum(symbol.num_parameters for group in groups for symbol in group.symbols)
    assert counted == parameter_count(build_network(config, vocabularies))
    (cell,) = [group for group in groups if group.title == "Cell coupled"]
    assert "1 forget, 2 candidate" in cell.note
    for group in groups:
        for latex in [*group.equations, *(symbol.latex for symbol in group.symbols)]:
            ElementTree.fromstring(to_mathml(latex))


def test_unknown_names_are_refused_with_the_nearest_one() -> None:
    message = "encoder.cell: expected gru, lstm or mgu, got 'mgx'; did you mean 'mgu'"
    with pytest.raises(ConfigError, match=re.escape(message)):
        build_config({"encoder": {"cell": "mgx"}}, "a test")


def test_a_run_whose_cell_is_not_registered_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = override_settings(make_small_config({"epochs": 1}), {"encoder": {"cell": "mgu"}})
    train_to_end(write_copy_files(tmp_path), tmp_path / "run", config)
    monkeypatch.setattr(CELL_TYPES, "registered", {})
    with pytest.raises(
        ConfigError, match=r"encoder\.cell = 'mgu' is neither built in nor installed: install the package"
    ):
        pellucid.load(tmp_path / "run")


class WrongShape(CoupledCell):
    """A step that returns one unit too few."""

    def step(self, inputs: Tensor, recurrent: Tensor, state: LayerState, norm: Norm | None = None) -> LayerState:
        """Return a part of the state."""
        hidden, cell_state = super().step(inputs, recurrent, state, norm)
        return LayerState(hidden[:, 1:], cell_state)


class BatchNormalized(CoupledCell):
    """A step that depends on the other rows."""

    def gate_values(self, inputs: Tensor, recurrent: Tensor) -> Gates:
        """Return gates of inputs without their mean over the batch."""
        return super().gate_values(inputs - inputs.mean(dim=0), recurrent)


class Failing(CoupledCell):
    """A step that fails."""

    def gate_values(self, inputs: Tensor, recurrent: Tensor) -> Gates:
        """Raise an error."""
        raise ValueError("no gates today")


class NotFinite(CoupledCell):
    """A step whose new hidden state is not finite."""

    def step(self, inputs: Tensor, recurrent: Tensor, state: LayerState, norm: Norm | None = None) -> LayerState:
        """Return h' as NaN."""
        new = super().step(inputs, recurrent, state, norm)
        return new._replace(hidden=new.hidden * torch.nan)


class LostCellState(CoupledCell):
    """A step without the cell state that it promises."""

    def step(self, inputs: Tensor, recurrent: Tensor, state: LayerState, norm: Norm | None = None) -> LayerState:
        """Return h' alone."""
        return LayerState(super().step(inputs, recurrent, state, norm).hidden, None)


class OneGate(CoupledCell):
    """Gates of which one is missing."""

    def gate_values(self, inputs: Tensor, recurrent: Tensor) -> Gates:
        """Return the first gate."""
        return super().gate_values(inputs, recurrent)[:1]


class TensorState(CoupledCell):
    """A step that returns the hidden state in place of a `LayerState`."""

    def step(self, inputs: Tensor, recurrent: Tensor, state: LayerState, norm: Norm | None = None) -> LayerState:
        """Return h'."""
        return cast(LayerState, super().step(inputs, recurrent, state, norm).hidden)


@pytest.mark.parametrize(
    ("cell_class", "message"),
    [
        (
            OneGate,
            r"OneGate\.gate_values: expected a tuple with one tensor for each of the 2 gates \(forget, candidate\)",
        ),
        (TensorState, r"TensorState\.step: expected a LayerState, got Tensor"),
        (WrongShape, r"WrongShape: the hidden state: expected the shape \(B, H\) = \(2, 3\), got the shape \(2, 2\)"),
        (BatchNormalized, "BatchNormalized: forget of a row changes with the other rows of the batch"),
        (Failing, "Failing: a step of a batch of 2 and 3 hidden units failed: no gates today"),
        (NotFinite, "NotFinite: the hidden state: expected finite numbers, got NaN or infinite ones"),
        (LostCellState, r"LostCellState\.step: expected a cell state if has_cell_state is true"),
        (type("Derived", (GRUSpec,), {}), r"Derived\.torch_module: expected None"),
        (type("Biased", (CoupledCell,), {"initial_biases": {"input": 1.0}}), r"Biased\.initial_biases: .* got 'input'"),
        (type("Grouped", (CoupledCell,), {"norm_groups": (1, 2)}), r"Grouped\.norm_groups: .* the sum 2"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_equations_that_do_not_fit_are_refused(cell_class: type[CellSpec], message: str) -> None:
    pellucid.register_cell("wrong", cell_class)
    with pytest.raises(ConfigError, match=message):
        build_network(cells_config("wrong"), make_vocabularies())
    assert not isinstance(cell_class, nn.Module)
