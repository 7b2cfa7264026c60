"""The pair n-gram model of a training: fitted before the first update, weighted after the last one."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from pellucid.config.task_settings import uses_pair_ngram
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer
from pellucid.data.vocabulary import Vocabularies
from pellucid.decoding.hypothesis_scorer import ranks_with_pair_ngram
from pellucid.decoding.pair_ngram_member import (
    CandidateScores,
    PairNgramMember,
    choose_weight,
    edits_of_best,
)
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer, require_transducer
from pellucid.errors import RunError
from pellucid.files import file_exists
from pellucid.pair_ngram.model import PairNgram
from pellucid.pair_ngram.predictor import (
    MAX_CELLS,
    PairNgramPredictor,
    count_plain_examples,
    fit_encoded_examples,
)
from pellucid.run_folder.pair_ngram_file import SavedPairNgram, load_pair_ngram
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.run_files import PAIR_NGRAM
from pellucid.training.events import PairNgramFitted, PairNgramWeighted
from pellucid.training.loop import TrainingState
from pellucid.training.validation_sample import decode_in_time, shuffled_sample

MAX_SOURCES = 1000
"""Maximum number of validation sources that decide the weight; of more, evenly spaced ones are taken."""
FITTING_SHARE, SCORING_SHARE = 0.1, 0.02
"""Maximum parts of a time limit for fitting the model, and for scoring it without the network."""
FIRST_SOURCES = 4
"""Number of sources that are scored without the network before the time is compared with its limit."""
RANKED_BY_BOTH = {"pair_ngram": True, "length_normalization": "none", "coverage_penalty": 0.0}
"""Search settings with which the pair n-gram model takes part."""
CELLS_PER_SECOND = 2_000_000
"""Source length times target length of the examples that are fitted in a second, by a slow machine."""


class FittedPairNgram(NamedTuple):
    """The pair n-gram model of a training, not yet written."""

    model: PairNgram | None
    """None if no model can be fitted."""
    event: PairNgramFitted


def fit_missing_pair_ngram(state: TrainingState, folder: Path, fingerprint: str) -> FittedPairNgram | None:
    """Fit the pair n-gram model of a training, unless the run folder holds it. Nothing is written.

    Args:
        state: Training state, with the examples to which the model is fitted and those on which it is scored.
        folder: Run folder.
        fingerprint: Hash of the settings and the data; a file of another training counts as missing.

    Returns:
        The result of the fit; None without a fit: the folder holds a model, or the settings exclude one.
    """
    predictor, training = state.predictor, state.encoded_training_examples
    vocabularies = predictor.vocabularies
    if not uses_pair_ngram(predictor.config):
        return None
    saved = _read(folder / PAIR_NGRAM, vocabularies)
    if saved is not None and saved.fingerprint == fingerprint:
        return None
    limit = state.time_limit
    max_cells = int(min(MAX_CELLS, FITTING_SHARE * limit * CELLS_PER_SECOND))
    context_size = 2 * predictor.config.data.context_words
    model, num_fitted, num_chosen = fit_encoded_examples(training, vocabularies, max_cells, context_size)
    available = count_plain_examples(training, vocabularies, context_size)
    if model is None:
        return FittedPairNgram(None, PairNgramFitted(0, available, 0.0, 0, are_all_too_long=not num_chosen))
    references = _references(state.validation_examples, predictor.tokenizers.target)
    pair_ngram = PairNgramPredictor(predictor.tokenizers, vocabularies, model)
    sources = [Example(example.source, "") for example in references]
    outputs = decode_in_time(
        sources, lambda examples: pair_ngram.nbest(examples, 1), SCORING_SHARE * limit, 1, FIRST_SOURCES
    )
    right = [bool(nbest) and nbest[0] in targets for nbest, targets in zip(outputs, references.values(), strict=False)]
    return FittedPairNgram(model, PairNgramFitted(num_fitted, available, _percentage(right), len(right)))


class WeightedPairNgram(NamedTuple):
    """The pair n-gram model of a finished training with its weight, not yet written."""

    saved: SavedPairNgram
    event: PairNgramWeighted


def weight_pair_ngram(
    predictor: Predictor, validation: Sequence[Example], folder: Path, seconds: float = math.inf
) -> WeightedPairNgram | None:
    """Choose the weight of the pair n-gram model of a finished training. Nothing is written.

    Args:
        predictor: Predictor of the network in training; that of the best validation is read from the run folder.
        validation: Validation examples, which decide the weight.
        folder: Run folder.
        seconds: Time after which the sources that are decoded decide; infinite by default. At least
            `validation_sample.SOURCES_AT_ONCE` are.

    Returns:
        The model with its weight; None if the weight has been chosen before, or there is no model.

    Raises:
        RunError: The model of the best validation cannot be read.
    """
    saved = _read(folder / PAIR_NGRAM, predictor.vocabularies) if uses_pair_ngram(predictor.config) else None
    if saved is None or saved.weight is not None:
        return None
    trained = require_transducer(load(folder, predictor.config.device), "predictor")
    event = choose_pair_ngram_weight(trained, PairNgramMember(saved.model, 0.0, network=0), validation, seconds)
    return WeightedPairNgram(saved._replace(weight=event.weight), event)


def choose_pair_ngram_weight(
    predictor: Transducer, pair_ngram: PairNgramMember, validation: Sequence[Example], seconds: float = math.inf
) -> PairNgramWeighted:
    """Choose the weight of a pair n-gram model in the ranking of the outputs of a predictor.

    The weight is for searches that rank by log-probabilities, also if the settings of the predictor do not: settings of
    a search may change after the training, and the weight is then kept.

    Args:
        predictor: Predictor of one network or of several.
        pair_ngram: Pair n-gram model with any weight.
        validation: Validation examples, which decide the weight.
        seconds: Time after which the sources that are decoded decide; infinite by default.

    Returns:
        The weight, with the scores of both models.
    """
    references = _references(validation, predictor.tokenizers.target)
    searching = replace(predictor.with_search(RANKED_BY_BOTH), pair_ngram=pair_ngram._replace(weight=0.0))
    found = decode_in_time(list(references), searching.candidates, seconds, 1)
    edits = [
        [min(Levenshtein.distance(trace.symbols, target) for target in targets) for trace in traces]
        for traces, targets in zip(found, references.values(), strict=False)
    ]
    candidates = [_scores(traces) for traces in found]
    weight = choose_weight(candidates, edits)
    with_both, by_network, by_pair_ngram = (
        _percentage([count == 0 for count in edits_of_best(candidates, edits, value)]) for value in (weight, 0.0, 1.0)
    )
    in_predictions = ranks_with_pair_ngram(predictor.config.search)
    return PairNgramWeighted(weight, with_both, by_network, by_pair_ngram, len(found), in_predictions)


def _scores(traces: Sequence[Trace]) -> CandidateScores:
    """Return the scores of the candidates of one source."""
    # The only output of a text without symbols has no score by the pair n-gram model.
    scores = [0.0 if trace.pair_ngram_score is None else trace.pair_ngram_score for trace in traces]
    return CandidateScores(
        np.array([trace.score for trace in traces]),
        np.array(scores),
        np.array([trace.finished for trace in traces], np.bool_),
    )


def _read(path: Path, vocabularies: Vocabularies) -> SavedPairNgram | None:
    """Return the model in a run folder; None if it is missing or damaged, so that it is fitted anew."""
    try:
        return load_pair_ngram(path, vocabularies) if file_exists(path) else None
    except RunError:
        return None


def _references(validation: Sequence[Example], tokenizer: Tokenizer) -> dict[Example, set[tuple[str, ...]]]:
    """Return validation sources, at most `MAX_SOURCES`, with the symbols of all their targets, in a shuffled order.

    Empty sources are left out. A source has one entry for each of its contexts. The order is fixed and makes the first
    entries representative.
    """
    targets: dict[Example, set[tuple[str, ...]]] = {}
    for example in validation:
        if example.source:
            symbols = tuple(tokenizer.split(example.target))
            targets.setdefault(example._replace(target=""), set()).add(symbols)
    return {source: targets[source] for source in shuffled_sample(list(targets), MAX_SOURCES)}


def _percentage(right: Sequence[bool]) -> float:
    """Return the percentage of correct outputs; 0 of none."""
    return 100 * sum(right) / len(right) if right else 0.0
