"""Greedy search: the likeliest symbol at every step.

B batch, S source positions, T steps, V vocabulary, K candidates kept for inspection.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS, PAD, UNK
from pellucid.model.memory import Attendable, State
from pellucid.model.network import Network

CANDIDATES = 5
"""Symbols a step keeps beside the one it wrote."""
SHRINK = 0.75
"""Finished rows are dropped once the running ones are fewer than this share of the batch."""


class Decoded(NamedTuple):
    """One output in ids, EOS included where it was reached."""

    ids: Int[np.ndarray, " T"]
    log_probabilities: Float[np.ndarray, " T"]
    weights: Float[np.ndarray, "T S"]
    top_ids: Int[np.ndarray, "T K"]
    top_log_probabilities: Float[np.ndarray, "T K"]


class _Recorded(NamedTuple):
    """One step of the rows that ran: which they were, and what they wrote."""

    rows: Int[np.ndarray, " R"]
    ids: Int[np.ndarray, " R"]
    log_probabilities: Float[np.ndarray, " R"]
    weights: Float[np.ndarray, "R S"]
    top_ids: Int[np.ndarray, "R K"]
    top_log_probabilities: Float[np.ndarray, "R K"]


def symbol_log_probabilities(logits: Float[Tensor, "*shape V"]) -> Float[Tensor, "*shape V"]:
    """ln p over what can be written: every symbol and EOS. PAD, BOS and UNK are none, and get zero probability."""
    closed = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
    closed[[PAD, BOS, UNK]] = True
    return logits.masked_fill(closed, -torch.inf).log_softmax(dim=-1)


@torch.inference_mode()
def greedy(
    network: Network, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], maximum_length: int
) -> list[Decoded]:
    """Decode each source of the batch to EOS or to `maximum_length` symbols; batch-mates change nothing."""
    memory = network.encoder(source, lengths)
    state, attendable = network.decoder.start(memory), network.decoder.prepare(memory)
    rows = torch.arange(len(source), device=source.device)
    symbols = torch.full_like(rows, BOS)
    running = torch.ones_like(rows, dtype=torch.bool)
    recorded: list[_Recorded] = []
    for written in range(maximum_length + 1):
        step = network.decoder.step(symbols, state, attendable)
        log_probabilities = symbol_log_probabilities(step.logits)
        top = log_probabilities.topk(min(CANDIDATES, log_probabilities.shape[-1] - 3))
        symbols, state = top.indices[:, 0], step.state
        kept = running if written < maximum_length else running & (symbols == EOS)
        recorded.append(_record(kept, rows, top.indices, top.values, step.attended.weights))
        running = running & (symbols != EOS)
        if not running.any():
            break
        if running.float().mean() < SHRINK:
            rows, symbols, state, attendable = _shrunk(running, rows, symbols, state, attendable)
            running = torch.ones_like(rows, dtype=torch.bool)
    return _gathered(recorded, lengths.tolist())


def _record(running: Tensor, rows: Tensor, top_ids: Tensor, top_values: Tensor, weights: Tensor) -> _Recorded:
    """What the rows still running wrote in this step, as arrays."""
    kept = running.nonzero()[:, 0]
    ids, values = top_ids[kept].cpu().numpy(), top_values[kept].float().cpu().numpy()
    return _Recorded(
        rows[kept].cpu().numpy(), ids[:, 0], values[:, 0], weights[kept].float().cpu().numpy(), ids, values
    )


def _shrunk(
    running: Tensor, rows: Tensor, symbols: Tensor, state: State, attendable: Attendable
) -> tuple[Tensor, Tensor, State, Attendable]:
    """Everything, for the running rows only."""
    kept = running.nonzero()[:, 0]
    return rows[kept], symbols[kept], state.take(kept), attendable.take(kept)


def _gathered(recorded: list[_Recorded], lengths: list[int]) -> list[Decoded]:
    """The steps of each row, in order; weights cut to the row's own source."""
    steps: list[list[tuple[_Recorded, int]]] = [[] for _ in lengths]
    for record in recorded:
        for at, row in enumerate(record.rows.tolist()):
            steps[row].append((record, at))
    return [
        Decoded(
            ids=np.stack([record.ids[at] for record, at in row]),
            log_probabilities=np.stack([record.log_probabilities[at] for record, at in row]),
            weights=np.stack([record.weights[at, :length] for record, at in row]),
            top_ids=np.stack([record.top_ids[at] for record, at in row]),
            top_log_probabilities=np.stack([record.top_log_probabilities[at] for record, at in row]),
        )
        for row, length in zip(steps, lengths, strict=True)
    ]
