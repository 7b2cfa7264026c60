"""A trace has a rounded JSON form and a string of one line, and checks its fields."""

import json
import math
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pellucid.decoding.trace import END, Trace
from pellucid.decoding.trace_schema import VERSION
from pellucid.errors import ArgumentError, DataError


def make_trace(**changes: object) -> Trace:
    fields: dict[str, Any] = {
        "text": "a?",
        "source": ("V", "a", "?"),
        "num_features": 1,
        "unknown": (2,),
        "target": ("x", END),
        "output": "x",
        "finished": True,
        "log_probabilities": np.array([-0.1234567, -1e-9], dtype=np.float32),
        "attention": np.array([[0.25, 0.5, 0.25], [1 / 3, 1 / 3, 1 / 3]], dtype=np.float32),
        "top_symbols": (("x", END), (END, "x")),
        "top_log_probabilities": np.array([[-0.1234567, -2.5], [-1e-9, -20.0]], dtype=np.float32),
    }
    return Trace(**{**fields, **changes})


def make_empty_trace() -> Trace:
    fields = {"source": (), "num_features": 0, "unknown": (), "target": (), "top_symbols": ()}
    arrays = {name: np.zeros((0, 0), dtype=np.float32) for name in ("attention", "top_log_probabilities")}
    return make_trace(text="", output="", log_probabilities=np.zeros(0, dtype=np.float32), **fields, **arrays)


def test_the_json_form_has_all_fields_to_six_decimals() -> None:
    assert json.loads(make_trace().to_json()) == {
        "version": VERSION,
        "text": "a?",
        "output": "x",
        "score": -0.123457,
        "finished": True,
        "source": ["V", "a", "?"],
        "num_features": 1,
        "unknown": [2],
        "target": ["x", END],
        "log_probabilities": [-0.123457, 0.0],
        "attention": [[0.25, 0.5, 0.25], [0.333333, 0.333333, 0.333333]],
        "top": [[["x", -0.123457], [END, -2.5]], [[END, 0.0], ["x", -20.0]]],
        "rank": 1,
    }


def reject_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("trace", [make_trace(), make_empty_trace(), make_trace(text='"\\\n\0', output="ü🙂\u2028")])
def test_the_json_form_is_strict_json_on_one_line(trace: Trace, compact: bool) -> None:
    text = trace.to_json(compact)
    record = json.loads(text, parse_constant=reject_constant)
    assert (record["text"], record["output"]) == (trace.text, trace.output) and "\n" not in text


def test_an_empty_trace_has_an_empty_json_form() -> None:
    record = json.loads(make_empty_trace().to_json())
    assert record["attention"] == record["top"] == record["log_probabilities"] == record["target"] == []
    assert record["score"] == 0


def test_the_score_is_the_sum_over_steps_in_double_precision() -> None:
    T = 10_000
    many = np.full(T, -0.1, dtype=np.float32)
    trace = make_trace(
        target=("x",) * T,
        log_probabilities=many,
        attention=np.ones((T, 1), dtype=np.float32),
        top_log_probabilities=many[:, None],
    )
    assert trace.score == pytest.approx(T * float(many[0]), rel=1e-12)


def test_the_string_of_a_trace_can_be_printed() -> None:
    """Regression test: a lone surrogate of a source was a `UnicodeEncodeError`."""
    assert str(replace(make_trace(), text="a\ud800")).startswith("a\ufffd → ")


def test_the_string_of_a_trace_has_source_and_output() -> None:
    assert str(make_trace()) == "a? → x"


def test_a_trace_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        make_trace().output = "y"  # type: ignore[misc]


HUGE_NUMBER = 10**5000


@pytest.mark.parametrize("name", ["version", "rank", "num_features"])
def test_a_record_number_of_thousands_of_digits_is_refused(name: str) -> None:
    with pytest.raises(
        DataError, match=f"{name}.* got a number with thousands of digits|version a number with thousands"
    ):
        Trace.from_record(msgspec.structs.replace(make_trace().to_record(), **{name: HUGE_NUMBER}))


@pytest.mark.parametrize("changes", [{"origin": "x" * 10**6}, {"task": "x" * 10**6}, {"rank": "x" * 10**6}])
def test_a_message_about_a_record_is_short(changes: dict[str, object]) -> None:
    record = msgspec.structs.replace(make_trace().to_record(), **changes)
    with pytest.raises(DataError, match=next(iter(changes))) as caught:
        Trace.from_record(record)
    with pytest.raises(DataError, match=next(iter(changes))) as read:
        Trace.from_json(msgspec.json.encode(record))
    assert max(len(str(caught.value)), len(str(read.value))) < 500


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", b"a"),
        ("output", date(2026, 1, 1)),
        ("source", {"V"}),
        ("log_probabilities", {-0.5}),
        ("target", ["x", b"y"]),
        ("rank", Decimal(1)),
        ("search_score", Decimal(1)),
        ("top", [{("x", -1.0)}, []]),
        ("search_score", math.nan),
        ("search_score", math.inf),
        ("top", [[("x", math.nan)], []]),
        ("log_probabilities", [-1e39, 0.0]),
        ("attention", [[1e39, 0, 0], [0, 0, 1]]),
        ("top", [[("x", -1e39)], []]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_record_value_of_another_type_is_refused_with_its_field(name: str, value: object) -> None:
    with pytest.raises(DataError, match=name):
        Trace.from_record(msgspec.structs.replace(make_trace().to_record(), **{name: value}))


def test_a_changed_field_is_checked_when_the_trace_is_written(tmp_path: Path) -> None:
    """Under pytest, the constructor checks types, so the test sets fields by object.__setattr__."""
    for name, value, message in (
        ("source", 5, "trace.source: expected a list of strings, got 5"),
        ("target", ("a",), "trace.top_symbols: expected as many symbols for each of 1 steps"),
        ("attention", np.zeros((1, 1)), "trace.attention: expected"),
        ("attention", [[1.0]], "trace.attention: expected an array of floating-point numbers, got"),
        ("heads", np.zeros((2, 2), np.float32), "trace.heads: expected any number of ×"),
        (
            "log_probabilities",
            np.array([np.nan, 0.0]),
            "trace.log_probabilities: expected log-probabilities, which are",
        ),
        ("log_probabilities", np.array([0.0, np.inf]), r"trace.log_probabilities: .*, got inf at \[1\]"),
        ("log_probabilities", np.array([0.1, 0.0]), r"trace.log_probabilities: .*, got 0.1 at \[0\]"),
        ("log_probabilities", np.array([-1e39, 0.0]), r"trace.log_probabilities: .*, got -1e\+39 at \[0\]"),
        ("top_log_probabilities", np.full((2, 2), np.nan), r"trace.top_log_probabilities: .*, got nan at \[0, 0\]"),
        ("attention", np.full((2, 3), -0.1), r"trace.attention: expected weights from 0 to 1, got -0.1 at \[0, 0\]"),
        ("attention", np.full((2, 3), np.nan), "trace.attention: expected weights from 0 to 1, got nan"),
        ("heads", np.full((1, 2, 3), 1.1), "trace.heads: expected weights from 0 to 1, got 1.1"),
        ("hop_weights", np.full((1, 3), np.inf), "trace.hop_weights: expected weights from 0 to 1, got inf"),
        ("nbest_probability", 1.1, "trace.nbest_probability: expected a number from 0 to 1, got 1.1"),
        ("search_score", math.inf, "trace.search_score: expected a finite number or None, got inf"),
        ("num_features", 9, "trace.num_features: expected 0 to"),
        ("unknown", (7,), "trace.unknown: expected numbers from 0 to"),
        ("unknown", (1, 1), "trace.unknown: expected each number once, in ascending order, got 1 after 1"),
        ("forced", (1, 0), "trace.forced: expected each number once, in ascending order, got 0 after 1"),
        ("rank", 0, "trace.rank: expected a number from 1 to"),
        ("origin", "dream", "trace.origin: expected search, sample, given, lexicon or pair_ngram, got 'dream'"),
        ("task", "tga", "trace.task: expected .*did you mean 'tag'"),
    ):
        trace = make_trace()
        object.__setattr__(trace, name, value)
        writers = (trace.to_json, trace._repr_html_, lambda path=tmp_path / "a.svg": trace.save(path))  # noqa: B023
        for write in writers:
            with pytest.raises(ArgumentError, match=f"^{message}"):
                write()
    assert list(tmp_path.iterdir()) == []


def test_infinite_log_probabilities_and_rounded_weights_are_written() -> None:
    trace = make_trace(
        log_probabilities=np.array([-np.inf, 5e-4], np.float32),
        top_log_probabilities=np.array([[-1e9, -np.inf], [0.0, -np.inf]], np.float32),
        attention=np.array([[1.0005, 0.0, 0.0], [0.0, 0.0, 0.0]], np.float32),
    )
    assert Trace.from_json(trace.to_json()).to_json() == trace.to_json()


@pytest.mark.parametrize("changes", [{"target": 5}, {"target": {"a"}}, {"task": ["x"]}, {"finished": np.array([1, 2])}])
def test_symbols_name_a_field_that_a_program_has_changed(changes: dict[str, Any]) -> None:
    changed = make_trace()
    for name, value in changes.items():
        object.__setattr__(changed, name, value)
    with pytest.raises(ArgumentError, match=next(iter(changes))):
        changed.symbols  # noqa: B018


@pytest.mark.parametrize("task", [["x"], {}, bytearray(b"tag"), None, 5])
@pytest.mark.parametrize("name", ["autoregressive", "per_position"])
def test_properties_of_the_task_name_a_task_of_a_wrong_type(name: str, task: object) -> None:
    changed = make_trace()
    object.__setattr__(changed, "task", task)
    with pytest.raises(ArgumentError, match=r"^trace\.task: expected a string, got "):
        getattr(changed, name)
