"""The digit lessons, made small: what they train, what they tell, and what they write."""

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
from pellucid.recipes import (
    digits_attention_faithful,
    digits_extrapolate,
    digits_fewest,
    digits_jigsaw,
    digits_optimizers,
    digits_positions,
)
from pellucid.recipes.catalog import find
from pellucid.recipes.digits import report as lesson
from pellucid.recipes.digits import study as study_module
from pellucid.recipes.digits.networks import Design, DigitsNetwork, parameters_of
from pellucid.recipes.digits.report import Curve, Group, curves
from pellucid.recipes.digits.study import (
    LasagneAdam,
    Outcome,
    Plan,
    Point,
    Study,
    clipped,
    conduct,
    judge,
    spans,
    train,
    unheard,
)
from pellucid.recipes.recipe import Request
from pellucid.viewer.report_schema import ReportFigure

SMALL = Plan(samples=300, batch=50, digits=(2, 3), every=100, validation=40)
DATA = {
    "nv_624843e_gru_valacc(9.1e5)": [[5000, 0.13], [10000, 0.15]],
    "blog/day3_85d4f0d_gru_valacc(3e6)": [[20000, 0.16]],
    "sk_a27c9d1_gru_valacc(1e6)": [[5000, 0.12]],
    "nv_a3fe320_attn_valacc(1.5e5,complete)": [[5000, 0.15], [10000, 0.2]],
    "nv_624843e_attn_valacc(1.5e5,complete)": [[5000, 0.14], [10000, 0.18]],
}


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """A request of few samples, with authors' curves at hand."""
    folder = tmp_path / "data" / "digits-curves"
    folder.mkdir(parents=True)
    (folder / "curves.json").write_text(json.dumps(DATA))
    return Request(tmp_path / "out", samples=200, data=tmp_path / "data")


@pytest.mark.parametrize(
    ("design", "count"),
    [
        (Design("repeat"), 1891),
        (Design("attention"), 2551),
        (Design("initialize"), 1591),
        (Design(embedding="learned"), 1891 + 27 * 27),
    ],
)
def test_networks_have_as_many_parameters_as_the_authors_count(design: Design, count: int) -> None:
    torch.manual_seed(1)
    assert sum(int(np.prod(shape)) for _, shape in parameters_of(DigitsNetwork(design))) == count


def test_weights_start_as_the_authors_drew_them() -> None:
    torch.manual_seed(1)
    network = DigitsNetwork(Design("attention"))
    for name, parameter in network.named_parameters():
        if "bias" in name:
            assert not parameter.any(), name
        elif not name.startswith("output") and parameter.numel() > 100:
            assert float(parameter.detach().std()) == pytest.approx(0.1, rel=0.25), name


@pytest.mark.parametrize(
    "design", [Design("repeat"), Design("initialize"), Design("attention"), Design("attention", "lstm")]
)
def test_kernels_and_plain_pytorch_agree(design: Design) -> None:
    torch.manual_seed(2)
    network = DigitsNetwork(design)
    samples = draw_digits(6, 1, 4, np.random.default_rng(1))
    inputs, lengths = torch.from_numpy(samples.inputs).long(), torch.from_numpy(samples.lengths)
    fast = network(inputs, lengths, 5)
    with disable_kernels():
        slow = network(inputs, lengths, 5)
    torch.testing.assert_close(fast.logits, slow.logits, rtol=1e-4, atol=1e-6)


def test_only_the_notebooks_attention_sees_padding() -> None:
    torch.manual_seed(3)
    samples = draw_digits(4, 1, 6, np.random.default_rng(1))
    inputs, lengths = torch.from_numpy(samples.inputs).long(), torch.from_numpy(samples.lengths)
    outside = torch.from_numpy(samples.input_masks) == 0
    assert outside.any()
    for sees in (True, False):
        attention = DigitsNetwork(Design("attention", attends_padding=sees))(inputs, lengths, 3).attention
        assert attention is not None
        assert bool((attention.transpose(1, 2)[outside] > 0).all()) is sees
        torch.testing.assert_close(attention.sum(dim=2), torch.ones(4, 3))


def test_gradients_are_clipped_by_value_then_by_norm() -> None:
    gradients = [torch.tensor([5.0, -1.0]), torch.tensor([[-7.0]])]
    bounded = np.array([3.0, -1.0, -3.0])
    found = torch.cat([gradient.flatten() for gradient in clipped(gradients)]).numpy()
    np.testing.assert_allclose(found, bounded * 3 / np.linalg.norm(bounded), rtol=1e-6)
    small = [torch.tensor([0.1, 0.2])]
    np.testing.assert_allclose(clipped(small)[0].numpy(), [0.1, 0.2], rtol=1e-5)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("decoder", ["repeat", "attention"])
def test_a_study_is_a_function_of_itself(decoder: Any, masked: bool) -> None:  # noqa: ANN401
    study = Study("small", Design(decoder), SMALL._replace(masked=masked), 3)
    first, second = conduct(study), conduct(study)
    assert first._replace(seconds=0) == second._replace(seconds=0)
    assert [point.samples for point in first.curve] == [100, 200, 300]
    assert first.curve[-1].cost < first.curve[0].cost
    assert len(first.final.per_position) == 4 and (first.final.attention_mean is None) == (decoder == "repeat")


def test_another_seed_and_another_optimizer_change_the_outcome() -> None:
    study = Study("small", Design(), SMALL, 3)
    costs = [
        [point.cost for point in conduct(each).curve]
        for each in (study, study._replace(seed=4), study._replace(plan=SMALL._replace(optimizer="adagrad", rate=0.05)))
    ]
    assert costs[0] != costs[1] != costs[2] != costs[0]


def test_judging_counts_what_is_there_and_nothing_else() -> None:
    torch.manual_seed(4)
    network = DigitsNetwork(Design("attention"))
    samples = draw_digits(30, 1, 3, np.random.default_rng(2))
    judged = judge(network, samples)
    with torch.inference_mode():
        lengths = torch.from_numpy(samples.lengths)
        written = network(torch.from_numpy(samples.inputs).long(), lengths, 4).logits.argmax(dim=-1).numpy()
    pairs = [
        (written[row, place] == samples.targets[row, place], row, place)
        for row, place in zip(*np.nonzero(samples.target_masks), strict=True)
    ]
    assert judged.symbol_accuracy == pytest.approx(np.mean([right for right, _, _ in pairs]))
    wrong = {row for right, row, _ in pairs if not right}
    assert judged.exact_match == pytest.approx(1 - len(wrong) / 30)


def test_spans_are_words_with_the_space_behind() -> None:
    samples = draw_digits(5, 2, 4, np.random.default_rng(3))
    known = spans(samples)
    for row, (source, target) in enumerate(samples.texts()):
        assert int(known.known[row].sum()) == len(target) - 1
        for place, word in enumerate(source.split(" ")):
            first, stop = known.first[row, place], known.stop[row, place]
            assert source[first:stop].rstrip() == word


SHORT = ["digits-repeat", "digits-init", "digits-attention-faithful", "digits-varying", "digits-cells"]


@pytest.mark.parametrize("name", SHORT)
def test_a_lesson_writes_its_page_and_its_numbers(
    name: str, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lesson, "followed", lambda task, jobs, request: iter([task(_short(job)) for _, job in jobs]))
    lines = list(find(name)(request_))
    report = json.loads((request_.out / "report.json").read_text())
    keys = {"name", "parameters", "samples", "seconds", "symbol_accuracy", "exact_match", "per_position", "reference"}
    assert keys | {"attention_mean", "runs"} <= set(report) and report["name"] == name and report["samples"] == 200
    assert len(report["symbol_accuracy"]) == len(report["exact_match"]) == len(report["validation_samples"])
    assert len(parts_of(written_document(request_.out / "report.html"), ReportFigure)) >= 2
    assert lines[-1] == f"report: {request_.out / 'report.html'}"


def _short(study: Study) -> Study:
    """The same with few short samples."""
    return study._replace(plan=study.plan._replace(digits=(2, 3), validation=20))


def test_the_data_lesson_shows_samples_and_shapes(request_: Request) -> None:
    lines = "\n".join(find("digits-data")(request_))
    assert "four five" in lines and "1,891 parameters" in lines and "2,551 parameters" in lines
    assert "(100, 21, 11)" in lines and "NOT" not in lines


def test_curves_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"curves.json is not there: .* PELLUCID_DATA"):
        curves(tmp_path, "repeat")


def test_damaged_curves_are_told(request_: Request) -> None:
    (request_.data / "digits-curves" / "curves.json").write_text("{")
    with pytest.raises(DataError, match="does not hold the authors' curves"):
        curves(request_.data, "repeat")


def outcome(*accuracies: float, name: str = "x", seed: int = 1) -> Outcome:
    study = conduct(Study(name, Design(), SMALL._replace(samples=50), seed))
    points = [Point(5000 * (at + 1), 1.0, accuracy, 0.0) for at, accuracy in enumerate(accuracies)]
    return study._replace(curve=points, final=study.final._replace(symbol_accuracy=accuracies[-1]))


def test_the_notebooks_adam_adds_its_epsilon_before_the_correction() -> None:
    """By its equation, for gradients far below ε, where PyTorch's own form would take other steps."""
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer, expected = LasagneAdam([parameter], 0.1), parameter.tolist()
    moments = [[0.0, 0.0], [0.0, 0.0]]
    for update, scale in enumerate((1e-9, 3e-9, -2e-9), start=1):
        parameter.grad = torch.tensor([scale, 1.0], dtype=torch.float64)
        optimizer.step()
        rate = 0.1 * (1 - 0.999**update) ** 0.5 / (1 - 0.9**update)
        for at, gradient in enumerate((scale, 1.0)):
            moments[0][at] += 0.1 * (gradient - moments[0][at])
            moments[1][at] += 0.001 * (gradient**2 - moments[1][at])
            expected[at] -= rate * moments[0][at] / (moments[1][at] ** 0.5 + 1e-8)
        assert parameter.tolist() == pytest.approx(expected, rel=1e-12)


def test_an_interrupted_training_keeps_its_curve(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(network: DigitsNetwork, plan: Plan, seed: int) -> Iterator[tuple[int, float]]:
        yield from islice(train(network, plan._replace(every=100), seed), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(study_module, "train", stopped)
    outcome = conduct(Study("x", Design(), SMALL, 1))
    assert outcome.interrupted and [point.samples for point in outcome.curve] == [100, 200]
    lines = list(find("digits-repeat")(request_))
    assert "; interrupted" in lines[0] and (request_.out / "report.html").is_file()


def test_seeds_enclose_a_curve_where_it_lies_between_them() -> None:
    group = Group("x", [outcome(0.1, 0.2), outcome(0.3, 0.4)])
    assert digits_attention_faithful.enclosed(group, Curve("theirs", [(5000, 0.2), (10000, 0.5)])) == 0.5
    assert group.median is group.outcomes[0]


def test_roughness_is_the_mean_step_of_the_last_third() -> None:
    rough = digits_jigsaw.roughness(outcome(0.0, 0.9, 0.0, 0.1, 0.4, 0.2))
    assert rough == pytest.approx(0.2)


def test_a_probe_reads_what_the_code_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits_positions, "PROBED", 400)
    found = digits_positions.examine(Study("small", Design(), SMALL._replace(digits=(1, 1), samples=4_000), 1))
    assert len(found.probed) == 2 and found.probed[1] == 1.0
    assert found.probed[0] >= found.outcome.final.per_position[0] - 0.1


def test_reach_is_measured_at_every_length(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DEVELOPMENT": 10, "TEST": 10, "EACH": 4, "LENGTHS": (1, 3), "SCORES": ("location",)}.items():
        monkeypatch.setattr(digits_extrapolate, name, value)
    lines = list(digits_extrapolate.run(request_))
    report = json.loads((request_.out / "report.json").read_text())
    assert [each["digits"] for each in report["lengths"]["location, seed 1"]] == [1, 3]
    assert "location, seed 1, 3 digits" in lines[1]


def _trace(weights: np.ndarray) -> Trace:
    """A trace of which the weights alone matter."""
    steps = len(weights)
    zeros, none = np.zeros(steps, np.float32), np.zeros((steps, 0), np.float32)
    return Trace("one", ("o", "n", "e"), 0, (), ("1",) * steps, "1", False, zeros, weights, ((),) * steps, none)


def test_a_look_that_does_not_move_is_counted() -> None:
    rows = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], np.float32)
    assert digits_extrapolate.stays([_trace(rows), _trace(rows[:1])]) == 0.5


def test_the_rate_that_gets_furthest_is_given_all_samples(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson, "followed", lambda task, jobs, request: iter([task(job) for _, job in jobs]))
    monkeypatch.setattr(digits_optimizers, "RATES", {"adam": (0.005, 0.0001, 10.0), "sgd": (0.3, 0.1, 0.01)})
    list(digits_optimizers.run(request_._replace(samples=3_000)))
    report = json.loads((request_.out / "report.json").read_text())
    for each in report["runs"]:
        name, rate = each["run"].split(", rate ")
        tried = report["rates_tried"][name]
        assert tried[str(float(rate))] == max(tried.values())


def test_the_fewest_samples_are_read_off_the_curve(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits_fewest, "DEVELOPMENT", 10)
    monkeypatch.setattr(digits_fewest, "TEST", 10)
    monkeypatch.setattr(
        digits_fewest, "WITHOUT", {"ours": {}, "no symbol fed back": {"decoder": {"embedding": "none"}}}
    )
    monkeypatch.setattr(digits_fewest, "WITH", {})
    monkeypatch.setattr(digits_fewest, "followed", lambda task, jobs, request: [task(job, unheard) for _, job in jobs])
    list(digits_fewest.run(request_._replace(samples=60)))
    report = json.loads((request_.out / "report.json").read_text())
    assert report["samples_to_99"] == {"ours, seed 1": None, "no symbol fed back, seed 1": None}
