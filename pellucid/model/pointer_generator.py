"""PointerGenerator from the source: a decoder's own distribution over symbols, mixed with where it looks.

B batch, K steps or hypotheses of each source, S source positions, V target vocabulary, W = V + S, N source symbols and
features, C what the gate reads. Source: See et al. 2017, section 2.2, equations 8 and 9.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.data.vocabulary import NUM_SPECIAL, Vocabularies
from pellucid.model.memory import Memory

BY_PLACE, NEVER = -1, -2
"""What stands for a target id: a source symbol that the target vocabulary lacks; one that is never copied."""


def copied_ids(vocabularies: Vocabularies) -> Int[Tensor, " N"]:
    """The target id of each source symbol; features, and the special ids that no text has, are never copied."""
    source, target = vocabularies.source.symbols, vocabularies.target.ids
    ids = [*[NEVER] * NUM_SPECIAL, *(target.get(symbol, BY_PLACE) for symbol in source)]
    return torch.tensor([*ids, *[NEVER] * len(vocabularies.features)])


class PointerGenerator(nn.Module):
    """p(w) = (1 − (1 − p_gen) m) softmax(logits)_w + (1 − p_gen) Σ_{i: x_i = w} α_i, over V symbols and S places.

    p_gen = σ(w · [s; c; y] + b) of the decoder's state, the context and the symbol fed back. m is the weight on all
    that can be copied: with a softmax over the source it is 1, and the first factor p_gen, as in the paper; weight on
    features, and weight that attention does not give, is the generator's. V + p is the symbol at source position p
    where the target vocabulary lacks it, equal ones at the first of them.
    """

    copied: Int[Tensor, " N"]

    def __init__(self, copied: Int[Tensor, " N"], vocabulary_size: int, size: int) -> None:
        """`copied` names each source id (`copied_ids`); the gate reads `size` numbers."""
        super().__init__()
        self.register_buffer("copied", copied, persistent=False)
        self.vocabulary_size = vocabulary_size
        self.gate = nn.Linear(size, 1)

    def places(self, memory: Memory) -> Int[Tensor, "B S"]:
        """The target id of each position's symbol, V + its first place where it has none; `NEVER` at padding.

        A source id of N + t, for a symbol that the source vocabulary lacks, says itself that it is t.
        """
        source, known = memory.source, len(self.copied)
        assert source is not None, "the encoder tells what it read"
        ids = self.copied[source.clamp(max=known - 1)]
        first = (source[:, :, None] == source[:, None, :]).int().argmax(dim=2)
        ids = torch.where(ids == BY_PLACE, self.vocabulary_size + first, ids)
        ids = torch.where(source >= known, source - known, ids)
        return ids.masked_fill(~memory.mask(), NEVER)

    def forward(
        self,
        logits: Float[Tensor, "*shape V"],
        weights: Float[Tensor, "*shape S"],
        read: Float[Tensor, "*shape C"],
        places: Int[Tensor, "B S"],
    ) -> Float[Tensor, "*shape W"]:
        """Return the log-probability of each symbol and place, −∞ for none; rows of one source follow each other."""
        gate: Tensor = self.gate(read)
        sources = len(places)
        rows = (logits.reshape(sources, -1, logits.shape[-1]), weights.reshape(sources, -1, weights.shape[-1]))
        mixed = mix(*rows, gate.reshape(sources, -1, 1), places)
        return mixed.view(*logits.shape[:-1], -1)


def mix(
    logits: Float[Tensor, "B K V"],
    weights: Float[Tensor, "B K S"],
    gate: Float[Tensor, "B K 1"],
    places: Int[Tensor, "B S"],
) -> Float[Tensor, "B K W"]:
    """Compute the equation of `PointerGenerator`; a probability that rounds to zero becomes the least positive one."""
    size, positions = logits.shape[-1], weights.shape[-1]
    copyable = places >= 0
    masses = weights * copyable[:, None]
    index = places.clamp(min=0)[:, None].expand_as(masses)
    copied = masses.new_zeros(*masses.shape[:2], size + positions).scatter_add(2, index, masses)
    generates, copies = torch.sigmoid(gate), torch.sigmoid(-gate)
    rest = (1 - masses.sum(dim=2, keepdim=True)).clamp(min=0)
    generated = (generates + copies * rest) * logits.softmax(dim=2)
    summed = nn.functional.pad(generated, (0, positions)) + copies * copied
    offered = torch.arange(size + positions, device=places.device) < size
    there = offered | (torch.zeros_like(summed[:, 0]).scatter_add(1, places.clamp(min=0), copyable.to(summed)) > 0)
    return summed.clamp(min=torch.finfo(summed.dtype).tiny).log().masked_fill(~there[:, None], -torch.inf)
