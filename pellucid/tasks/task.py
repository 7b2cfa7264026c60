"""Task: what distinguishes one kind of model from another, as one object.

Everything else (training, evaluation, the command line, the page) asks the task of a configuration and never which task
it is. A new task is a subclass and one call of `pellucid.register_task`, or an entry point (tasks/task_settings.py).

B batch, T target positions, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from pellucid.config.settings import Config
from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.data.target_encoding import ExampleEncoder, encode_labels, learn_label_vocabularies
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.classification import ClassificationPredictor
from pellucid.decoding.ensemble import Joined
from pellucid.decoding.predictor import Predictor
from pellucid.evaluation.task_metrics import TaskMetrics
from pellucid.model.losses import cross_entropy
from pellucid.model.memory import Unrolled
from pellucid.model.network import Network, NetworkParts
from pellucid.tasks.task_settings import TaskSettings
from pellucid.tasks.task_view import TaskView

ATTENTION_CAPTION = "Attention shows where the model looked, not why it decided."


@dataclass(frozen=True, kw_only=True)
class TaskLabels:
    """What the parts of an output are called."""

    symbol: str
    """One symbol of an output."""
    symbols: str
    """Several of them."""
    output: str = "answer"
    """A whole output, on the page."""
    loss_unit: str
    """What the loss is a mean over, with its article."""
    label: str = ""
    """What an output symbol is called where training examples with one such symbol only teach nothing."""
    best_score: tuple[str, str] = ("exact match", "exact_match")
    """The score of a model's best validation: what people call it, and its name in the log."""
    scores: Mapping[str, str | None] = field(default_factory=dict)
    """Names of validation scores on the page, by their keys in the log; None hides a score that repeats another one."""
    points: bool = False
    """Whether symbols are source positions, and attention weights their probabilities."""
    texts: bool = False
    """Whether symbols are texts, such as the names of classes."""
    weights: str = ATTENTION_CAPTION
    """A sentence that says what the attention weights are."""


class Task(ABC):
    """One kind of model. Subclasses define the three attributes and the abstract methods."""

    settings: TaskSettings
    """Its name, the settings that it changes and refuses, and the properties of its outputs."""
    labels: TaskLabels
    """What the parts of its outputs are called, in reports and on the page."""
    metrics: TaskMetrics
    """How its outputs are scored."""

    @property
    def view(self) -> TaskView:
        """How the page shows outputs."""
        labels = self.labels
        return TaskView(
            autoregressive=self.settings.autoregressive,
            per_position=self.settings.per_position,
            points=labels.points,
            texts=labels.texts,
            symbol=labels.symbol,
            symbols=labels.symbols,
            output=labels.output,
            scores=dict(labels.scores),
        )

    @abstractmethod
    def example_encoder(self, config: Config) -> ExampleEncoder:
        """Return the function that turns examples into ids."""

    @abstractmethod
    def learn_vocabularies(self, examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
        """Return the symbols of training examples."""

    @abstractmethod
    def build_network(self, parts: NetworkParts) -> Network:
        """Return a new network. Its parameters are drawn from torch's default generator, which has been seeded."""

    def loss(self, network: Network, unrolled: Unrolled, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """Return the loss of a batch: unless a task says otherwise, the cross-entropy of its targets."""
        return cross_entropy(unrolled.logits, batch.target, label_smoothing)

    @abstractmethod
    def build_predictor(self, config: Config, vocabularies: Vocabularies, network: Network, name: str) -> Predictor:
        """Return what predicts with a trained network; `name` is what errors call it."""

    @abstractmethod
    def build_ensemble(self, joined: Joined) -> Predictor:
        """Return what predicts with several trained networks together."""

    @abstractmethod
    def describe_architecture(self, config: Config) -> str:
        """Return the architecture of a network in a sentence without its full stop."""


class LabelingTask(Task):
    """Base of tasks whose networks give all their answers at once, each one of a set of labels."""

    def example_encoder(self, config: Config) -> ExampleEncoder:
        """Return the encoding of answers, which have no end symbol."""
        return encode_labels

    def learn_vocabularies(self, examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
        """Return the symbols of training examples, every label of which counts."""
        return learn_label_vocabularies(examples, tokenizers, config)

    def build_predictor(self, config: Config, vocabularies: Vocabularies, network: Network, name: str) -> Predictor:
        """Return the predictor of networks that give all their answers at once."""
        return ClassificationPredictor(config, vocabularies, network, name=name)

    def build_ensemble(self, joined: Joined) -> Predictor:
        """Return the same of several networks."""
        config, vocabularies, network, name, members = joined
        return ClassificationPredictor(config, vocabularies, network, name=name, members=members)


def describe_encoder(config: Config) -> str:
    """Return a description of the encoder: "bidirectional GRU of 1 layer(s) of 16 units per direction"."""
    encoder = config.encoder
    widths = " and ".join(map(str, encoder.convolutions))
    before = f"convolutions of {widths} symbols ({encoder.filters} filters each), " if widths else ""
    direction = "bidirectional" if encoder.bidirectional else "unidirectional"
    layers = f"{encoder.num_layers} layer(s) of {encoder.hidden_size} units per direction"
    return f"{before}{direction} {encoder.cell.upper()} of {layers}"
