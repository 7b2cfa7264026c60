"""export/export_check.py: the metric of an export and of the run itself."""

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from small_networks import make_config
from trained_runs import copy_task_run, make_copy_examples

from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.export.export_check import (
    ExportScore,
    decode_with_graphs,
    decode_with_run,
    export_metric,
    score_outputs,
)
from pellucid.export.onnx_export import export_files
from pellucid.runtime.run_reader import read_run

PAIRS = [Example("ab", "xy"), Example("b", "y"), Example("c", "zz")]
OUTPUTS = [("x", "y"), ("x",), ("z", "z", "x")]


@pytest.mark.parametrize(
    ("metric", "value"), [("exact_match", 100 / 3), ("symbol_error_rate", 40), ("symbol_accuracy", 75)]
)
def test_metrics_of_outputs(metric: str, value: float) -> None:
    tokenizers = build_tokenizers(make_config({}).data)
    score = score_outputs(PAIRS, OUTPUTS, tokenizers, metric)
    assert score.metric == metric and score.outputs == tuple(OUTPUTS)
    assert score.value == pytest.approx(value)


def test_loss_and_changed_outputs() -> None:
    first, second = (
        ExportScore("exact_match", 80.0, (("a",), ("b",))),
        ExportScore("exact_match", 79.0, (("a",), ("c",))),
    )
    assert second.metric_drop(first) == 1 and first.metric_drop(second) == -1
    assert second.num_changed(first) == 1
    low, high = ExportScore("symbol_error_rate", 5.0, ()), ExportScore("symbol_error_rate", 7.0, ())
    assert high.metric_drop(low) == 2


@pytest.mark.parametrize(("metric", "used"), [("loss", "exact_match"), ("symbol_error_rate", "symbol_error_rate")])
def test_the_metric_is_that_of_the_run(metric: str, used: str) -> None:
    assert export_metric(make_config({"training": {"metric": metric}})) == used


def test_the_graphs_give_the_outputs_of_the_run() -> None:
    run, examples = copy_task_run().run, make_copy_examples(8, 5)
    files = export_files(read_run(run), 17, "float32", 0.0)
    assert decode_with_graphs(files, examples) == decode_with_run(run, examples)
