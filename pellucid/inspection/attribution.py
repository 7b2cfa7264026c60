"""Attribution of outputs to source positions: occlusion and gradient × input.

S source positions, T steps, E embedding, M models (1, or the members of an ensemble), c rows of a batch.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from pellucid.argument_checks import PROBABILITY, argument_error, check_arguments
from pellucid.decoding.forced_attention import force_attention
from pellucid.decoding.forced_decoding import forced_steps, score_targets
from pellucid.decoding.inference import Inference, SingleModelInference, initialize_from_memory
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.preprocessing import SourceBatch
from pellucid.decoding.topk import to_array
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import require_transducer
from pellucid.inspection.replay import (
    MAX_REPLAY_POSITIONS,
    Replay,
    ReplaySize,
    build_replays,
    check_finite,
    checked_traces,
    evaluation_context,
)
from pellucid.model.recurrence import InputVectors
from pellucid.shapes import Float, Int

MAX_KEY_SCALARS = 2**24
"""Maximum number of key scalars kept for the gradients of all steps (64 MiB, several copies)."""


class Attribution(NamedTuple):
    """Attribution scores of one trace: a number for each step and source position."""

    occlusion: Float[np.ndarray, "T S"]
    """log p(y_t) − log p(y_t | x_s occluded), in nats: positive if the position supports the symbol."""
    input_x_gradient: Float[np.ndarray, "T S"]
    """Gradient × input, Σ_e x_se ∂ log p(y_t) / ∂x_se."""
    occlusion_correlation: float | None
    """Spearman correlation of attention weights and |occlusion| (`rank_correlation`); None if no step has one."""
    input_x_gradient_correlation: float | None
    """Spearman correlation of attention weights and |gradient × input|; None if no step has one."""


@check_arguments
@check_finite
def attribute(predictor: Predictor, trace: Trace) -> Attribution:
    """Return occlusion and gradient × input of a trace, for the log-probability of each symbol of its output.

    Occlusion sets the embedding of one position to zero and computes the log-probabilities of the same symbols again.
    Both methods use the embeddings that the encoder reads; symbols to copy stay available, and so do features whose
    embeddings are added to those of the symbols. In an ensemble, a position is occluded in every model, and gradients
    are summed over the models. Forced attention is not changed.

    Args:
        predictor: The model, which decodes symbol by symbol; or an ensemble of such models.
        trace: A trace of the model.

    Returns:
        Scores and correlations; for a trace without source or output, empty arrays and None.

    Raises:
        ConfigError: The model does not decode symbol by symbol.
        ArgumentError: A field of the trace is wrong, or the trace is of another model.

    References:
        Occlusion: Li, Monroe & Jurafsky 2016, section 3. Gradient × input: Denil et al. 2014; Li et al. 2016 (NAACL),
            section 5.
    """
    (trace,) = checked_traces(predictor, [trace], "trace")
    # Tensors that are created in torch's inference mode have no gradients.
    with torch.inference_mode(False), evaluation_context(predictor, len(trace.source)):
        for replay in build_replays(predictor, [trace], "trace"):
            occluded, gradients = occlusion(predictor, replay), input_x_gradient(predictor, replay)
            return Attribution(
                occlusion=occluded,
                input_x_gradient=gradients,
                occlusion_correlation=rank_correlation(trace.attention, np.abs(occluded)),
                input_x_gradient_correlation=rank_correlation(trace.attention, np.abs(gradients)),
            )
    zeros = np.zeros((len(trace.target), len(trace.source)))
    return Attribution(zeros, zeros, None, None)


@check_arguments
@check_finite
def occlusion(predictor: Predictor, replay: Replay) -> Float[np.ndarray, "T S"]:
    """Return the occlusion scores of one trace; `attribute` describes them.

    Args:
        predictor: The model, in `evaluation_context`.
        replay: Replay of one trace, with a source and an output.

    Returns:
        log p(y_t) − log p(y_t | x_s occluded), in nats.

    Raises:
        ConfigError: The model does not decode symbol by symbol.
        ArgumentError: An argument has a wrong type, or the replay is not of one trace.
    """
    _, positions, steps = _single_size(replay)
    rows = []
    for variants in _ranges(positions + 1, max(MAX_REPLAY_POSITIONS // positions, 1)):
        repeated = _repeated(replay, len(variants))
        # Variant 0 is the unchanged source, variant s + 1 the source without position s. Summed features (s < 0) stay.
        position = torch.arange(-_num_summed_features(replay), positions)
        is_occluded = (position >= 0) & (torch.tensor(list(variants))[:, None] == position + 1)
        mask = is_occluded[:, :, None].to(repeated.batch.source.device)
        with torch.inference_mode():
            inference = _encode_changed(predictor, repeated.batch, partial(torch.masked_fill, mask=mask, value=0.0))
            rows += score_targets(inference, repeated.batch.positions, repeated.target, torch.tensor(repeated.steps))
    log_probabilities = np.stack([row.decoded.log_probabilities[:steps] for row in rows]).astype(np.float64)
    return (log_probabilities[:1] - log_probabilities[1:]).T


@check_arguments
@check_finite
def input_x_gradient(predictor: Predictor, replay: Replay) -> Float[np.ndarray, "T S"]:
    """Return the gradient × input scores of one trace; `attribute` describes them.

    Args:
        predictor: The model, in `evaluation_context`, and outside torch's inference mode.
        replay: Replay of one trace, with a source and an output.

    Returns:
        Σ_e x_se ∂ log p(y_t) / ∂x_se.

    Raises:
        ConfigError: The model does not decode symbol by symbol.
        ArgumentError: An argument has a wrong type, or the replay is not of one trace.
    """
    _, positions, steps = _single_size(replay)
    units = predictor.config.attention.size
    max_steps = max(MAX_KEY_SCALARS // (steps * positions * units), 1)
    return np.concatenate([_gradients(predictor, replay, list(chunk)) for chunk in _ranges(steps, max_steps)])


def _single_size(replay: Replay) -> ReplaySize:
    """Return the lengths of a replay of one trace; raise `ArgumentError` for several traces."""
    if len(replay.sizes) != 1:
        raise argument_error("replay", "a replay of one trace (`attribute` builds it)", replay.sizes)
    return replay.sizes[0]


def _gradients(predictor: Predictor, replay: Replay, steps: list[int]) -> Float[np.ndarray, "c S"]:
    """Return the gradients of several steps, one per row, in one backward pass."""
    repeated, leaves = _repeated(replay, len(steps)), list[Tensor]()

    def leaf(vectors: Float[Tensor, "c S E"]) -> Float[Tensor, "c S E"]:
        """Return the embeddings of one model as leaves that require gradients.

        Args:
            vectors: Embeddings.
        """
        leaves.append(vectors.detach().clone().requires_grad_())
        return leaves[-1]

    with torch.enable_grad():
        inference = _encode_changed(predictor, repeated.batch, leaf)
        log_probabilities = _log_probabilities(inference, repeated.target[:, : max(steps) + 1])
        total = log_probabilities[torch.arange(len(steps)), torch.tensor(steps, device=log_probabilities.device)].sum()
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    pairs = zip(gradients, leaves, strict=True)
    parts = [(gradient * leaf_vectors).sum(dim=2) for gradient, leaf_vectors in pairs if gradient is not None]
    summed = torch.stack([torch.zeros_like(leaves[0][:, :, 0]), *parts]).sum(dim=0)
    return to_array(summed.detach()).astype(np.float64)[:, _num_summed_features(replay) :]


def _log_probabilities(inference: Inference, target: Int[Tensor, "c T"]) -> Float[Tensor, "c T"]:
    """Return the log-probability of each symbol with its graph."""
    steps = forced_steps(inference, target)
    return torch.stack([step.log_probabilities().gather(1, step.targets[:, None])[:, 0] for step in steps], dim=1)


def _encode_changed(
    predictor: Predictor, batch: SourceBatch, change: Callable[[Float[Tensor, "c S E"]], Float[Tensor, "c S E"]]
) -> Inference:
    """Return the model over changed embeddings."""
    model = require_transducer(predictor, "predictor")
    forced_rows, members = model.forced_attention_rows(batch), list[SingleModelInference]()
    inputs = zip(predictor.map_source_ids(batch.source), predictor.map_characters(batch.characters), strict=True)
    for network, (source, characters) in zip(predictor.networks, inputs, strict=True):
        encoder = network.encoder
        vectors = change(encoder.embed(source, characters).to_dense())
        memory = encoder.forward_embedded(InputVectors(vectors), source, batch.lengths)
        members.append(initialize_from_memory(network, memory, predictor.options.masked_positions))
    return force_attention(model.combine(members), forced_rows)


def _repeated(replay: Replay, rows: int) -> Replay:
    """Repeat one trace."""
    batch, steps = replay.batch, replay.steps * rows
    source, lengths, positions = batch.source.repeat(rows, 1), batch.lengths.repeat(rows), batch.positions.repeat(rows)
    characters = None if batch.characters is None else batch.characters.index_select([0] * rows)
    repeated = SourceBatch(batch.rows.repeat(rows), source, lengths, positions, characters=characters)
    return Replay(repeated, replay.target.repeat(rows, 1), steps)


def _num_summed_features(replay: Replay) -> int:
    """Return the number of summed features of the trace of a replay, which have no positions."""
    return int(replay.batch.lengths[0] - replay.batch.positions[0])


def _ranges(count: int, size: int) -> Iterator[range]:
    """Return consecutive ranges of at most `size` numbers."""
    return (range(start, min(start + size, count)) for start in range(0, count, size))


@check_arguments
def rank_correlation(
    attention: Annotated[Float[np.ndarray, "T S"], PROBABILITY], other: Float[np.ndarray, "T S"]
) -> float | None:
    """Return Spearman's rank correlation of attention weights and scores at each step, averaged over the steps.

    Equal values share their mean rank. Steps whose weights or scores are constant are left out.

    Args:
        attention: Attention weights.
        other: Scores of the same steps and positions, such as absolute attributions.

    Returns:
        The mean correlation, from −1 to 1; None if no step is left.

    Raises:
        ArgumentError: The shapes differ, or a weight is not a probability.

    References:
        Spearman 1904, "The proof and measurement of association between two things".
    """
    correlations = []
    for weights, scores in zip(attention, other, strict=True):
        if len(weights) > 1 and np.ptp(weights) > 0 and np.ptp(scores) > 0:
            first, second = rankdata(weights), rankdata(scores)
            first, second = first - first.mean(), second - second.mean()
            correlations.append(float(first @ second / np.sqrt((first @ first) * (second @ second))))
    return float(np.mean(correlations)) if correlations else None
