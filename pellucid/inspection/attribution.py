"""What else says which source positions mattered, beside attention: erasing them, and gradients.

S source positions, T steps, E embedding, M models (one, or the members of an ensemble), c rows of a batch.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import rankdata
from torch import Tensor

from pellucid.arguments import PROBABILITY, check_arguments
from pellucid.data.vocabulary import BOS
from pellucid.decoding.forced_attention import guided
from pellucid.decoding.forced_decoding import force, likelihoods
from pellucid.decoding.inference import Alone, Running, over
from pellucid.decoding.outputs import array, closed_symbols
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import Work
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.inspection.replay import POSITIONS, Replay, answering, replays
from pellucid.model.recurrence import Inputs

KEPT = 2**24
"""Numbers of keys that the gradient keeps of all steps, at most: 64 MiB, some three times over."""


class Evidence(NamedTuple):
    """Evidence about one trace."""

    erasure: Float[np.ndarray, "T S"]
    """ln p(y_t) − ln p(y_t | x_s erased): above zero where the position spoke for the symbol."""
    gradient: Float[np.ndarray, "T S"]
    """Σ_e x_se ∂ ln p(y_t) / ∂x_se."""
    erasure_agreement: float | None
    """Spearman's ρ of attention and |erasure| (`agreement`)."""
    gradient_agreement: float | None


@check_arguments
def evidence(transducer: Predictor, trace: Trace) -> Evidence:
    """What erasure and gradients say of a trace, along its own output.

    Erasure: the vector of position s is set to zero, everything before and after it stays, and ln p of the same
    symbols is taken again (Li, Monroe & Jurafsky 2016, section 3, for inputs). Gradient × input: Denil et al. 2014;
    Li et al. 2016 (NAACL), section 5. Both are of the vectors that the encoder reads; what a copying model copies stays
    on offer. For an ensemble, a position is erased in every model, and gradients are summed over the models.

    The attention that the transducer's options give stays given. A trace without source or output has nothing to tell.

    Args:
        transducer: The model, or an ensemble.
        trace: One of its traces, or one that it could have written.

    Raises:
        ArgumentError: An argument is of another type, or the model cannot read the trace again.
    """
    with torch.inference_mode(False), answering(transducer, len(trace.source)):  # what was made in it has no gradient
        for replay in replays(transducer, [trace], "trace"):
            erased, gradient = erasure(transducer, replay), gradient_input(transducer, replay)
            agreements = [agreement(trace.attention, np.abs(each)) for each in (erased, gradient)]
            return Evidence(erased, gradient, *agreements)
    nothing = np.zeros((len(trace.target), len(trace.source)))
    return Evidence(nothing, nothing, None, None)


def erasure(transducer: Predictor, replay: Replay) -> Float[np.ndarray, "T S"]:
    """ln p of each symbol less what it is without each position, of a replay of one trace, in batches of positions."""
    ((_, positions, steps),) = replay.sizes
    rows = []
    for places in _parts(positions + 1, max(POSITIONS // positions, 1)):
        own = _repeated(replay, len(places))
        # Place 0 is the source as it is, place s + 1 the source without position s.
        hidden = torch.tensor([[place == at + 1 for at in range(-_added(replay), positions)] for place in places])
        blank = hidden[:, :, None].to(own.work.source.device)
        with torch.inference_mode():
            running = _running(transducer, own.work, partial(torch.masked_fill, mask=blank, value=0.0))
            rows += force(running, own.work.positions, own.target, torch.tensor(own.steps))
    likely = np.stack([row.log_probabilities[:steps] for row in rows]).astype(np.float64)
    return (likely[:1] - likely[1:]).T


def gradient_input(transducer: Predictor, replay: Replay) -> Float[np.ndarray, "T S"]:
    """Gradient × input of each symbol's ln p, of a replay of one trace: a row a step, in batches of steps."""
    ((_, positions, steps),) = replay.sizes
    units = transducer.config.attention.size
    most = max(KEPT // (steps * positions * units), 1)
    return np.concatenate([_gradients(transducer, replay, list(part)) for part in _parts(steps, most)])


def _gradients(transducer: Predictor, replay: Replay, steps: list[int]) -> Float[np.ndarray, "c S"]:
    """Those of some steps, each in a row of its own: one way back serves all of them."""
    own, leaves = _repeated(replay, len(steps)), list[Tensor]()

    def leaf(vectors: Float[Tensor, "c S E"]) -> Float[Tensor, "c S E"]:
        """The vectors of one model, to be told what they did."""
        leaves.append(vectors.detach().clone().requires_grad_())
        return leaves[-1]

    with torch.enable_grad():
        running = _running(transducer, own.work, leaf)
        likely = _log_probabilities(running, own.target[:, : max(steps) + 1])
        chosen = likely[torch.arange(len(steps)), torch.tensor(steps, device=likely.device)].sum()
        gradients = torch.autograd.grad(chosen, leaves, allow_unused=True)
    parts = [(given * each).sum(dim=2) for given, each in zip(gradients, leaves, strict=True) if given is not None]
    summed = torch.stack([torch.zeros_like(leaves[0][:, :, 0]), *parts]).sum(dim=0)
    return array(summed.detach()).astype(np.float64)[:, _added(replay) :]


def _log_probabilities(running: Running, target: Int[Tensor, "c T"]) -> Float[Tensor, "c T"]:
    """ln p of each symbol, with all that leads to it."""
    symbols, found = torch.full_like(target[:, 0], BOS), list[Tensor]()
    for wanted in target.unbind(dim=1):
        seen = running.step(symbols)
        closed = closed_symbols(seen.logits.shape[1], symbols.device)
        found.append(likelihoods(seen, wanted, closed).gather(1, wanted[:, None])[:, 0])
        running, symbols = seen.after, wanted
    return torch.stack(found, dim=1)


def _running(
    transducer: Predictor, work: Work, changed: Callable[[Float[Tensor, "c S E"]], Float[Tensor, "c S E"]]
) -> Running:
    """What writes, over changed vectors of what each model reads."""
    writer = require_transducer(transducer, "steps")
    rows, members = writer.painted_rows(work), list[Alone]()
    for network, source in zip(transducer.networks, transducer.own_sources(work.source), strict=True):
        encoder = network.encoder
        vectors = changed(encoder.table(encoder.known(source)))
        memory = encoder.forward_embedded(Inputs(vectors), source, work.lengths)
        members.append(over(network, memory, transducer.options.masked))
    return guided(writer.joined(members), rows)


def _repeated(replay: Replay, rows: int) -> Replay:
    """One trace, so many times."""
    work, steps = replay.work, replay.steps * rows
    source, lengths, positions = work.source.repeat(rows, 1), work.lengths.repeat(rows), work.positions.repeat(rows)
    repeated = Work(work.rows.repeat(rows), source, lengths, work.spans, positions)
    return Replay(repeated, replay.target.repeat(rows, 1), steps)


def _added(replay: Replay) -> int:
    """Of a replay of one trace, the features that stand before its symbols and are no positions."""
    return int(replay.work.lengths[0] - replay.work.positions[0])


def _parts(count: int, most: int) -> Iterator[range]:
    """Numbers from 0, in parts of so many at most."""
    return (range(start, min(start + most, count)) for start in range(0, count, most))


@check_arguments
def agreement(
    attention: Annotated[Float[np.ndarray, "T S"], PROBABILITY], other: Float[np.ndarray, "T S"]
) -> float | None:
    """Spearman's rank correlation of each step's two rows, equal values sharing their mean rank; its mean over steps.

    Steps in which one of the rows does not vary are left out; None where no step is left. Spearman 1904.
    """
    found = []
    for one, two in zip(attention, other, strict=True):
        if len(one) > 1 and np.ptp(one) > 0 and np.ptp(two) > 0:
            first, second = rankdata(one), rankdata(two)
            first, second = first - first.mean(), second - second.mean()
            found.append(float(first @ second / np.sqrt((first @ first) * (second @ second))))
    return float(np.mean(found)) if found else None
