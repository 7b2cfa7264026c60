"""Sampling with temperature, top-k and nucleus (top-p) filtering.

B sources, b active sources, N samples of each, R = b·N, V vocabulary, S source positions, M required symbols.
"""

import numpy as np
import torch
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS
from pellucid.decoding.constraints import Constraints, DecodePosition
from pellucid.decoding.hypothesis import Hypothesis, hypothesis_of
from pellucid.decoding.inference import Inference, StepOutput
from pellucid.decoding.outputs import (
    MIN_ACTIVE_FRACTION,
    BatchLengthLimits,
    Recorder,
    StepRecord,
    TopSymbols,
    num_candidates,
    with_early_end,
)
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.topk import (
    flat_mask,
    suppressed_symbols,
    symbol_log_probabilities,
    to_array,
    to_optional_array,
)
from pellucid.shapes import Bool, Float, Int


@torch.inference_mode()
def sample(
    inference: Inference,
    lengths: Int[Tensor, " B"],
    numbers: Int[np.ndarray, " B"],
    limits: BatchLengthLimits,
    constraints: Constraints,
    sampling: SamplingConfig,
) -> list[list[Hypothesis]]:
    """Sample outputs of each source. Their log-probabilities are the model's own, without temperature and filtering.

    A sample depends on the seed and on the numbers of the source, the sample and the step, not on the batch. An EOS
    that is drawn while required symbols are missing is replaced by the most probable of these.

    Args:
        inference: One empty hypothesis per source.
        lengths: Number of encoder positions of each source.
        numbers: Number of each source, which selects its random streams.
        limits: Minimum and maximum output length of each source.
        constraints: Constraints of the batch.
        sampling: Number of samples, temperature, filters and seed.

    Returns:
        The samples of each source, in the order of drawing; those truncated at the maximum length have no EOS.
    """
    total = len(lengths) * sampling.samples
    samples = sampling.samples
    copies = torch.arange(len(lengths), device=lengths.device).repeat_interleave(samples)
    inference, sources, symbols = inference.index_select(copies), np.arange(len(lengths)), torch.full_like(copies, BOS)
    met = constraints.initial_met(total).reshape(len(lengths), samples, -1)
    active = np.ones((len(lengths), samples), np.bool_)
    steps = np.zeros((len(lengths), samples), int)
    recorder = Recorder(total)
    uniforms = uniform_numbers(sampling, numbers, int(limits.maximum.max()) + 1)
    suppressed: Bool[Tensor, " V"] | None = None
    for length in range(int(limits.maximum.max()) + 1):
        output = inference.step(symbols)
        remaining = limits.maximum[sources] - length
        vocabulary = output.logits.shape[1]
        if suppressed is None:
            suppressed = suppressed_symbols(vocabulary, lengths.device)
        log_probabilities = symbol_log_probabilities(output.logits, suppressed)
        blocked = constraints.blocked_symbols_except_eos(DecodePosition(sources, length, remaining), met, vocabulary)
        excluded = with_early_end(blocked, length < limits.minimum[sources], (samples, vocabulary))
        ids = draw_symbols(log_probabilities, excluded, sampling, uniforms[sources, :, length].ravel())
        ids = _replace_early_end(ids, log_probabilities, constraints.required, met.reshape(len(ids), -1))
        rows = (sources[:, None] * samples + np.arange(samples)).ravel()
        recorder.add(_record(rows, ids, log_probabilities, output))
        ids = ids.reshape(-1, samples)
        ended, met = ids == EOS, constraints.update_met(met, ids)
        steps[sources] = np.where(active & (ended | (remaining[:, None] > 0)), length + 1, steps[sources])
        active = active & ~ended & (remaining[:, None] > 0)
        if not active.any():
            break
        inference = output.after
        active_sources = active.any(axis=1)
        if active_sources.mean() < MIN_ACTIVE_FRACTION:
            inference = _select_active(inference, active_sources, samples, lengths.device)
            sources, ids, met, active = (
                sources[active_sources],
                ids[active_sources],
                met[active_sources],
                active[active_sources],
            )
        symbols = torch.from_numpy(ids.ravel()).to(lengths.device)
    return [
        [
            hypothesis_of(recorder.output(source * samples + index, int(steps[source, index]), num_positions))
            for index in range(samples)
        ]
        for source, num_positions in enumerate(lengths.tolist())
    ]


def uniform_numbers(sampling: SamplingConfig, numbers: Int[np.ndarray, " B"], steps: int) -> Float[np.ndarray, "B N T"]:
    """Return uniform random numbers in [0, 1), one stream per (seed, source, sample).

    Args:
        sampling: Number of samples and seed.
        numbers: Number of each source.
        steps: Length of each stream.
    """
    streams = [
        [np.random.default_rng([sampling.seed, number, index]).random(steps) for index in range(sampling.samples)]
        for number in numbers.tolist()
    ]
    return np.array(streams).reshape(len(numbers), sampling.samples, steps)


def draw_symbols(
    log_probabilities: Float[Tensor, "R V"],
    excluded: Bool[np.ndarray, "b N V"] | None,
    sampling: SamplingConfig,
    uniforms: Float[np.ndarray, " R"],
) -> Int[np.ndarray, " R"]:
    """Sample one symbol per row by inversion of the cumulative distribution over ids.

    The distribution is proportional to exp(log p / temperature) over the `top_k` most probable symbols that the mask
    allows; of these, the fewest most probable ones with mass `top_p` remain. If the mask allows no symbol, the result
    is EOS.

    Args:
        log_probabilities: Log-probabilities of the next symbols.
        excluded: Mask of the symbols that constraints and the minimum length exclude; None for no mask.
        sampling: Temperature, `top_k` and `top_p`.
        uniforms: Uniform random number in [0, 1) of each row.

    References:
        Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1.
    """
    if excluded is not None:
        log_probabilities = log_probabilities.masked_fill(flat_mask(excluded, log_probabilities.device), -torch.inf)
    values, order = log_probabilities.double().sort(dim=1, descending=True, stable=True)
    values = (values - values[:, :1]) / sampling.temperature
    if sampling.top_k:
        values[:, sampling.top_k :] = -torch.inf
    probabilities = values.exp().nan_to_num(0.0)
    probabilities = probabilities / probabilities.sum(dim=1, keepdim=True).clamp_min(1e-300)
    mass_before = probabilities.cumsum(dim=1) - probabilities
    probabilities = torch.zeros_like(probabilities).scatter(
        1, order, probabilities.masked_fill(mass_before >= sampling.top_p, 0.0)
    )
    cumulative = probabilities.cumsum(dim=1)
    reached = cumulative > torch.from_numpy(uniforms).to(cumulative)[:, None] * cumulative[:, -1:]
    ids = to_array(reached.to(torch.int8).argmax(dim=1))
    return np.where(to_array(cumulative[:, -1]) > 0, ids, EOS)


def _replace_early_end(
    ids: Int[np.ndarray, " R"],
    log_probabilities: Float[Tensor, "R V"],
    required: Int[np.ndarray, " M"],
    met: Bool[np.ndarray, "R M"],
) -> Int[np.ndarray, " R"]:
    """Replace an EOS that came too early by the most probable required symbol that is missing."""
    early = (ids == EOS) & ~met.all(axis=1)
    if not early.any():
        return ids
    required_log_probabilities = np.where(
        met, -np.inf, to_array(log_probabilities[:, torch.from_numpy(required).to(log_probabilities.device)])
    )
    return np.where(early, required[required_log_probabilities.argmax(axis=1)], ids)


def _record(
    rows: Int[np.ndarray, " R"], ids: Int[np.ndarray, " R"], log_probabilities: Float[Tensor, "R V"], output: StepOutput
) -> StepRecord:
    """Record one step and the candidates of its distribution."""
    top = log_probabilities.topk(num_candidates(log_probabilities.shape[1]))
    drawn_log_probabilities = log_probabilities.gather(1, torch.from_numpy(ids).to(log_probabilities.device)[:, None])[
        :, 0
    ]
    candidates = TopSymbols(to_array(top.indices), to_array(top.values))
    return StepRecord(
        rows,
        ids,
        to_array(drawn_log_probabilities),
        to_array(output.weights),
        candidates,
        to_optional_array(output.heads),
    )


def _select_active(
    inference: Inference, active: Bool[np.ndarray, " b"], samples: int, device: torch.device
) -> Inference:
    """Select the active sources with all their samples."""
    sources = torch.from_numpy(active.nonzero()[0]).to(device)
    hypotheses = sources[:, None] * samples + torch.arange(samples, device=device)
    return inference.index_select(hypotheses.flatten(), sources)
