"""Subcellular localization of proteins, with and without attention, on a random split and on a split by families.

S residues (varies by protein), N bins of a protein.
"""

import gzip
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pellucid.data.examples import Example
from pellucid.errors import DataError, abbreviate_reason, quote
from pellucid.evaluation.metrics import Z95, ConfidenceInterval, wilson_interval
from pellucid.files import read_bytes
from pellucid.recipes.digits.report import line_colors
from pellucid.recipes.experiments import DataSplits, Experiment, ExperimentSuite
from pellucid.recipes.label_experiments import LabelPredictions, LabelRun, LabelScore, LabelSuite, run_label_suite
from pellucid.recipes.recipe import RecipeRequest
from pellucid.reporting.figures import MUTED, empty_figure, freeze_layout, style_axes, to_svg
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable

STRETCH_LENGTH = 8
"""Residues of a stretch."""
MIN_SHARED_FRACTION = 0.02
"""Two proteins are near-copies if they share this fraction of the shorter one's stretches,"""
MIN_SHARED_STRETCHES = 2
"""and at least this number of stretches."""
START_LENGTH = 30
"""Proteins that begin with the same residues, this many, are near-copies, too."""
MAX_STRETCH_PROTEINS = 200
"""Stretches in more proteins than this are repeats, no evidence of a family, and are ignored."""


def assign_families(sequences: Sequence[str]) -> Int[np.ndarray, " n"]:
    """Return the family of each sequence, numbered from 0 in the order of first members.

    Near-copies of near-copies belong to one family (single linkage).

    Args:
        sequences: Residues of each protein.
    """
    parents = list(range(len(sequences)))

    def root(at: int) -> int:
        """Return the first known member of a family."""
        while parents[at] != at:
            parents[at] = parents[parents[at]]
            at = parents[at]
        return at

    for one, other in near_copy_pairs(sequences):
        low, high = sorted((root(one), root(other)))
        parents[high] = low
    return np.unique([root(at) for at in range(len(sequences))], return_inverse=True)[1]


def near_copy_pairs(sequences: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield all pairs of near-copies, as indices."""
    stretches = [{text[at : at + STRETCH_LENGTH] for at in range(len(text) - STRETCH_LENGTH + 1)} for text in sequences]
    having: dict[str, list[int]] = {}
    for number, own in enumerate(stretches):
        for stretch in own:
            having.setdefault(stretch, []).append(number)
    shared: Counter[tuple[int, int]] = Counter()
    for numbers in having.values():
        if 1 < len(numbers) <= MAX_STRETCH_PROTEINS:
            shared.update(combinations(numbers, 2))
    for (one, other), count in shared.items():
        if count >= max(MIN_SHARED_STRETCHES, MIN_SHARED_FRACTION * min(len(stretches[one]), len(stretches[other]))):
            yield one, other
    starts: dict[str, int] = {}
    for number, text in enumerate(sequences):
        if text[:START_LENGTH] in starts:
            yield starts[text[:START_LENGTH]], number
        starts.setdefault(text[:START_LENGTH], number)


LOCATIONS = {"cyto": "cytosol", "mito": "mitochondrion", "nuclear": "nucleus", "secreted": "secreted"}
"""File name and name of each location."""
MAX_RESIDUES = 1000
"""Maximum residues of a source; a longer protein keeps its first and its last half of these."""
SPLIT_SEED = 20151
"""Seed of both splits, the same for every seed of a network."""
HELD_OUT_FRACTION = 0.1
"""Fraction of the proteins in the validation set, and in the test set."""


class Protein(NamedTuple):
    """Residues of a protein and its subcellular location."""

    residues: str
    """All residues, one letter each."""
    place: str

    @property
    def example(self) -> Example:
        """Return the truncated residues with the location as target."""
        return Example(truncate_middle(self.residues), self.place)


def read_proteins(folder: Path) -> list[Protein]:
    """Read all proteins; duplicates with the same location are removed."""
    found = [
        Protein(residues, place)
        for name, place in LOCATIONS.items()
        for residues in read_fasta(folder / f"{name}.fasta.gz")
    ]
    return list(dict.fromkeys(found))


def read_fasta(path: Path) -> Iterator[str]:
    """Yield the sequences of a FASTA file with gzip compression.

    Raises:
        DataError: The file is no gzip file, or does not begin with a header.
    """
    try:
        text = gzip.decompress(read_bytes(path, DataError)).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no FASTA file with gzip compression: {abbreviate_reason(error)}") from error
    lines = list[str]()
    for number, line in enumerate([*text.splitlines(), ">"], start=1):
        if line.startswith(">"):
            if lines:
                yield "".join(lines)
            lines = []
        elif number == 1:
            raise DataError(f"{path}, line 1: expected a header that begins with '>', got {quote(line)}")
        elif line.strip():
            lines.append(line.strip().rstrip("*"))


def truncate_middle(residues: str) -> str:
    """Return at most `MAX_RESIDUES` residues, without the middle: sorting signals are at the ends.

    References:
        Sønderby et al. 2015 truncate in this way.
    """
    return residues if len(residues) <= MAX_RESIDUES else residues[: MAX_RESIDUES // 2] + residues[-MAX_RESIDUES // 2 :]


def random_split(proteins: Sequence[Protein]) -> DataSplits:
    """Split the proteins at random. Near-copies of test proteins are in the training set."""
    return _split_groups(proteins, np.arange(len(proteins)))


def family_split(proteins: Sequence[Protein]) -> DataSplits:
    """Split the families at random, so that no test protein has a near-copy in the training set."""
    return _split_groups(proteins, assign_families([protein.residues for protein in proteins]))


def count_near_copies(proteins: Sequence[Protein], pairs: DataSplits) -> tuple[int, int]:
    """Return the number of test proteins, and how many of these have a family member in the training set."""
    of = dict(zip((protein.example for protein in proteins), _families_of(proteins), strict=True))
    trained = {of[example] for example in pairs.train}
    return len(pairs.test), sum(of[example] in trained for example in pairs.test)


def _families_of(proteins: Sequence[Protein]) -> list[int]:
    """Return the family of each protein."""
    numbers: list[int] = assign_families([protein.residues for protein in proteins]).tolist()
    return numbers


def _split_groups(proteins: Sequence[Protein], groups: Int[np.ndarray, " n"]) -> DataSplits:
    """Assign groups at random to test, then to validation, up to their size; the rest is the training set.

    A group that does not fit goes to the next split.
    """
    room = round(HELD_OUT_FRACTION * len(proteins))
    parts: list[list[int]] = [[], [], []]
    numbers, sizes = np.unique(groups, return_counts=True)
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])
    for at in np.random.default_rng(SPLIT_SEED).permutation(len(numbers)).tolist():
        own = members[at].tolist()
        fits = (part for part in (2, 1) if len(parts[part]) + len(own) <= room)
        parts[next(fits, 0)] += own
    examples = [[proteins[at].example for at in sorted(part)] for part in parts]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(examples[0]))
    return DataSplits([examples[0][at] for at in order.tolist()], examples[1], examples[2])


START_RESIDUES = (30, 60)
"""Numbers of initial residues whose share of attention is reported; most sorting signals are as long."""
PROFILE_RESIDUES = 100
"""Number of initial residues that are drawn one by one."""
PROFILE_BINS = 20
"""Bins for the whole length of a protein."""


class AttentionShare(NamedTuple):
    """Attention on the initial residues, as means over proteins in percent."""

    residues: int
    attention: float
    interval: ConfidenceInterval
    """Of the mean, by normal approximation."""
    uniform: float
    """Share under uniform attention."""


class AttentionProfile(NamedTuple):
    """Attention along the proteins of one location."""

    proteins: int
    shares: Sequence[AttentionShare]
    beginning: Sequence[float]
    """Mean of weight × length at each of the initial residues; 1 is uniform attention."""
    along: Sequence[float]
    """Mean share of each of `PROFILE_BINS` bins from the first residue to the last, in percent."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        shares = [{**share._asdict(), "interval": list(share.interval)} for share in self.shares]
        return {**self._asdict(), "shares": shares}


def attention_profiles(answers: LabelPredictions) -> dict[str, Any]:
    """Return the profile of each location as plain values; empty without attention."""
    weights: dict[str, list[Float[np.ndarray, " _S"]]] = {}
    for example, trace in zip(answers.examples, answers.traces, strict=True):
        if trace.attention.any():
            weights.setdefault(example.target, []).append(trace.attention[-1].astype(np.float64))
    return (
        {"attention": {place: build_profile(weights[place]).to_json() for place in sorted(weights)}} if weights else {}
    )


def build_profile(weights: Sequence[Float[np.ndarray, " _S"]]) -> AttentionProfile:
    """Return the profile of some proteins, from the attention weights of each."""
    beginning = [
        float(np.mean([row[at] * len(row) for row in weights if len(row) > at] or [math.nan]))
        for at in range(PROFILE_RESIDUES)
    ]
    along = np.mean([_bin_shares(row) for row in weights], axis=0)
    return AttentionProfile(
        len(weights), [_attention_share(weights, count) for count in START_RESIDUES], beginning, (100 * along).tolist()
    )


def _attention_share(weights: Sequence[Float[np.ndarray, " _S"]], count: int) -> AttentionShare:
    """Return the share of the initial residues."""
    shares = np.array([100 * row[:count].sum() for row in weights])
    mean, half = float(shares.mean()), 0.0
    if len(shares) > 1:
        half = Z95 * float(shares.std(ddof=1)) / math.sqrt(len(shares))
    uniform = float(np.mean([100 * min(1.0, count / len(row)) for row in weights]))
    return AttentionShare(count, mean, ConfidenceInterval(mean - half, mean + half), uniform)


def _bin_shares(row: Float[np.ndarray, " S"]) -> Float[np.ndarray, " N"]:
    """Return the share of each of `PROFILE_BINS` bins; residues across a border are divided."""
    edges = np.linspace(0, len(row), PROFILE_BINS + 1)
    below = np.interp(edges, np.arange(len(row) + 1), np.concatenate([[0.0], row.cumsum()]))
    return np.diff(below)


def profile_figure(profiles: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw attention relative to uniform on the initial residues, and attention by bin over the whole length."""
    figure = empty_figure(9.2, 3.6)
    left, right = figure.subplots(1, 2)
    for (place, profile), color in zip(profiles.items(), line_colors(len(profiles)), strict=True):
        name = f"{place} ({profile['proteins']})"
        left.plot(np.arange(1, PROFILE_RESIDUES + 1), profile["beginning"], color=color, linewidth=1.6, label=name)
        middles = (np.arange(PROFILE_BINS) + 0.5) * 100 / PROFILE_BINS
        right.plot(middles, profile["along"], "o-", color=color, markersize=3, linewidth=1.6)
    _style_axes(left, 1.0, ("residue", "weight × length"))
    _style_axes(right, 100 / PROFILE_BINS, ("position along the protein, %", "share of attention, %"))
    left.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)
    return freeze_layout(figure)


def _style_axes(axes: Axes, equal: float, titles: tuple[str, str]) -> None:
    """Draw uniform attention as a dashed line and label the axes."""
    style_axes(axes)
    axes.axhline(equal, color=MUTED, linewidth=0.9, linestyle="--")
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(titles[0], color=MUTED)
    axes.set_ylabel(titles[1], color=MUTED)


def profile_table(profiles: Mapping[str, Mapping[str, Any]]) -> ReportTable:
    """Return the share of the initial residues by location."""
    rows = [
        [place, f"{profile['proteins']}", f"{share['residues']}", _share_cell(share), *_uniform_cells(share)]
        for place, profile in profiles.items()
        for share in profile["shares"]
    ]
    heads = ["place", "proteins", "first residues", "attention, %", "uniform, %", "ratio"]
    caption = "Means over the proteins of the test set by true location; 95 % intervals of the mean in brackets."
    return ReportTable("Where attention lies", caption, heads, rows)


def _share_cell(share: Mapping[str, Any]) -> str:
    """Return a share with its interval."""
    low, high = share["interval"]
    return f"{share['attention']:.1f} ({low:.1f} to {high:.1f})"


def _uniform_cells(share: Mapping[str, Any]) -> list[str]:
    """Return the share under uniform attention, and the ratio to it."""
    return [f"{share['uniform']:.1f}", f"{share['attention'] / share['uniform']:.2f}"]


Split = Callable[[Sequence[Protein]], DataSplits]
SPLITS: Mapping[str, Split] = {"random": random_split, "families": family_split}
READERS: Mapping[str, Mapping[str, Any]] = {
    "attention": {},
    "final": {"attention": {"type": "none", "num_heads": 1}, "decoder": {"output": "state"}},
}
"""Input of the classifier: the contexts of one attention step with four heads, or the last encoder states."""
PLACE_INTRODUCTION = """\
9,222 proteins of Swiss-Prot in four locations: cytosol, mitochondrion, nucleus, secreted. Convolutions of 3, 5 and 9
residues and a bidirectional LSTM encode a protein; the classifier reads either one attention step with four heads,
whose contexts alone predict the location, or the LSTM's last states. Of a protein of more than 1,000 residues the
first 500 and the last 500 are read.

The data set has no split, and it is redundant: it holds near-copies of proteins from other species or from the same
gene family. A random split puts some of them on both sides, and its scores are too high. So there are two splits, each
80 : 10 : 10 with a fixed seed. "random" draws proteins. "families" draws families: proteins belong to one family if
they share at least 2 % of the shorter one's stretches of eight residues, and at least two of them, or begin with the
same thirty residues; near-copies of near-copies belong to it, too. Distant relatives, which share no such stretches,
are still on both sides.

The proteins come from github.com/dannyfriar/protein-localization-prediction. No reviewed result is published on them.
MCC is the correlation of Gorodkin (2004) for several classes."""


def run_place(request: RecipeRequest) -> Iterator[str]:
    """Train and score every model on every split."""
    return run_label_suite(place_suite(), request)


def place_suite() -> LabelSuite:
    """Return the experiments of protein-place."""
    reference = ExperimentSuite(
        name="protein-place",
        title="Subcellular localization of proteins",
        introduction=PLACE_INTRODUCTION,
        origin="four FASTA files (github.com/dannyfriar/protein-localization-prediction, data), compressed with gzip",
        measure="exact_match",
        experiments=[
            Experiment(f"{split}-{reader}", partial(read_split, made), settings=settings)
            for split, made in SPLITS.items()
            for reader, settings in READERS.items()
        ],
        folder="protein-localisation-ucl",
    )
    return LabelSuite(reference, place_scores, {}, attention_profiles, profile_parts, readable=False)


def read_split(split: Split, folder: Path) -> DataSplits:
    """Read the proteins and split them."""
    return split(read_proteins(folder))


def place_scores(answers: LabelPredictions) -> Mapping[str, LabelScore]:
    """Return accuracy and Matthews correlation."""
    right, total = sum(each.exact for each in answers.scored), len(answers.scored)
    mcc = answers.labelled.mcc
    assert mcc is not None
    return {"accuracy": LabelScore(100 * right / total, wilson_interval(right, total).percent), "MCC": LabelScore(mcc)}


def profile_parts(runs: Sequence[LabelRun]) -> Iterator[ReportPart]:
    """Yield the attention profiles of the first run of each split with attention."""
    shown = set[str]()
    for run in runs:
        profiles = run.scores.test.extra_results.get("attention")
        if profiles and run.experiment not in shown:
            shown.add(run.experiment)
            table = profile_table(profiles)
            title = f"{table.title}: {run.experiment}, {run.label}"
            caption = "The dashed line is uniform attention."
            yield ReportFigure(title, caption, to_svg(profile_figure(profiles)))
            yield msgspec.structs.replace(table, title=title)
