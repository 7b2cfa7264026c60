"""The confidence of a finished training: fitted to the outputs of its model for the validation set."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pellucid.data.examples import Example
from pellucid.decoding.confidence import add_confidences
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.errors import RunError
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.calibration import measure_calibration
from pellucid.evaluation.confidence_fit import fit_confidence
from pellucid.files import file_exists
from pellucid.run_folder.confidence_file import SavedConfidence, load_confidence
from pellucid.run_folder.run_files import CONFIDENCE
from pellucid.training.events import ConfidenceFitted
from pellucid.training.validation_sample import MAX_CONFIDENCE_PAIRS, decode_in_time, shuffled_sample

MIN_SOURCES = 100
"""Number of sources that are decoded even if a time limit has passed."""


class FittedConfidence(NamedTuple):
    """A fitted confidence, not yet written."""

    saved: SavedConfidence
    event: ConfidenceFitted


def has_confidence(folder: Path, fingerprint: str) -> bool:
    """Return whether a run folder holds the confidence of its training.

    Args:
        folder: Run folder.
        fingerprint: Hash of the settings and the data; a damaged file, or one of another training, counts as missing.
    """
    path = folder / CONFIDENCE
    try:
        return file_exists(path) and load_confidence(path).fingerprint == fingerprint
    except RunError:
        return False


def fit_predictor_confidence(
    predictor: Predictor, validation: Sequence[Example], fingerprint: str, seconds: float = math.inf
) -> FittedConfidence | None:
    """Fit the confidence of the outputs of a predictor. Nothing is written.

    It decodes the validation pairs with its search settings and the weight of its pair n-gram model, as `predict` does.
    Pairs count as often as they occur, each with its own target: the confidence is that of pairs like those of the
    validation set.

    Args:
        predictor: Predictor of one network or of several, as `predict` uses it.
        validation: Validation examples.
        fingerprint: Hash that the file of the confidence records.
        seconds: Time after which the pairs whose sources are decoded decide; infinite by default. At least
            `MIN_SOURCES` sources are.

    Returns:
        The fitted confidence; None if all validation sources are empty.
    """
    start_time = time.perf_counter()
    examples, outputs = _decode_validation(predictor, validation, seconds)
    if not outputs:
        return None
    references, traces = [(example.target,) for example in examples], [best for best, *_ in outputs]
    correct = [scored.exact for scored in score_traces(traces, references, predictor.tokenizers)]
    model = fit_confidence(
        outputs, correct, predictor.config.search, predictor.pair_ngram_weight, predictor.lowest_confidence_for_unknown
    )
    confidences = [best.confidence for best, *_ in add_confidences(model, outputs) if best.confidence is not None]
    errors = [
        measure_calibration(values, correct).expected_calibration_error
        for values in ([trace.score for trace in traces], np.log(confidences).tolist())
    ]
    event = ConfidenceFitted(
        len(correct),
        100 * sum(correct) / len(correct),
        100 * errors[0],
        100 * errors[1],
        time.perf_counter() - start_time,
    )
    return FittedConfidence(SavedConfidence(model, fingerprint), event)


def _decode_validation(
    predictor: Predictor, validation: Sequence[Example], seconds: float
) -> tuple[list[Example], list[list[Trace]]]:
    """Return validation pairs with the outputs of each, in a fixed shuffled order.

    Equal sources are decoded once. Empty sources are left out. If the time is not enough, the first pairs are
    returned; the order makes them representative.
    """
    has_symbols = predictor.tokenizers.source.split
    pairs = shuffled_sample([example for example in validation if has_symbols(example.source)], MAX_CONFIDENCE_PAIRS)
    sources = list(dict.fromkeys((pair.source, pair.features) for pair in pairs))
    examples = [Example(source, "", features) for source, features in sources]
    decoded_outputs = decode_in_time(examples, predictor.outputs_for_confidence, seconds, MIN_SOURCES)
    outputs = dict(zip(sources, decoded_outputs, strict=False))
    decoded = [pair for pair in pairs if (pair.source, pair.features) in outputs]
    return decoded, [outputs[pair.source, pair.features] for pair in decoded]
