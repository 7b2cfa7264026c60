"""The stored protein networks of 2016 reproduce the published numbers; missing or wrong data is an error."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import run_pellucid, usage_error_message
from published_data import PUBLISHED_DATA
from torch import nn

from pellucid.model.cells import Peepholes, PeepholeState, peephole_step
from pellucid.recipes.proteins.stored_networks import (
    ATTENTION,
    NumberCheck,
    load_decoder,
    read_validation_proteins,
    run_masked_lstm,
)

FOLDER = PUBLISHED_DATA / "protein-golden"
requires_weights = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"{FOLDER} does not exist: the weights of 2016 are missing"
)


@pytest.mark.slow
@requires_weights
def test_every_published_number_is_reproduced(tmp_path: Path) -> None:
    result = run_pellucid("recipe", "protein-pretrained", "--run", tmp_path / "out", "--data", PUBLISHED_DATA)
    assert result.code == 0 and result.err == "" and result.out.count(" equal\n") == 28
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    attention = report["networks"][ATTENTION]
    assert attention["loss"] == pytest.approx(0.624966, abs=5e-7) and attention["num_correct"] == 527
    assert attention["correlation"] == pytest.approx(0.7983, abs=5e-5)
    assert attention["parameters"] == 16_935 and sum(map(sum, attention["counts"])) == 635
    assert all(check["agrees"] for check in report["checks"])
    corrected = next(check for check in report["checks"] if check["metric"] == "loss, corrected peephole")
    assert corrected["computed"] == pytest.approx(0.6252, abs=5e-5)
    assert "28 of 28" in (tmp_path / "out" / "report.html").read_text("utf-8")


@requires_weights
def test_differing_number_fails_and_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "protein-golden"
    shutil.copytree(FOLDER, folder)
    rows = {"X_val": slice(0, 40), "y_val": slice(0, 40), "mask_val": slice(0, 40)}
    with np.load(FOLDER / "reduced_val.npz") as stored:
        np.savez(folder / "reduced_val.npz", **{name: stored[name][part] for name, part in rows.items()})
    result = run_pellucid("recipe", "protein-pretrained", "--run", tmp_path / "out", "--data", tmp_path / "data")
    assert result.code == 1 and "correct predictions, port: 3" in result.err and ", not 527" in result.err
    assert "Traceback" not in result.err and (tmp_path / "out" / "report.html").exists()


def test_missing_weights_error_names_the_source(tmp_path: Path) -> None:
    message = usage_error_message(
        run_pellucid("recipe", "protein-pretrained", "--run", tmp_path / "out", "--data", tmp_path)
    )
    assert "reduced_val.npz does not exist: the weights are from github.com/JJAlmagro" in message


@requires_weights
def test_proteins_have_the_published_counts() -> None:
    proteins = read_validation_proteins(FOLDER)
    assert proteins.profiles.shape == (635, 400, 20) and proteins.lengths.min() >= 1
    assert torch.bincount(proteins.locations).tolist() == [95, 151, 131, 64, 69, 13, 60, 18, 19, 15]


def test_numbers_agree_up_to_rounding() -> None:
    assert NumberCheck("", "", 0.62496583, "0.624966").agrees and NumberCheck("", "", 527, "527").agrees
    assert NumberCheck("", "", 0.7826772, "0.783").agrees and not NumberCheck("", "", 0.7824, "0.783").agrees
    assert not NumberCheck("", "", 526, "527").agrees


def lstm_weights(inputs: int, units: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(inputs, units), (units, units), (units,)] * 4 + [(units,)] * 3 + [(1, units)] * 2
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def test_lstm_state_is_copied_over_padding() -> None:
    weights, lengths = lstm_weights(3, 4), torch.tensor([5, 2])
    inputs = torch.randn(2, 5, 3, dtype=torch.float64)
    states = run_masked_lstm(inputs, lengths, weights)
    assert torch.equal(states[1, 2:], states[1, 1].expand(3, -1))
    changed = inputs.clone()
    changed[1, 2:] += 9
    assert torch.equal(run_masked_lstm(changed, lengths, weights), states)
    assert torch.allclose(run_masked_lstm(inputs[1:, :2], lengths[1:], weights), states[1:, :2])


def test_lstm_equals_single_cell_steps() -> None:
    weights, inputs = lstm_weights(3, 4), torch.randn(1, 3, 3, dtype=torch.float64)
    state, states = PeepholeState(weights[16], weights[15]), []
    for vector in inputs[0]:
        preactivations = [
            vector @ weights[3 * gate] + state.hidden @ weights[3 * gate + 1] + weights[3 * gate + 2]
            for gate in range(4)
        ]
        state = peephole_step(torch.cat(preactivations, dim=1), state, Peepholes(*weights[12:15]))
        states.append(state.hidden)
    assert torch.allclose(run_masked_lstm(inputs, torch.tensor([3]), weights), torch.stack(states, dim=1))


def test_decoder_weights_are_assigned_to_their_gates() -> None:
    generator = torch.Generator().manual_seed(2)
    gates = [(6, 6), (6,)] * 4 + [(5, 6)] * 4 + [(6,)] * 3
    shapes = [*gates, (6, 3), (5, 3), (3, 1), (1, 6), (1, 6)]
    weights = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    decoder = load_decoder(weights, peephole_step)
    state = torch.randn(2, 6, dtype=torch.float64)
    for gate in range(4):
        rows = slice(6 * gate, 6 * gate + 6)
        output = nn.functional.linear(state, decoder.hidden_weight[rows], decoder.bias[rows])
        assert torch.allclose(output, state @ weights[2 * gate] + weights[2 * gate + 1])
