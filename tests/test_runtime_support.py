"""What the runtime computes, and the errors for what it does not."""

from typing import Any

import pytest
from small_networks import make_config
from untrained_models import MODEL_SETTINGS

from pellucid.config.attention_types import ATTENTION_TYPES
from pellucid.model.attention import Attention
from pellucid.runtime.support import UnsupportedError, check_supported, unsupported_settings


@pytest.mark.parametrize("settings", MODEL_SETTINGS.values(), ids=MODEL_SETTINGS)
def test_every_built_in_network_is_supported(settings: dict[str, Any]) -> None:
    check_supported(make_config(settings))


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
