"""The pair n-gram model of a training: fitted before the first update, weighted after the last one."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer
from pellucid.decoding.hypothesis_scorer import allows_pair_ngram_ranking
from pellucid.decoding.pair_ngram_interpolation import (
    CandidateScores,
    InterpolatedPairNgram,
    best_candidate_edits,
    choose_weight,
)
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
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
from pellucid.run_folder.run_files import PAIR_NGRAM
from pellucid.training.events import PairNgramFitted, PairNgramWeighted
from pellucid.training.training_state import TrainingState
from pellucid.training.validation_sample import MAX_WEIGHTING_SOURCES, decode_in_time, shuffled_sample

FITTING_FRACTION, SCORING_FRACTION = 0.1, 0.02
"""Maximum parts of a time limit for fitting the model, and for scoring it without the network."""
PAIR_NGRAM_FIRST_BLOCK_SIZE = 4
"""Number of sources that are scored without the network before the time is compared with its limit."""
INTERPOLATED_SEARCH = {"pair_ngram": True, "length_normalization": "none", "coverage_penalty": 0.0}
"""Search settings with which the pair n-gram model takes part."""
CELLS_PER_SECOND = 2_000_000
"""Source length times target length of the examples that are fitted in a second, by a slow machine."""


def read_pair_ngram(state: TrainingState, folder: Path, fingerprint: str) -> SavedPairNgram | None:
    """Return the pair n-gram model that a training has written; None if it is missing or damaged.

    Args:
        state: Training state.
        folder: Run folder.
        fingerprint: Hash of the settings and the data; a file of another training counts as missing.
    """
    path = folder / PAIR_NGRAM
    try:
        saved = load_pair_ngram(path, state.predictor.vocabularies) if file_exists(path) else None
    except RunError:
        return None
    return saved if saved is not None and saved.fingerprint == fingerprint else None


def fit_training_pair_ngram(state: TrainingState) -> tuple[PairNgram | None, PairNgramFitted]:
    """Fit the pair n-gram model of a training. Nothing is written.

    Args:
        state: Training state, with the examples to which the model is fitted and those on which it is scored. Its
            settings ask for the model.

    Returns:
        The model, and the event of the fit. The model is None if none can be fitted.
    """
    predictor, training = state.predictor, state.encoded_training_examples
    vocabularies = predictor.vocabularies
    limit = state.time_limit
    max_cells = int(min(MAX_CELLS, FITTING_FRACTION * limit * CELLS_PER_SECOND))
    context_size = 2 * predictor.config.data.context_words
    model, num_fitted, num_chosen = fit_encoded_examples(training, vocabularies, max_cells, context_size)
    available = count_plain_examples(training, vocabularies, context_size)
    if model is None:
        return None, PairNgramFitted(0, available, 0.0, 0, are_all_too_long=not num_chosen)
    references = _references(state.validation_examples, predictor.tokenizers.target)
    pair_ngram = PairNgramPredictor(predictor.tokenizers, vocabularies, model)
    sources = [Example(example.source, "") for example in references]
    outputs = decode_in_time(
        sources,
        lambda examples: pair_ngram.nbest(examples, 1),
        SCORING_FRACTION * limit,
        minimum=1,
        num_first=PAIR_NGRAM_FIRST_BLOCK_SIZE,
    )
    correct = [
        bool(nbest) and nbest[0] in targets for nbest, targets in zip(outputs, references.values(), strict=False)
    ]
    encoded = (vocabularies.source.encode(predictor.tokenizers.source.split(each.source)) for each in sources)
    num_uncovered = sum(not model.covers_source(ids) for ids, _ in zip(encoded, correct, strict=False))
    event = PairNgramFitted(num_fitted, available, _percentage(correct), len(correct), num_uncovered=num_uncovered)
    return model, event


class PairNgramWithWeight(NamedTuple):
    """The pair n-gram model of a finished training with its weight, not yet written."""

    saved: SavedPairNgram
    predictor: Transducer
    """The predictor with this model, as it is loaded when the model is written."""
    event: PairNgramWeighted


def weight_pair_ngram(
    predictor: Transducer, saved: SavedPairNgram, validation: Sequence[Example], seconds: float = math.inf
) -> PairNgramWithWeight:
    """Choose the weight of the pair n-gram model of a finished training. Nothing is written.

    Args:
        predictor: Predictor of the best validation.
        saved: The model.
        validation: Validation examples, which decide the weight.
        seconds: Time after which the sources that are decoded decide; infinite by default. At least
            `validation_sample.BLOCK_SIZE` are.
    """
    member = InterpolatedPairNgram(saved.model, 0.0, network_index=0)
    event = choose_pair_ngram_weight(predictor, member, validation, seconds)
    weighted = replace(predictor, pair_ngram=member._replace(weight=event.weight))
    return PairNgramWithWeight(saved._replace(weight=event.weight), weighted, event)


def choose_pair_ngram_weight(
    predictor: Transducer, pair_ngram: InterpolatedPairNgram, validation: Sequence[Example], seconds: float = math.inf
) -> PairNgramWeighted:
    """Choose the interpolation weight of a pair n-gram model in the ranking of the outputs of a predictor.

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
    candidate_predictor = replace(
        predictor.with_search(INTERPOLATED_SEARCH), pair_ngram=pair_ngram._replace(weight=0.0)
    )
    candidate_traces = decode_in_time(list(references), candidate_predictor.ranked_outputs, seconds, minimum=1)
    edits = [
        [min(Levenshtein.distance(trace.symbols, target) for target in targets) for trace in traces]
        for traces, targets in zip(candidate_traces, references.values(), strict=False)
    ]
    candidates = [_scores(traces) for traces in candidate_traces]
    weight = choose_weight(candidates, edits)
    interpolated, by_network, by_pair_ngram = (
        _percentage([count == 0 for count in best_candidate_edits(candidates, edits, value)])
        for value in (weight, 0.0, 1.0)
    )
    in_predictions = allows_pair_ngram_ranking(predictor.config.search)
    return PairNgramWeighted(weight, interpolated, by_network, by_pair_ngram, len(candidate_traces), in_predictions)


def _scores(traces: Sequence[Trace]) -> CandidateScores:
    """Return the scores of the candidates of one source."""
    # The only output of a text without symbols has no score by the pair n-gram model.
    scores = [0.0 if trace.pair_ngram_score is None else trace.pair_ngram_score for trace in traces]
    return CandidateScores(
        np.array([trace.score for trace in traces]),
        np.array(scores),
        np.array([trace.finished for trace in traces], np.bool_),
    )


def _references(validation: Sequence[Example], tokenizer: Tokenizer) -> dict[Example, set[tuple[str, ...]]]:
    """Return validation sources with the symbols of all their targets, in a shuffled order.

    They are at most `MAX_WEIGHTING_SOURCES`. Empty sources are left out. A source has one entry for each of its
    contexts. The order is fixed and makes the first entries representative.
    """
    targets: dict[Example, set[tuple[str, ...]]] = {}
    for example in validation:
        if example.source:
            symbols = tuple(tokenizer.split(example.target))
            targets.setdefault(example._replace(target=""), set()).add(symbols)
    return {source: targets[source] for source in shuffled_sample(list(targets), MAX_WEIGHTING_SOURCES)}


def _percentage(correct: Sequence[bool]) -> float:
    """Return the percentage of correct outputs; 0 of none."""
    return 100 * sum(correct) / len(correct) if correct else 0.0
