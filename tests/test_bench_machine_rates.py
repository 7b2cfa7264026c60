"""Rates of this machine: compiled loops, plausible rates, number of threads."""

import math

import numpy as np
import pytest
import torch
from bench_cases import GRU_SHAPE

from pellucid.bench import loops, machine_rates

VALUES = np.linspace(0.5, 1.5, 64, dtype=np.float32)


def test_loops_return_the_expected_sums() -> None:
    shifted = VALUES[:, None] + np.arange(2)
    assert loops.sum_tanh(VALUES, 2) == pytest.approx(np.tanh(shifted).sum(), rel=1e-5)
    assert loops.sum_exponential(VALUES, 2) == pytest.approx(np.exp(shifted).sum(), rel=1e-5)
    quotients = (1 / (1 + VALUES[:, None] * (1 + np.arange(2)))).sum()
    assert loops.sum_energies(VALUES, 2) == pytest.approx(quotients, rel=1e-5)
    assert loops.sum_paired_energies(VALUES, 2) == pytest.approx(quotients, rel=1e-5)
    assert loops.sum_values(VALUES, 2) == pytest.approx(2 * VALUES.sum(), rel=1e-5)


@pytest.mark.parametrize("has_numba", [True, False])
def test_rates_are_plausible(has_numba: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_numba:
        monkeypatch.setattr(machine_rates, "load_kernels", lambda: False)
    measured = machine_rates.measure_rates(GRU_SHAPE, 0.4)
    assert 1e9 < measured.operations < 1e13
    for seconds in (measured.activation_seconds, measured.energy_seconds, measured.exponential_seconds):
        assert 1e-12 < seconds < 1e-6
    for bandwidth in (measured.row_bytes, measured.update_bytes):
        assert math.isfinite(bandwidth) and bandwidth > 1e6


def test_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        machine_rates.measure_rates(GRU_SHAPE, 0.04)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
