"""Streams: a list for a list, an iterator for an iterator; equal outputs in order, and bounded read-ahead."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_transducer import PLAIN, TAGGED, assert_same_trace, transducer_of

from pellucid.data.examples import Example
from pellucid.decoding import preprocessing, streaming
from pellucid.decoding.constraints import NO_CONSTRAINTS
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.preprocessing import SearchRequest, batched
from pellucid.decoding.sampling import SamplingConfig
from pellucid.decoding.streaming import ExampleChunk, chunked, decode_chunks, max_chunk_sources
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError, DataError, InputError

TEXTS = ["abc", "", "ab", "cabca", "a", "bca", "c"]
EXAMPLES = [Example(text, "vw") for text in TEXTS]
DRAWING = SamplingConfig(samples=2, seed=3)


@pytest.fixture
def chunks_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_SOURCES", 3)


def flatten(results: list[Any]) -> list[Trace]:
    return [trace for each in results for trace in (each if isinstance(each, list) else [each])]


@pytest.mark.usefixtures("chunks_of_three")
@pytest.mark.parametrize("method", ["predict", "nbest", "sample", "trace", "hypotheses", "samples", "force"])
def test_a_stream_has_the_results_of_a_list(method: str) -> None:
    given: list[Any] = [text for text in TEXTS if text] if method in ("predict", "nbest", "sample") else EXAMPLES
    given = [each for each in given if each[0]] if method == "force" else given
    more = {"nbest": (2,), "hypotheses": (2,), "sample": (DRAWING,), "samples": (DRAWING, 5)}.get(method, ())
    decode = getattr(PLAIN, method)
    listed, stream = decode(given, *more), decode(iter(given), *more)
    assert isinstance(listed, list) and isinstance(stream, Iterator)
    results = list(stream)
    assert len(results) == len(listed) == len(given)
    for one, two in zip(flatten(listed), flatten(results), strict=True):
        assert_same_trace(one, two)
        assert (one.rank, one.origin) == (two.rank, two.origin)


def test_an_endless_stream_is_read_one_chunk_ahead() -> None:
    taken = 0

    def sources() -> Iterator[str]:
        nonlocal taken
        for taken in count(1):
            yield "abc"[taken % 3]

    stream = PLAIN.predict(sources())
    assert taken == 0
    for number, trace in enumerate(islice(stream, 2 * streaming.MAX_SOURCES + 5), 1):
        assert trace.text == "abc"[number % 3]
        assert number <= taken < number + streaming.MAX_SOURCES
    assert max_chunk_sources(1) == streaming.MAX_SOURCES
    assert max_chunk_sources(1024) == 16 and max_chunk_sources(10**9) == 1


@pytest.mark.parametrize("asked", ["predict", "force", "sample", "nbest", "lattice"])
def test_chunks_are_smaller_for_long_sources_and_many_outputs(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_SYMBOLS", 120)
    taken = 0

    def examples() -> Iterator[Example]:
        nonlocal taken
        while True:
            taken += 1
            yield Example("abcabcabca", "", "")

    stream: Iterator[object]
    match asked:
        case "predict":
            stream, most = PLAIN.trace(examples()), 12
        case "force":
            pairs = (example._replace(target="vwxyz" * 4) for example in examples())
            stream, most = PLAIN.force(pairs), 4
        case "sample":
            stream, most = PLAIN.samples(examples(), SamplingConfig(samples=4)), 3
        case "nbest":
            stream, most = PLAIN.hypotheses(examples(), 6), 2
        case _:
            stream, most = PLAIN.with_beam(3).with_options(DecodingOptions(lattice=True)).trace(examples()), 4
    next(stream)
    assert taken == most


def test_a_batch_has_fewer_long_sources_than_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, asked = np.array([5, 1, 20, 3, 300, 5]), SearchRequest(2, 1, NO_CONSTRAINTS)
    rows = [1, 3, 0, 5, 2, 4]
    assert [*batched(rows, lengths, asked, 4)] == [[1, 3, 0, 5], [2, 4]]
    monkeypatch.setattr(preprocessing, "MAX_BATCH_POSITIONS", 40)
    assert [*batched(rows, lengths, asked, 4)] == [[1, 3, 0, 5], [2], [4]]
    monkeypatch.setattr(preprocessing, "MAX_BATCH_POSITIONS", 1)
    assert [*batched(rows, lengths, asked, 4)] == [[row] for row in rows]
    assert [*batched([], lengths, asked, 4)] == []


def test_recorded_steps_take_no_extra_memory() -> None:
    """Arrays kept one a step between what each step frees took 400 MB here, of which 24 MB were recorded."""
    script = """
import resource
from small import config_of, vocabularies
from pellucid.data.examples import Example
from pellucid.decoding.transducer import Transducer
from pellucid.tasks.registry import build_network
config, known = config_of({}), vocabularies("abc")
model = Transducer(config, known, build_network(config, known).eval())
list(model.force([Example("abc", "v")]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.force([Example("a" * 1000, "v" * 300)] * 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run(  # a process of its own: the greatest memory of this one is that of other tests
        [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 250_000


@pytest.mark.usefixtures("chunks_of_three")
@pytest.mark.parametrize("method", ["predict", "trace", "hypotheses"])
def test_no_reference_cycle_keeps_results(method: str) -> None:
    decode, more = getattr(PLAIN, method), {"hypotheses": (2,)}.get(method, ())
    given: list[Any] = ["abc", "ab"] if method == "predict" else EXAMPLES[:2]

    def discarded() -> list[weakref.ref[np.ndarray]]:
        results = decode(given, *more)
        return [weakref.ref(trace.attention) for trace in flatten(results)]

    gc.collect()
    gc.disable()
    try:
        assert all(each() is None for each in discarded())
    finally:
        gc.enable()


@pytest.mark.usefixtures("chunks_of_three")
def test_features_and_prefixes_go_along_with_a_stream() -> None:
    tags, texts = ["V", "N", "V;N", "", "N"], TEXTS[:5]
    for features in (tags, iter(tags)):
        for one, two in zip(TAGGED.predict(texts, tags), TAGGED.predict(iter(texts), features), strict=True):
            assert_same_trace(one, two)
    begun = ["v", "", ["w", "x"], "", "zz"]
    for prefixes in (begun, iter(begun)):
        for one, two in zip(PLAIN.predict(texts, None, begun), PLAIN.predict(iter(texts), None, prefixes), strict=True):
            assert_same_trace(one, two)
            assert one.forced == two.forced
    for one, two in zip(TAGGED.predict(texts, tags), TAGGED.predict(texts, iter(tags)), strict=True):
        assert_same_trace(one, two)


@pytest.mark.usefixtures("chunks_of_three")
@pytest.mark.parametrize(
    ("given", "message", "before"),
    [
        (["v"] * 4, "expected one prefix for each source, but source 5 has none", 4),
        (["v"] * 6, "expected one prefix for each of 5 sources, got more", 5),
        ([], "expected one prefix for each source, but source 1 has none", 0),
    ],
)
def test_unequal_numbers_are_reported_at_the_end_of_a_stream(given: list[str], message: str, before: int) -> None:
    stream, found = PLAIN.predict(iter(TEXTS[:5]), prefixes=given), list[Trace]()
    with pytest.raises(DataError, match=message):
        found.extend(stream)
    assert len(found) == before
    with pytest.raises(DataError, match=f"expected one prefix for each of 5 sources, got {len(given)}"):
        PLAIN.predict(TEXTS[:5], prefixes=given)
    with pytest.raises(DataError, match=r"expected one features text for each of 2 sources, got more"):
        TAGGED.predict(["a", "b"], (each for each in ["V"] * 9))


@pytest.mark.usefixtures("chunks_of_three")
def test_an_error_is_raised_at_its_source_and_the_model_stays_usable() -> None:
    bad: Any = (each for each in ["a", "b", "c", "a", None, "b"])
    found = list[Trace]()
    with pytest.raises(ArgumentError, match=r"^sources\[4\]: expected a string, got None$"):
        found.extend(PLAIN.predict(bad))
    assert [trace.text for trace in found] == ["a", "b", "c", "a"]
    limited = transducer_of({"data": {"max_sequence_length": 4}})
    with pytest.raises(DataError, match="source 5 has 5 symbols"):
        list(limited.predict(iter(["a", "b", "c", "a", "abcab"])))
    with pytest.raises(DataError, match="source 4 is empty"):
        list(PLAIN.force(Example(text, "v") for text in ["a", "b", "c", ""]))
    with pytest.raises(InputError, match="there is no position 1: source 5 has 0 to 0"):
        list(PLAIN.with_options(DecodingOptions(masked=(1,))).predict(iter(["ab", "bc", "ca", "ab", "a"])))
    assert PLAIN.predict(["a"])[0].output == found[0].output


@pytest.mark.parametrize("bad", [0, 1, 6, 1030])
def test_every_result_before_an_error_is_yielded(bad: int) -> None:
    """Of a part of 1,024 sources too, whichever of them is at fault."""
    texts, limited = ["a"] * (bad + 3), transducer_of({"data": {"max_sequence_length": 4}})
    prefixes, found = ["v"] * len(texts), list[Trace]()
    texts[bad] = "abcab"
    with pytest.raises(DataError, match=rf"^source {bad + 1} has 5 symbols"):
        found.extend(limited.predict(iter(texts)))
    assert len(found) == bad
    prefixes[bad] = "?"
    found = []
    with pytest.raises(InputError, match=rf"^prefix of source {bad + 1}: the model never writes the symbol '\?'"):
        found.extend(PLAIN.predict(iter(["a"] * len(prefixes)), prefixes=iter(prefixes)))
    assert len(found) == bad
    prefixes[bad] = "v" * 1000
    found = []
    with pytest.raises(
        InputError, match=rf"^prefix of source {bad + 1}: the prefix and the required symbols take 1000"
    ):
        found.extend(PLAIN.predict(iter(["a"] * len(prefixes)), prefixes=iter(prefixes)))
    assert len(found) == bad
    found = []
    with pytest.raises(DataError, match=rf"^source {bad + 1} is empty"):
        found.extend(PLAIN.force(Example("" if number == bad else "a", "v") for number in range(bad + 3)))
    assert len(found) == bad


def test_the_first_bad_prefix_of_a_list_is_named() -> None:
    with pytest.raises(InputError, match=r"^prefix of source 2: the model never writes the symbol '\?'"):
        PLAIN.predict(["a"] * 4, prefixes=["v", "?", "?", "!"])
    with pytest.raises(InputError, match=r"^prefix of source 3: the symbol 'v' is forbidden"):
        PLAIN.with_options(DecodingOptions(forbidden=("v",))).predict(["a"] * 4, prefixes=["w", "w", "v", "v"])
    with pytest.raises(InputError, match=r"^prefix: the model never writes the symbol '\?'"):
        PLAIN.with_options(DecodingOptions(prefix="?")).predict(["a"])


def test_an_error_of_the_source_itself_passes_through() -> None:
    def failing() -> Iterator[str]:
        yield "a"
        raise OSError("the disk is gone")

    stream = PLAIN.predict(failing())
    assert next(stream).text == "a"
    with pytest.raises(OSError, match="the disk is gone"):
        next(stream)


def test_a_source_iterator_may_use_the_same_model() -> None:
    stream = PLAIN.predict(PLAIN.predict(["a"])[0].output and text for text in ["ab", "c"])
    assert [trace.text for trace in stream] == ["ab", "c"]


def test_chunks_are_numbered_and_complete() -> None:
    seen = list[ExampleChunk]()

    def decode(part: ExampleChunk) -> list[str]:
        seen.append(part)
        return [example.source for example in part.examples]

    assert decode_chunks(decode, EXAMPLES, None, 1, 0) == TEXTS
    assert list(decode_chunks(decode, iter(EXAMPLES), iter("abcdefg"), 2**13, 10)) == TEXTS
    assert [part.first for part in seen] == [0, 10, 12, 14, 16]
    assert [part.prefixes for part in seen] == [None, ["a", "b"], ["c", "d"], ["e", "f"], ["g"]]
    assert list(chunked(range(5), 2**13, int)) == [[0, 1], [2, 3], [4]] and list(chunked([], 2, len)) == []
