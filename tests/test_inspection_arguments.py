"""Inspection refuses an invalid argument with one error that names it, and returns finite numbers only."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from invalid_calls import find_faults, function_name, list_arguments
from task_cases import make_examples, make_task_config, make_untrained_predictor
from untrained_models import PAIRS, make_traces, make_transducer

from pellucid.config.settings import TaskName
from pellucid.data.examples import Example
from pellucid.decoding.ensemble import combine_transducers
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError, ConfigError, InputError, RunError
from pellucid.inspection import attribution
from pellucid.inspection.attribution import attribute
from pellucid.inspection.distributions import entropy, kl_divergence, step_distributions
from pellucid.inspection.permutation import permute_attention
from pellucid.inspection.replay import _float_arrays, build_replays, start_replay
from pellucid.inspection.score_decomposition import decompose_scores
from pellucid.inspection.state_space import (
    Separation,
    collect_states,
    conicity,
    isolation,
    nearest_states,
    pairwise_distances,
    pca,
    procrustes,
    separation,
)
from pellucid.inspection.states import trace_states

MODEL = make_transducer()
TRACES = make_traces(MODEL, PAIRS)
STATES = collect_states(MODEL, TRACES)
POINTS = np.array([[0.0, 1.0], [2.0, 0.5], [1.0, 1.0]])
LOG_PROBABILITIES = np.log([[0.5, 0.5], [0.1, 0.9]])
SIZE = STATES.encoder.vectors.shape[1]
MEMBERS = np.array([True, True, False])

VALID_ARGUMENTS: dict[Callable[..., Any], dict[str, Any]] = {
    attribute: {"predictor": MODEL, "trace": TRACES[0]},
    attribution.rank_correlation: {"attention": [[0.5, 0.5]], "other": [[1.0, 2.0]]},
    step_distributions: {"predictor": MODEL, "traces": TRACES},
    entropy: {"log_probabilities": LOG_PROBABILITIES},
    kl_divergence: {"before": LOG_PROBABILITIES, "after": LOG_PROBABILITIES},
    permute_attention: {"predictor": MODEL, "trace": TRACES[3], "permutations": 2},
    trace_states: {"predictor": MODEL, "traces": TRACES},
    collect_states: {"predictor": MODEL, "traces": TRACES},
    nearest_states: {"states": STATES.encoder, "vector": np.ones(STATES.encoder.vectors.shape[1]), "count": 2},
    decompose_scores: {"predictor": MODEL, "traces": TRACES},
    pca: {"vectors": POINTS},
    procrustes: {"points": POINTS, "reference": POINTS[::-1]},
    conicity: {"vectors": POINTS},
    separation: {"vectors": POINTS, "members": MEMBERS},
    isolation: {"vectors": POINTS},
    pairwise_distances: {"vectors": POINTS},
}


@pytest.mark.parametrize(("function", "name"), list_arguments(VALID_ARGUMENTS), ids=function_name)
def test_an_invalid_argument_is_one_error_that_names_it(function: Callable[..., Any], name: str) -> None:
    assert find_faults(function, VALID_ARGUMENTS[function], name) == []


def test_principal_components_refuse_vectors_of_another_size() -> None:
    plane = pca(POINTS)
    assert find_faults(lambda vectors: plane.project(vectors), {}, "vectors") == []
    with pytest.raises(ArgumentError, match=r"^vectors: expected vectors of 2 numbers, got .* of shape \(1, 3\)$"):
        plane.project(np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (
            pca,
            ([1.0, 2.0],),
            "vectors: expected an array of numbers of shape (n, D), got [1.0, 2.0] of",
        ),
        (pca, ([[1.0, math.nan]],), "vectors[0, 1]: expected a finite number, got nan"),
        (pca, ([[1e200]],), "vectors[0, 0]: expected a number from -1e+100 to 1e+100, got 1e+200"),
        (pca, (np.zeros((0, 3)),), "vectors: expected at least one vector, got array([], shape=(0, 3)"),
        (pca, (["ab"],), "vectors: expected an array of numbers of shape (n, D), got ['ab']"),
        (
            procrustes,
            (
                POINTS,
                POINTS[:2],
            ),
            "reference: expected an array of shape (3, 2), got array(",
        ),
        (
            kl_divergence,
            (
                LOG_PROBABILITIES,
                LOG_PROBABILITIES[:, :1],
            ),
            "after: expected an array of shape (2, 2), got array(",
        ),
        (entropy, ([0.5],), "log_probabilities[0]: expected a number from -1e+100 to 0.001, got 0.5"),
        (
            nearest_states,
            (
                STATES.encoder,
                [1.0],
                1,
            ),
            f"vector: expected an array of shape ({SIZE})",
        ),
        (
            nearest_states,
            (
                STATES.encoder,
                np.ones(SIZE),
                -1,
            ),
            "count: expected a whole number of at least 0, got -1",
        ),
        (
            separation,
            (
                POINTS,
                [True, False, False],
            ),
            "members: expected at least 2 members",
        ),
        (
            separation,
            (
                POINTS,
                [True, False],
            ),
            "members: expected an array of shape (3), got array([ True, False])",
        ),
        (
            separation,
            (
                POINTS,
                [1, 1, 0],
            ),
            "members: expected an array of booleans of shape (n), got array(",
        ),
        (
            isolation,
            (POINTS[:1],),
            "vectors: expected at least two vectors, got array([[0., 1.]]) of",
        ),
        (
            step_distributions,
            (
                MODEL,
                TRACES[0],
            ),
            "traces: expected a list of Trace objects, got Trace(",
        ),
        (
            step_distributions,
            (
                MODEL,
                [None],
            ),
            "traces[0]: expected a Trace, got None",
        ),
        (
            attribute,
            (
                None,
                TRACES[0],
            ),
            "predictor: expected a Predictor, got None",
        ),
        (
            permute_attention,
            (
                MODEL,
                TRACES[0],
                0,
            ),
            "permutations: expected a whole number of at least 1, got 0",
        ),
        (
            permute_attention,
            (
                MODEL,
                TRACES[0],
                100,
                -1,
            ),
            "seed: expected a whole number of at least 0, got -1",
        ),
        (
            permute_attention,
            (
                make_transducer("none"),
                TRACES[0],
            ),
            "predictor: expected a model with attention",
        ),
        (
            decompose_scores,
            (
                make_transducer("none"),
                TRACES,
            ),
            "predictor: expected a model with attention by a softmax",
        ),
        (
            decompose_scores,
            (
                MODEL,
                [],
            ),
            "traces: expected attention that varies",
        ),
        (
            trace_states,
            (
                MODEL,
                TRACES,
                "yes",
            ),
            "gates: expected true or false, got 'yes'",
        ),
        (
            collect_states,
            (
                MODEL,
                TRACES,
                0,
            ),
            "max_states: expected a whole number of at least 1, got 0",
        ),
    ],
)
def test_messages_say_what_was_expected(function: Callable[..., Any], args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        function(*args)
    assert str(caught.value).startswith(message)


TRACE_FUNCTIONS: list[Callable[[Any, Trace], Any]] = [
    attribute,
    permute_attention,
    lambda model, trace: step_distributions(model, [trace]),
    lambda model, trace: trace_states(model, [trace]),
    lambda model, trace: collect_states(model, [trace]),
    lambda model, trace: decompose_scores(model, [trace]),
]
TRACE = TRACES[0]
INVALID_TRACES = [
    (replace(TRACE, text="abcabc"), "again, of 6 source symbols, not 3"),
    (replace(TRACE, attention=TRACE.attention[:, :1]), ".attention: expected "),
    (replace(TRACE, target=("v", "?", *TRACE.target[2:])), "of symbols that this model writes, not '?'"),
    (replace(TRACE, num_features=1), "again, without features"),
    (replace(TRACE, summed_features=("V",)), "again, without features"),
]


@pytest.mark.parametrize("call", TRACE_FUNCTIONS)
@pytest.mark.parametrize(("trace", "message"), INVALID_TRACES)
def test_a_trace_that_does_not_fit_the_model_is_refused(
    call: Callable[[Any, Trace], Any], trace: Trace, message: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(MODEL, trace)
    assert str(caught.value).startswith("trace") and message in str(caught.value)


@pytest.mark.parametrize("call", TRACE_FUNCTIONS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", None),
        ("source", None),
        ("target", None),
        ("num_features", "x"),
        ("attention", [[1.0], [0.5, 0.5]]),
        ("finished", np.zeros(2)),
        ("log_probabilities", np.full(len(TRACE.target), np.nan)),
    ],
)
def test_a_trace_with_a_wrong_field_is_refused_by_its_name(
    call: Callable[[Any, Trace], Any], name: str, value: object
) -> None:
    trace = replace(TRACE)
    object.__setattr__(trace, name, value)  # bypasses the type checks under pytest
    with pytest.raises(ArgumentError, match=rf"^traces?(\[0\])?\.{name}: expected "):
        call(MODEL, trace)


def test_the_trace_that_does_not_fit_is_named_by_its_index() -> None:
    with pytest.raises(ArgumentError, match=r"^traces\[1\]: expected a trace that this model can read again, of 6 "):
        step_distributions(MODEL, [TRACE, INVALID_TRACES[0][0]])
    with pytest.raises(ArgumentError, match=r"^trace: expected a trace that this model can read again, of 6 "):
        attribute(MODEL, INVALID_TRACES[0][0])


@pytest.mark.parametrize("task", ["tag", "classify", "point"])
@pytest.mark.parametrize("call", TRACE_FUNCTIONS)
def test_models_of_other_tasks_and_their_traces_are_used_or_refused(
    call: Callable[[Any, Trace], Any], task: TaskName
) -> None:
    task_examples = make_examples(task, 9, 1)
    task_model = make_untrained_predictor(make_task_config(task), task_examples)
    trace = task_model.predict([task_examples[0].source])[0]
    for model, foreign_trace in ((MODEL, trace), (task_model, TRACE)):
        with pytest.raises(InputError):
            call(model, foreign_trace)
    if call is TRACE_FUNCTIONS[2]:
        assert call(task_model, trace)[0].shape == (len(trace.target), len(task_model.vocabularies.target))
    else:
        with pytest.raises(InputError):
            call(task_model, trace)


def test_traces_with_unknown_symbols_are_accepted() -> None:
    (trace,) = MODEL.score_examples([Example("ax", "v?")])
    assert trace.unknown == (1,) and trace.unknown_target == (1,)
    assert step_distributions(MODEL, [trace])[0].shape[0] == 3
    assert attribute(MODEL, trace).occlusion.shape == (3, 2)


@pytest.mark.parametrize("call", TRACE_FUNCTIONS)
def test_the_default_device_meta_is_refused(call: Callable[[Any, Trace], Any]) -> None:
    """Regression test: it raised PyTorch's `RuntimeError` about a tensor on an unexpected device."""
    with torch.device("meta"), pytest.raises(RunError, match=r'^torch.s default device is "meta"'):
        call(MODEL, TRACE)


SINGLE = make_transducer(double=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        *TRACE_FUNCTIONS,
        lambda model, trace: nearest_states(collect_states(model, [trace]).encoder, np.arange(1.0, SIZE + 1), 3),
        lambda model, trace: nearest_states(STATES.encoder, np.arange(1.0, SIZE + 1), 3),
    ],
)
def test_results_do_not_depend_on_autocast(call: Callable[[Any, Trace], Any]) -> None:
    """Regression test: PyTorch computed in bfloat16, which neither NumPy nor the kernels read (`TypeError`)."""
    (trace,) = make_traces(SINGLE, PAIRS[2:3])
    expected = [array.tolist() for array in _float_arrays(call(SINGLE, trace))]
    with torch.autocast("cpu", torch.bfloat16):
        assert [array.tolist() for array in _float_arrays(call(SINGLE, trace))] == expected
        assert torch.is_autocast_enabled("cpu")
    assert expected


EMPTY_TRACE = replace(
    TRACE,
    target=(),
    finished=False,
    log_probabilities=np.zeros(0),
    attention=np.zeros((0, 3)),
    top_symbols=(),
    top_log_probabilities=np.zeros((0, 5)),
)


@pytest.mark.parametrize("call", TRACE_FUNCTIONS[:5])
@pytest.mark.parametrize("kind", ["gru", "none", "copying", "heads"])
def test_traces_without_source_or_output_are_accepted(call: Callable[[Any, Trace], Any], kind: str) -> None:
    model = make_transducer(kind)
    for trace in (*model.predict([""]), EMPTY_TRACE):
        if kind == "none" and call is permute_attention:
            continue
        call(model, trace)


def test_an_ensemble_has_no_states() -> None:
    combined = combine_transducers([MODEL, make_transducer(seed=4)], ["a", "b"])
    for call in (
        lambda: trace_states(combined, TRACES),
        lambda: collect_states(combined, TRACES),
        lambda: decompose_scores(combined, TRACES),
    ):
        with pytest.raises(ArgumentError, match=r"^predictor: expected a single model, got an ensemble, which "):
            call()


@pytest.mark.parametrize("name", ["tag", "classify", "point"])
def test_a_model_without_decoder_is_refused_by_the_name_of_the_argument(name: TaskName) -> None:
    examples = make_examples(name, 9, 1)
    model = make_untrained_predictor(make_task_config(name), examples)
    traces = model.predict_examples(examples[:1])
    for call in (
        *(lambda: trace_states(model, traces), lambda: collect_states(model, traces)),
        *(lambda: start_replay(model, *build_replays(model, traces)), lambda: decompose_scores(model, traces)),
        *(lambda: attribute(model, traces[0]), lambda: permute_attention(model, traces[0])),
    ):
        with pytest.raises(ConfigError, match=r"^predictor: expected outputs written symbol by symbol, but the model"):
            call()


def test_traces_with_forced_attention_are_accepted() -> None:
    model = MODEL.with_options(DecodingOptions(forced_attention=(ForcedAttention(0, (0.0, 1.0, 0.0)),)))
    (trace,) = model.predict(["abc"])
    assert attribute(model, trace).occlusion.shape == (len(trace.target), 3)


def test_lists_tensors_and_iterators_are_accepted_as_arrays() -> None:
    rows = [[0.0, 1.0], [2.0, 0.5], [1.0, 1.0]]
    expected = pca(POINTS).explained_variance_ratio
    for vectors in (
        rows,
        tuple(map(tuple, rows)),
        torch.tensor(rows, requires_grad=True),
        iter(rows),
        POINTS.astype(">f4"),
    ):
        assert pca(vectors).explained_variance_ratio == pytest.approx(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e90])
def test_results_do_not_depend_on_the_scale_of_vectors(scale: float) -> None:
    assert pca(POINTS * scale).explained_variance_ratio == pytest.approx(pca(POINTS).explained_variance_ratio)
    assert conicity(POINTS * scale) == pytest.approx(conicity(POINTS))
    np.testing.assert_allclose(pairwise_distances(POINTS * scale), pairwise_distances(POINTS) * scale)
    np.testing.assert_allclose(
        procrustes(POINTS * scale, POINTS[::-1] * scale), procrustes(POINTS, POINTS[::-1]) * scale
    )
    assert separation(POINTS * scale, MEMBERS).p == separation(POINTS, MEMBERS).p


def test_a_group_at_one_point_has_an_infinite_ratio() -> None:
    result = separation(np.array([[0.0], [0.0], [1.0]]), MEMBERS)
    assert result.ratio == math.inf and result.p == pytest.approx(1 / 3)
    assert separation(np.zeros((3, 2)), MEMBERS).ratio == 1
    assert Separation(0.0, 0.0, 1.0, 1.0).ratio == 1
