"""Trained networks on the pairs of an experiment: a beam, and every score of what it finds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from pellucid.data.examples import Example
from pellucid.evaluation.answers import score
from pellucid.evaluation.candidates import Oracle, oracle
from pellucid.evaluation.metrics import Evaluation, evaluate
from pellucid.evaluation.outcomes import outcomes
from pellucid.model.threads import use_threads
from pellucid.search.predictor import Predictor
from pellucid.viewer.run_report import Judgement

BEAM = 5
"""Hypotheses of every search that is judged; validations in training are greedy."""
KEPT = ("examples", "exact_match", "wer", "symbol_error_rate")
"""What `Worth.told` has of an evaluation, each rate with its interval."""


class Worth(NamedTuple):
    """What outputs on one set are worth."""

    evaluation: Evaluation
    table: Int[np.ndarray, "n 3"]
    """The outcome of each example, for means over sets."""
    among: list[Oracle]
    """How often a right output is among the first 1, 2, …"""

    def told(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = self.evaluation.to_dict()
        kept = {key: value for key, value in values.items() if key.removesuffix("_ci95") in KEPT}
        return {**kept, "among_first": [each._asdict() for each in self.among]}


class Worths(NamedTuple):
    """The development set's and the test set's."""

    dev: Worth
    test: Worth | None


def judged(transducer: Predictor, examples: Sequence[Example], candidates: int) -> tuple[Judgement, Worth]:
    """Decode examples with a beam, and score the first output, or the first few, each against its own target."""
    use_threads(transducer.config.threads)
    found = transducer.with_beam(BEAM).hypotheses(examples, candidates)
    references: list[tuple[str, ...]] = [(example.target,) for example in examples]
    firsts = [outputs[0] for outputs in found]
    scored = score(firsts, references, transducer.segmenters)
    evaluation = evaluate(scored)
    lists = [
        score(outputs, [wanted] * len(outputs), transducer.segmenters)
        for outputs, wanted in zip(found, references, strict=True)
    ]
    among = oracle(lists, candidates)
    return Judgement(transducer, firsts, references, scored, evaluation), Worth(evaluation, outcomes(scored), among)
