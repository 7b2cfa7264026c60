"""Traces as the page reads them."""

import numpy as np
from jaxtyping import Float

from pellucid.inspection.evidence import Evidence
from pellucid.search import trace as search
from pellucid.search.lattice import Lattice
from pellucid.viewer import contents
from pellucid.viewer.blocks import block, plain

REST = 1e-4
"""Probability of the symbols that are not known, up to which an entropy is taken for the whole."""


def trace_told(trace: search.Trace, bits: Float[np.ndarray, " T"], least: bool = False) -> contents.Trace:
    """A trace, with the entropy of each of its steps, or the `least` that they have."""
    return contents.Trace(
        source=list(trace.source),
        features=trace.features,
        unknown=list(trace.unknown),
        target=list(trace.target),
        output=trace.output,
        finished=trace.finished,
        score=plain(trace.score),
        log_probabilities=block(trace.log_probabilities),
        attention=block(np.zeros((0, 0)) if trace.task == "tag" else trace.attention),
        top=_top(trace),
        entropy=block(bits),
        entropy_least=least,
        origin=trace.origin,
        rank=trace.rank,
        probability=trace.probability,
        search_score=None if trace.search_score is None else plain(trace.search_score),
        unknown_target=list(trace.unknown_target),
        forced=list(trace.forced),
        painted=list(trace.painted),
        beam=None if trace.lattice is None else _beam(trace.lattice),
        task=trace.task,
        looks=None if trace.looks is None else block(trace.looks),
    )


def _top(trace: search.Trace) -> list[list[tuple[str, float]]]:
    """The likeliest symbols of each step, with ln p; to six decimals of tags, of which a page holds very many."""
    likely = trace.top_log_probabilities.astype(np.float64)
    values = np.round(likely, 6) if trace.task == "tag" else likely
    return [
        [(symbol, value) for symbol, value in zip(symbols, own, strict=True) if np.isfinite(value)]
        for symbols, own in zip(trace.top_symbols, values.tolist(), strict=True)
    ]


def least_entropy(trace: search.Trace) -> Float[np.ndarray, " T"]:
    """The entropy in bits that a step has at least, from its likeliest symbols alone: all others count as one.

    For a trace whose model is not at hand.
    """
    shares = _shares(trace)
    return np.asarray(-(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1), np.float32)


def alone_told(trace: search.Trace) -> contents.Trace:
    """A trace whose model is not at hand: its entropies are whole where its likeliest symbols leave nothing out."""
    return trace_told(trace, least_entropy(trace), bool((_shares(trace)[:, -1] > REST).any()))


def _shares(trace: search.Trace) -> Float[np.ndarray, "T k"]:
    """The probabilities of each step's likeliest symbols, and last that of all others together."""
    likely = np.exp(trace.top_log_probabilities.astype(np.float64))
    rest = np.clip(1 - likely.sum(axis=1, keepdims=True), 0, 1)
    return np.concatenate([likely, rest], axis=1)


def evidence_told(evidence: Evidence) -> contents.Evidence:
    """What else says which positions mattered."""
    return contents.Evidence(
        erasure=block(evidence.erasure),
        gradient=block(evidence.gradient),
        erasure_agreement=evidence.erasure_agreement,
        gradient_agreement=evidence.gradient_agreement,
    )


def _beam(lattice: Lattice) -> contents.Beam:
    """A lattice."""
    return contents.Beam(
        symbols=list(lattice.symbols),
        parents=lattice.parents.tolist(),
        log_probabilities=block(lattice.log_probabilities),
        scores=block(lattice.scores),
        fates=list(lattice.fates),
        looks=lattice.looks.tolist(),
        attention=block(lattice.attention),
        leaf=lattice.leaf,
    )
