"""The digit recipes at small size: networks, training, analyses and reports."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from report_documents import parts_of, written_document

from pellucid.data.synthetic import draw_digits
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.digits import analysis, attention_models, studies
from pellucid.recipes.digits import report as lesson
from pellucid.recipes.digits import training as study_module
from pellucid.recipes.digits.networks import DigitsArchitecture, DigitsNetwork, parameter_shapes
from pellucid.recipes.digits.report import DigitsRuns, ReferenceCurve, load_reference_curves
from pellucid.recipes.digits.training import (
    DigitsResult,
    DigitsStudy,
    DigitsTrainingPlan,
    DigitsValidation,
    LasagneAdam,
    clip_gradients,
    discard_progress,
    evaluate_network,
    run_study,
    training_steps,
    word_spans,
)
from pellucid.recipes.recipe import RecipeRequest
from pellucid.viewer.report_schema import ReportFigure

SMALL = DigitsTrainingPlan(samples=300, batch_size=50, digits=(2, 3), eval_interval=100, validation_samples=40)
DATA = {
    "nv_624843e_gru_valacc(9.1e5)": [[5000, 0.13], [10000, 0.15]],
    "blog/day3_85d4f0d_gru_valacc(3e6)": [[20000, 0.16]],
    "sk_a27c9d1_gru_valacc(1e6)": [[5000, 0.12]],
    "nv_a3fe320_attn_valacc(1.5e5,complete)": [[5000, 0.15], [10000, 0.2]],
    "nv_624843e_attn_valacc(1.5e5,complete)": [[5000, 0.14], [10000, 0.18]],
}


@pytest.fixture
def request_(tmp_path: Path) -> RecipeRequest:
    """A request of few samples, with authors' curves."""
    folder = tmp_path / "data" / "digits-curves"
    folder.mkdir(parents=True)
    (folder / "curves.json").write_text(json.dumps(DATA))
    return RecipeRequest(tmp_path / "out", samples=200, data=tmp_path / "data")


@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        (DigitsArchitecture("repeat"), 1891),
        (DigitsArchitecture("attention"), 2551),
        (DigitsArchitecture("initialize"), 1591),
        (DigitsArchitecture(embedding="learned"), 1891 + 27 * 27),
    ],
)
def test_number_of_parameters_is_that_of_the_authors(architecture: DigitsArchitecture, count: int) -> None:
    torch.manual_seed(1)
    assert sum(int(np.prod(shape)) for _, shape in parameter_shapes(DigitsNetwork(architecture))) == count


def test_initial_weights_are_those_of_the_authors() -> None:
    torch.manual_seed(1)
    network = DigitsNetwork(DigitsArchitecture("attention"))
    for name, parameter in network.named_parameters():
        if "bias" in name:
            assert not parameter.any(), name
        elif not name.startswith("output") and parameter.numel() > 100:
            assert float(parameter.detach().std()) == pytest.approx(0.1, rel=0.25), name


@pytest.mark.parametrize(
    "architecture",
    [
        DigitsArchitecture("repeat"),
        DigitsArchitecture("initialize"),
        DigitsArchitecture("attention"),
        DigitsArchitecture("attention", "lstm"),
    ],
)
def test_kernels_and_plain_pytorch_agree(architecture: DigitsArchitecture) -> None:
    torch.manual_seed(2)
    network = DigitsNetwork(architecture)
    samples = draw_digits(6, 1, 4, np.random.default_rng(1))
    inputs, lengths = torch.from_numpy(samples.inputs).long(), torch.from_numpy(samples.lengths)
    with_kernels = network(inputs, lengths, 5)
    with disable_kernels():
        without_kernels = network(inputs, lengths, 5)
    torch.testing.assert_close(with_kernels.logits, without_kernels.logits, rtol=1e-4, atol=1e-6)


def test_only_the_notebooks_attention_includes_padding() -> None:
    torch.manual_seed(3)
    samples = draw_digits(4, 1, 6, np.random.default_rng(1))
    inputs, lengths = torch.from_numpy(samples.inputs).long(), torch.from_numpy(samples.lengths)
    is_padding = torch.from_numpy(samples.input_masks) == 0
    assert is_padding.any()
    for attends in (True, False):
        attention = DigitsNetwork(DigitsArchitecture("attention", attends_padding=attends))(
            inputs, lengths, 3
        ).attention
        assert attention is not None
        assert bool((attention.transpose(1, 2)[is_padding] > 0).all()) is attends
        torch.testing.assert_close(attention.sum(dim=2), torch.ones(4, 3))


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
    study = DigitsStudy("small", DigitsArchitecture(decoder), SMALL._replace(masked=masked), 3)
    first, second = run_study(study), run_study(study)
    assert first._replace(seconds=0) == second._replace(seconds=0)
    assert [point.samples for point in first.curve] == [100, 200, 300]
    assert first.curve[-1].loss < first.curve[0].loss
    assert len(first.final.per_position) == 4 and (first.final.attention_mean is None) == (decoder == "repeat")


def test_seed_and_optimizer_change_the_result() -> None:
    study = DigitsStudy("small", DigitsArchitecture(), SMALL, 3)
    losses = [
        [point.loss for point in run_study(changed).curve]
        for changed in (
            study,
            study._replace(seed=4),
            study._replace(plan=SMALL._replace(optimizer="adagrad", learning_rate=0.05)),
        )
    ]
    assert losses[0] != losses[1] != losses[2] != losses[0]


def test_evaluation_excludes_padding() -> None:
    torch.manual_seed(4)
    network = DigitsNetwork(DigitsArchitecture("attention"))
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


SHORT = ["digits-repeat", "digits-init", "digits-attention-faithful", "digits-varying", "digits-cells"]


@pytest.mark.parametrize("name", SHORT)
def test_lesson_writes_its_page_and_its_numbers(
    name: str, request_: RecipeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lesson, "run_jobs", lambda task, jobs, request: iter([task(_short(job)) for _, job in jobs]))
    lines = list(find_recipe(name)(request_))
    report = json.loads((request_.out / "report.json").read_text())
    keys = {"name", "parameters", "samples", "seconds", "symbol_accuracy", "exact_match", "per_position", "reference"}
    assert keys | {"attention_mean", "runs"} <= set(report) and report["name"] == name and report["samples"] == 200
    assert len(report["symbol_accuracy"]) == len(report["exact_match"]) == len(report["validation_samples"])
    assert len(parts_of(written_document(request_.out / "report.html"), ReportFigure)) >= 2
    assert lines[-1] == f"report: {request_.out / 'report.html'}"


def _short(study: DigitsStudy) -> DigitsStudy:
    """Return the study with few short samples."""
    return study._replace(plan=study.plan._replace(digits=(2, 3), validation_samples=20))


def test_data_lesson_has_samples_and_shapes(request_: RecipeRequest) -> None:
    lines = "\n".join(find_recipe("digits-data")(request_))
    assert "four five" in lines and "1,891 parameters" in lines and "2,551 parameters" in lines
    assert "(100, 21, 11)" in lines and "NOT" not in lines


def test_missing_curves_raise_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"curves.json does not exist: .* PELLUCID_DATA"):
        load_reference_curves(tmp_path, "repeat")


def test_damaged_curves_raise_data_error(request_: RecipeRequest) -> None:
    (request_.data / "digits-curves" / "curves.json").write_text("{")
    with pytest.raises(DataError, match="does not hold the authors' curves"):
        load_reference_curves(request_.data, "repeat")


def result_with_curve(*accuracies: float) -> DigitsResult:
    """Return the result of a training with these accuracies every 5,000 samples."""
    result = run_study(DigitsStudy("x", DigitsArchitecture(), SMALL._replace(samples=50), 1))
    points = [DigitsValidation(5000 * number, 1.0, accuracy, 0.0) for number, accuracy in enumerate(accuracies, 1)]
    return result._replace(curve=points, final=result.final._replace(symbol_accuracy=accuracies[-1]))


def test_lasagne_adam_adds_epsilon_before_the_bias_correction() -> None:
    """Compare with the equation for gradients far below ε, where PyTorch's Adam takes other steps."""
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


def test_interrupted_training_keeps_its_curve(request_: RecipeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted_steps(network: DigitsNetwork, plan: DigitsTrainingPlan, seed: int) -> Iterator[tuple[int, float]]:
        yield from islice(training_steps(network, plan._replace(eval_interval=100), seed), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(study_module, "training_steps", interrupted_steps)
    result = run_study(DigitsStudy("x", DigitsArchitecture(), SMALL, 1))
    assert result.interrupted and [point.samples for point in result.curve] == [100, 200]
    lines = list(find_recipe("digits-repeat")(request_))
    assert "; interrupted" in lines[0] and (request_.out / "report.html").is_file()


def test_enclosed_fraction_counts_validations_within_the_range_of_the_seeds() -> None:
    group = DigitsRuns("x", [result_with_curve(0.1, 0.2), result_with_curve(0.3, 0.4)])
    assert studies.enclosed_fraction(group, ReferenceCurve("notebook", [(5000, 0.2), (10000, 0.5)])) == 0.5
    assert group.median is group.results[0]


def test_roughness_is_the_mean_change_over_the_last_third() -> None:
    assert studies.roughness(result_with_curve(0.0, 0.9, 0.0, 0.1, 0.4, 0.2)) == pytest.approx(0.2)


def test_probe_predicts_digits_from_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "PROBE_SAMPLES", 400)
    result = analysis.train_and_probe(
        DigitsStudy("small", DigitsArchitecture(), SMALL._replace(digits=(1, 1), samples=4_000), 1)
    )
    assert len(result.probe_accuracy) == 2 and result.probe_accuracy[1] == 1.0
    assert result.probe_accuracy[0] >= result.training_result.final.per_position[0] - 0.1


def test_extrapolation_is_measured_at_every_length(request_: RecipeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"EXTRAPOLATION_DEV_PAIRS": 10, "EXTRAPOLATION_TEST_PAIRS": 10, "PAIRS_PER_LENGTH": 4}
    for name, value in {**small, "TEST_LENGTHS": (1, 3), "ATTENTION_TYPES": ("location",)}.items():
        monkeypatch.setattr(attention_models, name, value)
    lines = list(attention_models.run_extrapolate(request_))
    report = json.loads((request_.out / "report.json").read_text())
    assert [each["digits"] for each in report["lengths"]["location, seed 1"]] == [1, 3]
    assert "location, seed 1, 3 digits" in lines[1]


def _trace(weights: np.ndarray) -> Trace:
    """Return a trace with these attention weights."""
    steps = len(weights)
    zeros, none = np.zeros(steps, np.float32), np.zeros((steps, 0), np.float32)
    return Trace("one", ("o", "n", "e"), 0, (), ("1",) * steps, "1", False, zeros, weights, ((),) * steps, none)


def test_stationary_steps_are_counted() -> None:
    rows = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], np.float32)
    assert attention_models.stationary_fraction([_trace(rows), _trace(rows[:1])]) == 0.5


def test_best_learning_rate_gets_all_samples(request_: RecipeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson, "run_jobs", lambda task, jobs, request: iter([task(job) for _, job in jobs]))
    monkeypatch.setattr(studies, "LEARNING_RATES", {"adam": (0.005, 0.0001, 10.0), "sgd": (0.3, 0.1, 0.01)})
    list(studies.run_optimizers(request_._replace(samples=3_000)))
    report = json.loads((request_.out / "report.json").read_text())
    for run in report["runs"]:
        name, rate = run["run"].split(", learning rate ")
        accuracies = report["learning_rates"][name]
        assert accuracies[str(float(rate))] == max(accuracies.values())


def test_samples_to_99_percent_are_none_without_reaching_it(
    request_: RecipeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_models, "FEWEST_DEV_PAIRS", 10)
    monkeypatch.setattr(attention_models, "FEWEST_TEST_PAIRS", 10)
    monkeypatch.setattr(
        attention_models, "ABLATIONS", {"pellucid": {}, "no feedback": {"decoder": {"embedding": "none"}}}
    )
    monkeypatch.setattr(attention_models, "ADDITIONS", {})
    monkeypatch.setattr(
        attention_models, "run_jobs", lambda task, jobs, request: [task(job, discard_progress) for _, job in jobs]
    )
    list(attention_models.run_fewest(request_._replace(samples=60)))
    report = json.loads((request_.out / "report.json").read_text())
    assert report["samples_to_99"] == {"pellucid, seed 1": None, "no feedback, seed 1": None}
