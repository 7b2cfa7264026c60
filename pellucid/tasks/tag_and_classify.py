"""Task "tag-and-classify": one class for each source, and one tag for each of its symbols."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.config.task_settings import TAG_AND_CLASSIFY
from pellucid.data.batches import Batch
from pellucid.data.encoding import EncodedExamples, encode_classes_and_tags, label_masks
from pellucid.data.examples import Example
from pellucid.data.target_vocabularies import learn_class_and_tag_vocabularies
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import Vocabularies
from pellucid.evaluation.label_metrics import ClassAndTagCounter, class_and_tag_metrics_for_log
from pellucid.evaluation.metrics import ValidationMetric
from pellucid.evaluation.task_metrics import TaskMetrics, class_and_tag_rates
from pellucid.model.attention import build_attention
from pellucid.model.equations import EquationGroup, VocabularySizes, tagging_classifier_equations
from pellucid.model.labeling_networks import Query, TaggingClassifier
from pellucid.model.losses import class_and_tag_cross_entropy
from pellucid.model.memory import NetworkOutput
from pellucid.model.network import Network, NetworkParts
from pellucid.model.output_layers import ClassAndTagHead, OutputLayer, TokenClassificationHead
from pellucid.shapes import Float
from pellucid.tasks.task import LabelingTask, TaskLabels, describe_encoder


class TaggingAndClassificationTask(LabelingTask):
    """Task of predicting the class of a source and a tag for each of its symbols; the class comes first.

    Both share the encoder. The class is predicted from one attention step, each tag from the state at its position.
    """

    settings = TAG_AND_CLASSIFY
    labels = TaskLabels(
        symbol="label",
        symbols="labels",
        output="class and tags",
        loss_unit="a label",
        constant_output_noun="class or tag",
        attention_caption="The first row has the attention weights of the class; each tag is predicted from the "
        "encoder state at its own position, without attention.",
    )
    metrics = TaskMetrics(
        validation_metrics=(
            ValidationMetric("span_f1", "span F1"),
            ValidationMetric("class_accuracy", "class accuracy"),
            ValidationMetric("tag_accuracy", "tag accuracy"),
            ValidationMetric("exact_match", "sequence accuracy"),
        ),
        other_metrics=(ValidationMetric("symbol_accuracy", "label accuracy"),),
        summary_key="symbol_accuracy",
        compared_rates=(("accuracy", "label accuracy"), ("exact_match", "sequence accuracy")),
        rates=class_and_tag_rates,
        labels=ClassAndTagCounter,
        validation_scores=class_and_tag_metrics_for_log,
    )

    def encode_examples(
        self, examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies, config: Config
    ) -> EncodedExamples:
        """Return the source and target ids of examples, without EOS.

        Args:
            examples: Examples.
            tokenizers: Tokenizers of the run.
            vocabularies: Vocabularies of the run.
            config: Configuration.
        """
        return encode_classes_and_tags(examples, tokenizers, vocabularies)

    def learn_vocabularies(self, examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
        """Return the vocabularies of training examples; classes and tags are all kept, however rare.

        Args:
            examples: Training examples.
            tokenizers: Tokenizers of the run.
            config: Configuration.
        """
        return learn_class_and_tag_vocabularies(examples, tokenizers, config)

    def vocabulary_error(self, config: Config, vocabularies: Vocabularies) -> str:
        """Return an error message if saved target symbols lack a class or a tag, else "".

        Args:
            config: Configuration of the run.
            vocabularies: Vocabularies of the run.
        """
        for name in ("classes", "tags"):
            if not getattr(vocabularies, name):
                return f"{name}: expected one symbol or more, got an empty list"
        return ""

    def build_network(self, parts: NetworkParts) -> Network:
        """Return a new `TaggingClassifier`: the encoder, a query, one attention step and two output layers.

        Args:
            parts: Encoder, sizes, configuration, and vocabularies, which say which labels are classes and tags.
        """
        decoder = parts.config.decoder
        sizes = parts.sizes
        is_class, is_tag = map(torch.from_numpy, label_masks(parts.vocabularies))
        query = Query(decoder.init_hidden, sizes.memory_size, decoder.hidden_size)
        attention = build_attention(parts.config.attention, decoder.hidden_size, sizes.memory_size)
        classes = OutputLayer(
            decoder.output_layer_inputs, decoder.hidden_size, sizes.memory_size, sizes.vocabulary_size
        )
        tags = TokenClassificationHead(sizes.memory_size, sizes.vocabulary_size)
        return TaggingClassifier(parts.encoder, query, attention, ClassAndTagHead(classes, tags, is_class, is_tag))

    def loss(self, network: Network, output: NetworkOutput, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """Return the cross-entropy of the classes and of the tags, in nats per label.

        Args:
            network: Not read.
            output: Outputs of the network for the batch.
            batch: Batch.
            label_smoothing: Target probability, 0 to 1, that is spread over all classes, or all tags.
        """
        return class_and_tag_cross_entropy(output.logits, batch.target, label_smoothing)

    def describe_architecture(self, config: Config) -> str:
        """Describe the encoder and the prediction of class and tags, in a sentence without its full stop.

        Args:
            config: Configuration.
        """
        return (
            f"A tagger and classifier: {describe_encoder(config)}, the class predicted from one step of "
            f"{config.attention.type} attention, each tag from the encoder state at its position"
        )

    def equations(self, config: Config, sizes: VocabularySizes) -> list[EquationGroup]:
        """Return the equations of encoder, query, attention and output layers.

        Args:
            config: Configuration.
            sizes: Numbers of ids of the vocabularies.
        """
        return tagging_classifier_equations(config, sizes)


TASK = TaggingAndClassificationTask()
