"""Sampling with temperature, top-k and nucleus (top-p) filtering.

B sources, b active sources, N samples of each, R = b·N, V vocabulary, S source positions, M required symbols.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from msgspec import Meta
from torch import Tensor

from pellucid.arguments import CheckedFields
from pellucid.config.settings import Limit, Seed
from pellucid.data.vocabulary import BOS, EOS
from pellucid.decoding.beam_search import BeamConfig
from pellucid.decoding.constraints import DecodePosition
from pellucid.decoding.inference import Inference, StepOutput
from pellucid.decoding.outputs import (
    SHRINK,
    DecodedOutput,
    Recorder,
    StepRecord,
    TopSymbols,
    candidate_count,
    flat_mask,
    suppressed_symbols,
    symbol_log_probabilities,
    to_array,
    to_optional_array,
)


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(CheckedFields):
    """Parameters of sampling.

    Raises:
        ArgumentError: A value is out of range.
    """

    samples: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Number of samples per source."""
    temperature: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    """Temperature, by which log-probabilities are divided: below 1 is sharper, above 1 is flatter."""
    top_k: Limit = 0
    """Sample from the k most probable symbols; 0 is no limit."""
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """Nucleus sampling: sample from the smallest set of most probable symbols with this probability mass."""
    seed: Seed = 1
    """Random seed."""


@torch.inference_mode()
def sample(
    running: Inference,
    lengths: Int[Tensor, " B"],
    numbers: Int[np.ndarray, " B"],
    wanted: BeamConfig,
    drawing: SamplingConfig,
) -> list[list[DecodedOutput]]:
    """Sample outputs of each source. Their log-probabilities are the model's own, without temperature and filtering.

    A sample depends on the seed and on the numbers of the source, the sample and the step, not on the batch.
    """
    total, each = len(lengths) * drawing.samples, drawing.samples
    first = torch.arange(len(lengths), device=lengths.device).repeat_interleave(each)
    running, sources, symbols = running.take(first), np.arange(len(lengths)), torch.full_like(first, BOS)
    held = wanted.constraints.first(total).reshape(len(lengths), each, -1)
    going, steps = np.ones((len(lengths), each), np.bool_), np.zeros((len(lengths), each), int)
    recorded = Recorder(total)
    chances = uniform_numbers(drawing, numbers, int(wanted.spans.maximum.max()) + 1)
    for written in range(int(wanted.spans.maximum.max()) + 1):
        seen, left = running.step(symbols), wanted.spans.maximum[sources] - written
        closed = suppressed_symbols(seen.logits.shape[1], lengths.device)
        likely = symbol_log_probabilities(seen.logits, closed.of(written, wanted.spans.minimum[sources], each))
        blocked = wanted.constraints.impossible(DecodePosition(sources, written, left), held, likely.shape[1])
        ids = draw_symbols(likely, blocked, drawing, chances[sources, :, written].ravel())
        ids = _meeting(ids, likely, wanted.constraints.required, held.reshape(len(ids), -1))
        rows = (sources[:, None] * each + np.arange(each)).ravel()
        recorded.add(_record(rows, ids, likely, seen))
        ids = ids.reshape(-1, each)
        ended, held = ids == EOS, wanted.constraints.holding(held, ids)
        steps[sources] = np.where(going & (ended | (left[:, None] > 0)), written + 1, steps[sources])
        going = going & ~ended & (left[:, None] > 0)
        if not going.any():
            break
        running, kept = seen.after, going.any(axis=1)
        if kept.mean() < SHRINK:
            running = _shrunk(running, kept, each, lengths.device)
            sources, ids, held, going = sources[kept], ids[kept], held[kept], going[kept]
        symbols = torch.from_numpy(ids.ravel()).to(lengths.device)
    positions = lengths.tolist()
    return [
        [recorded.output(source * each + at, int(steps[source, at]), length) for at in range(each)]
        for source, length in enumerate(positions)
    ]


def uniform_numbers(drawing: SamplingConfig, numbers: Int[np.ndarray, " B"], steps: int) -> Float[np.ndarray, "B N T"]:
    """Return uniform random numbers in [0, 1), one stream per (seed, source, sample)."""
    streams = [
        [np.random.default_rng([drawing.seed, number, at]).random(steps) for at in range(drawing.samples)]
        for number in numbers.tolist()
    ]
    return np.array(streams).reshape(len(numbers), drawing.samples, steps)


def draw_symbols(
    likely: Float[Tensor, "R V"],
    blocked: Bool[np.ndarray, "b N V"] | None,
    drawing: SamplingConfig,
    chances: Float[np.ndarray, " R"],
) -> Int[np.ndarray, " R"]:
    """Sample one symbol per row by inversion of the cumulative distribution over ids.

    The distribution is exp(log p / temperature) over the `top_k` most probable symbols, then over the smallest set of
    those with mass `top_p`. If constraints leave no symbol, the result is EOS.

    References:
        Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1.
    """
    if blocked is not None:
        likely = likely.masked_fill(flat_mask(blocked, likely.device), -torch.inf)
    values, order = likely.double().sort(dim=1, descending=True, stable=True)
    values = (values - values[:, :1]) / drawing.temperature
    if drawing.top_k:
        values[:, drawing.top_k :] = -torch.inf
    shares = values.exp().nan_to_num(0.0)
    shares = shares / shares.sum(dim=1, keepdim=True).clamp_min(1e-300)
    before = shares.cumsum(dim=1) - shares
    shares = torch.zeros_like(shares).scatter(1, order, shares.masked_fill(before >= drawing.top_p, 0.0))
    summed = shares.cumsum(dim=1)
    passed = summed > torch.from_numpy(chances).to(summed)[:, None] * summed[:, -1:]
    ids = to_array(passed.to(torch.int8).argmax(dim=1))
    return np.where(to_array(summed[:, -1]) > 0, ids, EOS)


def _meeting(
    ids: Int[np.ndarray, " R"],
    likely: Float[Tensor, "R V"],
    required: Int[np.ndarray, " M"],
    held: Bool[np.ndarray, "R M"],
) -> Int[np.ndarray, " R"]:
    """Replace an EOS that came too early by the most probable required symbol that is missing."""
    early = (ids == EOS) & ~held.all(axis=1)
    if not early.any():
        return ids
    offered = np.where(held, -np.inf, to_array(likely[:, torch.from_numpy(required).to(likely.device)]))
    return np.where(early, required[offered.argmax(axis=1)], ids)


def _record(
    rows: Int[np.ndarray, " R"], ids: Int[np.ndarray, " R"], likely: Float[Tensor, "R V"], seen: StepOutput
) -> StepRecord:
    """Record one step and the candidates of its distribution."""
    top = likely.topk(candidate_count(likely.shape[1]))
    own = likely.gather(1, torch.from_numpy(ids).to(likely.device)[:, None])[:, 0]
    found = TopSymbols(to_array(top.indices), to_array(top.values))
    return StepRecord(rows, ids, to_array(own), to_array(seen.weights), found, to_optional_array(seen.heads))


def _shrunk(running: Inference, kept: Bool[np.ndarray, " b"], each: int, device: torch.device) -> Inference:
    """Select the active sources with all their samples."""
    sources = torch.from_numpy(kept.nonzero()[0]).to(device)
    hypotheses = sources[:, None] * each + torch.arange(each, device=device)
    return running.take(hypotheses.flatten(), sources)
