"""Attribution of outputs to source positions: occlusion and gradient × input.

S source positions, T steps, E embedding, M models (1, or the members of an ensemble), c rows of a batch.
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
from pellucid.decoding.forced_attention import force_attention
from pellucid.decoding.forced_decoding import score_targets, step_log_probabilities
from pellucid.decoding.inference import Inference, SingleModelInference, initialize_from_memory
from pellucid.decoding.outputs import suppressed_symbols, to_array
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import InferenceBatch
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.inspection.replay import POSITIONS, Replay, build_replays, inference_mode
from pellucid.model.recurrence import Inputs

KEPT = 2**24
"""Maximum number of key scalars kept for the gradients of all steps (64 MiB, several copies)."""


class Attribution(NamedTuple):
    """Attribution scores of one trace."""

    erasure: Float[np.ndarray, "T S"]
    """log p(y_t) − log p(y_t | x_s erased): positive if the position supports the symbol."""
    gradient: Float[np.ndarray, "T S"]
    """Σ_e x_se ∂ log p(y_t) / ∂x_se."""
    erasure_agreement: float | None
    """Spearman correlation of attention weights and |occlusion| (`rank_correlation`)."""
    gradient_agreement: float | None


@check_arguments
def attribute(transducer: Predictor, trace: Trace) -> Attribution:
    """Return occlusion and gradient × input of a trace along its own output.

    Occlusion sets the embedding of one position to zero and computes the log-probabilities of the same symbols again.
    Both methods use the embeddings that the encoder reads; symbols to copy stay available. In an ensemble, a position
    is erased in every model, and gradients are summed over the models. Forced attention stays as it is.

    Args:
        transducer: The model.
        trace: A trace of the model. A trace without source or output has no scores.

    References:
        Occlusion: Li, Monroe & Jurafsky 2016, section 3. Gradient × input: Denil et al. 2014; Li et al. 2016 (NAACL),
            section 5.
    """
    with (
        torch.inference_mode(False),
        inference_mode(transducer, len(trace.source)),
    ):  # what was made in it has no gradient
        for replay in build_replays(transducer, [trace], "trace"):
            erased, gradient = occlusion(transducer, replay), input_x_gradient(transducer, replay)
            agreements = [rank_correlation(trace.attention, np.abs(each)) for each in (erased, gradient)]
            return Attribution(erased, gradient, *agreements)
    nothing = np.zeros((len(trace.target), len(trace.source)))
    return Attribution(nothing, nothing, None, None)


def occlusion(transducer: Predictor, replay: Replay) -> Float[np.ndarray, "T S"]:
    """Return the difference of log-probabilities with and without each position, for a replay of one trace."""
    ((_, positions, steps),) = replay.sizes
    rows = []
    for places in _parts(positions + 1, max(POSITIONS // positions, 1)):
        own = _repeated(replay, len(places))
        # Place 0 is the source as it is, place s + 1 the source without position s.
        hidden = torch.tensor([[place == at + 1 for at in range(-_added(replay), positions)] for place in places])
        blank = hidden[:, :, None].to(own.work.source.device)
        with torch.inference_mode():
            running = _running(transducer, own.work, partial(torch.masked_fill, mask=blank, value=0.0))
            rows += score_targets(running, own.work.positions, own.target, torch.tensor(own.steps))
    likely = np.stack([row.log_probabilities[:steps] for row in rows]).astype(np.float64)
    return (likely[:1] - likely[1:]).T


def input_x_gradient(transducer: Predictor, replay: Replay) -> Float[np.ndarray, "T S"]:
    """Return gradient × input of each symbol's log-probability, one row per step, for a replay of one trace."""
    ((_, positions, steps),) = replay.sizes
    units = transducer.config.attention.size
    most = max(KEPT // (steps * positions * units), 1)
    return np.concatenate([_gradients(transducer, replay, list(part)) for part in _parts(steps, most)])


def _gradients(transducer: Predictor, replay: Replay, steps: list[int]) -> Float[np.ndarray, "c S"]:
    """Return the gradients of several steps, one per row, in one backward pass."""
    own, leaves = _repeated(replay, len(steps)), list[Tensor]()

    def leaf(vectors: Float[Tensor, "c S E"]) -> Float[Tensor, "c S E"]:
        """Return the embeddings of one model as leaves that require gradients."""
        leaves.append(vectors.detach().clone().requires_grad_())
        return leaves[-1]

    with torch.enable_grad():
        running = _running(transducer, own.work, leaf)
        likely = _log_probabilities(running, own.target[:, : max(steps) + 1])
        chosen = likely[torch.arange(len(steps)), torch.tensor(steps, device=likely.device)].sum()
        gradients = torch.autograd.grad(chosen, leaves, allow_unused=True)
    parts = [(given * each).sum(dim=2) for given, each in zip(gradients, leaves, strict=True) if given is not None]
    summed = torch.stack([torch.zeros_like(leaves[0][:, :, 0]), *parts]).sum(dim=0)
    return to_array(summed.detach()).astype(np.float64)[:, _added(replay) :]


def _log_probabilities(running: Inference, target: Int[Tensor, "c T"]) -> Float[Tensor, "c T"]:
    """Return the log-probability of each symbol with its graph."""
    symbols, found = torch.full_like(target[:, 0], BOS), list[Tensor]()
    for wanted in target.unbind(dim=1):
        seen = running.step(symbols)
        closed = suppressed_symbols(seen.logits.shape[1], symbols.device)
        found.append(step_log_probabilities(seen, wanted, closed).gather(1, wanted[:, None])[:, 0])
        running, symbols = seen.after, wanted
    return torch.stack(found, dim=1)


def _running(
    transducer: Predictor, work: InferenceBatch, changed: Callable[[Float[Tensor, "c S E"]], Float[Tensor, "c S E"]]
) -> Inference:
    """Return the model over changed embeddings."""
    writer = require_transducer(transducer, "steps")
    rows, members = writer.forced_attention_rows(work), list[SingleModelInference]()
    for network, source in zip(transducer.networks, transducer.member_sources(work.source), strict=True):
        encoder = network.encoder
        vectors = changed(encoder.table(encoder.known(source)))
        memory = encoder.forward_embedded(Inputs(vectors), source, work.lengths)
        members.append(initialize_from_memory(network, memory, transducer.options.masked))
    return force_attention(writer.combine(members), rows)


def _repeated(replay: Replay, rows: int) -> Replay:
    """Repeat one trace."""
    work, steps = replay.work, replay.steps * rows
    source, lengths, positions = work.source.repeat(rows, 1), work.lengths.repeat(rows), work.positions.repeat(rows)
    repeated = InferenceBatch(work.rows.repeat(rows), source, lengths, work.limits, positions)
    return Replay(repeated, replay.target.repeat(rows, 1), steps)


def _added(replay: Replay) -> int:
    """Return the features of a replay of one trace that have no positions."""
    return int(replay.work.lengths[0] - replay.work.positions[0])


def _parts(count: int, most: int) -> Iterator[range]:
    """Return consecutive ranges of at most `most` numbers."""
    return (range(start, min(start + most, count)) for start in range(0, count, most))


@check_arguments
def rank_correlation(
    attention: Annotated[Float[np.ndarray, "T S"], PROBABILITY], other: Float[np.ndarray, "T S"]
) -> float | None:
    """Return Spearman's rank correlation of the two rows of each step, averaged over the steps.

    Equal values share their mean rank. Steps with a constant row are left out; None if no step is left.

    References:
        Spearman 1904.
    """
    found = []
    for one, two in zip(attention, other, strict=True):
        if len(one) > 1 and np.ptp(one) > 0 and np.ptp(two) > 0:
            first, second = rankdata(one), rankdata(two)
            first, second = first - first.mean(), second - second.mean()
            found.append(float(first @ second / np.sqrt((first @ first) * (second @ second))))
    return float(np.mean(found)) if found else None
