"""One run's outputs on some examples, and all that they are worth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

import numpy as np

from pellucid.arguments import check_arguments, check_lengths, check_not_empty
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Segmenters
from pellucid.decoding.trace import Trace
from pellucid.errors import InputError
from pellucid.evaluation.calibration import Calibration, calibration
from pellucid.evaluation.confusion import Confusions, confusions
from pellucid.evaluation.label_metrics import Labelled
from pellucid.evaluation.metrics import (
    Count,
    Evaluation,
    Interval,
    Scored,
    TextScores,
    bootstrap_ratio,
    evaluate,
    text_scores,
    wilson,
    worst,
)
from pellucid.evaluation.outcomes import Mean, Table, mean_of_groups, outcomes, rates
from pellucid.evaluation.scoring import GroupScores, TaskMetrics
from pellucid.evaluation.significance import Comparison, compare


@check_arguments
def merge_references(examples: Sequence[Example]) -> list[tuple[Example, tuple[str, ...]]]:
    """Examples of one source (and features) as one, with every distinct target any of them has, in the file's order."""
    targets: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], Example] = {}
    for example in examples:
        key = (example.source, example.features)
        first.setdefault(key, example)
        known = targets.setdefault(key, [])
        if example.target not in known:
            known.append(example.target)
    return [(first[key], tuple(targets[key])) for key in first]


@check_arguments
def score(traces: Sequence[Trace], references: Sequence[Sequence[str]], segmenters: Segmenters) -> list[Scored]:
    """Each trace against its references (texts), as symbols; of tags those that are scored (by the first reference).

    Raises:
        ArgumentError: There are not as many references as traces, or an argument is of another type.
    """
    check_lengths(traces=traces, references=references)
    return [
        _scored(trace, tuple(tuple(segmenters.target.split(text)) for text in texts), segmenters.target.unscored)
        for trace, texts in zip(traces, references, strict=True)
    ]


def _scored(trace: Trace, references: tuple[tuple[str, ...], ...], unscored: str) -> Scored:
    """One trace and its references as symbols, less those at unscored positions."""
    output, length = trace.symbols, len(trace.source) - trace.features
    sure = tuple(trace.log_probabilities.tolist()) if trace.per_position else ()
    if unscored and references:
        kept = [at for at, symbol in enumerate(references[0]) if symbol != unscored]
        output, sure = (tuple(each[at] for at in kept if at < len(each)) for each in (output, sure))
        references = tuple(tuple(each[at] for at in kept if at < len(each)) for each in references)
    return Scored(output, references, length, not trace.autoregressive, sure)


class Oracle(NamedTuple):
    """The share of examples, in per cent, of which one of the first k outputs is right."""

    k: int
    accuracy: float
    ci95: Interval


@check_arguments
def oracle(candidates: Sequence[Sequence[Scored]], count: Count) -> list[Oracle]:
    """Oracle accuracy for k from 1 to `count`: an example is right where any of its first k outputs is a reference.

    Transliteration reports it as 1-, 2- and 3-best accuracy. Interval: Wilson's.

    Raises:
        ArgumentError: There is no example, or these are no scored outputs.
    """
    check_not_empty("candidates", candidates, "example")
    ranks = _ranks(candidates)
    right = [sum(rank is not None and rank <= k for rank in ranks) for k in range(1, count + 1)]
    total = len(ranks)
    return [Oracle(k, 100 * hits / total, wilson(hits, total).percent) for k, hits in enumerate(right, start=1)]


@check_arguments
def reciprocal_rank(candidates: Sequence[Sequence[Scored]]) -> float:
    """Mean over examples of 1 / (place of the first right output), 0 where none is right; a share of 1.

    Source: E. M. Voorhees (1999), "The TREC-8 question answering track report"; MRR of the NEWS transliteration tasks.

    Raises:
        ArgumentError: There is no example, or these are no scored outputs.
    """
    check_not_empty("candidates", candidates, "example")
    ranks = _ranks(candidates)
    return sum(1 / rank for rank in ranks if rank is not None) / len(ranks)


def _ranks(candidates: Sequence[Sequence[Scored]]) -> list[int | None]:
    """The place, from 1, of each example's first right output; None where there is none."""
    return [next((place for place, each in enumerate(own, start=1) if each.exact), None) for own in candidates]


WRITTEN = ("wer", "wer_ci95", "symbol_error_rate", "symbol_error_rate_ci95", "symbol_accuracy")
"""Scores of outputs that are written symbol by symbol alone: of tags they are the rest of the accuracy, or it."""


class Answered(NamedTuple):
    """Examples and what a run made of them, all of the same length."""

    examples: list[Example]
    references: list[tuple[str, ...]]
    """The targets that count as right."""
    groups: list[str]
    """The group (a language, say) of each example; the same for all where there are none."""
    outputs: list[list[Trace]]
    """The outputs of each example, likeliest first: one, or several where more were asked for."""


@dataclass(frozen=True, eq=False)
class Assessment:
    """The outputs of a run, scored, and every view on them, computed when first looked at."""

    name: str
    answered: Answered
    candidates: list[list[Scored]]
    """Every output of each example beside its references, likeliest first."""
    metrics: TaskMetrics
    """The scores of the run's task."""
    texts: bool
    """Whether outputs are also scored as running texts."""
    characters: bool = False
    """Whether the symbols that errors are counted in are characters."""
    unscored: str = ""
    """The tag at positions that are not scored; empty where all are."""

    @cached_property
    def scored(self) -> list[Scored]:
        """The best output of each example beside its references."""
        return [own[0] for own in self.candidates]

    @cached_property
    def traces(self) -> list[Trace]:
        """The best output of each example."""
        return [own[0] for own in self.answered.outputs]

    @cached_property
    def evaluation(self) -> Evaluation:
        """Exact match, error rates, accuracy by position and length."""
        return evaluate(self.scored)

    @cached_property
    def labelled(self) -> Labelled | None:
        """What tags, classes or positions are worth; None for outputs written symbol by symbol."""
        return None if self.metrics.labels is None else self.metrics.labels(self.scored, self.traces)

    @cached_property
    def confusions(self) -> Confusions:
        """Which symbols were taken for which."""
        return confusions(self.scored)

    @property
    def unit(self) -> Literal["outputs", "tags"]:
        """What has a probability of its own: each tag, of a model that tags, and not the whole of them."""
        return "tags" if any(example.log_probabilities for example in self.scored) else "outputs"

    @cached_property
    def calibration(self) -> Calibration:
        """Whether the probabilities of outputs, or of tags, can be believed."""
        if self.unit == "outputs":
            return calibration([trace.score for trace in self.traces], [example.exact for example in self.scored])
        tags = [
            (sure, answered == wanted)
            for each in self.scored
            for sure, answered, wanted in zip(each.log_probabilities, each.output, each.reference, strict=False)
        ]
        return calibration([sure for sure, _ in tags], [right for _, right in tags])

    @cached_property
    def text_scores(self) -> TextScores | None:
        """Word edit rate, BLEU and chrF, where asked for."""
        outputs = [trace.output for trace in self.traces]
        return text_scores(outputs, self.answered.references) if self.texts else None

    @cached_property
    def oracle(self) -> list[Oracle]:
        """Accuracy of the best of the first k outputs; empty where there is one output only."""
        count = max(map(len, self.candidates))
        return oracle(self.candidates, count) if count > 1 else []

    @property
    def reciprocal_rank(self) -> float:
        """Mean reciprocal rank of the first right output."""
        return reciprocal_rank(self.candidates)

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The outcomes of each group's examples, in the order in which the groups first come."""
        table, names = outcomes(self.scored), np.array(self.answered.groups, dtype=object)
        return {name: table[names == name] for name in dict.fromkeys(self.answered.groups)}

    @cached_property
    def groups(self) -> list[GroupScores]:
        """A row of each group; none where there is one group only."""
        return [_row(name, table) for name, table in self.tables.items()] if len(self.tables) > 1 else []

    @cached_property
    def mean(self) -> Mean | None:
        """The mean over groups without weights, where there are several."""
        return mean_of_groups(list(self.tables.values())) if len(self.tables) > 1 else None

    @check_arguments
    def worst(self, count: Count) -> list[int]:
        """Where the worst examples stand, worst first."""
        return worst(self.scored, count)

    def error(self, at: int) -> dict[str, Any]:
        """One example's output, as plain values."""
        trace, example = self.traces[at], self.answered.examples[at]
        return {
            "source": trace.text,
            "features": example.features,
            "output": trace.output,
            "references": list(self.answered.references[at]),
            "errors": self.scored[at].errors,
            "score": trace.score,
            "group": self.answered.groups[at],
        }

    def to_dict(self) -> dict[str, Any]:
        """All scores as plain values for JSON; what was not asked for is null or empty."""
        mean = self.mean
        return {
            **self._scores(),
            "texts": self.text_scores.to_dict() if self.text_scores else None,
            "oracle": [{"k": each.k, "accuracy": each.accuracy, "ci95": list(each.ci95)} for each in self.oracle],
            "mean_reciprocal_rank": self.reciprocal_rank if self.oracle else None,
            "groups": [{"group": row.group, "examples": row.examples, **self._rates(row)} for row in self.groups],
            "macro": self._rates(mean) if mean else None,
            "confusions": self.confusions.to_dict(),
            "calibration": {"of": self.unit, **self.calibration.to_dict()},
        }

    def _scores(self) -> dict[str, Any]:
        """The scores of all examples; error rates only where outputs are written symbol by symbol."""
        scores = self.evaluation.to_dict()
        if self.labelled is None:
            return scores
        return {name: value for name, value in scores.items() if name not in WRITTEN} | self.labelled.to_dict()

    def _rates(self, row: GroupScores | Mean) -> dict[str, Any]:
        """The scores of a group or of the mean, with their intervals."""
        if self.labelled is None:
            return row.to_dict()
        rates = self.metrics.rates(row)
        return {rate.key: rate.value for rate in rates} | {f"{rate.key}_ci95": list(rate.interval) for rate in rates}


@check_arguments
def assess(
    name: str, answered: Answered, own: Segmenters, shared: Segmenters, metrics: TaskMetrics, texts: bool = False
) -> Assessment:
    """Score a run's outputs as symbols of `shared`, the same for all runs that are compared.

    `own` are the run's: where it cuts targets in another way, its outputs are cut anew.

    Raises:
        ArgumentError: The lists of `answered` are not of one length, an example has no output, or an argument is of
            another type.
    """
    check_lengths(**{f"answered.{field}": values for field, values in answered._asdict().items()})
    for at, outputs in enumerate(answered.outputs):
        check_not_empty(f"answered.outputs[{at}]", outputs, "output")
    flat = [trace for outputs in answered.outputs for trace in outputs]
    wanted = [texts for texts, outputs in zip(answered.references, answered.outputs, strict=True) for _ in outputs]
    scored = score(flat, wanted, shared)
    if own.target != shared.target:
        scored = [
            each._replace(output=tuple(shared.target.split(trace.output)))
            for each, trace in zip(scored, flat, strict=True)
        ]
    rest = iter(scored)
    lists = [list(islice(rest, len(outputs))) for outputs in answered.outputs]
    return Assessment(name, answered, lists, metrics, texts, shared.target.kind == "characters", shared.target.unscored)


@check_arguments
def join(parts: Sequence[Assessment]) -> Assessment:
    """Several assessments of one run, of different groups, as one; `ArgumentError` where there is none."""
    check_not_empty("parts", parts, "assessment")
    answered = Answered(*(list(chain(*lists)) for lists in zip(*(part.answered for part in parts), strict=True)))
    candidates = [own for part in parts for own in part.candidates]
    return replace(parts[0], answered=answered, candidates=candidates)


@check_arguments
def compare_runs(a: Assessment, b: Assessment) -> Comparison:
    """Two runs on the same examples: means over groups where there are several.

    Raises:
        ArgumentError: One is no assessment, or they have no example.
        InputError: They are not of the same examples.
    """
    if a.answered.groups != b.answered.groups:
        raise InputError("runs can be compared on the same examples only: they have different groups of them")
    return compare(list(a.tables.values()), list(b.tables.values()))._replace(metrics=a.metrics)


def _row(name: str, table: Table) -> GroupScores:
    """The scores of one group."""
    exact, errors = rates(table.sum(axis=0), len(table)).tolist()
    interval = bootstrap_ratio(table[:, 1].tolist(), table[:, 2].tolist()).percent
    right = len(table) - int(table[:, 0].sum())
    return GroupScores(name, len(table), exact, wilson(right, len(table)).percent, errors, interval)
