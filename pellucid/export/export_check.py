"""Measurement of an export: the metric of the run on a file of pairs, by the exported graphs and by the run itself."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pellucid.config.settings import Config
from pellucid.config.training_types import is_custom_metric
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers
from pellucid.evaluation.metrics import ScoredExample, evaluate_examples
from pellucid.export.onnx_export import write_export

Symbols = tuple[str, ...]
METRIC_NAMES = {
    "exact_match": "exact match",
    "symbol_error_rate": "symbol error rate",
    "symbol_accuracy": "symbol accuracy",
}
"""Display names of the metrics."""


class ExportScore(NamedTuple):
    """Metric of outputs on a file of pairs."""

    metric: str
    """exact_match, symbol_error_rate or symbol_accuracy."""
    value: float
    """The metric in percent."""
    outputs: tuple[Symbols, ...]
    """Output of each pair."""

    def metric_drop(self, reference: "ExportScore") -> float:
        """Return how many points worse this metric is than that of other outputs; negative if it is better.

        Args:
            reference: Metric of the other outputs.
        """
        difference = reference.value - self.value
        return -difference if self.metric == "symbol_error_rate" else difference

    def num_changed(self, reference: "ExportScore") -> int:
        """Return the number of outputs that differ from those of the same pairs elsewhere.

        Args:
            reference: The other outputs.
        """
        return sum(one != other for one, other in zip(self.outputs, reference.outputs, strict=True))


def export_metric(config: Config) -> str:
    """Return the metric of a run that outputs are measured by; exact match if it selects its model by loss, or by a
    metric of another package.

    Args:
        config: Configuration of the run.
    """
    metric = config.training.metric
    return "exact_match" if metric == "loss" or is_custom_metric(metric) else metric


def score_outputs(
    examples: Sequence[Example], outputs: Sequence[Symbols], tokenizers: Tokenizers, metric: str
) -> ExportScore:
    """Return the metric of outputs.

    Args:
        examples: Pairs.
        outputs: Output of each, in symbols.
        tokenizers: Tokenizers of the run.
        metric: Name of the metric.

    Raises:
        InputError: There are no pairs.
    """
    scored = [
        ScoredExample(output, (tuple(tokenizers.target.split(example.target)),), 0)
        for example, output in zip(examples, outputs, strict=True)
    ]
    return ExportScore(metric, getattr(evaluate_examples(scored), metric), tuple(outputs))


def decode_with_graphs(files: Mapping[str, bytes], examples: Sequence[Example]) -> list[Symbols]:
    """Return the outputs of exported graphs by the beam search beside them.

    Args:
        files: Files of an export, which are written to a temporary folder.
        examples: Examples; their targets are ignored.
    """
    # onnxruntime is an optional dependency.
    from pellucid.export.beam_search import OnnxModel

    with TemporaryDirectory() as folder:
        write_export(Path(folder), files)
        model = OnnxModel(folder)
        return [tuple(model.decode(example.source, example.features)[0].symbols) for example in examples]


def decode_with_run(run: Path, examples: Sequence[Example]) -> list[Symbols]:
    """Return the outputs of a run, as `pellucid predict` gives them.

    Args:
        run: Run folder.
        examples: Examples; their targets are ignored.

    Raises:
        RunError: The run folder cannot be loaded.
    """
    from pellucid.run_folder.predictor_loader import load  # PyTorch takes seconds to import

    return [trace.symbols for trace in load(run).predict_examples(examples)]
