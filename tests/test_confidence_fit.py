"""evaluation/confidence_fit.py: Platt scaling of margins, for few and for many validation outputs."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from test_confidence import make_trace

from pellucid.config.settings import SearchConfig
from pellucid.decoding.confidence import add_confidences
from pellucid.decoding.trace import END
from pellucid.errors import ArgumentError
from pellucid.evaluation.calibration import measure_calibration
from pellucid.evaluation.confidence_fit import PRIOR_PRECISION, PRIOR_SLOPE, fit_confidence, fit_platt_scaling
from pellucid.run_folder.confidence_file import SavedConfidence, load_confidence, save_confidence

SEARCH = SearchConfig()


def sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-values)))


def draw(count: int, seed: int, intercept: float = -0.5, slope: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """Return margins, and whether the outputs are correct, from a logistic model."""
    generator = np.random.default_rng(seed)
    margins = generator.normal(2.0, 2.0, count)
    return margins, generator.random(count) < sigmoid(intercept + slope * margins)


def test_the_parameters_of_many_outputs_are_recovered() -> None:
    intercept, slope = fit_platt_scaling(*draw(20_000, 1))
    assert (intercept, slope) == pytest.approx((-0.5, 0.8), abs=0.05)


def test_scores_of_probability_0_give_finite_numbers_and_nan_is_refused(tmp_path: Path) -> None:
    finite = [[make_trace([(p, 0.05, True)])] for p in (0.9, 0.6, 0.2)]
    infinite = np.array([-np.inf], np.float32)
    impossible = [[replace(make_trace([(0.5, 0.4, True)]), log_probabilities=infinite)]]
    assert impossible[0][0].score == -np.inf
    for outputs in (finite + impossible, impossible * 3):
        model = fit_confidence(outputs, [True, *[False] * (len(outputs) - 1)], SEARCH)
        assert all(map(math.isfinite, (model.intercept, model.slope, *model.wrong_confidences)))
        save_confidence(tmp_path / "confidence.json", SavedConfidence(model, "fingerprint"))
        text = (tmp_path / "confidence.json").read_text("utf-8")
        assert "NaN" not in text and "null" not in text and load_confidence(tmp_path / "confidence.json").model == model
        confidences = [best.confidence for best, *_ in add_confidences(model, outputs)]
        assert all(confidence is not None and 0 < confidence < 1 for confidence in confidences)
    unknown = [[replace(make_trace([(0.5, 0.4, True)]), log_probabilities=np.array([np.nan], np.float32))]]
    with pytest.raises(ArgumentError, match=r"^outputs\[3\]: expected log-probabilities as scores, got NaN$"):
        fit_confidence(finite + unknown, [True, True, False, False], SEARCH)


@pytest.mark.parametrize("count", [5, 40, 300])
def test_the_fit_is_the_minimum_of_the_penalized_cross_entropy(count: int) -> None:
    margins, right = draw(count, count)
    mean, scale, positive = margins.mean(), margins.std(), right.sum()
    targets = np.where(right, (positive + 1) / (positive + 2), 1 / (count - positive + 2))

    def loss(parameters: np.ndarray) -> float:
        log_odds = parameters[0] + parameters[1] * (margins - mean) / scale
        penalty = 0.5 * PRIOR_PRECISION * (parameters[1] - PRIOR_SLOPE) ** 2
        return float((np.logaddexp(0, log_odds) - targets * log_odds).sum() + penalty)

    expected = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
    intercept, slope = fit_platt_scaling(margins, right)
    assert (intercept + slope * mean, slope * scale) == pytest.approx(tuple(expected), abs=1e-4)


@pytest.mark.parametrize("count", [1, 2, 20, 50, 400])
def test_outputs_that_are_all_correct_give_the_rule_of_succession_on_average(count: int) -> None:
    margins, _ = draw(count, 3)
    for right, expected in ((True, (count + 1) / (count + 2)), (False, 1 / (count + 2))):
        intercept, slope = fit_platt_scaling(margins, np.full(count, right))
        assert sigmoid(intercept + slope * margins).mean() == pytest.approx(expected, abs=0.02 / count + 1e-3)
        assert slope >= 0
    # An output of an unusually small margin has a lower confidence, although no validation output is wrong.
    intercept, slope = fit_platt_scaling(margins, np.full(count, True))
    if count >= 20:
        assert sigmoid(np.array([intercept + slope * -30.0]))[0] < 0.2


def test_margins_that_mislead_have_no_effect() -> None:
    margins, right = draw(500, 4, slope=-2.0)
    intercept, slope = fit_platt_scaling(margins, right)
    assert slope == 0
    assert sigmoid(np.array([intercept]))[0] == pytest.approx(right.mean(), abs=0.01)


def test_equal_margins_give_the_share_of_correct_outputs() -> None:
    right = np.arange(100) < 70
    intercept, slope = fit_platt_scaling(np.full(100, 1.5), right)
    assert sigmoid(np.array([intercept + slope * 1.5]))[0] == pytest.approx(0.7, abs=0.01)


def test_fitted_confidences_are_calibrated_on_other_outputs() -> None:
    """The expected calibration error of 500 test outputs is near that of true probabilities; raw ones are far off."""
    errors = []
    for seed in range(20):
        intercept, slope = fit_platt_scaling(*draw(450, seed))
        margins, right = draw(5000, 1000 + seed)
        confidences = np.log(sigmoid(intercept + slope * margins))
        errors.append(measure_calibration(confidences.tolist(), right.tolist()).expected_calibration_error)
    assert np.mean(errors) < 0.03
    margins, right = draw(5000, 1)
    too_low = np.log(0.4 * sigmoid(0.8 * margins - 0.5)).tolist()
    assert measure_calibration(too_low, right.tolist()).expected_calibration_error > 0.3


def test_a_model_has_the_confidences_of_wrong_outputs() -> None:
    outputs = [[make_trace([(0.9 - 0.02 * number, 0.05 + 0.01 * number, True)])] for number in range(30)]
    right = [number % 7 != 3 for number in range(30)]
    model = fit_confidence(outputs, right, SEARCH)
    assert model.num_examples == 30 and len(model.wrong_confidences) == right.count(False)
    assert list(model.wrong_confidences) == sorted(model.wrong_confidences, reverse=True)
    assert model == fit_confidence(outputs, right, SEARCH)
    reverse = fit_confidence(outputs[::-1], right[::-1], SEARCH)
    assert reverse == model  # rounded, the order of the sums has no effect
    with pytest.raises(ArgumentError, match=r"^outputs: expected .* output"):
        fit_confidence([], [], SEARCH)
    with pytest.raises(ArgumentError, match="right"):
        fit_confidence(outputs, right[1:], SEARCH)


def test_empty_outputs_and_overconfident_ones_do_not_change_the_regression() -> None:
    traces = [[make_trace([(p, 0.5 * (1 - p), True)])] for p in (0.4, 0.6, 0.8, 0.9, 0.95, 0.99)]
    right = [False, True, False, True, True, True]
    plain = fit_confidence(traces, right, SEARCH)
    unknown = replace(traces[-1][0], unknown=(0,))
    empty = replace(traces[-1][0], target=(END,), output="")
    model = fit_confidence(
        [*traces, [unknown], [empty]], [*right, False, False], SEARCH, lowest_confidence_for_unknown=True
    )
    assert (model.intercept, model.slope, model.num_examples) == (plain.intercept, plain.slope, plain.num_examples + 2)
    assert (
        model.lowest_confidence_for_unknown
        and model.wrong_confidences[-2:] == (0.1, 0.1)
        and len(model.wrong_confidences) == 4
    )
    only = fit_confidence([[empty]], [False], SEARCH)
    assert only.confidences(np.array([-np.inf, 0.0])) == pytest.approx([1 / 3, 1 / 3], abs=1e-4)
