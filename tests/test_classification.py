"""Predictions of models that tag, classify or point."""

import json
import math
import pickle

import numpy as np
import pytest
from msgspec.structs import replace
from task_cases import (
    CLASSIFICATION_TASKS,
    IGNORED_TAG,
    make_examples,
    make_task_config,
    make_untrained_predictor,
    task_run,
)

from pellucid.config.settings import TaskName
from pellucid.data.examples import Example
from pellucid.decoding.labeling_predictor import LabelingPredictor
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.trace import Trace
from pellucid.errors import ConfigError, DataError, RunError
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.metrics import evaluate_examples
from pellucid.run_folder.predictor_loader import load
from pellucid.tasks.registry import build_ensemble


@pytest.mark.slow
@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_synthetic_task_is_learned(task: TaskName) -> None:
    model, pairs = load(task_run(task).run), make_examples(task, 60, 3)
    traces = model.predict_examples(pairs)
    evaluation = evaluate_examples(score_traces(traces, [(pair.target,) for pair in pairs], model.tokenizers))
    assert isinstance(model, LabelingPredictor) and evaluation.symbol_accuracy > 90
    if "tag" in task:
        assert evaluation.symbols == sum(len(pair.target) - pair.target.count(IGNORED_TAG) for pair in pairs)


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_predictions_are_independent_of_batch_composition(task: TaskName) -> None:
    model, pairs = load(task_run(task).run), [*make_examples(task, 20, 4), Example("", "")]
    for trace, pair in zip(model.predict_examples(pairs), pairs, strict=True):
        (single,) = model.predict_examples([pair])
        assert single.target == trace.target and single.task == task and single.finished
        np.testing.assert_allclose(single.attention, trace.attention, atol=1e-5)
        np.testing.assert_allclose(single.log_probabilities, trace.log_probabilities, atol=1e-5)


def test_tags_of_a_long_source_need_little_memory() -> None:
    trace = load(task_run("tag").run).predict(["ab" * 400])[0]
    assert trace.attention.tolist() == np.eye(800).tolist()
    assert len(pickle.dumps(trace)) < 400_000  # an identity matrix has 2,560,000 bytes


def test_traces_of_each_task_have_their_fields() -> None:
    (tag_trace,), (class_trace,), (point_trace,), (class_and_tag_trace,) = (
        load(task_run(task).run).predict(["caxd"]) for task in CLASSIFICATION_TASKS
    )
    assert (
        len(tag_trace.target) == 4
        and tag_trace.output == "".join(tag_trace.target)
        and (tag_trace.attention == np.eye(4)).all()
    )
    assert json.loads(tag_trace.to_json())["attention"] == []  # an identity matrix is omitted
    assert (
        class_trace.target == (class_trace.output,)
        and class_trace.hop_weights is not None
        and class_trace.hop_weights.shape == (2, 4)
    )
    np.testing.assert_array_equal(class_trace.attention[0], class_trace.hop_weights[-1])
    assert point_trace.output == "3" and point_trace.symbols == ("3",) and len(point_trace.top_symbols[0]) == 4
    np.testing.assert_allclose(point_trace.attention.sum(), 1, atol=1e-5)
    assert point_trace.score == pytest.approx(math.log(point_trace.attention[0, 2]), abs=1e-4)
    assert class_and_tag_trace.target[0] in "NV" and set(class_and_tag_trace.target[1:]) <= {*"CV"}
    assert class_and_tag_trace.attention.shape == (5, 4) and (class_and_tag_trace.attention[1:] == np.eye(4)).all()
    np.testing.assert_allclose(class_and_tag_trace.attention[0].sum(), 1, atol=1e-5)
    assert Trace.from_json(class_and_tag_trace.to_json()).target == class_and_tag_trace.target
    assert (
        json.loads(class_trace.to_json())["task"] == "classify"
        and len(json.loads(class_trace.to_json())["hop_weights"]) == 2
    )


@pytest.mark.parametrize(("task", "count"), [("classify", 2), ("point", 3)])
def test_candidates_are_in_order_of_probability(task: TaskName, count: int) -> None:
    (result,) = load(task_run(task).run).nbest(["axd"], 5)
    assert len(result) == count and [each.rank for each in result] == [*range(1, count + 1)]
    scores = [each.score for each in result]
    assert scores == sorted(scores, reverse=True) and sum(map(math.exp, scores)) == pytest.approx(1, abs=1e-5)
    assert sum(each.nbest_probability or 0 for each in result) == pytest.approx(1)
    assert tuple(each.output for each in result) == result[0].top_symbols[0]


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_scored_answers_have_their_predicted_probability(task: TaskName) -> None:
    model, pairs = load(task_run(task).run), make_examples(task, 10, 5)
    result = model.predict_examples(pairs)
    forced = model.score_examples(
        [pair._replace(target=trace.output) for pair, trace in zip(pairs, result, strict=True)]
    )
    for predicted, scored in zip(result, forced, strict=True):
        assert scored.target == predicted.target and scored.origin == "given" and scored.unknown_target == ()
        assert scored.score == pytest.approx(predicted.score, abs=1e-4)


def test_ignored_tags_have_log_probability_0_and_unseen_tags_minus_infinity() -> None:
    (trace,) = load(task_run("tag").run).score_examples([Example("caa", "C-Z")])
    assert trace.target == ("C", "-", "Z") and trace.unknown_target == (2,)
    assert trace.log_probabilities[1] == 0 and trace.log_probabilities[2] == -math.inf
    with pytest.raises(DataError, match="pair 1: the source has 3 symbols and the target has 2"):
        load(task_run("tag").run).score_examples([Example("caa", "CC")])


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_operations_of_autoregressive_tasks_are_refused(task: TaskName) -> None:
    model = load(task_run(task).run)
    for options in (
        DecodingOptions(prefix="V"),
        DecodingOptions(forbidden=("V",)),
        DecodingOptions(search_tree=True),
        DecodingOptions(masked_positions=(0,)),
    ):
        with pytest.raises(ConfigError, match=f"the model's task is '{task}'"):
            model.with_options(options)
    assert model.with_options(DecodingOptions()) is model
    with pytest.raises(ConfigError, match=r"^sample_examples: "):
        model.sample_examples([Example("ab", "")], SamplingConfig(samples=2))
    with pytest.raises(ConfigError, match=r"^sample: "):
        model.sample(["ab"], SamplingConfig(samples=2))
    with pytest.raises(ConfigError, match="prefixes: "):
        model.predict_examples([Example("ab", "")], prefixes=["C"])
    with pytest.raises(ConfigError, match=r"search\.beam_size = \d+ needs task = 'transduce'"):
        model.with_beam(3)
    if "tag" in task:
        with pytest.raises(ConfigError, match=r"^count: expected 1, .* gives one tagging"):
            model.nbest(["ab"], 2)
        with pytest.raises(ConfigError, match=r"^count: expected 1, .* gives one tagging"):
            model.nbest_examples([Example("ab", "")], 2)


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_ensemble_averages_its_members(task: TaskName) -> None:
    pairs = make_examples(task, 30, 6)
    first, second = (
        make_untrained_predictor(replace(make_task_config(task), seed=seed), pairs[:size])
        for seed, size in ((1, 30), (2, 20))
    )
    ensemble = build_ensemble([first, second], ["one", "other"])
    assert isinstance(ensemble, LabelingPredictor)
    ids = second.vocabularies.target.ids
    order = [*range(4), *(ids[symbol] for symbol in ensemble.vocabularies.target.symbols)]
    for mean, first_scores, second_scores in zip(
        *(model.distributions(pairs) for model in (ensemble, first, second)), strict=True
    ):
        np.testing.assert_allclose(
            np.exp(mean), (np.exp(first_scores) + np.exp(second_scores[:, order])) / 2, atol=1e-5
        )


def test_models_of_different_tasks_are_refused_as_an_ensemble() -> None:
    pairs = [Example("ab", "1"), Example("ab", "2")]
    pointer, classifier = (
        make_untrained_predictor(make_task_config(task, data={"max_sequence_length": 2}), pairs)
        for task in ("point", "classify")
    )
    with pytest.raises(RunError, match="differ in task"):
        build_ensemble([pointer, classifier], ["one", "other"])
