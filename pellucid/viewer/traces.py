"""Traces as the page reads them."""

from dataclasses import replace

import msgspec
import numpy as np
from jaxtyping import Float

from pellucid.inspection.evidence import Evidence
from pellucid.search.trace import Trace
from pellucid.search.trace_schema import encode_array
from pellucid.viewer import contents
from pellucid.viewer.contents import PageTrace

REST = 1e-4
"""Probability of the symbols that are not known, up to which an entropy is taken for the whole."""


def trace_told(trace: Trace, bits: Float[np.ndarray, " T"], least: bool = False) -> PageTrace:
    """A trace, with the entropy of each of its steps, or the `least` that they have; without the weights of heads."""
    record = replace(trace, heads=None).to_record(compact=True)
    return PageTrace(**msgspec.structs.asdict(record), entropy=encode_array(bits), entropy_least=least)


def least_entropy(trace: Trace) -> Float[np.ndarray, " T"]:
    """The entropy in bits that a step has at least, from its likeliest symbols alone: all others count as one.

    For a trace whose model is not at hand.
    """
    shares = _shares(trace)
    return np.asarray(-(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1), np.float32)


def alone_told(trace: Trace) -> PageTrace:
    """A trace whose model is not at hand: its entropies are whole where its likeliest symbols leave nothing out."""
    return trace_told(trace, least_entropy(trace), bool((_shares(trace)[:, -1] > REST).any()))


def _shares(trace: Trace) -> Float[np.ndarray, "T k"]:
    """The probabilities of each step's likeliest symbols, and last that of all others together."""
    likely = np.exp(trace.top_log_probabilities.astype(np.float64))
    rest = np.clip(1 - likely.sum(axis=1, keepdims=True), 0, 1)
    return np.concatenate([likely, rest], axis=1)


def evidence_told(evidence: Evidence) -> contents.Evidence:
    """What else says which positions mattered."""
    return contents.Evidence(
        erasure=encode_array(evidence.erasure),
        gradient=encode_array(evidence.gradient),
        erasure_agreement=evidence.erasure_agreement,
        gradient_agreement=evidence.gradient_agreement,
    )
