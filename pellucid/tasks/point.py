"""Task "point": one source position for each source."""

from collections.abc import Sequence

from torch import Tensor

from pellucid.config.settings import Config
from pellucid.config.task_settings import POINT
from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.data.target_vocabularies import learn_position_vocabularies
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import NUM_SPECIAL, Vocabularies
from pellucid.errors import quote
from pellucid.evaluation.label_metrics import PositionCounter
from pellucid.evaluation.metrics import ValidationMetric
from pellucid.evaluation.task_metrics import TaskMetrics, accuracy_rates
from pellucid.model.attention import build_attention
from pellucid.model.equations import EquationGroup, VocabularySizes, pointer_equations
from pellucid.model.labeling_networks import Pointer, Query
from pellucid.model.losses import pointing_cross_entropy
from pellucid.model.memory import NetworkOutput
from pellucid.model.network import Network, NetworkParts
from pellucid.shapes import Float
from pellucid.tasks.task import LabelingTask, TaskLabels, describe_encoder


class PointingTask(LabelingTask):
    """Task of predicting one source position; its number, from 1, is the target.

    The network attends once; the attention weights are the probabilities of the positions.
    """

    settings = POINT
    labels = TaskLabels(
        symbol="position",
        symbols="positions",
        loss_unit="an answer",
        symbols_are_positions=True,
        attention_caption="The weights are the answer: the probability of each position.",
    )
    metrics = TaskMetrics(
        validation_metrics=(ValidationMetric("exact_match", "accuracy"),),
        compared_rates=(("accuracy", "accuracy"),),
        rates=accuracy_rates,
        labels=PositionCounter,
    )

    def learn_vocabularies(self, examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
        """Return the source vocabularies of training examples; the target symbols are 1 to `data.max_sequence_length`.

        Args:
            examples: Training examples.
            tokenizers: Tokenizers of the run.
            config: Configuration.
        """
        return learn_position_vocabularies(examples, tokenizers, config)

    def vocabulary_error(self, config: Config, vocabularies: Vocabularies) -> str:
        """Return an error message if saved target symbols are not 1 to `data.max_sequence_length` in order, else "".

        Args:
            config: Configuration of the run.
            vocabularies: Vocabularies of the run.

        Returns:
            The first wrong symbol or the wrong number of symbols, and what was expected.
        """
        symbols = vocabularies.target.symbols
        size = config.data.max_sequence_length
        expected = (
            f"target.symbols: expected the positions 1 to {size} in order (data.max_sequence_length of the run), got "
        )
        for position, symbol in enumerate(symbols, 1):
            if symbol != str(position):
                return f"{expected}{quote(symbol)} in place {position}"
        return "" if len(symbols) == size else f"{expected}{len(symbols)} symbols"

    def build_network(self, parts: NetworkParts) -> Network:
        """Return a new `Pointer`: the encoder, a query and one attention step.

        Args:
            parts: Encoder, sizes and configuration.
        """
        config, sizes = parts.config, parts.sizes
        query = Query(config.decoder.init_hidden, sizes.memory_size, config.decoder.hidden_size)
        attention = build_attention(config.attention, config.decoder.hidden_size, sizes.memory_size)
        return Pointer(parts.encoder, query, attention, sizes.vocabulary_size - NUM_SPECIAL)

    def loss(self, network: Network, output: NetworkOutput, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """Return the mean cross-entropy over source positions, in nats per source.

        Args:
            network: Not read.
            output: Outputs of the network for the batch.
            batch: Batch.
            label_smoothing: Target probability, 0 to 1, that is spread over all positions of the source.
        """
        return pointing_cross_entropy(output.logits, batch.target, label_smoothing)

    def describe_architecture(self, config: Config) -> str:
        """Describe encoder and attention, in a sentence without its full stop.

        Args:
            config: Configuration.
        """
        return f"A pointer: {describe_encoder(config)}, one step of {config.attention.type} attention"

    def equations(self, config: Config, sizes: VocabularySizes) -> list[EquationGroup]:
        """Return the equations of encoder, query and attention.

        Args:
            config: Configuration.
            sizes: Numbers of ids of the vocabularies.
        """
        return pointer_equations(config, sizes)


TASK = PointingTask()
