"""Attention that points at the letter which its neighbours do not foretell.

B words, S letters, H hidden units, E numbers of a symbol, V symbols, A attention units.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from pellucid.recipes.typos.networks import PADDING, SYMBOLS


class Widths(NamedTuple):
    """What is chosen."""

    embedding: int = 64
    sides: int = 256
    """H of the LSTMs that foretell, a direction."""
    around: int = 192
    """H of those that read what was foretold, a direction; A is twice that."""
    longest: int = 16


class Sides(NamedTuple):
    """What is known of each letter without looking at it."""

    before: Float[Tensor, "B S H"]
    """The state after the letters before it; zero at the first."""
    after: Float[Tensor, "B S H"]
    """The state after the letters behind it, read backwards; zero at the last."""
    ends: Float[Tensor, "B 2H"]
    """Both states that have read the whole word."""


class Foretold(NamedTuple):
    """The logarithms of what each side expects in a letter's place."""

    forwards: Float[Tensor, "B S V"]
    """ln p(· | x_1 … x_{s−1})."""
    backwards: Float[Tensor, "B S V"]
    """ln p(· | x_S … x_{s+1})."""


class ForetellingPointer(nn.Module):
    """p(s, c): letter s is wrong, and c was meant. The weight of attention on s is Σ_c p(s, c).

        f_s = LSTM(x_1 … x_s)    ln p_f = log softmax(F f_{s−1})
        b_s = LSTM(x_S … x_s)    ln p_b = log softmax(G b_{s+1})
        r = BiLSTM([f_{s−1}; b_{s+1}; x_s])    k_s = tanh(U r_s + W [f_S; b_1] + d)
        e_{s,c} = v_c · k_s + w_1 Σ_{t<s} ln p_f(x_t) + w_2 Σ_{t>s} ln p_b(x_t)
                  + w_3 ln p_f(x_s) + w_4 ln p_b(x_s) + w_5 ln p_f(c at s) + w_6 ln p_b(c at s)        for all c ≠ x_s
        p(s, c) = exp e_{s,c} / Σ_{t,a} exp e_{t,a}

    The first two lines are language models of letters from either side (Rei 2017, section 3); the energy is that of
    additive attention (Bahdanau et al. 2015, appendix A.1.2) with a vector v for each letter that may be meant. The
    sums say how likely the letters before s and behind s are by themselves: if s is wrong, all others are a word's.
    """

    def __init__(self, widths: Widths) -> None:
        """Build the network and draw its parameters from PyTorch's generator."""
        super().__init__()
        self.widths = widths
        hidden, units, symbols = widths.sides, 2 * widths.around, len(SYMBOLS)
        self.table = nn.Embedding(symbols, widths.embedding)
        self.sides = nn.LSTM(widths.embedding, hidden, batch_first=True, bidirectional=True)
        self.forwards, self.backwards = nn.Linear(hidden, symbols), nn.Linear(hidden, symbols)
        entering = 2 * hidden + widths.embedding
        self.around = nn.LSTM(entering, widths.around, batch_first=True, bidirectional=True)
        self.keys = nn.Linear(2 * widths.around, units)
        self.query = nn.Linear(2 * hidden, units, bias=False)
        self.letters = nn.Linear(units, symbols)
        self.trust = nn.Parameter(torch.tensor([0.5, 0.5, -0.1, -0.1, 0.5, 0.5]))

    def read(self, words: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], dropped: float = 0.0) -> Sides:
        """Both sides of every letter; `dropped` is the share of a symbol's numbers that dropout takes away."""
        vectors = nn.functional.dropout(self.table(words), dropped)
        states, (last, _) = self.sides(_packed(vectors, lengths))
        forwards, backwards = _padded(states, words.shape[1]).chunk(2, dim=2)
        nothing = torch.zeros_like(forwards[:, :1])
        before = torch.cat([nothing, forwards[:, :-1]], dim=1)
        after = torch.cat([backwards[:, 1:], nothing], dim=1)
        return Sides(before, after, torch.cat([last[0], last[1]], dim=1))

    def foretell(self, sides: Sides, dropped: float = 0.0) -> Foretold:
        """What each side expects in each place."""
        heads = ((self.forwards, sides.before), (self.backwards, sides.after))
        return Foretold(*(head(nn.functional.dropout(states, dropped)).log_softmax(dim=2) for head, states in heads))

    def forward(self, words: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> tuple[Float[Tensor, "B S V"], Foretold]:
        """ln p(s, c), −∞ where c is the letter itself, no letter, or s is padding; and what was foretold."""
        sides = self.read(words, lengths)
        foretold = self.foretell(sides)
        entering = torch.cat([sides.before, sides.after, self.table(words)], dim=2)
        around = _padded(self.around(_packed(entering, lengths))[0], words.shape[1])
        keys = torch.tanh(self.keys(around) + self.query(sides.ends)[:, None])
        energies = self.letters(keys) + self._surprise(words, foretold)
        allowed = real(words)[:, :, None] & (torch.arange(len(SYMBOLS)) != PADDING) & ~_own(words)
        flat = energies.masked_fill(~allowed, -torch.inf).flatten(1).log_softmax(dim=1)
        return flat.view_as(energies), foretold

    def _surprise(self, words: Int[Tensor, "B S"], foretold: Foretold) -> Float[Tensor, "B S V"]:
        """The terms with w."""
        forwards, backwards = (log_chances(words, side) for side in foretold)
        before = forwards.cumsum(dim=1) - forwards
        after = backwards.sum(dim=1, keepdim=True) - backwards.cumsum(dim=1)
        alone = torch.stack([before, after, forwards, backwards], dim=2) @ self.trust[:4]
        return alone[:, :, None] + self.trust[4] * foretold.forwards + self.trust[5] * foretold.backwards


def foretelling_loss(words: Int[Tensor, "B S"], foretold: Foretold) -> Float[Tensor, ""]:
    """−ln p of a letter, the mean over all letters, of both directions together."""
    return -(log_chances(words, foretold.forwards) + log_chances(words, foretold.backwards)).sum() / real(words).sum()


def log_chances(words: Int[Tensor, "B S"], side: Float[Tensor, "B S V"]) -> Float[Tensor, "B S"]:
    """ln p of the letters that stand there; zero at padding."""
    return side.gather(2, words[:, :, None])[:, :, 0] * real(words)


def real(words: Int[Tensor, "B S"]) -> Bool[Tensor, "B S"]:
    """True at letters, False at padding."""
    return words != PADDING


def _own(words: Int[Tensor, "B S"]) -> Bool[Tensor, "B S V"]:
    """True at the letter that stands there."""
    return torch.arange(len(SYMBOLS)) == words[:, :, None]


def _packed(vectors: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> PackedSequence:
    """Rows of any order, without their padding."""
    return pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)


def _padded(states: PackedSequence, width: int) -> Float[Tensor, "B S D"]:
    """The states, S of a row, with zeros at padding."""
    padded: Tensor = pad_packed_sequence(states, batch_first=True, total_length=width)[0]
    return padded
