"""Analyses of the digit networks: data, shapes, probes."""

from pathlib import Path

import pytest
from digits_cases import SMALL_PLAN, make_digits_request

from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.digits import analysis
from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.training import (
    DigitsExperiment,
)


def test_data_lesson_has_samples_and_shapes(tmp_path: Path) -> None:
    request = make_digits_request(tmp_path)
    lines = "\n".join(find_recipe("digits-data")(request))
    assert "four five" in lines and "1,891 parameters" in lines and "2,551 parameters" in lines
    assert "(100, 21, 11)" in lines and "NOT" not in lines


@pytest.mark.slow
def test_probe_predicts_digits_from_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "PROBE_SAMPLES", 400)
    result = analysis.train_and_probe(
        DigitsExperiment("small", DigitsArchitecture(), SMALL_PLAN._replace(digits=(1, 1), samples=4_000), 1)
    )
    assert len(result.probe_accuracy) == 2 and result.probe_accuracy[1] == 1.0
    assert result.probe_accuracy[0] >= result.training_result.final.per_position[0] - 0.1
