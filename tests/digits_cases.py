"""Small experiments of the digit recipes, and requests with the authors' curves."""

import json
from pathlib import Path

from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.training import (
    DigitsExperiment,
    DigitsResult,
    DigitsTrainingPlan,
    DigitsValidation,
    run_experiment,
)
from pellucid.recipes.recipe import RecipeRequest

SMALL_PLAN = DigitsTrainingPlan(samples=300, batch_size=50, digits=(2, 3), eval_interval=100, validation_samples=40)


AUTHOR_CURVES = {
    "nv_624843e_gru_valacc(9.1e5)": [[5000, 0.13], [10000, 0.15]],
    "blog/day3_85d4f0d_gru_valacc(3e6)": [[20000, 0.16]],
    "sk_a27c9d1_gru_valacc(1e6)": [[5000, 0.12]],
    "nv_a3fe320_attn_valacc(1.5e5,complete)": [[5000, 0.15], [10000, 0.2]],
    "nv_624843e_attn_valacc(1.5e5,complete)": [[5000, 0.14], [10000, 0.18]],
}


def make_digits_request(tmp_path: Path) -> RecipeRequest:
    """Write the authors' curves, and return a request with 200 samples that reads them."""
    folder = tmp_path / "data" / "digits-curves"
    folder.mkdir(parents=True)
    (folder / "curves.json").write_text(json.dumps(AUTHOR_CURVES))
    return RecipeRequest(tmp_path / "out", samples=200, data=tmp_path / "data")


def make_result_with_curve(*accuracies: float) -> DigitsResult:
    """Return the result of a training run with these validation accuracies, one every 5,000 samples."""
    result = run_experiment(DigitsExperiment("x", DigitsArchitecture(), SMALL_PLAN._replace(samples=50), 1))
    points = [DigitsValidation(5000 * number, 1.0, accuracy, 0.0) for number, accuracy in enumerate(accuracies, 1)]
    return result._replace(curve=points, final=result.final._replace(symbol_accuracy=accuracies[-1]))
