"""Experiments of the 2016 notebook: comparison with the authors' curves, roughness, optimizers."""

import json
from pathlib import Path

import pytest
from digits_cases import make_digits_request, make_result_with_curve

from pellucid.errors import InputError
from pellucid.recipes.digits import experiments
from pellucid.recipes.digits import report as lesson
from pellucid.recipes.digits.report import DigitsRuns, ReferenceCurve


def test_enclosed_fraction_counts_validations_within_the_range_of_the_seeds() -> None:
    group = DigitsRuns("x", [make_result_with_curve(0.1, 0.2), make_result_with_curve(0.3, 0.4)])
    assert experiments.enclosed_fraction(group, ReferenceCurve("notebook", [(5000, 0.2), (10000, 0.5)])) == 0.5
    assert group.median is group.results[0]


def test_roughness_is_the_mean_change_over_the_last_third() -> None:
    assert experiments.roughness(make_result_with_curve(0.0, 0.9, 0.0, 0.1, 0.4, 0.2)) == pytest.approx(0.2)


@pytest.mark.parametrize("samples", [1, 5_000])
def test_too_few_samples_for_a_roughness_are_refused(tmp_path: Path, samples: int) -> None:
    request = make_digits_request(tmp_path)._replace(samples=samples)
    with pytest.raises(InputError, match=r"--max-train-samples .* needs more than 5,000 samples"):
        list(experiments.run_lr_decay(request))


@pytest.mark.slow
def test_best_learning_rate_gets_all_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = make_digits_request(tmp_path)
    monkeypatch.setattr(lesson, "run_jobs", lambda task, jobs, request: iter([task(job) for _, job in jobs]))
    monkeypatch.setattr(experiments, "LEARNING_RATES", {"adam": (0.005, 0.0001, 10.0), "sgd": (0.3, 0.1, 0.01)})
    list(experiments.run_optimizers(request._replace(samples=3_000)))
    report = json.loads((request.out / "report.json").read_text())
    for run in report["runs"]:
        name, rate = run["run"].split(", learning rate ")
        accuracies = report["learning_rates"][name]
        assert accuracies[str(float(rate))] == max(accuracies.values())
