"""Networks that can be exported to ONNX, and the optional packages that this needs."""

from pathlib import Path

from pellucid.config.settings import Config, reads_features
from pellucid.dependencies import require_package
from pellucid.errors import ConfigError, InputError, quote
from pellucid.files import file_exists
from pellucid.run_folder.run_files import ENSEMBLE, load_run_config
from pellucid.runtime.support import unsupported_settings

MIN_OPSET = 17
"""The first version of the ONNX operators with LayerNormalization."""
PACKAGES = ("onnx", "onnxruntime")
"""Packages of the extra "onnx"."""


def check_packages() -> None:
    """Check that the packages of the extra "onnx" are installed.

    Raises:
        MissingDependencyError: One is not.
    """
    for name in PACKAGES:
        require_package(name, "onnx", "export --onnx")


def check_opset(opset: int) -> None:
    """Check that the installed package onnx can write a version of the ONNX operators.

    Args:
        opset: The version.

    Raises:
        ConfigError: The version is below `MIN_OPSET`, or newer than the package.
    """
    from onnx import defs

    newest = defs.onnx_opset_version()
    if not MIN_OPSET <= opset <= newest:
        raise ConfigError(f"--opset: expected {MIN_OPSET} to {newest}, got {opset}")


def check_exportable(run: Path) -> None:
    """Check that the network of a run can be exported to ONNX.

    Args:
        run: Run folder.

    Raises:
        InputError: The folder is that of an ensemble, or a setting of the run has a value that the graphs do not
            support; the message names it.
        RunError: The settings of the run cannot be read.
    """
    if file_exists(run / ENSEMBLE):
        raise InputError(f"{run} is an ensemble: export one of its members, such as {run / 'seed-1'}")
    for key, reason in _unsupported_settings(load_run_config(run)).items():
        raise InputError(f"{run}: the export to ONNX does not support {key}: {reason}")


def _unsupported_settings(config: Config) -> dict[str, str]:
    """Return the settings that the graphs or the beam search beside them do not support, with the reason."""
    reasons = unsupported_settings(config)
    if config.attention.type == "monotonic":
        reasons["attention.type"] = "'monotonic' has no operator for its scan"
    for section in ("encoder", "decoder"):
        if getattr(config, section).layer_normalization == "cells":
            reasons[f"{section}.layer_normalization"] = "'cells' has no recurrent operator ('outputs' is supported)"
    if config.encoder.feature_merge == "sum" and reads_features(config.data):
        reasons["encoder.feature_merge"] = "'sum' is not supported ('prefix' is)"
    if config.data.context_words:
        reasons["data.context_words"] = "its beam search decodes words without the words around them"
    for column in ("source", "features"):
        kind = getattr(config.data, f"{column}_symbols")
        if kind == "subwords":
            reasons[f"data.{column}_symbols"] = f"{quote(kind)} need the package tokenizers, which the export lacks"
    return reasons
