"""Validation of arguments and settings by their annotations."""

import copy
import math
import os
import pickle
import re
import signal
import subprocess
import sys
from collections import UserList, UserString
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, IntEnum
from itertools import count, repeat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from invalid_arguments import MisleadingText
from jaxtyping import Float
from test_transducer import PLAIN
from trained_runs import copy_task_run

from pellucid.api import train
from pellucid.argument_checks import check_arguments, convert_argument
from pellucid.config.settings import Amount, BeamSize, Config, Device, SearchConfig, Seed
from pellucid.config.toml import build_config, load_config, override_settings, validate_config
from pellucid.data.examples import Example
from pellucid.decoding.base_predictor import Prefixes, Probability
from pellucid.decoding.ensemble import Ensemble
from pellucid.decoding.inference import EnsembleMembers
from pellucid.decoding.lexicon import Lexicon
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.transducer import Transducer
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, ConfigError, InputError

ROOT = Path(__file__).parents[1]


class CellChoice(str, Enum):  # noqa: UP042 (whose text StrEnum would change)
    """A choice whose value differs from `str(choice)`."""

    GRU = "gru"


class NamedNumber(IntEnum):
    """A named number."""

    TWO = 2


def argument_error_message(value: object, kind: object) -> str:
    with pytest.raises(ArgumentError) as caught:
        convert_argument("name", value, kind)
    assert isinstance(caught.value, InputError) and isinstance(caught.value, ValueError | TypeError)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (np.int64(3), BeamSize, 3),
        (torch.tensor(3), BeamSize, 3),
        (NamedNumber.TWO, int, 2),
        (np.float32(0.5), Probability, 0.5),
        (1, float, 1.0),
        (np.bool_(True), bool, True),
        (np.str_("ab"), str, "ab"),
        (MisleadingText("ab"), str, "ab"),
        (CellChoice.GRU, str, "gru"),
        (np.str_("cpu"), Device, "cpu"),
        ("runs/a", str | Path, Path("runs/a")),
        (MisleadingText("runs/a"), Path, Path("runs/a")),
        (None, Iterable[str] | None, None),
        (("a", "b"), Sequence[str], ["a", "b"]),
        (np.array(["a", "b"]), Iterable[str], ["a", "b"]),
        ([1, np.int64(2)], tuple[int, ...], (1, 2)),
        ((each for each in "ab"), tuple[str, ...], ("a", "b")),
        (["a", ("b", "c")], Prefixes, ["a", ["b", "c"]]),
        ([("a", "b")], Iterable[Example], [Example("a", "b")]),
        ([("a", "b", "c")], Iterable[Example], [Example("a", "b", "c")]),
        (["t", Path("u")], str | Path | tuple[str | Path, str | Path], (Path("t"), Path("u"))),
        ({"a": ["b"]}, Mapping[str, tuple[str, ...]], {"a": ("b",)}),
    ],
)
def test_matching_values_are_converted(value: object, kind: object, expected: object) -> None:
    actual = convert_argument("name", value, kind)
    assert actual == expected and type(actual) is type(expected)
    if isinstance(actual, list | tuple):
        assert [type(each) for each in actual] == [type(each) for each in expected]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (0, BeamSize, "name: expected a whole number of at least 1, got 0"),
        (10**30, BeamSize, f"name: expected a whole number of at most 1024, got {10**30}"),
        (-1, Seed, "name: expected a whole number of at least 0, got -1"),
        (True, BeamSize, "name: expected a whole number, got True"),
        (2.0, BeamSize, "name: expected a whole number, got 2.0"),
        ("2", BeamSize, "name: expected a whole number, got '2'"),
        ("\ud800", BeamSize, "name: expected a whole number, got '\\ud800'"),
        (0, Probability, "name: expected a number above 0.0, got 0"),
        (math.nan, Amount, "name: expected a number of at least 0.0, got nan"),
        (math.inf, Amount, "name: expected a finite number, got inf"),
        (10**400, float, f"name: expected a finite number, got {describe_value(10**400)}"),
        ("tpu", Device, "name: expected auto, cpu or cuda, got 'tpu'"),
        ("cda", Device, "name: expected auto, cpu or cuda, got 'cda'; did you mean 'cuda'?"),
        (None, str, "name: expected a string, got None"),
        (b"ab", str, "name: expected a string, got b'ab'"),
        ("x" * 999, BeamSize, f"name: expected a whole number, got {describe_value('x' * 999)}"),
        ("XV", tuple[str, ...], "name: expected a list of strings, got 'XV'; put a single string into a list: ['XV']"),
        (b"XV", tuple[str, ...], "name: expected a list of strings, got b'XV'"),
        ({"a": 1}, Iterable[str], "name: expected a list of strings, got {'a': 1}"),
        ({"a"}, Iterable[str], "name: expected a list of strings, got {'a'}: a set has no order"),
        (
            Example("a", "b"),
            Iterable[str],
            f"name: expected a list of strings, got {describe_value(Example('a', 'b'))}",
        ),
        (5, Iterable[str], "name: expected a list of strings, got 5"),
        (["a", None], Iterable[str], "name[1]: expected a string, got None"),
        (np.zeros((2, 2)), Iterable[str], "name[0]: expected a string, got array([0., 0.])"),
        (["a", ["b", 5]], Prefixes, "name[1][1]: expected a string, got 5"),
        (["a", 5], Prefixes, "name[1]: expected a string or a list of strings, got 5"),
        (5, Prefixes, "name: expected a list of strings or lists of strings or None, got 5"),
        (["ab"], Iterable[Example], "name[0]: expected an Example (source, target, features), got 'ab'"),
        ([("a", "b"), None], Sequence[Example], "name[1]: expected an Example (source, target, features), got None"),
        ([Example("a", "b", None)], Iterable[Example], "name[0].features: expected a string, got None"),  # type: ignore[arg-type]
        (5, Iterable[Example], "name: expected a list of Example objects, got 5"),
        ({"a": "b"}, Mapping[str, tuple[str, ...]], "name['a']: expected a list of strings, got 'b'; put a"),
        ({1: ["b"]}, Mapping[str, tuple[str, ...]], "name[1]: expected a string, got 1"),
        ("tiny", Config | Mapping[str, Any] | None, "name: expected a Config, a mapping (dict) or None, got 'tiny'"),
        (5, str | Path, "name: expected a path, got 5"),
        ("", str | Path, "name: expected a path, got ''"),
        ("a\0b", str | Path, "name: expected a path, got 'a\\x00b', which has a NUL character"),
        ("a\ud800", str | Path, "name: expected a path, got 'a\\ud800', which has an unpaired surrogate"),
        (b"a", str | Path, "name: expected a path, got b'a'"),
        ("x" * 999, str | Path, "name: expected a path that is not too long for the system, got"),
        (("a",), str | Path | tuple[str | Path, str | Path], "name: expected a path or a tuple of 2 paths, got ('a',)"),
        (iter([5]), int, "name: expected a whole number, got an iterator (list_iterator)"),
    ],
)
def test_mismatches_name_the_argument_and_the_expected_type(value: object, kind: object, message: str) -> None:
    assert argument_error_message(value, kind).startswith(message)


def test_unprintable_values_are_described_by_their_type() -> None:
    assert (
        argument_error_message(10**5000, BeamSize)
        == "name: expected a whole number of at most 1024, got a number with thousands of digits"
    )


def test_iterators_stay_lazy_and_errors_name_the_item() -> None:
    items = convert_argument("name", iter(["a", np.str_("b"), 5]), Iterable[str])
    assert isinstance(items, Iterator) and [next(items), next(items)] == ["a", "b"]
    with pytest.raises(ArgumentError, match=r"^name\[2\]: expected a string, got 5$"):
        next(items)


def test_numpy_scalars_are_settings_and_other_objects_are_refused() -> None:
    config = build_config(
        {"size": np.str_("tiny"), "encoder": {"hidden_size": np.int64(8)}, "seed": NamedNumber.TWO}, "test"
    )
    assert type(config.encoder.hidden_size) is int and config.seed == 2
    unvalidated = msgspec.structs.replace(config, seed=np.int64(3), training=config.training)
    assert type(validate_config(unvalidated).seed) is int
    invalid_settings: list[tuple[dict[str, Any], str]] = [
        ({"encoder": {1: 2}}, "test: unknown key 'encoder.1'"),
        ({"encoder": {"cell": b"gru"}}, "test: encoder.cell: expected gru or lstm, got b'gru'"),
        ({"encoder": {"cell": "\ud800"}}, "test: encoder.cell: expected gru or lstm, got '\\ud800'"),
        (
            {"encoder": {"hidden_size": 10**5000}},
            "test: encoder.hidden_size: expected a whole number of at most",
        ),
        ({"size": ["tiny"]}, "test: size: expected auto, tiny, small, base or large, got ['tiny']"),
        ({"size": np.zeros(2)}, "test: size: expected auto, tiny, small, base or large, got array([0., 0.])"),
        ({"data": {"source_column": b"1"}}, "test: data.source_column: expected a string, got b'1'"),
        (
            {"search": {"max_length_ratio": 1e300}},
            "test: search.max_length_ratio: expected a number of at most 1048576.0",
        ),
    ]
    for settings, message in invalid_settings:
        with pytest.raises(ConfigError) as caught:
            build_config(settings, "test")
        assert str(caught.value).startswith(message)
    with pytest.raises(ConfigError, match=r"^search\.beam_size: expected a whole number, got <object"):
        PLAIN.with_search(msgspec.structs.replace(PLAIN.config.search, beam_size=object()))


@pytest.mark.parametrize("value", [0, -1, 1025])
def test_invalid_beam_size_is_reported_by_its_argument_name(value: int) -> None:
    with pytest.raises(ArgumentError, match=r"^beam_size: expected a whole number"):
        PLAIN.with_beam(value)
    assert PLAIN.with_beam(3).config.search.beam_size == 3


def test_search_settings_may_be_a_dict() -> None:
    changed = PLAIN.with_search({"beam_size": 2, "max_length": 5})
    expected = msgspec.structs.replace(PLAIN.config.search, beam_size=2, max_length=5)
    assert changed.config.search == expected == PLAIN.with_search(expected).config.search
    for search, message in (
        ({"beam_size": 0}, "search.beam_size: expected a whole number of at least 1, got 0"),
        ({"beam_sise": 2}, "unknown key 'search.beam_sise'; did you mean 'search.beam_size'"),
        ({"length_penalty_alpha": 2.0}, "search.length_penalty_alpha"),
    ):
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
            PLAIN.with_search(search)


def nested_settings(depth: int) -> dict[str, Any]:
    """Return settings nested to this depth."""
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"data": inner}
    return inner


def recursive_settings() -> dict[str, Any]:
    """Return settings that contain themselves."""
    table: dict[str, Any] = {}
    table["data"] = table
    return table


class RaisingString(str):
    """A string whose methods raise."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    __repr__ = __str__


class RaisingMapping(dict[str, Any]):
    """A mapping whose methods raise."""

    def items(self) -> Any:  # noqa: ANN401
        raise RuntimeError("no items")


class RaisingNumber(int):
    """A number whose methods raise."""

    def __int__(self) -> int:
        raise RuntimeError("no number")

    __index__ = __int__


def search_with_beam_size(value: Any) -> SearchConfig:  # noqa: ANN401 (any value is allowed)
    """Return a search configuration with this beam size, of any type."""
    return msgspec.structs.replace(PLAIN.config.search, beam_size=value)


NON_TABLE_VALUES = [
    *(range(3), [1], "1", None, 5, object(), np.zeros(2), torch.zeros(2), UserList([1]), UserString("1"), b"x"),
    *(torch.empty((), device="meta"), np.datetime64("2020"), RaisingMapping(), RaisingString("a"), RaisingNumber(1)),
]


@pytest.mark.parametrize("value", NON_TABLE_VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("section", ["data", "encoder", "search"])
def test_section_of_settings_must_be_a_table(section: str, value: object, tmp_path: Path) -> None:
    message = rf"^config: {section}: expected a table, got "
    with pytest.raises(ConfigError, match=message) as caught:
        build_config({section: value}, "config")
    assert "\n" not in str(caught.value)
    (tmp_path / "a.toml").write_text('size = "tiny"\n')
    with pytest.raises(ConfigError, match=rf"a\.toml: {section}: expected a table, got "):
        load_config(tmp_path / "a.toml", {section: value})
    with pytest.raises(ConfigError, match=rf"^{section}: expected an? [A-Z][a-z]+Config, got "):
        validate_config(msgspec.structs.replace(PLAIN.config, **{section: value}))


WRONG_SETTINGS: list[tuple[str, object, str]] = [
    ("encoder", {}, "encoder: expected an EncoderConfig, got {}"),
    ("encoder", {"hidden_size": 16}, "encoder: expected an EncoderConfig, got {'hidden_size': 16}"),
    ("training", msgspec.structs.asdict(PLAIN.config.training), "training: expected a TrainingConfig, got "),
    ("decoder", None, "decoder: expected a DecoderConfig, got None"),
    ("search", PLAIN.config.data, "search: expected a SearchConfig, got "),
    ("search", search_with_beam_size("x"), "search.beam_size: expected a whole number, got 'x'"),
    ("task", ["x"], "task: expected transduce, tag, classify, point or tag-and-classify, got ['x']"),
    ("seed", -1, "seed: expected a whole number of at least 0, got -1"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG_SETTINGS)
def test_sections_and_values_of_a_config_object_are_checked(
    name: str, value: object, message: str, tmp_path: Path
) -> None:
    config = msgspec.structs.replace(PLAIN.config, **{name: value})
    with pytest.raises(ConfigError, match=rf"^{re.escape(message)}"):
        train("a.tsv", "b.tsv", tmp_path / "run", config)
    with pytest.raises(ConfigError, match=rf"^{re.escape(message)}"):
        override_settings(config, {"threads": 2})
    with pytest.raises(ArgumentError, match=rf"^config\.{re.escape(message)}"):
        Transducer(config, PLAIN.vocabularies, PLAIN.network)
    with pytest.raises(ArgumentError, match=rf"^config\.{re.escape(message)}"):
        replace(PLAIN, config=config)


@pytest.mark.parametrize(
    "table", [nested_settings(600), nested_settings(50_000), recursive_settings()], ids=["600", "50000", "recursive"]
)
def test_deeply_nested_settings_are_refused(table: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[data]\nsubword_vocab_size = 5\n")
    calls: list[tuple[str, Callable[[], object]]] = [
        ("config: unknown key 'data.data'", lambda: build_config(table, "config")),
        ("unknown key 'data.data'", lambda: load_config(tmp_path / "a.toml", table)),
        ("data: expected a DataConfig", lambda: validate_config(msgspec.structs.replace(PLAIN.config, data=table))),
        ("seed: expected a whole number", lambda: validate_config(msgspec.structs.replace(PLAIN.config, seed=table))),
        ("search.beam_size: expected a whole number", lambda: PLAIN.with_search(search_with_beam_size(table))),
    ]
    for message, call in calls:
        with pytest.raises(ConfigError, match=re.escape(message)) as caught:
            call()
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "value",
    [
        np.array([1, 2, 3]),
        np.ones((2, 2)),
        torch.zeros(3),
        torch.empty((), device="meta"),
        torch.empty(2, device="meta"),
    ],
    ids=str,
)
def test_arrays_are_refused_as_settings(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match=r"^search\.beam_size: expected a whole number, got "):
        PLAIN.with_search(search_with_beam_size(value))
    with pytest.raises(ConfigError, match=r"^search\.length_penalty_alpha: expected a number, got "):
        search = msgspec.structs.replace(PLAIN.config.search, length_penalty_alpha=value)
        validate_config(msgspec.structs.replace(PLAIN.config, search=search))
    with pytest.raises(ConfigError, match=r"^config: encoder\.cell: expected gru or lstm, got "):
        build_config({"encoder": {"cell": value}}, "config")
    with pytest.raises(ConfigError, match=r"^config: data\.header: expected auto, true or false, got "):
        build_config({"data": {"header": value}}, "config")
    argument_error_message(value, Probability)
    argument_error_message(value, Device)


@pytest.mark.parametrize(
    "key", ["source_column", "features_column", "source_symbols", "target_symbols", "features_symbols", "ignored_tag"]
)
def test_unpaired_surrogates_in_settings_are_refused(key: str) -> None:
    """An unpaired surrogate cannot be encoded, so training would fail when it writes its settings."""
    with pytest.raises(
        ConfigError, match=rf"^config: data\.{key}: expected text without unpaired surrogates, got '\\udfff'$"
    ):
        build_config({"data": {key: "\udfff"}}, "config")
    with pytest.raises(
        ConfigError, match=r"^config: encoder\.convolutions\[0\]: expected a whole number, got '\\udfff'$"
    ):
        build_config({"encoder": {"convolutions": ["\udfff"]}}, "config")
    with pytest.raises(ConfigError, match=r"^config: unknown key 'data\.\\udfff'$"):
        build_config({"data": {"\udfff": 1}}, "config")


def test_exceptions_of_value_methods_are_mismatches() -> None:
    assert (
        convert_argument("name", RaisingString("ab"), str) == "ab"
        and convert_argument("name", RaisingNumber(2), BeamSize) == 2
    )
    assert PLAIN.with_search(search_with_beam_size(RaisingNumber(2))).config.search.beam_size == 2
    for kind in (Device, BeamSize, Iterable[str], Mapping[str, str]):
        assert "got 'a'" in argument_error_message(RaisingString("a"), kind)
    with pytest.raises(OSError, match="the disk is gone"):
        convert_argument("name", raising_items(), tuple[str, ...])


def raising_items() -> Iterator[str]:
    """Yield a string and then raise OSError."""
    yield "a"
    raise OSError("the disk is gone")


def test_options_can_be_compared_copied_and_pickled() -> None:
    options = DecodingOptions(forbidden=("v",), lexicon=Lexicon({"a": ("b",)}), masked_positions=(1,))
    sampling = SamplingConfig(samples=3, temperature=0.5)
    for value in (options, sampling, ArgumentError("name: no")):
        for copied in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
            assert type(copied) is type(value) and repr(copied) == repr(value)
    copied = DecodingOptions(forbidden=("v",), lexicon=Lexicon({"a": ("b",)}), masked_positions=(1,))
    assert copied == options != DecodingOptions() and hash(copied) == hash(options) != hash(DecodingOptions())
    other_lexicon = Lexicon({"a": ("b",), "c": ("d",)})
    assert hash(other_lexicon) == hash(Lexicon({"c": ("d",), "a": ("b",)})) != hash(options.lexicon)


def test_temperature_near_zero_is_argmax() -> None:
    greedy_outputs = [trace.output for trace in PLAIN.with_beam(1).predict(["abc", "b"])]
    samples = PLAIN.sample(["abc", "b"], SamplingConfig(temperature=5e-324))
    assert [traces[0].output for traces in samples] == greedy_outputs and any(greedy_outputs)


@pytest.mark.slow
def test_every_public_function_checks_its_arguments(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("ab\tab\nc\tc\n")
    script = ROOT / "tests" / "invalid_arguments.py"
    process = subprocess.run(
        [sys.executable, script, copy_task_run().run, pairs],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "PELLUCID_PLAIN": "1"},
    )
    assert process.returncode == 0, process.stderr
    *failures, call_count = process.stdout.splitlines()
    assert failures == [] and int(call_count.removesuffix(" calls")) > 6000


@pytest.mark.parametrize("value", [np.void(b"ab"), np.array([(1, 2)], "i,i")[0], np.array(1)])
def test_numpy_scalar_is_not_a_list(value: object) -> None:
    assert argument_error_message(value, list[int]).startswith("name: expected a list of whole numbers, got ")


@pytest.mark.parametrize("kind", [int, float, bool])
def test_masked_number_is_refused(kind: type) -> None:
    assert argument_error_message(np.ma.masked, kind).endswith("got masked")
    assert argument_error_message(np.ma.masked_array([1.0, 2.0], [False, True]), list[float]).startswith("name[1]: ")
    assert convert_argument("name", np.ma.masked_array(1.5), float) == 1.5


class EndlessSequence:
    """A sequence that defines only `__getitem__` and never raises `IndexError`."""

    def __getitem__(self, index: int) -> str:
        if index > 1000:
            raise AssertionError("more than 1,000 items were requested")
        return "ab"


class SizedSequence(EndlessSequence):
    """An endless sequence that has a length."""

    def __len__(self) -> int:
        return 3


def test_endless_sequence_is_read_to_its_length_or_refused() -> None:
    assert convert_argument("sources", SizedSequence(), Iterable[str]) == ["ab"] * 3
    assert convert_argument("sources", SizedSequence(), tuple[str, ...]) == ("ab",) * 3
    with pytest.raises(
        ArgumentError, match=r"^sources: expected a list of strings, got <.*EndlessSequence object"
    ) as caught:
        convert_argument("sources", EndlessSequence(), Iterable[str])
    assert "raises" not in str(caught.value)


class EndlessMapping(Mapping[str, Any]):
    """A mapping with an endless iterator of keys."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[str]:
        return map(str, count())


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (repeat("run"), str | Path | Sequence[str | Path], "a path or a list of paths with at most 4,096 items"),
        (repeat("a"), tuple[str, ...], "a list of strings with at most 1,048,576 items"),
        (repeat("a"), tuple[str, str], "a tuple of 2 strings"),
        (EndlessMapping(), Mapping[str, int], "a mapping (dict) with at most 2 keys"),
    ],
)
def test_endless_iterables_are_refused(value: object, kind: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(f"x: expected {message}, got")):
        convert_argument("x", value, kind)


def test_refused_files_and_generators_stay_open(tmp_path: Path) -> None:
    """The caller can still read a file or a generator after a function has refused it."""
    path = tmp_path / "x"
    path.write_bytes(b"1\n2\n3\n")
    generator = (number for number in (1, 2, 3))
    with path.open("rb") as file:
        for values in (file, generator):
            with pytest.raises(ArgumentError, match=r"^values\[0\]: expected a string, got "):
                convert_argument("values", values, list[str])
        assert not file.closed and next(file) == b"2\n"
    assert next(generator) == 2


class SizedNumbers:
    """An endless sequence of numbers that has a length."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> float:
        return len(EndlessSequence()[index]) / 4


class UnendingNumbers(SizedNumbers):
    """A sequence whose iterator never ends."""

    def __iter__(self) -> Iterator[float]:
        return repeat(0.5)


def test_endless_array_arguments_are_bounded() -> None:
    """NumPy would read them until the memory is full."""
    vector, matrix = Float[np.ndarray, " n"], Float[np.ndarray, "n m"]
    assert convert_argument("x", SizedNumbers(), vector).tolist() == [0.5] * 3
    for rows in ([SizedNumbers(), (0.5, 1, 2)], iter([SizedNumbers(), np.array([0.5, 1.0, 2.0])])):
        assert convert_argument("x", rows, matrix).tolist() == [[0.5, 0.5, 0.5], [0.5, 1.0, 2.0]]
    for endless, kind in (
        (repeat(0.5), vector),
        (repeat([0.5, 0.5]), matrix),
        (UnendingNumbers(), vector),
        ([[0.5], UnendingNumbers()], matrix),
    ):
        with pytest.raises(ArgumentError, match=r"^x: expected an? .* with at most 1,048,576 items, got "):
            convert_argument("x", endless, kind)


def test_nested_array_arguments_without_end_are_refused() -> None:
    nested: list[object] = []
    nested.append(nested)
    with pytest.raises(ArgumentError, match=r"^x: expected "):
        convert_argument("x", nested, Float[np.ndarray, "n m"])


def test_endless_settings_are_refused() -> None:
    for settings, key in (({"data": EndlessMapping()}, "data: "), (EndlessMapping(), "")):
        with pytest.raises(ConfigError, match=rf"^it: {key}expected a mapping \(dict\) with at most 2 keys"):
            build_config(settings, "it")


def test_dict_views_are_ordered() -> None:
    assert convert_argument("x", {"b": 1, "a": 2}.keys(), Iterable[str]) == ["b", "a"]
    assert convert_argument("x", {"b": 1, "a": 2}.keys(), tuple[str, ...]) == ("b", "a")


def test_only_an_ensemble_has_members() -> None:
    members = EnsembleMembers(
        (PLAIN.network,), (torch.zeros(8, dtype=torch.int64),), (8,), (None,), (0.0,), (torch.arange(4),)
    )
    with pytest.raises(ArgumentError, match=r"^members: a Transducer has one network.*pellucid\.load"):
        Transducer(PLAIN.config, PLAIN.vocabularies, PLAIN.network, members=members)
    with pytest.raises(
        ArgumentError, match=r"^members: expected three id maps, an offset and a weight for each network"
    ):
        Ensemble(PLAIN.config, PLAIN.vocabularies, PLAIN.network, members=members._replace(copy_offsets=()))
    with pytest.raises(ArgumentError, match=r"^members: expected one model at least, got none"):
        Ensemble(PLAIN.config, PLAIN.vocabularies, PLAIN.network)
    assert Ensemble(PLAIN.config, PLAIN.vocabularies, PLAIN.network, members=members).is_ensemble


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs SIGALRM")
def test_an_interruption_does_not_turn_off_later_checks() -> None:
    @check_arguments
    def double(number: int) -> int:
        return 2 * number

    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for number in range(300):
            # The timer repeats: an exception within a callback of the garbage collector is lost.
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 100), 0.1)
                while True:
                    double(number)
            signal.setitimer(signal.ITIMER_REAL, 0)
            with pytest.raises(ArgumentError, match="number"):
                double("one")  # type: ignore[arg-type]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
