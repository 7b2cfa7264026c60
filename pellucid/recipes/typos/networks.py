"""The network of the typo post of 2017, as far as the post shows it; what it does not show is chosen here.

B batch, S positions (as many as the longest word has letters), H hidden units, E numbers of a symbol (two).

The post shows the encoder, the read-out and the decoder. It shows neither sizes nor the last layer nor the training.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.data.synthetic import LETTERS

SYMBOLS = f"{LETTERS} "
"""Symbol i has the number i; the space pads a word to the longest."""
LETTER_ROWS = SYMBOLS[:26]
"""a to z, without the hyphen and the padding."""
PADDING = SYMBOLS.index(" ")
LAYERS, NUMBERS = 3, 2


class Sizes(NamedTuple):
    """What the post leaves open."""

    hidden: int = 64
    longest: int = 16


class TypoNetwork(nn.Module):
    """Three layers of LSTM read a word; its outputs make one number; three layers of LSTM take one step on it.

        h_1 … h_S, s = LSTM³(x_1 … x_S)    z = [h_1; …; h_S] · m + b    o = LSTM³(z; s)    p = softmax(W o + c)

    Kept as they were: the padding is read like letters, and s is the state behind it; the read-out, called attention,
    is neither a softmax nor does it depend on the decoder, and makes a single number; m starts as N(0, 1), b at zero.
    The LSTMs are TensorFlow's `LSTMCell`: no peepholes, forget bias one, kernels uniform by Glorot & Bengio 2010 over
    the gates together. The symbols' vectors have two numbers and start as N(0, 1). p is over all S positions, those
    behind a word's end too.
    """

    def __init__(self, sizes: Sizes) -> None:
        """Build the network and draw its parameters from PyTorch's generator."""
        super().__init__()
        self.sizes = sizes
        self.table = nn.Embedding(len(SYMBOLS), NUMBERS)
        self.encoder = nn.LSTM(NUMBERS, sizes.hidden, LAYERS, batch_first=True)
        self.decoder = nn.LSTM(1, sizes.hidden, LAYERS, batch_first=True)
        self.matrix = nn.Parameter(torch.randn(sizes.longest * sizes.hidden))
        self.bias = nn.Parameter(torch.zeros(()))
        self.output = nn.Linear(sizes.hidden, sizes.longest)
        for stack in (self.encoder, self.decoder):
            _as_tensorflow(stack)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, words: Int[Tensor, "B S"]) -> Float[Tensor, "B S"]:
        """The logit of each position; words are padded to the longest."""
        states, last = self.encoder(self.table(words))
        read_out = states.flatten(1) @ self.matrix + self.bias
        decoded, _ = self.decoder(read_out[:, None, None], last)
        logits: Tensor = self.output(decoded[:, 0])
        return logits


def _as_tensorflow(stack: nn.LSTM) -> None:
    """One bias a gate, the forget gate's one; input and hidden weights drawn as the one kernel that they are there."""
    for layer in range(stack.num_layers):
        entering, recurrent, bias, second = (
            getattr(stack, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        bound = (6 / (entering.shape[1] + recurrent.shape[1] + len(entering))) ** 0.5
        nn.init.uniform_(entering, -bound, bound)
        nn.init.uniform_(recurrent, -bound, bound)
        nn.init.zeros_(bias)
        bias.data[stack.hidden_size : 2 * stack.hidden_size] = 1.0
        nn.init.zeros_(second)
        second.requires_grad_(False)
