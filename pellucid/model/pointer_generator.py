"""Pointer-generator: a decoder's distribution over symbols, mixed with its attention over the source.

B batch, K steps or hypotheses of each source, S source positions, V target vocabulary, W = V + S, N source symbols and
features, C inputs of the gate. Source: See et al. 2017, section 2.2, equations 8 and 9.
"""

import torch
from torch import Tensor, nn

from pellucid.data.extended_vocabulary import BY_POSITION, NEVER_COPIED
from pellucid.model.memory import Memory
from pellucid.shapes import Float, Int


class PointerGenerator(nn.Module):
    """Mixture over V symbols and S positions.

        p(w) = (1 − (1 − p_gen) m) softmax(logits)_w + (1 − p_gen) Σ_{s: x_s = w} α_s

    p_gen = σ(w · [s; c; y] + b) of the decoder's state, the context and the symbol fed back. m is the attention weight
    on all positions that can be copied: with a softmax over the source it is 1, and the first factor is p_gen, as in
    the paper. Weight on features, and weight that attention does not distribute, goes to the generator. V + p is the
    symbol at source position p if it is outside the target vocabulary; equal symbols share the first position.
    """

    source_to_target: Int[Tensor, " N"]

    def __init__(self, source_to_target: Int[Tensor, " N"], vocabulary_size: int, gate_size: int) -> None:
        """Build the gate.

        Args:
            source_to_target: Target id of each source id, as `target_ids_of_source_ids` returns it.
            vocabulary_size: V.
            gate_size: C.
        """
        super().__init__()
        self.register_buffer("source_to_target", source_to_target, persistent=False)
        self.vocabulary_size = vocabulary_size
        self.gate = nn.Linear(gate_size, 1)

    def copy_ids(self, memory: Memory) -> Int[Tensor, "B S"]:
        """Return the target id of each position's symbol when it is copied; V + its first position if it has none.

        A source id of N + t, for a symbol outside the source vocabulary, has the target id t. The result is −2 at
        padding and at ids that are never copied.

        Args:
            memory: Encoder output with source ids.
        """
        source = memory.source
        source_size = len(self.source_to_target)
        assert source is not None, "a pointer-generator needs the source ids of the memory"
        ids = self.source_to_target[source.clamp(max=source_size - 1)]
        first_position = (source[:, :, None] == source[:, None, :]).int().argmax(dim=2)
        ids = torch.where(ids == BY_POSITION, self.vocabulary_size + first_position, ids)
        ids = torch.where(source >= source_size, source - source_size, ids)
        return ids.masked_fill(~memory.length_mask(), NEVER_COPIED)

    def forward(
        self,
        logits: Float[Tensor, "*shape V"],
        weights: Float[Tensor, "*shape S"],
        gate_inputs: Float[Tensor, "*shape C"],
        copy_ids: Int[Tensor, "B S"],
    ) -> Float[Tensor, "*shape W"]:
        """Return the log-probability of each symbol and position, −∞ for impossible ones.

        Args:
            logits: Logits over the vocabulary; rows of one source are consecutive.
            weights: Attention weights.
            gate_inputs: [s; c; y], the inputs of the gate.
            copy_ids: Target id of each source position, as `copy_ids` returns it.
        """
        gate: Tensor = self.gate(gate_inputs)
        sources = len(copy_ids)
        mixed = mix_distributions(
            logits=logits.reshape(sources, -1, logits.shape[-1]),
            weights=weights.reshape(sources, -1, weights.shape[-1]),
            gate=gate.reshape(sources, -1, 1),
            copy_ids=copy_ids,
        )
        return mixed.view(*logits.shape[:-1], -1)


def mix_distributions(
    logits: Float[Tensor, "B K V"],
    weights: Float[Tensor, "B K S"],
    gate: Float[Tensor, "B K 1"],
    copy_ids: Int[Tensor, "B S"],
) -> Float[Tensor, "B K W"]:
    """Return log p(w) of the equation of `PointerGenerator`.

    It is −∞ for positions that are not copied as such. Other probabilities that round to zero become the least positive
    number.

    Args:
        logits: Logits over the vocabulary.
        weights: Attention weights.
        gate: Logit of p_gen.
        copy_ids: Target id of each source position.
    """
    vocabulary_size, positions = logits.shape[-1], weights.shape[-1]
    copyable = copy_ids >= 0
    masses = weights * copyable[:, None]
    index = copy_ids.clamp(min=0)[:, None].expand_as(masses)
    copied = masses.new_zeros(*masses.shape[:2], vocabulary_size + positions).scatter_add(2, index, masses)
    generates, copies = torch.sigmoid(gate), torch.sigmoid(-gate)
    uncopyable = (1 - masses.sum(dim=2, keepdim=True)).clamp(min=0)
    generated = (generates + copies * uncopyable) * logits.softmax(dim=2)
    mixture = nn.functional.pad(generated, (0, positions)) + copies * copied
    in_vocabulary = torch.arange(vocabulary_size + positions, device=copy_ids.device) < vocabulary_size
    is_possible = in_vocabulary | (
        torch.zeros_like(mixture[:, 0]).scatter_add(1, copy_ids.clamp(min=0), copyable.to(mixture)) > 0
    )
    return mixture.clamp(min=torch.finfo(mixture.dtype).tiny).log().masked_fill(~is_possible[:, None], -torch.inf)
