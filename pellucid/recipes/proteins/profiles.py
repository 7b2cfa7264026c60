"""Where attention lies along proteins, place by place, held against weights that are the same for every residue.

S residues, of each protein its own number; N parts of a protein.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pellucid.evaluation.metrics import Z95, ConfidenceInterval
from pellucid.recipes.digits.report import colors
from pellucid.recipes.labelling import Answers
from pellucid.reporting.figures import MUTED, empty_figure, freeze_layout, style_axes
from pellucid.viewer.report_schema import ReportTable

STARTS = (30, 60)
"""Residues at the beginning whose share is told: signals that send a protein somewhere are mostly as long."""
SHOWN = 100
"""Residues at the beginning that are drawn one by one."""
BINS = 20
"""Parts of a protein that are drawn for its whole length."""


class Share(NamedTuple):
    """How much of the attention lies on the first residues, as means over proteins in per cent."""

    residues: int
    attention: float
    interval: ConfidenceInterval
    """Of the mean, by the normal law."""
    uniform: float
    """What equal weights would give."""


class Profile(NamedTuple):
    """Attention along the proteins of one place."""

    proteins: int
    shares: Sequence[Share]
    beginning: Sequence[float]
    """At each of the first residues, the mean of weight times length: 1 is what equal weights would give."""
    along: Sequence[float]
    """The mean share of each of `BINS` equal parts from the first residue to the last, in per cent."""

    def told(self) -> dict[str, Any]:
        """Plain values for JSON."""
        shares = [{**share._asdict(), "interval": list(share.interval)} for share in self.shares]
        return {**self._asdict(), "shares": shares}


def attention_profiles(answers: Answers) -> dict[str, Any]:
    """The profile of each place's proteins, as plain values; nothing where there is no attention."""
    weights: dict[str, list[Float[np.ndarray, " _S"]]] = {}
    for example, trace in zip(answers.examples, answers.traces, strict=True):
        if trace.attention.any():
            weights.setdefault(example.target, []).append(trace.attention[-1].astype(np.float64))
    return {"attention": {place: profile_of(weights[place]).told() for place in sorted(weights)}} if weights else {}


def profile_of(weights: Sequence[Float[np.ndarray, " _S"]]) -> Profile:
    """The profile of some proteins, from the weights of each."""
    beginning = [
        float(np.mean([row[at] * len(row) for row in weights if len(row) > at] or [math.nan])) for at in range(SHOWN)
    ]
    along = np.mean([_parts(row) for row in weights], axis=0)
    return Profile(len(weights), [_share(weights, count) for count in STARTS], beginning, (100 * along).tolist())


def _share(weights: Sequence[Float[np.ndarray, " _S"]], count: int) -> Share:
    """The share of the first residues."""
    shares = np.array([100 * row[:count].sum() for row in weights])
    mean, half = float(shares.mean()), 0.0
    if len(shares) > 1:
        half = Z95 * float(shares.std(ddof=1)) / math.sqrt(len(shares))
    uniform = float(np.mean([100 * min(1.0, count / len(row)) for row in weights]))
    return Share(count, mean, ConfidenceInterval(mean - half, mean + half), uniform)


def _parts(row: Float[np.ndarray, " S"]) -> Float[np.ndarray, " N"]:
    """The share of each of `BINS` parts of equal length; a residue on a border is shared out."""
    edges = np.linspace(0, len(row), BINS + 1)
    below = np.interp(edges, np.arange(len(row) + 1), np.concatenate([[0.0], row.cumsum()]))
    return np.diff(below)


def profile_figure(profiles: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Left the first residues, how often as much as equal weights; right the whole length, in per cent."""
    figure = empty_figure(9.2, 3.6)
    left, right = figure.subplots(1, 2)
    for (place, profile), color in zip(profiles.items(), colors(len(profiles)), strict=True):
        name = f"{place} ({profile['proteins']})"
        left.plot(np.arange(1, SHOWN + 1), profile["beginning"], color=color, linewidth=1.6, label=name)
        middles = (np.arange(BINS) + 0.5) * 100 / BINS
        right.plot(middles, profile["along"], "o-", color=color, markersize=3, linewidth=1.6)
    _finish(left, 1.0, ("residue", "weight × length"))
    _finish(right, 100 / BINS, ("place along the protein, %", "share of attention, %"))
    left.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)
    return freeze_layout(figure)


def _finish(axes: Axes, equal: float, titles: tuple[str, str]) -> None:
    """What equal weights would give as a dashed line, and the names of the axes."""
    style_axes(axes)
    axes.axhline(equal, color=MUTED, linewidth=0.9, linestyle="--")
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(titles[0], color=MUTED)
    axes.set_ylabel(titles[1], color=MUTED)


def profile_table(profiles: Mapping[str, Mapping[str, Any]]) -> ReportTable:
    """The share of the first residues, place by place."""
    rows = [
        [place, f"{profile['proteins']}", f"{share['residues']}", _percent(share), *_against(share)]
        for place, profile in profiles.items()
        for share in profile["shares"]
    ]
    heads = ["place", "proteins", "first residues", "attention, %", "equal weights, %", "times"]
    caption = "Means over the proteins of the test set, by their true place; in brackets 95 % intervals of the mean."
    return ReportTable("Where attention lies", caption, heads, rows)


def _percent(share: Mapping[str, Any]) -> str:
    """A share with its interval."""
    low, high = share["interval"]
    return f"{share['attention']:.1f} ({low:.1f} to {high:.1f})"


def _against(share: Mapping[str, Any]) -> list[str]:
    """What equal weights give, and how many times as much there is."""
    return [f"{share['uniform']:.1f}", f"{share['attention'] / share['uniform']:.2f}"]
