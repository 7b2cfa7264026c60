"""evaluation/risk_control.py: the guarantee of conformal risk control, by simulation, and thresholds of small cases."""

import numpy as np
import pytest

from pellucid.config.settings import SearchConfig
from pellucid.decoding.confidence import ConfidenceModel
from pellucid.errors import ArgumentError
from pellucid.evaluation.risk_control import (
    AcceptedOutputs,
    accepted_outputs,
    conformal_threshold,
    join_accepted_outputs,
)

NUM_DRAWS = 4000


def make_model(wrong: list[float], examples: int) -> ConfidenceModel:
    return ConfidenceModel(0.0, 1.0, examples, tuple(wrong), SearchConfig())


@pytest.mark.parametrize(
    ("wrong", "examples", "max_error", "expected"),
    [
        ([], 99, 0.01, 0.0),  # (0 + 1) / 100 ≤ 1 %: all outputs are accepted
        ([], 98, 0.01, None),  # 1 / 99 > 1 %: too few outputs
        ([0.8], 99, 0.01, 0.80001),
        ([0.8, 0.7], 199, 0.01, 0.70001),  # one wrong output may be accepted: (1 + 1) / 200
        ([0.8, 0.8, 0.7], 199, 0.01, 0.80001),  # of equal confidences, none
        ([0.8, 0.7], 399, 0.01, 0.0),
        ([1 - 1 / 101], 99, 0.01, None),  # the most confident output is wrong
        ([0.9] * 50, 100, 1.0, 0.0),
        ([0.5], 99, 0.0, None),
    ],
)
def test_thresholds(wrong: list[float], examples: int, max_error: float, expected: float | None) -> None:
    assert conformal_threshold(make_model(wrong, examples), max_error) == expected


@pytest.mark.parametrize(("examples", "max_error"), [(60, 0.05), (139, 0.02), (150, 0.01)])
@pytest.mark.parametrize("is_calibrated", [True, False])
def test_the_bound_holds_in_simulation_and_is_not_far_from_it(
    examples: int, max_error: float, is_calibrated: bool
) -> None:
    """The mean, over calibration sets, of the share of outputs that are accepted and wrong is at most α.

    The confidences may be wrong themselves. Without the output that the method adds, that is with at most α n accepted
    wrong outputs among n, the mean exceeds α: a threshold that is too low by one output fails.
    """
    generator = np.random.default_rng(examples)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        confidences = np.round(generator.beta(3, 1, count), 5)
        return confidences, generator.random(count) > (confidences if is_calibrated else 0.3 + 0.6 * confidences)

    confidences, is_wrong = draw(400_000)
    wrong_outputs = np.sort(confidences[is_wrong])
    risks: dict[str, list[float]] = {"controlled": [], "uncorrected": []}
    for _ in range(NUM_DRAWS):
        confidences, is_wrong = draw(examples)
        model = make_model(confidences[is_wrong].tolist(), examples)
        bounds = {"controlled": max_error, "uncorrected": (np.floor(max_error * examples) + 1) / (examples + 1)}
        for name, bound in bounds.items():
            threshold = conformal_threshold(model, float(bound))
            lowest = np.inf if threshold is None else threshold
            risks[name].append(1 - np.searchsorted(wrong_outputs, lowest) / len(wrong_outputs))
    share = len(wrong_outputs) / 400_000
    means = {name: share * np.mean(values) for name, values in risks.items()}
    tolerance = 3 * share * np.std(risks["controlled"]) / np.sqrt(NUM_DRAWS) + 3 * np.sqrt(max_error / 400_000)
    assert tolerance < 0.2 / examples
    assert max_error - 1 / (examples + 1) - tolerance <= means["controlled"] <= max_error + tolerance
    assert means["uncorrected"] > max_error + tolerance


def test_accepted_outputs_are_counted() -> None:
    model = make_model([0.8], 99)
    accepted = accepted_outputs(model, [0.9, 0.85, 0.8, 0.2], [True, False, False, True], 0.01)
    assert accepted == AcceptedOutputs(0.01, 0.80001, 4, 2, 1)
    assert accepted.to_dict() == {**accepted._asdict(), "share_accepted": 0.5, "share_wrong": 0.25}
    none = accepted_outputs(make_model([], 10), [0.9, 0.1], [True, True], 0.01)
    assert none == AcceptedOutputs(0.01, None, 2, 0, 0)
    assert join_accepted_outputs([accepted, accepted]) == AcceptedOutputs(0.01, 0.80001, 8, 4, 2)
    assert join_accepted_outputs([accepted, none]) == AcceptedOutputs(0.01, None, 6, 2, 1)
    with pytest.raises(ArgumentError, match="right"):
        accepted_outputs(model, [0.5], [], 0.01)


def test_a_higher_bound_never_accepts_fewer_outputs() -> None:
    generator = np.random.default_rng(5)
    model = make_model(generator.random(40).tolist(), 200)
    thresholds = [conformal_threshold(model, bound / 100) for bound in range(1, 30)]
    values = [1.0 if threshold is None else threshold for threshold in thresholds]
    assert values == sorted(values, reverse=True)
