"""Outputs of a search with their scores, and the check that these are numbers."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.config.extension_errors import not_finite_note
from pellucid.config.settings import Config
from pellucid.decoding.outputs import DecodedOutput
from pellucid.decoding.search_tree import SearchTreeIds
from pellucid.errors import NotFiniteError


class Hypothesis(NamedTuple):
    """One output of a source."""

    decoded: DecodedOutput
    score: float
    """Score that ranks it: its log-probability, that of a `HypothesisScorer`, or that of a network with a pair n-gram
    model."""
    tree: SearchTreeIds | None = None
    """Search tree of the source, if requested."""
    leaf: int = -1
    """Node of the search tree in which it ends; −1 without a tree, for an output of no symbols, and for one that the
    search did not find."""
    pair_ngram_score: float | None = None
    """Joint log-probability of source and output by the pair n-gram model (`PairNgram.score`). None if no such model
    ranked it."""


def hypothesis_of(output: DecodedOutput) -> Hypothesis:
    """Return an output as a hypothesis whose score is its log-probability, the sum over its steps.

    Args:
        output: Decoded output.
    """
    return Hypothesis(output, float(output.log_probabilities.sum(dtype=np.float64)))


def check_finite_outputs(outputs: Sequence[list[Hypothesis]], name: str, config: Config) -> Sequence[list[Hypothesis]]:
    """Return the outputs of each source unchanged, after checking that the network computed finite numbers.

    Non-finite numbers spread from attention, cells or scores to the probabilities of the output, or leave a search
    without any output. A log-probability of −∞ is allowed: the probability is 0.

    Args:
        outputs: The outputs of each source.
        name: Run folder of the network, for the message; "" if it has none.
        config: Configuration of the network, for the message.

    Raises:
        NotFiniteError: A score or a log-probability is NaN, or a source has no output.
    """
    hypotheses = [hypothesis for nbest in outputs for hypothesis in nbest]
    numbers = np.concatenate(
        [
            np.array([hypothesis.score for hypothesis in hypotheses]),
            *(hypothesis.decoded.log_probabilities for hypothesis in hypotheses),
        ]
    )
    if not all(outputs) or np.isnan(numbers).any():
        raise not_finite_error(name, config)
    return outputs


def not_finite_error(name: str, config: Config) -> NotFiniteError:
    """Return the error for a network whose results are not finite.

    Args:
        name: The run folder of the network; "" if it has none.
        config: Configuration of the network; the message names an attention or a cell of another package.
    """
    return NotFiniteError(
        f"{name or 'the model'} gives numbers that are not finite: its parameters are damaged, or too large for "
        f"float32; restore the model from a copy of the run, or train it again{not_finite_note(config)}"
    )
