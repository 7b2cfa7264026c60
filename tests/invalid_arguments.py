"""Call every public function with invalid values for each argument.

    python tests/invalid_arguments.py RUN PAIRS

The script prints a line for each call that neither works nor raises an `InputError` whose message names the argument.
The last line is the number of calls. A test runs the script in its own process, because pytest checks the types of all
arguments before a function sees them.
"""

import os
import sys
import tempfile
from collections import UserList, UserString
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import torch

import pellucid
from pellucid import api
from pellucid.config.attention_types import ATTENTION_TYPES
from pellucid.config.settings import AttentionConfig, Config, SearchConfig
from pellucid.config.toml import build_config
from pellucid.data.examples import Example, parse_pairs, parse_sources, read_examples
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, InputError
from pellucid.model.attention import AdditiveAttention
from pellucid.model.evaluation_mode import evaluation_mode, evaluation_modes
from pellucid.reporting.display_text import format_probability
from pellucid.reporting.figures import drawable_tick_labels
from pellucid.reporting.progress import multi_progress, training_progress
from pellucid.training.events import RunEvent
from pellucid.training.optimizer import averaged_weights

Call = Callable[[Any], object]


class CustomAttention(AdditiveAttention):
    """Additive attention with the arguments of a class of another package."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__(query_size, memory_size, config.size)


def register_name(name: Any) -> None:  # noqa: ANN401 (any value)
    """Register an attention of this name, and remove it."""
    with patch.dict(ATTENTION_TYPES.registered):
        pellucid.register_attention(name, CustomAttention)


def identity(value: object) -> object:
    """Return the value."""
    return value


class MisleadingText(str):
    """A subclass of str whose string representation is another text."""

    def __str__(self) -> str:
        """Return another text."""
        return "not the text"


class FailingText(str):
    """A str whose methods raise an error."""

    def __str__(self) -> str:
        """Raise."""
        raise RuntimeError("no text")

    def __len__(self) -> int:
        """Raise."""
        raise RuntimeError("no length")

    __repr__ = __str__


class FailingNumber(int):
    """An int whose methods raise an error."""

    def __int__(self) -> int:
        """Raise."""
        raise RuntimeError("no number")

    __index__ = __int__


class FailingTable(dict[Any, Any]):
    """A dict whose methods raise an error."""

    def items(self) -> Any:  # noqa: ANN401
        """Raise."""
        raise RuntimeError("no items")

    __iter__ = keys = values = items


class FailingClass:
    """An object without readable attributes, not even its class."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401
        """Raise."""
        raise RuntimeError(f"no {name}")


class FailingPath:
    """A path-like object without a path."""

    def __fspath__(self) -> str:
        """Raise."""
        raise RuntimeError("no path")


def make_nested_settings(depth: int) -> dict[str, Any]:
    """Return a table nested to this depth."""
    table: dict[str, Any] = {}
    for _ in range(depth):
        table = {"data": table}
    return table


def make_cyclic_settings() -> dict[str, Any]:
    """Return a table that contains itself."""
    table: dict[str, Any] = {}
    table["data"] = table
    return table


INVALID_VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2**70, -(10**5000), 0.5, 1e308, 1e400, -0.5, float("nan"), 1j, Decimal(1)),
    *(
        "",
        "x",
        "ab\0",
        "\ud800",
        "x" * 5000,
        b"x",
        bytearray(b"x"),
        MisleadingText("ab"),
        Path("x"),
        object(),
        int,
        len,
    ),
    *([], [[]], ["ab", None], ["ab", b"x"], ["ab", ["ab"]], [1], (), (1, 2), ("ab",), [Path("x")], range(3)),
    *({}, {"ab": "ab"}, {1: 2}, {"ab"}, Example("ab", "b"), [Example("ab", "ab")], [("ab", "ab")], [("ab",)]),
    *(np.int64(1), np.float32(0.5), np.bool_(True), np.str_("ab"), np.array("ab"), np.array(["ab", "b"])),
    *(np.zeros((2, 2)), np.array([1]), np.array([1, 2, 3]), np.array(None, dtype=object), np.datetime64("2020")),
    *(torch.tensor(1), torch.zeros(2), torch.empty((), device="meta"), torch.empty(2, device="meta")),
    *(UserList([1]), UserString("ab"), ["\ud800"], [10**5000], {"data": range(3)}, {"data": UserString("1")}),
    *(
        {"data": {1: 2}},
        {"encoder": {"convolutions": ["\udfff"]}},
        {10**5000: 1},
        make_nested_settings(600),
        make_nested_settings(50_000),
        make_cyclic_settings(),
    ),
    *(FailingText("ab"), FailingNumber(1), FailingTable(), FailingClass(), FailingPath(), "a\nb\x1b", np.zeros((9, 9))),
)
NONE: Any = None
VALUE_FACTORIES: list[Callable[[], object]] = [
    *(partial(identity, value) for value in INVALID_VALUES),
    lambda: [Example("ab", NONE)],
    lambda: iter(["ab", None]),
    lambda: (item for item in ["ab"]),
    lambda: (item for item in [Example("ab", "ab"), 5]),
    lambda: map(str, range(2)),
]
"""Functions that make an invalid value anew for each call."""


def list_calls(run: str, pairs: str) -> dict[str, Call]:
    """Return a call for each argument of each public function, by the name of the function and the argument."""
    model, sources, examples = pellucid.load(run), ["ab", "c"], [Example("ab", "ab"), Example("c", "c")]
    sampling, trace = pellucid.SamplingConfig(), model.predict(["ab"])[0]
    settings = {"size": "tiny"}
    return {
        "load.run": pellucid.load,
        "load.device": lambda v: pellucid.load(run, v),
        "train.train": lambda v: pellucid.train(v, pairs, "run", settings),
        "train.valid": lambda v: pellucid.train(pairs, v, "run", settings),
        "train.run": lambda v: pellucid.train(pairs, pairs, v, settings),
        "train.config": lambda v: pellucid.train(pairs, pairs, "run", v),
        "train.ensemble": lambda v: pellucid.train(pairs, pairs, "run", settings, v),
        "train.progress": lambda v: pellucid.train(pairs, pairs, "run", settings, 1, v),
        "train.init_from": lambda v: pellucid.train(pairs, pairs, "run", settings, init_from=v),
        "train.callbacks": lambda v: pellucid.train(pairs, pairs, "run", settings, 1, False, v),
        "evaluate.pairs": lambda v: pellucid.evaluate(model, v),
        "evaluate.options": lambda v: pellucid.evaluate(model, pairs, v),
        "predict_function.sources": lambda v: pellucid.predict(model, v),
        "score.pairs": lambda v: pellucid.score(model, v),
        "align.pairs": pellucid.align,
        "align.limits": lambda v: pellucid.align(examples, model, v),
        "align.method": lambda v: pellucid.align(examples, method=v),
        "align.data": lambda v: pellucid.align(examples, data=v),
        "audit.pairs": pellucid.audit,
        "audit.options": lambda v: pellucid.audit(examples, v),
        "audit.config": lambda v: pellucid.audit(examples, config=v),
        "audit.device": lambda v: pellucid.audit(examples, device=v),
        "audit.decided": lambda v: pellucid.audit(examples, decided=v),
        "size_preset.size": pellucid.size_preset,
        "load_config.path": pellucid.load_config,
        "load_config.overrides": lambda v: pellucid.load_config(f"{run}/config.toml", v),
        "load_config.regular": lambda v: pellucid.load_config(f"{run}/config.toml", None, v),
        "build_config.settings": lambda v: build_config(v, "settings"),
        "load_lexicon.path": lambda v: pellucid.load_lexicon(v, model.config.data),
        "load_lexicon.config": lambda v: pellucid.load_lexicon(pairs, v),
        "load_lexicon.num_columns": lambda v: pellucid.load_lexicon(pairs, model.config.data, v),
        "parse_sources.lines": lambda v: parse_sources(v, "lines", model.config.data),
        "parse_pairs.lines": lambda v: parse_pairs(v, "lines", model.config.data),
        "read_examples.path": lambda v: read_examples(v, model.config.data),
        "read_examples.config": lambda v: read_examples(pairs, v),
        "format_probability.log_probability": format_probability,
        "predict.sources": model.predict,
        "predict.features": lambda v: model.predict(sources, v),
        "predict.prefixes": lambda v: model.predict(sources, prefixes=v),
        "nbest.sources": lambda v: model.nbest(v, 2),
        "nbest.count": lambda v: model.nbest(sources, v),
        "nbest.features": lambda v: model.nbest(sources, 2, v),
        "nbest.top_mass": lambda v: model.nbest(sources, 2, top_mass=v),
        "sample.sources": lambda v: model.sample(v, sampling),
        "sample.sampling": lambda v: model.sample(sources, v),
        "sample.features": lambda v: model.sample(sources, sampling, v),
        "predict_examples.examples": model.predict_examples,
        "predict_examples.prefixes": lambda v: model.predict_examples(examples, v),
        "nbest_examples.examples": lambda v: model.nbest_examples(v, 2),
        "nbest_examples.count": lambda v: model.nbest_examples(examples, v),
        "nbest_examples.top_mass": lambda v: model.nbest_examples(examples, 2, v),
        "nbest_examples.prefixes": lambda v: model.nbest_examples(examples, 2, prefixes=v),
        "sample_examples.examples": lambda v: model.sample_examples(v, sampling),
        "sample_examples.sampling": lambda v: model.sample_examples(examples, v),
        "sample_examples.first": lambda v: model.sample_examples(examples, sampling, v),
        "sample_examples.prefixes": lambda v: model.sample_examples(examples, sampling, prefixes=v),
        "score_examples.examples": model.score_examples,
        "align_method.pairs": model.align,
        "align_method.limits": lambda v: model.align(examples, v),
        "with_beam.beam_size": model.with_beam,
        "with_search.search": model.with_search,
        "with_options.options": model.with_options,
        "can_produce.symbol": model.tokenizers.target.can_produce,
        "join.symbols": model.tokenizers.target.join,
        "encode.symbols": model.vocabularies.target.encode,
        "register_attention.name": register_name,
        "register_attention.attention_class": lambda v: pellucid.register_attention("mine", v),
        "register_cell.cell_class": lambda v: pellucid.register_cell("mine", v),
        "register_metric.metric_class": lambda v: pellucid.register_metric("mine", v),
        "register_optimizer.optimizer_class": lambda v: pellucid.register_optimizer("mine", v),
        "register_callback.callback_class": lambda v: pellucid.register_callback("mine", v),
        "check_attention.attention_class": pellucid.check_attention,
        "check_attention.config": lambda v: pellucid.check_attention(CustomAttention, v),
        "check_attention.query_size": lambda v: pellucid.check_attention(CustomAttention, query_size=v),
        "check_attention.memory_size": lambda v: pellucid.check_attention(CustomAttention, memory_size=v),
        "check_cell.cell_class": pellucid.check_cell,
        "check_optimizer.optimizer_class": pellucid.check_optimizer,
        "check_optimizer.learning_rate": lambda v: pellucid.check_optimizer(torch.optim.RAdam, v),
        "check_optimizer.weight_decay": lambda v: pellucid.check_optimizer(torch.optim.RAdam, weight_decay=v),
        "register_task.task": pellucid.register_task,
        "training_progress.stream": partial(enter, training_progress),
        "multi_progress.stream": partial(enter, multi_progress),
        "drawable_tick_labels.figure": partial(enter, drawable_tick_labels),
        "averaged_weights.average": partial(enter, averaged_weights),
        "evaluation_mode.network": partial(enter, evaluation_mode),
        "evaluation_modes.networks": partial(enter, evaluation_modes),
        "save.path": trace.save,
        "to_json.compact": trace.to_json,
        "to_record.compact": trace.to_record,
        "from_json.text": pellucid.Trace.from_json,
        "from_record.record": pellucid.Trace.from_record,
        **{
            f"SamplingConfig.{field.name}": partial(sample_with_setting, model, field.name)
            for field in fields(pellucid.SamplingConfig)
        },
        **{
            f"DecodingOptions.{field.name}": partial(predict_with_option, model, field.name)
            for field in fields(pellucid.DecodingOptions)
        },
        "Transducer.config": lambda v: pellucid.Transducer(v, model.vocabularies, model.network),
        "Transducer.vocabularies": lambda v: pellucid.Transducer(model.config, v, model.network),
        "Transducer.network": lambda v: pellucid.Transducer(model.config, model.vocabularies, v),
        "Transducer.options": lambda v: pellucid.Transducer(model.config, model.vocabularies, model.network, v),
        "Ensemble.members": lambda v: pellucid.Ensemble(model.config, model.vocabularies, model.network, members=v),
        "Transducer.members": lambda v: pellucid.Transducer(model.config, model.vocabularies, model.network, members=v),
        **{
            f"Trace[{field.name}].trace": partial(render_changed_trace, trace, field.name)
            for field in fields(pellucid.Trace)
        },
        "ForcedAttention.step": lambda v: pellucid.ForcedAttention(v, (1.0,)),
        "ForcedAttention.weights": lambda v: pellucid.ForcedAttention(0, v),
        "Lexicon.targets": pellucid.Lexicon,
        "Lexicon.bad_lines": lambda v: pellucid.Lexicon({}, v),
        "Lexicon.notes": lambda v: pellucid.Lexicon({}, (), v),
        **{
            f"SearchConfig.{name}": partial(predict_with_search_setting, model, name)
            for name in field_names(SearchConfig)
        },
        **{f"config.{name}": partial(train_with_setting, pairs, name) for name in field_names(Config)},
    }


def enter(manager: Callable[[Any], AbstractContextManager[object]], value: object) -> None:
    """Enter and leave a context with this argument."""
    with manager(value):
        pass


def field_names(struct: type[msgspec.Struct]) -> list[str]:
    """Return the names of the fields of a struct."""
    return [field.name for field in msgspec.structs.fields(struct)]


def render_changed_trace(trace: pellucid.Trace, name: str, value: object) -> object:
    """Set one field of a trace; return it as JSON and as HTML."""
    changes: Any = {name: value}
    changed_trace = replace(trace, **changes)
    return changed_trace.to_json(), changed_trace._repr_html_()


def sample_with_setting(model: pellucid.Predictor, name: str, value: object) -> object:
    """Return samples drawn with one changed setting."""
    settings: Any = {name: value}
    return model.sample(["ab"], pellucid.SamplingConfig(**settings))


def predict_with_option(model: pellucid.Predictor, name: str, value: object) -> object:
    """Return outputs decoded with one changed option."""
    options: Any = {name: value}
    return model.with_options(pellucid.DecodingOptions(**options)).predict(["ab"])


def predict_with_search_setting(model: pellucid.Predictor, name: str, value: object) -> object:
    """Return outputs of a search with one changed setting."""
    return model.with_search(msgspec.structs.replace(model.config.search, **{name: value})).predict(["ab"])


def train_with_setting(pairs: str, name: str, value: object) -> object:
    """Train with one changed setting."""
    return pellucid.train(pairs, pairs, "run", {name: value})


def describe_fault(call: Call, name: str, value: object) -> str:
    """Return a description of the fault of a call, or "" if it works or raises an error that names the argument."""
    try:
        result = call(value)
        if isinstance(result, Iterator):
            list(result)
    except ArgumentError as error:
        return "" if str(error).startswith(name) and len(str(error)) < 400 else f"ArgumentError: {error}"
    except InputError as error:
        return "" if len(str(error)) < 6000 else f"{len(str(error))} characters"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


def no_events() -> Generator[RunEvent]:
    """Yield nothing."""
    yield from ()


def main(run: str, pairs: str) -> None:
    """Make all calls; training checks its arguments and does nothing else."""
    api.train_run = lambda *arguments: no_events()  # type: ignore[attr-defined]
    api.load = lambda *arguments: None  # type: ignore[attr-defined, assignment]
    api._train_ensemble = lambda *arguments: False
    calls, num_calls = list_calls(run, pairs), 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, call in calls.items():
            for value in VALUE_FACTORIES:
                fault, num_calls = describe_fault(call, name.partition(".")[2], value()), num_calls + 1
                if fault:
                    print(f"{name} = {describe_value(value())}: {fault}")
    print(f"{num_calls} calls")


if __name__ == "__main__":
    main(*sys.argv[1:])
