"""training/confidence_training.py: the confidence of a finished training, lost files, outputs without confidence."""

import itertools
import json
import math
from pathlib import Path

import pytest
from trained_runs import (
    DataFiles,
    assert_runs_identical,
    copy_run_folder,
    make_small_config,
    shared_folder,
    train_to_end,
    write_copy_files,
)

from pellucid.config.settings import Config
from pellucid.data.examples import Example, read_examples
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.errors import RunError
from pellucid.evaluation.assessment import score_traces
from pellucid.run_folder.confidence_file import load_confidence
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.run_files import CONFIDENCE
from pellucid.training import confidence_training, validation_sample
from pellucid.training.confidence_training import fit_predictor_confidence
from pellucid.training.events import ConfidenceFitted, PairNgramWeighted, TrainingStopped

CONFIGS = {
    "network": make_small_config({"epochs": 2}),
    "pair n-gram": make_small_config({"epochs": 2, "pair_ngram": True}),
}


@pytest.fixture(scope="module")
def files() -> DataFiles:
    return write_copy_files(shared_folder() / "with-confidence")


@pytest.fixture(scope="module", params=CONFIGS)
def finished(request: pytest.FixtureRequest, files: DataFiles) -> Path:
    """Return the folder of a finished run."""
    folder: Path = shared_folder() / "with-confidence" / request.param.replace(" ", "-")
    kinds = [type(event) for event in train_to_end(files, folder, CONFIGS[request.param])]
    assert kinds.count(ConfidenceFitted) == 1 and kinds.index(ConfidenceFitted) < kinds.index(TrainingStopped)
    if PairNgramWeighted in kinds:
        assert kinds.index(PairNgramWeighted) < kinds.index(ConfidenceFitted)
    return folder


def config_of(folder: Path) -> Config:
    return CONFIGS[folder.name.replace("-", " ", 1)]


def test_best_outputs_have_the_confidence_of_the_file(finished: Path, files: DataFiles) -> None:
    predictor = load(finished)
    validation = read_examples(files.valid, predictor.config.data).examples
    saved = load_confidence(finished / CONFIDENCE).model
    assert predictor.confidence == saved and saved.num_examples == len(validation)
    assert saved.pair_ngram_weight == predictor.pair_ngram_weight
    traces = predictor.predict_examples(validation)
    confidences = [trace.confidence or 0.0 for trace in traces]
    assert all(0 < confidence < 1 for confidence in confidences)
    right = [scored.exact for scored in score_traces(traces, [(e.target,) for e in validation], predictor.tokenizers)]
    wrong = sorted((c for c, is_right in zip(confidences, right, strict=True) if not is_right), reverse=True)
    rounded_up = [math.ceil(round(value * 1e5, 4)) / 1e5 for value in wrong]
    assert rounded_up == pytest.approx(saved.wrong_confidences, abs=2e-5)
    (record,) = (record for record in read_log(finished) if record["event"] == "confidence")
    assert record["examples"] == len(validation)
    assert record["exact_match"] == pytest.approx(100 * sum(right) / len(right))
    assert "seconds" not in record


def test_other_outputs_have_no_confidence(finished: Path) -> None:
    predictor, sources = load(finished), ["abc", "d", ""]
    plain = predictor.predict(sources)
    assert [trace.confidence is None for trace in plain] == [False, False, True]
    lists = predictor.nbest(sources, 3)
    assert [[trace.confidence is not None for trace in traces] for traces in lists[:2]] == [[True, False, False]] * 2
    assert [traces[0].output for traces in lists] == [trace.output for trace in plain]
    for without in (
        predictor.with_beam(1).predict(sources),
        predictor.with_options(DecodingOptions(prefix="a")).predict(sources),
        predictor.with_options(DecodingOptions(forbidden=("a",))).predict(sources),
        predictor.with_options(DecodingOptions(required=("a",))).predict(sources),
        predictor.with_options(DecodingOptions(masked_positions=(0,))).predict(["abc", "db"]),
        predictor.predict(sources, prefixes=["a", "", ""]),
        [traces[0] for traces in predictor.nbest(sources, predictor.config.search.beam_size + 1)],
        [traces[0] for traces in predictor.sample(sources, SamplingConfig(samples=1))],
        load([finished, finished]).predict(sources),
        predictor.score_examples([Example("abc", "abc")]),
    ):
        assert all(trace.confidence is None for trace in without)
    assert predictor.no_confidence_reason() == ""
    assert (
        predictor.no_confidence_reason(has_example_prefixes=True)
        == "the confidence does not hold for outputs with a prefix"
    )
    assert load([finished]).no_confidence_reason() == (
        "no confidence is fitted to the outputs of these runs together; train --ensemble fits one"
    )
    assert "search.beam_size is 1" in predictor.with_beam(1).no_confidence_reason()


def test_the_weight_of_the_pair_ngram_model_must_be_that_of_the_fit(finished: Path) -> None:
    predictor = load(finished)
    if not predictor.pair_ngram_weight:
        return
    by_network = predictor.with_search({"pair_ngram": False})
    assert by_network.no_confidence_reason() == (
        "the network ranks the outputs alone, and ranked them with the pair n-gram model when the confidence was fitted"
    )
    assert by_network.predict(["abc"])[0].confidence is None


@pytest.mark.parametrize("damage", ["missing", "damaged", "foreign"])
def test_the_training_command_restores_the_file(finished: Path, files: DataFiles, tmp_path: Path, damage: str) -> None:
    folder = copy_run_folder(finished, tmp_path / "run")
    path = folder / CONFIDENCE
    if damage == "missing":
        path.unlink()
        assert load(folder).predict(["abc"])[0].confidence is None
        assert "the training command, given again, fits it" in load(folder).no_confidence_reason()
    elif damage == "damaged":
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(RunError, match=rf"{CONFIDENCE} is damaged: .*run the training command again"):
            load(folder)
    else:
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "fingerprint": "other"}), "utf-8")
        with pytest.raises(RunError, match=rf"{CONFIDENCE} and .*model.safetensors are not of the same run"):
            load(folder)
    train_to_end(files, folder, config_of(finished))
    assert_runs_identical(folder, finished)


def test_a_passed_time_limit_leaves_few_sources_for_the_confidence(finished: Path) -> None:
    """Regression test: 500 sources were decoded after the limit: runs of 50 seconds ended after 60."""
    predictor = load(finished)
    validation = [Example("".join(letters), "a") for letters in itertools.product("abcd", repeat=5)]
    fitted = fit_predictor_confidence(predictor, validation, "", seconds=0.0)
    assert fitted is not None and 100 <= fitted.event.num_examples <= 140


def test_the_number_of_pairs_and_the_time_are_limited(
    finished: Path, tmp_path: Path, files: DataFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_run_folder(finished, tmp_path / "run")
    predictor = load(folder)
    validation = read_examples(files.valid, predictor.config.data).examples
    repeated = validation * 3 + [Example("", "a")]
    fitted = fit_predictor_confidence(predictor, repeated, "")
    assert fitted is not None and fitted.saved.model.num_examples == 3 * len(validation)
    monkeypatch.setattr(confidence_training, "MAX_CONFIDENCE_PAIRS", 4)
    limited = fit_predictor_confidence(predictor, repeated, "")
    assert limited is not None and limited.saved.model.num_examples == 4
    monkeypatch.setattr(confidence_training, "MAX_CONFIDENCE_PAIRS", 2000)
    monkeypatch.setattr(confidence_training, "MIN_SOURCES", 2)
    monkeypatch.setattr(validation_sample, "BLOCK_SIZE", 2)
    in_time = fit_predictor_confidence(predictor, validation, "", seconds=0.0)
    assert in_time is not None and in_time.saved.model.num_examples == 2
    assert fit_predictor_confidence(predictor, [Example("", "a")], "") is None
