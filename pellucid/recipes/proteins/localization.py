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
from pellucid.shapes import Float, Int
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable

KMER_LENGTH = 8
"""Residues of a k-mer."""
MIN_SHARED_FRACTION = 0.02
"""Near-copies share at least this fraction of the k-mers of the shorter protein and `MIN_SHARED_KMERS` k-mers."""
MIN_SHARED_KMERS = 2
"""Minimum number of k-mers that near-copies share."""
START_LENGTH = 30
"""Number of first residues that make two proteins near-copies if they are equal."""
MAX_KMER_PROTEINS = 200
"""Maximum number of proteins with a k-mer; more frequent k-mers are repeats, no evidence of a family, and ignored."""


def assign_families(sequences: Sequence[str]) -> Int[np.ndarray, " n"]:
    """Return the family of each sequence, numbered from 0 in the order of first members.

    Near-copies (`near_copy_pairs`) and near-copies of near-copies belong to one family (single linkage); a sequence
    without near-copy is a family of its own.

    Args:
        sequences: Residues of each protein.
    """
    parents = list(range(len(sequences)))

    def _find_root(index: int) -> int:
        """Return the first known member of a family."""
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    for first, second in near_copy_pairs(sequences):
        low, high = sorted((_find_root(first), _find_root(second)))
        parents[high] = low
    return np.unique([_find_root(index) for index in range(len(sequences))], return_inverse=True)[1]


def near_copy_pairs(sequences: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield pairs of near-copies, as indices; a pair may occur twice.

    Near-copies share at least `MIN_SHARED_KMERS` k-mers of `KMER_LENGTH` residues and `MIN_SHARED_FRACTION` of those of
    the shorter one, or their first `START_LENGTH` residues. Of equal beginnings each later sequence is paired with the
    first one only.

    Args:
        sequences: Residues of each protein.

    Yields:
        Index of the first and of the second protein of a pair.
    """
    kmer_sets = [
        {sequence[start : start + KMER_LENGTH] for start in range(len(sequence) - KMER_LENGTH + 1)}
        for sequence in sequences
    ]
    proteins_by_kmer: dict[str, list[int]] = {}
    for index, kmers in enumerate(kmer_sets):
        for kmer in kmers:
            proteins_by_kmer.setdefault(kmer, []).append(index)
    shared: Counter[tuple[int, int]] = Counter()
    for indices in proteins_by_kmer.values():
        if 1 < len(indices) <= MAX_KMER_PROTEINS:
            shared.update(combinations(indices, 2))
    for (first, second), count in shared.items():
        if count >= max(MIN_SHARED_KMERS, MIN_SHARED_FRACTION * min(len(kmer_sets[first]), len(kmer_sets[second]))):
            yield first, second
    first_with_start: dict[str, int] = {}
    for index, sequence in enumerate(sequences):
        if sequence[:START_LENGTH] in first_with_start:
            yield first_with_start[sequence[:START_LENGTH]], index
        first_with_start.setdefault(sequence[:START_LENGTH], index)


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
    location: str
    """Name of the location, a value of `LOCATIONS`."""

    @property
    def example(self) -> Example:
        """Return the residues, without their middle if they are too long, with the location as target."""
        return Example(truncate_middle(self.residues), self.location)


def read_proteins(folder: Path) -> list[Protein]:
    """Read all proteins; equal proteins with the same location are read once.

    Args:
        folder: Data folder with a FASTA file per location (the keys of `LOCATIONS`).

    Returns:
        The proteins in the order of the files.

    Raises:
        DataError: As in `read_fasta`.
    """
    proteins = [
        Protein(residues, location)
        for name, location in LOCATIONS.items()
        for residues in read_fasta(folder / f"{name}.fasta")
    ]
    return list(dict.fromkeys(proteins))


def read_fasta(path: Path) -> Iterator[str]:
    """Yield the sequences of a FASTA file, plain or compressed with gzip.

    Args:
        path: FASTA file; if there is one with ".gz" after this name, that is read.

    Yields:
        The residues of each sequence; headers, and a final * of a line, are left out.

    Raises:
        DataError: The file cannot be read, is not ASCII text, or does not begin with a header. It is raised when the
            first sequence is requested.
    """
    compressed = path.with_name(f"{path.name}.gz")
    path = compressed if compressed.exists() else path
    is_compressed = path.suffix == ".gz"
    content = read_bytes(path, DataError)
    try:
        text = (gzip.decompress(content) if is_compressed else content).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        kind = "FASTA file with gzip compression" if is_compressed else "FASTA file"
        raise DataError(f"{path} is not a {kind}: {abbreviate_reason(error)}") from error
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
    """Return at most `MAX_RESIDUES` residues: a longer protein loses its middle, since sorting signals are at the ends.

    Args:
        residues: Residues of a protein.

    References:
        Sønderby et al. 2015 truncate in this way.
    """
    return residues if len(residues) <= MAX_RESIDUES else residues[: MAX_RESIDUES // 2] + residues[-MAX_RESIDUES // 2 :]


def random_split(proteins: Sequence[Protein]) -> DataSplits:
    """Split the proteins at random, 80 : 10 : 10, with a fixed seed. The training set may hold near-copies of test
    proteins.

    Args:
        proteins: The proteins.

    Returns:
        The three splits.
    """
    return _split_groups(proteins, np.arange(len(proteins)))


def family_split(proteins: Sequence[Protein]) -> DataSplits:
    """Split the families at random, about 80 : 10 : 10 of the proteins, with a fixed seed.

    No test or validation protein has a near-copy in the training set.

    Args:
        proteins: The proteins.

    Returns:
        The three splits.
    """
    return _split_groups(proteins, assign_families([protein.residues for protein in proteins]))


def count_near_copies(proteins: Sequence[Protein], splits: DataSplits) -> tuple[int, int]:
    """Count the test proteins, and those of them with a family member in the training set.

    Args:
        proteins: All proteins.
        splits: A split of them.

    Returns:
        Number of test proteins, and number of those with a family member in the training set.
    """
    families = assign_families([protein.residues for protein in proteins]).tolist()
    family_of = dict(zip((protein.example for protein in proteins), families, strict=True))
    train_families = {family_of[example] for example in splits.train}
    return len(splits.test), sum(family_of[example] in train_families for example in splits.test)


def _split_groups(proteins: Sequence[Protein], groups: Int[np.ndarray, " n"]) -> DataSplits:
    """Assign groups at random to test, then to validation, up to their size; the rest is the training set.

    A group that does not fit goes to the next split.
    """
    max_held_out = round(HELD_OUT_FRACTION * len(proteins))
    splits: list[list[int]] = [[], [], []]
    group_ids, sizes = np.unique(groups, return_counts=True)
    members_by_group = np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])
    for group in np.random.default_rng(SPLIT_SEED).permutation(len(group_ids)).tolist():
        members = members_by_group[group].tolist()
        fitting = (split for split in (2, 1) if len(splits[split]) + len(members) <= max_held_out)
        splits[next(fitting, 0)] += members
    examples = [[proteins[index].example for index in sorted(split)] for split in splits]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(examples[0]))
    return DataSplits([examples[0][index] for index in order.tolist()], examples[1], examples[2])


START_RESIDUES = (30, 60)
"""Numbers of initial residues whose share of attention is reported; most sorting signals are as long."""
PROFILE_RESIDUES = 100
"""Number of initial residues that are drawn one by one."""
PROFILE_BINS = 20
"""Bins for the whole length of a protein."""


class AttentionShare(NamedTuple):
    """Attention on the initial residues, as means over proteins in percent."""

    residues: int
    """Number of initial residues."""
    attention: float
    """Mean share of the attention on them."""
    interval: ConfidenceInterval
    """95 % interval of the mean, by normal approximation; of no width for one protein."""
    uniform: float
    """Share under uniform attention."""


class PositionProfile(NamedTuple):
    """Attention along the proteins of one location."""

    proteins: int
    """Number of proteins."""
    shares: Sequence[AttentionShare]
    """Shares of the first `START_RESIDUES` residues."""
    beginning: Sequence[float]
    """Mean of weight × length at each of the first `PROFILE_RESIDUES` residues, over the proteins that are as long; 1
    is uniform attention, NaN means no such protein.
    """
    by_bin: Sequence[float]
    """Mean share of each of `PROFILE_BINS` bins from the first residue to the last, in percent."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        shares = [{**share._asdict(), "interval": list(share.interval)} for share in self.shares]
        return {**self._asdict(), "shares": shares}


def attention_profiles(predictions: LabelPredictions) -> dict[str, Any]:
    """Return {"attention": the attention profile of each true location}, as plain values; an empty dict without
    attention.

    Args:
        predictions: Predictions with their attention weights.
    """
    weights: dict[str, list[Float[np.ndarray, " _S"]]] = {}
    for example, trace in zip(predictions.examples, predictions.traces, strict=True):
        if trace.attention.any():
            weights.setdefault(example.target, []).append(trace.attention[-1].astype(np.float64))
    if not weights:
        return {}
    return {"attention": {location: build_profile(weights[location]).to_json() for location in sorted(weights)}}


def build_profile(weights: Sequence[Float[np.ndarray, " _S"]]) -> PositionProfile:
    """Return the attention profile of the proteins of one location.

    Args:
        weights: Attention weights of each protein over its S residues; at least one protein.
    """
    beginning = [
        float(np.mean([row[index] * len(row) for row in weights if len(row) > index] or [math.nan]))
        for index in range(PROFILE_RESIDUES)
    ]
    by_bin = np.mean([_bin_shares(row) for row in weights], axis=0)
    return PositionProfile(
        len(weights), [_attention_share(weights, count) for count in START_RESIDUES], beginning, (100 * by_bin).tolist()
    )


def _attention_share(weights: Sequence[Float[np.ndarray, " _S"]], count: int) -> AttentionShare:
    """Return the share of the initial residues."""
    shares = np.array([100 * row[:count].sum() for row in weights])
    mean, half_width = float(shares.mean()), 0.0
    if len(shares) > 1:
        half_width = Z95 * float(shares.std(ddof=1)) / math.sqrt(len(shares))
    uniform = float(np.mean([100 * min(1.0, count / len(row)) for row in weights]))
    return AttentionShare(count, mean, ConfidenceInterval(mean - half_width, mean + half_width), uniform)


def _bin_shares(row: Float[np.ndarray, " S"]) -> Float[np.ndarray, " N"]:
    """Return the share of each of `PROFILE_BINS` bins; residues across a border are divided."""
    edges = np.linspace(0, len(row), PROFILE_BINS + 1)
    cumulative = np.interp(edges, np.arange(len(row) + 1), np.concatenate([[0.0], row.cumsum()]))
    return np.diff(cumulative)


def profile_figure(profiles: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw attention relative to uniform on the initial residues, and attention by bin over the whole length.

    Args:
        profiles: Profile of each location, as `PositionProfile.to_json` gives it.

    Returns:
        The figure.
    """
    figure = empty_figure(9.2, 3.6)
    left, right = figure.subplots(1, 2)
    for (location, profile), color in zip(profiles.items(), line_colors(len(profiles)), strict=True):
        name = f"{location} ({profile['proteins']})"
        left.plot(np.arange(1, PROFILE_RESIDUES + 1), profile["beginning"], color=color, linewidth=1.6, label=name)
        centers = (np.arange(PROFILE_BINS) + 0.5) * 100 / PROFILE_BINS
        right.plot(centers, profile["by_bin"], "o-", color=color, markersize=3, linewidth=1.6)
    _style_axes(left, 1.0, "residue", "weight × length")
    _style_axes(right, 100 / PROFILE_BINS, "position along the protein, %", "share of attention, %")
    left.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)
    return freeze_layout(figure)


def _style_axes(axes: Axes, uniform: float, x_label: str, y_label: str) -> None:
    """Draw uniform attention as a dashed line and label the axes."""
    style_axes(axes)
    axes.axhline(uniform, color=MUTED, linewidth=0.9, linestyle="--")
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(x_label, color=MUTED)
    axes.set_ylabel(y_label, color=MUTED)


def profile_table(profiles: Mapping[str, Mapping[str, Any]]) -> ReportTable:
    """Return a table with the share of attention on the initial residues, by location.

    Args:
        profiles: Profile of each location, as `PositionProfile.to_json` gives it.
    """
    rows = [
        [location, f"{profile['proteins']}", f"{share['residues']}", _share_cell(share), *_uniform_cells(share)]
        for location, profile in profiles.items()
        for share in profile["shares"]
    ]
    heads = ["location", "proteins", "first residues", "attention, %", "uniform, %", "ratio"]
    caption = "Means over the proteins of the test set by true location; 95 % intervals of the mean in parentheses."
    return ReportTable("Attention on the first residues", caption, heads, rows)


def _share_cell(share: Mapping[str, Any]) -> str:
    """Return a share with its interval."""
    low, high = share["interval"]
    return f"{share['attention']:.1f} ({low:.1f} to {high:.1f})"


def _uniform_cells(share: Mapping[str, Any]) -> list[str]:
    """Return the share under uniform attention, and the ratio to it."""
    return [f"{share['uniform']:.1f}", f"{share['attention'] / share['uniform']:.2f}"]


SplitFunction = Callable[[Sequence[Protein]], DataSplits]
SPLITS: Mapping[str, SplitFunction] = {"random": random_split, "families": family_split}
CLASSIFIER_INPUTS: Mapping[str, Mapping[str, Any]] = {
    "attention": {},
    "final": {"attention": {"type": "none", "num_heads": 1}, "decoder": {"output_layer_inputs": "state"}},
}
"""Input of the classifier: the contexts of one attention step with four heads, or the last encoder states."""
LOCALIZATION_INTRODUCTION = """\
9,222 proteins of Swiss-Prot in four locations: cytosol, mitochondrion, nucleus, secreted. Convolutions of 3, 5 and 9
residues and a bidirectional LSTM encode a protein; the classifier reads either one attention step with four heads,
whose contexts alone predict the location, or the LSTM's last states. Of a protein of more than 1,000 residues the
first 500 and the last 500 are read.

The data set has no split, and it is redundant: it holds near-copies of proteins from other species or from the same
gene family. A random split puts some of them into both the training and the test set, and its scores are too high. So
there are two splits, each 80 : 10 : 10 with a fixed seed. "random" splits proteins. "families" splits families:
proteins belong to one family if they share at least 2 % of the shorter one's k-mers of eight residues, and at least
two of them, or have the same first thirty residues; near-copies of near-copies belong to it, too. Distant relatives,
which share no k-mers, can still be in different splits.

The proteins come from github.com/dannyfriar/protein-localization-prediction. No reviewed result is published on them.
MCC is the correlation of Gorodkin (2004) for several classes."""


def run_localization(request: RecipeRequest) -> Iterator[str]:
    """Train and score the classifier on attention contexts and that on final encoder states, for each data split and
    seed.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_label_suite`).
    """
    return run_label_suite(localization_suite(), request)


def localization_suite() -> LabelSuite:
    """Return the suite of the recipe protein-localization."""
    return LabelSuite(
        localization_experiments(), localization_scores, {}, attention_profiles, profile_parts, has_text_sources=False
    )


def localization_experiments() -> ExperimentSuite:
    """Return the experiments of the recipe protein-localization: one per data split and classifier input."""
    return ExperimentSuite(
        name="protein-localization",
        title="Subcellular localization of proteins",
        introduction=LOCALIZATION_INTRODUCTION,
        origin="four FASTA files (github.com/dannyfriar/protein-localization-prediction, data), also with gzip",
        metric="exact_match",
        experiments=[
            Experiment(f"{name}-{classifier_input}", partial(read_split, split), settings=settings)
            for name, split in SPLITS.items()
            for classifier_input, settings in CLASSIFIER_INPUTS.items()
        ],
        folder="protein-localisation-ucl",
    )


def read_split(split: SplitFunction, folder: Path) -> DataSplits:
    """Read the proteins and split them.

    Args:
        split: Function that splits the proteins.
        folder: Data folder with a FASTA file per location.

    Returns:
        The three splits.

    Raises:
        DataError: As in `read_fasta`.
    """
    return split(read_proteins(folder))


def localization_scores(predictions: LabelPredictions) -> Mapping[str, LabelScore]:
    """Return accuracy in percent, with its Wilson interval, and the Matthews correlation coefficient (−1 to 1).

    Args:
        predictions: Predictions with their references.
    """
    num_correct, total = sum(example.exact for example in predictions.scored), len(predictions.scored)
    mcc = predictions.label_metrics.mcc
    assert mcc is not None
    interval = wilson_interval(num_correct, total).percent
    return {"accuracy": LabelScore(100 * num_correct / total, interval), "MCC": LabelScore(mcc)}


def profile_parts(runs: Sequence[LabelRun]) -> Iterator[ReportPart]:
    """Yield a figure and a table of the attention profiles of the first run of each experiment with attention.

    Args:
        runs: Scored runs and ensembles.
    """
    drawn = set[str]()
    for run in runs:
        profiles = run.scores.test.extra_results.get("attention")
        if profiles and run.experiment not in drawn:
            drawn.add(run.experiment)
            table = profile_table(profiles)
            title = f"{table.title}: {run.experiment}, {run.label}"
            caption = "The dashed line is uniform attention."
            yield ReportFigure(title, caption, to_svg(profile_figure(profiles)))
            yield msgspec.structs.replace(table, title=title)
