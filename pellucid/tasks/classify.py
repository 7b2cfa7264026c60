"""Task "classify": one class for each source."""

import msgspec

from pellucid.config.cell_types import cell_title
from pellucid.config.settings import Config, DecoderConfig
from pellucid.config.task_settings import CLASSIFY
from pellucid.evaluation.label_metrics import SymbolLabelCounter
from pellucid.evaluation.metrics import ValidationMetric
from pellucid.evaluation.task_metrics import TaskMetrics, accuracy_rates
from pellucid.model.equations import EquationGroup, VocabularySizes, classifier_equations
from pellucid.model.labeling_networks import Classifier
from pellucid.model.network import Network, NetworkParts, build_decoder
from pellucid.tasks.task import LabelingTask, TaskLabels, describe_encoder


class ClassificationTask(LabelingTask):
    """Task of predicting one class for a source.

    A decoder attends `decoder.num_hops` times, feeds back no symbol, and predicts the class from its last step.
    """

    settings = CLASSIFY
    labels = TaskLabels(
        symbol="class",
        symbols="classes",
        loss_unit="an answer",
        constant_output_noun="class",
        symbols_are_classes=True,
    )
    metrics = TaskMetrics(
        validation_metrics=(ValidationMetric("exact_match", "accuracy"),),
        compared_rates=(("accuracy", "accuracy"),),
        rates=accuracy_rates,
        labels=SymbolLabelCounter,
    )

    def build_network(self, parts: NetworkParts) -> Network:
        """Return a new `Classifier`: the encoder, and a decoder that feeds back no symbol.

        Args:
            parts: Encoder, sizes and configuration.
        """
        decoder = _without_feedback(parts.config)
        return Classifier(parts.encoder, build_decoder(decoder, parts.config.attention, parts.sizes), decoder.num_hops)

    def describe_architecture(self, config: Config) -> str:
        """Describe encoder, attention and decoder, in a sentence without its full stop.

        Args:
            config: Configuration.
        """
        decoder = config.decoder
        attention_type = config.attention.type
        attention = f"{attention_type} attention" if attention_type != "none" else "no attention"
        steps = f"{decoder.num_hops} step(s) of a {cell_title(decoder.cell)} of {decoder.hidden_size} units"
        return f"A classifier: {describe_encoder(config)}, {attention}, {steps}"

    def equations(self, config: Config, sizes: VocabularySizes) -> list[EquationGroup]:
        """Return the equations of encoder, attention, decoder and output layer.

        Args:
            config: Configuration.
            sizes: Numbers of ids of the vocabularies.
        """
        return classifier_equations(config, sizes, _without_feedback(config))


def _without_feedback(config: Config) -> DecoderConfig:
    """Return the settings of a classifier's decoder, which reads no symbol."""
    return msgspec.structs.replace(config.decoder, embedding="none")


TASK = ClassificationTask()
