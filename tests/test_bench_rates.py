"""Rates: what is measured is what is meant, and it has plausible sizes."""

import math

import numpy as np
import pytest
import torch
from bench_cases import GRU

from pellucid.bench import loops
from pellucid.bench import roofline as rates

VALUES = np.linspace(0.5, 1.5, 64, dtype=np.float32)


def test_the_loops_compute_what_they_stand_for() -> None:
    shifted = VALUES[:, None] + np.arange(2)
    assert loops.sum_tanh(VALUES, 2) == pytest.approx(np.tanh(shifted).sum(), rel=1e-5)
    assert loops.sum_exponential(VALUES, 2) == pytest.approx(np.exp(shifted).sum(), rel=1e-5)
    quotients = (1 / (1 + VALUES[:, None] * (1 + np.arange(2)))).sum()
    assert loops.sum_energies(VALUES, 2) == pytest.approx(quotients, rel=1e-5)
    assert loops.sum_paired_energies(VALUES, 2) == pytest.approx(quotients, rel=1e-5)
    assert loops.sum_values(VALUES, 2) == pytest.approx(2 * VALUES.sum(), rel=1e-5)


@pytest.mark.parametrize("compiles", [True, False])
def test_rates_are_those_of_a_processor(compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiles:
        monkeypatch.setattr(rates, "is_numba_available", lambda: False)
    measured = rates.measure_rates(GRU, 0.4)
    assert 1e9 < measured.operations < 1e13
    for seconds in (measured.bend_seconds, measured.energy_seconds, measured.exponential_seconds):
        assert 1e-12 < seconds < 1e-6
    for read in (measured.row_bytes, measured.update_bytes):
        assert math.isfinite(read) and read > 1e6


def test_the_number_of_threads_is_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        rates.measure_rates(GRU, 0.04)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
