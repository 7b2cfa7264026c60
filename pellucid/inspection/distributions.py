"""What could have been written at each step, and how far two such distributions lie apart.

T steps, V what can be written: the target vocabulary, and for models that copy one more column.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pellucid.arguments import LOG_PROBABILITY, check_arguments
from pellucid.data.vocabulary import BOS
from pellucid.decoding.classification import ClassificationPredictor
from pellucid.decoding.forced_decoding import likelihoods
from pellucid.decoding.outputs import array, closed_symbols
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.inspection.replay import answering, examples_of, replays


@check_arguments
def distributions(transducer: Predictor, traces: Sequence[Trace]) -> list[Float[np.ndarray, "T V"]]:
    """ln p of every symbol at every step, given the symbols of the trace before it; −∞ for what is never written.

    In the order of the vocabulary's ids. The attention that the transducer's options give is given here too. With
    copying the last column is what the vocabulary lacks and the source has, all its symbols together, so that rows
    have one length whatever the source. A trace without source or output has no row.

    Raises:
        ArgumentError: An argument is of another type, or the model cannot read a trace again.
    """
    if isinstance(transducer, ClassificationPredictor):
        return transducer.distributions(examples_of(transducer, traces))
    size = len(transducer.vocabularies.target)
    columns = size + transducer.config.decoder.pointer_generator
    found = [np.zeros((0, columns)) for _ in traces]
    with torch.inference_mode(), answering(transducer, len(traces)):
        for replay in replays(transducer, traces):
            running, rows = require_transducer(transducer, "steps").begin(replay.work), list[Tensor]()
            symbols, closed = torch.full_like(replay.target[:, 0], BOS), None
            for wanted in replay.target.unbind(dim=1):
                seen = running.step(symbols)
                closed = closed or closed_symbols(seen.logits.shape[1], symbols.device)
                rows.append(_merged(likelihoods(seen, wanted, closed), size))
                running, symbols = seen.after, wanted
            whole = array(torch.stack(rows, dim=1)).astype(np.float64)
            for row, (number, _, steps) in enumerate(replay.sizes):
                found[number] = whole[row, :steps]
    return found


def _merged(likely: Float[Tensor, "B W"], size: int) -> Float[Tensor, "B V"]:
    """The copies of what the vocabulary lacks as one."""
    if likely.shape[1] == size:
        return likely
    return torch.cat([likely[:, :size], likely[:, size:].logsumexp(dim=1, keepdim=True)], dim=1)


@check_arguments
def entropy(
    log_probabilities: Annotated[Float[np.ndarray, "*shape V"], LOG_PROBABILITY],
) -> Float[np.ndarray, "*shape"]:
    """H = −Σ p log₂ p, in bits; 0 · log 0 is 0. Shannon 1948, section 6."""
    probabilities = np.exp(log_probabilities)
    terms = np.where(probabilities > 0, probabilities * np.where(probabilities > 0, log_probabilities, 0), 0)
    bits: Float[np.ndarray, "*shape"] = np.asarray(np.maximum(-terms.sum(axis=-1) / np.log(2), 0))
    return bits


@check_arguments
def divergence(
    before: Annotated[Float[np.ndarray, "*shape V"], LOG_PROBABILITY],
    after: Annotated[Float[np.ndarray, "*shape V"], LOG_PROBABILITY],
) -> Float[np.ndarray, "*shape"]:
    """KL(before ‖ after) = Σ p log₂(p / q), in bits: what believing `after` costs where `before` holds.

    Infinite where `before` allows what `after` does not. Kullback & Leibler 1951, section 2.

    Raises:
        ArgumentError: The two are not log-probabilities of the same symbols and steps.
    """
    probabilities = np.exp(before)
    held = probabilities > 0
    ratios = np.subtract(before, after, out=np.zeros_like(before), where=held)
    bits: Float[np.ndarray, "*shape"] = np.asarray(np.maximum((probabilities * ratios).sum(axis=-1) / np.log(2), 0))
    return bits
