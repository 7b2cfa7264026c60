"""The task tag: the output is a tag for each source symbol."""

from pellucid.config.settings import Config
from pellucid.evaluation.label_metrics import chunk_metrics_for_log, score_labels
from pellucid.evaluation.metrics import ValidationMetric
from pellucid.evaluation.task_metrics import TaskMetrics, position_rates
from pellucid.model.heads import PositionTag
from pellucid.model.network import Network, NetworkParts
from pellucid.model.reader import Tagger
from pellucid.tasks.task import LabelingTask, TaskLabels, describe_encoder
from pellucid.tasks.task_settings import TAG


class TaggingTask(LabelingTask):
    """Encoders whose state at each position is classified."""

    settings = TAG
    labels = TaskLabels(
        symbol="tag",
        symbols="tags",
        output="tagging",
        loss_unit="a tag",
        label="tag",
        best_score=("accuracy of tags", "symbol_accuracy"),
        scores={
            "symbol_error_rate": None,
            "exact_match": "whole sequences right",
            "symbol_accuracy": "accuracy of tags",
            "span_f1": "span F1",
        },
        weights="Each tag is read from the state at its own position: nothing else is looked at.",
    )
    metrics = TaskMetrics(
        validation_metrics=(
            ValidationMetric("span_f1", "span F1"),
            ValidationMetric("symbol_accuracy", "tags right"),
            ValidationMetric("exact_match", "all tags right"),
        ),
        exact_match_name="all tags right",
        compared_rates=(("accuracy", "tags right"), ("exact_match", "all tags right")),
        rates=position_rates,
        labels=score_labels,
        validation_scores=chunk_metrics_for_log,
    )

    def build_network(self, parts: NetworkParts) -> Network:
        """Return an encoder with a classifier of its states."""
        return Tagger(parts.encoder, PositionTag(parts.sizes.memory, parts.sizes.vocabulary))

    def describe_architecture(self, config: Config) -> str:
        """Return the architecture of the encoder."""
        return f"A tagger: {describe_encoder(config)}, each position tagged from its own state"


TASK = TaggingTask()
