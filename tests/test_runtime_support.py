"""What the runtime computes, and the errors for what it does not."""

from typing import Any

import pytest
from small_networks import make_config
from test_runtime_predictor import assert_traces_close, make_pair
from untrained_models import MODEL_SETTINGS

from pellucid.config.attention_types import ATTENTION_TYPES, BUILT_IN_TYPES
from pellucid.model.attention import Attention
from pellucid.runtime.support import UnsupportedError, check_supported, unsupported_settings


@pytest.mark.parametrize("settings", MODEL_SETTINGS.values(), ids=MODEL_SETTINGS)
def test_every_built_in_network_is_supported(settings: dict[str, Any]) -> None:
    assert unsupported_settings(make_config(settings)) == {}


@pytest.mark.parametrize("kind", BUILT_IN_TYPES)
@pytest.mark.parametrize("order", ["attend-then-step", "step-then-attend"])
def test_supported_attention_is_computed_as_by_pytorch(kind: str, order: str) -> None:
    """A new type of attention is supported until `unsupported_settings` names it, and then must be computed."""
    sizes = {"encoder": {"hidden_size": 8}, "decoder": {"hidden_size": 16, "order": order}}
    settings: dict[str, Any] = {"attention": {"type": kind}, **sizes}
    check_supported(make_config(settings))
    torch_predictor, runtime = make_pair(settings)
    traces = runtime.predict(["abc", "cabba"])
    assert_traces_close(traces, torch_predictor.predict(["abc", "cabba"]))
    assert all(trace.attention.any() for trace in traces) or not BUILT_IN_TYPES[kind].uses_softmax


def test_another_task_is_named() -> None:
    config = make_config({"task": "classify", "data": {"target_symbols": "whole"}})
    assert [*unsupported_settings(config)] == ["task"]
    with pytest.raises(UnsupportedError, match=r"does not support task: only 'transduce' is supported.*'classify'"):
        check_supported(config)


def test_attention_of_another_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTENTION_TYPES.registered, "theirs", Attention)
    config = make_config({"attention": {"type": "theirs"}})
    with pytest.raises(UnsupportedError, match=r"does not support attention\.type: 'theirs' is of another package"):
        check_supported(config)
