"""Outputs of a loaded model do not depend on the default type of torch, which a program may set at any time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import astuple
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from task_cases import make_examples, make_task_config, make_untrained_predictor
from untrained_models import MODEL_SETTINGS, make_transducer

from pellucid.config.settings import TaskName
from pellucid.data.examples import Example
from pellucid.decoding.ensemble import combine_transducers
from pellucid.decoding.options import DecodingOptions, ForcedAttention
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.trace import Trace
from pellucid.inspection.attribution import attribute
from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.kernel_loader import load_kernels

SOURCES = ["abc", "b", "ca"]


@contextmanager
def float64_default() -> Iterator[None]:
    """Make float64 the default type."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def decode(model: Predictor) -> list[Trace]:
    """Return outputs of all searches."""
    attends = model.config.attention.type != "none"
    penalty = 0.5 if attends else 0.0
    search = msgspec.structs.replace(
        model.config.search, beam_size=3, length_normalization="average", coverage_penalty=penalty, min_length=2
    )
    options = DecodingOptions(
        forbidden=("v",), masked_positions=(1,), forced_attention=(ForcedAttention(0, (0.5, 0.5, 0.0)),)
    )
    lists = [
        *model.nbest(SOURCES, 3),
        *model.sample(SOURCES, SamplingConfig(samples=2, top_p=0.9, temperature=0.8)),
        model.predict(SOURCES),
        model.with_search(search).predict(SOURCES, prefixes=["w", "", "x"]),
        model.score_examples([Example(source, "vw") for source in SOURCES]),
    ]
    if attends:
        lists.append(model.with_options(options).predict(SOURCES[:1]))
    return [trace for traces in lists for trace in traces]


def assert_equal(one: Any, other: Any) -> None:  # noqa: ANN401
    """Assert that values are equal bit by bit."""
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    elif isinstance(one, list | tuple):
        for pair in zip(one, other, strict=True):
            assert_equal(*pair)
    else:
        assert one == other


def compare(compute: Callable[[], Any]) -> None:
    """Compare the results with both default types."""
    expected = compute()
    with float64_default():
        found = compute()
    assert_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("kind", [*MODEL_SETTINGS, "ensemble"])
def test_outputs_and_gradients_of_encoder_decoders_do_not_change(kind: str, plain: bool) -> None:
    assert load_kernels()  # the kernels are loaded before the first output
    if kind == "ensemble":
        model: Any = combine_transducers([make_transducer("gru", seed, double=False) for seed in (3, 4)], ["a", "b"])
    else:
        model = make_transducer(kind, double=False)
    with disable_kernels() if plain else nullcontext():
        compare(lambda: [astuple(trace) for trace in decode(model)])
        (trace,) = model.predict(["abc"])
        compare(lambda: tuple(attribute(model, trace)))


@pytest.mark.parametrize("name", ["tag", "classify", "point"])
def test_outputs_of_other_tasks_do_not_change(name: TaskName) -> None:
    examples = make_examples(name, 9, 1)
    model = make_untrained_predictor(make_task_config(name), examples)
    model.network.float()
    compare(lambda: [astuple(trace) for trace in model.predict([example.source for example in examples])])
