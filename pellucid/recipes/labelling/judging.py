"""Answers of trained networks beside what was wanted: the scores that a recipe asks for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pellucid.data.examples import Example
from pellucid.evaluation.answers import score
from pellucid.evaluation.intervals import Interval
from pellucid.evaluation.labels import Labelled, score_labels
from pellucid.evaluation.metrics import Scored
from pellucid.model.threads import use_threads
from pellucid.search.predictor import Predictor
from pellucid.search.trace import Trace


class Score(NamedTuple):
    """One number: a percentage, or a correlation."""

    value: float
    interval: Interval | None = None
    """At 95 %; None where none is told."""

    @property
    def text(self) -> str:
        """The number, and its interval in brackets."""
        if self.interval is None:
            return f"{self.value:.3f}" if -1 <= self.value <= 1 else f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.interval.low:.2f} to {self.interval.high:.2f})"


class Answers(NamedTuple):
    """What came out on one set."""

    examples: Sequence[Example]
    traces: Sequence[Trace]
    scored: Sequence[Scored]
    labelled: Labelled


Scoring = Callable[[Answers], Mapping[str, Score]]
"""The scores of a recipe by name, the one that is compared first. A function of a module: it goes to other processes"""
Further = Callable[[Answers], Mapping[str, Any]]
"""What a recipe wants to know beside scores, as plain values for JSON; the same."""


class Worth(NamedTuple):
    """What answers on one set are worth."""

    scores: Mapping[str, Score]
    labelled: Labelled
    further: Mapping[str, Any]

    def told(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {name: score.value for name, score in self.scores.items()}
        intervals = {name: list(score.interval) for name, score in self.scores.items() if score.interval is not None}
        return {**values, "ci95": intervals, "labels": self.labelled.to_dict(), **self.further}


class Worths(NamedTuple):
    """The development set's and the test set's."""

    dev: Worth
    test: Worth


def answered(transducer: Predictor, examples: Sequence[Example]) -> Answers:
    """Answer examples, and hold the answers against their targets."""
    use_threads(transducer.config.threads)
    traces = transducer.trace(examples)
    scored = score(traces, [(example.target,) for example in examples], transducer.segmenters)
    return Answers(examples, traces, scored, score_labels(scored, traces))


def worth_of(answers: Answers, scoring: Scoring, further: Further) -> Worth:
    """The scores of answers."""
    return Worth(scoring(answers), answers.labelled, further(answers))


def nothing_further(answers: Answers) -> Mapping[str, Any]:
    """For recipes that ask for scores alone."""
    return {}
