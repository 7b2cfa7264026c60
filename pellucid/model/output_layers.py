"""Output layers.

B batch, T target positions, H hidden, D memory, E embedding, V vocabulary, C sampled symbols, N inputs.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from pellucid.config.settings import ReadoutKind, output_layer_input_size
from pellucid.data.vocabulary import NUM_SPECIAL
from pellucid.kernels.types import OutputLayerParameters
from pellucid.model.linear import linear
from pellucid.model.memory import SampledOutputs
from pellucid.shapes import Bool, Float


class OutputLayer(nn.Module):
    """logits = W [s; c] + b, from the decoder state s, the context c, or both.

    References:
        Bahdanau et al. 2015, appendix A.2.2, use both.
    """

    kind: ClassVar[str] = "linear"

    def __init__(self, inputs: ReadoutKind, hidden_size: int, memory_size: int, vocabulary_size: int) -> None:
        """Build W and b.

        Args:
            inputs: Whether the layer reads the state, the context, or both.
            hidden_size: H.
            memory_size: D.
            vocabulary_size: V.
        """
        super().__init__()
        self.inputs: ReadoutKind = inputs
        self.hidden_size = hidden_size
        self.projection = nn.Linear(output_layer_input_size(inputs, hidden_size, memory_size), vocabulary_size)

    def kernel_parameters(self) -> OutputLayerParameters:
        """Return W for the state and W for the context separately, and b, as a kernel reads them."""
        return _split_weight(self.projection.weight, self.projection.bias, self.inputs, self.hidden_size)

    def forward(
        self, hidden: Float[Tensor, "*shape H"], context: Float[Tensor, "*shape D"]
    ) -> Float[Tensor, "*shape V"]:
        """Return one logit for each symbol.

        Args:
            hidden: h.
            context: c.
        """
        return linear(select_inputs(self.inputs, hidden, context), self.projection.weight, self.projection.bias)

    def sampled_logits(
        self, hidden: Float[Tensor, "B T H"], context: Float[Tensor, "B T D"], sampled: SampledOutputs
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T"]]:
        """Return the logits of the sampled symbols and of the targets; only their rows of W are read.

        Args:
            hidden: h.
            context: c.
            sampled: Sampled symbols, and targets.
        """
        features = select_inputs(self.inputs, hidden, context)
        return _sampled_logits(features, self.projection.weight, self.projection.bias, sampled)


class TiedOutputLayer(nn.Module):
    """logits = Y A [s; c] + b with tied embeddings: Y are the vectors of the target symbols.

    A maps the inputs to the size of a vector, and is absent if the sizes agree. The vectors belong to the decoder's
    embedding and are passed at each call.

    References:
        Press & Wolf 2017.
    """

    kind: ClassVar[str] = "tied"

    def __init__(self, inputs: ReadoutKind, hidden_size: int, memory_size: int, vectors: Float[Tensor, "V E"]) -> None:
        """Build A and b.

        Args:
            inputs: Whether the layer reads the state, the context, or both.
            hidden_size: H.
            memory_size: D.
            vectors: Y, of which only the shape is read.
        """
        super().__init__()
        self.inputs: ReadoutKind = inputs
        self.hidden_size = hidden_size
        vocabulary_size, embedding_size = vectors.shape
        input_size = output_layer_input_size(inputs, hidden_size, memory_size)
        self.adapter = nn.Linear(input_size, embedding_size, bias=False) if input_size != embedding_size else None
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def kernel_parameters(self, vectors: Float[Tensor, "V E"]) -> OutputLayerParameters:
        """Return Y A for the state and Y A for the context separately, and b, as a kernel reads them.

        Args:
            vectors: Y.
        """
        weight = vectors if self.adapter is None else vectors @ self.adapter.weight
        return _split_weight(weight, self.bias, self.inputs, self.hidden_size)

    def forward(
        self, hidden: Float[Tensor, "*shape H"], context: Float[Tensor, "*shape D"], vectors: Float[Tensor, "V E"]
    ) -> Float[Tensor, "*shape V"]:
        """Return one logit for each symbol.

        Args:
            hidden: h.
            context: c.
            vectors: Y.
        """
        features = select_inputs(self.inputs, hidden, context)
        return linear(features if self.adapter is None else linear(features, self.adapter.weight), vectors, self.bias)

    def sampled_logits(
        self,
        hidden: Float[Tensor, "B T H"],
        context: Float[Tensor, "B T D"],
        vectors: Float[Tensor, "V E"],
        sampled: SampledOutputs,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T"]]:
        """Return the logits of the sampled symbols and of the targets; only their rows of Y are read.

        Args:
            hidden: h.
            context: c.
            vectors: Y.
            sampled: Sampled symbols, and targets.
        """
        features = select_inputs(self.inputs, hidden, context)
        features = features if self.adapter is None else linear(features, self.adapter.weight)
        return _sampled_logits(features, vectors, self.bias, sampled)


class TokenClassificationHead(nn.Module):
    """logits_s = W h_s + b, from the encoder's state at each position: the output layer of a tagger."""

    def __init__(self, memory_size: int, vocabulary_size: int) -> None:
        """Build W: memory_size → vocabulary_size, and b.

        Args:
            memory_size: D.
            vocabulary_size: V.
        """
        super().__init__()
        self.projection = nn.Linear(memory_size, vocabulary_size)

    def forward(self, states: Float[Tensor, "B S D"]) -> Float[Tensor, "B S V"]:
        """Return one logit for each tag.

        Args:
            states: Encoder states.
        """
        return linear(states, self.projection.weight, self.projection.bias)


class ClassAndTagHead(nn.Module):
    """Output layers of a network with one class and a tag per position: W [q; c] + b, and W_t h_s + b_t.

    Both give logits over the target vocabulary, which are −∞ for symbols that are no class, and no tag. The special
    symbols are possible in training, as in other output layers.
    """

    def __init__(self, classes: OutputLayer, tags: TokenClassificationHead, is_class: Tensor, is_tag: Tensor) -> None:
        """Store both layers.

        Args:
            classes: Output layer of the class.
            tags: Output layer of the tags.
            is_class: Whether each target id is a class, shape (V).
            is_tag: Whether each target id is a tag, shape (V).
        """
        super().__init__()
        self.classes = classes
        self.tags = tags
        self.register_buffer("no_class", _excluded(is_class), persistent=False)
        self.register_buffer("no_tag", _excluded(is_tag), persistent=False)

    def forward(
        self, query: Float[Tensor, "B H"], context: Float[Tensor, "B D"], states: Float[Tensor, "B S D"]
    ) -> Float[Tensor, "B S1 V"]:
        """Return the logits of the class, and then those of the tag of each position.

        Args:
            query: q, the query of the attention.
            context: c, its context.
            states: Encoder states.
        """
        classes = self.classes(query, context).masked_fill(self.no_class, -torch.inf)
        tags = self.tags(states).masked_fill(self.no_tag, -torch.inf)
        return torch.cat([classes[:, None], tags], dim=1)


def _excluded(is_label: Bool[Tensor, " V"]) -> Bool[Tensor, " V"]:
    """Return whether each target id is neither a label nor special."""
    excluded = ~is_label
    excluded[:NUM_SPECIAL] = False
    return excluded


def select_inputs(inputs: ReadoutKind, hidden: Float[Tensor, "*shape H"], context: Float[Tensor, "*shape D"]) -> Tensor:
    """Return the state, the context, or both concatenated.

    Args:
        inputs: Whether the layer reads the state, the context, or both.
        hidden: h.
        context: c.
    """
    match inputs:
        case "state":
            return hidden
        case "context":
            return context
        case "state-and-context":
            return torch.cat([hidden, context], dim=-1)


def _sampled_logits(
    features: Float[Tensor, "B T N"], weight: Float[Tensor, "V N"], bias: Float[Tensor, " V"], sampled: SampledOutputs
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T"]]:
    """Return the logits of the sampled symbols and of the targets.

    All rows are gathered at once, so that the backward pass builds the gradient of the whole weight once.
    """
    target = sampled.target.flatten()
    symbols = sampled.symbols
    ids = torch.cat([symbols, target])
    sizes = [len(symbols), len(target)]
    sampled_rows, target_rows = torch.split_with_sizes(nn.functional.embedding(ids, weight), sizes)
    sampled_bias, target_bias = torch.split_with_sizes(bias[ids], sizes)
    flat = features.flatten(0, 1)
    target_logits = (flat * target_rows).sum(dim=1) + target_bias
    logits = linear(features, sampled_rows, sampled_bias)
    return logits, target_logits.view_as(sampled.target)


def _split_weight(
    weight: Float[Tensor, "V N"], bias: Float[Tensor, " V"], inputs: ReadoutKind, hidden_size: int
) -> OutputLayerParameters:
    """Return the weights of the state and of the context; a part that the layer does not read has no rows."""
    empty = weight.new_zeros(0, 0)
    state_size = hidden_size if inputs != "context" else 0
    return OutputLayerParameters(
        weight[:, :state_size] if state_size else empty, weight[:, state_size:] if inputs != "state" else empty, bias
    )
