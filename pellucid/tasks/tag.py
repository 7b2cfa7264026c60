"""Task "tag": one tag for each source symbol."""

from pellucid.config.settings import Config
from pellucid.config.task_settings import TAG
from pellucid.evaluation.label_metrics import SymbolLabelCounter, chunk_metrics_for_log
from pellucid.evaluation.metrics import ValidationMetric
from pellucid.evaluation.task_metrics import TaskMetrics, tag_rates
from pellucid.model.equations import EquationGroup, VocabularySizes, tagger_equations
from pellucid.model.labeling_networks import Tagger
from pellucid.model.network import Network, NetworkParts
from pellucid.model.output_layers import TokenClassificationHead
from pellucid.tasks.task import LabelingTask, TaskLabels, describe_encoder


class TaggingTask(LabelingTask):
    """Task of predicting one tag for each source symbol, from the encoder state at its position."""

    settings = TAG
    labels = TaskLabels(
        symbol="tag",
        symbols="tags",
        output="tagging",
        loss_unit="a tag",
        constant_output_noun="tag",
        attention_caption="Each tag is predicted from the encoder state at its position, without attention.",
    )
    metrics = TaskMetrics(
        validation_metrics=(
            ValidationMetric("span_f1", "span F1"),
            ValidationMetric("symbol_accuracy", "tag accuracy"),
            ValidationMetric("exact_match", "sequence accuracy"),
        ),
        summary_key="symbol_accuracy",
        compared_rates=(("accuracy", "tag accuracy"), ("exact_match", "sequence accuracy")),
        rates=tag_rates,
        labels=SymbolLabelCounter,
        validation_scores=chunk_metrics_for_log,
    )

    def build_network(self, parts: NetworkParts) -> Network:
        """Return a new `Tagger`: the encoder, and a token classification head.

        Args:
            parts: Encoder, sizes and configuration.
        """
        return Tagger(parts.encoder, TokenClassificationHead(parts.sizes.memory_size, parts.sizes.vocabulary_size))

    def describe_architecture(self, config: Config) -> str:
        """Describe the encoder and the prediction of tags, in a sentence without its full stop.

        Args:
            config: Configuration.
        """
        return f"A tagger: {describe_encoder(config)}, each tag predicted from the encoder state at its position"

    def equations(self, config: Config, sizes: VocabularySizes) -> list[EquationGroup]:
        """Return the equations of encoder and output layer.

        Args:
            config: Configuration.
            sizes: Numbers of ids of the vocabularies.
        """
        return tagger_equations(config, sizes)


TASK = TaggingTask()
