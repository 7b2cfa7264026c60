"""Training of the digit networks: reproducibility, optimizer, evaluation, interruption."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digits_cases import SMALL_PLAN, make_digits_request

from pellucid.data.synthetic import draw_digits
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.digits import training as study_module
from pellucid.recipes.digits.networks import DigitsArchitecture, SpelledDigitsNetwork
from pellucid.recipes.digits.training import (
    DigitsExperiment,
    DigitsTrainingPlan,
    LasagneAdam,
    clip_gradients,
    evaluate_network,
    run_experiment,
    training_steps,
    word_spans,
)


def test_gradients_are_clipped_by_value_then_by_norm() -> None:
    gradients = [torch.tensor([5.0, -1.0]), torch.tensor([[-7.0]])]
    by_value = np.array([3.0, -1.0, -3.0])
    clipped = torch.cat([gradient.flatten() for gradient in clip_gradients(gradients)]).numpy()
    np.testing.assert_allclose(clipped, by_value * 3 / np.linalg.norm(by_value), rtol=1e-6)
    small = [torch.tensor([0.1, 0.2])]
    np.testing.assert_allclose(clip_gradients(small)[0].numpy(), [0.1, 0.2], rtol=1e-5)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("decoder", ["repeat", "attention"])
def test_study_is_reproducible(decoder: Any, masked: bool) -> None:  # noqa: ANN401
    experiment = DigitsExperiment("small", DigitsArchitecture(decoder), SMALL_PLAN._replace(masked=masked), 3)
    first, second = run_experiment(experiment), run_experiment(experiment)
    assert first._replace(seconds=0) == second._replace(seconds=0)
    assert [point.samples for point in first.curve] == [100, 200, 300]
    assert first.curve[-1].loss < first.curve[0].loss
    assert len(first.final.per_position) == 4 and (first.final.attention_mean is None) == (decoder == "repeat")


def test_seed_and_optimizer_change_the_result() -> None:
    experiment = DigitsExperiment("small", DigitsArchitecture(), SMALL_PLAN, 3)
    losses = [
        [point.loss for point in run_experiment(changed).curve]
        for changed in (
            experiment,
            experiment._replace(seed=4),
            experiment._replace(plan=SMALL_PLAN._replace(optimizer="adagrad", learning_rate=0.05)),
        )
    ]
    assert losses[0] != losses[1] != losses[2] != losses[0]


def test_evaluation_excludes_padding() -> None:
    torch.manual_seed(4)
    network = SpelledDigitsNetwork(DigitsArchitecture("attention"))
    samples = draw_digits(30, 1, 3, np.random.default_rng(2))
    evaluation = evaluate_network(network, samples)
    with torch.inference_mode():
        lengths = torch.from_numpy(samples.lengths)
        outputs = network(torch.from_numpy(samples.inputs).long(), lengths, 4).logits.argmax(dim=-1).numpy()
    symbols = [
        (outputs[row, column] == samples.targets[row, column], row)
        for row, column in zip(*np.nonzero(samples.target_masks), strict=True)
    ]
    assert evaluation.symbol_accuracy == pytest.approx(np.mean([is_correct for is_correct, _ in symbols]))
    wrong_rows = {row for is_correct, row in symbols if not is_correct}
    assert evaluation.exact_match == pytest.approx(1 - len(wrong_rows) / 30)


def test_spans_are_words_with_the_following_space() -> None:
    samples = draw_digits(5, 2, 4, np.random.default_rng(3))
    spans = word_spans(samples)
    for row, (source, target) in enumerate(samples.texts()):
        assert int(spans.known[row].sum()) == len(target) - 1
        for index, word in enumerate(source.split(" ")):
            first, stop = spans.first[row, index], spans.stop[row, index]
            assert source[first:stop].rstrip() == word


def test_lasagne_adam_adds_epsilon_before_the_bias_correction() -> None:
    """Compare with the equation for gradients far below ε, where the steps of PyTorch's Adam differ."""
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer, expected = LasagneAdam([parameter], 0.1), parameter.tolist()
    moments = [[0.0, 0.0], [0.0, 0.0]]
    for update, scale in enumerate((1e-9, 3e-9, -2e-9), start=1):
        parameter.grad = torch.tensor([scale, 1.0], dtype=torch.float64)
        optimizer.step()
        rate = 0.1 * (1 - 0.999**update) ** 0.5 / (1 - 0.9**update)
        for index, gradient in enumerate((scale, 1.0)):
            moments[0][index] += 0.1 * (gradient - moments[0][index])
            moments[1][index] += 0.001 * (gradient**2 - moments[1][index])
            expected[index] -= rate * moments[0][index] / (moments[1][index] ** 0.5 + 1e-8)
        assert parameter.tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_interrupted_training_keeps_its_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = make_digits_request(tmp_path)

    def interrupted_steps(
        network: SpelledDigitsNetwork, plan: DigitsTrainingPlan, seed: int
    ) -> Iterator[tuple[int, float]]:
        yield from islice(training_steps(network, plan._replace(eval_interval=100), seed), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(study_module, "training_steps", interrupted_steps)
    result = run_experiment(DigitsExperiment("x", DigitsArchitecture(), SMALL_PLAN, 1))
    assert result.interrupted and [point.samples for point in result.curve] == [100, 200]
    lines = list(find_recipe("digits-repeat")(request))
    assert "; interrupted" in lines[0] and (request.out / "report.html").is_file()
