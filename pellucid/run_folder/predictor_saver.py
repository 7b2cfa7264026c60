"""Saving of predictors as folders for prediction."""

from pathlib import Path

import msgspec

from pellucid.argument_checks import convert_argument
from pellucid.config.task_settings import uses_pair_ngram
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, RunError
from pellucid.files import unexpected_files, wrap_os_errors, write_atomic
from pellucid.run_folder.confidence_file import SavedConfidence, save_confidence
from pellucid.run_folder.identity import describe_run
from pellucid.run_folder.initialization import initialize_run_folder
from pellucid.run_folder.network_file import encode_network
from pellucid.run_folder.pair_ngram_file import SavedPairNgram, save_pair_ngram
from pellucid.run_folder.run_files import CONFIDENCE, MODEL, PAIR_NGRAM


def save(predictor: Predictor, folder: str | Path) -> None:
    """Write a model to a new folder, from which `load` and the command line predict.

    The folder holds the settings with the current search settings, the vocabularies, the parameters, the pair n-gram
    model and the fitted confidence. It has no log and no checkpoint, so the training cannot go on, and no decoding
    options such as constraints.

    Args:
        predictor: The model, of one run.
        folder: The folder, which must be missing or empty.

    Raises:
        ArgumentError: The model is an ensemble, or an argument has the wrong type.
        RunError: The folder is not empty or cannot be written.
    """
    model: Predictor = convert_argument("predictor", predictor, Predictor)
    path: Path = convert_argument("folder", folder, str | Path)
    if model.is_ensemble:
        raise ArgumentError("predictor: expected the model of one run, got an ensemble: save its members")
    if foreign := unexpected_files(path, ()):
        raise RunError(f"{path} is not empty ({', '.join(foreign[:3])}); name a new folder")
    config = model.config
    pair_ngram = model.pair_ngram if isinstance(model, Transducer) else None
    if pair_ngram is None and uses_pair_ngram(config):  # no model could be fitted, or its file was lost
        config = msgspec.structs.replace(config, search=msgspec.structs.replace(config.search, pair_ngram=False))
    with wrap_os_errors("write", path):
        path.mkdir(parents=True, exist_ok=True)
    initialize_run_folder(path, config, model.vocabularies)
    if pair_ngram is not None:
        save_pair_ngram(path / PAIR_NGRAM, SavedPairNgram(pair_ngram.model, pair_ngram.weight))
    if model.confidence is not None:
        save_confidence(path / CONFIDENCE, SavedConfidence(model.confidence, ""))
    is_validated = pair_ngram is None or not pair_ngram.predicts_alone
    run = describe_run(config, model.vocabularies, "", 0, is_validated)
    write_atomic(path / MODEL, encode_network(model.network, run))
