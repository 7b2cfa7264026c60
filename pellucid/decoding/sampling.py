"""Sampling: symbols drawn by their probabilities.

B sources, b that still run, N samples of each, R = b·N, V symbols, S source positions, M required symbols.
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
from pellucid.decoding.beam_search import Wanted
from pellucid.decoding.constraints import Spot
from pellucid.decoding.inference import Running, Seen
from pellucid.decoding.outputs import (
    SHRINK,
    Decoded,
    Likeliest,
    Recorded,
    Recorder,
    array,
    array_or_none,
    candidates,
    closed_symbols,
    flat_mask,
    symbol_log_probabilities,
)


@dataclass(frozen=True, kw_only=True)
class Drawing(CheckedFields):
    """How samples are drawn; `ArgumentError` for a value out of range."""

    samples: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Samples of each source."""
    temperature: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    """What ln p is divided by before drawing: below 1 likely symbols become likelier, above 1 all become alike."""
    top_k: Limit = 0
    """Draw among so many likeliest symbols; 0 draws among all."""
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """Draw among the fewest likeliest symbols that have this much probability together."""
    seed: Seed = 1
    """Seed of the draws."""


@torch.inference_mode()
def sample(
    running: Running, lengths: Int[Tensor, " B"], numbers: Int[np.ndarray, " B"], wanted: Wanted, drawing: Drawing
) -> list[list[Decoded]]:
    """The samples of each source; the log-probabilities are the model's own, whatever was done to them for drawing.

    What is drawn depends on the seed, the source's number, the sample's and the step's, not on what is decoded beside.
    """
    total, each = len(lengths) * drawing.samples, drawing.samples
    first = torch.arange(len(lengths), device=lengths.device).repeat_interleave(each)
    running, sources, symbols = running.take(first), np.arange(len(lengths)), torch.full_like(first, BOS)
    held = wanted.constraints.first(total).reshape(len(lengths), each, -1)
    going, steps = np.ones((len(lengths), each), np.bool_), np.zeros((len(lengths), each), int)
    recorded = Recorder(total)
    chances = chances_of(drawing, numbers, int(wanted.spans.maximum.max()) + 1)
    for written in range(int(wanted.spans.maximum.max()) + 1):
        seen, left = running.step(symbols), wanted.spans.maximum[sources] - written
        closed = closed_symbols(seen.logits.shape[1], lengths.device)
        likely = symbol_log_probabilities(seen.logits, closed.of(written, wanted.spans.minimum[sources], each))
        blocked = wanted.constraints.impossible(Spot(sources, written, left), held, likely.shape[1])
        ids = drawn(likely, blocked, drawing, chances[sources, :, written].ravel())
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


def chances_of(drawing: Drawing, numbers: Int[np.ndarray, " B"], steps: int) -> Float[np.ndarray, "B N T"]:
    """Uniform numbers from 0 to 1, a stream for each (seed, source, sample)."""
    streams = [
        [np.random.default_rng([drawing.seed, number, at]).random(steps) for at in range(drawing.samples)]
        for number in numbers.tolist()
    ]
    return np.array(streams).reshape(len(numbers), drawing.samples, steps)


def drawn(
    likely: Float[Tensor, "R V"],
    blocked: Bool[np.ndarray, "b N V"] | None,
    drawing: Drawing,
    chances: Float[np.ndarray, " R"],
) -> Int[np.ndarray, " R"]:
    """One symbol a row: the first at which the summed probability passes the row's chance, symbols in order of id.

    p is exp(ln p / temperature) among the `top_k` likeliest, then among the fewest that have `top_p` of that together
    (Holtzman et al. 2020, section 3.1). Where constraints leave nothing, EOS.
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
    ids = array(passed.to(torch.int8).argmax(dim=1))
    return np.where(array(summed[:, -1]) > 0, ids, EOS)


def _meeting(
    ids: Int[np.ndarray, " R"],
    likely: Float[Tensor, "R V"],
    required: Int[np.ndarray, " M"],
    held: Bool[np.ndarray, "R M"],
) -> Int[np.ndarray, " R"]:
    """The same, but where an end was drawn too early: the likeliest symbol of those that are still required."""
    early = (ids == EOS) & ~held.all(axis=1)
    if not early.any():
        return ids
    offered = np.where(held, -np.inf, array(likely[:, torch.from_numpy(required).to(likely.device)]))
    return np.where(early, required[offered.argmax(axis=1)], ids)


def _record(
    rows: Int[np.ndarray, " R"], ids: Int[np.ndarray, " R"], likely: Float[Tensor, "R V"], seen: Seen
) -> Recorded:
    """What one step wrote, with the candidates it chose from."""
    top = likely.topk(candidates(likely.shape[1]))
    own = likely.gather(1, torch.from_numpy(ids).to(likely.device)[:, None])[:, 0]
    found = Likeliest(array(top.indices), array(top.values))
    return Recorded(rows, ids, array(own), array(seen.weights), found, array_or_none(seen.heads))


def _shrunk(running: Running, kept: Bool[np.ndarray, " b"], each: int, device: torch.device) -> Running:
    """Only the kept sources, with all their samples."""
    sources = torch.from_numpy(kept.nonzero()[0]).to(device)
    hypotheses = sources[:, None] * each + torch.arange(each, device=device)
    return running.take(hypotheses.flatten(), sources)
