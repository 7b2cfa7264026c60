"""The JSON form of a trace restores the trace, in Python and in the page."""

import base64
import copy
import json
import math
import pickle
import struct
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sample_traces import HOSTILE_SYMBOLS, make_small_trace, write_former_version
from test_trace import make_empty_trace, make_trace

from pellucid.config.settings import DEFAULT_TASK, TaskName
from pellucid.config.task_settings import BUILT_IN_SETTINGS
from pellucid.decoding.search_tree import SearchTree
from pellucid.decoding.trace import END, Trace, identity_attention
from pellucid.decoding.trace_schema import (
    LOG_ZERO,
    VERSION,
    NodeStatus,
    Origin,
    SearchTreeRecord,
    TraceRecord,
    decode_array,
    encode_array,
    encode_json,
    finite_log_probability,
    list_array,
)
from pellucid.errors import ArgumentError, DataError
from pellucid.viewer.examples import page_trace_without_model
from pellucid.viewer.schema import PageTrace

GUIDE = Path(__file__).parents[1] / "docs" / "trace-json.md"
SYMBOLS = st.sampled_from(
    ["a", "b", "⟨end⟩", "", "two words", "ü🙂", *(each for each in HOSTILE_SYMBOLS if each != "\ud800")]
)
WEIGHTS = st.floats(0, 1, width=32)
LOG_PROBABILITIES = st.one_of(st.floats(-50, 0, width=32), st.just(-math.inf))


def draw_array(draw: st.DrawFn, shape: tuple[int, ...], elements: st.SearchStrategy[float]) -> np.ndarray:
    """Draw a float32 array of the given shape."""
    return draw(arrays.arrays(np.float32, shape, elements=elements))


def draw_weights(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """Draw attention weights of the given shape, whose rows sum to at most one."""
    weights = draw_array(draw, shape, WEIGHTS)
    scaled: np.ndarray = weights / np.maximum(weights.sum(axis=-1, keepdims=True, dtype=np.float32), 1)
    return scaled


def index_tuples(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Return a strategy of up to three indices below a count, in ascending order."""
    return st.sets(st.integers(0, count - 1), max_size=3).map(sorted).map(tuple) if count else st.just(())


@st.composite
def search_tree_fields(draw: st.DrawFn, positions: int) -> dict[str, Any]:
    """Draw the fields of a search tree over the given number of source positions."""
    nodes, rows = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    return dict(
        symbols=tuple(draw(st.lists(SYMBOLS, min_size=nodes, max_size=nodes))),
        parents=np.array([draw(st.integers(-1, node - 1)) for node in range(nodes)]),
        log_probabilities=draw_array(draw, (nodes,), st.floats(-50, 0, width=32)),
        scores=draw_array(draw, (nodes,), st.floats(-50, 0, width=32)),
        statuses=tuple(draw(st.lists(st.sampled_from(get_args(NodeStatus)), min_size=nodes, max_size=nodes))),
        attention_rows=np.array(draw(st.lists(st.integers(0, rows - 1), min_size=nodes, max_size=nodes))),
        attention=draw_weights(draw, (rows, positions)),
        leaf=draw(st.integers(-1, nodes - 1)),
    )


@st.composite
def trace_fields(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the fields of a trace of any task, with any valid values.

    The test constructs the trace, because the check of its types draws random numbers, which a strategy must not.
    """
    task: TaskName = draw(st.sampled_from(list(BUILT_IN_SETTINGS)))
    S, T, k = draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.integers(1, 3))
    features = draw(st.integers(0, S))
    if "tag" in task:  # each source position has a tag
        T = S - features
        T += task == "tag-and-classify" and T > 0
    likely = -np.sort(-draw_array(draw, (T, k), LOG_PROBABILITIES), axis=1)
    heads, hops = draw(st.none() | st.integers(1, 2)), draw(st.none() | st.integers(1, 3))
    target, finished = draw(st.lists(SYMBOLS, min_size=T, max_size=T)), draw(st.booleans())
    if task != DEFAULT_TASK:
        finished = True
    elif finished and T:
        target[-1] = END
    elif features < S:
        finished = False
    return dict(
        text=draw(SYMBOLS),
        source=tuple(draw(st.lists(SYMBOLS, min_size=S, max_size=S))),
        num_features=features,
        unknown=draw(index_tuples(S)),
        target=tuple(target),
        output=draw(SYMBOLS),
        finished=finished,
        log_probabilities=draw_array(draw, (T,), LOG_PROBABILITIES),
        attention=np.eye(T, S, features, dtype=np.float32) if task == "tag" else draw_weights(draw, (T, S)),
        top_symbols=tuple(tuple(draw(st.lists(SYMBOLS, min_size=k, max_size=k))) for _ in range(T)),
        top_log_probabilities=likely,
        origin=draw(st.sampled_from(get_args(Origin))),
        rank=draw(st.integers(1, 9)),
        nbest_probability=draw(st.none() | st.floats(0, 1)),
        search_score=draw(st.none() | st.floats(-50, 0)),
        unknown_target=draw(index_tuples(T)),
        forced=draw(index_tuples(T)),
        forced_attention=draw(index_tuples(T)),
        search_tree=draw(st.none() | search_tree_fields(S)),
        heads=None if heads is None else draw_weights(draw, (heads, T, S)),
        summed_features=draw(st.lists(SYMBOLS, max_size=2).map(tuple)),
        task=task,
        hop_weights=None if hops is None else draw_weights(draw, (hops, S)),
    )


def assert_equal_values(one: object, other: object, tolerance: float, name: str = "") -> None:
    """Assert that two values of a trace are equal, numbers up to a tolerance and −∞ exactly."""
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray) and one.shape == other.shape, name
        if tolerance:
            np.testing.assert_allclose(one, other, rtol=2e-7, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, name)
    elif isinstance(one, float) and tolerance:
        assert other == pytest.approx(one, abs=tolerance), name
    elif isinstance(one, SearchTree):
        assert isinstance(other, SearchTree), name
        for field in fields(one):
            assert_equal_values(
                getattr(one, field.name), getattr(other, field.name), tolerance, f"search_tree.{field.name}"
            )
    else:
        assert one == other, name


@settings(deadline=None)
@given(trace_fields(), st.booleans())
def test_traces_of_all_tasks_are_restored(drawn_fields: dict[str, Any], compact: bool) -> None:
    """The compact form is exact. Lists have six decimals, and so have candidates of probability above 0."""
    search_tree = drawn_fields["search_tree"]
    trace = Trace(**{**drawn_fields, "search_tree": None if search_tree is None else SearchTree(**search_tree)})
    restored = Trace.from_json(trace.to_json(compact))
    top_fields = ("top_symbols", "top_log_probabilities")
    for field in fields(trace):
        if field.name not in top_fields:
            tolerance = 0.0 if compact else 5.1e-7
            assert_equal_values(getattr(trace, field.name), getattr(restored, field.name), tolerance, field.name)
    for step, (symbols, values) in enumerate(zip(trace.top_symbols, trace.top_log_probabilities, strict=True)):
        likely_symbols = [symbol for symbol, value in zip(symbols, values, strict=True) if value > -np.inf]
        count = len(likely_symbols)
        assert list(restored.top_symbols[step][:count]) == likely_symbols
        np.testing.assert_allclose(restored.top_log_probabilities[step, :count], values[:count], rtol=2e-7, atol=5.1e-7)
        assert set(restored.top_symbols[step][count:]) <= {""}
        assert np.isneginf(restored.top_log_probabilities[step, count:]).all()
    assert restored.to_json(compact=True) == Trace.from_json(restored.to_json(compact=True)).to_json(compact=True)


@settings(deadline=None)
@given(trace_fields(), st.booleans())
def test_traces_of_the_former_version_are_read(drawn_fields: dict[str, Any], compact: bool) -> None:
    search_tree = drawn_fields["search_tree"]
    trace = Trace(**{**drawn_fields, "search_tree": None if search_tree is None else SearchTree(**search_tree)})
    text = trace.to_json(compact)
    assert Trace.from_json(write_former_version(text)).to_json(compact) == Trace.from_json(text).to_json(compact)


def test_the_names_of_the_former_version_are_read_in_that_version_only() -> None:
    former = write_former_version(make_trace().to_json())
    assert json.loads(former)["features"] == 1
    for text, message in (
        (former.replace('"version": 3', f'"version": {VERSION}'), "missing required field `num_features`"),
        (make_trace_json(version=3), "missing required field `features`"),
        (former.replace('"version": 3', '"version": 2'), "version 2 of the schema; expected version 4 or 3"),
        (former.replace('"features": 1', '"features": "a"'), "features"),
        (former.replace('"features": 1', '"features": 9'), "num_features: expected 0 to"),
    ):
        with pytest.raises(DataError, match=message):
            Trace.from_json(text)


def test_list_and_compact_fields_may_be_mixed() -> None:
    mixed = json.loads(make_small_trace().to_json())
    mixed["attention"] = json.loads(make_small_trace().to_json(compact=True))["attention"]
    assert_equal_values(Trace.from_json(json.dumps(mixed)).attention, make_small_trace().attention, 0)


def test_a_trace_of_the_page_is_read() -> None:
    page_trace = page_trace_without_model(make_small_trace())
    restored = Trace.from_json(msgspec.json.encode(page_trace))
    assert restored.to_json(compact=True) == make_small_trace().to_json(compact=True)
    assert TraceRecord.__struct_fields__ == PageTrace.__struct_fields__[: len(TraceRecord.__struct_fields__)]


def test_terminal_control_characters_are_escaped_in_json() -> None:
    text = "a\x7f\x9b\x85\u2028\u202e\u2069\u00a0\u2065é"
    line = encode_json({"output": text}).decode("utf-8")
    assert line == r'{"output":"a\u007f\u009b\u0085\u2028\u202e\u2069' + '\u00a0\u2065é"}'
    assert json.loads(line) == {"output": text}


@pytest.mark.parametrize("compact", [False, True])
def test_a_lone_surrogate_becomes_a_replacement_character_as_documented(compact: bool) -> None:
    assert Trace.from_json(replace(make_small_trace(), text="a\ud800").to_json(compact)).text == "a\ufffd"
    guide = (Path(__file__).parents[1] / "docs/trace-json.md").read_text(encoding="utf-8")
    assert all("A lone surrogate" in text and "becomes U+FFFD" in text for text in (Trace.to_json.__doc__ or "", guide))


def make_trace_json(**changes: Any) -> str:  # noqa: ANN401 (any JSON)
    """Return the JSON of a trace with changed fields; None omits a field."""
    plain = {**json.loads(make_trace().to_json()), **changes}
    return json.dumps({name: value for name, value in plain.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not a trace of schema version 4"),
        ("[]", "this is not a trace"),
        (b"\xff", "this is not a trace"),
        (make_trace_json(version=None), "missing required field `version`"),
        (make_trace_json(version=VERSION + 1), "the trace has version 5 of the schema; expected version 4 or 3"),
        (make_trace_json(source=[1]), r"`str`.*source"),
        (make_trace_json(target=["x"]), "expected candidates of 1 steps"),
        (make_trace_json(log_probabilities=[0.5]), "log_probabilities: expected 2 numbers, got 1"),
        (make_trace_json(attention=[[0.5], [0.5]]), "attention: expected 2 × 3 numbers, got 2 × 1"),
        (make_trace_json(attention=[[0.5], []]), "attention: expected an array of numbers"),
        (make_trace_json(attention={"shape": [2, 3], "data": "AAAA"}), "attention: expected an array of numbers"),
        (make_trace_json(attention={"shape": [10**30, 0], "data": ""}), "attention: expected an array of numbers"),
        (make_trace_json(other=None)[:-1] + ', "other": ' + "[" * 100_000, "this is not a trace"),
        (make_trace_json(attention={"shape": [2, -3], "data": ""}), r">= 0.*shape"),
        (make_trace_json(attention={"shape": [2, 3], "data": "?"}), "attention: expected an array of numbers"),
        (make_trace_json(log_probabilities={"shape": [2], "data": "AACAfwAAgH8="}), "expected finite numbers"),
        (make_trace_json(heads=[[[0.5]]]), "heads: expected any number of × 2 × 3 numbers, got 1 × 1 × 1"),
        (make_trace_json(num_features=4), "num_features: expected 0 to 3"),
        (make_trace_json(unknown=[3]), "unknown: expected numbers from 0 to 2"),
        (make_trace_json(unknown=[0, 2, 2]), "unknown: expected each number once, in ascending order, got 2 after 2"),
        (make_trace_json(unknown=[1, 0]), "unknown: expected each number once, in ascending order, got 0 after 1"),
        (make_trace_json(forced_attention=[1, 1]), "forced_attention: expected each number once, in ascending order"),
        (make_trace_json(forced=[-1]), "forced: expected numbers from 0 to 1"),
        (make_trace_json(origin="dream"), r"'dream'.*origin"),
        (
            make_trace_json(log_probabilities=[1000.0, 0]),
            "log_probabilities: expected log-probabilities, which are at most 0",
        ),
        (make_trace_json(top=[[["a", 1000.0]], []]), "top: expected log-probabilities, which are at most 0"),
        (make_trace_json(top=[[["a", -1]] * 65, []]), "top: expected at most 64 candidates of a step, got 65"),
        (make_trace_json(attention=[[1e30] * 3] * 2), "attention: expected weights from 0 to 1"),
        (make_trace_json(attention=[[-1] * 3] * 2), "attention: expected weights from 0 to 1"),
        (make_trace_json(heads=[[[2] * 3] * 2]), "heads: expected weights from 0 to 1"),
        (
            make_trace_json(attention=[[0.9] * 3, [0.2, 0.3, 0.5]]),
            r"^attention\[0\]: expected a row of weights that sums to at most 1, got a sum of 2.7; divide",
        ),
        (make_trace_json(attention=[[0.25] * 3, [0.2, 0.4, 0.5]]), r"^attention\[1\]: .* got a sum of 1.1;"),
        (make_trace_json(heads=[[[0.1] * 3] * 2, [[0.1] * 3, [0.9] * 3]]), r"^heads\[1, 1\]: .* got a sum of 2.7;"),
        (make_trace_json(hop_weights=[[0.9] * 3]), r"^hop_weights\[0\]: expected a row of weights that sums to at"),
        (make_trace_json(heads=[]), "^heads: expected the weights of at least one head, got none$"),
        (make_trace_json(hop_weights=[]), "^hop_weights: expected the weights of at least one hop, got none$"),
        (
            make_trace_json(target=["x", "y"]),
            "^target: expected '⟨end⟩' as the last symbol of a finished output, got 'y'$",
        ),
        (
            make_trace_json(target=[], log_probabilities=[], attention=[], top=[]),
            "^target: expected '⟨end⟩' as the last symbol of a finished output, got no symbol$",
        ),
        (make_trace_json(task="classify", finished=False), "^finished: expected true, as in every trace of the task"),
        (make_trace_json(score=-1e308)[:-1] + ', "score": -1e999}', "^score: expected the sum of the|out of range"),
        (make_trace_json(score=5), "^score: expected the sum of the log-probabilities, which is at most 0, got 5"),
        (make_trace_json(nbest_probability=2.5), "nbest_probability: expected a number from 0 to 1, got 2.5"),
        (make_trace_json(rank=-1), "rank: expected a number from 1 to"),
        (make_trace_json(rank=0), "rank: expected a number from 1 to"),
        (make_trace_json(rank=10**18), "rank: expected a number from 1 to"),
    ],
)
def test_invalid_traces_are_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Trace.from_json(text)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("attention", [[0.9] * 3], r"^search_tree\.attention\[0\]: expected a row of weights that sums to at most 1"),
        ("parents", [0], "parents that come before their nodes"),
        ("leaf", 1, "a leaf among the nodes"),
        ("attention_rows", [1], "attention_rows that are rows"),
        ("statuses", [], "a parent, a status and a row of attention"),
        ("attention", [[0.5]], r"^search_tree\.attention: expected any number of × 3"),
        ("scores", [], r"^search_tree\.scores: expected 1 numbers, got 0"),
        ("scores", [1e9], r"^search_tree\.scores: expected log-probabilities, which are at most 0"),
        (
            "log_probabilities",
            [1.0],
            r"^search_tree\.log_probabilities: expected log-probabilities, which are at most 0",
        ),
    ],
)
def test_invalid_search_trees_are_refused(name: str, value: object, message: str) -> None:
    search_tree = {
        **{"symbols": ["x"], "parents": [-1], "log_probabilities": [0], "scores": [0]},
        **{"statuses": ["kept"], "attention_rows": [0], "attention": [[1, 0, 0]], "leaf": 0},
    }
    assert Trace.from_json(make_trace_json(search_tree=search_tree)).search_tree is not None
    with pytest.raises(DataError, match=message):
        Trace.from_json(make_trace_json(search_tree={**search_tree, name: value}))


@pytest.mark.parametrize("rows", [30_000_000, 2**40])
@pytest.mark.parametrize(("name", "rest"), [("heads", [0, 0]), ("hop_weights", [0]), ("attention", [0])])
def test_the_number_of_empty_rows_is_limited(name: str, rest: list[int], rows: int) -> None:
    """A few bytes could otherwise become gigabytes of lists."""
    array = {"shape": [rows, *rest], "data": ""}
    search_tree = {
        **{"symbols": [], "parents": [], "log_probabilities": [], "scores": []},
        **{"statuses": [], "attention_rows": [], "attention": array, "leaf": -1},
    }
    empty_fields = {"source": [], "target": [], "num_features": 0, "unknown": [], "forced": [], "forced_attention": []}
    empty_fields |= {
        "log_probabilities": [],
        "attention": [],
        "top": [],
        "unknown_target": [],
        "heads": None,
        "hop_weights": None,
    }
    changes = {"search_tree": search_tree} if name == "attention" else {name: array}
    assert Trace.from_json(make_trace_json(**empty_fields)).target == ()
    with pytest.raises(DataError, match=f"{name}: expected at most 1024 rows where none of them holds a number"):
        Trace.from_json(make_trace_json(**{**empty_fields, **changes}))


def test_rows_that_sum_to_less_than_one_are_read() -> None:
    """Members of an ensemble with monotonic attention give such rows."""
    weights = [[0.25, 0.25, 0.0], [0.0, 0.0, 0.0]]
    assert Trace.from_json(make_trace_json(attention=weights, heads=[weights, weights])).attention.tolist() == weights


def test_rows_that_sum_to_more_than_one_are_not_written() -> None:
    trace = make_trace(attention=np.full((2, 3), 0.9, np.float32))
    with pytest.raises(
        ArgumentError, match=r"^trace\.attention\[0\]: expected a row of weights that sums to at most 1"
    ):
        trace.to_json()


def test_a_record_of_other_types_is_refused() -> None:
    for changes in ({"target": None}, {"source": [1]}, {"rank": "1"}, {"top": 5}, {"text": object()}):
        record = msgspec.structs.replace(make_small_trace().to_record(), **changes)
        with pytest.raises(DataError, match="this is not a trace of schema version 4"):
            Trace.from_record(record)


@pytest.mark.parametrize("source", [[], ["a"], ["V", "a", "b", "c"]])
def test_every_position_has_one_tag(source: list[str]) -> None:
    """The attention of tags is not stored; its size follows from the numbers of symbols and tags."""
    features = int(len(source) > 1)
    text = make_trace_json(task="tag", source=source, num_features=features, unknown=[])
    message = rf"^target: expected a tag for each of {len(source) - features} source positions?, got 2$"
    with pytest.raises(DataError, match=message):
        Trace.from_json(text)
    fitting = Trace.from_json(
        make_trace_json(task="tag", source=["V", "a", "b"], num_features=1, unknown=[], attention=[])
    )
    assert fitting.attention.tolist() == [[0, 1, 0], [0, 0, 1]]
    for attention, reason in (([[1.0, 0, 0], [0, 1, 0]], "no weights, because"), ([[0.5], []], "an array of numbers")):
        stored = make_trace_json(task="tag", source=["a", "b"], num_features=0, unknown=[], attention=attention)
        with pytest.raises(DataError, match=f"^attention: expected {reason}"):
            Trace.from_json(stored)
    object.__setattr__(fitting, "source", ("a",))
    object.__setattr__(fitting, "num_features", 0)
    with pytest.raises(ArgumentError, match=r"^trace\.target: expected a tag for each of 1 source position, got 2"):
        fitting.to_json()


@pytest.mark.slow
def test_tags_of_a_long_source_take_little_memory() -> None:
    """The attention of tags is an identity matrix, which would take 40 GB if it were stored."""
    count, features = 100_000, 2
    plain = {**json.loads(make_trace().to_json()), "task": "tag", "source": ["s"] * (count + features)}
    plain |= {"num_features": features, "target": ["t"] * count, "log_probabilities": [0] * count, "attention": []}
    trace = Trace.from_json(json.dumps({**plain, "top": [[]] * count}))
    assert trace.attention.shape == (count, count + features)
    assert trace.attention[:3, :6].tolist() == np.eye(3, 6, 2).tolist()
    assert trace.attention[-1, -3:].tolist() == [0, 0, 1]
    assert Trace.from_json(trace.to_json()).to_json() == trace.to_json()


@pytest.mark.parametrize("copy_trace", [lambda trace: pickle.loads(pickle.dumps(trace)), copy.deepcopy, copy.copy])
def test_copies_of_tags_take_little_memory(copy_trace: Callable[[Trace], Trace]) -> None:
    for count, features in ((100_000, 0), (3, 2)):
        tags = replace(
            make_small_trace(),
            task="tag",
            num_features=features,
            source=("s",) * (count + features),
            target=("t",) * count,
            log_probabilities=np.zeros(count, np.float32),
            attention=identity_attention(count, count + features, features),
            top_symbols=((),) * count,
            top_log_probabilities=np.zeros((count, 0), np.float32),
        )
        trace = copy_trace(tags)
        assert trace.source == tags.source and trace.attention.strides == (-4, 4)
        assert np.array_equal(trace.attention[:3], tags.attention[:3])
    assert len(pickle.dumps(trace)) < 2000
    for weights in (np.full((3, 5), 0.5, np.float32), identity_attention(3, 5, 1), np.eye(3, 5)):
        other = copy_trace(replace(trace, attention=weights))
        assert other.attention.tolist() == weights.tolist() and other.attention.dtype == weights.dtype


@pytest.mark.parametrize(("steps", "positions", "features"), [(0, 0, 0), (0, 2, 1), (2, 0, 0), (2, 3, 3), (4, 2, 1)])
def test_the_weights_of_tags_are_an_identity(steps: int, positions: int, features: int) -> None:
    result = identity_attention(steps, positions, features)
    assert result.dtype == np.float32 and np.array_equal(result, np.eye(steps, positions, features))


@settings(deadline=None)
@given(arrays.arrays(np.float32, st.integers(1, 40), elements=st.floats(-50, 0, width=32)))
def test_writing_a_read_trace_gives_the_same_text(values: np.ndarray) -> None:
    """The score is the sum of the rounded log-probabilities, so it does not change after reading."""
    count = len(values)
    trace = replace(
        make_small_trace(),
        target=("a",) * count,
        finished=False,
        log_probabilities=values,
        attention=np.zeros((count, 3), np.float32),
        top_symbols=((),) * count,
        top_log_probabilities=np.zeros((count, 0), np.float32),
    )
    text = trace.to_json()
    assert Trace.from_json(text).to_json() == text
    record = trace.to_record()
    assert record.score == pytest.approx(sum(record.log_probabilities), abs=5.1e-7)  # type: ignore[arg-type]


def test_pickling_does_not_change_the_written_trace() -> None:
    for compact in (False, True):
        for trace in (
            make_small_trace(),
            replace(make_small_trace(), origin="sample", task="classify"),
        ):
            assert pickle.loads(pickle.dumps(trace)).to_json(compact) == trace.to_json(compact)


def test_every_field_is_documented() -> None:
    text = GUIDE.read_text("utf-8")
    for kind in (TraceRecord, SearchTreeRecord):
        missing = [name for name in kind.__struct_fields__ if f"| `{name}` |" not in text]
        assert not missing, f"docs/trace-json.md has no row for {missing}"


@given(arrays.arrays(np.float32, arrays.array_shapes(max_dims=3, min_side=0), elements=st.floats(-1e6, 1e6, width=32)))
def test_arrays_are_restored_bit_for_bit(values: np.ndarray) -> None:
    restored = decode_array(encode_array(values))
    assert restored.shape == values.shape
    np.testing.assert_array_equal(restored, values)


def test_encoded_arrays_are_row_major_and_little_endian() -> None:
    encoded = encode_array(np.array([[1.5, -2.0], [0.25, 4.0]]))
    assert encoded.shape == [2, 2]
    assert struct.unpack("<4f", base64.b64decode(encoded.data)) == (1.5, -2.0, 0.25, 4.0)


def test_lists_are_rounded() -> None:
    assert list_array(np.array([[1 / 3, 2e-7]], np.float32)) == [[0.333333, 0.0]]


def test_arrays_have_no_nan_and_no_infinity() -> None:
    assert np.isfinite(decode_array(encode_array(np.array([np.nan, -np.inf, np.inf])))).all()
    assert finite_log_probability(float("-inf")) == LOG_ZERO and finite_log_probability(float("nan")) == 0
    assert finite_log_probability(-3.5) == -3.5
    impossible = make_trace(log_probabilities=np.array([-np.inf, -1], np.float32))
    for compact in (False, True):
        record = impossible.to_record(compact)
        assert record.score == LOG_ZERO and decode_array(record.log_probabilities).tolist() == [LOG_ZERO, -1]


def test_an_empty_trace_is_restored() -> None:
    restored = Trace.from_json(make_empty_trace().to_json())
    assert restored.attention.shape == restored.top_log_probabilities.shape == (0, 0) and restored.target == ()
