"""Statistics, table and figure of studies of the default size (`size_study.py`).

N counts seeds, W words. The word error rate of a network is the mean over seeds and words. Its 95 % interval has the
percentiles 2.5 and 97.5 of bootstrap samples of words and seeds; that of the difference of two networks draws the same
words for both.
"""

import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pellucid.config.settings import DataConfig
from pellucid.data.examples import read_examples
from pellucid.errors import count_noun
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.shapes import Bool, Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESAMPLES = 2000
RANKINGS: Mapping[str, Sequence[str]] = {"with the pair n-gram model": [], "network alone": ["--no-pair-ngram"]}
"""Options of `pellucid evaluate` for each kind of score."""
SIZES = ("tiny", "small", "base", "large")
COLORS = {"tiny": "#888888", "small": "#1b7837", "base": "#2166ac", "large": "#b2182b"}
NOT_RECORDED = "not recorded"
MAX_PANELS = 3
"""Maximum number of panels of the figure in a row."""


class RunDescription(NamedTuple):
    """Training data, environment and chosen weight of a training."""

    source_length: float
    """Mean number of symbols of a training source."""
    target_length: float
    """Mean number of symbols of a training target."""
    num_source_symbols: int
    """Number of source symbols in the vocabulary, without special ones."""
    num_target_symbols: int
    """Number of target symbols in the vocabulary, without special ones."""
    pair_ngram_weight: float
    """Weight of the pair n-gram model in the ranking of outputs."""
    environment: str
    """Versions, commit and processor."""


class Study(NamedTuple):
    """Results of the trainings of one task."""

    task: str
    results: Sequence[Mapping[str, Any]]
    """Results, each with its `RunDescription` under "description", or None if it is unknown."""
    words: Sequence[str]
    """Different sources of the validation set."""


def describe_run(run: Path, train: Path) -> RunDescription:
    """Return what the report states about a finished training.

    Args:
        run: Run folder.
        train: Its training set.
    """
    predictor = load(run)
    started = next(record for record in read_log(run) if record["event"] == "started")
    pairs = read_examples(train, predictor.config.data).examples
    lengths = [[len(part) for part in predictor.tokenizers.split_pair(pair.source, pair.target)] for pair in pairs]
    source_length, target_length = np.mean(lengths, axis=0)
    vocabularies = predictor.vocabularies
    torch, commit = (f"{name} {started.get(name, NOT_RECORDED)}" for name in ("torch", "commit"))
    return RunDescription(
        float(source_length),
        float(target_length),
        len(vocabularies.source.symbols),
        len(vocabularies.target.symbols),
        predictor.pair_ngram_weight,
        f"{started['versions']}, {commit}, {torch}, {started['processor']}",
    )


def read_words(path: Path) -> list[str]:
    """Return the different sources of a file of pairs, in order, as `pellucid evaluate` reads them.

    Args:
        path: The file: source, tab, target.
    """
    config = DataConfig(input_format="tsv", header=False)
    return [*dict.fromkeys(example.source for example in read_examples(path, config).examples)]


def check_wrong_words(result: Mapping[str, Any], words: Sequence[str], name: str) -> None:
    """Check that all wrong words of a result are among the words: others would be counted as correct.

    Args:
        result: The result.
        words: All words.
        name: Name of the result, for the error.

    Raises:
        SystemExit: A wrong word is not among the words.
    """
    if unknown := {word for wrong in result["wrong"].values() for word in wrong} - {*words}:
        sys.exit(f"{name}: {len(unknown)} wrong words, such as {min(unknown)!r}, are not among the validation words")


def read_study(folder: Path, task: str) -> Study:
    """Read the results of a study.

    A result of an earlier version of `size_study.py` has no description, and gets that of its run folder, if run folder
    and training set still exist.

    Args:
        folder: Folder of the study.
        task: Name of the task.

    Raises:
        SystemExit: There are no results, or they are of other words.
    """
    paths = sorted((folder / "results").glob("*.json"))
    if not paths:
        sys.exit(f"{folder} has no results of a study")
    words, results = json.loads((folder / "words.json").read_text("utf-8")), []
    for path in paths:
        result = json.loads(path.read_text("utf-8"))
        check_wrong_words(result, words, str(path))
        description, run = result.get("description"), folder / "runs" / path.stem
        train = Path(result["data"]) / "train.tsv"
        if description is None and run.exists() and train.exists():
            description = describe_run(run, train)._asdict()
        results.append({**result, "description": None if description is None else RunDescription(**description)})
    return Study(task, results, words)


def wrong_outputs(results: Sequence[Mapping[str, Any]], words: Sequence[str], ranking: str) -> Bool[np.ndarray, "N W"]:
    """Return whether the output of each of the W words is wrong, with each of N seeds.

    Args:
        results: Results of one network, with each seed.
        words: All words.
        ranking: Kind of score.
    """
    return np.array([np.isin(words, result["wrong"][ranking]) for result in results])


def bootstrap_error_rates(wrong: Bool[np.ndarray, "N W"], seed: int = 1) -> Float[np.ndarray, " samples"]:
    """Return error rates in percent of bootstrap samples of words and seeds; the words are the same for all networks.

    Args:
        wrong: Outcomes.
        seed: Random seed of the seeds' samples.
    """
    word_generator, seed_generator = np.random.default_rng(0), np.random.default_rng(seed)
    num_seeds, num_words = wrong.shape
    rates = []
    for _ in range(RESAMPLES):
        chosen = word_generator.integers(num_words, size=num_words)
        rates.append(100 * wrong[seed_generator.integers(num_seeds, size=num_seeds)][:, chosen].mean())
    return np.array(rates)


def format_interval(values: Float[np.ndarray, " samples"]) -> str:
    """Return a 95 % interval.

    Args:
        values: Bootstrap values.
    """
    low, high = np.percentile(values, [2.5, 97.5])
    return f"{low:.2f} to {high:.2f}"


def group_results(results: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], list[Mapping[str, Any]]]:
    """Return the results of each number of pairs and size, smallest first.

    Args:
        results: All results.
    """
    ordered = sorted(results, key=lambda result: (result["pairs"], SIZES.index(result["size"]), result["seed"]))
    groups = itertools.groupby(ordered, key=lambda result: (result["pairs"], result["size"]))
    return {key: list(group) for key, group in groups}


def format_report(studies: Sequence[Study]) -> str:
    """Return the table: each size at each number of pairs of each task, and its difference from `base`.

    Args:
        studies: Study of each task.
    """
    titles = ["task", "pairs", "source length", "target length", "source symbols", "target symbols", "size", "seeds"]
    for ranking in RANKINGS:
        titles += [f"wrong, {ranking}, %", "minus base"]
    titles += ["weight of the pair n-gram model", "CPU seconds"]
    lines = [
        f"| {' | '.join(titles)} |",
        f"|{'|'.join('---' if title in ('task', 'size') else '--:' for title in titles)}|",
    ]
    lines += [f"| {' | '.join(row)} |" for study in studies for row in _rows(study)]
    return "\n".join([*lines, "", *_environments(studies)])


def format_settings_report(studies: Sequence[Study]) -> str:
    """Return the table of several settings: each size at each number of pairs, and its difference from the first study.

    Args:
        studies: Study of each setting, whose name is its task; the first has the default settings.

    Raises:
        SystemExit: The studies have different words.
    """
    if any(study.words != studies[0].words for study in studies):
        sys.exit("the studies have different validation words: expected one validation set")
    titles = ["setting", "pairs", "size", "seeds"]
    for ranking in RANKINGS:
        titles += [f"wrong, {ranking}, %", f"minus {studies[0].task}"]
    titles.append("CPU seconds")
    lines = [
        f"| {' | '.join(titles)} |",
        f"|{'|'.join('---' if title in ('setting', 'size') else '--:' for title in titles)}|",
    ]
    first = group_results(studies[0].results)
    for study in studies:
        for (pairs, size), group in group_results(study.results).items():
            cells = [study.task, f"{pairs:,}", f"`{size}`", str(len(group))]
            for ranking in RANKINGS:
                cells += _format_rates(
                    study, group, [] if study is studies[0] else first.get((pairs, size), []), ranking
                )
            seconds = np.mean([result["seconds"] for result in group])
            lines.append(f"| {' | '.join([*cells, f'{seconds:,.0f}'])} |")
    return "\n".join([*lines, "", *_environments(studies)])


def draw(studies: Sequence[Study], path: Path) -> None:
    """Draw the word error rate against the number of pairs, a panel for each task, a curve for each size and ranking.

    Args:
        studies: Study of each task.
        path: The figure, as SVG.
    """
    from matplotlib.figure import Figure

    num_columns = min(len(studies), MAX_PANELS)
    num_rows = -(-len(studies) // num_columns)
    figure = Figure(
        figsize=(7.0 if num_columns == 1 else 3.5 * num_columns, 1.4 + 3.0 * num_rows), layout="constrained"
    )
    panels = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for axes, study in zip(panels, studies, strict=False):
        _draw_curves(axes, study)
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    for axes in panels[len(studies) :]:
        axes.remove()
    figure.supxlabel("training pairs")
    figure.supylabel("wrong validation words, %")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _rows(study: Study) -> list[list[str]]:
    """Return the cells of each row of a task."""
    groups, rows = group_results(study.results), []
    for (pairs, size), group in groups.items():
        base = groups.get((pairs, "base"), []) if size != "base" else []
        cells = [study.task, f"{pairs:,}", *_describe_data(group), f"`{size}`", str(len(group))]
        for ranking in RANKINGS:
            cells += _format_rates(study, group, base, ranking)
        seconds = np.mean([result["seconds"] for result in group])
        rows.append([*cells, _describe(group, _format_weights), f"{seconds:,.0f}"])
    return rows


def _format_rates(
    study: Study, group: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], ranking: str
) -> list[str]:
    """Return the error rate of a network, and its difference from that of others; "" if there are no others."""
    wrong = wrong_outputs(group, study.words, ranking)
    rates = bootstrap_error_rates(wrong)
    cell = f"{100 * wrong.mean():.2f} ({format_interval(rates)})"
    if not others:
        return [cell, ""]
    other = wrong_outputs(others, study.words, ranking)
    difference = 100 * (wrong.mean() - other.mean())
    return [cell, f"{difference:+.2f} ({format_interval(rates - bootstrap_error_rates(other, seed=2))})"]


def _describe_data(group: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the mean lengths and the numbers of symbols of the training data."""
    return [
        _describe(group, lambda found: f"{np.mean([each.source_length for each in found]):.1f}"),
        _describe(group, lambda found: f"{np.mean([each.target_length for each in found]):.1f}"),
        _describe(group, lambda found: f"{found[0].num_source_symbols:,}"),
        _describe(group, lambda found: f"{found[0].num_target_symbols:,}"),
    ]


def _format_weights(descriptions: Sequence[RunDescription]) -> str:
    """Return the weight with each seed."""
    return ", ".join(f"{each.pair_ngram_weight:g}" for each in descriptions)


def _describe(group: Sequence[Mapping[str, Any]], summarize: Callable[[Sequence[RunDescription]], str]) -> str:
    """Return a summary of the descriptions of results, or that none is recorded."""
    descriptions = [result["description"] for result in group if result["description"] is not None]
    return summarize(descriptions) if descriptions else NOT_RECORDED


def _environments(studies: Sequence[Study]) -> list[str]:
    """Return the lines that state with which versions, commits and processors the studies were trained."""
    counts = Counter(_environment(result) for study in studies for result in study.results)
    environments = [
        f"* {environment}: {count_noun(count, 'training')}" for environment, count in sorted(counts.items())
    ]
    return ["Environment of the trainings:", "", *environments]


def _environment(result: Mapping[str, Any]) -> str:
    """Return the versions, the commit and the processor of a training."""
    return _describe([result], lambda descriptions: descriptions[0].environment)


def _draw_curves(axes: "Axes", study: Study) -> None:
    """Draw the curves of a task."""
    groups = group_results(study.results)
    for ranking, style in zip(RANKINGS, ("-", "--"), strict=True):
        for size in dict.fromkeys(size for _, size in groups):
            points = []
            for (pairs, each), group in groups.items():
                if each == size:
                    wrong = wrong_outputs(group, study.words, ranking)
                    points.append(
                        (pairs, 100 * wrong.mean(), *np.percentile(bootstrap_error_rates(wrong), [2.5, 97.5]))
                    )
            pairs, rates, low, high = np.array(points).T
            bounds, label = (rates - low, high - rates), f"{size}, {ranking}"
            axes.errorbar(
                pairs, rates, bounds, color=COLORS[size], linestyle=style, marker="o", ms=3, capsize=2, label=label
            )
    axes.set_xscale("log")
    axes.set_title(study.task)
    axes.grid(alpha=0.25)
