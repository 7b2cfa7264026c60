"""export/support.py: networks that the graphs do not support are refused by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")

from small_networks import make_config
from trained_runs import copy_run_folder, copy_task_run

from pellucid import dependencies
from pellucid.dependencies import MissingDependencyError
from pellucid.errors import ConfigError, InputError
from pellucid.export import support
from pellucid.export.support import MIN_OPSET, check_exportable, check_opset, check_packages

UNSUPPORTED: dict[str, dict[str, Any]] = {
    "task": {"task": "tag"},
    "attention.type": {"attention": {"type": "monotonic"}},
    "encoder.layer_normalization": {"encoder": {"layer_normalization": "cells"}},
    "decoder.layer_normalization": {"decoder": {"layer_normalization": "cells"}},
    "encoder.feature_merge": {"encoder": {"feature_merge": "sum"}, "data": {"features_column": "3"}},
    "data.source_symbols": {"data": {"source_symbols": "subwords"}},
}


@pytest.mark.parametrize(("key", "settings"), UNSUPPORTED.items(), ids=UNSUPPORTED)
def test_settings_that_are_not_supported_are_named(
    key: str, settings: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(support, "load_run_config", lambda run: make_config(settings))
    with pytest.raises(InputError, match=f"the export to ONNX does not support {key}: "):
        check_exportable(tmp_path)


def test_a_run_of_supported_settings_is_accepted() -> None:
    check_exportable(copy_task_run().run)


def test_ensembles_are_refused(tmp_path: Path) -> None:
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    (run / "ensemble.json").write_text('{"members": ["seed-1"]}')
    with pytest.raises(InputError, match="is an ensemble: export one of its members"):
        check_exportable(run)


@pytest.mark.parametrize("opset", [0, MIN_OPSET - 1, 999])
def test_versions_of_the_operators_out_of_range(opset: int) -> None:
    with pytest.raises(ConfigError, match=rf"--opset: expected 17 to \d+, got {opset}"):
        check_opset(opset)
    check_opset(MIN_OPSET)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check_packages()
    monkeypatch.setattr(dependencies, "find_spec", lambda name: None)
    expected = r"^export --onnx needs the package 'onnx', which is not installed: pip install 'pellucid\[onnx\]'$"
    with pytest.raises(MissingDependencyError, match=expected):
        check_packages()
