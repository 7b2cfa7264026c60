"""run_folder/provisional_weight.py: outputs of the pair n-gram model while the network trains."""

import json
import re
import shutil
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import run_pellucid
from report_documents import read_report, section_titles, select_parts
from service_process import run_coroutine
from trained_runs import (
    DataFiles,
    assert_runs_identical,
    copy_run_folder,
    make_copy_examples,
    make_small_config,
    shared_folder,
    train_to_end,
    write_pairs,
)

import pellucid
from pellucid.config.settings import Config, DataConfig
from pellucid.data.examples import Example, read_examples
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.transducer import Transducer, require_transducer
from pellucid.errors import RunError
from pellucid.run_folder.identity import ModelIdentity, has_validated_model, read_identity
from pellucid.run_folder.log import RunLog, load_run_log
from pellucid.run_folder.model_file import UPDATE, VALIDATED
from pellucid.run_folder.predictor_loader import load, load_without_warnings
from pellucid.run_folder.provisional_weight import (
    PROVISIONAL_WEIGHT,
    WEIGHT_BEFORE_VALIDATION,
    provisional_weight,
)
from pellucid.run_folder.unfinished_training import find_unfinished
from pellucid.runtime.loader import load as load_runtime
from pellucid.serving.decoding_worker import BatchJob, ModelRunner, OperationError, supported_operations
from pellucid.serving.metrics import ServiceMetrics
from pellucid.serving.model_service import ModelService
from pellucid.serving.options import ServiceOptions
from pellucid.serving.schema import (
    AlignRequest,
    DecodingRequest,
    OperationName,
    PairRow,
    PredictRequest,
    ScoreRequest,
    SourceRow,
)
from pellucid.training.events import PairNgramFitted, RunEvent, UpdateCompleted, ValidationCompleted
from pellucid.training.session import train_run
from pellucid.viewer.inputs import open_run
from pellucid.viewer.report_schema import ReportCharts, ReportExamples, ReportTable
from pellucid.worker_pool import WorkerChannel

CONFIG = make_small_config({"epochs": 2, "pair_ngram": True})
NO_MODEL = "holds no model yet: its training has not reached a first validation"
SENTENCE = "the network has no validation yet, and outputs are those of the pair n-gram model until then"
WITHOUT_CHECKPOINT = (
    "the training was unfinished when this model was saved, and the folder has no checkpoint to resume it from; the "
    "network has no validation, and outputs are those of the pair n-gram model"
)


def make_log(*events: tuple[str, dict[str, Any]]) -> RunLog:
    """Return a log of some records."""
    log = RunLog(Path("log.jsonl"))
    for event, fields in events:
        log.add({"event": event, **fields})
    return log


def validated(update: int, exact_match: float, best: bool = True) -> tuple[str, dict[str, Any]]:
    return "validated", {"update": update, "exact_match": exact_match, "best": best}


FITTED = "pair_ngram", {"examples": 10, "exact_match": 50.0}


@pytest.mark.parametrize(
    ("update", "log", "weight"),
    [
        (20, make_log(FITTED, validated(10, 60.0), validated(20, 40.0), validated(30, 70.0, False)), 0.6),
        (10, make_log(FITTED, validated(10, 60.0), validated(20, 40.0)), 0.5),  # the log is ahead
        (10, make_log(FITTED, validated(10, 50.0)), 0.5),
        (10, make_log(FITTED, validated(10, 25.4), validated(10, 30.0, False)), 0.75),
        (10, make_log(FITTED, validated(10, 0.0)), 1.0),
        (10, make_log(("pair_ngram", {"examples": 10, "exact_match": 0.0}), validated(10, 0.0)), 0.5),
        (10, make_log(FITTED, validated(20, 40.0)), 0.5),  # the record of the model is lost
        (10, make_log(validated(10, 40.0)), 0.5),
        (10, make_log(), 0.5),
    ],
)
def test_the_weight_follows_from_the_log(update: int, log: RunLog, weight: float) -> None:
    identity = ModelIdentity(Path(), {UPDATE: str(update)})
    assert provisional_weight(identity, log) == weight >= PROVISIONAL_WEIGHT
    first = ModelIdentity(Path(), {UPDATE: "0", VALIDATED: "false"})
    assert provisional_weight(first, log) == WEIGHT_BEFORE_VALIDATION == 1


@pytest.fixture(scope="module")
def files() -> DataFiles:
    """Return pairs of which the pair n-gram model knows some only."""
    folder = shared_folder() / "first-model"
    folder.mkdir()
    examples = make_copy_examples(60, seed=1)
    odd = [pair._replace(target=pair.target[::-1]) if number % 3 else pair for number, pair in enumerate(examples)]
    train, valid = write_pairs(folder / "train.tsv", odd[:40]), write_pairs(folder / "dev.tsv", odd[40:])
    return DataFiles(train, valid)


@pytest.fixture(scope="module")
def finished(files: DataFiles) -> Path:
    """Return the folder of an undisturbed training."""
    train_to_end(files, shared_folder() / "first-model" / "finished", CONFIG)
    return shared_folder() / "first-model" / "finished"


@pytest.fixture(scope="module")
def interrupted(files: DataFiles) -> Path:
    """Return the folder of a training that was interrupted after two updates, before its first validation."""
    return interrupt(files, shared_folder() / "first-model" / "interrupted", UpdateCompleted, 2)


def interrupt(files: DataFiles, folder: Path, kind: type[RunEvent], number: int = 1, config: Config = CONFIG) -> Path:
    """Interrupt a training after the given number of events of a kind."""
    events = train_run(files, folder, config)
    for event in events:
        number -= isinstance(event, kind)
        if not number:
            break
    events.close()
    return folder


def message(run: Path, update: int) -> str:
    """Return the message about an interrupted run."""
    return f"{run}: the training is unfinished (update {update} of 10); the training command resumes it; {SENTENCE}"


def outputs_of_pair_ngram(run: Path, files: DataFiles) -> list[str]:
    """Return the outputs of the pair n-gram model of a run for the validation set."""
    predictor = require_transducer(load_without_warnings(run), "run")
    symbols = predictor.predict_by_pair_ngram(read_examples(files.valid, DataConfig()).examples)
    return [predictor.tokenizers.target.join(each) for each in symbols]


def test_a_run_without_a_validation_predicts_by_its_pair_ngram_model(
    interrupted: Path, finished: Path, files: DataFiles, tmp_path: Path
) -> None:
    """Regression test: it held no model yet."""
    run = copy_run_folder(interrupted, tmp_path / "run")
    examples, expected = read_examples(files.valid, DataConfig()).examples, outputs_of_pair_ngram(finished, files)
    for load_run in (pellucid.load, load_runtime):
        with pytest.warns(UserWarning) as caught:
            predictor = load_run(run)
        assert [str(warning.message) for warning in caught] == [message(run, 2)]
        assert isinstance(predictor, Transducer) or load_run is load_runtime
        assert predictor.pair_ngram_weight == 1 and predictor.confidence is None
        assert [trace.output for trace in predictor.predict_examples(examples)] == expected
        for nbest in predictor.nbest_examples(examples[:4], 8):
            scores = [trace.score if trace.search_score is None else trace.search_score for trace in nbest]
            assert scores == sorted(scores, reverse=True)
    result = run_pellucid("predict", run, files.valid)
    assert result.code == 0 and result.err.count(message(run, 2)) == 1, result
    assert [line.split("\t")[-1] for line in result.out.splitlines()] == expected
    result = run_pellucid("evaluate", run, files.valid, "--json")
    values = json.loads(result.out)
    assert 0 < values["exact_match"] == values["pair_ngram"]["exact_match"] < 100
    (training,) = values["unfinished_trainings"]
    assert training["validated"] is False and training["pair_ngram_weight"] == 1
    assert result.err.count(message(run, 2)) == 1
    assert "--no-pair-ngram" not in result.err and "label_smoothing" not in result.err, "these are about a network"
    train_to_end(files, run, CONFIG)
    assert_runs_identical(run, finished)
    assert has_validated_model(run) and find_unfinished(run) == []


def test_the_model_is_there_when_the_pair_ngram_model_is_fitted(
    finished: Path, files: DataFiles, tmp_path: Path
) -> None:
    """It is the untrained network, and the checkpoint is that of the first update."""
    run = interrupt(files, tmp_path / "run", PairNgramFitted)
    (unfinished,) = find_unfinished(run)
    assert unfinished.update == 0 and not unfinished.validated and not unfinished.made_all_updates
    model = (run / "model.safetensors").read_bytes()
    copy = copy_run_folder(run, tmp_path / "copy")
    (copy / "model.safetensors").unlink()  # killed between checkpoint and model
    damaged = copy_run_folder(run, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(model[:-9])
    for folder in (copy, damaged):
        interrupt(files, folder, UpdateCompleted)
        assert (folder / "model.safetensors").read_bytes() == model
    for folder in (run, copy, damaged):
        train_to_end(files, folder, CONFIG)
        assert_runs_identical(folder, finished)


def test_the_first_validation_replaces_the_model(finished: Path, files: DataFiles, tmp_path: Path) -> None:
    """A training that was killed between its checkpoint and the model of its first validation writes the model."""
    run = interrupt(files, tmp_path / "run", PairNgramFitted)
    model = (run / "model.safetensors").read_bytes()
    interrupt(files, run, ValidationCompleted)
    assert read_identity(run).is_validated and read_identity(run).update == "5"
    fitted, best = load_run_log(run).first("pair_ngram"), load_run_log(run).last_best
    assert fitted is not None and best is not None and best["exact_match"] < fitted["exact_match"]
    weight = round(1 - best["exact_match"] / fitted["exact_match"] / 2, 2)
    with pytest.warns(UserWarning, match=f"the weight of the pair n-gram model is {weight:g}$"):
        assert load(run).pair_ngram_weight == weight
    assert run_pellucid("share", run, "--to", tmp_path / "shared").code == 0
    assert load(tmp_path / "shared").pair_ngram_weight == weight  # it has no log
    (run / "model.safetensors").write_bytes(model)
    with pytest.warns(UserWarning, match=SENTENCE):
        assert load(run).pair_ngram_weight == 1
    train_to_end(files, run, CONFIG)
    assert_runs_identical(run, finished)


def test_what_needs_the_network_waits_for_its_first_validation(
    interrupted: Path, files: DataFiles, tmp_path: Path
) -> None:
    commands = [
        ("predict", interrupted, files.valid, "--no-pair-ngram"),
        ("predict", interrupted, files.valid, "--length-normalization", "average"),
        ("predict", interrupted, files.valid, "--sample", "2"),
        ("evaluate", interrupted, files.valid, "--no-pair-ngram"),
        ("score", interrupted, files.valid),
        ("align", interrupted, files.valid, "--method", "attention"),
        ("look", interrupted, files.valid, "--terminal"),
        ("look", interrupted, files.valid, "--export", tmp_path / "page.html"),
        ("look", interrupted, "--export", tmp_path / "page.html"),
        ("share", interrupted, "--to", tmp_path / "shared"),
        ("train", files.train, "--valid", files.valid, "--init-from", interrupted, "--run", tmp_path / "run"),
    ]
    for arguments in commands:
        result = run_pellucid(*arguments)
        assert result.code == 2 and f"{interrupted} {NO_MODEL}" in result.err, (arguments, result)
        assert "if it was interrupted, its training command resumes it, and predict and evaluate give" in result.err
        assert "--license" not in result.err, "share gave advice on the card before it refused"
    assert run_pellucid("align", interrupted, files.valid, "--method", "em").code == 0
    assert open_run(interrupted, "run", "cpu", None).predictor is None  # the page waits, and shows the training


def test_a_saved_predictor_and_an_ensemble_keep_the_state(interrupted: Path, files: DataFiles, tmp_path: Path) -> None:
    examples = read_examples(files.valid, DataConfig()).examples
    expected = outputs_of_pair_ngram(interrupted, files)
    with pytest.warns(UserWarning, match=SENTENCE):
        predictor = load(interrupted)
    pellucid.save(predictor, tmp_path / "saved")
    shutil.copytree(interrupted, tmp_path / "copy", ignore=shutil.ignore_patterns("training*", "log*"))
    for run in (tmp_path / "saved", tmp_path / "copy", [interrupted, interrupted]):
        with pytest.warns(UserWarning, match=SENTENCE if isinstance(run, list) else WITHOUT_CHECKPOINT):
            loaded = load(run)
        assert [trace.output for trace in loaded.predict_examples(examples)] == expected


def test_a_copy_without_a_checkpoint_cannot_be_resumed(interrupted: Path, tmp_path: Path) -> None:
    """Regression test: the message said that the training command resumes it."""
    ignored = shutil.ignore_patterns("training*", "log*")
    copy = Path(shutil.copytree(interrupted, tmp_path / "copy", ignore=ignored))
    (unfinished,) = find_unfinished(copy)
    assert str(unfinished) == f"{copy}: {WITHOUT_CHECKPOINT}" and not unfinished.has_checkpoint
    (copy / "pair_ngram.safetensors").unlink()
    for load_run in (load, load_runtime):
        with pytest.raises(
            RunError, match=r"pair_ngram\.safetensors is missing, and the network of .* no validation yet"
        ):
            load_run(copy)


def test_an_ensemble_refuses_a_hardly_trained_network_beside_a_trained_one(
    interrupted: Path, finished: Path, files: DataFiles
) -> None:
    """Regression test: both networks took part, and a message said that the pair n-gram model predicts alone."""
    reason = f"{interrupted} cannot be a member of the ensemble yet: its training has not reached a first validation"
    for runs in ([finished, interrupted], [interrupted, finished]):
        for load_run in (load, load_runtime):
            with pytest.raises(RunError, match=reason):
                load_run(runs)
        result = run_pellucid("predict", *runs, files.valid)
        assert result.code == 2 and reason in result.err and SENTENCE not in result.err, result


def test_outputs_of_the_pair_ngram_model_alone_are_marked(interrupted: Path, files: DataFiles, tmp_path: Path) -> None:
    """Regression test: their numbers of the untrained network were not told from those of a trained one."""
    source = tmp_path / "sources.txt"
    source.write_text("abc\n", "utf-8")
    for flags in ((), ("--nbest", "2")):
        command = ("predict", interrupted, source, *flags, "--output-format")
        record = json.loads(run_pellucid(*command, "jsonl").out)
        traces = record if flags else [record]
        assert {trace["origin"] for trace in traces} == {"pair_ngram"}
        assert pellucid.Trace.from_json(json.dumps(traces[0])).origin == "pair_ngram"
        row = run_pellucid(*command, "tsv").out.splitlines()[0].split("\t")
        assert row[3 if flags else 2] == ""
        names, values = (line.split(",") for line in run_pellucid(*command, "csv").out.splitlines()[:2])
        cells = dict(zip(names, values, strict=True))
        assert cells["output"] and cells["log_probability"] == cells["probability"] == ""
    line = json.loads(run_pellucid("predict", interrupted, source, "--text", "--output-format", "jsonl").out)
    (word,) = line["words"]
    assert word["log_probability"] is word["probability"] is None and word["origin"] == "pair_ngram"
    for load_run in (load, load_runtime):
        with pytest.warns(UserWarning, match=SENTENCE):
            predictor = load_run(interrupted)
        (trace,), (empty,) = predictor.predict(["abc"]), predictor.predict([""])
        assert trace.origin == "pair_ngram" and empty.origin == "search"


def test_an_evaluation_has_no_scores_of_a_hardly_trained_network(interrupted: Path, tmp_path: Path) -> None:
    """Regression test: its log-probabilities were in the list of errors without a mark."""
    pairs, errors = tmp_path / "pairs.tsv", tmp_path / "errors.csv"
    pairs.write_text("abc\tno such target\n", "utf-8")
    completed = run_pellucid("evaluate", interrupted, pairs, "--json", "--errors", errors)
    assert completed.code == 0, completed.err
    result = json.loads(completed.out)
    assert [row["log_probability"] for row in result["worst"]] == [None]
    # Regression test: the parameters of the network were counted, which takes no part in the outputs.
    assert result["parameters"] is None and "parameters" not in run_pellucid("evaluate", interrupted, pairs).out
    names, values = (line.split(",") for line in errors.read_text("utf-8").splitlines())
    assert dict(zip(names, values, strict=True))["log_probability"] == ""
    assert "worst examples" in run_pellucid("evaluate", interrupted, pairs).out


def test_an_evaluation_has_no_calibration_and_attention_of_a_hardly_trained_network(
    interrupted: Path, finished: Path, tmp_path: Path
) -> None:
    """Regression test: its reliability, selective accuracy and attention weights were not marked."""
    pairs, page = tmp_path / "pairs.tsv", tmp_path / "page.html"
    pairs.write_text("abc\tno such target\nabd\tabd\n", "utf-8")
    assert json.loads(run_pellucid("evaluate", interrupted, pairs, "--json").out)["calibration"] is None
    result = run_pellucid("evaluate", interrupted, pairs, "--html", page)
    assert result.code == 0 and "selective accuracy" not in result.out, result
    (line,) = (line for line in result.out.splitlines() if line.strip().startswith("calibration error  "))
    assert "– " in line and "no validation of the network yet" in line
    document = read_report(page)
    assert "Calibration" not in section_titles(document) and not select_parts(document, ReportExamples)
    (errors,) = select_parts(document, ReportTable, "Errors")
    assert "no validation yet" in errors.caption and [list(row)[::2] for row in errors.rows][:1] == [
        ["abc", "no such target"]
    ]
    compared = run_pellucid("evaluate", finished, interrupted, pairs, "--html", page)
    assert compared.code == 0 and re.search(r"parameters +│? *[\d,]+ +│? *– ", compared.out), compared
    document = read_report(page)
    assert not select_parts(document, ReportExamples)
    (calibration,) = (part for part in select_parts(document, ReportCharts) if part.title == "Calibration")
    assert [line.name for line in calibration.charts[0].lines] == ["finished", "perfect calibration"]
    assert calibration.caption.endswith("Without a validation of the network, so that they have no line: interrupted.")


def test_a_predictor_and_the_service_refuse_what_needs_the_network(interrupted: Path) -> None:
    """Regression test: they used the untrained network where the subcommands refuse it."""
    pairs = [Example("abc", "abc")]
    operations: list[Callable[[BasePredictor], object]] = [
        lambda predictor: predictor.score_examples(pairs),
        lambda predictor: predictor.align(pairs),
        lambda predictor: predictor.sample(["abc"], SamplingConfig()),
        lambda predictor: predictor.with_search({"pair_ngram": False}).predict(["abc"]),
        lambda predictor: predictor.with_options(DecodingOptions(masked_positions=(0,))).predict(["abc"]),
    ]
    for load_run in (load, load_runtime):
        with pytest.warns(UserWarning, match=SENTENCE):
            predictor = load_run(interrupted)
        for operation in operations:
            with pytest.raises(RunError, match=NO_MODEL):
                operation(predictor)
    model = require_transducer(load_without_warnings(interrupted), "run")
    assert supported_operations(model) == ["predict", "nbest"], "the list had operations that answer with status 409"
    service = ModelRunner(model, 100)
    row, pair = SourceRow(source="abc"), PairRow(source="abc", target="abc")
    requests: list[tuple[OperationName, DecodingRequest, SourceRow | PairRow]] = [
        ("score", ScoreRequest(rows=[]), pair),
        ("align", AlignRequest(rows=[]), pair),
        ("attention", PredictRequest(rows=[]), row),
    ]
    for operation_name, request, given in requests:
        with pytest.raises(OperationError, match=f"^{operation_name}: .* {NO_MODEL}"):
            service(BatchJob(operation_name, request, [given], [0]), WorkerChannel(Pipe()[0], 0, None))
    (result,) = service(BatchJob("predict", PredictRequest(rows=[]), [row], [0]), WorkerChannel(Pipe()[0], 0, None))
    assert json.loads(result)["output"] and json.loads(result)["score"] is None


def test_without_the_pair_ngram_model_in_searches_there_is_no_first_model(files: DataFiles, tmp_path: Path) -> None:
    """The untrained network would predict alone."""
    searches: list[dict[str, Any]] = [{"pair_ngram": False}, {"length_normalization": "average"}]
    for number, search in enumerate(searches):
        config = replace_search(CONFIG, search)
        run = interrupt(files, tmp_path / str(number), UpdateCompleted, config=config)
        with pytest.raises(RunError, match=f"{NO_MODEL}; if it was interrupted, its training command resumes it$"):
            load(run)
    run = interrupt(files, tmp_path / "alone", UpdateCompleted, config=make_small_config({"epochs": 2}))
    with pytest.raises(RunError, match=f"{NO_MODEL}; if it was interrupted, its training command resumes it$"):
        load(run)


def replace_search(config: Config, search: dict[str, Any]) -> Config:
    """Return a configuration with other search settings."""
    return msgspec.structs.replace(config, search=msgspec.structs.replace(config.search, **search))


def test_the_service_says_that_the_network_has_no_validation(
    interrupted: Path, finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in (interrupted, finished):
        service = ModelService("m", folder, ServiceOptions(), ServiceMetrics())
        run_coroutine(service._report_missing_validations())
    text = message(interrupted, 2).removeprefix(f"{interrupted}: ")
    assert [record.getMessage() for record in caplog.records] == [f"m: {text}"]  # the run was named twice
