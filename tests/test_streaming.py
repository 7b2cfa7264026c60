"""Decoding maps a list to a list and an iterator to an iterator, with equal outputs and bounded read-ahead."""

import gc
import io
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from msgspec.structs import replace as replace_struct
from task_cases import make_examples, make_task_config, make_untrained_predictor
from test_transducer import PLAIN, TAGGED, assert_same_trace, transducer_of

from pellucid.argument_checks import convert_argument
from pellucid.cli.sources import arrived_chunks
from pellucid.config.settings import SearchConfig
from pellucid.data.examples import Example
from pellucid.data.lines import LineStream
from pellucid.decoding import base_predictor as predictor_module
from pellucid.decoding import preprocessing, streaming
from pellucid.decoding.constraints import NO_CONSTRAINTS
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import ChunkConfig, split_into_batches
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.streaming import ExampleChunk, chunked, decode_chunks, max_chunk_sources
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError, DataError, InputError

TEXTS = ["abc", "", "ab", "cabca", "a", "bca", "c"]
EXAMPLES = [Example(text, "vw") for text in TEXTS]
SAMPLING = SamplingConfig(samples=2, seed=3)


@pytest.fixture
def chunks_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_SOURCES", 3)


def flatten(results: list[Any]) -> list[Trace]:
    return [trace for each in results for trace in (each if isinstance(each, list) else [each])]


@pytest.mark.usefixtures("chunks_of_three")
@pytest.mark.parametrize(
    "method", ["predict", "nbest", "sample", "predict_examples", "nbest_examples", "sample_examples", "score_examples"]
)
def test_a_stream_has_the_results_of_a_list(method: str) -> None:
    inputs: list[Any] = [text for text in TEXTS if text] if method in ("predict", "nbest", "sample") else EXAMPLES
    inputs = [each for each in inputs if each[0]] if method == "score_examples" else inputs
    arguments = {"nbest": (2,), "nbest_examples": (2,), "sample": (SAMPLING,), "sample_examples": (SAMPLING, 5)}.get(
        method, ()
    )
    decode = getattr(PLAIN, method)
    listed, stream = decode(inputs, *arguments), decode(iter(inputs), *arguments)
    assert isinstance(listed, list) and isinstance(stream, Iterator)
    results = list(stream)
    assert len(results) == len(listed) == len(inputs)
    for one, two in zip(flatten(listed), flatten(results), strict=True):
        assert_same_trace(one, two)
        assert (one.rank, one.origin) == (two.rank, two.origin)


def test_an_endless_stream_is_read_one_chunk_ahead() -> None:
    num_read = 0

    def yield_sources() -> Iterator[str]:
        nonlocal num_read
        for num_read in count(1):
            yield "abc"[num_read % 3]

    stream = PLAIN.predict(yield_sources())
    assert num_read == 0
    for number, trace in enumerate(islice(stream, 2 * streaming.MAX_SOURCES + 5), 1):
        assert trace.text == "abc"[number % 3]
        assert number <= num_read < number + streaming.MAX_SOURCES
    assert max_chunk_sources(1) == streaming.MAX_SOURCES
    assert max_chunk_sources(1024) == 16 and max_chunk_sources(10**9) == 1


@pytest.mark.parametrize("operation", ["predict", "force", "sample", "nbest", "search_tree"])
def test_chunks_are_smaller_for_long_sources_and_many_outputs(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_CHARACTERS", 120)
    num_taken = 0

    def yield_examples() -> Iterator[Example]:
        nonlocal num_taken
        while True:
            num_taken += 1
            yield Example("abcabcabca", "", "")

    stream: Iterator[object]
    match operation:
        case "predict":
            stream, chunk_size = PLAIN.predict_examples(yield_examples()), 12
        case "force":
            pairs = (example._replace(target="vwxyz" * 4) for example in yield_examples())
            stream, chunk_size = PLAIN.score_examples(pairs), 4
        case "sample":
            stream, chunk_size = PLAIN.sample_examples(yield_examples(), SamplingConfig(samples=4)), 3
        case "nbest":
            stream, chunk_size = PLAIN.nbest_examples(yield_examples(), 6), 2
        case _:
            stream, chunk_size = (
                PLAIN.with_beam(3).with_options(DecodingOptions(search_tree=True)).predict_examples(yield_examples()),
                4,
            )
    next(stream)
    assert num_taken == chunk_size


def test_a_batch_has_fewer_long_sources_than_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, limits = np.array([5, 1, 20, 3, 300, 5]), ChunkConfig(2, 1, NO_CONSTRAINTS)
    rows = [1, 3, 0, 5, 2, 4]

    def split(rows: list[int]) -> list[Sequence[int]]:
        return [*split_into_batches(rows, lengths, limits, 4, lambda _: 30)]

    assert split(rows) == [[1, 3, 0, 5], [2, 4]]
    monkeypatch.setattr(preprocessing, "MAX_BATCH_POSITIONS", 40)
    assert split(rows) == [[1, 3, 0, 5], [2], [4]]
    monkeypatch.setattr(preprocessing, "MAX_BATCH_POSITIONS", 1)
    assert split(rows) == [[row] for row in rows]
    assert split([]) == []


def test_a_batch_has_fewer_sources_for_a_large_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, limits = np.array([1, 2, 3, 4, 5, 6]), ChunkConfig(2, 1, NO_CONSTRAINTS)
    monkeypatch.setattr(preprocessing, "MAX_BATCH_LOGITS", 1000)
    per_step = split_into_batches(range(6), lengths, limits, 4, lambda _: 200)
    assert [*map(list, per_step)] == [[0, 1], [2, 3], [4, 5]]
    per_position = split_into_batches(range(6), lengths, limits, 4, lambda length: 60 * length)
    assert [*map(list, per_position)] == [[0, 1], [2], [3], [4], [5]]


@pytest.mark.parametrize("task", ["sequence", "tag"])
def test_the_logits_of_a_batch_are_bounded(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary of a million symbols would otherwise need gigabytes."""
    tagger = make_untrained_predictor(make_task_config("tag"), [Example("ab", "xy"), Example("ba", "yx")])
    predictor: Predictor = PLAIN.with_beam(3) if task == "sequence" else tagger
    sources, sizes = [Example("ab", "")] * 12, list[int]()
    expected = predictor.predict_examples(sources)

    def split(
        rows: Sequence[int], lengths: np.ndarray, config: ChunkConfig, size: int, count_logits: Callable[[int], int]
    ) -> Iterator[Sequence[int]]:
        for batch in split_into_batches(rows, lengths, config, size, count_logits):
            sizes.append(len(batch))
            yield batch

    monkeypatch.setattr(predictor_module, "split_into_batches", split)
    logits_per_source = len(predictor.vocabularies.target) * (3 if task == "sequence" else len("ab"))
    monkeypatch.setattr(preprocessing, "MAX_BATCH_LOGITS", 5 * logits_per_source)
    actual = predictor.predict_examples(sources)
    assert sizes == [5, 5, 2]
    for trace, expected_trace in zip(actual, expected, strict=True):
        assert_same_trace(trace, expected_trace)


@pytest.mark.slow
def test_recorded_steps_take_no_extra_memory() -> None:
    """Allocating the records step by step fragmented the memory: 400 MB were used for 24 MB of records."""
    script = """
import resource
from small_networks import make_config, make_vocabularies
from pellucid.argument_checks import convert_argument
from pellucid.cli.sources import arrived_chunks
from pellucid.config.settings import SearchConfig
from pellucid.data.examples import Example
from pellucid.data.lines import LineStream
from pellucid.decoding.transducer import Transducer
from pellucid.tasks.registry import build_network
config, known = make_config({}), make_vocabularies("abc")
model = Transducer(config, known, build_network(config, known).eval())
list(model.score_examples([Example("abc", "v")]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.score_examples([Example("a" * 1000, "v" * 300)] * 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    process = subprocess.run(  # a new process, because maximum memory is per process
        [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    assert int(process.stdout) < 250_000


@pytest.mark.usefixtures("chunks_of_three")
@pytest.mark.parametrize("method", ["predict", "predict_examples", "nbest_examples"])
def test_no_reference_cycle_keeps_results(method: str) -> None:
    decode, arguments = getattr(PLAIN, method), {"nbest_examples": (2,)}.get(method, ())
    inputs: list[Any] = ["abc", "ab"] if method == "predict" else EXAMPLES[:2]

    def decode_and_discard() -> list[weakref.ref[np.ndarray]]:
        results = decode(inputs, *arguments)
        return [weakref.ref(trace.attention) for trace in flatten(results)]

    gc.collect()
    gc.disable()
    try:
        assert all(each() is None for each in decode_and_discard())
    finally:
        gc.enable()


@pytest.mark.usefixtures("chunks_of_three")
def test_features_and_prefixes_may_be_streams() -> None:
    tags, texts = ["V", "N", "V;N", "", "N"], TEXTS[:5]
    for features in (tags, iter(tags)):
        for one, two in zip(TAGGED.predict(texts, tags), TAGGED.predict(iter(texts), features), strict=True):
            assert_same_trace(one, two)
    all_prefixes = ["v", "", ["w", "x"], "", "zz"]
    for prefixes in (all_prefixes, iter(all_prefixes)):
        for one, two in zip(
            PLAIN.predict(texts, None, all_prefixes), PLAIN.predict(iter(texts), None, prefixes), strict=True
        ):
            assert_same_trace(one, two)
            assert one.forced == two.forced
    for one, two in zip(TAGGED.predict(texts, tags), TAGGED.predict(texts, iter(tags)), strict=True):
        assert_same_trace(one, two)


@pytest.mark.usefixtures("chunks_of_three")
@pytest.mark.parametrize(
    ("prefixes", "message", "num_results"),
    [
        (["v"] * 4, "expected one prefix for each source, but source 5 has none", 4),
        (["v"] * 6, "expected one prefix for each of 5 sources, got more", 5),
        ([], "expected one prefix for each source, but source 1 has none", 0),
    ],
)
def test_unequal_numbers_are_reported_at_the_end_of_a_stream(
    prefixes: list[str], message: str, num_results: int
) -> None:
    stream, result = PLAIN.predict(iter(TEXTS[:5]), prefixes=prefixes), list[Trace]()
    with pytest.raises(DataError, match=message):
        result.extend(stream)
    assert len(result) == num_results
    with pytest.raises(DataError, match=f"expected one prefix for each of 5 sources, got {len(prefixes)}"):
        PLAIN.predict(TEXTS[:5], prefixes=prefixes)
    with pytest.raises(DataError, match=r"expected one features text for each of 2 sources, got more"):
        TAGGED.predict(["a", "b"], (each for each in ["V"] * 9))


@pytest.mark.usefixtures("chunks_of_three")
def test_an_error_is_raised_at_its_source_and_the_model_stays_usable() -> None:
    bad: Any = (each for each in ["a", "b", "c", "a", None, "b"])
    result = list[Trace]()
    with pytest.raises(ArgumentError, match=r"^sources\[4\]: expected a string, got None$"):
        result.extend(PLAIN.predict(bad))
    assert [trace.text for trace in result] == ["a", "b", "c", "a"]
    limited = transducer_of({"data": {"max_sequence_length": 4}})
    with pytest.raises(DataError, match="source 5 has 5 symbols"):
        list(limited.predict(iter(["a", "b", "c", "a", "abcab"])))
    with pytest.raises(DataError, match="source 4 is empty"):
        list(PLAIN.score_examples(Example(text, "v") for text in ["a", "b", "c", ""]))
    with pytest.raises(InputError, match="there is no position 1: source 5 has 0 to 0"):
        list(PLAIN.with_options(DecodingOptions(masked_positions=(1,))).predict(iter(["ab", "bc", "ca", "ab", "a"])))
    assert PLAIN.predict(["a"])[0].output == result[0].output


@pytest.mark.slow
@pytest.mark.parametrize("bad", [0, 1, 6, 1030])
def test_every_result_before_an_error_is_yielded(bad: int) -> None:
    """The position of the error within a chunk of 1,024 sources makes no difference."""
    texts, limited = ["a"] * (bad + 3), transducer_of({"data": {"max_sequence_length": 4}})
    prefixes, result = ["v"] * len(texts), list[Trace]()
    texts[bad] = "abcab"
    with pytest.raises(DataError, match=rf"^source {bad + 1} has 5 symbols"):
        result.extend(limited.predict(iter(texts)))
    assert len(result) == bad
    prefixes[bad] = "?"
    result = []
    with pytest.raises(InputError, match=rf"^prefix of source {bad + 1}: the model never writes the symbol '\?'"):
        result.extend(PLAIN.predict(iter(["a"] * len(prefixes)), prefixes=iter(prefixes)))
    assert len(result) == bad
    prefixes[bad] = "v" * 1000
    result = []
    with pytest.raises(
        InputError, match=rf"^prefix of source {bad + 1}: the prefix and the required symbols take 1000"
    ):
        result.extend(PLAIN.predict(iter(["a"] * len(prefixes)), prefixes=iter(prefixes)))
    assert len(result) == bad
    result = []
    with pytest.raises(DataError, match=rf"^source {bad + 1} is empty"):
        result.extend(PLAIN.score_examples(Example("" if number == bad else "a", "v") for number in range(bad + 3)))
    assert len(result) == bad


def test_the_first_bad_prefix_of_a_list_is_named() -> None:
    with pytest.raises(InputError, match=r"^prefix of source 2: the model never writes the symbol '\?'"):
        PLAIN.predict(["a"] * 4, prefixes=["v", "?", "?", "!"])
    with pytest.raises(InputError, match=r"^prefix of source 3: the symbol 'v' is forbidden"):
        PLAIN.with_options(DecodingOptions(forbidden=("v",))).predict(["a"] * 4, prefixes=["w", "w", "v", "v"])
    with pytest.raises(InputError, match=r"^prefix: the model never writes the symbol '\?'"):
        PLAIN.with_options(DecodingOptions(prefix="?")).predict(["a"])


def fail_to_yield() -> Iterator[Any]:
    """Yield nothing: reading the first item fails the test."""
    pytest.fail("a source was read")
    yield None


def make_unread_inputs() -> list[Any]:
    """Return a stream that must not be read, an empty stream and an empty list."""
    return [fail_to_yield(), iter(()), []]


WRONG_OPTIONS: list[tuple[DecodingOptions, str]] = [
    (DecodingOptions(forbidden=("?",)), r"^forbidden: the model never writes the symbol '\?'"),
    (DecodingOptions(required=("?",)), r"^required: the model never writes the symbol '\?'"),
    (DecodingOptions(prefix="v?"), r"^prefix: the model never writes the symbol '\?'"),
    (DecodingOptions(prefix="v", forbidden=("v",)), "^prefix: the symbol 'v' is forbidden"),
    (DecodingOptions(prefix="v" * 999), "^the prefix and the required symbols take 999 symbols, but search.max_length"),
    (DecodingOptions(masked_positions=(-1,)), "^masked_positions: there is no position -1"),
    (
        DecodingOptions(forced_attention=(ForcedAttention(0, (0.0,)),)),
        "^forced_attention: step 0 has no weight above 0",
    ),
    (DecodingOptions(forced_attention=(ForcedAttention(-1, (1.0,)),)), "^forced_attention: there is no step -1"),
    (
        DecodingOptions(forced_attention=(ForcedAttention(1, (1.0,)), ForcedAttention(1, (1.0,)))),
        "^forced_attention: step 1 is given twice",
    ),
]
SEARCH_CALLS: dict[str, Callable[[Predictor, Any], object]] = {
    "predict": lambda model, inputs: model.predict(inputs),
    "nbest": lambda model, inputs: model.nbest(inputs, 2),
    "sample": lambda model, inputs: model.sample(inputs, SAMPLING),
    "trace": lambda model, inputs: model.predict_examples(inputs),
    "hypotheses": lambda model, inputs: model.nbest_examples(inputs, 2),
    "samples": lambda model, inputs: model.sample_examples(inputs, SAMPLING),
}


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS)
@pytest.mark.parametrize("method", SEARCH_CALLS)
def test_wrong_options_are_refused_before_a_source_is_read(method: str, options: DecodingOptions, message: str) -> None:
    """Regression test: 1,024 sources of a stream were read first, and an empty stream was no error."""
    model = PLAIN.with_options(options)
    for inputs in make_unread_inputs():
        with pytest.raises(InputError, match=message):
            SEARCH_CALLS[method](model, inputs)


def test_options_of_other_operations_are_refused_before_a_source_is_read() -> None:
    with_tree = PLAIN.with_options(DecodingOptions(search_tree=True))
    masked, examples = PLAIN.with_options(DecodingOptions(masked_positions=(-1,))), make_examples("tag", 3, 1)
    tagger = make_untrained_predictor(make_task_config("tag"), examples)
    limited = transducer_of({"search": {"max_length": 4, "min_length": 2}})
    forbidding = limited.with_options(DecodingOptions(forbidden=tuple("vwxyz")))
    long = replace(PLAIN, config=replace_struct(PLAIN.config, search=SearchConfig(max_length=2**15)))
    for inputs in make_unread_inputs():
        calls: list[tuple[Callable[[Any], object], str]] = [
            (with_tree.score_examples, r"^options\.search_tree: scoring given targets has no search tree"),
            (
                lambda items: with_tree.sample_examples(items, SAMPLING),
                r"^options\.search_tree: sampling has no search tree",
            ),
            (masked.score_examples, "^masked_positions: there is no position -1"),
            (lambda items: tagger.nbest_examples(items, 2), "^count: expected 1, because a model whose task is 'tag'"),
            (lambda items: tagger.nbest(items, 2), "^count: expected 1, because a model whose task is 'tag'"),
            (lambda items: tagger.predict_examples(items, []), "^prefixes: expected outputs written symbol by symbol"),
            (
                lambda items: tagger.sample_examples(items, SAMPLING),
                "^sample_examples: expected outputs written symbol by symbol",
            ),
            (forbidding.predict, "^forbidden: all 5 symbols that the model writes are forbidden, but outputs have at"),
            (long.predict, r"^search\.max_length: expected at most 1000"),
            (long.score_examples, r"^search\.max_length: expected at most 1000"),
        ]
        for call, message in calls:
            with pytest.raises(InputError, match=message):
                call(inputs)


def test_a_prefix_that_only_a_source_allows_is_not_refused_early() -> None:
    copying = transducer_of({"decoder": {"pointer_generator": True}}).with_options(DecodingOptions(prefix="a"))
    assert [trace.output[0] for trace in copying.predict(iter(["abc", "ba"]))] == ["a", "a"]
    with pytest.raises(InputError, match=r"^prefix: the model never writes the symbol 'a'"):
        list(copying.predict(iter(["c"])))
    replaced = PLAIN.with_options(DecodingOptions(prefix="?"))
    assert replaced.predict(["abc"], prefixes=["v"])[0].output[0] == "v"  # the prefix of the options is not used


def test_an_error_of_the_source_itself_passes_through() -> None:
    def yield_then_fail() -> Iterator[str]:
        yield "a"
        raise OSError("the disk is gone")

    stream = PLAIN.predict(yield_then_fail())
    assert next(stream).text == "a"
    with pytest.raises(OSError, match="the disk is gone"):
        next(stream)


@pytest.mark.parametrize("kind", ["r", "rb"])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sources", lambda file: PLAIN.predict(file)),
        ("features", lambda file: PLAIN.predict(iter(["ab"]), features=file)),
        ("prefixes", lambda file: PLAIN.predict(["ab"], prefixes=file)),
        ("examples", lambda file: PLAIN.predict_examples(file)),
        ("required", lambda file: convert_argument("required", file, tuple[str, ...])),
    ],
)
def test_a_closed_file_is_refused_by_the_name_of_the_argument(
    name: str, call: Callable[[IO[Any]], object], kind: str, tmp_path: Path
) -> None:
    (tmp_path / "sources.txt").write_text("ab\n")
    with (tmp_path / "sources.txt").open(kind) as file:
        pass
    with pytest.raises(ArgumentError, match=rf"^{name}: expected a list of .*, got .*, which is closed$"):
        call(file)


class UnreadableStream:
    """A stream that cannot be read."""

    def __iter__(self) -> Iterator[str]:
        raise LookupError

    def __next__(self) -> str:
        return "ab"


def test_only_exceptions_of_the_items_of_a_stream_are_passed_on() -> None:
    with pytest.raises(ArgumentError, match=r"^sources: expected a list of strings, .*, which raises LookupError$"):
        PLAIN.predict(UnreadableStream())
    with pytest.raises(ZeroDivisionError):
        list(PLAIN.predict(str(1 / number) for number in (1, 0)))


def test_lines_of_an_open_file_have_no_ends(tmp_path: Path) -> None:
    (tmp_path / "sources.txt").write_text("abc\n\nca\r\nb", encoding="utf-8", newline="")
    expected = PLAIN.predict(["abc", "", "ca", "b"])
    for newline in (None, ""):
        with (tmp_path / "sources.txt").open(encoding="utf-8", newline=newline) as file:
            found = list(PLAIN.predict(file))
        for trace, other in zip(found, expected, strict=True):
            assert_same_trace(trace, other)


def test_a_source_iterator_may_use_the_same_model() -> None:
    stream = PLAIN.predict(PLAIN.predict(["a"])[0].output and text for text in ["ab", "c"])
    assert [trace.text for trace in stream] == ["ab", "c"]


def test_chunks_are_numbered_and_complete() -> None:
    chunks = list[ExampleChunk]()

    def record_chunk(chunk: ExampleChunk) -> list[str]:
        chunks.append(chunk)
        return [example.source for example in chunk.examples]

    assert decode_chunks(record_chunk, EXAMPLES, None, 1, 0) == TEXTS
    assert list(decode_chunks(record_chunk, iter(EXAMPLES), iter("abcdefg"), 2**13, 10)) == TEXTS
    assert [chunk.first for chunk in chunks] == [0, 10, 12, 14, 16]
    assert [chunk.prefixes for chunk in chunks] == [None, ["a", "b"], ["c", "d"], ["e", "f"], ["g"]]
    assert list(chunked(range(5), 2**13, int)) == [[0, 1], [2, 3], [4]] and list(chunked([], 2, len)) == []


def test_more_features_than_the_longest_source_are_refused() -> None:
    """Features are encoder positions too: without a limit, one source took minutes and gigabytes."""
    limited = transducer_of({"data": {"max_sequence_length": 4, "features_column": "3", "features_symbols": ";"}})
    message = r"^source 2: the features have 5 symbols, more than data\.max_sequence_length = 4$"
    with pytest.raises(DataError, match=message):
        limited.predict(["a", "a"], features=["u;v", "u;u;u;u;v"])


def test_items_before_an_error_of_standard_input_are_yielded() -> None:
    """Regression test: they were lost if the error came in the same read."""

    def items() -> Iterator[int]:
        yield from (1, 2)
        raise DataError("not valid CSV")

    stream = LineStream(io.BytesIO(b""), "standard input")
    stream.arrived_lines.append(b"a further line")
    chunks = arrived_chunks(stream, items(), 1, int)
    assert next(chunks) == [1, 2]
    with pytest.raises(DataError, match="not valid CSV"):
        next(chunks)
    stream.arrived_lines.clear()
    assert list(arrived_chunks(stream, [1, 2], 1, int)) == [[1], [2]]
