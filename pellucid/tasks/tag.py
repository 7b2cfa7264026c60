"""The task tag: the output is a tag for each source symbol."""

from pellucid.config.settings import Config
from pellucid.evaluation.label_metrics import score_labels, spans_for_log
from pellucid.evaluation.metrics import Followed
from pellucid.evaluation.scoring import TaskMetrics, position_rates
from pellucid.model.heads import TokenClassificationHead
from pellucid.model.network import Network, NetworkParts
from pellucid.model.reader import Tagger
from pellucid.tasks.task import ClassificationTask, TaskLabels, encoder_in_words
from pellucid.tasks.task_settings import TAG


class Tag(ClassificationTask):
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
        followed=(
            Followed("span_f1", "span F1"),
            Followed("symbol_accuracy", "tags right"),
            Followed("exact_match", "all tags right"),
        ),
        exact_name="all tags right",
        compared=(("accuracy", "tags right"), ("exact_match", "all tags right")),
        rates=position_rates,
        labels=score_labels,
        validation=spans_for_log,
    )

    def build_network(self, parts: NetworkParts) -> Network:
        """Return an encoder with a classifier of its states."""
        return Tagger(parts.encoder, TokenClassificationHead(parts.sizes.memory, parts.sizes.vocabulary))

    def architecture(self, config: Config) -> str:
        """Return the architecture of the encoder."""
        return f"A tagger: {encoder_in_words(config)}, each position tagged from its own state"


TASK = Tag()
