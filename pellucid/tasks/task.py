"""Task: a base class for the kinds of models, with everything that distinguishes them.

Training, evaluation, command line and page call the methods of a task and never ask which task it is. A new task is a
subclass that is registered with `pellucid.register_task` or declared as an entry point (config/task_settings.py).

B batch, T target positions, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pellucid.config.cell_types import cell_title
from pellucid.config.settings import Config, has_characters
from pellucid.config.task_settings import TaskSettings
from pellucid.data.batches import Batch
from pellucid.data.encoding import EncodedExamples, encode_labels
from pellucid.data.examples import Example
from pellucid.data.target_vocabularies import learn_label_vocabularies
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.ensemble import EnsembleParts
from pellucid.decoding.labeling_predictor import LabelingPredictor
from pellucid.decoding.predictor import Predictor
from pellucid.errors import count_noun
from pellucid.evaluation.task_metrics import TaskMetrics
from pellucid.model.equations import EquationGroup, VocabularySizes
from pellucid.model.losses import cross_entropy
from pellucid.model.memory import NetworkOutput
from pellucid.model.network import Network, NetworkParts
from pellucid.shapes import Float
from pellucid.tasks.task_view import TaskView

ATTENTION_CAPTION = "Attention shows where the model looked, not why it decided."


@dataclass(frozen=True, kw_only=True)
class TaskLabels:
    """Names for the parts of an output and other texts about a task, in reports and on the page."""

    symbol: str
    """Name of an output symbol."""
    symbols: str
    """Its plural."""
    output: str = "answer"
    """Name of an output, on the page."""
    loss_unit: str
    """Unit over which the loss is averaged, with its article: "a symbol"."""
    constant_output_noun: str = ""
    """Name of an output symbol for the warning that all training examples have the same one; empty for no such warning.
    """
    symbols_are_positions: bool = False
    """True if symbols are source positions, and attention weights their probabilities."""
    symbols_are_classes: bool = False
    """True if symbols are names of classes, which the page shows as texts."""
    attention_caption: str = ATTENTION_CAPTION
    """Sentence that explains the attention weights."""


class Task(ABC):
    """One kind of model: everything that depends on whether outputs are sequences, tags, classes or positions.

    Subclasses define the three attributes and the abstract methods. A task has no state of its own.
    """

    settings: TaskSettings
    """Name of the task, the settings that it changes and rejects, and the properties of its outputs."""
    labels: TaskLabels
    """Names for the parts of outputs, in reports and on the page."""
    metrics: TaskMetrics
    """Metrics of outputs, and their names."""

    @property
    def view(self) -> TaskView:
        """Fields by which the page displays outputs, from `settings`, `labels` and `metrics`."""
        labels = self.labels
        return TaskView(
            autoregressive=self.settings.autoregressive,
            per_position=self.settings.per_position,
            points=labels.symbols_are_positions,
            texts=labels.symbols_are_classes,
            symbol=labels.symbol,
            symbols=labels.symbols,
            output=labels.output,
            scores=self.metrics.names,
        )

    @abstractmethod
    def encode_examples(
        self, examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies, config: Config
    ) -> EncodedExamples:
        """Return the source and target ids of examples.

        Args:
            examples: The examples.
            tokenizers: The tokenizers of the run.
            vocabularies: The vocabularies of the run.
            config: The configuration.
        """

    @abstractmethod
    def learn_vocabularies(self, examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
        """Return the vocabularies of training examples.

        Args:
            examples: The training examples.
            tokenizers: The tokenizers of the run.
            config: The configuration.
        """

    def vocabulary_error(self, config: Config, vocabularies: Vocabularies) -> str:
        """Return the reason why saved vocabularies do not fit a configuration, when a run is loaded.

        Args:
            config: Configuration of the run.
            vocabularies: Vocabularies of the run.

        Returns:
            The field, what was expected and what it holds: "target.symbols: expected ..."; "" if they fit, and by
            default.
        """
        return ""

    @abstractmethod
    def build_network(self, parts: NetworkParts) -> Network:
        """Return a new network, initialized from torch's default generator, which the caller has seeded.

        Args:
            parts: Encoder, sizes and configuration.
        """

    def loss(self, network: Network, output: NetworkOutput, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """Return the loss of a batch, by default the cross-entropy of its targets.

        Args:
            network: The network.
            output: Outputs of the network for the batch.
            batch: The batch.
            label_smoothing: Target probability, 0 to 1, that is spread over all symbols.

        Returns:
            The mean over target positions, in nats.
        """
        return cross_entropy(output.logits, batch.target, label_smoothing)

    @abstractmethod
    def build_predictor(self, config: Config, vocabularies: Vocabularies, network: Network, name: str) -> Predictor:
        """Return the predictor of a trained network.

        Args:
            config: The configuration of the run.
            vocabularies: The vocabularies of the run.
            network: The network.
            name: Name of the model in error messages.
        """

    @abstractmethod
    def build_ensemble(self, parts: EnsembleParts) -> Predictor:
        """Return the predictor of several trained networks.

        Args:
            parts: Fields of the combined predictor.
        """

    @abstractmethod
    def describe_architecture(self, config: Config) -> str:
        """Describe the architecture of a network, as a sentence without its full stop.

        Args:
            config: Configuration.
        """

    def equations(self, config: Config, sizes: VocabularySizes) -> list[EquationGroup]:
        """Return the equations of a network part by part, for the page; by default none.

        Args:
            config: Configuration.
            sizes: Numbers of ids of the vocabularies.
        """
        return []


class LabelingTask(Task):
    """Base of tasks whose networks predict all labels at once, without EOS."""

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
        return encode_labels(examples, tokenizers, vocabularies)

    def learn_vocabularies(self, examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
        """Return the vocabularies of training examples; the target vocabulary has every label, however rare.

        Args:
            examples: Training examples.
            tokenizers: Tokenizers of the run.
            config: Configuration.
        """
        return learn_label_vocabularies(examples, tokenizers, config)

    def vocabulary_error(self, config: Config, vocabularies: Vocabularies) -> str:
        """Return an error message if saved target symbols have no label, else "".

        Args:
            config: Configuration of the run.
            vocabularies: Vocabularies of the run.
        """
        if vocabularies.target.symbols:
            return ""
        return f"target.symbols: expected one {self.labels.symbol} or more, got an empty list"

    def build_predictor(self, config: Config, vocabularies: Vocabularies, network: Network, name: str) -> Predictor:
        """Return the predictor of a trained network: tags, classes or positions.

        Args:
            config: Configuration of the run.
            vocabularies: Vocabularies of the run.
            network: Trained network.
            name: Name of the model in error messages.
        """
        return LabelingPredictor(config, vocabularies, network, name=name)

    def build_ensemble(self, parts: EnsembleParts) -> Predictor:
        """Return the predictor of several trained networks, which averages their probabilities.

        Args:
            parts: Fields of the combined predictor.
        """
        config, vocabularies, network, name, members, _ = parts
        return LabelingPredictor(config, vocabularies, network, name=name, members=members)


def describe_encoder(config: Config) -> str:
    """Describe the encoder: "bidirectional GRU encoder of 1 layer of 16 units per direction".

    If it has convolutions or reads characters, they stand first.

    Args:
        config: Configuration.
    """
    encoder = config.encoder
    widths = " and ".join(map(str, encoder.convolutions))
    before = f"convolutions of {widths} symbols ({encoder.filters} filters each), " if widths else ""
    if has_characters(config):
        kind = "a convolution" if encoder.characters == "convolution" else "a bidirectional GRU"
        before = f"{kind} over the characters of each word ({encoder.character_size} units), {before}"
    direction = "bidirectional" if encoder.bidirectional else "unidirectional"
    layers = f"{count_noun(encoder.num_layers, 'layer')} of {encoder.hidden_size} units per direction"
    return f"{before}{direction} {cell_title(encoder.cell)} encoder of {layers}"
