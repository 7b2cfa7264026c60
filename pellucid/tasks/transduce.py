"""Task "transduce": a target sequence for each source."""

from collections.abc import Sequence

from torch import Tensor

from pellucid.config.attention_types import has_weights
from pellucid.config.cell_types import cell_title
from pellucid.config.settings import Config
from pellucid.config.task_settings import TRANSDUCE
from pellucid.data.batches import Batch
from pellucid.data.encoding import EncodedExamples
from pellucid.data.examples import Example
from pellucid.data.extended_vocabulary import encode_sequence_examples
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import Vocabularies, learn_vocabularies
from pellucid.decoding.ensemble import EnsembleParts, ensemble_of_parts
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.transducer import Transducer
from pellucid.errors import count_noun
from pellucid.evaluation.task_metrics import ERROR_RATE_METRICS
from pellucid.model.equations import EquationGroup, VocabularySizes, transducer_equations
from pellucid.model.losses import copying_cross_entropy, cross_entropy
from pellucid.model.memory import NetworkOutput
from pellucid.model.network import EncoderDecoder, Network, NetworkParts, build_decoder, require_encoder_decoder
from pellucid.shapes import Float
from pellucid.tasks.task import Task, TaskLabels, describe_encoder


class TransductionTask(Task):
    """Task of generating a target sequence: an encoder-decoder, with or without attention, writes symbols until EOS."""

    settings = TRANSDUCE
    metrics = ERROR_RATE_METRICS
    labels = TaskLabels(symbol="symbol", symbols="symbols", output="output", loss_unit="a symbol")

    def encode_examples(
        self, examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies, config: Config
    ) -> EncodedExamples:
        """Return the source and target ids of pairs; for decoders that copy, ids of the extended vocabulary.

        Args:
            examples: Pairs.
            tokenizers: Tokenizers of the run.
            vocabularies: Vocabularies of the run.
            config: Configuration.
        """
        return encode_sequence_examples(examples, tokenizers, vocabularies, config)

    def learn_vocabularies(self, examples: Sequence[Example], tokenizers: Tokenizers, config: Config) -> Vocabularies:
        """Return the vocabularies of training examples, without symbols that occur less than `data.min_count` times.

        Args:
            examples: Training examples.
            tokenizers: Tokenizers of the run.
            config: Configuration.
        """
        return learn_vocabularies(examples, tokenizers, config.data.min_count, config.data.context_words)

    def build_network(self, parts: NetworkParts) -> Network:
        """Return a new encoder-decoder.

        Args:
            parts: Encoder, sizes and configuration.
        """
        config = parts.config
        return EncoderDecoder(parts.encoder, build_decoder(config.decoder, config.attention, parts.sizes))

    def loss(self, network: Network, output: NetworkOutput, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the targets, in nats per symbol with EOS.

        For decoders that copy, it is that of the mixture over vocabulary and copies.

        Args:
            network: Network, an encoder-decoder.
            output: Outputs of the network for the batch.
            batch: Batch.
            label_smoothing: Target probability, 0 to 1, that is spread over all symbols of the vocabulary.

        Raises:
            InputError: The network is not an encoder-decoder.
        """
        if require_encoder_decoder(network).decoder.copying is not None:
            return copying_cross_entropy(output.logits, batch.target, label_smoothing, network.vocabulary_size)
        return cross_entropy(output.logits, batch.target, label_smoothing)

    def build_predictor(self, config: Config, vocabularies: Vocabularies, network: Network, name: str) -> Predictor:
        """Return the predictor of a trained encoder-decoder, which searches for the best output.

        Args:
            config: Configuration of the run.
            vocabularies: Vocabularies of the run.
            network: Trained network.
            name: Name of the model in error messages.
        """
        return Transducer(config, vocabularies, network, name=name)

    def build_ensemble(self, parts: EnsembleParts) -> Predictor:
        """Return the predictor of several trained encoder-decoders, which averages their probabilities.

        Args:
            parts: Fields of the combined predictor.
        """
        return ensemble_of_parts(parts)

    def describe_architecture(self, config: Config) -> str:
        """Describe encoder, attention and decoder, in a sentence without its full stop.

        Args:
            config: Configuration.
        """
        decoder = config.decoder
        attention = f"with {config.attention.type} attention" if has_weights(config.attention) else "without attention"
        layers = count_noun(decoder.num_layers, "layer")
        return (
            f"A recurrent encoder-decoder {attention}: {describe_encoder(config)}, "
            f"{cell_title(decoder.cell)} decoder of {layers} of {decoder.hidden_size} units"
        )

    def equations(self, config: Config, sizes: VocabularySizes) -> list[EquationGroup]:
        """Return the equations of encoder, attention, decoder and output layer.

        Args:
            config: Configuration.
            sizes: Numbers of ids of the vocabularies.
        """
        return transducer_equations(config, sizes)


TASK = TransductionTask()
